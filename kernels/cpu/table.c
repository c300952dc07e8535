/* SPDX-License-Identifier: Apache-2.0
 * All kernels of the cpu device.
 */
#include <config.h>
#include "kernels/cpu/cpu.h"
#include <string.h>

extern const struct hd_kernel hd_cpu_einsum, hd_cpu_sum, hd_cpu_add, hd_cpu_map, hd_cpu_cast,
	hd_cpu_copy, hd_cpu_accumulate, hd_cpu_fill, hd_cpu_norm, hd_cpu_norm_d, hd_cpu_norm_dw,
	hd_cpu_attention, hd_cpu_attention_d, hd_cpu_gelu, hd_cpu_gelu_d, hd_cpu_swiglu,
	hd_cpu_swiglu_d, hd_cpu_embedding, hd_cpu_embedding_dw, hd_cpu_position,
	hd_cpu_position_dw, hd_cpu_rope, hd_cpu_dropout, hd_cpu_xent, hd_cpu_xent_combine,
	hd_cpu_xent_d, hd_cpu_sumsq, hd_cpu_clip, hd_cpu_adamw, hd_cpu_sgd, hd_cpu_select,
	hd_cpu_route, hd_cpu_route_d, hd_cpu_dispatch, hd_cpu_combine, hd_cpu_combine_dg, hd_cpu_grouped;

static const struct hd_kernel *const kernels[] = {
	&hd_cpu_einsum, &hd_cpu_sum, &hd_cpu_add, &hd_cpu_map, &hd_cpu_cast, &hd_cpu_copy,
	&hd_cpu_accumulate, &hd_cpu_fill, &hd_cpu_norm, &hd_cpu_norm_d, &hd_cpu_norm_dw,
	&hd_cpu_attention, &hd_cpu_attention_d, &hd_cpu_gelu, &hd_cpu_gelu_d, &hd_cpu_swiglu,
	&hd_cpu_swiglu_d, &hd_cpu_embedding, &hd_cpu_embedding_dw, &hd_cpu_position,
	&hd_cpu_position_dw, &hd_cpu_rope, &hd_cpu_dropout, &hd_cpu_xent, &hd_cpu_xent_combine,
	&hd_cpu_xent_d, &hd_cpu_sumsq, &hd_cpu_clip, &hd_cpu_adamw, &hd_cpu_sgd, &hd_cpu_select,
	&hd_cpu_route, &hd_cpu_route_d, &hd_cpu_dispatch, &hd_cpu_combine, &hd_cpu_combine_dg, &hd_cpu_grouped,
};

const struct hd_kernel *hd_cpu_kernel(const char *name)
{
	for (size_t i = 0; i < HD_LEN(kernels); i++)
		if (!strcmp(kernels[i]->name, name))
			return kernels[i];
	return NULL;
}
