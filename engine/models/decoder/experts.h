/* SPDX-License-Identifier: Apache-2.0
 * engine/models/decoder/experts.h - a layer of experts, for the families that have one: a router chooses, each token goes to its experts
 * and comes back.  What the experts compute is the family's.
 *
 *	struct hd_experts e;
 *	struct tensor *d = hd_experts_begin(p, x, router, NULL, site, &e);	// (expert, batch, slot, embed)
 *	... products with weights (expert, ...), elementwise ops ...
 *	x = hd_experts_end(p, y, &e);					// (batch, seq, embed)
 */
#ifndef HD_ENGINE_EXPERTS_H
#define HD_ENGINE_EXPERTS_H
#include "engine/models/decoder/family.h"
#include "engine/ops/build.h"

struct hd_experts {
	struct tensor *gates, *slots;
};

/* The most tokens of a group that an expert takes; without a limit: group_tokens. */
int64_t hd_model_capacity(const struct hd_model *m);
/* Whether layer l (from 0) has experts. */
int hd_experts_in(const struct hd_model *m, int64_t l);
/* x (batch, seq, embed) and the router's weight (embed, router_expert) or (router_expert, embed) -> the experts' inputs.  site: another
 * number for each layer, the key of its random choices.  bias (router_expert): of router = sigmoid, else NULL. */
struct tensor *hd_experts_begin(struct hd_plan *p, struct tensor *x, struct tensor *router, struct tensor *bias,
				int64_t site, struct hd_experts *e);
struct tensor *hd_experts_end(struct hd_plan *p, struct tensor *y, const struct hd_experts *e);
void hd_experts_dims(struct hd_plan *p); /* makes expert, router_expert, slot, topk, stat */
/* Refuses a layout in which a group of tokens is not on one rank. */
int hd_experts_check(struct hd_plan *p);

/* What a step's sums of a layer say (of one rank: all are everywhere). */
struct hd_expert_numbers {
	double aux_loss, dropped, load;
};
struct hd_expert_numbers hd_experts_numbers(const struct hd_model *m, const void *sums, uint32_t dtype, double tokens);
/* Of a family: where "...experts.NAME.weight" (expert, rows, cols) and the router's weight are stored. */
int hd_experts_region(const char *stem, const char *name, int64_t rows, int64_t cols, struct hd_hf_region *r);
json_t *hd_experts_config(const struct hd_model *m, json_t *o); /* with the keys of experts, where there are any */
#endif
