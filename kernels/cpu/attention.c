/* SPDX-License-Identifier: Apache-2.0
 * attention, attention_d: softmax(scale q k^T) v without the seq x seq matrix (Dao et al.,
 * FlashAttention, 2022).
 *
 * Heads and sequences are independent tasks.  A task packs its head into contiguous panels and
 * walks 64 x 64 blocks; forward keeps a running maximum and sum per query and saves lse = max +
 * log(sum), from which backward makes the probabilities again.  The code of a task
 * (attention_blocks.h) is compiled for several vector widths, chosen at run time.  No result
 * depends on the number of threads.
 */
#include <config.h>
#include "kernels/cpu/attention.h"
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define WIDEST 16		/* panels suit every width */

/* Scratch of all attention kernels, one piece a thread: launches follow each other, so one
 * set serves all. */
static struct {
	float *mem;
	size_t each;		/* floats */
	int threads, users;
} pool;

/* width: vectors of at most so many floats, for tests */
static const struct hd_att_isa *best_isa(double width)
{
	(void)width;
#if HD_ATT_X86
	if (width >= 16 && __builtin_cpu_supports("avx512f") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("avx512bw"))
		return &hd_att_avx512;
	if (width >= 8 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return &hd_att_avx2;
#endif
	return &hd_att_plain;
}

static int pool_join(size_t each, struct hd_err *err)
{
	int threads = omp_get_max_threads();
	void *mem;

	each = (each + 1023) / 1024 * 1024;
	if (each > pool.each || threads > pool.threads) {
		if (each < pool.each)
			each = pool.each;
		if (threads < pool.threads)
			threads = pool.threads;
		if (posix_memalign(&mem, 4096, each * (size_t)threads * sizeof(float)))
			return hd_err_set(err, HD_ENOMEM,
					  "attention: no memory for %zu bytes of scratch",
					  each * (size_t)threads * sizeof(float));
		free(pool.mem);
		pool.mem = mem;
		pool.each = each;
		pool.threads = threads;
	}
	pool.users++;
	return 0;
}

static void release(void *state)
{
	free(state);
	if (--pool.users)
		return;
	free(pool.mem);
	memset(&pool, 0, sizeof(pool));
}

static int check(const struct hd_kernel_desc *d, uint32_t nin, uint32_t nout, struct hd_err *err)
{
	const struct hd_view *q = d->in, *k = d->in + 1, *v = d->in + 2;

	if (d->nin != nin || d->nout != nout)
		return hd_err_set(err, HD_EINVAL,
				  "attention: %u inputs and %u outputs, not %u and %u", d->nin,
				  d->nout, nin, nout);
	for (uint32_t i = 0; i < nin + nout; i++) {
		uint32_t dtype = i < nin ? d->in[i].dtype : d->out[i - nin].dtype;
		uint32_t need = i == 4 || d->in[0].dtype != HD_BF16 ? HD_F32 : HD_BF16;	/* 4: lse */

		if (dtype != need)
			return hd_err_set(err, HD_ENOTSUP, "attention: operand %u is %s, on cpu it must be %s beside this q", i,
					  hd_dtype_name(dtype), hd_dtype_name(need));
	}
	if (q->ndim != 4 || k->ndim != 4 || v->ndim != 4)
		return hd_err_set(err, HD_EINVAL, "attention: q, k, v have %u, %u, %u dims, not 4",
				  q->ndim, k->ndim, v->ndim);
	if (memcmp(k->n, v->n, 4 * sizeof(k->n[0])) || q->n[0] != k->n[0] || q->n[3] != k->n[3])
		return hd_err_set(err, HD_EINVAL,
				  "attention: q, k and v differ in batch or head_dim");
	if (!q->dims[2]->n || !k->dims[2]->n || q->dims[2]->n % k->dims[2]->n)
		return hd_err_set(err, HD_EINVAL,
				  "attention: %lld heads do not divide into %lld kv heads",
				  (long long)q->dims[2]->n, (long long)k->dims[2]->n);
	return 0;
}

static int set(struct hd_att *t, const struct hd_kernel_desc *d, struct hd_err *err)
{
	const struct hd_view *q = d->in, *k = d->in + 1;

	t->batch = q->n[0];
	t->seq = q->n[1];
	t->keys = k->n[1];
	t->heads = q->n[2];
	t->kv_heads = k->n[2];
	t->dim = q->n[3];
	t->q0 = q->off[1];
	t->k0 = k->off[1];
	t->head0 = q->off[2];
	t->kv0 = k->off[2];
	t->group = q->dims[2]->n / k->dims[2]->n;
	t->padded = (t->dim + WIDEST - 1) / WIDEST * WIDEST;
	t->low = q->dtype == HD_BF16;
	t->causal = hd_attr(d->attr, "causal", 0) != 0;
	t->scale = (float)hd_attr(d->attr, "scale", 0);
	if (t->scale == 0)
		t->scale = (float)(1 / sqrt((double)t->dim));
	t->isa = best_isa(hd_attr(d->attr, "width", WIDEST));
	if (t->heads && (t->head0 / t->group < t->kv0 ||
			 (t->head0 + t->heads - 1) / t->group >= t->kv0 + t->kv_heads))
		return hd_err_set(err, HD_EINVAL,
				  "attention: heads %lld to %lld do not read kv heads %lld to %lld",
				  (long long)t->head0, (long long)(t->head0 + t->heads - 1),
				  (long long)t->kv0, (long long)(t->kv0 + t->kv_heads - 1));
	return 0;
}

static int prepare_any(const struct hd_kernel_desc *d, struct hd_prep *p, int backward,
		       struct hd_err *err)
{
	struct hd_att t = { 0 }, *state;
	int64_t keys, seq;

	HD_TRY(check(d, backward ? 6 : 3, backward ? 3 : 2, err));
	HD_TRY(set(&t, d, err));
	keys = hd_att_blocks(t.keys) * HD_ATT_BLOCK;
	seq = hd_att_blocks(t.seq) * HD_ATT_BLOCK;
	if (backward)
		HD_TRY(pool_join((size_t)((5 * keys + 3 * seq) * t.padded + 2 * seq +
					  2 * HD_ATT_BLOCK * HD_ATT_BLOCK),
				 err));
	else
		HD_TRY(pool_join((size_t)((2 * keys + 2 * HD_ATT_BLOCK) * t.padded +
					  HD_ATT_BLOCK * HD_ATT_BLOCK),
				 err));
	state = hd_alloc(sizeof(*state));
	*state = t;
	p->state = state;
	p->release = release;
	return 0;
}

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	return prepare_any(d, p, 0, err);
}

static int prepare_d(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	return prepare_any(d, p, 1, err);
}

static int threads_of(void)
{
	int now = omp_get_max_threads();

	return now < pool.threads ? now : pool.threads;
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct hd_att *t = p->state;

	(void)r;
	#pragma omp parallel for schedule(dynamic) num_threads(threads_of())
	for (int64_t i = 0; i < t->batch * t->heads; i++)
		t->isa->forward(t, pool.mem + (size_t)omp_get_thread_num() * pool.each,
				out, in, i / t->heads, i % t->heads);
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in,
		  const struct hd_run *r)
{
	const struct hd_att *t = p->state;

	(void)r;
	#pragma omp parallel for schedule(dynamic) num_threads(threads_of())
	for (int64_t i = 0; i < t->batch * t->kv_heads; i++)
		t->isa->backward(t, pool.mem + (size_t)omp_get_thread_num() * pool.each,
				 out, in, i / t->kv_heads, i % t->kv_heads);
}

const struct hd_kernel hd_cpu_attention = {.name = "attention", .prepare = prepare, .run = run};
const struct hd_kernel hd_cpu_attention_d = {
	.name = "attention_d", .prepare = prepare_d, .run = run_d};
