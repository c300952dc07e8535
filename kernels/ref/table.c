/* SPDX-License-Identifier: Apache-2.0
 * All kernels of the ref device.
 */
#include <config.h>
#include "kernels/ref/ref.h"
#include <string.h>

extern const struct hd_kernel hd_ref_einsum, hd_ref_sum, hd_ref_add, hd_ref_map, hd_ref_cast,
	hd_ref_copy, hd_ref_accumulate, hd_ref_fill, hd_ref_norm, hd_ref_norm_d, hd_ref_norm_dw,
	hd_ref_attention, hd_ref_attention_d, hd_ref_gelu, hd_ref_gelu_d, hd_ref_swiglu,
	hd_ref_swiglu_d, hd_ref_embedding, hd_ref_embedding_dw, hd_ref_position,
	hd_ref_position_dw, hd_ref_rope, hd_ref_dropout, hd_ref_xent, hd_ref_xent_combine,
	hd_ref_xent_d, hd_ref_sumsq, hd_ref_clip, hd_ref_adamw, hd_ref_sgd, hd_ref_select,
	hd_ref_route, hd_ref_route_d, hd_ref_dispatch, hd_ref_combine, hd_ref_combine_dg, hd_ref_grouped;

static const struct hd_kernel *const kernels[] = {
	&hd_ref_einsum, &hd_ref_sum, &hd_ref_add, &hd_ref_map, &hd_ref_cast, &hd_ref_copy,
	&hd_ref_accumulate, &hd_ref_fill, &hd_ref_norm, &hd_ref_norm_d, &hd_ref_norm_dw,
	&hd_ref_attention, &hd_ref_attention_d, &hd_ref_gelu, &hd_ref_gelu_d, &hd_ref_swiglu,
	&hd_ref_swiglu_d, &hd_ref_embedding, &hd_ref_embedding_dw, &hd_ref_position,
	&hd_ref_position_dw, &hd_ref_rope, &hd_ref_dropout, &hd_ref_xent, &hd_ref_xent_combine,
	&hd_ref_xent_d, &hd_ref_sumsq, &hd_ref_clip, &hd_ref_adamw, &hd_ref_sgd, &hd_ref_select,
	&hd_ref_route, &hd_ref_route_d, &hd_ref_dispatch, &hd_ref_combine, &hd_ref_combine_dg, &hd_ref_grouped,
};

static const struct hd_kernel *kernel(const char *name)
{
	for (size_t i = 0; i < HD_LEN(kernels); i++)
		if (!strcmp(kernels[i]->name, name))
			return kernels[i];
	return NULL;
}

static int open_device(int threads, struct hd_err *err)
{
	(void)threads;
	(void)err;
	return 0;
}

static void close_device(void)
{
}

static char *settle(const char *known, const struct hd_exchange *x)
{
	(void)known;
	(void)x;
	return hd_strdup("");	/* nothing to choose */
}

static double product_rate(uint32_t dtype)
{
	(void)dtype;
	return 1e9;	/* about one multiply-add every few cycles; nobody plans a run on this device */
}

static const struct hd_device_ops ops = {
	.name = "ref", .open = open_device, .close = close_device, .kernel = kernel, .settle = settle,
	.product_rate = product_rate,
};

const struct hd_device_ops *hd_device_ref(void)
{
	return &ops;
}
