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
#include "kernels/cpu/attention/attention.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* Scratch of all attention kernels, one piece a thread: launches follow each other, so one
 * set serves all. */
static struct {
	float *mem;
	size_t each; /* floats */
	int threads, users;
} pool;

struct attention {
	struct hd_attention t;
	const struct hd_att_isa *isa;
};

/* width: vectors of at most so many floats, for tests */
static const struct hd_att_isa *best_isa(double width)
{
	(void)width;
#if HD_ATT_X86
	if (width >= 16 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
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
			return hd_err_set(err, HD_ENOMEM, "attention: no memory for %zu bytes of scratch",
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

/* Floats that one thread needs. */
static size_t scratch(const struct hd_attention *t, int backward)
{
	int64_t keys = hd_att_blocks(t->keys) * HD_ATT_BLOCK, seq = hd_att_blocks(t->seq) * HD_ATT_BLOCK;
	int64_t padded = hd_att_padded(t);

	if (backward)
		return (size_t)((5 * keys + 3 * seq) * padded + 2 * seq + 2 * HD_ATT_BLOCK * HD_ATT_BLOCK);
	return (size_t)((2 * keys + 2 * HD_ATT_BLOCK) * padded + HD_ATT_BLOCK * HD_ATT_BLOCK);
}

static int prepare_any(const struct hd_kernel_desc *d, struct hd_prep *p, int backward, struct hd_err *err)
{
	struct hd_attention t = { 0 };
	struct attention *state;

	HD_TRY(hd_prepare_attention(d, backward, "cpu", HD_DTYPE_F32, &t, err));
	HD_TRY(pool_join(scratch(&t, backward), err));
	state = hd_alloc(sizeof(*state));
	state->t = t;
	state->isa = best_isa(hd_attr_num(d->attr, "width", HD_ATT_WIDEST));
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
	const struct attention *s = p->state;
	const struct hd_attention *t = &s->t;

	(void)r;
#pragma omp parallel for schedule(dynamic) num_threads(threads_of())
	for (int64_t i = 0; i < t->batch * t->heads; i++)
		s->isa->forward(t, pool.mem + (size_t)omp_get_thread_num() * pool.each, out, in, i / t->heads,
				i % t->heads);
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct attention *s = p->state;
	const struct hd_attention *t = &s->t;

	(void)r;
#pragma omp parallel for schedule(dynamic) num_threads(threads_of())
	for (int64_t i = 0; i < t->batch * t->kv_heads; i++)
		s->isa->backward(t, pool.mem + (size_t)omp_get_thread_num() * pool.each, out, in, i / t->kv_heads,
				 i % t->kv_heads);
}

const struct hd_kernel hd_cpu_attention = { .name = "attention", .prepare = prepare, .run = run };
const struct hd_kernel hd_cpu_attention_d = { .name = "attention_d", .prepare = prepare_d, .run = run_d };
