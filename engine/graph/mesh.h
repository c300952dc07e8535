/* SPDX-License-Identifier: Apache-2.0
 * engine/graph/mesh.h - the axes of a layout: the place of a rank on them, the groups of ranks along them, and
 * the sections that claimed them.
 */
#ifndef HD_ENGINE_MESH_H
#define HD_ENGINE_MESH_H
#include "engine/graph/types.h"

/* -- mesh.c ------------------------------------------------------------------------------------------------------------- */
int64_t hd_plan_coord(const struct hd_plan *p, int64_t rank, const struct axis *a); /* 0 ... n + spare - 1 */
/* The coordinates that a role means: the first, and how many. */
int64_t hd_role_first(const struct axis *a, uint32_t role);
int64_t hd_role_count(const struct axis *a, uint32_t role);
/* Ranks that hold the model: all but those at a spare coordinate. */
int hd_is_worker(const struct hd_plan *p, int64_t rank);
int64_t hd_plan_workers(const struct hd_plan *p);
char *hd_axis_text(const struct axis *a); /* "NAME 4", "NAME 4 + 1 server"; to be freed */
char *hd_coord_text(const struct hd_plan *p, int64_t rank, const struct axis *a); /* "NAME 3", "NAME server 0" */
struct axis *hd_spare_axis(const struct hd_plan *p); /* that has spare coordinates; NULL: none has */
/* What is placed so is on this rank; the node runs there, if all members do. */
int hd_is_placed_at(const struct hd_plan *p, const struct placement *at, int64_t rank);
int hd_node_runs_at(const struct hd_plan *p, const struct node *n, int64_t rank);
/* The ranks of the group that this one is in, by member index; where it is in none, itself alone.  -> how many. */
int64_t hd_group_ranks(const struct hd_plan *p, const struct group *g, int64_t rank, int *ranks);
struct group *hd_group_get(struct hd_plan *p, struct axis *const *axes, uint32_t n, uint32_t role);
/* Whether this rank speaks for its slice of what is placed so: one rank does for each slice, the first along every axis of
 * `axes` on which they are alike.  terms: those of a partial sum are not alike, each speaks for its own. */
int hd_speaks_for(const struct hd_plan *p, int64_t rank, const struct placement *at, uint32_t axes, int terms);
/* Two ranks have t, and are at the same place but for axes along which all members have the same of it. */
int hd_has_same_slice(const struct hd_plan *p, const struct tensor *t, int64_t a, int64_t b);
int hd_is_member(const struct hd_plan *p, const struct hd_members *who, int64_t rank); /* who->group NULL: all are */
int64_t hd_member_index(const struct hd_plan *p, const struct group *gr, int64_t rank);

/* -- instance.c --------------------------------------------------------------------------------------------------------- */
const struct hd_option *hd_option_find(const struct inst *in, const char *key); /* that its plugin declares, or NULL */
const char *hd_inst_section(const struct inst *in); /* the kind of its section: strategy or plugin */
/* A message about that section: "KEY: ..." names the key's line. */
int hd_inst_fail(struct hd_plan *p, int who, int code, const char *text);
/* The key of its section that says its size. */
const char *hd_axis_key(const struct hd_plan *p, const struct hd_axis *axis);
/* A slot of an instance, or of an op of its plugin, runs between the two (who -1: an op of the engine, not noted). */
struct hd_slot hd_slot_begin(struct hd_plan *p, int who, const char *name);
void hd_slot_end(struct hd_plan *p, struct hd_slot was);
/* Of its op's slot cost, zeros where there is none -> what the slot returned. */
int hd_node_cost(const struct node *n, struct hd_cost *c);
int hd_slot_returned(struct hd_plan *p, int rc); /* refuses codes that are none, and failures without a text */
int hd_op_slot_returned(struct hd_plan *p, const struct hd_op *op,
			int rc); /* the same, and names the op whose slot it is */

#endif
