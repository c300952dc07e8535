/* SPDX-License-Identifier: Apache-2.0
 * Checks of operand types that all kernels of this device share.
 */
#include "kernels/cuda/base/cuda.h"

int hd_cuda_check(const char *kernel, const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err,
		  int (*prepare)(const struct hd_check *c, struct hd_prep *p))
{
	const struct hd_check c = { kernel, HD_DTYPE_F32, d, err, HD_DTYPE_BF16 };

	return prepare(&c, p);
}

static int one_type(const char *kernel, const char *side, uint32_t i, char letter, uint32_t dtype, uint32_t *t,
		    uint32_t *u, struct hd_err *err)
{
	uint32_t *mine = letter == 't' ? t : u, f32 = HD_DTYPE_F32;

	if (letter == '*')
		return HD_OK;
	if (letter == 'f')
		mine = &f32;
	if (!*mine)
		*mine = dtype;
	if (*mine == dtype && (dtype == HD_DTYPE_F32 || dtype == HD_DTYPE_BF16))
		return HD_OK;
	return hd_err_set(err, HD_ENOTSUP, "%s: %s %u has dtype %s, it must be %s", kernel, side, i,
			  hd_dtype_name(dtype), *mine == dtype ? "f32 or bf16" : hd_dtype_name(*mine));
}

int hd_cuda_types(const char *kernel, const struct hd_kernel_desc *d, const char *ins, const char *outs, uint32_t *t,
		  uint32_t *u, struct hd_err *err)
{
	*t = *u = 0;
	for (uint32_t i = 0; i < d->nin; i++, ins += ins[1] != 0)
		HD_TRY(one_type(kernel, "input", i, *ins, d->in[i].dtype, t, u, err));
	for (uint32_t i = 0; i < d->nout; i++, outs += outs[1] != 0)
		HD_TRY(one_type(kernel, "output", i, *outs, d->out[i].dtype, t, u, err));
	return HD_OK;
}
