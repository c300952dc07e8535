/* SPDX-License-Identifier: Apache-2.0
 * heddle/op.h - an op. The same struct describes the ops of the engine and those of plugins.
 *
 * The life of a node: graph->node creates it, and shape sets the dims of its outputs. Autodiff calls vjp. Placement
 * calls place once per axis. Slot lower may replace the node. cost prices it. record turns it into kernel launches in
 * the program of one rank. A step replays these launches; the only code of a plugin that runs then is its kernels
 * (heddle/kernel.h).
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
	/* elements per rank; 0: as in the inputs that have this dim, else the global extent */
	int64_t local[HD_MAX_DIMS];
	uint32_t space; /* HD_SPACE_DEVICE */
	uint32_t reserved[3];
};
/* The cost on one rank, computed from the local sizes of the node's tensors (their global sizes before placement). */
struct hd_cost { /* zeroed by the engine */
	size_t size;
	double matmul_flops; /* FLOPs of matrix products */
	double other_flops;
	double bytes; /* bytes read and written */
};

struct hd_record;
struct hd_record_api {
	size_t size;
	/* Returns this rank's member index in g. This is the only call in which a plugin sees a rank. */
	int64_t (*index)(struct hd_record *r, const struct hd_group *g);
	/* Records the launch of one kernel of the device, on the node's queue. Every step runs the kernels in the order
	 * of these calls. */
	int (*launch)(struct hd_record *r, const char *kernel, struct hd_tensor *const *ins, uint32_t nin,
		      struct hd_tensor *const *outs, uint32_t nout, const char *attr, ...) HD_PRINTF(7, 8);
};

enum {                  /* flags of an op */
       HD_OP_CHEAP = 1, /* backward recomputes the first output instead of keeping it, as with the engine's gelu */
};

struct hd_op { /* static const data */
	size_t size;
	const char *name; /* mandatory; an op of a plugin is shown as plugin.name */
	const char *kind; /* the kind that rules can be limited to; NULL: name */
	/* Dims that may not be sharded, NULL-terminated; NULL: all may be sharded. If a dim is sharded and no output
	 * has it, the output is a partial sum. So an op must list every dim over which it does anything other than
	 * sum. */
	const char *const *unshardable;
	/* Bit i: the op is linear in input i while the others are fixed. So a partial sum there may pass on to
	 * the outputs. All 64 bits: the op is linear in all inputs together, as an addition is. */
	uint64_t linear;
	/* Bit k: where the op contracts over a sharded dim that output k lacks, output k is a partial max, not a
	 * partial sum. */
	uint64_t max_outputs;
	const int8_t *inplace; /* per output, the input whose buffer it may reuse, or -1; NULL: none */
	/* Mandatory. Sets the dims and dtypes of the outputs. *nout is at most HD_MAX_OUTS. An output that no node
	 * reads serves as scratch memory; heddle/kernel.h describes other memory for kernels. Activations are fp32,
	 * bf16 or, on the reference device, fp64. Statistics and weight gradients are fp64 if an input is, and fp32
	 * otherwise. */
	int (*shape)(struct hd_strategy *self, struct hd_plan *p, const char *attr, struct hd_tensor *const *ins,
		     uint32_t nin, struct hd_shape *outs, uint32_t *nout);
	/* Adds nodes to the logical graph that compute the gradients of the inputs. dout[i] is the gradient of output
	 * i, or NULL if it has none. Set din[i] if bit i of `want` is set; leave it NULL if that gradient is zero.
	 * A gradient has the dims and the dtype of its input. In a bf16 run it may have any floating-point dtype, and
	 * the engine converts it.
	 * Separate nodes for separate inputs let a schedule delay the weight gradient. To report an error, call fail,
	 * which keeps the text, and return its code. A negative code without a text is reported with the op's name
	 * alone. NULL: the op is not differentiable, and is refused where a gradient is needed. */
	int (*vjp)(struct hd_strategy *self, struct hd_plan *p, struct hd_node *n, struct hd_tensor *const *dout,
		   uint64_t want, struct hd_tensor **din);
	/* Decides placements along one axis. It reads the placements of the inputs (have), and sets those that the op
	 * needs (need) and those of the outputs (out). need and out start as HD_PLACE_REPLICATED. If the slot is NULL
	 * or returns HD_DEFAULT, the rules decide. For axes of other sections, return HD_DEFAULT, or what the rules of
	 * their section ask for. */
	int (*place)(struct hd_strategy *self, struct hd_plan *p, const struct hd_node *n, const struct hd_axis *axis,
		     const struct hd_place *have, struct hd_place *need, struct hd_place *out);
	/* NULL: no FLOPs; each input is read once and each output written once. The engine prices communication
	 * itself. */
	int (*cost)(struct hd_strategy *self, const struct hd_node *n, struct hd_cost *c);
	/* Called once per node and rank, before step 1.  NULL: slot lower must replace the node. */
	int (*record)(struct hd_strategy *self, struct hd_record *r, const struct hd_node *n);
	uint32_t flags, zero; /* HD_OP_CHEAP; since 0.4 */
};

#ifdef __cplusplus
}
#endif
#endif
