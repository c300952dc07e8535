/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/attention/attention.h - what the attention kernels share: softmax(scale q k^T) v without the seq x
 * seq matrix.
 */
#ifndef HD_KERNELS_CUDA_ATTENTION_ATTENTION_H
#define HD_KERNELS_CUDA_ATTENTION_ATTENTION_H
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/attention.h"
}

#define HD_LOG2E 1.4426950408889634f
#define HD_LN2 0.6931471805599453f

struct hd_att : hd_attention {
	HD_DEV int64_t kv_of(int64_t head) const
	{
		return (head0 + head) / group - kv0;
	}
	HD_DEV int kv_of_int(int head) const /* 32-bit division is faster */
	{
		return (int)((unsigned)(head0 + head) / (unsigned)group) - (int)kv0;
	}
	/* Returns how many keys query i sees: keys 0 ... seen - 1, before its window is applied. */
	HD_DEV int64_t seen(int64_t i) const
	{
		int64_t n = q0 + i - k0 + 1;

		return !causal || n > keys ? keys : n > 0 ? n : 0;
	}
	/* Returns how many of these keys precede the query's window; window_begin(i) is the first key in it. */
	HD_DEV int64_t window_begin(int64_t i) const
	{
		int64_t n = q0 + i - k0 + 1 - window;

		return !window || n < 0 ? 0 : n < keys ? n : keys;
	}
	/* Returns the first query past all those whose window contains key j. */
	HD_DEV int64_t end_query(int64_t j) const
	{
		int64_t i = k0 + j - q0 + window;

		return !window || i > seq ? seq : i > 0 ? i : 0;
	}
	/* `capped` returns the score after the cap.  `slope` returns the cap's derivative, 1 - (score / cap)^2, at a
	 * capped score. */
	HD_DEV float capped(float s) const
	{
		return softcap > 0 ? softcap * tanhf(s / softcap) : s;
	}
	HD_DEV float slope(float s) const
	{
		float part = softcap > 0 ? s / softcap : 0;

		return 1 - part * part;
	}
	/* Returns the first query that sees key j. */
	HD_DEV int64_t first_query(int64_t j) const
	{
		int64_t i = k0 + j - q0;

		return !causal || i < 0 ? 0 : i < seq ? i : seq;
	}
	/* Local heads from head_from(kv) to head_to(kv) - 1 read kv head kv. */
	HD_DEV int64_t head_from(int64_t kv) const
	{
		int64_t h = (kv0 + kv) * group - head0;

		return h > 0 ? h : 0;
	}
	HD_DEV int64_t head_to(int64_t kv) const
	{
		int64_t h = (kv0 + kv + 1) * group - head0;

		return h < heads ? h : heads;
	}
	HD_DEV int64_t q_at(int64_t b, int64_t i, int64_t h) const
	{
		return ((b * seq + i) * heads + h) * dim;
	}
	HD_DEV int64_t k_at(int64_t b, int64_t j, int64_t h) const
	{
		return ((b * keys + j) * kv_heads + h) * dim;
	}
	HD_DEV int64_t row(int64_t b, int64_t h, int64_t i) const
	{
		return (b * heads + h) * seq + i;
	}
};

struct hd_att_d { /* operands of the backward kernels */
	const void *q, *k, *v, *d_o;
	const float *lse, *delta; /* delta: sum(o do) for each query */
	void *dq, *dk, *dv;
};

/* attention_mma.cu: bf16, with head_dim 64 or 128 */
int hd_att_mma_has(const struct hd_att *t);
int hd_att_mma_prepare(const struct hd_att *t, struct hd_err *err);
void hd_att_mma(const struct hd_att *t, void *o, float *lse, const void *q, const void *k, const void *v,
		const struct hd_run *r);
void hd_att_mma_d(const struct hd_att *t, const struct hd_att_d *x, const struct hd_run *r);
/* attention_wgmma.cu and attention_wgmma_d.cu: the same for compute capability 9.0a, if enabled.  A result below 0
 * means that nothing was launched. */
int hd_att_wgmma_has(const struct hd_att *t, struct hd_err *err);
int hd_att_wgmma(const struct hd_att *t, void *o, float *lse, const void *q, const void *k, const void *v,
		 const struct hd_run *r);
int hd_att_wgmma_d_prepare(const struct hd_att *t, struct hd_err *err);
int hd_att_wgmma_d(const struct hd_att *t, const struct hd_att_d *x, const struct hd_run *r);

#endif
