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
	int (*rules)(struct hd_strategy *s, struct hd_plan *p);
};
extern const struct cp_form cp_ulysses;

struct hd_strategy {
	const struct hd_host *h;
	const struct hd_graph_api *g;
	const struct cp_form *form;
	const struct hd_axis *axis;
};
#endif
