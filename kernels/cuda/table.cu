/* SPDX-License-Identifier: Apache-2.0
 * The table of all kernels of the cuda device.
 */
#include "kernels/cuda/base/cuda.h"

extern "C" {
extern const struct hd_kernel hd_cuda_einsum, hd_cuda_sum, hd_cuda_add, hd_cuda_map, hd_cuda_cast, hd_cuda_copy,
	hd_cuda_accumulate, hd_cuda_fill, hd_cuda_norm, hd_cuda_norm_d, hd_cuda_norm_dw, hd_cuda_attention,
	hd_cuda_attention_d, hd_cuda_gelu, hd_cuda_gelu_d, hd_cuda_swiglu, hd_cuda_swiglu_d, hd_cuda_embedding,
	hd_cuda_embedding_dw, hd_cuda_position, hd_cuda_position_dw, hd_cuda_rope, hd_cuda_dropout, hd_cuda_xent,
	hd_cuda_xent_combine, hd_cuda_xent_d, hd_cuda_xent_both, hd_cuda_sumsq, hd_cuda_clip, hd_cuda_adamw,
	hd_cuda_sgd, hd_cuda_select, hd_cuda_route, hd_cuda_route_d, hd_cuda_dispatch, hd_cuda_combine,
	hd_cuda_combine_dg, hd_cuda_grouped, hd_cuda_einsum_gelu, hd_cuda_einsum_gelu_d, hd_cuda_scalar, hd_cuda_iota,
	hd_cuda_uniform, hd_cuda_largest, hd_cuda_take, hd_cuda_put, hd_cuda_route_bias, hd_cuda_attention_cached,
	hd_cuda_rope_at, hd_cuda_norm_d_add;
}

static const struct hd_kernel *const kernels[] = {
	&hd_cuda_einsum,     &hd_cuda_sum,          &hd_cuda_add,         &hd_cuda_map,
	&hd_cuda_cast,       &hd_cuda_copy,         &hd_cuda_accumulate,  &hd_cuda_fill,
	&hd_cuda_norm,       &hd_cuda_norm_d,       &hd_cuda_norm_d_add,  &hd_cuda_norm_dw,
	&hd_cuda_attention,  &hd_cuda_attention_d,  &hd_cuda_gelu,        &hd_cuda_gelu_d,
	&hd_cuda_swiglu,     &hd_cuda_swiglu_d,     &hd_cuda_embedding,   &hd_cuda_embedding_dw,
	&hd_cuda_position,   &hd_cuda_position_dw,  &hd_cuda_rope,        &hd_cuda_dropout,
	&hd_cuda_xent,       &hd_cuda_xent_combine, &hd_cuda_xent_d,      &hd_cuda_sumsq,
	&hd_cuda_clip,       &hd_cuda_adamw,        &hd_cuda_sgd,         &hd_cuda_select,
	&hd_cuda_route,      &hd_cuda_route_d,      &hd_cuda_dispatch,    &hd_cuda_combine,
	&hd_cuda_combine_dg, &hd_cuda_grouped,      &hd_cuda_einsum_gelu, &hd_cuda_einsum_gelu_d,
	&hd_cuda_scalar,     &hd_cuda_iota,         &hd_cuda_uniform,     &hd_cuda_largest,
	&hd_cuda_take,       &hd_cuda_put,          &hd_cuda_route_bias,  &hd_cuda_attention_cached,
	&hd_cuda_rope_at,    &hd_cuda_xent_both,
};

const struct hd_kernel *hd_cuda_kernel(const char *name)
{
	for (size_t i = 0; i < HD_LEN(kernels); i++)
		if (!strcmp(kernels[i]->name, name))
			return kernels[i];
	return NULL;
}
