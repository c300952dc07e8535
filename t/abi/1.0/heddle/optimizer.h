/* SPDX-License-Identifier: Apache-2.0
 * heddle/optimizer.h - an optimizer of a plugin: train.optimizer = NAME, of a [plugin NAME] or [strategy NAME].
 *
 * It builds, for one parameter at a time, the nodes that make the new value out of the old one, the gradient and states of its
 * own (graph->state, graph->assign).  They run once a step, after the global norm is known, and not at all in a step whose loss
 * or norm is not finite.  Tensors are logical here, as in slot rewrite: where states and gradients are sharded (zero), each
 * member updates its piece by elementwise nodes (map, cast, adamw, sgd), and what a product or a sum needs is gathered.
 * Engine ops of kind update are optimizers that one may call:
 *
 *   adamw (w, g, m, v, factor -> w, m, v; beta1, beta2, eps, decay)        sgd (w, g, factor -> w; decay)
 *
 *	ins = { u->param, u->gradient, m, v, u->factor };
 *	n = g->node(p, g->op(p, "adamw"), ins, 5, "beta1=0.9 beta2=0.99 eps=1e-8 decay=%.17g", u->weight_decay);
 *	g->assign(p, m, n->outs[1]), g->assign(p, v, n->outs[2]), *value = n->outs[0];
 *
 * They take the step's learning rate themselves; other nodes have it from graph->scalar.
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
	struct hd_tensor *param;    /* what is updated: of a parameter of low precision its fp32 master */
	struct hd_tensor *gradient; /* of the whole step, not clipped */
	struct hd_tensor *factor;   /* no dims: times this it is clipped (train.clip) */
	double weight_decay;        /* train.weight_decay; 0 for what does not decay: biases, norms */
};

struct hd_optimizer_ops { /* static const data */
	size_t size;
	/* *value: the new value, with param's dims and dtype. */
	int (*update)(struct hd_strategy *self, struct hd_plan *p, const struct hd_update *u, struct hd_tensor **value);
};

#ifdef __cplusplus
}
#endif
#endif
