/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/attention/attention.h - declarations that the attention kernels share.
 */
#ifndef HD_KERNELS_CPU_ATTENTION_ATTENTION_H
#define HD_KERNELS_CPU_ATTENTION_ATTENTION_H
#include "engine/base/half.h"
#include "kernels/cpu/base/isa.h"
#include "kernels/prepare/attention.h"

#define HD_ATT_WIDEST 16 /* floats of the widest vector: panels suit every width */
#define HD_ATT_BLOCK 64  /* queries and keys of one block */
#define HD_ATT_PIECE 256 /* queries of one piece of a head */

/* A task of a thread: the heads of sequence b that read local kv head `kv`. Forward computes their queries from .. to
 * - 1, and `from` is a multiple of HD_ATT_PIECE. */
struct hd_att_task {
	int64_t b, kv, from, to;
};

struct hd_att_isa { /* the kernels for one kind of processor */
	/* Returns the floats of scratch that a task needs, aligned to 64 bytes. */
	int64_t (*floats)(const struct hd_attention *t, int backward);
	void (*forward)(const struct hd_attention *t, float *scratch, void *const *out, void *const *in,
			const struct hd_att_task *task);
	void (*backward)(const struct hd_attention *t, float *scratch, void *const *out, void *const *in,
			 const struct hd_att_task *task);
};

extern const struct hd_att_isa hd_att_plain;
extern const struct hd_att_isa hd_att_avx2, hd_att_avx512; /* with HD_X86 */
extern const struct hd_att_isa hd_att_amx, hd_att_pairs;   /* with HD_AMX: operands in bf16 */

/* Returns the floats of a row of a panel: head_dim rounded up to whole vectors. */
static inline int64_t hd_att_padded(const struct hd_attention *t)
{
	return (t->dim + HD_ATT_WIDEST - 1) / HD_ATT_WIDEST * HD_ATT_WIDEST;
}

static inline int64_t hd_att_min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Returns whether head h reads the task's kv head. */
static inline int hd_att_reads(const struct hd_attention *t, int64_t h, const struct hd_att_task *task)
{
	return (t->head0 + h) / t->group - t->kv0 == task->kv;
}

static inline int64_t hd_att_blocks(int64_t n)
{
	return (n + HD_ATT_BLOCK - 1) / HD_ATT_BLOCK;
}

/* Returns how many of the n keys from global index k0 on the query with global index q may see by the causal mask. */
static inline int64_t hd_att_seen(const struct hd_attention *t, int64_t q, int64_t k0, int64_t n)
{
	int64_t seen = q - k0 + 1;

	if (!t->causal || seen > n)
		return n;
	return seen > 0 ? seen : 0;
}

/* Returns how many of those keys the query no longer sees, because they are before its window. */
static inline int64_t hd_att_before_window(const struct hd_attention *t, int64_t q, int64_t k0, int64_t n)
{
	int64_t passed = q - k0 + 1 - t->window;

	if (!t->window || passed < 0)
		return 0;
	return passed < n ? passed : n;
}

#endif
