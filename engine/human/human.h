/* SPDX-License-Identifier: Apache-2.0
 * engine/human/human.h - numbers as people read them: two to four digits and a unit. JSON output keeps the plain
 * numbers.
 */
#ifndef HD_ENGINE_HUMAN_HUMAN_H
#define HD_ENGINE_HUMAN_HUMAN_H

struct hd_human { /* returned by value: printf("%s", hd_human_bytes(b).text) */
	char text[32];
};
struct hd_human hd_human_bytes(double bytes); /* "44.5 TB", "320 bytes": powers of 1000 */
/* Writes both in the unit that hd_human_bytes gives the smaller one, with more digits if they would look the same. */
void hd_human_two(double a, double b, struct hd_human text[2]);
struct hd_human hd_human_seconds(double seconds); /* "12.5 us", "7.0 s" */
struct hd_human hd_human_step(double seconds);    /* three digits, for comparing: "1.07 s", "89.8 ms" */
struct hd_human hd_human_count(double n);         /* "8.3 M", "175.0 G", "640" */
struct hd_human hd_human_rate(double flops);      /* "4.4 GFLOP/s", "1.0 PFLOP/s", "320.0 FLOP/s" */
struct hd_human hd_human_time(double seconds);    /* as clocks show it: "45s", "3m20s", "5h07m", "2d04h" */

#endif
