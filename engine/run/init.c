/* SPDX-License-Identifier: Apache-2.0
 * Computes initial weights. They are a pure function of (seed, name, global index). So every layout starts from the
 * same model, and each rank fills its slices without communication. A low-precision parameter is a rounded copy of its
 * master, and the hash covers masters, so the hash is the same in every precision.
 */
#include <config.h>
#include "engine/run/job.h"
#include "engine/base/rng.h"
#include "engine/base/half.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct init_run {
	int64_t global, local, n;
};

/* Merges adjacent runs, so that a contiguous slice is a single run. */
static void next_run(struct init_run *last, struct init_run r, hd_run_fn fn, void *ctx)
{
	if (last->n && r.n && last->global + last->n == r.global && last->local + last->n == r.local) {
		last->n += r.n;
		return;
	}
	if (last->n)
		fn(ctx, last->global, last->local, last->n);
	*last = r;
}

void hd_slice_runs(const struct hd_program *g, const struct tensor *t, hd_run_fn fn, void *ctx)
{
	int64_t off[HD_MAX_DIMS], have[HD_MAX_DIMS], i[HD_MAX_DIMS] = { 0 }, local = 0;
	struct init_run before = { 0 };
	int nd = (int)t->v.ndim, last = nd - 1;

	if (!nd) {
		fn(ctx, 0, 0, 1);
		return;
	}
	for (int d = 0; d < nd; d++) {
		off[d] = hd_offset(g->plan, t, (uint32_t)d, g->rank);
		have[d] = hd_elements_here(g->plan, t, (uint32_t)d, g->rank);
	}
	for (;;) {
		int64_t global = 0, n = have[last], inside = 1;
		int d;

		for (d = 0; d < nd; d++) {
			global = global * t->dims[d]->n + off[d] + i[d];
			inside &= i[d] < have[d];
		}
		if (inside && n > 0)
			next_run(&before, (struct init_run){ global, local, n }, fn, ctx);
		local += t->local[last];
		for (d = last - 1; d >= 0 && ++i[d] == t->local[d]; d--)
			i[d] = 0;
		if (d < 0)
			break;
	}
	next_run(&before, (struct init_run){ 0 }, fn, ctx);
}

struct filling {
	void *w;
	uint64_t key, hash, name;
	double std;
	int init, wide;
};

static void put(const struct filling *f, int64_t at, const float *x, int64_t n)
{
	if (f->wide) {
		for (int64_t i = 0; i < n; i++)
			((double *)f->w)[at + i] = x[i];
	} else {
		memcpy((float *)f->w + at, x, (size_t)n * sizeof(*x));
	}
}

#define BLOCK 4096        /* elements that one thread computes at a time */
#define SMALL (2 * BLOCK) /* with fewer elements, waking threads does not pay */

static void fill_block(const struct filling *f, int64_t global, int64_t local, int64_t n)
{
	float x[BLOCK], std = (float)f->std;
	float same = f->init == HD_INIT_ONE ? 1 : f->init == HD_INIT_VALUE ? std : 0;

	if (f->init == HD_INIT_NORMAL)
		hd_random_normals(x, f->key, (uint64_t)global, n);
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		x[i] = f->init == HD_INIT_NORMAL ? std * x[i] : same;
	put(f, local, x, n);
}

static void fill_run(void *ctx, int64_t global, int64_t local, int64_t count)
{
	const struct filling *f = ctx;

#pragma omp parallel for schedule(static) if (count >= SMALL)
	for (int64_t i = 0; i < count; i += BLOCK)
		fill_block(f, global + i, local + i, count - i < BLOCK ? count - i : BLOCK);
}

/* Returns the name from which the values of a parameter and of its master are computed. NULL: t is neither. */
static const char *weight_name(const struct tensor *t)
{
	if (t->v.node || (t->v.what != HD_TENSOR_PARAM && t->v.what != HD_TENSOR_MASTER))
		return NULL;
	return t->v.what == HD_TENSOR_MASTER ? t->v.of->name : t->v.name;
}

static int begins_otherwise(const struct tensor *t)
{
	return !t->v.node && t->v.what == HD_TENSOR_STATE && t->init != HD_INIT_ZERO;
}

#define STRETCH ((int64_t)2 << 20) /* bytes that one thread clears at a time: a huge page */

/* What a walk over a rank's weights does. It fills them, and adds them to
 * the rank's part of the hash if part is not NULL. */
struct weights_init {
	const struct hd_program *g;
	int64_t seed;
	uint64_t *part;
};

static void round_values(void *to, const float *from, int64_t n)
{
#pragma omp parallel for schedule(static) if (n >= SMALL)
	for (int64_t i = 0; i < n; i += BLOCK)
		hd_bf16_from_floats((uint16_t *)to + i, from + i, n - i < BLOCK ? n - i : BLOCK);
}

static void fill_slice(const struct hd_program *g, const struct tensor *t, struct filling *f, void *data)
{
	int64_t n = hd_local_count(t);
	int low = t->v.dtype == HD_DTYPE_BF16;

	f->w = low ? hd_alloc((size_t)n * sizeof(float)) : data;
	hd_clear_pages(data, (size_t)hd_local_bytes(t));
	hd_slice_runs(g, t, fill_run, f);
	if (!low)
		return;
	round_values(data, f->w, n);
	free(f->w);
}

static struct filling values_of(const struct tensor *t, const char *name, int64_t seed)
{
	const struct tensor *as = t->init == HD_INIT_PARAMETER ? T(t->v.of) : t;

	return (struct filling){ .std = as->init_std,
				 .init = as->init,
				 .wide = t->v.dtype == HD_DTYPE_F64,
				 .key = hd_key((uint64_t)seed, as == t ? name : as->v.name, 0) };
}

/* Copies the parameter's current value, which may have been loaded, into a state. Returns 0 if the parameter is
 * elsewhere or has a different dtype. */
static int copy_parameter(const struct hd_program *g, const struct tensor *t)
{
	const struct tensor *of = T(t->v.of)->master ? T(t->v.of)->master : T(t->v.of);
	void *from, *to;

	if (!hd_tensor_here(g, of) || of->v.dtype != t->v.dtype || memcmp(of->at.on, t->at.on, sizeof(of->at.on)))
		return 0;
	from = hd_program_map(g, of, HD_STEP, HD_MAP_READ);
	to = hd_program_map(g, t, HD_STEP, HD_MAP_WRITE);
	memcpy(to, from, (size_t)hd_local_bytes(t));
	hd_program_unmap(g, of, HD_STEP, from, HD_MAP_READ);
	hd_program_unmap(g, t, HD_STEP, to, HD_MAP_WRITE);
	return 1;
}

static void init_state(const struct hd_program *g, const struct tensor *t, int64_t seed)
{
	struct filling f = values_of(t, t->v.name, seed);
	void *data = hd_program_map(g, t, HD_STEP, HD_MAP_WRITE);

	fill_slice(g, t, &f, data);
	hd_program_unmap(g, t, HD_STEP, data, HD_MAP_WRITE);
}

void hd_init_state(const struct hd_program *g, const struct tensor *t, int64_t seed)
{
	if (begins_otherwise(t) && hd_tensor_here(g, t) && (t->init != HD_INIT_PARAMETER || !copy_parameter(g, t)))
		init_state(g, t, seed);
}

void hd_init_states(const struct hd_program *g, int64_t seed)
{
	for (size_t i = 0; i < g->plan->ntensors; i++)
		hd_init_state(g, g->plan->tensors[i], seed);
}

/* Returns the master of t if t is its rounded copy and both have the same slice here, else NULL. */
static const struct tensor *master_here(const struct hd_program *g, const struct tensor *t)
{
	const struct tensor *m = t->master;

	return m && t->v.dtype == HD_DTYPE_BF16 && m->v.dtype == HD_DTYPE_F32 && hd_tensor_here(g, m) &&
			       !memcmp(m->at.on, t->at.on, sizeof(m->at.on)) && hd_local_count(m) == hd_local_count(t)
		       ? m
		       : NULL;
}

static void hash_run(void *ctx, int64_t global, int64_t local, int64_t count)
{
	struct filling *f = ctx;
	uint64_t hash = 0; /* a sum, so the order does not matter */

#pragma omp parallel for schedule(static) reduction(+ : hash) if (count >= SMALL)
	for (int64_t i = 0; i < count; i++) {
		uint32_t bits;

		memcpy(&bits, (const float *)f->w + local + i, sizeof(bits));
		hash += hd_hash64(f->name ^ hd_hash64((uint64_t)(global + i) << 32 ^ bits));
	}
	f->hash += hash;
}

/* Returns whether this rank hashes t. Each weight is hashed once, by its owner, and as its master if it has one. */
static int is_hashed(const struct hd_program *g, const struct tensor *t)
{
	return weight_name(t) && !t->master && hd_owns(g, t);
}

static uint64_t hash_slice(const struct hd_program *g, const struct tensor *t, void *data)
{
	struct filling f = { .w = data, .name = hd_hash_text(weight_name(t)) };

	hd_slice_runs(g, t, hash_run, &f);
	return f.hash;
}

/* Rounds the master's values into the low-precision parameter. The values are still in host
 * memory, so they need not be read from the device. */
static void round_master(const struct hd_program *g, const struct tensor *master, const void *data)
{
	const struct tensor *t = T(master->v.of);
	void *to;

	if (master->v.what != HD_TENSOR_MASTER || !hd_tensor_here(g, t) || master_here(g, t) != master)
		return;
	to = hd_program_map(g, t, HD_STEP, HD_MAP_WRITE);
	round_values(to, data, hd_local_count(t));
	hd_program_unmap(g, t, HD_STEP, to, HD_MAP_WRITE);
}

static void init_weight(const struct weights_init *x, const struct tensor *t)
{
	struct filling f = values_of(t, weight_name(t), x->seed);
	void *data = hd_program_map(x->g, t, HD_STEP, HD_MAP_WRITE);

	fill_slice(x->g, t, &f, data);
	if (x->part && is_hashed(x->g, t))
		*x->part += hash_slice(x->g, t, data);
	round_master(x->g, t, data);
	hd_program_unmap(x->g, t, HD_STEP, data, HD_MAP_WRITE);
}

void hd_init_weights(const struct hd_program *g, int64_t seed, uint64_t *part)
{
	struct weights_init x = { g, seed, part };

	if (part)
		*part = 0;
	for (size_t i = 0; i < g->plan->ntensors; i++) {
		const struct tensor *t = g->plan->tensors[i];

		if (weight_name(t) && hd_tensor_here(g, t) && !master_here(g, t))
			init_weight(&x, t);
	}
	hd_init_states(g, seed);
	hd_program_forget_copies(g);
}

uint64_t hd_weights_part(const struct hd_program *g)
{
	uint64_t part = 0;
	void *data;

	for (size_t i = 0; i < g->plan->ntensors; i++) {
		const struct tensor *t = g->plan->tensors[i];

		if (!is_hashed(g, t))
			continue;
		data = hd_program_map(g, t, HD_STEP, HD_MAP_READ);
		part += hash_slice(g, t, data);
		hd_program_unmap(g, t, HD_STEP, data, HD_MAP_READ);
	}
	hd_program_forget_copies(g);
	return part;
}

uint64_t hd_weights_hash(const struct hd_program *g, uint64_t part)
{
	char text[32];
	char **all;

	snprintf(text, sizeof(text), "%016llx", (unsigned long long)part);
	all = hd_comm_gather_text(text);
	for (int r = 0; all && r < (int)g->plan->ranks; r++) {
		part = (r ? part : 0) + strtoull(all[r], NULL, 16);
		free(all[r]);
	}
	free(all);
	return part;
}
