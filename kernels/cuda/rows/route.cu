/* SPDX-License-Identifier: Apache-2.0
 * route and route_d: the experts of each token, and the router's losses; the equations are in
 * kernels/ref/rows/experts.c.
 *
 * A warp has a token.  Slots are assigned in the order of tokens, so a block has a whole group.  In tiles of one
 * token per thread, each thread counts the earlier tokens that want the same expert.  All counts are integers, sums
 * over tokens have a fixed order, and random choices are the same as the cpu's, bit by bit.
 */
#include "kernels/cuda/base/random.h"
extern "C" {
#include "engine/base/rng.h"
#include "kernels/prepare/experts.h"
}

#define THREADS 256
#define WARPS (THREADS / HD_WARP)
#define MAX_TOPK 64
#define MOST_EXPERTS 4096 /* their counts fit into shared memory, twice */

struct routing {
	int64_t tokens, samples, experts, topk, group, capacity, aux_group, token0;
	int32_t first_choice_aux, normalize, random, groups, best_groups; /* groups 0: softmax; otherwise sigmoids */
	float scale;
	uint64_t name, site;
};

static routing routing_of(const struct hd_prep *p, const struct hd_run *r)
{
	routing t;

	memset(&t, 0, sizeof(t));
	t.tokens = p->n[0] * p->n[1];
	t.samples = p->n[0];
	t.experts = p->n[2];
	t.topk = p->n[3];
	t.group = p->n[4];
	t.capacity = p->n[5];
	t.aux_group = p->n[6];
	t.first_choice_aux = p->n[7] != 0;
	t.normalize = p->n[8] != 0;
	t.random = p->n[9] != 0;
	t.groups = (int32_t)p->n[13];
	t.best_groups = (int32_t)p->f[3];
	t.scale = (float)p->f[2];
	t.site = (uint64_t)p->n[10];
	t.token0 = (r->sample0 + p->n[11]) * p->n[1];
	t.name = hd_hash_text("second expert");
	return t;
}

/* Returns the size of the data between the launches of a run.  Each auxiliary group has experts + 3 sums, and each
 * capacity group has the number of choices without a slot. */
static size_t parts_of(const struct hd_prep *p)
{
	int64_t tokens = p->n[0] * p->n[1];

	return (size_t)(tokens / p->n[6] * (p->n[2] + 3)) * sizeof(double) +
	       (size_t)(tokens / p->n[4]) * sizeof(int32_t);
}

static int limits(const struct hd_check *c, struct hd_prep *p, int rc)
{
	HD_TRY(rc);
	HD_TRY(hd_check_range(c, "the number of choices", (double)p->n[3], 1, MAX_TOPK));
	HD_TRY(hd_check_range(c, "the number of experts on cuda", (double)p->n[2], 1, MOST_EXPERTS));
	hd_cuda_scratch_need(parts_of(p));
	return HD_OK;
}

HD_CUDA_PREPARE_TYPES(prepare, "route", "ff", "f*f*", limits(c, p, hd_prepare_route(c, p)))
HD_CUDA_PREPARE_TYPES(prepare_d, "route_d", "f*f", "f", limits(c, p, hd_prepare_route_d(c, p)))
HD_CUDA_PREPARE_TYPES(prepare_bias, "route_bias", "ff", "f", hd_prepare_route_bias(c, p))

HD_DEV int32_t expert_of(const routing &t, int32_t slot)
{
	return slot < 0 ? -1 - slot : slot / (int32_t)t.capacity;
}

struct softmax {
	float max, sum;
};

HD_DEV softmax softmax_of(const float *z, int64_t n) /* computed by a warp */
{
	softmax s = { -INFINITY, 0 };

	for (int64_t e = threadIdx.x % HD_WARP; e < n; e += HD_WARP) {
		float x = z[e];

		s.max = x > s.max ? x : s.max;
	}
	s.max = warp_max(s.max);
	for (int64_t e = threadIdx.x % HD_WARP; e < n; e += HD_WARP)
		s.sum += expf(z[e] - s.max);
	s.sum = warp_sum(s.sum);
	return s;
}

HD_DEV double log_sum(const softmax &s)
{
	return (double)s.max + log((double)s.sum);
}

HD_DEV float sigmoid(float z)
{
	return 1 / (1 + expf(-z));
}

/* Returns an expert's score, before gates are normalised. */
HD_DEV float score_of(const routing &t, const softmax &s, float z)
{
	return t.groups ? sigmoid(z) : expf(z - s.max);
}

/* Returns the divisor of a softmax over all experts, or of the auxiliary loss of sigmoids.  Computed by a warp. */
HD_DEV float all_scores(const routing &t, const softmax &s, const float *z)
{
	float sum = 0;

	if (!t.groups)
		return s.sum;
	for (int64_t e = threadIdx.x % HD_WARP; e < t.experts; e += HD_WARP)
		sum += sigmoid(z[e]);
	return warp_sum(sum) + 1e-20f;
}

/* -- route --------------------------------------------------------------------------------------------------------- */
/* The values by which experts are chosen.  They are z, or sigmoids plus bias for the experts in groups that the
 * token may choose from. */
struct selection_scores {
	const float *z, *bias; /* bias NULL: use z */
	uint64_t groups;       /* one bit each */
	int64_t each;          /* experts per group */

	HD_DEV float operator[](int64_t e) const
	{
		if (!bias)
			return z[e];
		return groups >> (e / each) & 1 ? sigmoid(z[e]) + bias[e] : -INFINITY;
	}
};

/* Returns the index of the largest entry that is not among chosen[0 ... j - 1]; of equal entries, the lowest index. */
template <typename T> HD_DEV int32_t next_best(const T &z, int64_t n, const int32_t *chosen, int64_t j)
{
	float top = 0;
	int32_t best = -1;

	for (int64_t e = threadIdx.x % HD_WARP; e < n; e += HD_WARP) {
		float x = z[e];
		int taken = 0;

		for (int64_t i = 0; i < j; i++)
			taken |= chosen[i] == e;
		if (!taken && (best < 0 || x > top)) {
			top = x;
			best = (int32_t)e;
		}
	}
	for (int o = HD_WARP / 2; o; o /= 2) {
		float x = __shfl_xor_sync(~0u, top, o);
		int32_t e = __shfl_xor_sync(~0u, best, o);

		if (e >= 0 && (best < 0 || x > top || (x == top && e < best))) {
			top = x;
			best = e;
		}
	}
	return __shfl_sync(~0u, best, 0); /* the same in all lanes, even with NaNs */
}

/* Stores the indices of the k largest in chosen[0 ... k - 1], which belongs to this warp. */
template <typename T> HD_DEV void choose_best(const T &z, int64_t n, int64_t k, int32_t *chosen)
{
	for (int64_t j = 0; j < k; j++) {
		int32_t e = next_best(z, n, chosen, j);

		__syncwarp();
		if (threadIdx.x % HD_WARP == 0)
			chosen[j] = e;
		__syncwarp();
	}
}

/* Returns the sum of the two largest values of a group. */
HD_DEV float top_two(const selection_scores &x, int64_t group)
{
	float first = -INFINITY, second = -INFINITY;

	for (int64_t e = group * x.each; e < (group + 1) * x.each; e++) {
		second = fmaxf(second, fminf(first, x[e]));
		first = fmaxf(first, x[e]);
	}
	return first + second;
}

/* Limits x to the groups that the token may choose from.  sums, chosen: memory of this warp. */
HD_DEV void limit_groups(const routing &t, selection_scores &x, float *sums, int32_t *chosen)
{
	uint64_t groups = 0;

	if (!x.bias || t.best_groups == t.groups)
		return;
	for (int64_t g = threadIdx.x % HD_WARP; g < t.groups; g += HD_WARP)
		sums[g] = top_two(x, g);
	__syncwarp();
	choose_best(sums, t.groups, t.best_groups, chosen);
	for (int32_t g = 0; g < t.best_groups; g++)
		groups |= (uint64_t)1 << chosen[g];
	__syncwarp();
	x.groups = groups;
}

__global__ void __launch_bounds__(THREADS)
	choose(routing t, const float *z, const float *bias, float *gates, int32_t *slots)
{
	HD_SHARED(int32_t, all, [WARPS][MAX_TOPK]);
	HD_SHARED(float, sums, [WARPS][HD_ROUTE_MAX_GROUPS]);
	int lane = (int)threadIdx.x % HD_WARP;
	int32_t *chosen = all[threadIdx.x / HD_WARP];
	int64_t token = (int64_t)blockIdx.x * WARPS + threadIdx.x / HD_WARP;
	softmax s;
	selection_scores x;
	float over = t.groups ? 1e-20f : 0;

	if (token >= t.tokens)
		return;
	z += token * t.experts;
	s = softmax_of(z, t.experts);
	x.z = z;
	x.bias = bias;
	x.groups = ~(uint64_t)0;
	x.each = t.groups ? t.experts / t.groups : t.experts;
	limit_groups(t, x, sums[threadIdx.x / HD_WARP], chosen);
	choose_best(x, t.experts, t.topk, chosen);
	for (int64_t j = 0; j < t.topk; j++)
		over += score_of(t, s, z[chosen[j]]);
	if (!t.normalize)
		over = t.groups ? 1 : s.sum;
	for (int64_t j = lane; j < t.topk; j += HD_WARP) {
		slots[token * t.topk + j] = -1 - chosen[j];
		gates[token * t.topk + j] = t.scale * (score_of(t, s, z[chosen[j]]) / over);
	}
}

/* counts: rows of each expert and sample, if capacity is unlimited (each group is then one sample); otherwise NULL. */
__global__ void __launch_bounds__(THREADS) give_slots(routing t, float *gates, int32_t *slots, int32_t *counts,
						      int32_t *lost, const struct hd_cuda_step *step)
{
	HD_DYNAMIC_SHARED(int32_t, taken);
	HD_SHARED(int32_t, tile, [THREADS]);
	HD_SHARED(int32_t, scratch, [WARPS]);
	int32_t dropped = 0, me = (int32_t)threadIdx.x;
	int64_t begin = (int64_t)blockIdx.x * t.group;
	uint64_t key = hd_step_key(step, t.name, t.site);

	for (int64_t e = me; e < t.experts; e += THREADS)
		taken[e] = 0;
	for (int64_t j = 0; j < t.topk; j++)
		for (int64_t from = 0; from < t.group; from += THREADS) {
			int64_t i = begin + from + me, at = i * t.topk + j;
			int there = from + me < t.group, wants = there, last = 1;
			int32_t e = there ? -1 - slots[at] : -1, index = 0;

			if (wants && j == 1 && t.random && step->train)
				wants = 2 * (double)gates[at] >
					(double)hd_random53(key, (uint64_t)(t.token0 + i)) * 0x1p-53;
			tile[me] = wants ? e : -1;
			__syncthreads();
			for (int32_t k = 0; k < THREADS && wants; k++) {
				index += k < me && tile[k] == e;
				last &= !(k > me && tile[k] == e);
			}
			if (wants)
				index += taken[e];
			__syncthreads();
			if (wants && last)
				taken[e] = index + 1;
			if (wants && index < t.capacity)
				slots[at] = e * (int32_t)t.capacity + index;
			else if (there)
				gates[at] = 0;
			dropped += wants && index >= t.capacity;
		}
	__syncthreads();
	for (int64_t e = me; e < t.experts && counts; e += THREADS)
		counts[e * t.samples + blockIdx.x] = taken[e];
	dropped = block_sum<THREADS>(dropped, scratch);
	if (!me)
		lost[blockIdx.x] = dropped;
}

/* Counts how often each expert was chosen in this block's auxiliary group: by the choices that enter the loss, and
 * by all. */
HD_DEV void count_choices(const routing &t, const int32_t *slots, int32_t *looked, int32_t *all)
{
	int64_t begin = (int64_t)blockIdx.x * t.aux_group * t.topk;

	for (int64_t e = threadIdx.x; e < t.experts; e += THREADS)
		looked[e] = all[e] = 0;
	__syncthreads();
	for (int64_t i = threadIdx.x; i < t.aux_group * t.topk; i += THREADS) {
		int32_t e = expert_of(t, slots[begin + i]);

		atomicAdd(&all[e], 1);
		if (!t.first_choice_aux || i % t.topk == 0)
			atomicAdd(&looked[e], 1);
	}
	__syncthreads();
}

/* Returns what one choice adds to E f_e. */
HD_DEV float share_of(const routing &t)
{
	return (float)t.experts / (float)((t.first_choice_aux ? 1 : t.topk) * t.aux_group);
}

__global__ void __launch_bounds__(THREADS) losses(routing t, const float *z, const int32_t *slots, double *part)
{
	HD_DYNAMIC_SHARED(int32_t, looked);
	HD_SHARED(double, scratch, [WARPS]);
	int32_t *all = looked + t.experts;
	double aux = 0, square = 0;

	count_choices(t, slots, looked, all);
	part += blockIdx.x * (t.experts + 3);
	for (int64_t e = threadIdx.x; e < t.experts; e += THREADS)
		part[3 + e] = all[e];
	for (int64_t i = threadIdx.x / HD_WARP; i < t.aux_group; i += WARPS) {
		const float *row = z + ((int64_t)blockIdx.x * t.aux_group + i) * t.experts;
		softmax s = softmax_of(row, t.experts);
		float sum = 0, over = all_scores(t, s, row);

		for (int64_t e = threadIdx.x % HD_WARP; e < t.experts; e += HD_WARP)
			sum += score_of(t, s, row[e]) * (float)looked[e];
		sum = warp_sum(sum);
		if (threadIdx.x % HD_WARP == 0) {
			aux += (double)(sum * share_of(t) / over);
			square += log_sum(s) * log_sum(s);
		}
	}
	aux = block_sum<THREADS>(aux, scratch);
	square = block_sum<THREADS>(square, scratch);
	if (!threadIdx.x) {
		part[0] = aux;
		part[1] = square;
		part[2] = 0;
	}
}

__global__ void __launch_bounds__(THREADS) join_sums(routing t, const double *part, const int32_t *lost, float *sums)
{
	int64_t s = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	double sum = 0;

	if (s >= t.experts + 3)
		return;
	for (int64_t g = 0; g < t.tokens / t.aux_group; g++)
		sum += part[g * (t.experts + 3) + s];
	for (int64_t u = 0; u < t.tokens / t.group && s == 2; u++)
		sum += lost[u];
	sums[s] = (float)sum;
}

static unsigned blocks(int64_t n, int64_t each)
{
	return (unsigned)((n + each - 1) / each);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	routing t = routing_of(p, r);
	size_t numbers = (size_t)t.experts * sizeof(int32_t);
	double *part = (double *)hd_cuda_scratch();
	int32_t *lost = (int32_t *)(part + t.tokens / t.aux_group * (t.experts + 3)), *slots = (int32_t *)out[1];
	const float *z = (const float *)in[0];

	if (t.tokens) {
		HD_LAUNCH(choose, blocks(t.tokens, WARPS), THREADS, 0, r, t, z,
			  t.groups ? (const float *)in[1] : (const float *)NULL, (float *)out[0], slots);
		HD_LAUNCH(give_slots, blocks(t.tokens, t.group), THREADS, numbers, r, t, (float *)out[0], slots,
			  p->n[12] ? (int32_t *)out[3] : NULL, lost, hd_cuda_step_of(r));
		HD_LAUNCH(losses, blocks(t.tokens, t.aux_group), THREADS, 2 * numbers, r, t, z, slots, part);
	}
	HD_LAUNCH(join_sums, blocks(t.experts + 3, THREADS), THREADS, 0, r, t, part, lost, (float *)out[2]);
}

/* -- route_d ------------------------------------------------------------------------------------------------------- */
/* f (auxiliary group, expert) = E f_e */
__global__ void __launch_bounds__(THREADS) fractions(routing t, const int32_t *slots, float *f)
{
	HD_DYNAMIC_SHARED(int32_t, looked);

	count_choices(t, slots, looked, looked + t.experts);
	for (int64_t e = threadIdx.x; e < t.experts; e += THREADS)
		f[blockIdx.x * t.experts + e] = (float)looked[e] * share_of(t);
}

__global__ void __launch_bounds__(THREADS)
	token_d(routing t, float *dz, const float *z, const int32_t *slots, const float *dg, const float *f, double aux,
		double zs, const struct hd_cuda_step *step)
{
	int64_t token = (int64_t)blockIdx.x * WARPS + threadIdx.x / HD_WARP;
	double mean = 0, inner = 0;
	float over = t.groups ? 1e-20f : 0, all;
	softmax s;

	if (token >= t.tokens)
		return;
	z += token * t.experts;
	dz += token * t.experts;
	slots += token * t.topk;
	dg += token * t.topk;
	f += token / t.aux_group * t.experts;
	s = softmax_of(z, t.experts);
	all = all_scores(t, s, z);
	aux *= step->loss_scale;
	zs *= step->loss_scale * 2 * log_sum(s);
	for (int64_t e = threadIdx.x % HD_WARP; e < t.experts; e += HD_WARP)
		mean += (double)(score_of(t, s, z[e]) / all) * f[e];
	mean = warp_sum(mean);
	for (int64_t j = 0; j < t.topk; j++) {
		float x = score_of(t, s, z[expert_of(t, slots[j])]);

		over += x;
		inner += slots[j] < 0 ? 0 : (double)dg[j] * x;
	}
	if (!t.normalize)
		over = t.groups ? 1 : s.sum;
	inner /= over;
	for (int64_t e = threadIdx.x % HD_WARP; e < t.experts; e += HD_WARP) {
		double x = score_of(t, s, z[e]), slope = t.groups ? 1 - x : 1, d = expf(z[e] - s.max) / s.sum * zs;

		d += x / all * (aux * (f[e] - mean) * slope - (t.normalize || t.groups ? 0 : t.scale * inner));
		for (int64_t j = 0; j < t.topk; j++)
			if (expert_of(t, slots[j]) == e)
				d += t.scale * x / over * slope *
				     ((slots[j] < 0 ? 0 : (double)dg[j]) - (t.normalize ? inner : 0));
		dz[e] = (float)d;
	}
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	routing t = routing_of(p, r);
	float *f = (float *)hd_cuda_scratch();

	if (!t.tokens)
		return;
	HD_LAUNCH(fractions, blocks(t.tokens, t.aux_group), THREADS, 2 * (size_t)t.experts * sizeof(int32_t), r, t,
		  (const int32_t *)in[1], f);
	HD_LAUNCH(token_d, blocks(t.tokens, WARPS), THREADS, 0, r, t, (float *)out[0], (const float *)in[0],
		  (const int32_t *)in[1], (const float *)in[2], f, p->f[0], p->f[1], hd_cuda_step_of(r));
}

/* -- route_bias ---------------------------------------------------------------------------------------------------- */
/* Counts of choices are whole numbers, so their sum in double is exact. */
__global__ void __launch_bounds__(HD_WARP)
	move_bias(int64_t experts, float *to, const float *bias, const float *load, float rate)
{
	double all = 0;

	for (int64_t e = threadIdx.x; e < experts; e += HD_WARP)
		all += (double)load[e];
	all = warp_sum(all);
	for (int64_t e = threadIdx.x; e < experts; e += HD_WARP) {
		double mine = (double)experts * (double)load[e];

		to[e] = bias[e] + rate * (float)((all > mine) - (all < mine));
	}
}

static void run_bias(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	HD_LAUNCH(move_bias, 1, HD_WARP, 0, r, p->n[0], (float *)out[0], (const float *)in[0], (const float *)in[1] + 3,
		  (float)p->f[0]);
}

HD_CUDA_KERNEL(route_bias, "route_bias", 0, prepare_bias, run_bias);
HD_CUDA_KERNEL(route, "route", 0, prepare, run);
HD_CUDA_KERNEL(route_d, "route_d", 0, prepare_d, run_d);
