/* SPDX-License-Identifier: Apache-2.0
 * kernels/prepare/map.h - checks of map: an expression over inputs that are broadcast by dim to the dims of the
 * output. Shared by all devices.
 */
#ifndef HD_KERNELS_PREPARE_MAP_H
#define HD_KERNELS_PREPARE_MAP_H
#include "engine/device/device.h"
#include "engine/base/expr.h"

#define HD_MAP_INPUTS 26 /* a to z */

struct hd_map_input {
	int64_t stride[HD_MAX_DIMS]; /* along the dims of the output; 0: the input lacks the dim */
	uint32_t dtype;
};

struct hd_map_prep {
	struct hd_expr e;
	int64_t total; /* elements of the output */
	int64_t extent[HD_MAX_DIMS];
	int32_t ndim, nin;
	uint32_t dtype; /* of the output */
	struct hd_map_input in[HD_MAP_INPUTS];
};

/* Returns why dtype is refused, or NULL. real: the only dtype of a device that computes in a single one; 0: the device
 * reads several. */
static inline const char *hd_map_refuses(uint32_t dtype, uint32_t real)
{
	if (real)
		return dtype == real ? NULL : "it must be f64";
	return dtype == HD_DTYPE_F32 || dtype == HD_DTYPE_F64 || dtype == HD_DTYPE_BF16
		       ? NULL
		       : "only f32, f64 and bf16 are possible";
}

static inline int hd_map_set_input(struct hd_map_prep *m, int i, const struct hd_view *x, const struct hd_view *y,
				   uint32_t real, struct hd_err *err)
{
	const char *why = hd_map_refuses(x->dtype, real);
	int64_t stride = 1;

	if (why)
		return hd_err_set(err, HD_ENOTSUP, "map: input %c is %s, %s", 'a' + i, hd_dtype_name(x->dtype), why);
	m->in[i].dtype = x->dtype;
	for (uint32_t k = x->ndim; k-- > 0; stride *= x->n[k]) {
		uint32_t at = 0;

		while (at < y->ndim && y->dims[at] != x->dims[k])
			at++;
		if (at == y->ndim)
			return hd_err_set(err, HD_EINVAL, "map: input %c has dim %s, which the output does not have",
					  'a' + i, x->dims[k]->name);
		if (x->n[k] != y->n[at])
			return hd_err_set(err, HD_EINVAL,
					  "map: dim %s has %lld elements in input %c and %lld in the output",
					  x->dims[k]->name, (long long)x->n[k], 'a' + i, (long long)y->n[at]);
		m->in[i].stride[at] = stride;
	}
	return 0;
}

/* Checks a map, and describes it in *m, which is zeroed. */
static inline int hd_prepare_map(const struct hd_kernel_desc *d, uint32_t real, struct hd_map_prep *m,
				 struct hd_err *err)
{
	const struct hd_view *y = &d->out[0];
	const char *why;

	if (d->nout != 1 || d->nin > HD_MAP_INPUTS)
		return hd_err_set(err, HD_EINVAL, "map: %u inputs and %u outputs, but at most %d and one are possible",
				  d->nin, d->nout, HD_MAP_INPUTS);
	HD_TRY(hd_expr_compile(d->attr, &m->e, err));
	if (m->e.vars > (int)d->nin)
		return hd_err_set(err, HD_EINVAL, "map: \"%.200s\" reads input %c, but the node has %u inputs", d->attr,
				  'a' + m->e.vars - 1, d->nin);
	why = hd_map_refuses(y->dtype, real);
	if (why)
		return hd_err_set(err, HD_ENOTSUP, "map: the output is %s, %s", hd_dtype_name(y->dtype), why);
	m->dtype = y->dtype;
	m->total = hd_view_count(y);
	m->ndim = (int32_t)y->ndim;
	m->nin = (int32_t)d->nin;
	for (uint32_t k = 0; k < y->ndim; k++)
		m->extent[k] = y->n[k];
	for (int i = 0; i < m->nin; i++)
		HD_TRY(hd_map_set_input(m, i, &d->in[i], y, real, err));
	return 0;
}

#endif
