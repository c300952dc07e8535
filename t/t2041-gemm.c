/* SPDX-License-Identifier: Apache-2.0
 * Products with vectors, forced for every shape and for every vector width, against ref and plain loops.  If this
 * broke, linear layers would be wrong.  Typical bugs are a panel whose tail is not zero, a store of a packed vector that
 * destroys what was packed before, a part of k that overwrites instead of adding, a bias that is added once per part, a
 * share of rows or columns that two threads compute, and scratch that is smaller than what is used.
 */
#include <config.h>
#include <math.h>
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/gemm/gemm.h"
#define PICK "ab/own:gemm"
#include "t/lib/product_test.h"

#if HD_X86
/* The vectors of AVX-512, in code for AVX2. */
#pragma GCC diagnostic ignored "-Wpsabi"
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define HD_VL 16
#define HD_MR 12
#define HD_NV 2
#define HD_GEMM_ISA wide
#include "kernels/cpu/gemm/micro.h"
#pragma GCC pop_options
#endif

/* ---- every width, by plain loops ------------------------------------------------------------- */
enum { GUARD = 64 };

struct loops { /* a product of matrices; along: an operand is contiguous along k, or along its rows or columns */
	struct hd_mm_shape s;
	float *a, *b, *c, *from, *bias;
	int a_along, b_along;
};

static float *numbers(int64_t n, int salt)
{
	float *x = malloc((size_t)n * sizeof(*x));

	for (int64_t i = 0; i < n; i++)
		x[i] = (float)((i * 7919 + salt) % 1009) / 504.5f - 1;
	return x;
}

static void set_stride(struct hd_mm_shape *s, int o, int64_t m, int64_t n, int64_t k)
{
	s->stride[o][0] = m, s->stride[o][1] = n, s->stride[o][2] = k;
	s->dtype[o] = HD_DTYPE_F32;
}

static void begin(struct loops *l, int64_t m, int64_t n, int64_t k, int layout)
{
	*l = (struct loops){ .s = { .ndim = 3, .n = { m, n, k } }, .a_along = layout & 1, .b_along = layout >> 1 & 1 };
	set_stride(&l->s, HD_MM_A, l->a_along ? k : 1, 0, l->a_along ? 1 : m);
	set_stride(&l->s, HD_MM_B, 0, l->b_along ? k : 1, l->b_along ? 1 : n);
	set_stride(&l->s, HD_MM_C, n, 1, 0);
	set_stride(&l->s, HD_MM_BIAS, 0, 1, 0);
	l->a = numbers(m * k, 1), l->b = numbers(k * n, 2), l->c = numbers(m * n, 3), l->from = numbers(m * n, 4);
	l->bias = numbers(n, 5);
}

static void end(struct loops *l)
{
	free(l->a), free(l->b), free(l->c), free(l->from), free(l->bias);
}

/* Returns the largest error, in units of what rounding of so many terms may cause. */
static double worst(const struct loops *l, int adds)
{
	const int64_t *n = l->s.n, *a = l->s.stride[HD_MM_A], *b = l->s.stride[HD_MM_B];
	double most = 0;

	for (int64_t i = 0; i < n[0]; i++)
		for (int64_t j = 0; j < n[1]; j++) {
			double right = adds ? (double)l->from[i * n[1] + j] + l->bias[j] : 0, size = fabs(right);

			for (int64_t k = 0; k < n[2]; k++) {
				double x = (double)l->a[i * a[0] + k * a[2]] * l->b[j * b[1] + k * b[2]];

				right += x;
				size += fabs(x);
			}
			most = fmax(most, fabs(right - l->c[i * n[1] + j]) / (size * 0x1p-24 * (double)(n[2] + 2)));
		}
	return most;
}

/* Returns scratch that begins at a line, with a guard behind it. */
static char *guarded(int64_t bytes)
{
	char *mem = aligned_alloc(64, (size_t)hd_up(bytes + GUARD, 64));

	memset(mem, 0x7f, (size_t)(bytes + GUARD)); /* large numbers: what is read but was not packed shows */
	return mem;
}

static int is_whole(const char *mem, int64_t bytes)
{
	for (int i = 0; i < GUARD; i++)
		if (mem[bytes + i] != 0x7f)
			return 0;
	return 1;
}

static void check_width(const struct hd_gemm_isa *isa, const char *name, int64_t m, int64_t n, int64_t k, int layout)
{
	struct loops l;

	begin(&l, m, n, k, layout);
	for (int adds = 0; adds < 2; adds++) {
		struct hd_gemm *g = hd_gemm_create(&l.s, 1, isa);
		struct hd_mm_operands o = { l.c, adds ? l.from : NULL, l.b, adds ? l.bias : NULL };
		char *mem = g ? guarded(hd_gemm_taken(g)) : NULL;
		double error;

		if (g)
			hd_gemm_run(g, mem, l.a, &o);
		error = worst(&l, adds);
		ok(g && error <= 1, "%s, %lld x %lld x %lld, layout %d%s: %.2f of the rounding", name, (long long)m,
		   (long long)n, (long long)k, layout, adds ? ", with addend and bias" : "", error);
		ok(g && is_whole(mem, hd_gemm_taken(g)), "... and nothing is written behind its scratch");
		free(mem);
		hd_gemm_destroy(g);
	}
	end(&l);
}

static void check_widths(void)
{
	const struct {
		const struct hd_gemm_isa *isa;
		const char *name;
	} widths[] = {
		{ &hd_gemm_plain, "4 floats" },
#if HD_X86
		{ __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &wide : NULL, "16 floats" },
#endif
	};
	static const int64_t sizes[][3] = {
		{ 48, 64, 96 }, { 49, 65, 97 }, { 13, 17, 8 }, { 205, 50, 391 }, { 37, 1030, 200 }, { 8, 33, 777 },
	};

	for (int threads = 1; threads <= 3; threads += 2) {
		omp_set_num_threads(threads);
		for (size_t w = 0; w < HD_LEN(widths) && widths[w].isa; w++)
			for (size_t i = 0; i < HD_LEN(sizes); i++)
				for (int layout = 0; layout < 4; layout++)
					check_width(widths[w].isa, widths[w].name, sizes[i][0], sizes[i][1],
						    sizes[i][2], layout);
	}
}

/* ---- sizes known at run time ----------------------------------------------------------------- */

/* The scratch for the largest product suffices for every smaller one, even where it is cut differently. */
static void check_run_time_sizes(void)
{
	for (int threads = 1; threads <= 5; threads += 2)
		for (int layout = 0; layout < 4; layout++) {
			struct loops l;
			int right = 1, whole = 1;
			int64_t bytes;
			char *mem;

			omp_set_num_threads(threads);
			begin(&l, 300, 70, 450, layout);
			bytes = hd_gemm_most_bytes(&l.s, threads);
			mem = guarded(bytes);
			end(&l);
			for (int64_t m = 1; m <= 300; m += m < 30 ? 1 : 53)
				for (int64_t k = 1; k <= 450; k += k < 3 ? 1 : 149) {
					begin(&l, m, 1 + m % 70, k, layout);
					hd_gemm_run_shape(&l.s, mem, l.a,
							  &(struct hd_mm_operands){ l.c, NULL, l.b, NULL });
					right &= worst(&l, 0) <= 1;
					whole &= is_whole(mem, bytes);
					end(&l);
				}
			ok(right, "smaller products in the scratch of the largest, layout %d, %d threads", layout,
			   threads);
			ok(whole, "... which suffices");
			free(mem);
		}
}

int main(void)
{
	struct hd_err err = { 0 };

	hd_device_cpu()->open(1, &err);
	for (size_t i = 0; i < HD_LEN(products); i++) {
		/* What is large for the sake of tiles takes ref long, and has no more blocks than others here. */
		if (strstr(products[i].what, "blocks of rows") || strstr(products[i].what, "past the caches"))
			continue;
		check_product(&products[i], HD_DTYPE_F32, HD_DTYPE_F32);
		check_product(&products[i], HD_DTYPE_BF16, HD_DTYPE_F32);
		check_product(&products[i], HD_DTYPE_BF16, HD_DTYPE_BF16);
	}
	check_several(HD_DTYPE_F32);
	check_several(HD_DTYPE_BF16);
	check_widths();
	check_run_time_sizes();
	return done();
}
