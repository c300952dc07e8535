/* SPDX-License-Identifier: Apache-2.0
 * plugins/pp/pp.h - declarations that the files of this plugin share.
 */
#ifndef PP_H
#define PP_H
#include <heddle/strategy.h>

enum { PP_GPIPE, PP_1F1B, PP_INTERLEAVED, PP_ZB, PP_FILE };

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_graph_api *g;
	const struct hd_axis *pp;
	int64_t chunks;
	int order; /* PP_GPIPE ... */
	int scatter;
};

int pp_rules(struct hd_strategy *s, struct hd_plan *p);               /* split.c */
int pp_schedule(struct hd_strategy *s, struct hd_plan *p, int64_t m); /* schedule.c */
int pp_lower(struct hd_strategy *s, struct hd_plan *p);               /* scatter.c */

#endif
