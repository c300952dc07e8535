/* SPDX-License-Identifier: Apache-2.0
 * engine/predict/price.h - the cost of an entry of a program on a machine: a kernel, a sum, a movement.
 *
 * A kernel takes the longer of its arithmetic and its memory traffic, plus its latency. Products reach a share of the
 * peak that depends on their FLOPs and their smallest extent. Memory reaches a share of its bandwidth that depends on
 * the bytes.
 *
 * A group with k members on each of several nodes sends through k network cards. Its rings are laid so that each leaves
 * a node once, through a different card. So a ring collective takes the longer of its bytes over a rank's link within
 * the node, and its bytes over k cards. A node with fewer cards than ranks shares them among all its ranks, which do
 * the same at the same time.
 */
#ifndef HD_ENGINE_PREDICT_PRICE_H
#define HD_ENGINE_PREDICT_PRICE_H
#include "engine/config/machine.h"
#include "engine/predict/style.h"
#include "engine/program/program.h"

struct hd_spread {           /* how a group is spread over nodes, as one of its members sees it */
	int64_t here, nodes; /* here: members on this node; nodes: nodes with members, 0: not known yet */
};
struct hd_pricing {
	const struct hd_machine *m;
	const struct hd_style *style;
	const struct hd_program *g;
	struct hd_spread *spread; /* by group id */
	double *layers;           /* hd_layers_sent; NULL: each tensor is sent by itself */
};
struct hd_movement_price {
	double seconds;            /* from the moment when all members have arrived */
	double occupied[HD_LINKS]; /* the part of them in which a link carries nothing else */
	double sent[HD_LINKS];     /* bytes */
};

void hd_pricing_begin(struct hd_pricing *x, const struct hd_machine *m, const struct hd_style *style,
		      const struct hd_program *g);
void hd_pricing_end(struct hd_pricing *x);
/* Returns seconds. A node that runs only every few steps counts in part. */
double hd_price_kernel(const struct hd_pricing *x, const struct node *n);
/* Returns FLOPs of products: the style's minus Heddle's. */
double hd_price_more_flops(const struct hd_pricing *x, const struct node *n);
double hd_price_accumulate(const struct hd_pricing *x, const struct entry *e);
struct hd_movement_price hd_price_movement(const struct hd_pricing *x, const struct node *n);
double hd_price_elements(const struct tensor *t); /* returns the elements on a rank */
/* Returns the scores of an attention on a rank: queries x keys x heads, for all sequences. */
double hd_price_scores(const struct node *n);
int hd_over_stages(const struct hd_plan *p, const struct group *g);

#endif
