/* SPDX-License-Identifier: Apache-2.0
 * engine/predict/extra.h - what a style does in a program besides its entries: layers that are made again whole, and activations
 * that are kept whole.
 */
#ifndef HD_ENGINE_PREDICT_EXTRA_H
#define HD_ENGINE_PREDICT_EXTRA_H
#include "engine/predict/price.h"

struct hd_again {                    /* by block: in its backward */
	double kernels, collectives; /* seconds */
	double flops;                /* of products */
	int32_t queue;               /* group id of the collectives */
	int32_t micro;               /* of the last time that it was counted, + 1 */
};
/* Malloc'ed, by block; NULL: the style makes again what is needed. */
struct hd_again *hd_again_find(const struct hd_pricing *x);
/* Bytes that a style keeps for backward besides what is planned, where most is in flight. */
double hd_saved_besides(const struct hd_pricing *x);

#endif
