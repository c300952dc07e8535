/* SPDX-License-Identifier: Apache-2.0
 * dropout: whether an element is kept is a pure function of seed, step, site and global index.  It uses only integer
 * arithmetic (kernels/dropout_key.h), so the mask is the same on every device, bit by bit.
 *
 * The key depends on the step, so each block computes it.  hd_key of a name is two rounds around the name's hash,
 * which the host passes.
 */
#include "kernels/cuda/base/random.h"
extern "C" {
#include "engine/base/rng.h"
#include "kernels/prepare/embedding.h"
}

#define THREADS 256

HD_CUDA_PREPARE_TYPES(prepare, "dropout", "t", "t", hd_prepare_dropout(c, p))

struct dropout_rows {
	int64_t cols, base, batch_stride, sample0, n[HD_MAX_DIMS], stride[HD_MAX_DIMS];
	int64_t two[3]; /* dims in two pieces: see kernels/prepare/embedding.h */
	int32_t ndim;
	uint64_t name, site, limit;
	float scale;
};

template <int N, class T>
__global__ void __launch_bounds__(THREADS) dropout(T *y, const T *x, dropout_rows a, const struct hd_cuda_step *s)
{
	HD_SHARED(uint64_t, key);
	HD_SHARED(uint64_t, first);
	int64_t row = blockIdx.x;

	if (threadIdx.x == 0) {
		int64_t index = a.base + a.sample0 * a.batch_stride, rest = row;

		for (int i = a.ndim - 1; i >= 0; i--) {
			int64_t at = rest % a.n[i];

			index += at * a.stride[i] + (i == a.two[0] && at >= a.two[1] ? a.two[2] : 0);
			rest /= a.n[i];
		}
		key = hd_step_key(s, a.name, a.site);
		first = (uint64_t)index;
	}
	__syncthreads();
	for (int64_t j = (int64_t)threadIdx.x * N; j < a.cols; j += THREADS * N) {
		float v[N];

		load<N>(v, x + row * a.cols + j);
		for (int k = 0; k < N && s->train; k++)
			v[k] = hd_random53(key, first + (uint64_t)(j + k)) >= a.limit ? v[k] * a.scale : 0;
		store<N>(y + row * a.cols + j, v);
	}
}

template <class T> static void launch(const struct hd_prep *p, T *y, const T *x, const struct hd_run *r)
{
	const int64_t *strides = (const int64_t *)p->state;
	const int V = 16 / sizeof(T);
	double limit = p->f[0] * 0x1p53;
	dropout_rows a;

	memset(&a, 0, sizeof(a));
	a.cols = p->n[1];
	a.base = p->n[12];
	a.batch_stride = p->n[2];
	a.sample0 = r->sample0;
	a.ndim = (int32_t)p->n[4];
	for (int i = 0; i < a.ndim; i++) {
		a.n[i] = p->n[5 + i];
		a.stride[i] = strides[i];
	}
	memcpy(a.two, strides + HD_MAX_DIMS, sizeof(a.two));
	a.name = hd_hash_text("dropout");
	a.site = (uint64_t)p->n[3];
	a.limit = (uint64_t)limit + ((double)(uint64_t)limit < limit);
	a.scale = (float)(1 / (1 - p->f[0]));
	if (!p->n[0] || !a.cols || (!(p->f[0] > 0) && x == y))
		return;
	if (a.cols % V == 0 && hd_aligned(x) && hd_aligned(y))
		HD_LAUNCH((dropout<V, T>), (unsigned)p->n[0], THREADS, 0, r, y, x, a, hd_cuda_step_of(r));
	else
		HD_LAUNCH((dropout<1, T>), (unsigned)p->n[0], THREADS, 0, r, y, x, a, hd_cuda_step_of(r));
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	if (p->n[14] == HD_DTYPE_F32)
		launch(p, (float *)out[0], (const float *)in[0], r);
	else
		launch(p, (bf16 *)out[0], (const bf16 *)in[0], r);
}

HD_CUDA_KERNEL(dropout, "dropout", 0, prepare, run);
