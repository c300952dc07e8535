/* SPDX-License-Identifier: Apache-2.0
 * kernels/prepare/attention.h - checks of attention and its backward, and a description of their operands; shared by
 * all devices.
 *
 * Inputs are q, k, v (backward: also o, lse, do), outputs o, lse (backward: dq, dk, dv). A score is s = scale q k, and
 * with softcap = c it becomes c tanh(s / c). causal: a query sees no later key. window = w: of the others it sees the
 * last w, including its own. later = n: the queries are n tokens later in the sequence than their place says, as with
 * keys from another rank.
 */
#ifndef HD_KERNELS_PREPARE_ATTENTION_H
#define HD_KERNELS_PREPARE_ATTENTION_H
#include <math.h>
#include <string.h>
#include "engine/device/device.h"

struct hd_attention {
	int64_t batch, seq, keys, heads, kv_heads, dim;
	int64_t q0, k0, head0, kv0;        /* global index of the first query, key, head, kv head */
	int64_t group;                     /* heads of the whole dim that read one kv head */
	int64_t window;                    /* most keys that a query sees, with a causal mask; 0: no limit */
	int32_t causal, low;               /* low: all but lse is bf16 */
	float scale, softcap;              /* softcap 0: none */
	double exact_scale, exact_softcap; /* for the reference */
};

/* Checks dtypes. lse has the device's own precision, whatever that of the other operands. */
static inline int hd_attention_dtypes(const struct hd_kernel_desc *d, const char *device, uint32_t real,
				      struct hd_err *err)
{
	for (uint32_t i = 0; i < d->nin + d->nout; i++) {
		uint32_t dtype = i < d->nin ? d->in[i].dtype : d->out[i - d->nin].dtype;
		uint32_t need = i == 4 || real == HD_DTYPE_F64 || d->in[0].dtype != HD_DTYPE_BF16
					? real
					: (uint32_t)HD_DTYPE_BF16;

		if (dtype != need)
			return hd_err_set(err, HD_ENOTSUP,
					  "attention: operand %u is %s, on %s it must be %s with this q", i,
					  hd_dtype_name(dtype), device, hd_dtype_name(need));
	}
	return 0;
}

static inline int hd_attention_shapes(const struct hd_view *q, const struct hd_view *k, const struct hd_view *v,
				      struct hd_err *err)
{
	if (q->ndim != 4 || k->ndim != 4 || v->ndim != 4)
		return hd_err_set(err, HD_EINVAL, "attention: q, k, v have %u, %u, %u dims, not 4", q->ndim, k->ndim,
				  v->ndim);
	if (memcmp(k->n, v->n, 4 * sizeof(k->n[0])) || q->n[0] != k->n[0] || q->n[3] != k->n[3])
		return hd_err_set(err, HD_EINVAL, "attention: q, k and v differ in batch or head_dim");
	if (!q->dims[2]->n || !k->dims[2]->n || q->dims[2]->n % k->dims[2]->n)
		return hd_err_set(err, HD_EINVAL, "attention: %lld heads do not divide into %lld kv heads",
				  (long long)q->dims[2]->n, (long long)k->dims[2]->n);
	return 0;
}

static inline void hd_attention_set(struct hd_attention *t, const struct hd_view *q, const struct hd_view *k,
				    const char *attr)
{
	t->batch = q->n[0];
	t->seq = q->n[1];
	t->keys = k->n[1];
	t->heads = q->n[2];
	t->kv_heads = k->n[2];
	t->dim = q->n[3];
	t->q0 = q->off[1] + hd_attr_int(attr, "later", 0);
	t->k0 = k->off[1];
	t->head0 = q->off[2];
	t->kv0 = k->off[2];
	t->group = q->dims[2]->n / k->dims[2]->n;
	t->causal = hd_attr_num(attr, "causal", 0) != 0;
	t->low = q->dtype == HD_DTYPE_BF16;
	t->exact_scale = hd_attr_num(attr, "scale", 0);
	if (t->exact_scale == 0)
		t->exact_scale = 1 / sqrt((double)t->dim);
	t->scale = (float)t->exact_scale;
	t->window = hd_attr_int(attr, "window", 0);
	t->exact_softcap = hd_attr_num(attr, "softcap", 0);
	t->softcap = (float)t->exact_softcap;
}

static inline int hd_attention_mask(const struct hd_attention *t, struct hd_err *err)
{
	if (t->window < 0 || (t->window && !t->causal))
		return hd_err_set(err, HD_EINVAL, "attention: a window of %lld keys%s", (long long)t->window,
				  t->window < 0 ? "" : ", and the mask is not causal");
	if (!(t->exact_softcap >= 0))
		return hd_err_set(err, HD_EINVAL, "attention: softcap is %g, it must not be negative",
				  t->exact_softcap);
	return 0;
}

/* Handles a rank that has two pieces of a sequence, the second later than the first. The order in memory is that in
 * the sequence. So a causal mask can use local indices, if keys and queries are of the same tokens. */
static inline int hd_attention_order(const struct hd_view *q, const struct hd_view *k, struct hd_attention *t,
				     struct hd_err *err)
{
	if (!q->skip[1] && !k->skip[1])
		return 0;
	if (t->causal &&
	    (q->off[1] != k->off[1] || q->n[1] != k->n[1] || q->fold[1] != k->fold[1] || q->skip[1] != k->skip[1]))
		return hd_err_set(
			err, HD_EINVAL,
			"attention: queries of two pieces of the sequence, from %lld on, and keys from %lld on: causal "
			"needs both of the same tokens",
			(long long)q->off[1], (long long)k->off[1]);
	if (t->window)
		return hd_err_set(
			err, HD_ENOTSUP,
			"attention: a window of %lld keys over two pieces of the sequence, from %lld on: it counts "
			"positions that are not here",
			(long long)t->window, (long long)q->off[1]);
	t->q0 = t->k0 = 0;
	return 0;
}

/* Checks the operands, and describes them in t. real: the dtype of q, k and v, or of lse alone where they are bf16. */
static inline int hd_prepare_attention(const struct hd_kernel_desc *d, int backward, const char *device, uint32_t real,
				       struct hd_attention *t, struct hd_err *err)
{
	uint32_t nin = backward ? 6 : 3, nout = backward ? 3 : 2;

	if (d->nin != nin || d->nout != nout)
		return hd_err_set(err, HD_EINVAL, "attention: %u inputs and %u outputs, not %u and %u", d->nin, d->nout,
				  nin, nout);
	HD_TRY(hd_attention_dtypes(d, device, real, err));
	HD_TRY(hd_attention_shapes(&d->in[0], &d->in[1], &d->in[2], err));
	hd_attention_set(t, &d->in[0], &d->in[1], d->attr);
	HD_TRY(hd_attention_mask(t, err));
	HD_TRY(hd_attention_order(&d->in[0], &d->in[1], t, err));
	if (t->heads && (t->head0 / t->group < t->kv0 || (t->head0 + t->heads - 1) / t->group >= t->kv0 + t->kv_heads))
		return hd_err_set(err, HD_EINVAL, "attention: heads %lld to %lld do not read kv heads %lld to %lld",
				  (long long)t->head0, (long long)(t->head0 + t->heads - 1), (long long)t->kv0,
				  (long long)(t->kv0 + t->kv_heads - 1));
	return 0;
}

/* -- attention_cached: inputs q, k, v (batch, seq, heads, head_dim), caches of k and v (batch, past, kv_heads,
 * head_dim), positions (batch, seq); output o. The kernel writes the new keys and values into the caches, at their
 * positions. Each query sees what the causal mask allows of the new and the cached keys. The tokens of a sequence have
 * consecutive positions. Tokens before them with a negative position are padding: they are not stored, and their
 * result is 0.
 *
 * With a window the caches are rings of `window` positions or more: position p is stored at p mod past. A run may
 * compute more tokens than a ring holds. So queries read the new keys from the inputs, and the ring contains those of
 * earlier runs. It is filled after all queries have read it. */
struct hd_cached {
	struct hd_attention t;
	int64_t past;
};

static inline int hd_cached_dtypes(const struct hd_kernel_desc *d, const char *device, uint32_t real,
				   struct hd_err *err)
{
	uint32_t want = real != HD_DTYPE_F64 && d->in[0].dtype == HD_DTYPE_BF16 ? (uint32_t)HD_DTYPE_BF16 : real;

	for (uint32_t i = 0; i < 7; i++) {
		uint32_t have = i < 6 ? d->in[i].dtype : d->out[0].dtype, need = i == 5 ? (uint32_t)HD_DTYPE_I32 : want;

		if (have != need)
			return hd_err_set(err, HD_ENOTSUP, "attention_cached: operand %u is %s, on %s it must be %s", i,
					  hd_dtype_name(have), device, hd_dtype_name(need));
	}
	return 0;
}

static inline int hd_prepare_cached(const struct hd_kernel_desc *d, const char *device, uint32_t real,
				    struct hd_cached *c, struct hd_err *err)
{
	const struct hd_view *q = &d->in[0], *k = &d->in[1], *cache = &d->in[3];

	if (d->nin != 6 || d->nout != 1)
		return hd_err_set(err, HD_EINVAL, "attention_cached: %u inputs and %u outputs, not 6 and 1", d->nin,
				  d->nout);
	HD_TRY(hd_cached_dtypes(d, device, real, err));
	HD_TRY(hd_attention_shapes(q, k, &d->in[2], err));
	if (cache->ndim != 4 || memcmp(cache->n, d->in[4].n, 4 * sizeof(cache->n[0])) || cache->n[0] != k->n[0] ||
	    cache->n[2] != k->n[2] || cache->n[3] != k->n[3] || q->n[1] != k->n[1])
		return hd_err_set(err, HD_EINVAL, "attention_cached: the caches are not of these keys");
	if (d->in[5].ndim != 2 || d->in[5].n[0] != q->n[0] || d->in[5].n[1] != q->n[1])
		return hd_err_set(err, HD_EINVAL, "attention_cached: positions are not those of the queries");
	hd_attention_set(&c->t, q, k, d->attr);
	HD_TRY(hd_attention_mask(&c->t, err));
	c->past = cache->n[1];
	if (c->t.window > c->past) /* then no position wraps around, and all keys are seen */
		c->t.window = c->past;
	if (!c->t.causal)
		return hd_err_set(err, HD_ENOTSUP, "attention_cached: only causal attention can be cached");
	return 0;
}

/* Returns the first key that a query at `position` sees. */
static inline int64_t hd_cached_first(const struct hd_cached *c, int64_t position)
{
	return c->t.window && position >= c->t.window ? position - c->t.window + 1 : 0;
}

/* Returns whether the token at `position` is stored in the cache. last: the position of its sequence's last column. */
static inline int hd_cached_keeps(const struct hd_cached *c, int64_t position, int64_t last)
{
	return position >= 0 && (c->t.window ? position + c->past > last : position < c->past);
}

static inline int64_t hd_cached_slot(const struct hd_cached *c, int64_t position)
{
	return c->t.window ? position % c->past : position;
}

#endif
