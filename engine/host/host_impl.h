/* SPDX-License-Identifier: Apache-2.0
 * engine/host/host_impl.h - declarations that the files of engine/host share.
 */
#ifndef HD_ENGINE_HOST_IMPL_H
#define HD_ENGINE_HOST_IMPL_H
#include "engine/ops/build.h"
#include "engine/passes/passes.h"
#include "engine/host/host.h"
#include <stdio.h>
#include <string.h>

static inline struct hd_tensor *hd_host_view(struct tensor *t)
{
	return t ? &t->v : NULL;
}

void hd_host_log(struct hd_plan *p, int level, const char *text);          /* logs a plugin's message */
int hd_out_of_turn(struct hd_plan *p, const char *what, const char *slot); /* refuses a call outside its slot */

/* -- host_check.c: checks of arguments ----------------------------------------------------------------------------- */
/* Copies a call's arguments into this engine's struct of `ours` bytes; fields that the plugin's build does not know
 * become 0. first: the struct's size in the minor version that introduced it. Returns 0 if refused, with a message. */
int hd_args_take(struct hd_plan *p, const char *call, void *to, size_t ours, size_t first, const void *from);
/* last: the last field of the struct in the minor version that introduced it. */
#define HD_TAKE(p, call, to, from, last) \
	hd_args_take(p, call, to, sizeof(*(to)), offsetof(__typeof__(*(to)), last) + sizeof((to)->last), from)
int hd_args_one_of(struct hd_plan *p, const char *call, const char *what, uint64_t value, uint64_t most); /* 0..most */
int hd_args_flags(struct hd_plan *p, const char *call, const char *what, uint32_t flags, uint32_t known);
int hd_args_zero(struct hd_plan *p, const char *call, const char *what, uint64_t word); /* a reserved word */

/* -- each returns 0 if it refuses, with a message that names the call and `what` ------------------------- */
int hd_arg_dim(struct hd_plan *p, const char *call, const char *what, const struct hd_dim *d);
int hd_arg_axis(struct hd_plan *p, const char *call, const char *what, const struct hd_axis *a);
int hd_arg_group(struct hd_plan *p, const char *call, const char *what, const struct hd_group *g);
int hd_arg_node(struct hd_plan *p, const char *call, const char *what, const struct hd_node *n);
int hd_arg_tensor(struct hd_plan *p, const char *call, const char *what, const struct hd_tensor *t);
int hd_arg_tensors(struct hd_plan *p, const char *call, struct hd_tensor *const *ts, uint32_t n, uint32_t least,
		   uint32_t most);
int hd_arg_served(struct hd_plan *p, const struct hd_comm_args *a);
int hd_arg_sums(struct hd_plan *p, const struct hd_comm_args *a);
int hd_arg_wire(struct hd_plan *p, const struct hd_comm_args *a);
int hd_arg_in_step(struct hd_plan *p, const char *call, struct hd_tensor *const *ins, uint32_t nin);
int hd_arg_block(struct hd_plan *p, const char *call, const struct hd_block *b);
int hd_arg_name(struct hd_plan *p, const char *call, const char *name);
int hd_arg_pos(struct hd_plan *p, const char *call, const struct hd_pos *at);
int hd_arg_op(struct hd_plan *p, const struct hd_op *op, struct hd_tensor *const *ins, uint32_t nin, const char *attr);
int hd_may_build(struct hd_plan *p, const char *call);
int hd_may_build_pieces(struct hd_plan *p, const char *call);

/* -- host_mesh.c: the functions of struct hd_host about the layout ------------------------------------------------- */
const struct hd_dim *hd_host_dim(struct hd_plan *p, const char *name);
const struct hd_dim *hd_host_dim_new(struct hd_plan *p, const char *name, int64_t n);
const struct hd_axis *hd_host_axis_next(struct hd_plan *p, const struct hd_axis *prev);
const struct hd_group *hd_host_group(struct hd_plan *p, const struct hd_group_args *args);
int hd_host_rule(struct hd_plan *p, const struct hd_rule_args *args);
const struct hd_block *hd_host_block_next(struct hd_plan *p, const struct hd_block *prev);
int hd_host_stage(struct hd_plan *p, const struct hd_stage_args *args);
int hd_host_unit(struct hd_plan *p, const struct hd_unit_args *args);

/* -- host_build.c; hd_host_may_replace is in host_change.c, and hd_set_space in host_check.c ----------------------- */
struct hd_tensor *hd_host_scalar(struct hd_plan *p, uint32_t what, const struct hd_group *g);
struct hd_tensor *hd_host_constant(struct hd_plan *p, const struct hd_dim *const *dims, uint32_t ndim, double value);
struct hd_tensor *hd_host_iota(struct hd_plan *p, const struct hd_dim *const *dims, uint32_t ndim,
			       const struct hd_dim *along);
struct hd_tensor *hd_host_random(struct hd_plan *p, const struct hd_dim *const *dims, uint32_t ndim, const char *name,
				 int32_t each_step);
int hd_host_topk(struct hd_plan *p, struct hd_tensor *x, const struct hd_dim *along, const struct hd_dim *k,
		 int32_t magnitude, struct hd_tensor **values, struct hd_tensor **index);
struct hd_tensor *hd_host_take(struct hd_plan *p, struct hd_tensor *x, struct hd_tensor *index,
			       const struct hd_dim *along);
struct hd_tensor *hd_host_put(struct hd_plan *p, struct hd_tensor *x, struct hd_tensor *index,
			      const struct hd_dim *from, const struct hd_dim *to, int32_t unique);
int hd_host_initial(struct hd_plan *p, struct hd_tensor *state, uint32_t how, double value);
struct hd_tensor *hd_host_rename(struct hd_plan *p, struct hd_tensor *x, const struct hd_dim *from,
				 const struct hd_dim *to);
int hd_host_replace_in(struct hd_plan *p, struct hd_node *reader, struct hd_tensor *old, struct hd_tensor *with);
struct hd_tensor *hd_host_updated(struct hd_plan *p, struct hd_tensor *leaf);
int hd_host_every(struct hd_plan *p, int64_t steps);
struct hd_tensor *hd_host_local(struct hd_plan *p, struct hd_tensor *x, const struct hd_axis *axis);
int hd_host_own(struct hd_plan *p, struct hd_tensor *state, const struct hd_axis *axis, uint32_t relayout);
struct hd_tensor *hd_host_pack_pieces(struct hd_plan *p, struct hd_tensor *const *xs, const struct hd_dim *const *dims,
				      uint32_t n, int64_t parts);
int hd_host_unpack_pieces(struct hd_plan *p, struct hd_tensor *flat, struct hd_tensor *const *like,
			  const struct hd_dim *const *dims, uint32_t n, int64_t parts, struct hd_tensor **out);
int hd_host_may_replace(struct hd_plan *p, struct hd_tensor *old, struct hd_tensor *with);
int hd_set_space(struct hd_plan *p, struct tensor *leaf, uint32_t space); /* space: HD_SPACE_..., from slot storage */

/* -- host_read.c --------------------------------------------------------------------------------------------------- */
struct hd_node *hd_host_node_next(struct hd_plan *p, struct hd_node *prev, const struct hd_match *m);
struct hd_tensor *hd_host_leaf_next(struct hd_plan *p, struct hd_tensor *prev, uint32_t what);
const struct hd_place *hd_host_place(struct hd_plan *p, const struct hd_tensor *t, const struct hd_axis *axis);
double hd_host_attr(const char *attr, const char *key, double otherwise);
int hd_host_has_home(const struct tensor *t, uint32_t what);
uint32_t hd_host_attr_dims(struct hd_plan *p, const char *attr, const char *key, const struct hd_dim **dims);

/* -- host_change.c ------------------------------------------------------------------------------------------------- */
int hd_host_storage(struct hd_plan *p, const struct hd_storage_args *args);
int hd_host_replace(struct hd_plan *p, struct hd_tensor *old, struct hd_tensor *with);
int hd_host_cursor(struct hd_plan *p, const struct hd_cursor_args *args);
int hd_host_after(struct hd_plan *p, struct hd_tensor *t, const struct hd_tensor *u);

/* -- host_node.c --------------------------------------------------------------------------------------------------- */
const struct hd_op *hd_host_op(struct hd_plan *p, const char *name);
struct hd_node *hd_host_node(struct hd_plan *p, const struct hd_op *op, struct hd_tensor *const *ins, uint32_t nin,
			     const char *attr, ...);
struct hd_tensor *hd_host_einsum(struct hd_plan *p, struct hd_tensor *const *ins, uint32_t nin,
				 const struct hd_dim *const *dims, uint32_t ndim);
struct hd_tensor *hd_host_map(struct hd_plan *p, struct hd_tensor *const *ins, uint32_t nin, const char *expr, ...);
struct hd_tensor *hd_host_cast(struct hd_plan *p, struct hd_tensor *x, uint32_t dtype);
struct hd_tensor *hd_host_chunk(struct hd_plan *p, struct hd_tensor *x, const struct hd_dim *dim, int64_t parts,
				const struct hd_pos *at);
struct hd_tensor *hd_host_join(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n, const struct hd_dim *dim,
			       const struct hd_pos *at);
struct hd_tensor *hd_host_pick(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n, const struct hd_pos *at);
struct hd_tensor *hd_host_pack(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n, int64_t multiple);
int hd_host_unpack(struct hd_plan *p, struct hd_tensor *flat, struct hd_tensor *const *like, uint32_t n,
		   struct hd_tensor **out);

/* -- host_members.c ------------------------------------------------------------------------------------------------ */
int hd_host_only(struct hd_plan *p, const struct hd_members *who);
struct hd_tensor *hd_host_either(struct hd_plan *p, const struct hd_members *who, struct hd_tensor *yes,
				 struct hd_tensor *no);

/* -- host_comm.c --------------------------------------------------------------------------------------------------- */
struct hd_tensor *hd_host_comm(struct hd_plan *p, const struct hd_comm_args *args);
struct hd_tensor *hd_host_reshard(struct hd_plan *p, struct hd_tensor *x, const struct hd_axis *axis,
				  const struct hd_place *to);

/* -- host_state.c -------------------------------------------------------------------------------------------------- */
struct hd_tensor *hd_host_state(struct hd_plan *p, const struct hd_state_args *args);
int hd_host_assign(struct hd_plan *p, struct hd_tensor *state, struct hd_tensor *value);

/* -- turns.c ---------------------------------------------------------------------------------------------------- */
/* Builds HD_COMM_RING_REDUCE_SCATTER, HD_COMM_RING_ALL_GATHER or HD_COMM_ORDERED_REDUCE_SCATTER from messages and
 * additions, for a device that has no call for them. */
struct tensor *hd_build_ordered_comm(struct hd_plan *p, uint32_t kind, struct group *g, struct tensor *x,
				     const struct hd_dim *dim, uint32_t wire);

#endif
