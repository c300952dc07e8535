/* SPDX-License-Identifier: Apache-2.0
 * rope: rotary position embedding of halves (see the reference).
 *
 * Cosines and sines are made in double when the kernel is prepared.  All layers turn by the
 * same angles, so the tables are shared and counted.
 */
#include <config.h>
#include <math.h>
#include "kernels/cpu/low.h"
#include "kernels/prepare/embedding.h"

struct table {
	struct table *next;
	int64_t users, first, seq, half;
	double theta;
	float turn[];		/* (seq, 2, half): cosines, then sines */
};
static struct table *tables;

static struct table *make(int64_t first, int64_t seq, int64_t half, double theta)
{
	struct table *t = hd_alloc(sizeof(*t) + (size_t)(seq * half * 2) * sizeof(float));

	*t = (struct table){
		.next = tables, .first = first, .seq = seq, .half = half, .theta = theta };
	for (int64_t i = 0; i < half; i++) {
		double rate = pow(theta, -(double)i / (double)half);

		for (int64_t s = 0; s < seq; s++) {
			t->turn[s * 2 * half + i] = (float)cos((double)(first + s) * rate);
			t->turn[(s * 2 + 1) * half + i] = (float)sin((double)(first + s) * rate);
		}
	}
	return tables = t;
}

static struct table *get(int64_t first, int64_t seq, int64_t half, double theta)
{
	struct table *t;

#pragma omp critical(hd_rope_tables)
	{
		for (t = tables; t; t = t->next)
			if (t->first == first && t->seq == seq && t->half == half &&
			    t->theta == theta)
				break;
		if (!t)
			t = make(first, seq, half, theta);
		t->users++;
	}
	return t;
}

static void release(void *state)
{
	struct table *t = state, **at = &tables;

#pragma omp critical(hd_rope_tables)
	if (!--t->users) {
		while (*at != t)
			at = &(*at)->next;
		*at = t->next;
		free(t);
	}
}

static int prepare_rope(const struct hd_check *c, struct hd_prep *p)
{
	HD_TRY(hd_prepare_rope(c, p));
	p->state = get(p->n[4], p->n[1], p->n[3] / 2, p->f[0]);
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

HD_CLONES static void turn_low(void *y, const void *x, int64_t at, const float *cosine, const float *sine, float direction,
			       int64_t half, int64_t heads)
{
	turn_any(y, x, at, cosine, sine, direction, half, heads, 1);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t tokens = p->n[0] * p->n[1], seq = p->n[1], heads = p->n[2], half = p->n[3] / 2;
	const struct table *t = p->state;

	(void)r;
#pragma omp parallel for schedule(static) if (tokens * heads * half >= HD_SMALL)
	for (int64_t i = 0; i < tokens; i++) {
		const float *cosine = t->turn + i % seq * 2 * half;

		(p->n[14] == HD_BF16 ? turn_low : turn)(out[0], in[0], i * heads * 2 * half, cosine, cosine + half,
							(float)p->f[1], half, heads);
	}
}

const struct hd_kernel hd_cpu_rope = { .name = "rope", .prepare = prepare, .run = run };
