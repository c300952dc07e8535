/* SPDX-License-Identifier: Apache-2.0
 * t/lib/tensors.h - loads tensors of safetensors files as arrays of floats.
 */
#ifndef HD_TEST_TENSORS_H
#define HD_TEST_TENSORS_H
#include "engine/tensorfile/tensorfile.h"
#include "t/lib/tap.h"

static float *load(struct hd_tensorfile *f, const char *name, int64_t *count)
{
	int64_t shape[HD_MAX_DIMS], off[HD_MAX_DIMS] = { 0 }, stride[HD_MAX_DIMS];
	struct hd_err err = { 0 };
	uint32_t dtype;
	int nd = 0;
	float *v;

	*count = 1;
	if (!hd_tensorfile_find(f, name, &dtype, &nd, shape))
		return NULL;
	for (int d = nd - 1; d >= 0; d--) {
		stride[d] = *count;
		*count *= shape[d];
	}
	v = hd_alloc((size_t)*count * sizeof(*v));
	if (hd_tensorfile_load(f, name, HD_DTYPE_F32, v, off, shape, stride, &err) < 0) {
		note("%s", err.text);
		free(v);
		return NULL;
	}
	return v;
}

static double mean_square(struct hd_tensorfile *f)
{
	double sum = 0, all = 0;

	for (int i = 0; i < hd_tensorfile_count(f); i++) {
		int64_t n;
		float *v = load(f, hd_tensorfile_name(f, i), &n);

		for (int64_t k = 0; v && k < n; k++)
			sum += (double)v[k] * (double)v[k];
		all += (double)n;
		free(v);
	}
	return sum / all;
}

#endif
