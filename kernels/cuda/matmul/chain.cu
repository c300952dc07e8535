/* SPDX-License-Identifier: Apache-2.0
 * A sum of products in one launch: c = a0 b0 + a1 b1 + ...
 *
 * An example is the gradient of an input that several weights read (queries, keys and values; gate and up).  The
 * library computes each product separately, and reads and writes c in between.  Here a block walks through the
 * depths of all of them, keeps its sums in registers, and rounds once.
 *
 * Each of the library's products is faster, so both ways are timed (product_tune.cu).
 */
#include "kernels/cuda/matmul/chain.h"

struct hd_chain {
	struct hd_chain *next;
	struct hd_product *p[HD_CHAIN_MOST];
	int users, n, pick; /* pick: 0 separate products, 1 chained, 2 by wgmma */
	int turned;         /* the rows of b are columns of the product */
};

static struct hd_chain *chains;

template <int TB> HD_DEV void fill_next(bf16 *to, const hd_terms &t, hd_chain_place *at, int m0, int n0)
{
	int i = at->term;

	if (i < t.n) {
		fill_part<DEEP, TILE>(to, t.a[i], t.a_step[i], m0, at->d, t.m, t.depth[i]);
		if (TB)
			fill_part<DEEP, TILE>(to + TILE * DEEP, t.b[i], t.b_step[i], n0, at->d, t.columns, t.depth[i]);
		else
			fill_part<TILE, DEEP>(to + TILE * DEEP, t.b[i], t.b_step[i], at->d, n0, t.depth[i], t.columns);
		at->next(t);
	}
	copies_commit();
}

/* Adjacent blocks read the same rows of a, which come from L2 for all but the first. */
template <int TB>
__global__ void __launch_bounds__(THREADS, 2) chained(hd_terms t, int64_t c_step, bf16 *c, const bf16 *add)
{
	HD_DYNAMIC_SHARED(bf16, stages);
	int warp = (int)threadIdx.x / HD_WARP, lane = (int)threadIdx.x % HD_WARP;
	int wm = warp / 4 * 64, wn = warp % 4 * 32, turn = 0; /* a warp computes 64 x 32 */
	int m0 = (int)blockIdx.y * TILE, n0 = (int)blockIdx.x * TILE;
	hd_chain_place ahead = { 0, 0 };
	float sum[4][4][4];

#pragma unroll
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 4; j++)
			sum[i][j][0] = sum[i][j][1] = sum[i][j][2] = sum[i][j][3] = 0;
	for (int s = 0; s < STAGES - 1; s++)
		fill_next<TB>(stages + s * STAGE, t, &ahead, m0, n0);
	for (int i = 0; i < t.steps; i++, turn = turn + 1 == STAGES ? 0 : turn + 1) {
		bf16 *ta = stages + turn * STAGE;

		copies_wait<STAGES - 2>();
		__syncthreads(); /* these copies have arrived, and no thread reads what the next ones overwrite */
		fill_next<TB>(stages + (turn ? turn - 1 : STAGES - 1) * STAGE, t, &ahead, m0, n0);
		add_products<0, TB>(sum, ta, ta + TILE * DEEP, wm, wn);
	}
	copies_wait<0>();
#pragma unroll
	for (int i = 0; i < 4; i++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			int row = m0 + wm + i * 16 + h * 8 + lane / 4;

#pragma unroll
			for (int j = 0; j < 4; j++) {
				int col = n0 + wn + j * 8 + lane % 4 * 2;
				float x[2] = { sum[i][j][2 * h], sum[i][j][2 * h + 1] };

				hd_put_sum(t, c_step, c, add, row, col, x);
			}
		}
}

/* -- host ---------------------------------------------------------------------------------------------------------- */
enum { M, N, K }; /* dims of a product without a batch */

static int aligned(int64_t x)
{
	return x > 0 && x % 8 == 0 && x < 1 << 24;
}

/* Returns 1 for a matrix product of bf16 whose rows are contiguous and consist of 16-byte pieces.  Sets *turned if
 * b's rows lie along the depth. */
static int fits(const struct hd_mm_shape *s, int *turned)
{
	const int64_t *a = s->stride[HD_MM_A], *b = s->stride[HD_MM_B], *c = s->stride[HD_MM_C];

	if (s->ndim != 3 || s->then != HD_MM_PLAIN || s->dtype[HD_MM_BIAS])
		return 0;
	for (int o = 0; o < HD_MM_BIAS; o++)
		if (s->dtype[o] != HD_DTYPE_BF16)
			return 0;
	*turned = b[K] == 1;
	return s->n[M] > 1 && aligned(s->n[N]) && aligned(s->n[K]) && a[K] == 1 && aligned(a[M]) && c[N] == 1 &&
	       aligned(c[M]) && b[*turned ? K : N] == 1 && aligned(b[*turned ? N : K]) && s->n[M] < (int64_t)TILE << 15;
}

static int same_result(const struct hd_mm_shape *x, const struct hd_mm_shape *y)
{
	return x->n[M] == y->n[M] && x->n[N] == y->n[N] && x->stride[HD_MM_C][M] == y->stride[HD_MM_C][M];
}

static struct hd_chain *find_chain(struct hd_product *const *p, int n)
{
	struct hd_chain *c = chains;

	while (c && (c->n != n || memcmp(c->p, p, (size_t)n * sizeof(*p))))
		c = c->next;
	return c;
}

struct hd_chain *hd_chain_get(struct hd_product *const *p, int n)
{
	const struct hd_mm_shape *first = hd_product_shape(p[0]);
	struct hd_err none = {};
	struct hd_chain *c = find_chain(p, n);
	int turned, other;

	if (c) {
		c->users++;
		return c;
	}
	if (n < 2 || n > HD_CHAIN_MOST || !fits(first, &turned))
		return NULL;
	for (int i = 1; i < n; i++)
		if (!fits(hd_product_shape(p[i]), &other) || other != turned ||
		    !same_result(first, hd_product_shape(p[i])))
			return NULL;
	if (hd_cuda_allow_shared("einsum", (const void *)chained<0>, SHARED_BYTES, &none) < 0 ||
	    hd_cuda_allow_shared("einsum", (const void *)chained<1>, SHARED_BYTES, &none) < 0)
		return NULL;
	c = (struct hd_chain *)hd_alloc(sizeof(*c));
	c->n = n;
	c->users = 1;
	c->turned = turned;
	for (int i = 0; i < n; i++)
		c->p[i] = hd_product_get(hd_product_shape(p[i]));
	c->next = chains;
	return chains = c;
}

void hd_chain_release(struct hd_chain *c)
{
	struct hd_chain **at = &chains;

	if (--c->users)
		return;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	for (int i = 0; i < c->n; i++)
		hd_product_release(c->p[i]);
	free(c);
}

struct hd_chain *hd_chain_next(const struct hd_chain *c)
{
	return c ? c->next : chains;
}

int hd_chain_products(const struct hd_chain *c, struct hd_product *const **p)
{
	*p = c->p;
	return c->n;
}

int hd_chain_choices(void)
{
	return hd_chain_wgmma_has() ? 3 : 2;
}

void hd_chain_pick(struct hd_chain *c, int i)
{
	c->pick = i < hd_chain_choices() ? i : 0;
}

int64_t hd_chain_picked(void)
{
	int64_t n = 0;

	for (const struct hd_chain *c = chains; c; c = c->next)
		n += c->pick ? c->n * c->users : 0;
	return n;
}

int hd_chain_run(const struct hd_chain *c, const struct hd_run *r, void *out, const void *const *a,
		 const void *const *b, const void *add)
{
	const struct hd_mm_shape *s = hd_product_shape(c->p[0]);
	dim3 grid((unsigned)((s->n[N] + TILE - 1) / TILE), (unsigned)((s->n[M] + TILE - 1) / TILE));
	int64_t step = s->stride[HD_MM_C][M];
	hd_terms t;

	memset(&t, 0, sizeof(t));
	t.n = c->n;
	t.m = (int32_t)s->n[M];
	t.columns = (int32_t)s->n[N];
	for (int i = 0; i < c->n; i++) {
		const struct hd_mm_shape *x = hd_product_shape(c->p[i]);

		t.a[i] = (const bf16 *)a[i];
		t.b[i] = (const bf16 *)b[i];
		t.a_step[i] = x->stride[HD_MM_A][M];
		t.b_step[i] = x->stride[HD_MM_B][c->turned ? N : K];
		t.depth[i] = (int32_t)x->n[K];
		t.steps += (int32_t)((x->n[K] + DEEP - 1) / DEEP);
		if (!hd_aligned(a[i]) || !hd_aligned(b[i]))
			return HD_ENOTSUP;
	}
	if (!c->pick || !hd_aligned(out) || !hd_aligned(add))
		return HD_ENOTSUP;
#ifdef HD_SIM
	if (getenv("HD_TEST_CHAIN_MS"))
		hd_sim_ms += atof(getenv("HD_TEST_CHAIN_MS"));
#endif
	if (c->pick == 2)
		return hd_chain_wgmma(&t, c->turned, step, (bf16 *)out, (const bf16 *)add, r);
	if (c->turned)
		HD_LAUNCH(chained<1>, grid, THREADS, SHARED_BYTES, r, t, step, (bf16 *)out, (const bf16 *)add);
	else
		HD_LAUNCH(chained<0>, grid, THREADS, SHARED_BYTES, r, t, step, (bf16 *)out, (const bf16 *)add);
	return HD_OK;
}
