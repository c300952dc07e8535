/* SPDX-License-Identifier: Apache-2.0
 * Casts to and from 8 bits are compared with tables of all numbers.  Each byte has the value that its type defines,
 * and survives the round trip.  Numbers halfway between two neighbours, and just below and above, go to the right one.
 *  On the cpu, the reference and cuda.  If this broke, 8-bit values would be wrong or differ between devices.
 */
#include <config.h>
#include "t/lib/kernel_test.h"
#include "t/lib/tap.h"
#include <math.h>
#include <string.h>

struct type {
	uint32_t dtype;
	const char *name;
	int m, bias, largest; /* m 0: int8 */
};
static const struct type types[] = { { HD_DTYPE_I8, "i8", 0, 0, 127 },
				     { HD_DTYPE_E4M3, "e4m3", 3, 7, 0x7e },
				     { HD_DTYPE_E5M2, "e5m2", 2, 15, 0x7b } };

/* Returns the k-th number from 0 up, by the type's definition. */
static double number(const struct type *t, int k)
{
	int e = t->m ? k >> t->m : 0, f = k & ((1 << t->m) - 1);

	if (!t->m)
		return k;
	return e ? ldexp(1 + ldexp(f, -t->m), e - t->bias) : ldexp(f, 1 - t->bias - t->m);
}

static void cast(int which, uint32_t from, uint32_t to, const void *x, void *y, int64_t n)
{
	struct kt *t = KT_NEW(cast, "");
	char spec[32];
	struct kt_buf *in, *out;

	snprintf(spec, sizeof(spec), "a=%d", (int)n);
	in = kt_in(t, from, spec), out = kt_out(t, to, spec);
	in->view[KT_REF].dtype = from, out->view[KT_REF].dtype = to; /* the reference too: no doubles */
	memcpy(in->mem[which], x, (size_t)(n * HD_BITS(from) / 8));
	if (!ok(kt_run(t, which) >= 0, "the cast runs: %s", t->err.text))
		memset(y, 0, (size_t)(n * HD_BITS(to) / 8));
	else
		memcpy(y, out->mem[which], (size_t)(n * HD_BITS(to) / 8));
	kt_free(t);
}

static void bytes(int which, const struct type *t)
{
	uint8_t all[256], back[256];
	float f[256];
	int wrong = 0, changed = 0;

	for (int i = 0; i < 256; i++)
		all[i] = (uint8_t)i;
	cast(which, t->dtype, HD_DTYPE_F32, all, f, 256);
	cast(which, HD_DTYPE_F32, t->dtype, f, back, 256);
	for (int i = 0; i < 256; i++) {
		int k = t->m ? i & 0x7f : i < 128 ? i : 256 - i;
		double want = number(t, k) * (t->m ? (i & 0x80 ? -1 : 1) : (int8_t)i < 0 ? -1 : 1);

		if (t->m && k > t->largest) { /* infinity, NaN */
			wrong += t->m == 2 && k == 0x7c ? !isinf(f[i]) : !isnan(f[i]);
			changed += isnan(f[i]) ? (back[i] & 0x7f) != 0x7f : (back[i] & 0x7f) != t->largest;
			continue;
		}
		wrong += (double)f[i] != want || (want == 0 && t->m && !signbit(f[i]) != !(i & 0x80));
		changed += back[i] != all[i];
	}
	ok(!wrong, "%s: all 256 bytes have their defined values", t->name);
	ok(!changed, "%s: and survive the round trip", t->name);
}

/* Between neighbours k and k + 1 the middle goes to the even one, all else to the nearer one. */
static void middles(int which, const struct type *t, int negative)
{
	float x[127 * 3 + 4];
	uint8_t y[127 * 3 + 4], want[127 * 3 + 4];
	int n = 0, wrong = 0;

	for (int k = 0; k < t->largest; k++) {
		float middle = (float)((number(t, k) + number(t, k + 1)) / 2);

		x[n] = middle, want[n++] = (uint8_t)(k + (k & 1));
		x[n] = nextafterf(middle, 0), want[n++] = (uint8_t)k;
		x[n] = nextafterf(middle, INFINITY), want[n++] = (uint8_t)(k + 1);
	}
	x[n] = (float)number(t, t->largest) * 1.5f, want[n++] = (uint8_t)t->largest;
	x[n] = INFINITY, want[n++] = (uint8_t)t->largest;
	for (int i = 0; negative && i < n; i++) {
		x[i] = -x[i];
		want[i] = (uint8_t)(t->m ? want[i] | 0x80 : i < n - 2 ? -want[i] : -128);
	}
	cast(which, HD_DTYPE_F32, t->dtype, x, y, n);
	for (int i = 0; i < n; i++)
		wrong += y[i] != want[i];
	ok(!wrong, "%s: %d numbers %s 0 go to the nearest", t->name, n, negative ? "below" : "above");
}

static void not_numbers(int which, const struct type *t)
{
	float x[2] = { NAN, -NAN };
	uint8_t y[2];

	cast(which, HD_DTYPE_F32, t->dtype, x, y, 2);
	ok(t->m ? (y[0] & 0x7f) == 0x7f && (y[1] & 0x7f) == 0x7f : !y[0] && !y[1],
	   "%s: NaN stays NaN, or becomes 0 in integers", t->name);
}

int main(void)
{
#ifdef KT_CUDA
	static const char *const devices[] = { "cuda" };
#else
	static const char *const devices[] = { "cpu", "ref" }; /* KT_CPU, KT_REF */
#endif

	for (int i = 0; i < (int)HD_LEN(devices); i++)
		for (size_t k = 0; k < HD_LEN(types); k++) {
			note("%s, %s", devices[i], types[k].name);
			bytes(i, &types[k]);
			middles(i, &types[k], 0);
			middles(i, &types[k], 1);
			not_numbers(i, &types[k]);
		}
	return done();
}
