/* SPDX-License-Identifier: Apache-2.0
 * Products with a large vocabulary.  The library's fast implementations of them need scratchpads of hundreds of
 * megabytes or dense rows.  If this broke, only plain loops would remain, and a step would take minutes.
 */
#include <config.h>
#include <stdlib.h>
#include <string.h>
#include "t/lib/kernel_test.h"
#include "t/lib/tap.h"
#include "kernels/cpu/matmul/matmul.h"

/* Returns the shape of c = a times b transposed, as logits are computed. */
static struct hd_mm_shape logits(int64_t m, int64_t n, int64_t k)
{
	return (struct hd_mm_shape){ .ndim = 3,
				     .dtype = { HD_DTYPE_BF16, HD_DTYPE_BF16, HD_DTYPE_BF16 },
				     .n = { m, n, k },
				     .stride = { { k, 0, 1 }, { 0, k, 1 }, { n, 1, 0 } } };
}

/* Returns what autotune picks for one product, as "key value\n", or NULL if the library has no implementation. */
static char *picked(const struct hd_mm_shape *s, const char *known, const struct hd_exchange *x)
{
	struct hd_mm *mm = hd_mm_get(s, 1);
	char *text = mm ? hd_mm_autotune(known, x) : NULL;

	hd_mm_put(mm);
	return text;
}

static void timed(void)
{
	const struct hd_mm_shape s = logits(1024, 50304, 768), next = logits(1024, 50303, 768);
	char *text = picked(&s, "", NULL), *known, *again;

	if (!text) {
		skip("no products of bf16 here");
		return;
	}
	ok(strstr(text, "n=1024,50304,768") && !strstr(text, "/ref"), "a fast implementation computes logits");
	for (char *at = text; (at = strstr(at, "50304")); at += 5)
		at[4] = '3';
	known = hd_format("%.*s ab/ref:any\n", (int)strcspn(text, " "), text);
	again = picked(&next, known, NULL);
	ok(!strncmp(again, known, strcspn(known, " ")) && !strstr(again, "/ref"),
	   "an old cache does not bring plain loops back");
	free(text);
	free(known);
	free(again);
}

static uint16_t small(int64_t i, int64_t k)
{
	static const uint16_t bf16[] = { 0xc000, 0xbf80, 0, 0x3f80, 0x4000 }; /* -2 to 2 */

	return bf16[(i * 7 + k * 3 + i / 5 % 3) % 5];
}

static int value(uint16_t x)
{
	return x == 0xc000 ? -2 : x == 0xbf80 ? -1 : !x ? 0 : x == 0x3f80 ? 1 : 2;
}

static float of_bf16(uint16_t x)
{
	uint32_t u = (uint32_t)x << 16;
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

/* Returns how many elements are wrong if c holds `times` products.  Sums of 16 products below 5 are exact in bf16. */
static int64_t wrong(const struct hd_mm_shape *s, const uint16_t *c, int times)
{
	int64_t bad = 0;

	for (int64_t i = 0; i < s->n[0]; i += 1 + i % 3)
		for (int64_t j = i % 7; j < s->n[1]; j += 7) {
			int sum = 0;

			for (int64_t k = 0; k < s->n[2]; k++)
				sum += value(small(i, k)) * value(small(j, k));
			bad += of_bf16(c[i * s->n[1] + j]) != (float)(times * sum);
		}
	return bad;
}

static uint16_t *matrix(int64_t rows, int64_t cols)
{
	uint16_t *x = malloc((size_t)(rows * cols) * sizeof(*x));

	for (int64_t i = 0; i < rows; i++)
		for (int64_t k = 0; k < cols; k++)
			x[i * cols + k] = small(i, k);
	return x;
}

/* gemm:jit keeps the sums in fp32: 103 MB of them. */
static void in_pieces(void)
{
	const struct hd_mm_shape s = logits(512, 50303, 16);
	uint16_t *a = matrix(s.n[0], s.n[2]), *b = matrix(s.n[1], s.n[2]), *c = malloc((size_t)(s.n[0] * s.n[1]) * 2);
	struct hd_mm *mm = hd_mm_get(&s, 3);

	if (mm) {
		kt_pick("ab/gemm:jit");
		is_int(hd_mm_run(mm, 0, c, a, b, NULL), 0, "a product that needs more scratch than the limit runs");
		is_int(wrong(&s, c, 1), 0, "... is right, in its last columns too");
		hd_mm_run(mm, 1, c, a, b, NULL);
		is_int(wrong(&s, c, 2), 0, "... and adds to its output");
	} else {
		skip("no products of bf16 here");
	}
	hd_mm_put(mm);
	free(a);
	free(b);
	free(c);
}

int main(void)
{
	struct hd_err err = { 0 };

	hd_device_cpu()->open(2, &err);
	timed();
	in_pieces();
	return done();
}
