/* SPDX-License-Identifier: Apache-2.0
 * engine/graph/mesh.h - the axes of a layout, with the groups of ranks along them, and the sections that claimed them.
 */
#ifndef HD_ENGINE_MESH_H
#define HD_ENGINE_MESH_H
#include "engine/graph/types.h"

/* -- mesh.c ------------------------------------------------------------------------------------------------------------- */
int64_t hd_plan_coord(const struct hd_plan *p, int64_t rank, const struct axis *a); /* 0 ... n + spare - 1 */
/* The coordinates that belong to a role: the first, and their number. */
int64_t hd_role_first(const struct axis *a, uint32_t role);
int64_t hd_role_count(const struct axis *a, uint32_t role);
/* Whether a rank holds the model, and the number of such ranks: all that are not at a spare coordinate. */
int hd_is_worker(const struct hd_plan *p, int64_t rank);
int64_t hd_plan_workers(const struct hd_plan *p);
char *hd_axis_text(const struct axis *a); /* "NAME 4", "NAME 4 + 1 server"; the caller frees it */
/* "NAME 3", "NAME server 0"; the caller frees it */
char *hd_coord_text(const struct hd_plan *p, int64_t rank, const struct axis *a);
char *hd_layout_text(const struct hd_plan *p); /* "NAME 2, NAME 4"; the caller frees it */
/* Returns a rank's coordinates, as "(NAME 1, NAME 0)". The caller frees it. NULL: there are no axes, or plan, a struct
 * hd_plan, is NULL. */
char *hd_coords_text(const void *plan, int rank);
/* Returns whether ranks that differ only on this axis may be on different hosts. */
int hd_may_leave_host(const struct hd_plan *p, const struct axis *a);
struct axis *hd_spare_axis(const struct hd_plan *p); /* the axis with spare coordinates, or NULL */
/* How the groups along an axis lie on nodes of so many consecutive ranks. */
struct hd_spread_of_axis {
	int64_t groups, spanning, apart; /* spanning: on several nodes; apart: each member on a node of its own */
};
/* Counts all groups along the axis, or those that have the same coordinate as rank `like` on axis `same`. */
struct hd_spread_of_axis hd_axis_spread(const struct hd_plan *p, const struct axis *a, int64_t node,
					const struct axis *same, int64_t like);
/* Whether a tensor with this placement is on the rank, and whether the node runs there (if all members run it). */
int hd_is_placed_at(const struct hd_plan *p, const struct placement *at, int64_t rank);
int hd_node_runs_at(const struct hd_plan *p, const struct node *n, int64_t rank);
/* Lists the ranks of this rank's group, by member index; if the rank is in none, only itself.  Returns how many. */
int64_t hd_group_ranks(const struct hd_plan *p, const struct group *g, int64_t rank, int *ranks);
struct group *hd_group_get(struct hd_plan *p, struct axis *const *axes, uint32_t n, uint32_t role);
/* Returns whether this rank represents its slice of a tensor with this placement (to save or count it, say).  Of the
 * ranks with equal slices, the first along each axis in `axes` does.  terms: each member counts as having a slice of
 * its own in a partial sum. */
int hd_is_representative(const struct hd_plan *p, int64_t rank, const struct placement *at, uint32_t axes, int terms);
/* Returns whether ranks a and b hold the same slice of t.  They may then differ only along axes whose members all have
 * the same values. */
int hd_has_same_slice(const struct hd_plan *p, const struct tensor *t, int64_t a, int64_t b);
/* who->group NULL: all ranks are */
int hd_is_member(const struct hd_plan *p, const struct hd_members *who, int64_t rank);
int64_t hd_member_index(const struct hd_plan *p, const struct group *gr, int64_t rank);

/* -- instance.c --------------------------------------------------------------------------------------------------------- */
/* an option that its plugin declares, or NULL */
const struct hd_option *hd_option_find(const struct inst *in, const char *key);
const char *hd_inst_section(const struct inst *in); /* the kind of its section: strategy or plugin */
/* Reports an error in that instance's section.  A text "KEY: ..." points to the line of the key. */
int hd_inst_fail(struct hd_plan *p, int who, int code, const char *text);
/* Returns the key that sets the axis' size in its section. */
const char *hd_axis_key(const struct hd_plan *p, const struct hd_axis *axis);
/* Between these two calls a slot of an instance, or of an op of its plugin, runs.  who -1: an op of the engine, which
 * is not recorded. */
struct hd_slot hd_slot_begin(struct hd_plan *p, int who, const char *name);
void hd_slot_end(struct hd_plan *p, struct hd_slot was);
/* Computes the cost of a node with its op's slot cost, zeros if the op has none.  Returns what the slot returned. */
int hd_node_cost(const struct node *n, struct hd_cost *c);
double hd_node_product_flops(const struct node *n); /* FLOPs of matrix products on a rank; 0 for other nodes */
/* Returns the FLOPs of the matrix products that all ranks compute in one step. They include what train.recompute and
 * the layout repeat; hd_plan.model_flops does not. */
double hd_plan_flops(const struct hd_plan *p);
int hd_slot_returned(struct hd_plan *p, int rc); /* refuses invalid codes, and failures without a text */
int hd_op_slot_returned(struct hd_plan *p, const struct hd_op *op, int rc); /* the same; the message names the op */

#endif
