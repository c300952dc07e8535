/* SPDX-License-Identifier: Apache-2.0
 * engine/graph/graph.h - the graph of a plan: dims, tensors, nodes, and the functions that change them.
 */
#ifndef HD_ENGINE_GRAPH_H
#define HD_ENGINE_GRAPH_H
#include "engine/graph/types.h"
#include <stdarg.h>

/* -- arena.c: memory and errors of a plan ------------------------------------------------------------------------------ */
void *hd_plan_alloc(struct hd_plan *p, size_t bytes); /* zeroed, freed with the plan */
char *hd_plan_text(struct hd_plan *p, const char *fmt, ...) HD_PRINTF(2, 3);
int hd_plan_fail(struct hd_plan *p, int code, const char *fmt, ...) HD_PRINTF(3, 4);
/* Marks the failure as a mistake of this instance's plugin (struct hd_err).  hd_plan_fail does so itself for what slots
 * call. */
void hd_plan_mistake(struct hd_plan *p, int who);
/* Registers an object whose address plugins get. */
void hd_handle_add(struct hd_plan *p, const void *at, enum hd_handle_kind kind);
/* Returns HANDLE_NONE if no object of this plan is at this address. */
enum hd_handle_kind hd_handle_kind(const struct hd_plan *p, const void *at);
char *hd_plan_vtext(struct hd_plan *p, const char *fmt, va_list v);
void hd_plan_free(struct hd_plan *p); /* frees the plan and all that was allocated from it */

/* -- where new nodes go; these cursors have no queue, and no reason except the one given --------------------------------- */
/* Returns the cursor after all nodes; block -1: in no block. */
static inline struct cursor hd_cursor_end(uint32_t phase, int block)
{
	return (struct cursor){ .phase = phase, .block = block };
}
/* Return the cursor before or after n, in n's unit and block. */
static inline struct cursor hd_cursor_before(struct node *n)
{
	return (struct cursor){ .before = n, .phase = n->v.phase, .block = n->block, .period = n->period };
}
static inline struct cursor hd_cursor_after(const struct node *n)
{
	return (struct cursor){ .before = n->next, .phase = n->v.phase, .block = n->block, .period = n->period };
}
static inline struct cursor hd_cursor_why(struct cursor c, char *reason)
{
	return (struct cursor){
		.before = c.before, .phase = c.phase, .block = c.block, .reason = reason, .period = c.period
	};
}

/* -- tensor.c --------------------------------------------------------------------------------------------------------- */
/* creates it if it is absent and n > 0 */
const struct hd_dim *hd_dim_get(struct hd_plan *p, const char *name, int64_t n);
uint32_t hd_parse_dims(struct hd_plan *p, const char *spec, const struct hd_dim **dims);
struct tensor *hd_tensor_new(struct hd_plan *p, const char *name, uint32_t what, uint32_t dtype,
			     const struct hd_dim *const *dims, uint32_t ndim);
struct tensor *hd_leaf(struct hd_plan *p, const char *name, uint32_t what, uint32_t dtype, const char *spec);
/* Creates a parameter, with weight decay if it has two or more dims; init: enum hd_init.  hd_param_find finds one by
 * name. */
struct tensor *hd_param(struct hd_plan *p, const char *name, const char *spec, int init, double std);
struct tensor *hd_param_find(struct hd_plan *p, const char *name);
/* Copies to y what stays the same when x is only moved or stored differently: what it is and of which tensor, its name,
 * its row counts, and the dims summed over.  It copies no placement, shape, dtype or step. */
void hd_tensor_inherit(struct tensor *y, const struct tensor *x);
int hd_dtype_known(uint32_t dtype);
int hd_has_dim(const struct tensor *t, const struct hd_dim *d);
int64_t hd_local_count(const struct tensor *t);
int64_t hd_local_bytes(const struct tensor *t);
/* Rows of a ragged tensor on a rank. any: for any choices of the tokens. max: the most that it has memory for
 * (train.expert_rows). balanced: if experts are chosen equally. row_elements: the elements of one row. */
int64_t hd_ragged_any(const struct tensor *t);
int64_t hd_ragged_max(const struct tensor *t);
double hd_ragged_balanced(const struct tensor *t);
int64_t hd_ragged_row_elements(const struct tensor *t);
/* How many rows of experts the ranks of a plan have memory for. */
enum hd_rows_case {
	HD_ROWS_EQUAL, /* no rank can get more than equal choices give it, or a capacity limits them */
	HD_ROWS_ANY,   /* whatever tokens choose */
	HD_ROWS_SOME   /* as many as train.expert_rows says */
};
enum hd_rows_case hd_rows_case(const struct hd_plan *p);
int64_t hd_global_count(const struct tensor *t);
int64_t hd_plan_parameters(const struct hd_plan *p); /* elements of all parameters */
/* The dtype of a gradient of x, and the attribute that tells an op about it: "" or " fp32=1". */
uint32_t hd_gradient_dtype(const struct hd_plan *p, const struct hd_tensor *x);
const char *hd_gradient_attr(const struct hd_tensor *dout, const struct hd_tensor *x);

/* -- node.c ----------------------------------------------------------------------------------------------------------- */
struct node *hd_node_new(struct hd_plan *p, const struct hd_op *op, const struct op_traits *is,
			 struct tensor *const *ins, uint32_t nin, const char *attr);
/* Creates a copy of n with different operands. */
struct node *hd_node_again(struct hd_plan *p, const struct node *n, struct tensor *const *ins);
int hd_node_adopt(struct hd_plan *p, struct node *n, const struct hd_shape *outs, uint32_t nout);
/* Tells whether the last operand of an op of the engine counts rows. The attributes of a plugin's op are its own. */
int hd_node_counts_rows(const struct node *n);
/* Checks the shapes that a slot shape returned for operands chosen by a plugin. */
int hd_shapes_check(struct hd_plan *p, const struct hd_op *op, uint32_t nin, const struct hd_shape *outs,
		    uint32_t nout);

/* -- graph.c ---------------------------------------------------------------------------------------------------------- */
void hd_node_insert(struct hd_plan *p, struct node *n);
void hd_node_move(struct hd_plan *p, struct node *n, struct node *before);
/* Returns whether both are in the program, and a is before b. */
int hd_node_precedes(struct hd_plan *p, const struct node *a, const struct node *b);
/* Counts how often each tensor is read, by id: by nodes, and by leaves that take it at the end of a step.  The caller
 * frees the result. */
uint32_t *hd_count_readers(const struct hd_plan *p);
/* Inputs are set with these two functions only. */
void hd_set_input(struct hd_plan *p, struct node *n, uint32_t i, struct tensor *t);
void hd_set_inputs(struct hd_plan *p, struct node *n, struct tensor *const *ins, uint32_t nin);
int hd_check_users(struct hd_plan *p);
/* the leaf takes value at the end of the step; NULL: it stays */
void hd_assign(struct tensor *leaf, struct tensor *value);
void hd_replace(struct hd_plan *p, struct tensor *old, struct tensor *with);
void hd_drop_dead(struct hd_plan *p);
/* Returns whether members compute different values on purpose (struct hd_graph_api, local).  Then each member has its
 * own gradients, and its own norm of them. */
int hd_plan_has_own_gradients(const struct hd_plan *p);
int hd_block_begin(struct hd_plan *p, const char *name);
double hd_sqrt(double x); /* sqrt, correctly rounded; so files of models need no <math.h> */

#endif
