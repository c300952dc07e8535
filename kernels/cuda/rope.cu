/* SPDX-License-Identifier: Apache-2.0
 * rope: rotary position embedding of halves (see the reference).
 *
 * Cosines and sines are made in double on the host when the kernel is prepared.  All layers turn by the same angles, so
 * the tables are shared and counted.
 */
#include "kernels/cuda/cuda.h"
extern "C" {
#include "kernels/prepare/embedding.h"
}
#include <math.h>

struct table {
	struct table *next;
	int64_t users, first, seq, half;
	double theta;
	float *turn;		/* device: (seq, 2, half): cosines, then sines */
};
static struct table *tables;

static float *angles(int64_t first, int64_t seq, int64_t half, double theta, struct hd_err *err)
{
	float *turn = (float *)hd_alloc((size_t)(seq * half * 2) * sizeof(float)), *device;

	for (int64_t i = 0; i < half; i++) {
		double rate = pow(theta, -(double)i / (double)half);

		for (int64_t s = 0; s < seq; s++) {
			turn[s * 2 * half + i] = (float)cos((double)(first + s) * rate);
			turn[(s * 2 + 1) * half + i] = (float)sin((double)(first + s) * rate);
		}
	}
	device = (float *)hd_cuda_constant(turn, (size_t)(seq * half * 2) * sizeof(float), err);
	free(turn);
	return device;
}

static struct table *get(int64_t first, int64_t seq, int64_t half, double theta, struct hd_err *err)
{
	struct table *t = tables;
	float *turn;

	while (t && (t->first != first || t->seq != seq || t->half != half || t->theta != theta))
		t = t->next;
	if (t) {
		t->users++;
		return t;
	}
	turn = angles(first, seq, half, theta, err);
	if (!turn)
		return NULL;
	t = (struct table *)hd_alloc(sizeof(*t));
	*t = table{ tables, 1, first, seq, half, theta, turn };
	return tables = t;
}

static void release(void *state)
{
	struct table *t = (struct table *)state, **at = &tables;

	if (--t->users)
		return;
	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	hd_cuda_constant_free(t->turn);
	free(t);
}

HD_CUDA_PREPARE_TYPES(prepare_shared, "rope", "t", "t", hd_prepare_rope(c, p))

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	HD_TRY(prepare_shared(d, p, err));
	p->state = get(p->n[4], p->n[1], p->n[3] / 2, p->f[0], err);
	p->release = release;
	return p->state ? HD_OK : HD_ENOMEM;
}

template<class T> struct rope {		/* an element is a pair, numbered over tokens, heads and half of head_dim */
	T *y;
	const T *x;
	const float *turn;
	int64_t seq, heads, half;
	float direction;

	template<int N> HD_DEV void at(int64_t i) const
	{
		int64_t head = i / half, k = i % half, token = head / heads;
		const float *cosine = turn + token % seq * 2 * half + k, *sine = cosine + half;
		const T *from = x + head * 2 * half + k;
		T *to = y + head * 2 * half + k;
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

template<class T> static void go(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct table *t = (const struct table *)p->state;
	rope<T> f = { (T *)out[0], (const T *)in[0], t->turn, p->n[1], p->n[2], p->n[3] / 2, (float)p->f[1] };

	hd_each<4>(r, p->n[0] * f.seq * f.heads * f.half, f.half % 4 == 0 && hd_aligned(f.x) && hd_aligned(f.y), f);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	p->n[14] == HD_F32 ? go<float>(p, out, in, r) : go<bf16>(p, out, in, r);
}

HD_CUDA_KERNEL(rope, "rope", 0, prepare, run);
