/* SPDX-License-Identifier: Apache-2.0
 * rope: rotary position embedding of halves (see the reference).
 *
 * Cosines and sines are made in double when the kernel is prepared.  All layers turn by the
 * same angles, so the tables are shared and counted.
 */
#include <config.h>
#include <math.h>
#include "kernels/cpu/simd.h"
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
HD_PREPARE(prepare, "rope", HD_F32, prepare_rope(c, p))

HD_CLONES static void turn(float *y, const float *x, const float *cosine, const float *sine,
			   float direction, int64_t half, int64_t heads)
{
	for (int64_t h = 0; h < heads; h++, x += 2 * half, y += 2 * half) {
#pragma omp simd
		for (int64_t i = 0; i < half; i++) {
			float a = x[i], b = x[i + half], s = direction * sine[i];

			y[i] = a * cosine[i] - b * s;
			y[i + half] = b * cosine[i] + a * s;
		}
	}
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	int64_t tokens = p->n[0] * p->n[1], seq = p->n[1], heads = p->n[2], half = p->n[3] / 2;
	const struct table *t = p->state;
	const float *x = in[0];
	float *y = out[0];

	(void)r;
#pragma omp parallel for schedule(static) if (tokens * heads * half >= HD_SMALL)
	for (int64_t i = 0; i < tokens; i++) {
		const float *cosine = t->turn + i % seq * 2 * half;

		turn(y + i * heads * 2 * half, x + i * heads * 2 * half, cosine, cosine + half,
		     (float)p->f[1], half, heads);
	}
}

const struct hd_kernel hd_cpu_rope = { .name = "rope", .prepare = prepare, .run = run };
