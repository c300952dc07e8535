/* SPDX-License-Identifier: Apache-2.0
 * engine/predict/style.h - how the predicted program differs from Heddle. A style is an INI file that describes what
 * another framework did differently in the same layout.
 */
#ifndef HD_ENGINE_PREDICT_STYLE_H
#define HD_ENGINE_PREDICT_STYLE_H
#include "engine/base/err.h"

enum { HD_ATTENTION_FUSED, HD_ATTENTION_SCORES };
struct hd_style {
	char name[80];
	/* At most one of kernels, pass and step is fitted to the style's own runs. kernels: how many times as long as
	 * moving their bytes the style's own kernels take. */
	double kernels;
	double pass;   /* additional seconds of each pass over a layer: forward, recomputation, backward */
	double step;   /* additional seconds of each step whose forward and backward have collectives between nodes */
	int attention; /* HD_ATTENTION_SCORES: the s x s scores are written, masked, dropped out and read */
	/* share of the peak of older instructions that its fused attention reaches in forward and backward; 0: as
	 * the machine's products */
	double attention_share[2];
	int norms_twice; /* a norm reads its operands twice, and again for the gradients of its weights */
	int dropout;     /* masks of one byte are written in forward and read in backward */
	int separate_weight_gradient_adds; /* weight gradients are computed in 16 bits and added by separate kernels */
	int separate_residual_adds;        /* residuals are added by separate kernels, not by products */
	int loss_twice;                    /* logits are read for their statistics, and again for their gradient */
	int unfused_loss;     /* the loss is computed from logits in fp32, with a kernel for each step of its formula */
	int undivided_logits; /* all logits of a micro-batch exist at once (train.loss_parts = 1, unless it is given) */
	int unfused_optimizer; /* gradients are scaled back, checked, clipped and cleared by separate kernels */
	int recompute_layer;   /* train.recompute = full recomputes all of a layer, even what nothing reads */
	int own_elementwise;   /* all kernels without products are the style's own, too */
	int rings_only;        /* all-reduces move over rings, never over trees */
	int scatter_waits;     /* kernels wait while gradients of a layer are summed and scattered */
	int parameters_wait;   /* kernels wait while parameters are gathered after the update */
	int gather_layer;      /* a layer's parameters are gathered as one, and their gradients scattered as one */
	int collectives_wait;  /* kernels wait for a collective where it starts */
	int messages_wait;     /* and for messages to other stages */
	int sync_late;         /* gradients are summed over replicas after all backwards have ended */
	int saved_all;         /* operands and results of all kernels are kept for backward */
};
extern const struct hd_style hd_style_heddle; /* changes nothing */
/* Reads a style. name: a file, or one of conf/styles/ without .ini; NULL: heddle */
int hd_style_read(const char *name, struct hd_style *s, struct hd_err *err);

#endif
