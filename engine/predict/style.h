/* SPDX-License-Identifier: Apache-2.0
 * engine/predict/style.h - how a program ran that is compared with a prediction. It is what another framework did otherwise
 * than Heddle with the same layout, as an INI file says it.
 */
#ifndef HD_ENGINE_PREDICT_STYLE_H
#define HD_ENGINE_PREDICT_STYLE_H
#include "engine/base/err.h"

enum { HD_ATTENTION_FUSED, HD_ATTENTION_SCORES };
struct hd_style {
	char name[80];
	double kernels; /* how many times as long kernels of its own take as the bytes that they move; fitted to runs, or: */
	double pass;   /* seconds more of each pass over a layer: forward, forward made again, backward */
	double step;   /* seconds more of each step whose forward and backward have collectives between nodes */
	int attention; /* HD_ATTENTION_SCORES: the s x s scores are written, masked, dropped out and read */
	/* of the peak of older instructions, what its fused attention reaches in forward and backward; 0: as the machine's
	 * products */
	double attention_share[2];
	int norms_twice;      /* a norm reads its operands twice, and again for the gradients of its weights */
	int dropout;          /* masks of one byte are written in forward and read in backward */
	int apart;            /* weights' gradients are made in 16 bits and added by kernels of their own */
	int epilogues_apart;  /* residuals are added by kernels of their own, not by products */
	int loss_twice;       /* logits are read for their statistics, and again for their gradient */
	int loss_apart;       /* the loss is made of logits in fp32, by a kernel for each step of its formula */
	int whole_logits;     /* all logits of a micro-batch exist at once (train.loss_parts = 1, unless it is given) */
	int optimizer_apart;  /* gradients are scaled back, checked, clipped and cleared by kernels of their own */
	int recompute_layer;  /* train.recompute = full: everything of a layer is recomputed, also what nobody reads */
	int own_elementwise;  /* all kernels without products are its own, too */
	int gather_layer;     /* a layer's parameters are gathered, and their gradients scattered, as one */
	int collectives_wait; /* collectives are waited for where they start */
	int messages_wait;    /* messages to other stages too */
	int sync_late;        /* gradients are summed over replicas when all backwards have ended */
	int saved_all;        /* operands and results of all kernels are kept for backward */
};
extern const struct hd_style hd_style_heddle; /* changes nothing */
/* name: of a file, or of one of conf/styles/ without .ini; NULL: heddle */
int hd_style_read(const char *name, struct hd_style *s, struct hd_err *err);

#endif
