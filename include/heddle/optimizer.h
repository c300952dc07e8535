/* SPDX-License-Identifier: Apache-2.0
 * heddle/optimizer.h - an optimizer that a plugin defines. A layout selects it with train.optimizer = NAME, where a
 * section [plugin NAME] or [strategy NAME] loads the plugin.
 *
 * For one parameter at a time, the optimizer builds the nodes that compute its new value. They read the old value, the
 * gradient and states of the optimizer's own. graph->state creates a state, and graph->assign sets its next value: a
 * state that is not assigned keeps its initial value. The nodes run once per step, after the global norm is known, and
 * not in a step whose loss or norm is not finite. Tensors are logical here, as in slot rewrite. Where states and
 * gradients are sharded (zero), each member updates its piece with elementwise nodes (map, cast, adamw, sgd). Products
 * and sums gather their operands. A plugin may also call the engine's ops of kind update:
 *
 *   adamw (w, g, m, v, factor -> w, m, v; beta1, beta2, eps, decay)        sgd (w, g, factor -> w; decay)
 *
 *	ins = { u->param, u->gradient, m, v, u->factor };
 *	n = g->node(p, g->op(p, "adamw"), ins, 5, "beta1=0.9 beta2=0.99 eps=1e-8 decay=%.17g", u->weight_decay);
 *	g->assign(p, m, n->outs[1]), g->assign(p, v, n->outs[2]), *value = n->outs[0];
 *
 * These ops read the step's learning rate themselves. Other nodes get it from graph->scalar.
 */
#ifndef HEDDLE_OPTIMIZER_H
#define HEDDLE_OPTIMIZER_H
#include <heddle/graph.h>
#ifdef __cplusplus
extern "C" {
#endif

struct hd_update { /* view: the update of one parameter */
	size_t size;
	const struct hd_host *h;
	const char *name; /* the parameter's name, as in checkpoints */
	/* the tensor to update: the parameter, or its fp32 master if the parameter has a lower precision */
	struct hd_tensor *param;
	struct hd_tensor *gradient; /* the gradient of the complete step, not clipped */
	struct hd_tensor *factor;   /* a tensor without dims; gradient * factor is the clipped gradient (train.clip) */
	/* train.weight_decay, or 0 for parameters that do not decay: biases and norms. An optimizer without weight
	 * decay refuses any other value with h->fail, so that no setting is silently ignored. */
	double weight_decay;
};

struct hd_optimizer_ops { /* static const data */
	size_t size;
	/* Sets *value to the parameter's new value, with param's dims and dtype. Setting it to u->param freezes the
	 * parameter. It is an error to set it to NULL or not at all. */
	int (*update)(struct hd_strategy *self, struct hd_plan *p, const struct hd_update *u, struct hd_tensor **value);
};

#ifdef __cplusplus
}
#endif
#endif
