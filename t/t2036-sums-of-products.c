/* SPDX-License-Identifier: Apache-2.0
 * Products that add to one result, as in the gradient of the common input of queries, keys and values.  A GPU may
 * compute them in one launch, which rounds the sum once.  If this broke, such gradients would be wrong.  Typical
 * bugs are a term that is left out or added twice, and a partial tile of the depth.  A launch may also overwrite an
 * operand of a later product.
 */
#include <config.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "t/lib/tap.h"
#include "t/lib/kernel_test.h"

enum { MOST = 4 };
enum { FRESH, BESIDE, ADDED }; /* c is overwritten; so too, with an addend elsewhere; or c's old value is the addend */

static const struct sum {
	const char *what, *c;
	int from, one,
		orders; /* one: can be one launch; orders: whether to run all simulated orders, which takes long */
	const char *a[MOST], *b[MOST];
} sums[] = {
	{ "queries, keys and values, weights [in,out]",
	  "batch=2,seq=65,embed=24",
	  FRESH,
	  1,
	  KT_ORDERS,
	  { "batch=2,seq=65,heads=3,hd=24", "batch=2,seq=65,kv=1,hd=24", "batch=2,seq=65,kv=1,hd=24" },
	  { "embed=24,heads=3,hd=24", "embed=24,kv=1,hd=24", "embed=24,kv=1,hd=24" } },
	{ "two, weights [out,in]",
	  "seq=20,embed=136",
	  FRESH,
	  1,
	  KT_ORDERS,
	  { "seq=20,heads=3,hd=8", "seq=20,kv=1,hd=8" },
	  { "heads=3,hd=8,embed=136", "kv=1,hd=8,embed=136" } },
	{ "gate and up, with an addend",
	  "seq=20,embed=16",
	  BESIDE,
	  1,
	  1,
	  { "seq=20,mlp=72", "seq=20,mlp=72" },
	  { "mlp=72,embed=16", "mlp=72,embed=16" } },
	{ "four, added to the old value",
	  "seq=20,embed=16",
	  ADDED,
	  1,
	  1,
	  { "seq=20,p=64", "seq=20,q=8", "seq=20,r=128", "seq=20,s=72" },
	  { "embed=16,p=64", "embed=16,q=8", "embed=16,r=128", "embed=16,s=72" } },
	{ "weights with different layouts",
	  "seq=20,embed=16",
	  FRESH,
	  0,
	  1,
	  { "seq=20,p=16", "seq=20,q=16" },
	  { "embed=16,p=16", "q=16,embed=16" } },
	{ "a depth that is no multiple of a piece",
	  "seq=20,embed=16",
	  FRESH,
	  0,
	  1,
	  { "seq=20,p=16", "seq=20,q=12" },
	  { "embed=16,p=16", "embed=16,q=12" } },
};

static float of_bf16(uint16_t x)
{
	uint32_t u = (uint32_t)x << 16;
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

static uint16_t to_bf16(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Builds the products, each but the first in place of its addend. */
static int build(const struct sum *s, struct kt **t)
{
	int n = 0;

	for (; n < MOST && s->a[n]; n++) {
		int add = n || s->from == BESIDE;
		struct kt_buf *c, *x;

		t[n] = KT_NEW(einsum, add ? "add=1" : "");
		t[n]->seed += (uint64_t)n;
		kt_ints(kt_in(t[n], HD_DTYPE_BF16, s->a[n]), -12, 12);
		kt_ints(kt_in(t[n], HD_DTYPE_BF16, s->b[n]), -12, 12);
		x = add ? kt_in(t[n], HD_DTYPE_BF16, s->c) : NULL;
		c = kt_out(t[n], HD_DTYPE_BF16, s->c);
		kt_ints(x && !n ? x : c, -99, 99);
		if (n)
			kt_inplace(c, x);
		t[n]->run.acc = !n && s->from == ADDED;
	}
	return n;
}

/* Returns the sum in double precision.  *high: the largest value after any of the products. */
static const double *expected(struct kt **t, int n, double *high)
{
	const double *c = NULL;

	*high = 0;
	for (int i = 0; i < n; i++) {
		if (i)
			memcpy(t[i]->in[2]->mem[KT_REF], c, t[i]->in[2]->bytes[KT_REF]);
		kt_run(t[i], KT_REF);
		c = (i ? t[i]->in[2] : t[i]->out[0])->mem[KT_REF];
		for (int64_t k = 0; k < t[i]->out[0]->count; k++)
			*high = fmax(*high, fabs(c[k]));
	}
	return c;
}

/* Returns how many elements are wrong.  A sum that is rounded once is nearest to the true one, since sums of these
 * integers are exact. */
static int64_t wrong(const uint16_t *c, const double *right, int64_t count, int once, double most)
{
	int64_t bad = 0;

	for (int64_t k = 0; k < count; k++)
		bad += once ? c[k] != to_bf16((float)right[k]) : !(fabs(of_bf16(c[k]) - right[k]) <= most);
	return bad;
}

#ifdef KT_CUDA
static char *gather(void *ctx, const char *wanted)
{
	(void)ctx;
	return hd_strdup(wanted);
}

/* Returns the timed choices, but for sums the choice in ctx. */
static char *bcast(void *ctx, const char *text)
{
	char *forced = hd_strdup(text);

	for (char *line = forced; *line; line += strcspn(line, "\n") + 1) {
		char *value = line + strcspn(line, " \n") + 1;

		if (!strncmp(line, "chain1", 6)) /* "0/3": of two kernels the second, if there are two */
			value[0] = *(const char *)ctx < value[2] ? *(const char *)ctx : (char)(value[2] - 1);
	}
	return forced;
}

static long long summed(const char *one)
{
	const struct hd_exchange x = { (void *)(uintptr_t)one, gather, bcast };
	char *text;
	const char *at;
	long long n;

	free(kt_device->autotune("", &x));
	text = kt_device->autotune("", &x);
	at = strstr(text, "einsum.summed ");
	n = at ? atoll(at + strlen("einsum.summed ")) : -1;
	free(text);
	return n;
}

static void *there(const struct kt_buf *b, struct hd_err *err)
{
	void *p = kt_device->alloc(b->bytes[KT_CPU], err);

	if (p)
		kt_device->put(p, b->mem[KT_CPU], b->bytes[KT_CPU]);
	return p;
}

static void on_device(const struct sum *s, struct kt **t, int n, const char *one)
{
	const struct hd_kernel *k = t[0]->kernel[KT_CPU];
	struct hd_joint l[MOST];
	struct hd_run run = t[0]->run;
	struct hd_err err = { 0 };
	void *in[MOST][3] = { { NULL } }, *c = there(t[0]->out[0], &err), *joined;
	uint16_t *got = hd_alloc(t[0]->out[0]->bytes[KT_CPU]);
	double high;
	const double *right = expected(t, n, &high);

	for (int i = 0; i < n; i++) {
		kt_prepare(t[i], KT_CPU);
		for (int o = 0; o < t[i]->nin; o++)
			in[i][o] = i && o == 2 ? c : there(t[i]->in[o], &err);
		l[i] = (struct hd_joint){ &t[i]->prep[KT_CPU], &c, in[i], t[i]->run.acc };
	}
	joined = k->join(l, (size_t)n);
	ok(!joined == !s->one, "%s: %s", s->what, s->one ? "can be one launch" : "cannot be one launch");
	if (joined) {
		is_int(summed(one), *one != '0' ? n : 0,
		       *one != '0' ? "... and the sums share launches" : "... but they do not");
		kt_in_orders(s->orders > 1);
		kt_device->begin(&run);
		k->run_joined(joined, &run);
		ok(kt_device->finish(&err) == 0, "... they run%s", err.text);
		kt_device->get(got, c, t[0]->out[0]->bytes[KT_CPU]);
		is_int(wrong(got, right, t[0]->out[0]->count, *one != '0', n * high * 0x1p-9), 0,
		       *one != '0' ? "... rounded once" : "... rounded each time");
		k->unjoin(joined);
	}
	for (int i = 0; i < n; i++)
		for (int o = 0; o < t[i]->nin; o++)
			if (!i || o < 2)
				kt_device->free(in[i][o]);
	kt_device->free(c);
	free(got);
}

/* If a result overlaps an operand of a later product, that product reads what the first has stored there. */
static void overlaps(void)
{
	struct kt *t[MOST];
	int n = build(&sums[3], t);
	struct hd_joint l[MOST];
	struct hd_err err = { 0 };
	void *in[MOST][3], *c = kt_device->alloc(1 << 16, &err), *x = kt_device->alloc(1 << 16, &err);

	for (int i = 0; i < n; i++) {
		kt_prepare(t[i], KT_CPU);
		in[i][0] = i == n - 1 ? (char *)c + 16 : x;
		in[i][1] = x;
		in[i][2] = c;
		l[i] = (struct hd_joint){ &t[i]->prep[KT_CPU], &c, in[i], 0 };
	}
	ok(!t[0]->kernel[KT_CPU]->join(l + 2, 2), "products whose result overlaps an operand cannot be one launch");
	for (int i = 0; i < n; i++)
		kt_free(t[i]);
	kt_device->free(c);
	kt_device->free(x);
}
#else
static void one_by_one(const struct sum *s, struct kt **t, int n)
{
	double high;
	const double *right = expected(t, n, &high);
	struct kt_buf *c = NULL;

	for (int i = 0; i < n; i++) {
		if (c)
			memcpy(t[i]->in[2]->mem[KT_CPU], c->mem[KT_CPU], c->bytes[KT_CPU]);
		kt_run(t[i], KT_CPU);
		c = i ? t[i]->in[2] : t[i]->out[0];
	}
	is_int(wrong(c->mem[KT_CPU], right, c->count, 0, n * high * 0x1p-9), 0, s->what);
}
#endif

static void check(const struct sum *s, const char *one)
{
	struct kt *t[MOST];
	int n = build(s, t);

#ifdef KT_CUDA
	on_device(s, t, n, one);
#else
	(void)one;
	one_by_one(s, t, n);
#endif
	for (int i = 0; i < n; i++)
		kt_free(t[i]);
}

int main(void)
{
	struct hd_err err = { 0 };

	ok(hd_device_cpu()->open(2, &err) == 0, "the device is opened%s", err.text);
#ifdef KT_CUDA
	setenv("HEDDLE_WGMMA", "0", 1);
#endif
	for (size_t i = 0; i < HD_LEN(sums); i++)
		check(&sums[i], "1");
#ifdef KT_CUDA
	check(&sums[0], "0");
	overlaps();
	unsetenv("HEDDLE_WGMMA"); /* by groups of warps, where the module has code of 9.0a */
	check(&sums[0], "2");
	check(&sums[1], "2");
	check(&sums[3], "2");
#endif
	return done();
}
