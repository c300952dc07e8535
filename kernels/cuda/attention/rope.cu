/* SPDX-License-Identifier: Apache-2.0
 * rope, rope_at: rotary position embedding of halves (see the reference), by place in the sequence or at given
 * positions.
 *
 * The tables of angles are those of kernels/prepare/rope.h, copied to the device.
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/rope.h"
}

static struct hd_rope_table *tables;

static struct hd_rope_table *get(const struct hd_rope *a, struct hd_err *err)
{
	struct hd_rope_table *t = hd_rope_find(tables, a);
	float *turn, *device;

	if (t)
		return t;
	turn = hd_rope_angles(a);
	device = (float *)hd_cuda_constant(turn, hd_rope_bytes(a), err);
	free(turn);
	return device ? hd_rope_add(&tables, a, device) : NULL;
}

static void release(void *state)
{
	float *unused = state ? hd_rope_drop(&tables, (struct hd_rope_table *)state) : NULL;

	if (unused)
		hd_cuda_constant_free(unused);
}

HD_CUDA_PREPARE_TYPES(prepare_shared, "rope", "t", "t", hd_prepare_rope(c, p))

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	struct hd_rope a;

	HD_TRY(prepare_shared(d, p, err));
	hd_rope_set(&a, p, d->attr);
	p->state = get(&a, err);
	p->release = release;
	return p->state ? HD_OK : HD_ENOMEM;
}

template <class T> struct rope { /* an element is a pair, numbered over tokens, heads and half of the rotated dims */
	T *y;
	const T *x;
	const float *turn;
	const int32_t *positions;      /* of tokens; NULL: their places in the sequence */
	int64_t seq, heads, half, dim; /* seq: number of positions in the table */
	float direction;

	HD_DEV int64_t place_of(int64_t token) const
	{
		if (!positions)
			return token % seq;
		return positions[token] < 0 ? 0 : positions[token] < seq ? positions[token] : seq - 1;
	}

	template <int N> HD_DEV void at(int64_t i) const
	{
		int64_t head = i / half, k = i % half, place = place_of(head / heads);
		const float *cosine = turn + place * 2 * half + k, *sine = cosine + half;
		const T *from = x + head * dim + k;
		T *to = y + head * dim + k;
		float a[N], b[N], u[N], v[N];

		load<N>(a, from);
		load<N>(b, from + half);
		load<N>(u, cosine);
		load<N>(v, sine);
		for (int j = 0; j < N; j++) {
			float s = direction * v[j], p = a[j], q = b[j];

			a[j] = p * u[j] - q * s;
			b[j] = q * u[j] + p * s;
		}
		store<N>(to, a);
		store<N>(to + half, b);
	}
};

template <class T> struct rope_rest { /* the dims that are not rotated, numbered over tokens, heads and these dims */
	T *y;
	const T *x;
	int64_t turned, rest;

	template <int N> HD_DEV void at(int64_t i) const
	{
		int64_t from = i / rest * (turned + rest) + turned + i % rest;
		float a[N];

		load<N>(a, x + from);
		store<N>(y + from, a);
	}
};

template <class T>
static void launch(const struct hd_prep *p, void *const *out, void *const *in, const int32_t *positions, int64_t most,
		   const struct hd_run *r)
{
	const struct hd_rope_table *t = (const struct hd_rope_table *)p->state;
	rope<T> f = { (T *)out[0], (const T *)in[0], t->turn, positions,     most,
		      p->n[2],     p->n[7] / 2,      p->n[3], (float)p->f[0] };
	rope_rest<T> g = { f.y, f.x, p->n[7], p->n[3] - p->n[7] };
	int64_t all = p->n[0] * p->n[1] * f.heads;
	int fours = f.dim % 4 == 0 && hd_aligned(f.x) && hd_aligned(f.y);

	if (f.half)
		hd_each<4>(r, all * f.half, f.half % 4 == 0 && fours, f);
	if (g.rest)
		hd_each<4>(r, all * g.rest, g.rest % 4 == 0 && g.turned % 4 == 0 && fours, g);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_DTYPE_F32 ? launch<float>(p, out, in, NULL, p->n[1], r)
				 : launch<bf16>(p, out, in, NULL, p->n[1], r);
}

static int prepare_angles(const struct hd_check *c, struct hd_prep *p)
{
	struct hd_rope a;

	HD_TRY(hd_prepare_rope_at(c, p, &a));
	p->n[8] = a.seq;
	p->f[0] = 1;
	p->state = get(&a, c->err);
	p->release = release;
	return p->state ? HD_OK : HD_ENOMEM;
}
HD_CUDA_PREPARE_TYPES(prepare_at, "rope_at", "t*", "t", prepare_angles(c, p))

static void run_at(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const int32_t *positions = (const int32_t *)in[1];

	p->n[14] == HD_DTYPE_F32 ? launch<float>(p, out, in, positions, p->n[8], r)
				 : launch<bf16>(p, out, in, positions, p->n[8], r);
}

HD_CUDA_KERNEL(rope, "rope", 0, prepare, run);
HD_CUDA_KERNEL(rope_at, "rope_at", 0, prepare_at, run_at);
