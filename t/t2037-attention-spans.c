/* SPDX-License-Identifier: Apache-2.0
 * Attention over sequences longer than the span that is packed at a time.  If this broke, long sequences would train
 * on wrong attention or run out of memory.  Typical bugs are a sum that restarts with each span or is not reset for
 * the next head, and scratch memory that grows with the sequence.
 */
#include <config.h>
#include "t/lib/kernel_test.h"
#include "t/lib/tap.h"
#include <omp.h>
#include <string.h>

#define ROUND 0x1p-8 /* rounding to bf16 */

extern const struct hd_kernel hd_cpu_attention, hd_cpu_attention_d, hd_ref_attention, hd_ref_attention_d;

static const struct shape {
	const char *what, *q, *k, *attr;
} shapes[] = {
	{ "two spans", "b=1,s=1100,h=2,d=8", "b=1,s=1100,h=2,d=8", "causal=1" },
	{ "two spans, grouped", "b=1,s=1090,h=3,d=4", "b=1,s=1090,kv=1,d=4", "causal=1" },
	{ "three spans of keys, not causal", "b=1,s=70,h=2,d=4", "b=1,t=2060,h=2,d=4", "" },
	{ "three spans of keys, not causal, grouped", "b=1,s=1030,h=2,d=3", "b=1,t=2060,kv=1,d=3", "" },
	{ "a window that skips spans", "b=1,s=80@2100/2300,h=2,d=8", "b=1,t=2300,h=2,d=8", "causal=1 window=300" },
	{ "spans that no query sees", "b=1,s=1050@300/2400,h=1,d=4", "b=1,t=2060@200/2400,h=1,d=4", "causal=1" },
};

static struct kt *forward_of(const struct shape *s, const char *attr, uint32_t dtype)
{
	struct kt *t = kt_new(&hd_cpu_attention, &hd_ref_attention, attr);

	kt_reals(kt_in(t, dtype, s->q), -1.5, 1.5);
	kt_reals(kt_in(t, dtype, s->k), -1.5, 1.5);
	kt_reals(kt_in(t, dtype, s->k), -1, 1);
	kt_out(t, dtype, s->q);
	kt_out(t, HD_DTYPE_F32, kt_lse_spec(s->q));
	return t;
}

static struct kt *backward_of(const struct shape *s, const char *attr, uint32_t dtype)
{
	struct kt *t = kt_new(&hd_cpu_attention_d, &hd_ref_attention_d, attr);

	for (int i = 0; i < 6; i++)
		kt_in(t, i == 4 ? HD_DTYPE_F32 : dtype, i == 1 || i == 2 ? s->k : i == 4 ? kt_lse_spec(s->q) : s->q);
	kt_reals(t->in[5], -1, 1);
	kt_out(t, dtype, s->q);
	kt_out(t, dtype, s->k);
	kt_out(t, dtype, s->k);
	t->least = 0.1; /* a query that sees one key has dq = 0 */
	return t;
}

/* In fp32 errors are those of the sums; in bf16 the result and backward's inputs are rounded. */
static void check(const struct shape *s, uint32_t dtype, int width)
{
	double tol = dtype == HD_DTYPE_BF16 ? ROUND : kt_tol(HD_DTYPE_F32, 2060 + 8) * 3;
	char attr[100];
	struct kt *f, *d;

	snprintf(attr, sizeof(attr), "%s width=%d amx=0 pairs=0", s->attr, width);
	f = forward_of(s, attr, dtype);
	d = backward_of(s, attr, dtype);
	KT_CHECK(f, tol, "%s, %s, %d wide", s->what, hd_dtype_name(dtype), width);
	for (int i = 0; i < 5; i++) {
		struct kt_buf *from = i < 3 ? f->in[i] : f->out[i - 3];

		for (int64_t k = 0; k < from->count; k++)
			kt_set(d->in[i], k, kt_get(from, KT_REF, k));
	}
	KT_CHECK(d, 4 * tol, "%s, %s, %d wide, backward", s->what, hd_dtype_name(dtype), width);
	kt_free(f);
	kt_free(d);
}

/* Returns the scratch bytes of a launch of one head with so many positions. */
static int64_t scratch(const struct hd_kernel *k, uint32_t dtype, int seq, int threads, const char *attr)
{
	char spec[60];
	struct hd_view in[6], out[3];
	int backward = k == &hd_cpu_attention_d;
	struct shape s = { "", spec, spec, "" };
	struct kt *t;
	int64_t bytes;

	snprintf(spec, sizeof(spec), "b=1,s=%d,h=1,d=16", seq);
	t = backward ? backward_of(&s, attr, dtype) : forward_of(&s, attr, dtype);
	for (int i = 0; i < t->nin; i++)
		in[i] = t->in[i]->view[0];
	for (int i = 0; i < t->nout; i++)
		out[i] = t->out[i]->view[0];
	bytes = k->scratch(&(struct hd_kernel_desc){ attr, (uint32_t)t->nin, (uint32_t)t->nout, in, out }, threads);
	kt_free(t);
	return bytes;
}

static void check_scratch(void)
{
	const struct hd_kernel *k[] = { &hd_cpu_attention, &hd_cpu_attention_d };
	const char *attr = "causal=1 amx=0 pairs=0";

	for (int i = 0; i < 2; i++) {
		ok(scratch(k[i], HD_DTYPE_F32, 1024, 1, attr) > 0, "%s uses some scratch", k[i]->name);
		ok(scratch(k[i], HD_DTYPE_F32, 8192, 1, attr) == scratch(k[i], HD_DTYPE_F32, 1024, 1, attr),
		   "%s: a longer sequence uses no more", k[i]->name);
		ok(scratch(k[i], HD_DTYPE_F32, 4096, 3, attr) == 3 * scratch(k[i], HD_DTYPE_F32, 4096, 1, attr),
		   "%s: each thread has its own", k[i]->name);
	}
	ok(scratch(k[1], HD_DTYPE_BF16, 8192, 1, attr) - scratch(k[1], HD_DTYPE_BF16, 1024, 1, attr) <=
		   (int64_t)8192 * 16 * 4,
	   "backward of bf16 keeps fp32 sums of one operand");
}

int main(void)
{
	omp_set_num_threads(2);
	for (size_t i = 0; i < HD_LEN(shapes); i++)
		for (int width = 4; width <= 16; width *= 2)
			if (whole_sweep() || width == 16 || (int)i % 2 == (width == 8)) {
				check(&shapes[i], HD_DTYPE_F32, width);
				check(&shapes[i], HD_DTYPE_BF16, width);
			}
	check_scratch();
	return done();
}
