/* SPDX-License-Identifier: Apache-2.0
 * add: the sum of all inputs, broadcast by dim, in one pass over memory (more than eight inputs take one pass for
 * each further seven).
 *
 * Adjacent dims are merged where possible, which leaves rows of the last dim.  A vector of elements lies in one row
 * if rows consist of whole vectors.
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/elementwise.h"
}

#define MOST 8

HD_CUDA_PREPARE_TYPES(prepare, "add", "t", "t", hd_prepare_add(c, p))

template <class T> struct adder {
	T *y;
	const T *x[MOST];
	int64_t n[HD_MAX_DIMS];
	int64_t stride[MOST][HD_MAX_DIMS];
	int32_t nin, ndim, dense;

	template <int N> HD_DEV void at(int64_t i) const
	{
		float sum[N], v[N];
		int64_t index[HD_MAX_DIMS], rest = i;

		for (int d = ndim - 1; d >= 0 && !dense; d--) {
			index[d] = rest % n[d];
			rest /= n[d];
		}
		load<N>(sum, x[0] + i);
		for (int k = 1; k < nin; k++) {
			int64_t at = 0, last = stride[k][ndim - 1];

			for (int d = 0; d < ndim && !dense; d++)
				at += index[d] * stride[k][d];
			if (dense)
				at = i;
			if (N > 1 && last == 1)
				load<N>(v, x[k] + at);
			else
				for (int j = 0; j < N; j++)
					v[j] = to_float(x[k][at + j * last]);
			for (int j = 0; j < N; j++)
				sum[j] += v[j];
		}
		store<N>(y + i, sum);
	}
};

template <int V, class T> static int wide(const struct hd_add *s, const adder<T> &f)
{
	int ok = s->n[s->ndim - 1] % V == 0 && hd_aligned(f.y);

	for (int k = 0; k < f.nin; k++) {
		ok = ok && (hd_aligned(f.x[k]) || f.stride[k][f.ndim - 1] != 1);
		for (int d = 0; d + 1 < f.ndim; d++) /* rows must also begin at whole vectors */
			ok = ok && (f.stride[k][f.ndim - 1] != 1 || f.stride[k][d] % V == 0);
	}
	return ok;
}

template <class T>
static void launch(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct hd_add *s = (const struct hd_add *)p->state;
	const int V = 16 / sizeof(T);

	for (uint32_t from = 1; from == 1 || from < s->nin; from += MOST - 1) {
		adder<T> f;

		f.y = (T *)out[0];
		f.x[0] = from == 1 ? (const T *)in[0] : f.y;
		f.nin = 1;
		f.ndim = (int32_t)s->ndim;
		memcpy(f.n, s->n, sizeof(f.n));
		memcpy(f.stride[0], s->stride[0], sizeof(f.stride[0]));
		for (uint32_t k = from; k < s->nin && f.nin < MOST; k++, f.nin++) {
			f.x[f.nin] = (const T *)in[k];
			memcpy(f.stride[f.nin], s->stride[k], sizeof(f.stride[0]));
		}
		f.dense = s->ndim == 1;
		for (int k = 0; k < f.nin; k++)
			f.dense &= f.stride[k][0] == 1;
		if (f.nin > 1 || f.x[0] != f.y)
			hd_each_used<V>(r, p->n[0], wide<V>(s, f), f);
	}
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_DTYPE_F32 ? launch<float>(p, out, in, r) : launch<bf16>(p, out, in, r);
}

HD_CUDA_KERNEL(add, "add", HD_K_ROWS, prepare, run);
