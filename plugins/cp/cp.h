/* SPDX-License-Identifier: Apache-2.0
 * plugins/cp/cp.h - declarations that the files of this plugin share.
 */
#ifndef HD_PLUGIN_CP_H
#define HD_PLUGIN_CP_H
#include <heddle/strategy.h>

struct hd_strategy;

/* How attention, the only layer that reads other tokens, is computed over a sharded sequence. */
struct cp_form {
	const char *name;
	int (*rewrite)(struct hd_strategy *s, struct hd_plan *p);
	int (*rules)(struct hd_strategy *s, struct hd_plan *p);
	int (*lower)(struct hd_strategy *s, struct hd_plan *p);
}; /* rewrite, lower: NULL does nothing */
extern const struct cp_form cp_ulysses, cp_ring;

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_graph_api *g;
	const struct cp_form *form;
	const struct hd_axis *axis;
	const struct hd_dim *seq;
	const struct hd_group *members;
	int zigzag;  /* member i of n has pieces i and 2n-1-i of 2n of the tokens */
	int taken;   /* attention nodes that this section replaced by rings */
	int windows; /* those of them that have a window */
};
#endif
