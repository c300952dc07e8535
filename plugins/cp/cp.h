/* SPDX-License-Identifier: Apache-2.0
 * plugins/cp/cp.h - what the files of this plugin share.
 */
#ifndef HD_PLUGIN_CP_H
#define HD_PLUGIN_CP_H
#include <heddle/strategy.h>

struct hd_strategy;

/* How attention, the one layer that reads other tokens, is made over a sequence that is sharded. */
struct cp_form {
	const char *name;
	int (*rewrite)(struct hd_strategy *s, struct hd_plan *p);
	int (*rules)(struct hd_strategy *s, struct hd_plan *p);
	int (*lower)(struct hd_strategy *s, struct hd_plan *p);
}; /* rewrite, lower: NULL, nothing */
extern const struct cp_form cp_ulysses, cp_ring;

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_graph_api *g;
	const struct cp_form *form;
	const struct hd_axis *axis;
	const struct hd_dim *seq;
	const struct hd_group *members;
	int zigzag;  /* tokens of a member: pieces i and 2n - 1 - i of 2n */
	int taken;   /* nodes of attention that are this section's rings */
	int windows; /* of them, those with a window */
};
#endif
