/* SPDX-License-Identifier: Apache-2.0
 * t/lib/product_test.h - checks of an own implementation of matrix products, forced for every shape, against ref: tails
 * of rows, columns and k, transposed operands, biases, addends, batches, and several products that share an operand.
 * Before it is included: PICK, the implementation ("ab/own:amx").
 */
#ifndef HD_T_LIB_PRODUCT_TEST_H
#define HD_T_LIB_PRODUCT_TEST_H
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "t/lib/tap.h"
#include "t/lib/kernel_test.h"
#include "kernels/cpu/base/scratch.h"

extern const struct hd_kernel hd_cpu_einsum, hd_ref_einsum;

struct product {
	const char *what, *a, *b, *c, *bias;
	int64_t terms;
	int acc;         /* added to c's old value */
	const char *add; /* the spec of an addend, or NULL */
};

static const struct product products[] = {
	{ "whole tiles", "seq=64,in=64", "out=96,in=64", "seq=64,out=96", NULL, 64, 0 },
	{ "tails, [out,in], bias", "seq=77,in=83", "out=51,in=83", "seq=77,out=51", "out=51", 83, 0 },
	{ "tails, [in,out], bias", "seq=45,in=33", "in=33,out=97", "seq=45,out=97", "out=97", 33, 1 },
	{ "gradient of the input", "batch=3,seq=21,out=90", "out=90,in=70", "batch=3,seq=21,in=70", NULL, 90, 1 },
	{ "gradient of the weight", "batch=3,seq=27,out=41", "batch=3,seq=27,in=53", "out=41,in=53", NULL, 81, 0 },
	{ "gradient of the weight, transposed", "seq=81,out=41", "seq=81,in=53", "in=53,out=41", NULL, 81, 1 },
	{ "k of several panels", "seq=50,in=1000", "out=70,in=1000", "seq=50,out=70", NULL, 1000, 0 },
	{ "k of several blocks", "seq=70,in=4500", "out=130,in=4500", "seq=70,out=130", "out=130", 4500, 1 },
	{ "several blocks of columns", "seq=70,in=400", "out=2111,in=400", "seq=70,out=2111", "out=2111", 400, 0 },
	{ "several of both", "out=37,seq=2500", "seq=2500,in=600", "out=37,in=600", NULL, 2500, 1 },
	{ "many rows with k innermost", "seq=70,out=615", "seq=70,in=40", "out=615,in=40", NULL, 70, 0 },
	{ "several blocks of rows, columns and k", "seq=1100,out=1500", "seq=1100,in=500", "out=1500,in=500", NULL,
	  1100, 0 },
	{ "fp32 past the caches, tails", "seq=70,out=1003", "seq=70,in=656", "out=1003,in=656", NULL, 70, 0 },
	{ "bf16 past the caches, tails", "seq=2601,in=9", "in=9,out=3264", "seq=2601,out=3264", "out=3264", 9, 0 },
	{ "batches", "expert=5,slot=37,in=40", "expert=5,in=40,ff=75", "expert=5,slot=37,ff=75", "expert=5,ff=75", 40,
	  0 },
	{ "with an addend", "seq=77,in=83", "in=83,out=51", "seq=77,out=51", NULL, 83, 0, "seq=77,out=51" },
	{ "with a transposed addend", "seq=77,in=83", "in=83,out=51", "seq=77,out=51", NULL, 83, 0, "out=51,seq=77" },

	{ "with an addend and a bias", "seq=70,in=400", "in=400,out=96", "seq=70,out=96", "out=96", 400, 0,
	  "seq=70,out=96" },
	{ "batches as an inner dim", "slot=37,expert=5,in=40", "expert=5,in=40,ff=75", "slot=37,expert=5,ff=75", NULL,
	  40, 1 },
	{ "two batch dims", "a=2,b=3,m=35,k=50", "a=2,b=3,k=50,n=66", "b=3,a=2,m=35,n=66", NULL, 50, 0 },
	{ "a row of few heads", "seq=5,in=70", "head=3,hd=24,in=70", "seq=5,head=3,hd=24", NULL, 70, 0 },
	{ "short k", "m=40,k=1", "k=1,n=50", "m=40,n=50", NULL, 1, 0 },
	{ "odd k", "m=40,k=7", "k=7,n=50", "m=40,n=50", NULL, 7, 0 },
};

static struct kt *einsum(const struct product *p, uint32_t from, uint32_t to)
{
	char attr[20];
	struct kt *t;

	snprintf(attr, sizeof(attr), "%s%s", p->bias ? "bias=1 " : "", p->add ? "add=1" : "");
	t = kt_new(&hd_cpu_einsum, &hd_ref_einsum, attr);

	kt_reals(kt_in(t, from, p->a), -1, 1);
	kt_reals(kt_in(t, from, p->b), -1, 1);
	if (p->bias)
		kt_reals(kt_in(t, p->acc ? HD_DTYPE_BF16 : HD_DTYPE_F32, p->bias), -1, 1);
	if (p->add)
		kt_reals(kt_in(t, to, p->add), -1, 1);
	kt_reals(kt_out(t, to, p->c), -1, 1);
	t->run.acc = p->acc;
	kt_prepare(t, KT_CPU);
	kt_pick(PICK);
	return t;
}

static void *result(struct kt *t)
{
	void *copy;

	kt_run(t, KT_CPU);
	copy = malloc(t->out[0]->bytes[KT_CPU] + 1);
	return memcpy(copy, t->out[0]->mem[KT_CPU], t->out[0]->bytes[KT_CPU]);
}

static void check_product(const struct product *p, uint32_t from, uint32_t to)
{
	struct kt *right = einsum(p, from, to);
	void *one = NULL;

	KT_CHECK(right, 2 * kt_tol(to, p->terms), "%s, %s to %s", p->what, hd_dtype_name(from), hd_dtype_name(to));
	kt_free(right);
	for (int threads = 1; threads <= 5; threads++) {
		struct kt *t;
		void *now;

		omp_set_num_threads(threads);
		t = einsum(p, from, to);
		now = result(t);
		ok(!one || !memcmp(one, now, t->out[0]->bytes[KT_CPU]), "%s to %s: %d threads yield the bits of one",
		   p->what, hd_dtype_name(to), threads);
		if (one)
			free(now);
		else
			one = now;
		kt_free(t);
	}
	free(one);
}

/* Products that share a are computed together, with the bits that each has alone.  If this broke: columns of one in
 * another, a block across the end of one, or a wrong start of another thread's share. */
enum { SEVERAL = 3 };

static void run_alone(struct kt *const *t, struct hd_joint *l)
{
	for (int i = 0; i < SEVERAL; i++)
		hd_cpu_einsum.run(l[i].prep, l[i].out, l[i].in, &t[i]->run);
}

static void check_together(const struct product *p, uint32_t from, uint32_t to)
{
	struct kt *t[SEVERAL];
	struct hd_joint l[SEVERAL];
	void *in[SEVERAL][3], *out[SEVERAL], *begun[SEVERAL], *alone[SEVERAL], *joined;

	for (int i = 0; i < SEVERAL; i++) {
		t[i] = einsum(p, from, to);
		in[i][0] = t[0]->in[0]->mem[KT_CPU];
		in[i][1] = t[i]->in[1]->mem[KT_CPU];
		in[i][2] = p->bias ? t[i]->in[2]->mem[KT_CPU] : NULL;
		out[i] = t[i]->out[0]->mem[KT_CPU];
		l[i] = (struct hd_joint){ &t[i]->prep[KT_CPU], &out[i], in[i], p->acc };
		begun[i] = memcpy(malloc(t[i]->out[0]->bytes[KT_CPU]), out[i], t[i]->out[0]->bytes[KT_CPU]);
	}
	run_alone(t, l);
	for (int i = 0; i < SEVERAL; i++) {
		alone[i] = memcpy(malloc(t[i]->out[0]->bytes[KT_CPU]), out[i], t[i]->out[0]->bytes[KT_CPU]);
		memcpy(out[i], begun[i], t[i]->out[0]->bytes[KT_CPU]);
	}
	joined = hd_cpu_einsum.join(l, SEVERAL);
	ok(joined != NULL, "%s to %s: three that share a are joined", p->what, hd_dtype_name(to));
	hd_cpu_einsum.run_joined(joined, &t[0]->run);
	for (int i = 0; i < SEVERAL; i++)
		ok(!memcmp(alone[i], out[i], t[i]->out[0]->bytes[KT_CPU]),
		   "... number %d has the bits that it has alone", i);
	hd_cpu_einsum.unjoin(joined);
	for (int i = 0; i < SEVERAL; i++) {
		free(alone[i]), free(begun[i]);
		kt_free(t[i]);
	}
}

/* Checks what may not be joined: products with different a, one that reads the other's result, or one of which only
 * one adds. */
static void check_apart(uint32_t from)
{
	const struct product p = { "apart", "seq=70,in=96", "in=96,out=96", "seq=70,out=96", NULL, 96, 0 };
	struct kt *t[2] = { einsum(&p, from, from), einsum(&p, from, from) };
	void *a = t[0]->in[0]->mem[KT_CPU], *c0 = t[0]->out[0]->mem[KT_CPU], *c1 = t[1]->out[0]->mem[KT_CPU];
	void *in[2][2] = { { a, t[0]->in[1]->mem[KT_CPU] }, { a, t[1]->in[1]->mem[KT_CPU] } };
	struct hd_joint l[2] = { { &t[0]->prep[KT_CPU], &c0, in[0], 0 }, { &t[1]->prep[KT_CPU], &c1, in[1], 0 } };
	void *joined = hd_cpu_einsum.join(l, 2);

	ok(joined != NULL, "two that share a are joined");
	hd_cpu_einsum.unjoin(joined);
	l[1].acc = 1;
	ok(!hd_cpu_einsum.join(l, 2), "... but not if only one adds");
	l[1].acc = 0;
	in[1][0] = t[1]->in[0]->mem[KT_CPU];
	ok(!hd_cpu_einsum.join(l, 2), "... not with different a");
	in[1][0] = a;
	in[1][1] = c0;
	ok(!hd_cpu_einsum.join(l, 2), "... not if one reads the other's result");
	in[1][1] = t[1]->in[1]->mem[KT_CPU];
	c1 = c0;
	ok(!hd_cpu_einsum.join(l, 2), "... and not with the same result");
	kt_free(t[0]), kt_free(t[1]);
}

static void check_several(uint32_t from)
{
	const struct product ps[] = {
		{ "wide", "seq=77,in=130", "in=130,out=700", "seq=77,out=700", "out=700", 130, 0 },
		{ "narrow", "seq=150,in=70", "in=70,out=37", "seq=150,out=37", NULL, 70, 1 },
		{ "gradients of weights", "seq=1200,in=90", "seq=1200,out=83", "in=90,out=83", NULL, 1200, 0 },
	};
	struct hd_err err = { 0 };

	hd_scratch_join(64 << 20, "test", &err); /* else there may be no room for several */
	for (int threads = 1; threads <= 5; threads += 2) {
		omp_set_num_threads(threads);
		for (size_t i = 0; i < HD_LEN(ps); i++) {
			check_together(&ps[i], from, HD_DTYPE_F32);
			if (from == HD_DTYPE_BF16)
				check_together(&ps[i], from, HD_DTYPE_BF16);
		}
	}
	check_apart(from);
	hd_scratch_leave();
}

#endif
