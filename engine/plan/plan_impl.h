/* SPDX-License-Identifier: Apache-2.0
 * engine/plan/plan_impl.h - the planning steps that need an INI or its plugins; plan.c has their order.
 */
#ifndef HD_ENGINE_PLAN_IMPL_H
#define HD_ENGINE_PLAN_IMPL_H
#include "engine/plan/plan.h"

/* -- plan.c: mixes the node's op, its attributes and who runs it into *h ------------------------------------------------------ */
void hd_plan_hash_op(struct hd_plan *p, const struct node *n, uint64_t *h);

/* -- instances.c --------------------------------------------------------------------------------------------------------- */
int hd_plan_conf(struct hd_plan *p); /* reads the INI */

/* -- slots.c, mesh_sizes.c: slots of all instances ----------------------------------------------------------------------- */
int hd_slot_open(struct hd_plan *p);
int hd_slot_mesh(struct hd_plan *p);
int hd_slot_rewrite(struct hd_plan *p);
int hd_slot_rules(struct hd_plan *p);
int hd_slot_storage(struct hd_plan *p);
int hd_slot_lower(struct hd_plan *p);

/* -- batch.c -------------------------------------------------------------------------------------------------------------- */
struct hd_step_batch {
	int64_t replicas, micro_batch; /* micro_batch: of one replica */
};
int hd_batch_of_rules(struct hd_plan *p, struct hd_step_batch *b);
/* Decides the micro-batches of a step. Refuses rules that ask for a different batch than the graph has. */
int hd_plan_batch(struct hd_plan *p);

/* -- plan_check.c: errors that only the resulting plan shows ----------------------------------------------------------------- */
int hd_check_placed(struct hd_plan *p);
int hd_check_periods(struct hd_plan *p);
int hd_check_norm_first(struct hd_plan *p);
int hd_mark_update(struct hd_plan *p); /* sets in_update of all nodes */
int hd_check_spaces(struct hd_plan *p);
/* A state is not assigned a value that differs between micro-batches. */
int hd_check_summed_states(struct hd_plan *p);
int hd_check_own_states(struct hd_plan *p); /* a state with a value per member is declared so */
void hd_warn_of_constant_states(const struct hd_plan *p);
void hd_warn_of_untrained(const struct hd_plan *p);
int hd_check_stages(struct hd_plan *p);

/* -- views.c: the views that plugins get are the engine's own memory, and read-only ----------------------------------------- */
struct hd_views;
struct hd_views *hd_views_take(const struct hd_plan *p);
int hd_views_check(struct hd_plan *p, struct hd_views *v); /* fails if a plugin wrote to a view since; frees v */

/* -- slots.c: slots open and mesh for plugins without them, called for the current instance --------------------------------- */
int hd_basic_open(struct hd_plan *p);
int hd_basic_mesh(struct hd_plan *p, int64_t n);

#endif
