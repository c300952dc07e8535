/* SPDX-License-Identifier: Apache-2.0
 * The kernels of experts: route, dispatch, combine and the experts' products.  If a choice depended on where a token
 * lies, or two tokens got the same slot, nothing would crash: the model would only learn worse.
 */
#include <config.h>
#include "t/lib/kernel_props.h"

#define Z "batch=4,seq=16,router_expert=8"
#define BEST "batch=4,seq=16,topk=2"
#define X "batch=4,seq=16,embed=37"
#define TOKENS (4 * 16)

struct routed {
	struct kt *t;
	struct kt_buf *z, *gates, *slots, *sums, *counts;
};

static struct routed route_of(const char *attr, const char *z, const char *best, int experts, const char *counts)
{
	struct routed r = { .t = KT_NEW(route, attr) };
	char stat[20];

	snprintf(stat, sizeof(stat), "stat=%d", experts + 3);
	r.z = kt_in(r.t, HD_DTYPE_F32, z);
	if (strstr(attr, "sigmoid"))
		kt_reals(kt_in(r.t, HD_DTYPE_F32, "router_expert=8"), -0.3, 0.3);
	r.gates = kt_out(r.t, HD_DTYPE_F32, best);
	r.slots = kt_out(r.t, HD_DTYPE_I32, best);
	r.sums = kt_out(r.t, HD_DTYPE_F32, stat);
	r.counts = counts ? kt_out(r.t, HD_DTYPE_I32, counts) : NULL;
	r.t->run = (struct hd_run){ .seed = 3, .step = 5, .train = 1, .sample0 = 8 };
	return r;
}

static const struct {
	const char *attr, *name;
	int counts;
} kinds[] = {
	{ "aux_group=16 group=16 capacity=4 first_choice_aux=1 normalize=1 random=1 site=3 aux=0.5 z=0.1",
	  "random second expert, groups of a sample", 0 },
	{ "aux_group=8 group=8 capacity=2 first_choice_aux=1 normalize=1 site=1 aux=0.1",
	  "every second expert, two groups per sample", 0 },
	{ "aux_group=32 group=32 capacity=9 normalize=1 aux=1 z=1", "top 2, groups of two samples", 0 },
	{ "aux_group=32 group=16 capacity=16 normalize=1 counts=1 aux=0.3", "top 2 without a limit", 1 },
	{ "sigmoid=1 groups=4 best_groups=2 scale=1.7 aux_group=16 group=16 capacity=4 normalize=1 aux=0.5 z=0.1",
	  "sigmoids, from 2 of 4 groups", 0 },
	{ "sigmoid=1 aux_group=16 group=16 capacity=16 counts=1 aux=0.5", "sigmoids that are not normalised", 1 },
	{ "scale=2 aux_group=16 group=16 capacity=4 z=0.1", "a softmax over all, times 2", 0 },
};

/* Results are sums of about ten terms.  Counts are compared with the same bound, which is far below 1. */
static void routes(void)
{
	for (size_t i = 0; i < HD_LEN(kinds); i++) {
		struct routed r = route_of(kinds[i].attr, Z, BEST, 8, kinds[i].counts ? "expert=8,batch=4" : NULL);
		struct kt *d = KT_NEW(route_d, kinds[i].attr);
		struct kt_buf *z = kt_in(d, HD_DTYPE_F32, Z), *slots = kt_in(d, HD_DTYPE_I32, BEST),
			      *dg = kt_in(d, HD_DTYPE_F32, BEST);

		kt_out(d, HD_DTYPE_F32, Z);
		kt_reals(r.z, -2, 2);
		KT_CHECK(r.t, kt_tol(HD_DTYPE_F32, 64), "route: %s", kinds[i].name);
		kt_threads(r.t, "route");
		kt_share(z, r.z);
		kt_share(slots, r.slots);
		kt_reals(dg, -1, 1);
		d->run = r.t->run;
		d->run.loss_scale = 0.25;
		KT_CHECK(d, kt_tol(HD_DTYPE_F32, 64), "route_d: %s", kinds[i].name);
		kt_threads(d, "route_d");
		kt_free(d);
		kt_free(r.t);
	}
}

/* Four tokens all prefer expert 0 and, by a tie, expert 1 next; the capacity is 1. */
static void by_hand(void)
{
	static const int slots[] = { 0, 1, -1, -2, -1, -2, -1, -2 }, sums[] = { 6, 4, 4, 0 };
	struct routed r = route_of("aux_group=4 group=4 capacity=1 first_choice_aux=1 normalize=1",
				   "batch=1,seq=4,router_expert=3", "batch=1,seq=4,topk=2", 3, NULL);
	int same = 1;

	for (int i = 0; i < 12; i++)
		kt_set(r.z, i, i % 3 == 0);
	for (int which = 0; which < 2; which++) {
		kt_run(r.t, which);
		for (int i = 0; i < 8; i++)
			same &= kt_get(r.slots, which, i) == slots[i];
		for (int i = 0; i < 4; i++)
			same &= kt_get(r.sums, which, 2 + i) == sums[i];
		same &= kt_get(r.gates, which, 2) == 0 && kt_get(r.gates, which, 0) > 0.7;
	}
	ok(same, "first come, first served; a tie goes to the lowest; beyond the capacity the gate is 0");
	near(kt_get(r.sums, KT_CPU, 0) / 4, 3 * 2.718281828459045 / (2.718281828459045 + 2), 1e-6,
	     "the auxiliary loss is E sum m f: if all choose one expert, E times its probability");
	kt_free(r.t);
}

/* Routes samples 2 and 3 of four, as a rank or a later micro-batch would. */
static void by_global_token(void)
{
	struct routed all = route_of(kinds[0].attr, Z, BEST, 8, NULL);
	struct routed half =
		route_of(kinds[0].attr, "batch=2@2/4,seq=16,router_expert=8", "batch=2@2/4,seq=16,topk=2", 8, NULL);
	struct routed later =
		route_of(kinds[0].attr, "batch=2,seq=16,router_expert=8", "batch=2,seq=16,topk=2", 8, NULL);
	int same = 1, kept[2] = { 0 };

	kt_reals(all.z, -2, 2);
	for (int i = 0; i < 2 * 16 * 8; i++) {
		kt_set(half.z, i, kt_get(all.z, KT_CPU, 2 * 16 * 8 + i));
		kt_set(later.z, i, kt_get(all.z, KT_CPU, 2 * 16 * 8 + i));
	}
	later.t->run.sample0 += 2;
	kt_run(all.t, KT_CPU), kt_run(half.t, KT_CPU), kt_run(later.t, KT_CPU);
	for (int i = 0; i < 2 * 16 * 2; i++)
		same &= kt_get(half.slots, KT_CPU, i) == kt_get(all.slots, KT_CPU, 2 * 16 * 2 + i) &&
			kt_get(later.slots, KT_CPU, i) == kt_get(all.slots, KT_CPU, 2 * 16 * 2 + i) &&
			kt_get(later.gates, KT_CPU, i) == kt_get(all.gates, KT_CPU, 2 * 16 * 2 + i);
	ok(same, "a slice and a later micro-batch decide as the complete batch does");
	for (int train = 0; train < 2; train++) {
		all.t->run.train = train;
		kt_run(all.t, KT_CPU);
		for (int i = 0; i < TOKENS; i++)
			kept[train] += kt_get(all.gates, KT_CPU, 2 * i + 1) > 0;
	}
	ok(kept[1] < kept[0] && kept[1] > kept[0] / 4,
	   "chance drops some second experts (%d of %d remain), but not in evaluation", kept[1], kept[0]);
	all.t->run.step++;
	same = 1;
	kt_run(all.t, KT_CPU);
	for (int i = 0; i < 2 * 16 * 2; i++)
		same &= kt_get(half.slots, KT_CPU, i) == kt_get(all.slots, KT_CPU, 2 * 16 * 2 + i);
	ok(!same, "a different step draws differently");
	kt_free(all.t), kt_free(half.t), kt_free(later.t);
}

/* -- movement and products ----------------------------------------------------------------------------------------- */
/* low: rows, tokens and weights are bf16, gates and the weights' gradients are not */
static void movements(int low)
{
	uint32_t type = low ? HD_DTYPE_BF16 : HD_DTYPE_F32;
	static const char *const dims[] = {
		"expert=8,batch=4,slot=4,embed=37", "expert=8,batch=4,slot=4,embed=37",
		"expert=8,batch=4,slot=5,embed=37", "expert=1@0/8,batch=1@0/4,slot=128,embed=37",
		"expert=8,batch=4,slot=4,embed=37", "expert=1@0/8,batch=1@0/4,slot=128,embed=37",
		"expert=8,batch=4,slot=4,embed=37"
	};
	static const char *const slots[] = { "group=16 capacity=4", "group=8 capacity=2",
					     "group=32 capacity=9", "group=16 capacity=16 rows=1",
					     "group=16 capacity=4", "group=16 capacity=16 rows=1",
					     "group=16 capacity=4" };

	for (size_t i = 0; i < HD_LEN(kinds); i++) {
		struct routed r = route_of(kinds[i].attr, Z, BEST, 8, kinds[i].counts ? "expert=8,batch=4" : NULL);

		kt_reals(r.z, -2, 2);
		kt_run(r.t, KT_CPU), kt_run(r.t, KT_REF);
		for (int gates = 0; gates < 3; gates++) { /* 2: combine_dg */
			char attr[100];

			snprintf(attr, sizeof(attr), "%s gates=%d", slots[i], gates == 1);
			for (int back = gates == 2; back < 2; back++) {
				struct kt *t = gates == 2 ? KT_NEW(combine_dg, attr)
					       : back     ? KT_NEW(combine, attr)
							  : KT_NEW(dispatch, attr);
				struct kt_buf *x = gates == 2 ? kt_in(t, type, X) : NULL;
				struct kt_buf *y = kt_in(t, type, back ? dims[i] : X),
					      *s = kt_in(t, HD_DTYPE_I32, BEST), *g = NULL, *out;

				if (gates == 1)
					kt_share(g = kt_in(t, HD_DTYPE_F32, BEST), r.gates);
				if (kinds[i].counts)
					kt_share(kt_in(t, HD_DTYPE_I32, "expert=8,batch=4"), r.counts);
				out = kt_out(t, gates == 2 ? HD_DTYPE_F32 : type,
					     gates == 2 ? BEST
					     : back     ? X
							: dims[i]);
				kt_share(s, r.slots);
				kt_reals(y, -1, 1);
				kt_reals(out, -1, 1); /* unused rows stay as they are */
				if (x)
					kt_reals(x, -1, 1);
				KT_CHECK(t, kt_tol(gates == 2 ? HD_DTYPE_F32 : type, gates == 2 ? 37 : 4),
					 "%s%s, gates %d: %s", low ? "bf16 " : "",
					 gates == 2 ? "combine_dg"
					 : back     ? "combine"
						    : "dispatch",
					 gates & 1, kinds[i].name);
				kt_threads(t, "... its bits");
				kt_free(t);
			}
		}
		kt_free(r.t);
	}
}

/* With 20 choices of 5 experts the mean is 4. */
static void biases(void)
{
	static const double load[] = { 6, 4, 0, 7, 3 }, want[] = { -0.125, 0, 0.125, -0.125, 0.125 };
	struct kt *t = KT_NEW(route_bias, "rate=0.125");
	struct kt_buf *bias = kt_in(t, HD_DTYPE_F32, "router_expert=5"), *sums = kt_in(t, HD_DTYPE_F32, "stat=8");
	struct kt_buf *out = kt_out(t, HD_DTYPE_F32, "router_expert=5");
	int same = 1;

	kt_reals(bias, -1, 1), kt_reals(sums, -9, 9);
	for (int e = 0; e < 5; e++)
		kt_set(bias, e, e), kt_set(sums, 3 + e, load[e]);
	for (int which = 0; which < 2; which++) {
		kt_run(t, which);
		for (int e = 0; e < 5; e++)
			same &= kt_get(out, which, e) == e + want[e];
	}
	ok(same, "a bias moves by the rate, up for experts below the mean");
	kt_inplace(out, bias);
	kt_run(t, KT_CPU);
	ok(kt_get(out, KT_CPU, 0) == -0.125 && kt_get(out, KT_CPU, 4) == 4.125, "... also in place");
	kt_free(t);
}

/* Experts 0 and 2 of 5 have no rows, and rows 23 to 29 are unused. */
static void products(int low, int own)
{
	uint32_t type = low ? HD_DTYPE_BF16 : HD_DTYPE_F32;
	static const int rows[] = { 0, 0, 3, 8, 0, 0, 1, 0, 7, 4 };
	static const struct {
		const char *a, *b, *c, *name;
	} of[] = {
		{ "embed=19", "expert=5,embed=19,mlp=23", "mlp=23", "rows" },
		{ "embed=19", "expert=5,mlp=23,embed=19", "mlp=23", "rows, transposed weights" },
		{ "embed=19", "mlp=23", "expert=5,embed=19,mlp=23", "weights" },
		{ "embed=19", "mlp=23", "expert=5,mlp=23,embed=19", "transposed weights" },
		{ "embed=64", "mlp=23", "expert=5,embed=64,mlp=23", "weights of a whole tile" },
	};

	for (size_t i = 0; i < HD_LEN(of); i++)
		for (int how = 0; how < (i < 2 ? 4 : 2);
		     how++) { /* 1: added to what is there; 2, 3: an input is added, in place */
			static const char *const lead = "expert=1@0/5,batch=1@0/2,slot=30,";
			struct kt *t;
			char spec[4][100], attr[40];
			struct kt_buf *a, *b, *add = NULL, *n, *c;

			snprintf(attr, sizeof(attr), "rows=1 own=%d%s", own, how > 1 ? " add=1" : "");
			t = KT_NEW(grouped, attr);
			snprintf(spec[0], 100, "%s%s", lead, of[i].a);
			snprintf(spec[1], 100, "%s%s", i < 2 ? "" : lead, of[i].b);
			snprintf(spec[2], 100, "%s%s", i < 2 ? lead : "", of[i].c);
			a = kt_in(t, type, spec[0]), b = kt_in(t, type, spec[1]);
			if (how > 1)
				add = kt_in(t, type, spec[2]);
			n = kt_in(t, HD_DTYPE_I32, "expert=5,batch=2");
			c = kt_out(t, i < 2 ? type : HD_DTYPE_F32, spec[2]);
			if (how == 3)
				kt_inplace(c, add);
			kt_reals(a, -1, 1), kt_reals(b, -1, 1), kt_reals(c, -1, 1);
			if (add)
				kt_reals(add, -1, 1);
			for (int e = 0; e < 10; e++)
				kt_set(n, e, rows[e]);
			t->run.acc = how == 1;
			t->leaves = i < 2;
			KT_CHECK(t, kt_tol(i < 2 ? type : HD_DTYPE_F32, 24), "%sproducts of %s, by %s, %s",
				 low ? "bf16 " : "", of[i].name, own ? "own products" : "the library",
				 how == 0   ? "overwritten"
				 : how == 1 ? "accumulated"
				 : how == 2 ? "with an addend"
					    : "in place of the addend");
			kt_free(t);
		}
}

/* Elementwise kernels process only the used rows. */
static void used_rows(void)
{
	struct kt *t = KT_NEW(gelu, "");
	struct kt_buf *x = kt_in(t, HD_DTYPE_F32, "row=10,mlp=7"), *y = kt_out(t, HD_DTYPE_F32, "row=10,mlp=7");

	kt_reals(x, -1, 1);
	for (int i = 0; i < 70; i++)
		kt_set(y, i, 9);
	t->run.rows = 6, t->run.rows_most = 10;
	t->leaves = 1;
	KT_CHECK(t, 1e-6, "gelu of 6 of 10 rows");
	ok(kt_get(y, KT_CPU, 41) < 2 && kt_get(y, KT_CPU, 42) > 8, "... and the other rows are untouched");
	kt_free(t);
}

int main(void)
{
	routes();
	by_hand();
	by_global_token();
	for (int low = 0; low < 2; low++) {
		movements(low);
		products(low, 0);
		products(low, 1);
	}
	used_rows();
	biases();
	return done();
}
