/* SPDX-License-Identifier: Apache-2.0
 * Reference kernels for route, route_d, route_bias, dispatch, combine and combine_dg.
 *
 * route, for one capacity group, tokens in order (GShard 2006.16668, algorithm 1):
 *
 *	p = softmax(z)   e_1 .. e_k: the largest p, of equal ones the lowest index
 *	g_j = p[e_j] (over their sum if normalize)
 *	pass j, tokens in order: if count[e_j] < capacity and (j = 1, or not random, or 2 g_2 > u): slot = count[e_j]++
 *
 * u is keyed by (seed, site, step, global token). Evaluation has no random choice. sums, over all tokens here:
 *
 *	0  of the auxiliary groups' E sum_e m_e f_e, times the group's tokens (m: mean p; f: fraction of the choices)
 *	1  of (log sum exp z)^2    2  choices that found no slot    3 + e  choices of expert e
 *
 * route_d: dz of the gates (softmax over the chosen experts, or over all), plus loss_scale times the derivative of
 *	aux * sum 0 + z * sum 1
 * loss_scale is 1 / (tokens of the global batch), so both are means over it.
 *
 * sigmoid=1 (DeepSeek-V3, 2412.19437): s = sigmoid(z). Experts are chosen by s + bias; the bias is in no gate and has
 * no gradient. Groups are adjacent experts. A token may choose from the best_groups of them whose two largest s + bias
 * have the largest sum. g_j = s[e_j] (over their sum if normalize). p of the auxiliary loss is s over the sum of all
 * s. Gates are multiplied by `scale`. route_bias: bias + rate * sign(mean of the choices of an expert - its choices).
 */
#include <config.h>
#include <math.h>
#include "engine/base/rng.h"
#include "kernels/prepare/experts.h"

HD_PREPARE(prepare_route, "route", HD_DTYPE_F64, hd_prepare_route(c, p))
HD_PREPARE(prepare_route_d, "route_d", HD_DTYPE_F64, hd_prepare_route_d(c, p))
HD_PREPARE(prepare_route_bias, "route_bias", HD_DTYPE_F64, hd_prepare_route_bias(c, p))
HD_PREPARE(prepare_dispatch, "dispatch", HD_DTYPE_F64, hd_prepare_dispatch(c, p))
HD_PREPARE(prepare_combine, "combine", HD_DTYPE_F64, hd_prepare_combine(c, p))
HD_PREPARE(prepare_combine_dg, "combine_dg", HD_DTYPE_F64, hd_prepare_combine_dg(c, p))

static double log_sum_exp(const double *z, int64_t n)
{
	double max = z[0], sum = 0;

	for (int64_t e = 1; e < n; e++)
		max = z[e] > max ? z[e] : max;
	for (int64_t e = 0; e < n; e++)
		sum += exp(z[e] - max);
	return max + log(sum);
}

/* Returns the indices of the k largest in `chosen`, in order. */
static void choose(const double *z, int64_t n, int64_t k, int64_t *chosen)
{
	for (int64_t j = 0; j < k; j++) {
		chosen[j] = -1;
		for (int64_t e = 0; e < n; e++) {
			int taken = 0;

			for (int64_t i = 0; i < j; i++)
				taken |= chosen[i] == e;
			if (!taken && (chosen[j] < 0 || z[e] > z[chosen[j]]))
				chosen[j] = e;
		}
	}
}

static double sigmoid(double z)
{
	return 1 / (1 + exp(-z));
}

/* Computes what experts are chosen by: z, or s + bias with -infinity in groups that the token may not choose from. */
static void choice_scores(const struct hd_prep *p, const double *z, const double *bias, double *t)
{
	int64_t E = p->n[2], groups = p->n[13], n = groups ? E / groups : E, best[HD_ROUTE_MAX_GROUPS];
	double sum[HD_ROUTE_MAX_GROUPS];
	int64_t may = (int64_t)p->f[3];

	for (int64_t e = 0; e < E; e++)
		t[e] = groups ? sigmoid(z[e]) + bias[e] : z[e];
	if (may == groups)
		return;
	for (int64_t g = 0; g < groups; g++) {
		int64_t two[2];

		choose(t + g * n, n, 2, two);
		sum[g] = t[g * n + two[0]] + t[g * n + two[1]];
	}
	choose(sum, groups, groups, best);
	for (int64_t g = may; g < groups; g++)
		for (int64_t e = 0; e < n; e++)
			t[best[g] * n + e] = -INFINITY;
}

static void gates_of(const struct hd_prep *p, const double *z, const int64_t *chosen, double *g)
{
	double lse = log_sum_exp(z, p->n[2]), sum = p->n[13] ? 1e-20 : 0;

	for (int64_t j = 0; j < p->n[3]; j++) {
		g[j] = p->n[13] ? sigmoid(z[chosen[j]]) : exp(z[chosen[j]] - lse);
		sum += g[j];
	}
	for (int64_t j = 0; j < p->n[3]; j++)
		g[j] *= p->f[2] / (p->n[8] ? sum : 1);
}

/* Computes p of the auxiliary loss in q. */
static void chances_of(const struct hd_prep *p, const double *z, double *q)
{
	double lse = log_sum_exp(z, p->n[2]), sum = 1e-20;

	for (int64_t e = 0; e < p->n[2]; e++) {
		q[e] = p->n[13] ? sigmoid(z[e]) : exp(z[e] - lse);
		sum += q[e];
	}
	for (int64_t e = 0; p->n[13] && e < p->n[2]; e++)
		q[e] /= sum;
}

static void one_group(const struct hd_prep *p, const struct hd_run *r, int64_t first, const double *z,
		      const double *bias, double *gates, int32_t *slots, double *sums)
{
	int64_t E = p->n[2], k = p->n[3], *count = hd_alloc((size_t)E * sizeof(*count));
	double *t = hd_alloc((size_t)E * sizeof(*t));
	uint64_t key = hd_key(r->seed, "second expert", hd_hash64((uint64_t)r->step) ^ (uint64_t)p->n[10]);
	double g[64];
	int64_t chosen[64];

	for (int64_t j = 0; j < k; j++)
		for (int64_t i = first; i < first + p->n[4]; i++) {
			uint64_t token = (uint64_t)((r->sample0 + p->n[11]) * p->n[1] + i);
			int wants;

			choice_scores(p, z + i * E, bias, t);
			choose(t, E, k, chosen);
			gates_of(p, z + i * E, chosen, g);
			wants = j != 1 || !p->n[9] || !r->train || 2 * g[1] > hd_random_uniform(key, token);
			sums[3 + chosen[j]]++;
			gates[i * k + j] = 0;
			slots[i * k + j] = (int32_t)(-1 - chosen[j]);
			if (wants && count[chosen[j]] >= p->n[5])
				sums[2]++;
			if (!wants || count[chosen[j]] >= p->n[5])
				continue;
			gates[i * k + j] = g[j];
			slots[i * k + j] = (int32_t)(chosen[j] * p->n[5] + count[chosen[j]]++);
		}
	free(t);
	free(count);
}

static int64_t expert_of(const struct hd_prep *p, int32_t slot)
{
	return slot < 0 ? -1 - slot : slot / p->n[5];
}

/* Computes E f_e of the auxiliary group that begins at token `first`. */
static void fractions(const struct hd_prep *p, int64_t first, const int32_t *slots, double *f)
{
	int64_t E = p->n[2], k = p->n[3], of = p->n[7] ? 1 : k;

	for (int64_t e = 0; e < E; e++)
		f[e] = 0;
	for (int64_t i = first; i < first + p->n[6]; i++)
		for (int64_t j = 0; j < of; j++)
			f[expert_of(p, slots[i * k + j])] += (double)E / (double)(of * p->n[6]);
}

/* Counts the rows of each expert and sample in output 3, for routers without a capacity. */
static void count_rows(const struct hd_prep *p, void *const *out)
{
	const int32_t *slots = out[1];
	int32_t *counts = p->n[12] ? out[3] : NULL;

	for (int64_t i = 0; counts && i < p->n[2] * p->n[0]; i++)
		counts[i] = 0;
	for (int64_t i = 0; counts && i < p->n[0] * p->n[1] * p->n[3]; i++)
		if (slots[i] >= 0)
			counts[slots[i] / p->n[5] * p->n[0] + i / p->n[3] / p->n[1]]++;
}

static void route(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *z = in[0];
	double *sums = out[2], *f = hd_alloc((size_t)p->n[2] * 2 * sizeof(*f)), *q = f + p->n[2];
	int64_t E = p->n[2], tokens = p->n[0] * p->n[1];

	for (int64_t i = 0; i < E + 3; i++)
		sums[i] = 0;
	for (int64_t i = 0; i < tokens; i += p->n[4])
		one_group(p, r, i, z, p->n[13] ? in[1] : NULL, out[0], out[1], sums);
	for (int64_t i = 0; i < tokens; i++) {
		double lse = log_sum_exp(z + i * E, E);

		if (i % p->n[6] == 0)
			fractions(p, i, out[1], f);
		sums[1] += lse * lse;
		chances_of(p, z + i * E, q);
		for (int64_t e = 0; e < E; e++)
			sums[0] += f[e] * q[e];
	}
	count_rows(p, out);
	free(f);
}

/* Returns the factor of a sigmoid's derivative that an exponential's lacks. */
static double slope(const struct hd_prep *p, double z)
{
	return p->n[13] ? 1 - sigmoid(z) : 1;
}

static void route_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int32_t *slots = in[1];
	double *f = hd_alloc((size_t)p->n[2] * 2 * sizeof(*f)), *q = f + p->n[2];
	int64_t E = p->n[2], k = p->n[3];

	for (int64_t i = 0; i < p->n[0] * p->n[1]; i++) {
		const double *z = (const double *)in[0] + i * E, *dg = (const double *)in[2] + i * k;
		double *dz = (double *)out[0] + i * E, lse = log_sum_exp(z, E), mean = 0, inner = 0, g[64];
		int64_t chosen[64];

		if (i % p->n[6] == 0)
			fractions(p, i, slots, f);
		for (int64_t j = 0; j < k; j++)
			chosen[j] = expert_of(p, slots[i * k + j]);
		gates_of(p, z, chosen, g);
		chances_of(p, z, q);
		for (int64_t e = 0; e < E; e++)
			mean += q[e] * f[e];
		for (int64_t j = 0; j < k; j++)
			inner += slots[i * k + j] < 0 ? 0 : dg[j] * g[j];
		for (int64_t e = 0; e < E; e++)
			dz[e] = r->loss_scale * (p->f[0] * q[e] * slope(p, z[e]) * (f[e] - mean) +
						 p->f[1] * 2 * lse * exp(z[e] - lse)) -
				(p->n[8] || p->n[13] ? 0 : q[e] * inner);
		for (int64_t j = 0; j < k; j++)
			dz[chosen[j]] += g[j] * slope(p, z[chosen[j]]) *
					 ((slots[i * k + j] < 0 ? 0 : dg[j]) - (p->n[8] ? inner / p->f[2] : 0));
	}
	free(f);
}

static void route_bias(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *bias = in[0], *load = (const double *)in[1] + 3;
	double E = (double)p->n[0], all = 0;

	(void)r;
	for (int64_t e = 0; e < p->n[0]; e++)
		all += load[e];
	for (int64_t e = 0; e < p->n[0]; e++)
		((double *)out[0])[e] = bias[e] + p->f[0] * ((all > E * load[e]) - (all < E * load[e]));
}

/* -- movement -------------------------------------------------------------------------------------------- */
static void dispatch(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *x = in[0];
	const int32_t *slots = in[1];
	double *d = out[0];
	int64_t k = p->n[2], cols = p->n[3];

	(void)r;
	hd_slot_rows(p, in);
	for (int64_t i = 0; !p->n[9] && i < p->n[4] * p->n[0] * p->n[5] * cols; i++)
		d[i] = 0;
	for (int64_t i = 0; i < p->n[0] * p->n[1] * k; i++)
		for (int64_t c = 0; c < cols && slots[i] >= 0; c++)
			d[hd_slot_row(p, i / k / p->n[1], i / k % p->n[1], slots[i]) * cols + c] =
				x[i / k * cols + c] * (p->n[8] ? ((const double *)in[2])[i] : 1);
}

static void combine(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *y = in[0];
	const int32_t *slots = in[1];
	double *x = out[0];
	int64_t k = p->n[2], cols = p->n[3];

	(void)r;
	hd_slot_rows(p, in);
	for (int64_t i = 0; i < p->n[0] * p->n[1] * cols; i++)
		x[i] = 0;
	for (int64_t i = 0; i < p->n[0] * p->n[1] * k; i++)
		for (int64_t c = 0; c < cols && slots[i] >= 0; c++)
			x[i / k * cols + c] +=
				y[hd_slot_row(p, i / k / p->n[1], i / k % p->n[1], slots[i]) * cols + c] *
				(p->n[8] ? ((const double *)in[2])[i] : 1);
}

static void combine_dg(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const double *dx = in[0], *y = in[1];
	const int32_t *slots = in[2];
	double *dg = out[0];
	int64_t k = p->n[2], cols = p->n[3];

	(void)r;
	hd_slot_rows(p, in);
	for (int64_t i = 0; i < p->n[0] * p->n[1] * k; i++) {
		dg[i] = 0;
		for (int64_t c = 0; c < cols && slots[i] >= 0; c++)
			dg[i] += dx[i / k * cols + c] *
				 y[hd_slot_row(p, i / k / p->n[1], i / k % p->n[1], slots[i]) * cols + c];
	}
}

const struct hd_kernel hd_ref_route = { .name = "route", .prepare = prepare_route, .run = route };
const struct hd_kernel hd_ref_route_bias = { .name = "route_bias", .prepare = prepare_route_bias, .run = route_bias };
const struct hd_kernel hd_ref_route_d = { .name = "route_d", .prepare = prepare_route_d, .run = route_d };
const struct hd_kernel hd_ref_dispatch = { .name = "dispatch", .prepare = prepare_dispatch, .run = dispatch };
const struct hd_kernel hd_ref_combine = { .name = "combine", .prepare = prepare_combine, .run = combine };
const struct hd_kernel hd_ref_combine_dg = { .name = "combine_dg", .prepare = prepare_combine_dg, .run = combine_dg };
