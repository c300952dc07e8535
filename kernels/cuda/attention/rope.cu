/* SPDX-License-Identifier: Apache-2.0
 * rope: rotary position embedding of halves (see the reference).
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
	float *unused = hd_rope_drop(&tables, (struct hd_rope_table *)state);

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

template <class T> struct rope { /* an element is a pair, numbered over tokens, heads and half of what turns */
	T *y;
	const T *x;
	const float *turn;
	int64_t seq, heads, half, dim;
	float direction;

	template <int N> HD_DEV void at(int64_t i) const
	{
		int64_t head = i / half, k = i % half, token = head / heads;
		const float *cosine = turn + token % seq * 2 * half + k, *sine = cosine + half;
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

template <class T> struct rope_rest { /* what does not turn, numbered over tokens, heads and the rest of head_dim */
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

template <class T> static void go(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct hd_rope_table *t = (const struct hd_rope_table *)p->state;
	rope<T> f = { (T *)out[0], (const T *)in[0], t->turn, p->n[1], p->n[2], p->n[7] / 2, p->n[3], (float)p->f[0] };
	rope_rest<T> g = { f.y, f.x, p->n[7], p->n[3] - p->n[7] };
	int64_t all = p->n[0] * f.seq * f.heads;
	int fours = f.dim % 4 == 0 && hd_aligned(f.x) && hd_aligned(f.y);

	if (f.half)
		hd_each<4>(r, all * f.half, f.half % 4 == 0 && fours, f);
	if (g.rest)
		hd_each<4>(r, all * g.rest, g.rest % 4 == 0 && g.turned % 4 == 0 && fours, g);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_DTYPE_F32 ? go<float>(p, out, in, r) : go<bf16>(p, out, in, r);
}

HD_CUDA_KERNEL(rope, "rope", 0, prepare, run);
