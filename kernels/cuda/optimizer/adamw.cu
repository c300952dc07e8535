/* SPDX-License-Identifier: Apache-2.0
 * adamw: Adam with decoupled weight decay, in one pass over w, g, m and v that also writes the bf16 copy of the
 * weights.  The equations are in kernels/ref/optimizer/adamw.c.
 *
 * The bias corrections depend on the step, so each block computes them (in double) from the step's number on the
 * device.  One launch updates all parameters of a rank; each block has a piece of one parameter.
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/optimizer.h"
}

#define THREADS 256

HD_CUDA_PREPARE_TYPES(prepare, "adamw", "ftfff", "fff*", hd_prepare_adamw(c, p))

template <class G> struct adamw {
	float *w1, *m1, *v1;
	bf16 *low;
	const float *w, *m, *v, *factor;
	const G *g;
	float eps, decay;
};

struct rates {
	float beta1, rest1, beta2, rest2, lr, unbias1, root2;
};

template <int N, class G> HD_DEV void update(const adamw<G> &a, const rates &c, float factor, int64_t i)
{
	float w[N], g[N], m[N], v[N];

	load<N>(w, a.w + i);
	load<N>(g, a.g + i);
	load<N>(m, a.m + i);
	load<N>(v, a.v + i);
	for (int k = 0; k < N; k++) {
		float d = g[k] * factor;

		m[k] = c.beta1 * m[k] + c.rest1 * d;
		v[k] = c.beta2 * v[k] + c.rest2 * (d * d);
		w[k] -= c.lr * (m[k] * c.unbias1 / (sqrtf(v[k]) * c.root2 + a.eps) + a.decay * w[k]);
	}
	store<N>(a.w1 + i, w);
	store<N>(a.m1 + i, m);
	store<N>(a.v1 + i, v);
	if (a.low)
		store<N>(a.low + i, w);
}

struct betas {
	double one, two;
};

/* Thread 0 computes the rates for all threads, which keep them in registers.  A store of weights may change any
 * memory, so rates in memory would be read again for each vector. */
HD_DEV rates rates_of(rates *c, betas b, const struct hd_cuda_step *s)
{
	if (threadIdx.x == 0) {
		double now = (double)s->step;

		c->beta1 = (float)b.one;
		c->rest1 = (float)(1 - b.one);
		c->beta2 = (float)b.two;
		c->rest2 = (float)(1 - b.two);
		c->lr = (float)s->lr;
		c->unbias1 = (float)(1 / (1 - pow(b.one, now)));
		c->root2 = (float)(1 / sqrt(1 - pow(b.two, now)));
	}
	__syncthreads();
	return *c;
}

template <int N, class G>
__global__ void __launch_bounds__(THREADS) adamw_step(int64_t n, adamw<G> a, betas b, const struct hd_cuda_step *s)
{
	HD_SHARED(rates, shared);
	int64_t step = (int64_t)gridDim.x * THREADS, t = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	rates c = rates_of(&shared, b, s);
	float factor = *a.factor;

	for (int64_t i = t * N; i + N <= n; i += step * N)
		update<N>(a, c, factor, i);
	if (N > 1 && t < n % N)
		update<1>(a, c, factor, n - n % N + t);
}

static betas betas_of(const struct hd_prep *p)
{
	return betas{ p->f[HD_ADAMW_BETA1], p->f[HD_ADAMW_BETA2] };
}

template <class G> static adamw<G> one_of(const struct hd_prep *p, void *const *out, void *const *in)
{
	return adamw<G>{ (float *)out[0],
			 (float *)out[1],
			 (float *)out[2],
			 p->n[1] ? (bf16 *)out[3] : NULL,
			 (const float *)in[0],
			 (const float *)in[2],
			 (const float *)in[3],
			 (const float *)in[4],
			 (const G *)in[1],
			 (float)p->f[HD_ADAMW_EPS],
			 (float)p->f[HD_ADAMW_DECAY] };
}

template <class G> static int is_wide(const adamw<G> &a)
{
	return hd_aligned(a.w) && hd_aligned(a.w1) && hd_aligned(a.m) && hd_aligned(a.m1) && hd_aligned(a.v) &&
	       hd_aligned(a.v1) && hd_aligned(a.g) && hd_aligned(a.low);
}

template <class G>
static void launch(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	adamw<G> a = one_of<G>(p, out, in);

	if (!p->n[0])
		return;
	if (is_wide(a))
		HD_LAUNCH((adamw_step<4, G>), hd_blocks(p->n[0], THREADS * 4), THREADS, 0, r, p->n[0], a, betas_of(p),
			  hd_cuda_step_of(r));
	else
		HD_LAUNCH((adamw_step<1, G>), hd_blocks(p->n[0], THREADS), THREADS, 0, r, p->n[0], a, betas_of(p),
			  hd_cuda_step_of(r));
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_DTYPE_BF16 ? launch<bf16>(p, out, in, r) : launch<float>(p, out, in, r);
}

/* -- all parameters in one launch ---------------------------------------------------------------------------------- */
#define PIECE 16384 /* elements per block */

struct adamw_part { /* one parameter; its gradient has either dtype */
	adamw<float> of_float;
	adamw<bf16> of_bf16;
	int64_t n, first; /* first: its first block */
	int32_t wide, narrow;
};
struct adamw_joined {
	struct adamw_part *parts;
	int64_t n, blocks;
	betas b;
};

template <int N, class G> HD_DEV void update_piece(const adamw<G> &a, const rates &c, int64_t from, int64_t to)
{
	float factor = *a.factor;

	for (int64_t i = from + (int64_t)threadIdx.x * N; i < to; i += THREADS * N) {
		if (i + N <= to)
			update<N>(a, c, factor, i);
		else
#pragma unroll 1
			for (int64_t k = i; k < to; k++)
				update<1>(a, c, factor, k);
	}
}

__global__ void __launch_bounds__(THREADS)
	adamw_all(const adamw_part *parts, int64_t n, betas b, const struct hd_cuda_step *s)
{
	HD_SHARED(rates, shared);
	rates c = rates_of(&shared, b, s);
	int64_t low = 0, high = n, from, to;

	while (high - low > 1) {
		int64_t mid = (low + high) / 2;

		if (parts[mid].first <= blockIdx.x)
			low = mid;
		else
			high = mid;
	}
	parts += low;
	from = (blockIdx.x - parts->first) * PIECE;
	to = hd_least(from + PIECE, parts->n);
	if (parts->narrow) {
		adamw<bf16> a = parts->of_bf16; /* copied to registers, for the same reason */

		parts->wide ? update_piece<4>(a, c, from, to) : update_piece<1>(a, c, from, to);
	} else {
		adamw<float> a = parts->of_float;

		parts->wide ? update_piece<4>(a, c, from, to) : update_piece<1>(a, c, from, to);
	}
}

static void *join(const struct hd_joint *l, size_t n)
{
	struct adamw_part *parts = (struct adamw_part *)hd_alloc(n * sizeof(*parts));
	struct adamw_joined j = { NULL, 0, 0, betas_of(l[0].prep) }, *kept;
	struct hd_err none = {};

	for (size_t i = 0; i < n; i++) {
		const struct hd_prep *p = l[i].prep;
		struct adamw_part *at = &parts[j.n];

		if (p->f[HD_ADAMW_BETA1] != j.b.one || p->f[HD_ADAMW_BETA2] != j.b.two) {
			free(parts);
			return NULL;
		}
		if (!p->n[0])
			continue;
		at->narrow = p->n[14] == HD_DTYPE_BF16;
		at->of_float = one_of<float>(p, l[i].out, l[i].in);
		at->of_bf16 = one_of<bf16>(p, l[i].out, l[i].in);
		at->wide = is_wide(at->of_float);
		at->n = p->n[0];
		at->first = j.blocks;
		j.blocks += (p->n[0] + PIECE - 1) / PIECE;
		j.n++;
	}
	if (j.n)
		j.parts = (struct adamw_part *)hd_cuda_constant(parts, (size_t)j.n * sizeof(*parts), &none);
	free(parts);
	if (j.n && !j.parts)
		return NULL;
	kept = (struct adamw_joined *)hd_alloc(sizeof(*kept));
	*kept = j;
	return kept;
}

static void run_joined(void *joined, const struct hd_run *r)
{
	const struct adamw_joined *j = (const struct adamw_joined *)joined;

	if (j->n)
		HD_LAUNCH(adamw_all, (unsigned)j->blocks, THREADS, 0, r, j->parts, j->n, j->b, hd_cuda_step_of(r));
}

static void unjoin(void *joined)
{
	hd_cuda_constant_free(((struct adamw_joined *)joined)->parts);
	free(joined);
}

HD_CUDA_KERNEL_JOINS(adamw, "adamw", 0, prepare, run, join, run_joined, unjoin);
