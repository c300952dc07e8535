/* SPDX-License-Identifier: Apache-2.0
 * heddle/op.h - an op.  The same struct describes the ops of the engine and those of plugins.
 *
 * Life of a node: node() -> shape -> (autodiff) vjp -> place, once per axis -> slot lower may put other nodes in its
 * place -> cost prices it -> record turns it into kernel launches of one rank's program.  A step replays these
 * launches.  Of a plugin, only its kernels (heddle/kernel.h) run then.
 */
#ifndef HEDDLE_OP_H
#define HEDDLE_OP_H
#include <heddle/graph.h>
#ifdef __cplusplus
extern "C" {
#endif

struct hd_shape { /* frozen */
	uint32_t dtype, ndim;
	const struct hd_dim *dims[HD_MAX_DIMS];
	int64_t local[HD_MAX_DIMS]; /* 0: as in the inputs that have this dim, else the global extent */
	uint32_t space;             /* HD_SPACE_DEVICE */
	uint32_t reserved[3];
};
/* The cost on one rank, from the local sizes of the node's tensors (before placement: global sizes). */
struct hd_cost { /* zeroed by the engine */
	size_t size;
	double matmul_flops; /* in matmuls */
	double other_flops;
	double bytes; /* read and written */
};

struct hd_record;
struct hd_record_api {
	size_t size;
	/* This rank's member index.  Only here a plugin sees a rank. */
	int64_t (*index)(struct hd_record *r, const struct hd_group *g);
	/* Records one kernel of the device, on the node's queue.  Every step runs the kernels in the order of these
	 * calls. */
	int (*launch)(struct hd_record *r, const char *kernel, struct hd_tensor *const *ins, uint32_t nin,
		      struct hd_tensor *const *outs, uint32_t nout, const char *attr, ...) HD_PRINTF(7, 8);
};

enum {                  /* flags of an op */
       HD_OP_CHEAP = 1, /* backward recomputes the first output instead of keeping it, as for the engine's gelu */
};

struct hd_op { /* static const data */
	size_t size;
	const char *name; /* mandatory; an op of a plugin is shown as plugin.name */
	const char *kind; /* the kind that rules are limited to; NULL: name */
	/* Dims that may not be sharded, NULL-terminated; NULL: all may.  A sharded dim that no output has leaves a
	 * partial sum.  So an op must list each dim over which it does anything else than sum. */
	const char *const *unshardable;
	/* Bit i: the op is linear in input i while the others are fixed.  A partial sum there may pass on to the
	 * outputs.  All 64 bits: linear in all inputs together, as a sum is. */
	uint64_t linear;
	/* Bit k: where the op contracts over a sharded dim that output k lacks, output k is a partial max
	 * instead of a partial sum. */
	uint64_t max_outputs;
	const int8_t *inplace; /* per output, the input whose buffer it may take, or -1; NULL: none */
	/* Mandatory.  *nout is at most HD_MAX_OUTS.  An output that no node reads is scratch memory;
	 * heddle/kernel.h describes what else kernels take.  Activations are fp32, bf16 or, on the reference device, fp64.
	 * Statistics and gradients of weights are fp64 if an input is, and fp32 otherwise. */
	int (*shape)(struct hd_strategy *self, struct hd_plan *p, const char *attr, struct hd_tensor *const *ins,
		     uint32_t nin, struct hd_shape *outs, uint32_t *nout);
	/* Adds nodes to the logical graph.  dout[i] NULL: output i has no gradient.  Fill din[i] where bit i of `want` is
	 * set; leave NULL where it is zero.  Separate nodes for separate inputs let a schedule delay the weight gradient.
	 * To fail, call fail, which keeps the text, and return its code.  A negative code without a text is reported with the
	 * op's name alone.  NULL: not differentiable, refused where a gradient is needed. */
	int (*vjp)(struct hd_strategy *self, struct hd_plan *p, struct hd_node *n, struct hd_tensor *const *dout,
		   uint64_t want, struct hd_tensor **din);
	/* For one axis: reads the placements of the inputs (have), and sets those that the op needs (need) and those
	 * of the outputs (out).  need and out begin as HD_PLACE_REPLICATED.  HD_DEFAULT, or a NULL slot: by the
	 * rules.  A plugin answers for its own axes only. */
	int (*place)(struct hd_strategy *self, struct hd_plan *p, const struct hd_node *n, const struct hd_axis *axis,
		     const struct hd_place *have, struct hd_place *need, struct hd_place *out);
	/* NULL: no flops; each input is read once and each output written once.  The engine prices communication. */
	int (*cost)(struct hd_strategy *self, const struct hd_node *n, struct hd_cost *c);
	/* Called once per node and rank, before step 1.  NULL: slot lower must replace the node. */
	int (*record)(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n);
	uint32_t flags, zero; /* HD_OP_CHEAP; since 0.4 */
};

#ifdef __cplusplus
}
#endif
#endif
