/* SPDX-License-Identifier: Apache-2.0
 * Sums and maxima over members, in member order, so that a result does not depend on which member computes it, nor on
 * the transport. Types of 16 bits are added in fp32 and rounded once. It works on blocks that stay in the first-level
 * cache: each input is read once and each output written once, whatever the number of members.
 */
#include <config.h>
#include "engine/comm/transport/sum.h"
#include "engine/device/call.h"
#include "engine/base/err.h"
#include "engine/base/half.h"
#include <string.h> /* also defines __GLIBC__, which WIDE needs */

#define BLOCK 1024 /* elements: 4 kB of fp32 */
#define ALIGNED __attribute__((aligned(64)))
#define LARGE (256 << 10) /* bytes from which all threads help */

/* Compiles each loop once for each vector width of the machines that it may run on. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

/* First input: acc = in; then acc = acc op in.  NaN stays NaN in a maximum, so an overflow is not
 * hidden. */
#define FOLD(name, type, acc_type, load) \
	WIDE static void name(void *restrict to, const void *restrict in, int64_t n, int first, int max) \
	{ \
		acc_type *restrict a = to; \
		const type *restrict x = in; \
\
		if (first) { \
			SIMD for (int64_t i = 0; i < n; i++) a[i] = load(x[i]); \
		} else if (max) { \
			SIMD for (int64_t i = 0; i < n; i++) \
			{ \
				acc_type v = load(x[i]); \
				a[i] = a[i] > v || a[i] != a[i] ? a[i] : v; \
			} \
		} else { \
			SIMD for (int64_t i = 0; i < n; i++) a[i] = (acc_type)(a[i] + load(x[i])); \
		} \
	}
#define SIMD _Pragma("omp simd")
#define SAME(x) (x)

FOLD(fold_f32, float, float, SAME)
FOLD(fold_f64, double, double, SAME)
FOLD(fold_i32, int32_t, int32_t, SAME)
FOLD(fold_i64, int64_t, int64_t, SAME)
/* Sums of integers wrap: signed ones are added as unsigned. */
FOLD(fold_u32, uint32_t, uint32_t, SAME)
FOLD(fold_u64, uint64_t, uint64_t, SAME)
FOLD(fold_u8, uint8_t, uint8_t, SAME)
FOLD(fold_bf16, uint16_t, float, hd_of_bf16)
FOLD(fold_f16, uint16_t, float, hd_of_f16)

WIDE static void round_bf16(void *restrict out, const void *restrict acc, int64_t n)
{
	uint16_t *restrict o = out;
	const float *restrict a = acc;

#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		o[i] = hd_bf16_of(a[i]);
}

WIDE static void round_f16(void *restrict out, const void *restrict acc, int64_t n)
{
	uint16_t *restrict o = out;
	const float *restrict a = acc;

#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		o[i] = hd_f16_of(a[i]);
}

struct summer {
	uint32_t dtype;
	void (*sum)(void *restrict acc, const void *restrict in, int64_t n, int first, int max);
	void (*max)(void *restrict acc, const void *restrict in, int64_t n, int first, int max);
	/* NULL: the accumulator has the type of the output. */
	void (*round)(void *restrict out, const void *restrict acc, int64_t n);
};
static const struct summer summers[] = {
	{ HD_DTYPE_F32, fold_f32, fold_f32, NULL },
	{ HD_DTYPE_F64, fold_f64, fold_f64, NULL },
	{ HD_DTYPE_BF16, fold_bf16, fold_bf16, round_bf16 },
	{ HD_DTYPE_F16, fold_f16, fold_f16, round_f16 },
	{ HD_DTYPE_I32, fold_u32, fold_i32, NULL },
	{ HD_DTYPE_I64, fold_u64, fold_i64, NULL },
	{ HD_DTYPE_U8, fold_u8, fold_u8, NULL },
};

static const struct summer *summer_of(uint32_t dtype)
{
	for (size_t i = 0; i < HD_LEN(summers); i++)
		if (summers[i].dtype == dtype)
			return &summers[i];
	return NULL;
}

int hd_sum_knows(uint32_t dtype)
{
	return summer_of(dtype) != NULL;
}

static void sum_block(const struct summer *s, char *const *outs, int nout, char *const *ins, int nin, int64_t at,
		      int64_t n, int max)
{
	char acc[BLOCK * 8] ALIGNED;
	char done[BLOCK * 2] ALIGNED;
	int size = HD_BITS(s->dtype) / 8;

	for (int j = 0; j < nin; j++)
		(max ? s->max : s->sum)(acc, ins[j] + at * size, n, j == 0, max);
	if (s->round)
		s->round(done, acc, n);
	for (int k = 0; k < nout; k++)
		memcpy(outs[k] + at * size, s->round ? done : acc, (size_t)(n * size));
}

void hd_sum(char *const *outs, int nout, char *const *ins, int nin, int64_t count, uint32_t dtype, int max)
{
	const struct summer *s = summer_of(dtype);
	int64_t blocks = (count + BLOCK - 1) / BLOCK;

#pragma omp parallel for schedule(static) if (hd_comm_size(dtype, count) >= LARGE)
	for (int64_t b = 0; b < blocks; b++)
		sum_block(s, outs, nout, ins, nin, b * BLOCK, b + 1 < blocks ? BLOCK : count - b * BLOCK, max);
}

/* -- sums whose terms are sent in 16 bits ------------------------------------------------------ */
#define UP 1024.0f /* fp16 terms are multiplied by 2^10 before they are sent */

WIDE static void pack_bf16(uint16_t *restrict o, const float *restrict x, int64_t n)
{
	SIMD for (int64_t i = 0; i < n; i++) o[i] = hd_bf16_of(x[i]);
}
WIDE static void pack_f16(uint16_t *restrict o, const float *restrict x, int64_t n)
{
	SIMD for (int64_t i = 0; i < n; i++) o[i] = hd_f16_of(x[i] * UP);
}
WIDE static void add_bf16(float *restrict acc, const uint16_t *restrict x, int64_t n)
{
	SIMD for (int64_t i = 0; i < n; i++) acc[i] += hd_of_bf16(x[i]);
}
WIDE static void add_f16(float *restrict acc, const uint16_t *restrict x, int64_t n)
{
	SIMD for (int64_t i = 0; i < n; i++) acc[i] += hd_of_f16(x[i]) / UP;
}

static void pack(uint16_t *out, const float *in, int64_t n, uint32_t wire)
{
	(wire == HD_DTYPE_BF16 ? pack_bf16 : pack_f16)(out, in, n);
}

static void add(float *acc, const uint16_t *in, int64_t n, uint32_t wire)
{
	(wire == HD_DTYPE_BF16 ? add_bf16 : add_f16)(acc, in, n);
}

/* Calls BODY for blocks of n elements that begin at element `at`. */
#define BLOCKS(count, body) \
	do { \
		int64_t blocks_ = ((count) + BLOCK - 1) / BLOCK; \
		_Pragma("omp parallel for schedule(static) if ((count) * 4 >= LARGE)") for (int64_t b = 0; \
											    b < blocks_; b++) \
		{ \
			int64_t at = b * BLOCK, n = b + 1 < blocks_ ? BLOCK : (count)-at; \
			body; \
		} \
	} while (0)

void hd_to_wire(void *out, const void *in, int64_t count, uint32_t wire)
{
	BLOCKS(count, pack((uint16_t *)out + at, (const float *)in + at, n, wire));
}

static void add_block(float *out, const float *own, const uint16_t *got, int64_t n, uint32_t wire)
{
	if (out != own)
		memcpy(out, own, (size_t)n * sizeof(*out));
	add(out, got, n, wire);
}

void hd_add_wire(void *out, const void *own, const void *got, int64_t count, uint32_t wire)
{
	BLOCKS(count, add_block((float *)out + at, (const float *)own + at, (const uint16_t *)got + at, n, wire));
}

static void ring_block(float *out, char *const *ins, int nin, int64_t at, int64_t n, uint32_t wire)
{
	uint16_t sent[BLOCK] ALIGNED;
	float acc[BLOCK] ALIGNED;

	memcpy(acc, (const float *)(const void *)ins[0] + at, (size_t)n * sizeof(*acc));
	for (int j = 1; j < nin; j++) {
		pack(sent, acc, n, wire);
		memcpy(acc, (const float *)(const void *)ins[j] + at, (size_t)n * sizeof(*acc));
		add(acc, sent, n, wire);
	}
	memcpy(out + at, acc, (size_t)n * sizeof(*acc));
}

void hd_sum_ring(void *out, char *const *ins, int nin, int64_t count, uint32_t wire)
{
	BLOCKS(count, ring_block(out, ins, nin, at, n, wire));
}

static void sent_block(float *out, char *const *ins, int nin, int own, int packed, int64_t at, int64_t n, uint32_t wire)
{
	uint16_t sent[BLOCK] ALIGNED;
	float acc[BLOCK] ALIGNED;

	for (int64_t i = 0; i < n; i++)
		acc[i] = -0.0f; /* adding to -0 leaves every first term unchanged, even -0 */
	for (int j = 0; j < nin; j++) {
		const float *whole = (const float *)(const void *)ins[j] + at;
		const uint16_t *half = (const uint16_t *)(const void *)ins[j] + at;

		if (j != own && !packed)
			pack(sent, whole, n, wire);
		if (j != own) {
			add(acc, packed ? half : sent, n, wire);
			continue;
		}
		for (int64_t i = 0; i < n; i++)
			acc[i] += whole[i];
	}
	memcpy(out + at, acc, (size_t)n * sizeof(*acc));
}

void hd_sum_sent(void *out, char *const *ins, int nin, int own, int packed, int64_t count, uint32_t wire)
{
	BLOCKS(count, sent_block(out, ins, nin, own, packed, at, n, wire));
}

void hd_move(void *out, const void *in, int64_t bytes)
{
	int64_t piece = 64 << 10, pieces = (bytes + piece - 1) / piece;

	if (out == in || bytes <= 0)
		return;
#pragma omp parallel for schedule(static) if (bytes >= LARGE)
	for (int64_t b = 0; b < pieces; b++)
		memcpy((char *)out + b * piece, (const char *)in + b * piece,
		       (size_t)(b + 1 < pieces ? piece : bytes - b * piece));
}
