/* SPDX-License-Identifier: Apache-2.0
 * swiglu and swiglu_d:
 *
 *	y = w(a) b	da = dy b w'	db = dy w	with w = a s, w' = s (1 + a (1 - s)), s = 1 / (1 + exp(-a))
 *
 * With gelu as the gate, w and w' are those of gelu.c, or those of its erf form.
 *
 * For bf16, w and w' are looked up where gelu is (gelu_table.h). Each gate has a table of both in fp32, so the bits
 * are those that would be computed.
 */
#include <config.h>
#include <pthread.h>
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/elementwise/gelu_table.h"
#include "kernels/prepare/elementwise.h"

#define TWO_ROOT_2_PI 1.5957691216f
#define CUBIC 0.044715f
#define INLINE static inline __attribute__((always_inline))

HD_PREPARE_LOW(prepare, "swiglu", "t", "t", hd_prepare_gate(c, p, 2, 1))
HD_PREPARE_LOW(prepare_d, "swiglu_d", "t", "t", hd_prepare_gate(c, p, 3, 2))

struct gate {
	float w, slope;
};

INLINE struct gate silu_at(float v)
{
	float s = hd_sigmoid(v);

	return (struct gate){ v * s, s * (1 + v * (1 - s)) };
}

INLINE struct gate gelu_tanh_at(float v)
{
	float in = hd_clamp(v, -16, 16), q = CUBIC * in * in, s = hd_sigmoid(TWO_ROOT_2_PI * in * (1 + q));

	return (struct gate){ v * s, s + in * s * (1 - s) * (TWO_ROOT_2_PI * (1 + 3 * q)) };
}

INLINE struct gate gelu_erf_at(float v)
{
	float s = 0.5f + 0.5f * hd_erff_all(0.70710678f * v);

	return (struct gate){ v * s, s + v * 0.39894228f * hd_expf_all(-0.5f * v * v) };
}

/* Outputs may share memory with inputs. */
#define GATE(of) \
	HD_CLONES static void of(float *y, const float *a, const float *b, int64_t n) \
	{ \
		_Pragma("omp simd") for (int64_t j = 0; j < n; j++) y[j] = of##_at(a[j]).w * b[j]; \
	} \
	HD_CLONES static void of##_d(float *da, float *db, const float *a, const float *b, const float *dy, int64_t n) \
	{ \
		_Pragma("omp simd") for (int64_t j = 0; j < n; j++) \
		{ \
			struct gate g = of##_at(a[j]); \
			float up = b[j], d = dy[j]; \
\
			da[j] = d * up * g.slope; \
			db[j] = d * g.w; \
		} \
	} \
	HD_CLONES static void of##_values(float *w, float *slope, const float *a, int64_t n) \
	{ \
		_Pragma("omp simd") for (int64_t j = 0; j < n; j++) \
		{ \
			struct gate g = of##_at(a[j]); \
\
			w[j] = g.w; \
			slope[j] = g.slope; \
		} \
	}
GATE(silu)
GATE(gelu_tanh)
GATE(gelu_erf)

enum { VALUES = 1 << 16 };

struct gate_table {
	int made;
	float w[VALUES], slope[VALUES]; /* indexed by the bits of a */
};

static const struct {
	void (*y)(float *y, const float *a, const float *b, int64_t n);
	void (*d)(float *da, float *db, const float *a, const float *b, const float *dy, int64_t n);
	void (*values)(float *w, float *slope, const float *a, int64_t n);
} gates[] = { { silu, silu_d, silu_values },
	      { gelu_tanh, gelu_tanh_d, gelu_tanh_values },
	      { gelu_erf, gelu_erf_d, gelu_erf_values } };

static const struct gate_table *table_of(int64_t gate)
{
	static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
	static struct gate_table tables[HD_LEN(gates)];
	struct gate_table *t = &tables[gate];
	float a[HD_PIECE];

	pthread_mutex_lock(&making);
	for (int from = 0; from < VALUES && !t->made; from += HD_PIECE) {
		for (int j = 0; j < HD_PIECE; j++)
			a[j] = hd_of_bf16((uint16_t)(from + j));
		gates[gate].values(t->w + from, t->slope + from, a, HD_PIECE);
	}
	t->made = 1;
	pthread_mutex_unlock(&making);
	return t;
}

/* Multiplies y, which contains the gate's values, by b. */
HD_CLONES static void times(float *y, const uint16_t *b, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] *= hd_of_bf16(b[j]);
}

/* Computes da and db, which contain the slopes and w on entry. */
HD_CLONES static void times_d(float *da, float *db, const uint16_t *b, const uint16_t *dy, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		float d = hd_of_bf16(dy[j]);

		da[j] = d * hd_of_bf16(b[j]) * da[j];
		db[j] = d * db[j];
	}
}

/* Computes elements i to i + n - 1; n is at most a vector step. look: NULL if the gate's values are computed. */
static void piece(const struct hd_prep *p, const struct gate_table *look, void *const *out, void *const *in, int64_t i,
		  int64_t n)
{
	int64_t t = p->n[14];
	float a[HD_PIECE], b[HD_PIECE], y[HD_PIECE], *to = hd_write_to(out[0], t, i, y);

	if (look) {
		hd_look_up(y, look->w, hd_at(in[0], t, i), n);
		times(y, hd_at(in[1], t, i), n);
	} else {
		gates[p->n[1]].y(to, hd_read(in[0], t, i, n, a), hd_read(in[1], t, i, n, b), n);
	}
	hd_write(out[0], t, i, n, y);
}

static void piece_d(const struct hd_prep *p, const struct gate_table *look, void *const *out, void *const *in,
		    int64_t i, int64_t n)
{
	int64_t t = p->n[14];
	float a[HD_PIECE], b[HD_PIECE], dy[HD_PIECE], da[HD_PIECE], db[HD_PIECE];
	float *to = hd_write_to(out[0], t, i, da), *by = hd_write_to(out[1], t, i, db);

	if (look) {
		hd_look_up(da, look->slope, hd_at(in[0], t, i), n);
		hd_look_up(db, look->w, hd_at(in[0], t, i), n);
		times_d(da, db, hd_at(in[1], t, i), hd_at(in[2], t, i), n);
	} else {
		gates[p->n[1]].d(to, by, hd_read(in[0], t, i, n, a), hd_read(in[1], t, i, n, b),
				 hd_read(in[2], t, i, n, dy), n);
	}
	hd_write(out[0], t, i, n, da);
	hd_write(out[1], t, i, n, db);
}

static void run_pieces(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r,
		       void (*one)(const struct hd_prep *, const struct gate_table *, void *const *, void *const *,
				   int64_t, int64_t))
{
	int64_t n = hd_used(r, p->n[0]), t = p->n[14], step = hd_vector_step(t);
	const struct gate_table *look = t == HD_DTYPE_BF16 && hd_gelu_table_fast() ? table_of(p->n[1]) : NULL;

#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i += step)
		one(p, look, out, in, i, hd_min(step, n - i));
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	run_pieces(p, out, in, r, piece);
}

static void run_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	run_pieces(p, out, in, r, piece_d);
}

const struct hd_kernel hd_cpu_swiglu = { .name = "swiglu", .flags = HD_K_ROWS, .prepare = prepare, .run = run };
const struct hd_kernel hd_cpu_swiglu_d = { .name = "swiglu_d", .flags = HD_K_ROWS, .prepare = prepare_d, .run = run_d };
