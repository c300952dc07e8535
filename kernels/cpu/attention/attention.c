/* SPDX-License-Identifier: Apache-2.0
 * attention, attention_d: softmax(scale q k^T) v without the seq x seq matrix (Dao et al., FlashAttention, 2022).
 *
 * Each head of keys in each sequence is an independent task. A task packs its head into contiguous panels and walks
 * blocks of queries and keys. Forward keeps a running maximum and sum per query and saves lse = max + log(sum), from
 * which backward recomputes the probabilities. The code of a task (attention_blocks.h) is compiled for several vector
 * widths. Tasks on tiles of bf16 (attention_tiles.h) are compiled for matrix units and for vectors of pairs. The
 * choice is made at run time. No result depends on the number of threads.
 */
#include <config.h>
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/base/amx.h"
#include "kernels/cpu/base/pairs.h"
#include "kernels/cpu/base/scratch.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>

struct attention {
	struct hd_attention t;
	const struct hd_att_isa *isa;
	int64_t each; /* floats of scratch per thread */
	int threads;  /* threads that scratch suffices for */
};

#define TILES_SEQ 16 /* with fewer queries, a block of 32 would be mostly zeros */

/* Returns the kernels on tiles of bf16, or NULL if they do not apply. For tests, attributes amx and pairs set the
 * minimum number of queries for matrix units and for products of pairs in vectors; 0: never. These kernels take the
 * largest score before scaling, so scale must be positive. */
static const struct hd_att_isa *tiles_isa(const struct hd_attention *t, const char *attr)
{
#if HD_AMX
	double seq = (double)t->seq, amx = hd_attr_num(attr, "amx", TILES_SEQ), pairs = hd_attr_num(attr, "pairs", -1);

	if (!t->low || t->scale <= 0)
		return NULL;
	if (amx > 0 && seq >= amx && hd_amx_allowed())
		return &hd_att_amx;
	if (pairs < 0)
		pairs = hd_pairs_fast() ? TILES_SEQ : 0;
	return pairs > 0 && seq >= pairs && hd_pairs_here() ? &hd_att_pairs : NULL;
#else
	(void)t;
	(void)attr;
	return NULL;
#endif
}

/* Returns the best kernels for this processor. For tests, attribute width limits the floats of a vector. */
static const struct hd_att_isa *best_isa(const struct hd_attention *t, const char *attr)
{
	double width = hd_attr_num(attr, "width", HD_ATT_WIDEST);
	const struct hd_att_isa *tiles = width >= 16 ? tiles_isa(t, attr) : NULL;

	if (tiles)
		return tiles;
#if HD_X86
	if (width >= 16 && hd_has_avx512())
		return &hd_att_avx512;
	if (width >= 8 && hd_has_avx2())
		return &hd_att_avx2;
#endif
	return &hd_att_plain;
}

/* Computes from the shapes which kernels a launch runs, and how much scratch it takes. */
static int plan(const struct hd_kernel_desc *d, int backward, int threads, struct attention *a, struct hd_err *err)
{
	HD_TRY(hd_prepare_attention(d, backward, "cpu", HD_DTYPE_F32, &a->t, err));
	a->isa = best_isa(&a->t, d->attr);
	a->each = (a->isa->floats(&a->t, backward) + 1023) / 1024 * 1024; /* whole pages, so that threads share none */
	a->threads = threads;
	return 0;
}

static int64_t bytes_of(const struct attention *a)
{
	return a->each * a->threads * (int64_t)sizeof(float);
}

static int64_t scratch_any(const struct hd_kernel_desc *d, int backward, int threads)
{
	struct attention a = { .each = 0 };
	struct hd_err ignored = { 0 };

	return plan(d, backward, threads, &a, &ignored) < 0 ? 0 : bytes_of(&a);
}

static int64_t scratch(const struct hd_kernel_desc *d, int threads)
{
	return scratch_any(d, 0, threads);
}

static int64_t scratch_d(const struct hd_kernel_desc *d, int threads)
{
	return scratch_any(d, 1, threads);
}

static int prepare_any(const struct hd_kernel_desc *d, struct hd_prep *p, int backward, struct hd_err *err)
{
	struct attention a = { .each = 0 }, *state;

	HD_TRY(plan(d, backward, omp_get_max_threads(), &a, err));
	state = hd_alloc(sizeof(*state));
	*state = a;
	p->state = state;
	return hd_scratch_take(p, bytes_of(state), backward ? "attention_d" : "attention", err);
}

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	return prepare_any(d, p, 0, err);
}

static int prepare_d(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	return prepare_any(d, p, 1, err);
}

static int threads_of(const struct attention *a)
{
	int now = omp_get_max_threads();

	return now < a->threads ? now : a->threads;
}

static float *own(const struct attention *a)
{
	return (float *)hd_scratch() + omp_get_thread_num() * a->each;
}

/* Returns how many tasks a thread takes together. With many sequences it takes all tasks of one, because a token's
 * heads are adjacent in memory. */
static int at_once(const struct hd_attention *t, int64_t threads, int64_t pieces)
{
	return t->batch >= 2 * threads && pieces ? (int)(t->kv_heads * pieces) : 1;
}

/* Where there are few heads for the threads, each head is cut into pieces of its queries, which changes no result. */
static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct attention *s = p->state;
	const struct hd_attention *t = &s->t;
	int64_t heads = t->batch * t->kv_heads, threads = threads_of(s),
		most = (t->seq + HD_ATT_PIECE - 1) / HD_ATT_PIECE;
	int64_t pieces = heads ? hd_att_min(most, (4 * threads + heads - 1) / heads) : 0;
	int64_t each = pieces ? (most + pieces - 1) / pieces * HD_ATT_PIECE : 0;

	(void)r;
#pragma omp parallel for schedule(dynamic, at_once(t, threads, pieces)) num_threads(threads)
	for (int64_t i = 0; i < heads * pieces; i++) {
		int64_t head = i / pieces, from = (pieces - 1 - i % pieces) * each; /* the one with most keys first */
		struct hd_att_task task = { head / t->kv_heads, head % t->kv_heads, from,
					    hd_att_min(from + each, t->seq) };

		if (from < t->seq)
			s->isa->forward(t, own(s), out, in, &task);
	}
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct attention *s = p->state;
	const struct hd_attention *t = &s->t;

	(void)r;
#pragma omp parallel for schedule(dynamic, at_once(t, threads_of(s), 1)) num_threads(threads_of(s))
	for (int64_t i = 0; i < t->batch * t->kv_heads; i++)
		s->isa->backward(t, own(s), out, in,
				 &(struct hd_att_task){ i / t->kv_heads, i % t->kv_heads, 0, t->seq });
}

const struct hd_kernel hd_cpu_attention = { .name = "attention", .prepare = prepare, .scratch = scratch, .run = run };
const struct hd_kernel hd_cpu_attention_d = {
	.name = "attention_d", .prepare = prepare_d, .scratch = scratch_d, .run = run_d
};
