/* SPDX-License-Identifier: Apache-2.0
 * engine/models/decoder/experts.h - a layer of experts, for the families that have one. A router chooses, and each
 * token is sent to its experts and back. The family decides what the experts compute.
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

/* Returns the maximum number of tokens of a group that an expert takes; without a limit, group_tokens. */
int64_t hd_model_capacity(const struct hd_model *m);
/* Returns whether layer l (from 0) has experts. */
int hd_experts_in(const struct hd_model *m, int64_t l);
/* Builds the experts' inputs from x (batch, seq, embed) and the router's weight, (embed, router_expert) or
 * (router_expert, embed). site differs for each layer; it is the key of its random choices. bias (router_expert) is
 * for router = sigmoid, else NULL. */
struct tensor *hd_experts_begin(struct hd_plan *p, struct tensor *x, struct tensor *router, struct tensor *bias,
				int64_t site, struct hd_experts *e);
struct tensor *hd_experts_end(struct hd_plan *p, struct tensor *y, const struct hd_experts *e);
void hd_experts_dims(struct hd_plan *p); /* creates the dims expert, router_expert, slot, topk, router_stat, ... */
/* Refuses a layout in which a group of tokens is not on one rank. */
int hd_experts_check(struct hd_plan *p);

/* Metrics of a layer, from its sums of a step. The sums of one rank suffice, because they are the same on all ranks.
 * aux_loss is per token. dropped is the fraction of choices for which an expert had no slot. load is that of the
 * busiest expert over the mean. */
struct hd_expert_numbers {
	double aux_loss, dropped, load;
};
struct hd_expert_numbers hd_experts_numbers(const struct hd_model *m, const void *sums, uint32_t dtype, double tokens);
/* Sets r to where "...experts.NAME.weight" (expert, rows, cols) or the router's weight is stored. */
int hd_experts_region(const char *stem, const char *name, int64_t rows, int64_t cols, struct hd_hf_region *r);
json_t *hd_experts_config(const struct hd_model *m, json_t *o); /* adds the keys of experts if m has any; returns o */
#endif
