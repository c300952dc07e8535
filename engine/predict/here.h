/* SPDX-License-Identifier: Apache-2.0
 * engine/predict/here.h - a machine that heddle machine has measured. Its file, what a layout's ranks are given of it, and what
 * its rates say of an entry.
 */
#ifndef HD_ENGINE_PREDICT_HERE_H
#define HD_ENGINE_PREDICT_HERE_H
#include "engine/predict/price.h"
#include "engine/predict/simulate.h"
#include "engine/rates/rates.h"

/* hd_machine_read, and the rates where the file has some; these are released by hd_machine_close. */
int hd_machine_open(const char *name, struct hd_machine *m, struct hd_err *err);
void hd_machine_close(struct hd_machine *m);
/* Ranks of a node for hd_cli_plan: -1: all that there are, of a machine of one host. */
int64_t hd_machine_node_size(const struct hd_machine *m);
/* Bytes that each of so many ranks has. */
double hd_machine_memory(const struct hd_machine *m, int64_t ranks);
/* Cores and memory shared out to the ranks of a plan.  Nothing, where nothing was measured
 * or it has been done. */
void hd_machine_share(struct hd_machine *m, const struct hd_plan *p);
/* Ranks that share cores: a step takes at least all their work on these, where it is longer than the ranks' own order of it.
 * A rank that waits leaves its core to others.  Of a part of a job, only how many share a core is said. */
void hd_machine_busy(const struct hd_machine *m, const struct hd_plan *p, struct hd_prediction *r);
/* Ranks compute in the host's memory, and move between themselves what is in it: in their own time. */
int hd_machine_is_host(const struct hd_machine *m);

/* Seconds by measured rates; less than 0: not known. */
double hd_known_kernel(const struct hd_pricing *x, const struct node *n);
double hd_known_added(const struct hd_pricing *x, const struct tensor *t, const struct tensor *to);
double hd_known_movement(const struct hd_pricing *x, const struct node *n, double sent);

#endif
