/* SPDX-License-Identifier: Apache-2.0
 * position and position_dw: a learned vector per position, added to every sequence.
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/embedding.h"
}

HD_CUDA_PREPARE_TYPES(prepare, "position", "tu", "t", hd_prepare_position(c, p))
HD_CUDA_PREPARE_TYPES(prepare_dw, "position_dw", "t", "f", hd_prepare_position_dw(c, p))

template <class T, class W> struct position {
	T *y;
	const T *x;
	const W *w;         /* the row of the first position here */
	int64_t sequence;   /* elements of one sequence */
	int64_t fold, skip; /* from element `fold` on, elements of w are `skip` further */

	template <int N> HD_DEV void at(int64_t i) const
	{
		float v[N], u[N];

		load<N>(v, x + i);
		load<N>(u, w + i % sequence + (i % sequence >= fold ? skip : 0));
		for (int k = 0; k < N; k++)
			v[k] += u[k];
		store<N>(y + i, v);
	}
};

template <class T> struct position_dw {
	float *dw;
	const T *dy;
	int64_t outer, seq, cols, shift, fold, skip;
	int acc;

	template <int N> HD_DEV void at(int64_t i) const
	{
		int64_t row = i / cols - shift,
			s = row < fold          ? row
			    : row < fold + skip ? -1
						: row - skip,
			col = i % cols;
		float sum[N], v[N];

		for (int k = 0; k < N; k++)
			sum[k] = 0;
		for (int64_t b = 0; b < outer && s >= 0 && s < seq; b++) {
			load<N>(v, dy + (b * seq + s) * cols + col);
			for (int k = 0; k < N; k++)
				sum[k] += v[k];
		}
		if (acc) {
			load<N>(v, dw + i);
			for (int k = 0; k < N; k++)
				sum[k] += v[k];
		}
		store<N>(dw + i, sum);
	}
};

template <class T, class W>
static void launch(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const W *w = (const W *)in[1] + p->n[4] * p->n[2];
	position<T, W> f = {
		(T *)out[0], (const T *)in[0], w, p->n[1] * p->n[2], p->n[5] * p->n[2], p->n[6] * p->n[2]
	};

	hd_each<4>(r, p->n[0] * f.sequence, p->n[2] % 4 == 0 && hd_aligned(f.x) && hd_aligned(f.y) && hd_aligned(w), f);
}

template <class T>
static void launch_dw(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	position_dw<T> f = { (float *)out[0], (const T *)in[0], p->n[0], p->n[1], p->n[2],
			     p->n[4],         p->n[5],          p->n[6], r->acc };

	hd_each<4>(r, p->n[3] * f.cols, f.cols % 4 == 0 && hd_aligned(f.dw) && hd_aligned(f.dy), f);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	if (p->n[14] == HD_DTYPE_F32)
		p->n[15] == HD_DTYPE_F32 ? launch<float, float>(p, out, in, r) : launch<float, bf16>(p, out, in, r);
	else
		p->n[15] == HD_DTYPE_F32 ? launch<bf16, float>(p, out, in, r) : launch<bf16, bf16>(p, out, in, r);
}

static void run_dw(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_DTYPE_F32 ? launch_dw<float>(p, out, in, r) : launch_dw<bf16>(p, out, in, r);
}

HD_CUDA_KERNEL(position, "position", 0, prepare, run);
HD_CUDA_KERNEL(position_dw, "position_dw", HD_K_ACC, prepare_dw, run_dw);
