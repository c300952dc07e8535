/* SPDX-License-Identifier: Apache-2.0
 * rope: rotary position embedding of halves (see the reference).
 *
 * The tables of angles are those of kernels/prepare/rope.h.
 */
#include <config.h>
#include "kernels/cpu/base/low.h"
#include "kernels/prepare/rope.h"

static struct hd_rope_table *tables;

static struct hd_rope_table *get(const struct hd_prep *p)
{
	struct hd_rope_table *t;

#pragma omp critical(hd_rope_tables)
	{
		t = hd_rope_find(tables, p);
		if (!t)
			t = hd_rope_add(&tables, p, hd_rope_angles(p));
	}
	return t;
}

static void release(void *state)
{
#pragma omp critical(hd_rope_tables)
	free(hd_rope_drop(&tables, state));
}

static int prepare_rope(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_prepare_rope(c, p));
	p->state = get(p);
	p->release = release;
	return 0;
}
HD_PREPARE_LOW(prepare, "rope", "t", "t", prepare_rope(c, p))

/* (at, heads): elements of x and y from `at` on */
static inline __attribute__((always_inline)) void turn_any(void *y, const void *x, int64_t at, const float *cosine,
							   const float *sine, float direction, int64_t half,
							   int64_t heads, const int low)
{
	for (int64_t h = 0; h < heads; h++, at += 2 * half) {
#pragma omp simd
		for (int64_t i = 0; i < half; i++) {
			float a = hd_get(x, low, at + i), b = hd_get(x, low, at + i + half), s = direction * sine[i];

			hd_put(y, low, at + i, a * cosine[i] - b * s);
			hd_put(y, low, at + i + half, b * cosine[i] + a * s);
		}
	}
}

HD_CLONES static void turn(void *y, const void *x, int64_t at, const float *cosine, const float *sine, float direction,
			   int64_t half, int64_t heads)
{
	turn_any(y, x, at, cosine, sine, direction, half, heads, 0);
}

HD_CLONES static void turn_low(void *y, const void *x, int64_t at, const float *cosine, const float *sine,
			       float direction, int64_t half, int64_t heads)
{
	turn_any(y, x, at, cosine, sine, direction, half, heads, 1);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t tokens = p->n[0] * p->n[1], seq = p->n[1], heads = p->n[2], half = p->n[3] / 2;
	const struct hd_rope_table *t = p->state;

	(void)r;
#pragma omp parallel for schedule(static) if (tokens * heads * half >= HD_SMALL)
	for (int64_t i = 0; i < tokens; i++) {
		const float *cosine = t->turn + i % seq * 2 * half;

		(p->n[14] == HD_DTYPE_BF16 ? turn_low : turn)(out[0], in[0], i * heads * 2 * half, cosine,
							      cosine + half, (float)p->f[1], half, heads);
	}
}

const struct hd_kernel hd_cpu_rope = { .name = "rope", .prepare = prepare, .run = run };
