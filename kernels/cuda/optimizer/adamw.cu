/* SPDX-License-Identifier: Apache-2.0
 * adamw: Adam with decoupled weight decay, in one pass over w, g, m and v that also writes the bf16 copy of the
 * weights.  The equations are in kernels/ref/optimizer/adamw.c.
 *
 * The bias corrections depend on the step, so each block computes them (in double) from the step's number on the
 * device.  One launch updates many parameters of a rank; each block has a piece of one parameter.
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
struct adamw_lot { /* consecutive parameters that one launch updates */
	int64_t from, n, blocks;
};
struct adamw_joined {
	struct adamw_part *parts;
	struct adamw_lot *lots;
	int64_t n, nlots;
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

#define OPERANDS 9 /* outputs w, m, v, low; inputs w, g, m, v, factor */
#define OUTPUTS 4

struct adamw_ranges {
	struct hd_range of[OPERANDS];
};

static adamw_ranges ranges_of(const struct hd_joint *l)
{
	const struct hd_prep *p = l->prep;
	adamw_ranges x;

	for (int o = 0; o < OPERANDS; o++) {
		int there = o != 3 || p->n[1], low = o == 3 || (o == OUTPUTS + 1 && p->n[14] == HD_DTYPE_BF16);
		int64_t n = o == OUTPUTS + 4 ? 1 : there ? p->n[0] : 0;

		x.of[o].from = (const char *)(!there ? NULL : o < OUTPUTS ? l->out[o] : l->in[o - OUTPUTS]);
		x.of[o].to = x.of[o].from + n * (low ? 2 : 4);
	}
	return x;
}

/* Returns whether one launch may update both: neither writes what the other reads or writes.  The results of an
 * update may have the memory of an operand that an earlier update was the last to read. */
static int are_apart(const adamw_ranges *x, const adamw_ranges *y)
{
	for (int i = 0; i < OPERANDS; i++)
		for (int k = 0; k < (i < OUTPUTS ? OPERANDS : OUTPUTS); k++)
			if (hd_ranges_overlap(x->of[i], y->of[k]))
				return 0;
	return 1;
}

static int fits_lot(const adamw_ranges *x, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		if (!are_apart(&x[i], &x[to]))
			return 0;
	return 1;
}

static void release_joined(struct adamw_joined *j)
{
	if (j->parts)
		hd_cuda_constant_free(j->parts);
	free(j->lots);
	free(j);
}

/* Adds the update to the last lot. */
static void add_part(struct adamw_joined *j, struct adamw_part *at, const struct hd_joint *l)
{
	const struct hd_prep *p = l->prep;
	struct adamw_lot *lot = &j->lots[j->nlots - 1];

	at->narrow = p->n[14] == HD_DTYPE_BF16;
	at->of_float = one_of<float>(p, l->out, l->in);
	at->of_bf16 = one_of<bf16>(p, l->out, l->in);
	at->wide = is_wide(at->of_float);
	at->n = p->n[0];
	at->first = lot->blocks;
	lot->blocks += (p->n[0] + PIECE - 1) / PIECE;
	lot->n++;
	j->n++;
}

static void *join(const struct hd_joint *l, size_t n)
{
	struct adamw_part *parts = (struct adamw_part *)hd_alloc(n * sizeof(*parts));
	struct adamw_joined *j = (struct adamw_joined *)hd_alloc(sizeof(*j));
	adamw_ranges *x = (adamw_ranges *)hd_alloc(n * sizeof(*x));
	struct hd_err none = {};
	size_t same = 0;

	j->lots = (struct adamw_lot *)hd_alloc(n * sizeof(*j->lots));
	j->b = betas_of(l[0].prep);
	for (size_t i = 0, from = 0; i < n; i++, same++) {
		if (l[i].prep->f[HD_ADAMW_BETA1] != j->b.one || l[i].prep->f[HD_ADAMW_BETA2] != j->b.two)
			break;
		if (!l[i].prep->n[0])
			continue;
		x[i] = ranges_of(&l[i]);
		if (!j->nlots || !fits_lot(x, from, i)) {
			from = i;
			j->lots[j->nlots++].from = j->n;
		}
		add_part(j, &parts[j->n], &l[i]);
	}
	if (j->n && same == n)
		j->parts = (struct adamw_part *)hd_cuda_constant(parts, (size_t)j->n * sizeof(*parts), &none);
	free(parts);
	free(x);
	if (same == n && (j->parts || !j->n))
		return j;
	release_joined(j);
	return NULL;
}

static void run_joined(void *joined, const struct hd_run *r)
{
	const struct adamw_joined *j = (const struct adamw_joined *)joined;

	for (int64_t i = 0; i < j->nlots; i++)
		HD_LAUNCH(adamw_all, (unsigned)j->lots[i].blocks, THREADS, 0, r, j->parts + j->lots[i].from,
			  j->lots[i].n, j->b, hd_cuda_step_of(r));
}

static void unjoin(void *joined)
{
	release_joined((struct adamw_joined *)joined);
}

HD_CUDA_KERNEL_JOINS(adamw, "adamw", 0, prepare, run, join, run_joined, unjoin);
