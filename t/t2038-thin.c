/* SPDX-License-Identifier: Apache-2.0
 * Products of few rows, in each form that this processor supports, against sums in double.  If this broke, generated
 * text and small batches would be wrong.  Typical bugs are a tail of rows, columns or k that is left out or read
 * beyond the matrix.  Others are a piece that overwrites instead of adding, the wrong half of a pair of bf16, and
 * bits that depend on threads.  The forms also run in einsum, forced for shapes whose form is normally chosen by
 * timing.
 */
#include <config.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "t/lib/tap.h"
#include "t/lib/kernel_test.h"
#include "engine/base/half.h"
#include "kernels/cpu/base/pairs.h"
#include "kernels/cpu/tiles/tiles.h"
#include "kernels/cpu/thin/thin.h"

extern const struct hd_kernel hd_cpu_einsum, hd_ref_einsum;

/* -- one thread's part, in each form ----------------------------------------------------------- */
static uint64_t seed = 1;

static float next_number(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (float)(int32_t)(seed >> 33) / 0x1p30f - 1;
}

#if HD_AMX
static void by_tiles(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n)
{
	void *scratch = malloc(hd_thin_tiles_bytes(j->k, j->along_k));

	hd_amx_begin();
	for (int64_t at = 0; at < n; at += HD_THIN_PANEL)
		hd_thin_tiles(j, y + at, y_step, from + at, n - at < HD_THIN_PANEL ? n - at : HD_THIN_PANEL, scratch);
	hd_amx_end();
	free(scratch);
}
#endif

static const struct form {
	const char *name;
	hd_thin_fn *run;
} forms[] = {
	{ "plain", hd_thin_plain },
#if HD_X86
	{ "avx2", hd_thin_avx2 },   { "avx512", hd_thin_avx512 },
#endif
#if HD_AMX
	{ "pairs", hd_thin_pairs }, { "tiles", by_tiles },
#endif
};

static int is_here(const struct form *f)
{
#if HD_X86
	if (!strcmp(f->name, "avx2"))
		return hd_has_avx2();
	if (!strcmp(f->name, "avx512"))
		return hd_has_avx512();
#endif
	if (!strcmp(f->name, "pairs"))
		return hd_pairs_here();
	return strcmp(f->name, "tiles") || hd_amx_allowed();
}

static int of_bf16(const struct form *f)
{
	return !strcmp(f->name, "tiles") || !strcmp(f->name, "pairs");
}

struct sizes {
	int64_t m, n, k;
	int apart; /* elements between rows of b beyond their own */
};

struct thin_case {
	struct sizes s;
	int along_k, low;
	float *rows;
	uint16_t *low_rows, *tiles;
	char *map, *b; /* b ends where memory ends */
	size_t bytes;
	int64_t b_step;
};

static size_t pages(size_t n)
{
	return (n + 4095) / 4096 * 4096;
}

static float of_b(const struct thin_case *c, int64_t k, int64_t n)
{
	int64_t at = c->along_k ? n * c->b_step + k : k * c->b_step + n;

	return c->low ? hd_of_bf16(((uint16_t *)c->b)[at]) : ((float *)c->b)[at];
}

static void make(struct thin_case *c)
{
	int64_t lines = c->along_k ? c->s.n : c->s.k, line = c->along_k ? c->s.k : c->s.n, all;

	c->b_step = line + c->s.apart;
	all = (lines - 1) * c->b_step + line;
	c->bytes = (size_t)all * (c->low ? 2 : 4);
	c->map = mmap(NULL, pages(c->bytes) + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(c->map + pages(c->bytes), 4096, PROT_NONE);
	c->b = c->map + pages(c->bytes) - c->bytes;
	for (int64_t i = 0; i < all; i++) /* the gaps between rows hold NaN, so that a read of them shows */
		if (c->low)
			((uint16_t *)c->b)[i] = i % c->b_step < line ? hd_bf16_of(next_number()) : 0x7fc0;
		else
			((float *)c->b)[i] = i % c->b_step < line ? next_number() : NAN;
	c->rows = malloc((size_t)(c->s.m * c->s.k) * 4);
	c->low_rows = malloc((size_t)(c->s.m * c->s.k) * 2);
	for (int64_t i = 0; i < c->s.m * c->s.k; i++) {
		c->low_rows[i] = hd_bf16_of(next_number());
		c->rows[i] = hd_of_bf16(c->low_rows[i]);
	}
	c->tiles = aligned_alloc(64, (size_t)((c->s.k + 31) / 32 * 1024 * 2));
}

static void release(struct thin_case *c)
{
	munmap(c->map, pages(c->bytes) + 4096);
	free(c->rows);
	free(c->low_rows);
	free(c->tiles);
}

/* Returns the largest error, in units of what rounding each step of a sum may cause. */
static double error_of(const struct thin_case *c, const float *y, int64_t y_step)
{
	double most = 0;

	for (int64_t i = 0; i < c->s.m; i++)
		for (int64_t n = 0; n < c->s.n; n++) {
			double sum = 0, size = 0, off;

			for (int64_t k = 0; k < c->s.k; k++) {
				double x = (double)c->rows[i * c->s.k + k] * of_b(c, k, n);

				sum += x;
				size += fabs(x);
			}
			off = fabs(y[i * y_step + n] - sum) / (0x1p-24 * (double)(c->s.k + 2) * size);
			most = off <= most ? most : off == off ? off : INFINITY;
		}
	return most;
}

static void check_form(const struct form *f, struct sizes s, int along_k, int low)
{
	struct thin_case c = { .s = s, .along_k = along_k, .low = low };
	struct hd_thin_job j = { .m = s.m, .k = s.k, .row_step = s.k, .low = low, .along_k = along_k };
	int64_t y_step = s.n + 3, half = s.n / 2 / HD_THIN_UNIT * HD_THIN_UNIT;
	float *y = calloc((size_t)(s.m * y_step), 4), *parts = calloc((size_t)(s.m * y_step), 4);

	make(&c);
	j.rows = c.rows;
	j.low_rows = c.low_rows;
	j.b = c.b;
	j.b_step = c.b_step;
#if HD_AMX
	if (!strcmp(f->name, "tiles")) {
		hd_thin_tiles_pack(c.tiles, &j, c.low_rows, s.k);
		j.tiles = c.tiles;
	}
#endif
	f->run(&j, y, y_step, 0, s.n);
	ok(error_of(&c, y, y_step) <= 1, "%s, b along %s in %s: %d rows, %d columns, k %d, %d apart", f->name,
	   along_k ? "k" : "n", low ? "bf16" : "fp32", (int)s.m, (int)s.n, (int)s.k, s.apart);
	f->run(&j, parts, y_step, 0, half);
	f->run(&j, parts + half, y_step, half, s.n - half);
	ok(!memcmp(y, parts, (size_t)(s.m * y_step) * 4),
	   "... two parts yield the same bits, with nothing written beyond them");
	release(&c);
	free(y);
	free(parts);
}

/* -- whole products ---------------------------------------------------------------------------- */
static const struct product {
	const char *what, *a, *b, *c, *bias;
	int64_t terms;
	int acc;
} products[] = {
	{ "one row, [in,out]", "seq=1,in=331", "in=331,out=770", "seq=1,out=770", "out=770", 331, 1 },
	{ "one row, [out,in]", "seq=1,in=331", "out=770,in=331", "seq=1,out=770", "out=770", 331, 0 },
	{ "one row, more columns than a piece has", "seq=1,in=67", "in=67,out=5003", "seq=1,out=5003", NULL, 67, 0 },
	{ "3 rows, [in,out]", "seq=3,in=500", "in=500,out=3083", "seq=3,out=3083", "out=3083", 500, 0 },
	{ "4 rows, fewer k than pieces hold", "seq=4,in=65", "in=65,out=1400", "seq=4,out=1400", NULL, 65, 1 },
	{ "16 rows, [in,out]", "seq=16,in=257", "in=257,out=1091", "seq=16,out=1091", "out=1091", 257, 0 },
	{ "16 rows, [out,in]", "seq=16,in=257", "out=1091,in=257", "seq=16,out=1091", NULL, 257, 1 },
	{ "13 rows, roles swapped", "out=700,in=128", "seq=13,in=128", "seq=13,out=700", "out=700", 128, 0 },
	{ "32 rows of two dims", "batch=8,seq=4,in=300", "in=300,out=230", "batch=8,seq=4,out=230", NULL, 300, 1 },
	{ "a slice of the heads", "seq=9,in=256", "head=4@4/12,hd=96,in=256", "seq=9,head=4@4/12,hd=96",
	  "head=4@4/12,hd=96", 256, 0 },
};

static struct kt *einsum(const struct product *p, uint32_t from, uint32_t to)
{
	struct kt *t = kt_new(&hd_cpu_einsum, &hd_ref_einsum, p->bias ? "bias=1" : "");

	kt_reals(kt_in(t, from, p->a), -1, 1);
	kt_reals(kt_in(t, from, p->b), -1, 1);
	if (p->bias)
		kt_reals(kt_in(t, HD_DTYPE_F32, p->bias), -1, 1);
	kt_reals(kt_out(t, to, p->c), -1, 1);
	t->run.acc = p->acc;
	kt_prepare(t, KT_CPU);
	kt_pick("ab/own:thin");
	return t;
}

static void check_product(const struct product *p, uint32_t from, uint32_t to)
{
	struct kt *t = einsum(p, from, to);
	void *one = NULL;

	KT_CHECK(t, 2 * kt_tol(to, p->terms), "%s, %s to %s", p->what, hd_dtype_name(from), hd_dtype_name(to));
	kt_free(t);
	for (int threads = 1; threads <= 5; threads += 2) {
		omp_set_num_threads(threads);
		t = einsum(p, from, to);
		kt_run(t, KT_CPU);
		ok(!one || !memcmp(one, t->out[0]->mem[KT_CPU], t->out[0]->bytes[KT_CPU]),
		   "... %d threads yield the bits of one", threads);
		if (!one)
			one = memcpy(malloc(t->out[0]->bytes[KT_CPU]), t->out[0]->mem[KT_CPU],
				     t->out[0]->bytes[KT_CPU]);
		kt_free(t);
	}
	free(one);
}

int main(void)
{
	static const struct sizes sizes[] = {
		{ 1, 768, 768, 0 },  { 1, 1091, 70, 5 }, { 2, 130, 97, 0 },   { 3, 71, 301, 1 },  { 4, 64, 64, 0 },
		{ 5, 200, 65, 0 },   { 8, 96, 128, 0 },  { 9, 203, 131, 7 },  { 15, 67, 33, 0 },  { 16, 2111, 96, 0 },
		{ 16, 129, 770, 3 }, { 17, 77, 300, 0 }, { 31, 1030, 40, 1 }, { 32, 320, 64, 0 },
	};
	struct hd_err err = { 0 };

	hd_device_cpu()->open(1, &err);
	for (size_t f = 0; f < HD_LEN(forms); f++)
		for (size_t i = 0; i < HD_LEN(sizes) && is_here(&forms[f]); i++)
			for (int along_k = 0; along_k < 2; along_k++)
				for (int low = of_bf16(&forms[f]); low < 2; low++)
					check_form(&forms[f], sizes[i], along_k, low);
	for (size_t i = 0; i < HD_LEN(products); i++) {
		check_product(&products[i], HD_DTYPE_F32, HD_DTYPE_F32);
		check_product(&products[i], HD_DTYPE_BF16, HD_DTYPE_F32);
		check_product(&products[i], HD_DTYPE_BF16, HD_DTYPE_BF16);
	}
	return done();
}
