/* SPDX-License-Identifier: Apache-2.0
 * route, route_d, dispatch, combine and combine_dg; the equations are in the reference.
 *
 * Threads divide complete groups of tokens (route) or rows, so nothing depends on their number. dispatch fills slots
 * with an index from slots to choices, which each run builds again. So every row is written once, without a product
 * with a mask.
 */
#include <config.h>
#include "engine/base/rng.h"
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/base/scratch.h"
#include "kernels/prepare/experts.h"

/* Rows and tokens may be bf16; gates are fp32. */
#define GATED(c) (hd_attr_num((c)->d->attr, "gates", 0) != 0 ? "t*f*" : "t*")
HD_PREPARE_LOW(prepare_dispatch, "dispatch", GATED(c), "t", hd_prepare_dispatch(c, p))
HD_PREPARE_LOW(prepare_combine, "combine", GATED(c), "t", hd_prepare_combine(c, p))
HD_PREPARE_LOW(prepare_combine_dg, "combine_dg", "tt*", "f", hd_prepare_combine_dg(c, p))

/* Returns the doubles of scratch for a piece of tokens, which is complete capacity groups and complete auxiliary
 * groups. They are sums (E + 3), E f_e (E), slots taken (E), and room for two floats per expert. */
static int64_t scratch_of(const struct hd_prep *p)
{
	return 4 * p->n[2] + 3;
}
static int64_t piece_of(const struct hd_prep *p)
{
	return p->n[4] > p->n[6] ? p->n[4] : p->n[6];
}

static int64_t bytes_of(const struct hd_prep *p)
{
	return (p->n[0] * p->n[1] / piece_of(p) + 1) * scratch_of(p) * (int64_t)sizeof(double);
}

HD_PREPARE(route_shape, "route", HD_DTYPE_F32, hd_prepare_route(c, p))
HD_PREPARE(route_d_shape, "route_d", HD_DTYPE_F32, hd_prepare_route_d(c, p))

static int prepare_route(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(route_shape(d, p, err));
	return hd_scratch_take(p, bytes_of(p), "route", err);
}

static int prepare_route_d(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(route_d_shape(d, p, err));
	return hd_scratch_take(p, bytes_of(p), "route_d", err);
}

static int64_t scratch_route(const struct hd_kernel_desc *d, int threads)
{
	(void)threads;
	return hd_scratch_of_shape(d, route_shape, bytes_of);
}

static int64_t scratch_route_d(const struct hd_kernel_desc *d, int threads)
{
	(void)threads;
	return hd_scratch_of_shape(d, route_d_shape, bytes_of);
}

HD_PREPARE(prepare_route_bias, "route_bias", HD_DTYPE_F32, hd_prepare_route_bias(c, p))

/* -- route ----------------------------------------------------------------------------------------------- */
HD_CLONES static float largest(const float *z, int64_t n)
{
	float max = z[0];

#pragma omp simd reduction(max : max)
	for (int64_t e = 0; e < n; e++)
		max = z[e] > max ? z[e] : max;
	return max;
}

HD_CLONES static float sum_exp(const float *z, float max, int64_t n)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t e = 0; e < n; e++)
		sum += hd_expf(z[e] - max);
	return sum;
}

static int is_taken(const int32_t *slots, int64_t j, int64_t e)
{
	for (int64_t i = 0; i < j; i++)
		if (-1 - slots[i] == e)
			return 1;
	return 0;
}

/* Sets slots[j] = -1 - the index of the j-th largest of z. Among equal ones, the lowest index comes first. */
static void choose(const float *z, int64_t n, int64_t k, int32_t *slots)
{
	for (int64_t j = 0; j < k; j++) {
		int64_t best = -1;

		for (int64_t e = 0; e < n; e++)
			if ((best < 0 || z[e] > z[best]) && !is_taken(slots, j, e))
				best = e;
		slots[j] = (int32_t)(-1 - best);
	}
}

static float sigmoid(float z)
{
	return 1 / (1 + hd_expf(-z));
}

static float top_two(const float *t, int64_t n)
{
	float first = fmaxf(t[0], t[1]), second = fminf(t[0], t[1]);

	for (int64_t e = 2; e < n; e++) {
		second = fmaxf(second, fminf(first, t[e]));
		first = fmaxf(first, t[e]);
	}
	return first + second;
}

/* Computes s + bias of each expert in t, where s is the sigmoid of its logit. Experts that the token may not choose
 * get -infinity. */
static void choice_scores(const struct hd_prep *p, const float *z, const float *bias, float *t)
{
	int64_t groups = p->n[13], n = p->n[2] / groups, may = (int64_t)p->f[3];
	int32_t best[HD_ROUTE_MAX_GROUPS];
	float sum[HD_ROUTE_MAX_GROUPS];

	for (int64_t e = 0; e < p->n[2]; e++)
		t[e] = sigmoid(z[e]) + bias[e];
	if (may == groups)
		return;
	for (int64_t g = 0; g < groups; g++)
		sum[g] = top_two(t + g * n, n);
	choose(sum, groups, groups, best);
	for (int64_t g = may; g < groups; g++)
		for (int64_t e = 0; e < n; e++)
			t[(-1 - best[g]) * n + e] = -INFINITY;
}

/* Computes the gates of the chosen experts. over: the sum of the exponentials of all logits. */
static void gates_of(const struct hd_prep *p, const float *z, const int64_t *chosen, float max, float over, float *g)
{
	float sum = p->n[13] ? 1e-20f : 0;

	for (int64_t j = 0; j < p->n[3]; j++) {
		g[j] = p->n[13] ? sigmoid(z[chosen[j]]) : hd_expf(z[chosen[j]] - max);
		sum += g[j];
	}
	if (!p->n[8])
		sum = p->n[13] ? 1 : over;
	for (int64_t j = 0; j < p->n[3]; j++)
		g[j] = (float)p->f[2] * (g[j] / sum);
}

/* Computes what depends on no other token: choices, gates, and the sums of the losses except for f. t: scratch. */
static void each_token(const struct hd_prep *p, const float *z, const float *bias, float *t, float *gates,
		       int32_t *slots, double *sums)
{
	int64_t chosen[64], E = p->n[2], k = p->n[3];
	float max = largest(z, E), sum = sum_exp(z, max, E);
	double lse = (double)max + log((double)sum);

	if (bias)
		choice_scores(p, z, bias, t);
	choose(bias ? t : z, E, k, slots);
	for (int64_t j = 0; j < k; j++) {
		chosen[j] = -1 - slots[j];
		sums[3 + chosen[j]]++;
	}
	gates_of(p, z, chosen, max, sum, gates);
	sums[1] += lse * lse;
}

static void fill_slots(const struct hd_prep *p, const struct hd_run *r, int64_t first, float *gates, int32_t *slots,
		       double *sums, double *taken)
{
	uint64_t key = hd_key(r->seed, "second expert", hd_hash64((uint64_t)r->step) ^ (uint64_t)p->n[10]);
	int64_t k = p->n[3], token0 = (r->sample0 + p->n[11]) * p->n[1];

	memset(taken, 0, (size_t)p->n[2] * sizeof(*taken));
	for (int64_t j = 0; j < k; j++)
		for (int64_t i = first; i < first + p->n[4]; i++) {
			int64_t e = -1 - slots[i * k + j];
			int wants = j != 1 || !p->n[9] || !r->train ||
				    2 * (double)gates[i * k + 1] > hd_random_uniform(key, (uint64_t)(token0 + i));

			if (wants && taken[e] < (double)p->n[5]) {
				slots[i * k + j] = (int32_t)(e * p->n[5] + (int64_t)taken[e]++);
				continue;
			}
			/* only the draw of this very choice reads its gate, so the gate may become 0 */
			gates[i * k + j] = 0;
			sums[2] += wants;
		}
}

static int64_t expert_of(const struct hd_prep *p, int32_t slot)
{
	return slot < 0 ? -1 - slot : slot / p->n[5];
}

static void fractions(const struct hd_prep *p, int64_t first, const int32_t *slots, double *f)
{
	int64_t E = p->n[2], k = p->n[3], of = p->n[7] ? 1 : k;

	memset(f, 0, (size_t)E * sizeof(*f));
	for (int64_t i = first; i < first + p->n[6]; i++)
		for (int64_t j = 0; j < of; j++)
			f[expert_of(p, slots[i * k + j])]++;
	for (int64_t e = 0; e < E; e++)
		f[e] *= (double)E / (double)(of * p->n[6]);
}

static double balance(const struct hd_prep *p, const float *z, const double *f)
{
	int64_t n = p->n[2];
	float max = largest(z, n);
	double sum = 0, all = p->n[13] ? 1e-20 : 0;

	for (int64_t e = 0; e < n; e++) {
		double x = p->n[13] ? sigmoid(z[e]) : hd_expf(z[e] - max);

		sum += x * f[e];
		all += x;
	}
	return sum / all;
}

static void piece(const struct hd_prep *p, const struct hd_run *r, int64_t first, void *const *in, float *gates,
		  int32_t *slots, double *sums)
{
	int64_t E = p->n[2], k = p->n[3], n = piece_of(p);
	double *f = sums + E + 3;
	const float *z = in[0], *bias = p->n[13] ? in[1] : NULL;

	memset(sums, 0, (size_t)(E + 3) * sizeof(*sums));
	for (int64_t i = first; i < first + n; i++)
		each_token(p, z + i * E, bias, (float *)(f + 2 * E), gates + i * k, slots + i * k, sums);
	for (int64_t i = first; i < first + n; i += p->n[4])
		fill_slots(p, r, i, gates, slots, sums, f + E);
	for (int64_t i = first; i < first + n; i++) {
		if (i % p->n[6] == 0)
			fractions(p, i, slots, f);
		sums[0] += balance(p, z + i * E, f);
	}
}

/* Counts the rows of each expert and sample in counts (expert, batch), for routers without a capacity. */
static void count_rows(const struct hd_prep *p, const int32_t *slots, int32_t *counts)
{
	memset(counts, 0, (size_t)(p->n[2] * p->n[0]) * sizeof(*counts));
	for (int64_t i = 0; i < p->n[0] * p->n[1] * p->n[3]; i++)
		if (slots[i] >= 0)
			counts[slots[i] / p->n[5] * p->n[0] + i / p->n[3] / p->n[1]]++;
}

static void route(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t E = p->n[2], n = piece_of(p), pieces = p->n[0] * p->n[1] / n;
	double *scratch = hd_scratch();
	float *sums = out[2];

#pragma omp parallel for schedule(static) if (p->n[0] * p->n[1] * E >= HD_SMALL)
	for (int64_t i = 0; i < pieces; i++)
		piece(p, r, i * n, in, out[0], out[1], scratch + i * scratch_of(p));
	for (int64_t s = 0; s < E + 3; s++) {
		double sum = 0;

		for (int64_t i = 0; i < pieces; i++)
			sum += scratch[i * scratch_of(p) + s];
		sums[s] = (float)sum;
	}
	if (p->n[12])
		count_rows(p, out[1], out[3]);
}

/* Computes the gradients of the losses, and of gates that are a softmax over all experts: `inner` is the sum of dg g.
 * zs: factor of the z loss. */
static void losses_d(const struct hd_prep *p, const float *z, const double *f, double aux, double zs, double inner,
		     float *dz)
{
	float max = largest(z, p->n[2]), sum = sum_exp(z, max, p->n[2]);
	double mean = balance(p, z, f), all = 1e-20;

	for (int64_t e = 0; p->n[13] && e < p->n[2]; e++)
		all += sigmoid(z[e]);
	for (int64_t e = 0; e < p->n[2]; e++) {
		double q = hd_expf(z[e] - max) / sum, s = p->n[13] ? sigmoid(z[e]) : 0;

		dz[e] = (float)(q * (zs - inner) + aux * (f[e] - mean) * (p->n[13] ? s * (1 - s) / all : q));
	}
}

/* Computes the gradient of one token's logits. f: E f_e of the token's auxiliary group. */
static void token_d(const struct hd_prep *p, const struct hd_run *r, const float *z, const int32_t *slots,
		    const float *dg, const double *f, float *dz)
{
	int64_t E = p->n[2], k = p->n[3], chosen[64];
	float max = largest(z, E), sum = sum_exp(z, max, E), g[64];
	double lse = (double)max + log((double)sum), inner = 0;
	double zs = p->f[1] * r->loss_scale * 2 * lse;

	for (int64_t j = 0; j < k; j++)
		chosen[j] = expert_of(p, slots[j]);
	gates_of(p, z, chosen, max, sum, g);
	for (int64_t j = 0; j < k; j++)
		inner += slots[j] < 0 ? 0 : (double)dg[j] * g[j];
	losses_d(p, z, f, p->f[0] * r->loss_scale, zs, p->n[8] || p->n[13] ? 0 : inner, dz);
	for (int64_t j = 0; j < k; j++)
		dz[chosen[j]] += (float)(g[j] * (p->n[13] ? 1 - sigmoid(z[chosen[j]]) : 1) *
					 ((slots[j] < 0 ? 0 : (double)dg[j]) - (p->n[8] ? inner / p->f[2] : 0)));
}

static void route_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t E = p->n[2], k = p->n[3], n = p->n[6], groups = p->n[0] * p->n[1] / n, each = piece_of(p) / n;
	double *scratch = hd_scratch();

#pragma omp parallel for schedule(static) if (p->n[0] * p->n[1] * E >= HD_SMALL)
	for (int64_t piece = 0; piece < groups / each; piece++) {
		double *f = scratch + piece * scratch_of(p);

		for (int64_t i = piece * each * n; i < (piece + 1) * each * n; i++) {
			if (i % n == 0)
				fractions(p, i, in[1], f);
			token_d(p, r, (const float *)in[0] + i * E, (const int32_t *)in[1] + i * k,
				(const float *)in[2] + i * k, f, (float *)out[0] + i * E);
		}
	}
}

static void route_bias(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const float *bias = in[0], *load = (const float *)in[1] + 3;
	double E = (double)p->n[0], all = 0;

	(void)r;
	for (int64_t e = 0; e < p->n[0]; e++)
		all += (double)load[e];
	for (int64_t e = 0; e < p->n[0]; e++)
		((float *)out[0])[e] = bias[e] + (float)p->f[0] * (float)((all > E * load[e]) - (all < E * load[e]));
}

/* -- movement -------------------------------------------------------------------------------------------- */
static int64_t row_of(const struct hd_prep *p, int64_t choice, int32_t slot)
{
	int64_t token = choice / p->n[2];

	return hd_slot_row(p, token / p->n[1], token % p->n[1], slot);
}

HD_CLONES static void scaled(float *y, const float *x, float g, int64_t n)
{
#pragma omp simd
	for (int64_t c = 0; c < n; c++)
		y[c] = x[c] * g;
}

HD_CLONES static void add_scaled(float *y, const float *x, float g, int64_t n)
{
#pragma omp simd
	for (int64_t c = 0; c < n; c++)
		y[c] += x[c] * g;
}

HD_CLONES static float dot(const float *x, const float *y, int64_t n)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t c = 0; c < n; c++)
		sum += x[c] * y[c];
	return sum;
}

/* Writes row `from` of x, times the gate if there is one, to row `to` of d. */
static void copy_row(const struct hd_prep *p, void *d, int64_t to, const void *x, int64_t from, const float *gate)
{
	int64_t cols = p->n[3], t = p->n[14], step = hd_vector_step(t);

	if (!gate) {
		memcpy(hd_into(d, t, to * cols), hd_at(x, t, from * cols), (size_t)cols * HD_BITS(t) / 8);
		return;
	}
	for (int64_t j = 0; j < cols; j += step) {
		float a[HD_PIECE], b[HD_PIECE];
		int64_t n = hd_min(step, cols - j);

		scaled(hd_write_to(d, t, to * cols + j, b), hd_read(x, t, from * cols + j, n, a), *gate, n);
		hd_write(d, t, to * cols + j, n, b);
	}
}

/* Every row belongs to a token, so this loops over the tokens' choices and leaves no row unwritten. */
static void dispatch_rows(const struct hd_prep *p, void *const *out, void *const *in)
{
	int64_t k = p->n[2], cols = p->n[3], n = p->n[0] * p->n[1] * k;
	const float *gates = p->n[8] ? in[2] : NULL;
	const int32_t *slots = in[1];

	hd_slot_rows(p, in);
#pragma omp parallel for schedule(static) if (n * cols >= HD_SMALL)
	for (int64_t i = 0; i < n; i++)
		if (slots[i] >= 0)
			copy_row(p, out[0], row_of(p, i, slots[i]), in[0], i / k, gates ? gates + i : NULL);
}

static void dispatch(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t k = p->n[2], cols = p->n[3], rows = p->n[4] * p->n[0] * p->n[5], width = HD_BITS(p->n[14]) / 8;
	const float *gates = p->n[8] ? in[2] : NULL;
	const int32_t *slots = in[1];
	int32_t *of = p->state;

	(void)r;
	if (p->n[9]) {
		dispatch_rows(p, out, in);
		return;
	}
	memset(of, 0xff, (size_t)rows * sizeof(*of));
	for (int64_t i = 0; i < p->n[0] * p->n[1] * k; i++)
		if (slots[i] >= 0)
			of[row_of(p, i, slots[i])] = (int32_t)i;
#pragma omp parallel for schedule(static) if (rows * cols >= HD_SMALL)
	for (int64_t i = 0; i < rows; i++) {
		if (of[i] < 0)
			memset((char *)out[0] + i * cols * width, 0, (size_t)(cols * width));
		else
			copy_row(p, out[0], i, in[0], of[i] / k, gates ? gates + of[i] : NULL);
	}
}

static void combine(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t k = p->n[2], cols = p->n[3], tokens = p->n[0] * p->n[1], t = p->n[14], step = hd_vector_step(t);
	const float *gates = p->n[8] ? in[2] : NULL;
	const int32_t *slots = in[1];

	(void)r;
	hd_slot_rows(p, in);
#pragma omp parallel for schedule(static) if (tokens * cols >= HD_SMALL)
	for (int64_t i = 0; i < tokens; i++)
		for (int64_t j = 0; j < cols; j += step) {
			float sum[HD_PIECE], wide[HD_PIECE], *x = hd_write_to(out[0], t, i * cols + j, sum);
			int64_t n = hd_min(step, cols - j), some = 0;

			for (int64_t c = i * k; c < (i + 1) * k; c++)
				if (slots[c] >= 0)
					(some++ ? add_scaled
						: scaled)(x,
							  hd_read(in[0], t, row_of(p, c, slots[c]) * cols + j, n, wide),
							  gates ? gates[c] : 1, n);
			if (!some)
				memset(x, 0, (size_t)n * sizeof(*x));
			hd_write(out[0], t, i * cols + j, n, sum);
		}
}

/* Returns a dot product of two rows; bf16 is converted in pieces. */
static float dot_any(const void *x, const void *y, int64_t t, int64_t x0, int64_t y0, int64_t cols)
{
	int64_t step = t == HD_DTYPE_BF16 ? HD_PIECE : cols;
	float sum = 0;

	for (int64_t j = 0; j < cols; j += step) {
		float a[HD_PIECE], b[HD_PIECE];
		int64_t n = hd_min(step, cols - j);

		sum += dot(hd_read(x, t, x0 + j, n, a), hd_read(y, t, y0 + j, n, b), n);
	}
	return sum;
}

static void combine_dg(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t k = p->n[2], cols = p->n[3], n = p->n[0] * p->n[1] * k, t = p->n[14];
	const int32_t *slots = in[2];
	float *dg = out[0];

	(void)r;
	hd_slot_rows(p, in);
#pragma omp parallel for schedule(static) if (n * cols >= HD_SMALL)
	for (int64_t i = 0; i < n; i++)
		dg[i] = slots[i] < 0 ? 0 : dot_any(in[0], in[1], t, i / k * cols, row_of(p, i, slots[i]) * cols, cols);
}

const struct hd_kernel hd_cpu_route = {
	.name = "route", .prepare = prepare_route, .scratch = scratch_route, .run = route
};
const struct hd_kernel hd_cpu_route_bias = { .name = "route_bias", .prepare = prepare_route_bias, .run = route_bias };
const struct hd_kernel hd_cpu_route_d = {
	.name = "route_d", .prepare = prepare_route_d, .scratch = scratch_route_d, .run = route_d
};
const struct hd_kernel hd_cpu_dispatch = { .name = "dispatch", .prepare = prepare_dispatch, .run = dispatch };
const struct hd_kernel hd_cpu_combine = { .name = "combine", .prepare = prepare_combine, .run = combine };
const struct hd_kernel hd_cpu_combine_dg = { .name = "combine_dg", .prepare = prepare_combine_dg, .run = combine_dg };
