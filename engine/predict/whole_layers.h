/* SPDX-License-Identifier: Apache-2.0
 * engine/predict/whole_layers.h - work and memory of frameworks that treat a layer as a whole: they recompute it in backward,
 * gather its parameters as one, or save all of its activations.  A program's entries do not have these.
 */
#ifndef HD_ENGINE_PREDICT_WHOLE_LAYERS_H
#define HD_ENGINE_PREDICT_WHOLE_LAYERS_H
#include "engine/predict/price.h"

struct hd_again {                    /* by block: in its backward */
	double kernels, collectives; /* seconds */
	double flops;                /* of products */
	int32_t queue;               /* group id of the collectives */
	int32_t micro;               /* of the last time that it was counted, + 1 */
};
/* Malloc'ed, by block; NULL: the style makes again what is needed. */
struct hd_again *hd_again_find(const struct hd_pricing *x);
/* What a rank sends of a layer's parameters, or of their gradients, where these go as one, malloc'ed. NULL: each goes by
 * itself. hd_layer_sent: of the one that this movement is a part of; 0: of none. */
double *hd_layers_sent(const struct hd_pricing *x);
double hd_layer_sent(const struct hd_pricing *x, const struct node *n);
/* Bytes that a style keeps for backward besides what is planned, where most is in flight. */
double hd_saved_besides(const struct hd_pricing *x);

#endif
