/* SPDX-License-Identifier: Apache-2.0
 * rope: rotary position embedding of halves: it rotates the pairs (i, i + half) of each head (see the reference).
 *
 * The tables of angles are those of kernels/prepare/rope.h.
 */
#include <config.h>
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/base/scratch.h"
#include "kernels/prepare/rope.h"

static struct hd_rope_table *tables;

static struct hd_rope_table *get(const struct hd_rope *a)
{
	struct hd_rope_table *t;

#pragma omp critical(hd_rope_tables)
	{
		t = hd_rope_find(tables, a);
		if (!t) {
			t = hd_rope_add(&tables, a, hd_rope_angles(a));
			hd_scratch_table((int64_t)hd_rope_bytes(a));
		}
	}
	return t;
}

static void release(void *state)
{
	int64_t bytes = (int64_t)hd_rope_bytes(&((struct hd_rope_table *)state)->of);
	float *turn;

#pragma omp critical(hd_rope_tables)
	{
		turn = hd_rope_drop(&tables, state);
		if (turn)
			hd_scratch_table(-bytes);
	}
	free(turn);
}

static int prepare_rope(const struct hd_check *c, struct hd_prep *p)
{
	struct hd_rope a;

	HD_TRY(hd_prepare_rope(c, p));
	hd_rope_set(&a, p, c->d->attr);
	p->state = get(&a);
	p->release = release;
	return 0;
}
HD_PREPARE_LOW(prepare, "rope", "t", "t", prepare_rope(c, p))

/* Rotates `heads` heads of x into y, from element `at` on. In each head, `rest` elements after the two halves are not
 * rotated. */
static inline __attribute__((always_inline)) void turn_any(void *y, const void *x, int64_t at, const float *cosine,
							   const float *sine, float direction, int64_t half,
							   int64_t rest, int64_t heads, const int low)
{
	for (int64_t h = 0; h < heads; h++, at += 2 * half + rest) {
#pragma omp simd
		for (int64_t i = 0; i < half; i++) {
			float a = hd_get(x, low, at + i), b = hd_get(x, low, at + i + half), s = direction * sine[i];

			hd_put(y, low, at + i, a * cosine[i] - b * s);
			hd_put(y, low, at + i + half, b * cosine[i] + a * s);
		}
		for (int64_t i = at + 2 * half; i < at + 2 * half + rest; i++)
			hd_put(y, low, i, hd_get(x, low, i));
	}
}

HD_CLONES static void rotate(void *y, const void *x, int64_t at, const float *cosine, const float *sine,
			     float direction, int64_t half, int64_t rest, int64_t heads)
{
	turn_any(y, x, at, cosine, sine, direction, half, rest, heads, 0);
}

HD_CLONES static void rotate_low(void *y, const void *x, int64_t at, const float *cosine, const float *sine,
				 float direction, int64_t half, int64_t rest, int64_t heads)
{
	turn_any(y, x, at, cosine, sine, direction, half, rest, heads, 1);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t tokens = p->n[0] * p->n[1], seq = p->n[1], heads = p->n[2], half = p->n[7] / 2, dim = p->n[3];
	const struct hd_rope_table *t = p->state;

	(void)r;
#pragma omp parallel for schedule(static) if (tokens * heads * dim >= 2 * HD_SMALL)
	for (int64_t i = 0; i < tokens; i++) {
		const float *cosine = t->turn + i % seq * 2 * half;

		(p->n[14] == HD_DTYPE_BF16 ? rotate_low : rotate)(out[0], in[0], i * heads * dim, cosine, cosine + half,
								  (float)p->f[0], half, dim - 2 * half, heads);
	}
}

static int64_t kept(const struct hd_kernel_desc *d, uint64_t *same)
{
	struct hd_err ignored = { 0 };
	const struct hd_check c = { "rope", HD_DTYPE_F32, d, &ignored, HD_DTYPE_BF16 };
	struct hd_prep p = { .state = NULL };
	struct hd_rope a;

	if (hd_prepare_rope(&c, &p) < 0)
		return 0;
	hd_rope_set(&a, &p, d->attr);
	return hd_rope_kept(&a, same);
}

const struct hd_kernel hd_cpu_rope = { .name = "rope", .prepare = prepare, .run = run, .kept = kept };
