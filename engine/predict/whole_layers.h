/* SPDX-License-Identifier: Apache-2.0
 * engine/predict/whole_layers.h - work and memory of frameworks that treat a layer as a whole. They recompute it in
 * backward, gather its parameters as one, or save all of its activations. A program's entries do not contain these.
 */
#ifndef HD_ENGINE_PREDICT_WHOLE_LAYERS_H
#define HD_ENGINE_PREDICT_WHOLE_LAYERS_H
#include "engine/predict/price.h"

struct hd_again {                    /* what recomputing a block adds to its backward */
	double kernels, collectives; /* seconds */
	double flops;                /* of products */
	int32_t queue;               /* group id of the collectives */
	int32_t micro;               /* micro-batch for which it was last counted, + 1 */
};
/* Returns that work by block, malloc'ed, or NULL if the style recomputes only what is needed. */
struct hd_again *hd_again_find(const struct hd_pricing *x);
/* Returns the bytes that a rank sends of each layer's parameters and of their gradients, where these are sent as one;
 * malloc'ed. NULL: each tensor is sent by itself. */
double *hd_layers_sent(const struct hd_pricing *x);
/* Returns the bytes of those above of which this movement is a part, or 0 if it is a part of none. */
double hd_layer_sent(const struct hd_pricing *x, const struct node *n);
/* Returns the most bytes that a style keeps for backward at once in addition to what is planned. */
double hd_saved_besides(const struct hd_pricing *x);

#endif
