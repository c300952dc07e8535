/* SPDX-License-Identifier: Apache-2.0
 * heddle/optimizer.h - an optimizer of a plugin: train.optimizer = NAME, of a [plugin NAME] or [strategy NAME].
 *
 * For one parameter at a time, it builds the nodes that compute the new value.  They read the old value, the gradient
 * and states of the optimizer's own.  graph->state makes one, and graph->assign says what it becomes: a state that is not
 * assigned stays as it began.  The nodes run once a step, after the global norm is known.  They do not run in a step
 * whose loss or norm is not finite.  Tensors are logical here, as in slot rewrite.
 * Where states and gradients are sharded (zero), each member updates its piece by elementwise nodes (map, cast, adamw,
 * sgd), and products and sums gather their operands.  Engine ops of kind update are optimizers that a plugin may call:
 *
 *   adamw (w, g, m, v, factor -> w, m, v; beta1, beta2, eps, decay)        sgd (w, g, factor -> w; decay)
 *
 *	ins = { u->param, u->gradient, m, v, u->factor };
 *	n = g->node(p, g->op(p, "adamw"), ins, 5, "beta1=0.9 beta2=0.99 eps=1e-8 decay=%.17g", u->weight_decay);
 *	g->assign(p, m, n->outs[1]), g->assign(p, v, n->outs[2]), *value = n->outs[0];
 *
 * They read the step's learning rate themselves.  Other nodes get it from graph->scalar.
 */
#ifndef HEDDLE_OPTIMIZER_H
#define HEDDLE_OPTIMIZER_H
#include <heddle/graph.h>
#ifdef __cplusplus
extern "C" {
#endif

struct hd_update { /* view: one parameter's */
	size_t size;
	const struct hd_host *h;
	const char *name;           /* of the parameter, as in checkpoints */
	struct hd_tensor *param;    /* the tensor to update; for a parameter of low precision its fp32 master */
	struct hd_tensor *gradient; /* of the whole step, not clipped */
	struct hd_tensor *factor;   /* a tensor without dims; the gradient times this is the clipped one (train.clip) */
	/* train.weight_decay; 0 for parameters that do not decay: biases, norms.  An optimizer without decay refuses others
	 * (h->fail), so that no setting is ignored. */
	double weight_decay;
};

struct hd_optimizer_ops { /* static const data */
	size_t size;
	/* *value: the new value, with param's dims and dtype.  u->param itself freezes the parameter.  NULL is an error, and so
	 * is *value left as it was. */
	int (*update)(struct hd_strategy *self, struct hd_plan *p, const struct hd_update *u, struct hd_tensor **value);
};

#ifdef __cplusplus
}
#endif
#endif
