/* SPDX-License-Identifier: Apache-2.0
 * einsum: a product of two tensors with named dims.
 *
 * kernels/prepare/product.h determines which matrix product it is, and the loops around it. Products that oneDNN does
 * not support are computed by plain loops: slow, but the same numbers. Where oneDNN has no products of bf16 for the
 * machine, operands are first converted to fp32 in scratch memory.
 */
#include <config.h>
#include "kernels/cpu/base/low.h"
#include "kernels/cpu/base/scratch.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/thin/thin.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>

struct cpu_product {
	struct einsum e;
	struct hd_mm *mm;
	struct hd_thin *thin; /* used instead of mm; or NULL */
	int bias_inside;
	/* Bits of operands a, b, c that are bf16 and are converted to fp32 around the product; e's dtypes are fp32
	 * then. count: their elements. */
	int widened;
	int64_t count[3], copies; /* copies: where in scratch they begin, in bytes */
};

enum { BY_LOOPS, BY_THIN, BY_LIBRARY };

struct product_plan {
	struct hd_mm_shape s;
	int by, needs;
};

static void plan_widened(struct cpu_product *p, struct product_plan *plan)
{
	struct einsum *e = &p->e;

	for (int o = OP_A; o <= OP_C; o++)
		p->widened |= (e->dtype[o] == HD_DTYPE_BF16) << o;
	for (int o = HD_MM_A; o <= HD_MM_C; o++)
		plan->s.dtype[o] = HD_DTYPE_F32;
	if (!p->widened || !hd_mm_has(&plan->s)) {
		p->widened = 0;
		plan->by = BY_LOOPS;
		return;
	}
	for (int o = OP_A; o <= OP_C; o++)
		e->dtype[o] = HD_DTYPE_F32;
}

/* Chooses how the product is computed, from its shape alone. */
static void plan_product(struct cpu_product *p, struct product_plan *plan)
{
	struct einsum *e = &p->e;
	int inside = hd_plan_product(e, &plan->s);

	plan->by = !e->nouter && hd_thin_bytes(&plan->s, HD_THIN_ROWS, 0, 1) ? BY_THIN : BY_LIBRARY;
	p->bias_inside = inside;
	if (plan->by == BY_THIN)
		return;
	plan->needs = e->dtype[OP_ADD] ? HD_MM_ADDS : HD_MM_ADDS | HD_MM_OVERWRITES;
	plan->s.dtype[HD_MM_BIAS] = inside ? e->dtype[OP_BIAS] : 0;
	if (inside && hd_mm_has(&plan->s))
		return;
	p->bias_inside = 0;
	plan->s.dtype[HD_MM_BIAS] = 0;
	memset(plan->s.stride[HD_MM_BIAS], 0, sizeof(plan->s.stride[HD_MM_BIAS]));
	plan->needs = e->dtype[OP_BIAS] || e->dtype[OP_ADD] ? HD_MM_ADDS : HD_MM_ADDS | HD_MM_OVERWRITES;
	if (!hd_mm_has(&plan->s))
		plan_widened(p, plan);
}

/* Returns the bytes of scratch: the product's own, then the copies. */
static int64_t bytes_of(struct cpu_product *p, const struct product_plan *plan, int threads)
{
	int64_t floats = 0;

	if (plan->by != BY_LIBRARY)
		return plan->by == BY_THIN ? hd_thin_bytes(&plan->s, HD_THIN_ROWS, 0, threads) : 0;
	p->copies = (hd_mm_bytes(&plan->s, plan->needs, threads) + 63) / 64 * 64;
	for (int o = OP_A; o <= OP_C; o++)
		floats += p->widened >> o & 1 ? p->count[o] : 0;
	return p->copies + floats * (int64_t)sizeof(float);
}

static int plan_all(const struct hd_kernel_desc *d, struct cpu_product *p, struct product_plan *plan,
		    struct hd_err *err)
{
	HD_TRY(hd_prepare_einsum(d, &p->e, "cpu", err));
	p->count[OP_A] = hd_view_count(&d->in[0]);
	p->count[OP_B] = hd_view_count(&d->in[1]);
	p->count[OP_C] = p->e.count;
	plan->by = BY_LOOPS;
	if (p->e.count && !p->e.empty)
		plan_product(p, plan);
	if (!p->e.nouter && plan->needs == (HD_MM_ADDS | HD_MM_OVERWRITES))
		plan->needs &= d->never & HD_NEVER_ADDS         ? HD_MM_OVERWRITES
			       : d->never & HD_NEVER_OVERWRITES ? HD_MM_ADDS
								: plan->needs;
	return 0;
}

static int64_t scratch(const struct hd_kernel_desc *d, int threads)
{
	struct product_plan plan = { .by = BY_LOOPS };
	struct cpu_product p = { .widened = 0 };
	struct hd_err ignored = { 0 };

	return plan_all(d, &p, &plan, &ignored) < 0 ? 0 : bytes_of(&p, &plan, threads);
}

static void release(void *state)
{
	struct cpu_product *p = state;

	hd_mm_put(p->mm);
	hd_thin_destroy(p->thin);
	free(p);
	hd_scratch_leave();
}

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	struct product_plan plan = { .by = BY_LOOPS };
	struct cpu_product product = { .widened = 0 };

	HD_TRY(plan_all(d, &product, &plan, err));
	HD_TRY(hd_scratch_join(bytes_of(&product, &plan, omp_get_max_threads()), "einsum", err));
	if (plan.by == BY_THIN)
		product.thin = hd_thin_create(&plan.s, HD_THIN_ROWS, 0);
	else if (plan.by == BY_LIBRARY)
		product.mm = hd_mm_get(&plan.s, plan.needs);
	p->state = hd_alloc(sizeof(product));
	memcpy(p->state, &product, sizeof(product));
	p->release = release;
	return 0;
}

/* ---- run ------------------------------------------------------------------------------------- */

static float load(const void *p, uint32_t dtype, int64_t i)
{
	uint32_t u;
	float f;

	if (dtype == HD_DTYPE_F32)
		return ((const float *)p)[i];
	u = (uint32_t)((const uint16_t *)p)[i] << 16;
	memcpy(&f, &u, 4);
	return f;
}

static void store(void *p, uint32_t dtype, int64_t i, float f)
{
	uint32_t u;

	if (dtype == HD_DTYPE_F32) {
		((float *)p)[i] = f;
		return;
	}
	memcpy(&u, &f, 4);
	u = f == f ? u + 0x7fff + (u >> 16 & 1) : u | 0x400000;
	((uint16_t *)p)[i] = (uint16_t)(u >> 16);
}

static double dot(const struct einsum *e, void *const *mem, int64_t a, int64_t b)
{
	int64_t at[2 * HD_MAX_DIMS] = { 0 };
	double sum = 0;

	for (;;) {
		int i = e->nred - 1;

		sum += (double)load(mem[OP_A], e->dtype[OP_A], a) * load(mem[OP_B], e->dtype[OP_B], b);
		for (; i >= 0; i--) {
			const struct einsum_loop *l = &e->red[i];

			a += l->stride[OP_A];
			b += l->stride[OP_B];
			if (++at[i] < l->n)
				break;
			a -= l->stride[OP_A] * l->n;
			b -= l->stride[OP_B] * l->n;
			at[i] = 0;
		}
		if (i < 0)
			return sum;
	}
}

/* Computes in `at` where element i of c is in the other operands, leaving out `inner` of its last dims. */
static void locate(const struct einsum *e, int64_t i, int inner, int64_t at[OPERANDS])
{
	memset(at, 0, OPERANDS * sizeof(*at));
	for (int d = e->nout - 1 - inner; d >= 0; d--) {
		int64_t j = i % e->out[d].n;

		i /= e->out[d].n;
		for (int o = 0; o < OPERANDS; o++)
			at[o] += j * e->out[d].stride[o];
	}
}

/* Computes c = (keep ? c : 0) + bias + add + product. */
static void plain(const struct einsum *e, void *const *mem, int keep)
{
#pragma omp parallel for
	for (int64_t i = 0; i < e->count; i++) {
		int64_t at[OPERANDS];
		double x = keep ? load(mem[OP_C], e->dtype[OP_C], i) : 0;

		locate(e, i, 0, at);
		if (mem[OP_BIAS])
			x += load(mem[OP_BIAS], e->dtype[OP_BIAS], at[OP_BIAS]);
		if (mem[OP_ADD])
			x += load(mem[OP_ADD], e->dtype[OP_ADD], at[OP_ADD]);
		x += dot(e, mem, at[OP_A], at[OP_B]);
		store(mem[OP_C], e->dtype[OP_C], i, (float)x);
	}
}

HD_CLONES static void add_one(float *y, float x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] += x;
}

/* Adds n elements of an operand, `stride` apart, to y. */
static void add_operand(float *y, const void *x, uint32_t dtype, int64_t at, int64_t stride, int64_t n)
{
	float tmp[HD_PIECE];

	if (stride == 1)
		hd_add_floats(y, hd_read(x, dtype, at, n, tmp), n);
	else if (!stride)
		add_one(y, load(x, dtype, at), n);
	else
		for (int64_t j = 0; j < n; j++)
			y[j] += load(x, dtype, at + j * stride);
}

/* Computes c = (keep ? c : 0) + bias + add; the product is added later. */
static void start(const struct einsum *e, void *const *mem, int keep)
{
	const struct einsum_loop one = { 1, { 0 } }, *last = e->nout ? &e->out[e->nout - 1] : &one;
	int64_t pieces = (last->n + HD_PIECE - 1) / HD_PIECE, total = last->n ? e->count / last->n * pieces : 0;

#pragma omp parallel for schedule(static) if (e->count >= HD_SMALL)
	for (int64_t i = 0; i < total; i++) {
		int64_t row = i / pieces, from = i % pieces * HD_PIECE, n = hd_min(HD_PIECE, last->n - from),
			at[OPERANDS];
		int64_t to = row * last->n + from;
		float y[HD_PIECE], low[HD_PIECE];

		locate(e, row, e->nout > 0, at);
		if (keep)
			memcpy(y, hd_read(mem[OP_C], e->dtype[OP_C], to, n, low), (size_t)n * sizeof(*y));
		else
			memset(y, 0, (size_t)n * sizeof(*y));
		for (int o = OP_BIAS; o <= OP_ADD; o++)
			if (mem[o])
				add_operand(y, mem[o], e->dtype[o], at[o] + from * last->stride[o], last->stride[o], n);
		memcpy(hd_write_to(mem[OP_C], e->dtype[OP_C], to, low), y, (size_t)n * sizeof(*y));
		hd_write(mem[OP_C], e->dtype[OP_C], to, n, low);
	}
}

static void *shift(const struct einsum *e, void *const *mem, int o, int64_t by)
{
	return mem[o] ? (char *)mem[o] + by * (HD_BITS(e->dtype[o]) / 8) : NULL;
}

/* Runs the matrix product for every index of the loops around it. The strides of these loops are in swapped roles
 * already. */
static int products(const struct cpu_product *p, void *const *mem, int sum)
{
	const struct einsum *e = &p->e;
	int64_t at[3 * HD_MAX_DIMS] = { 0 }, off[OPERANDS] = { 0 };
	int a = e->swapped ? OP_B : OP_A, b = e->swapped ? OP_A : OP_B;

	for (;;) {
		int i = e->nouter - 1, again = 0;

		for (int j = 0; j < e->nouter; j++)
			again |= at[j] && !e->outer[j].stride[OP_C];
		HD_TRY(hd_mm_run(p->mm, sum || again, shift(e, mem, OP_C, off[OP_C]), shift(e, mem, a, off[OP_A]),
				 shift(e, mem, b, off[OP_B]), shift(e, mem, OP_BIAS, off[OP_BIAS])));
		for (; i >= 0; i--) {
			for (int o = 0; o < OPERANDS; o++)
				off[o] += e->outer[i].stride[o];
			if (++at[i] < e->outer[i].n)
				break;
			for (int o = 0; o < OPERANDS; o++)
				off[o] -= e->outer[i].stride[o] * e->outer[i].n;
			at[i] = 0;
		}
		if (i < 0)
			return 0;
	}
}

static void raise_all(float *y, const uint16_t *x, int64_t n)
{
#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i += HD_CHUNK)
		hd_bf16_to_f32(y + i, x + i, hd_min(HD_CHUNK, n - i));
}

static void lower_all(uint16_t *y, const float *x, int64_t n)
{
#pragma omp parallel for schedule(static) if (n >= HD_SMALL)
	for (int64_t i = 0; i < n; i += HD_CHUNK)
		hd_store_bf16(y + i, x + i, hd_min(HD_CHUNK, n - i));
}

static void run_product(const struct cpu_product *p, void *const *out, void *const *in, const struct hd_run *r);

/* Runs the product on fp32 copies. If the addend is c itself, c's copy contains it. */
static void run_widened(const struct cpu_product *p, void *const *out, void *const *in, const struct hd_run *r)
{
	void *ins[4] = { in[0], in[1], NULL, NULL }, *outs[1] = { out[0] };
	int bias = p->e.dtype[OP_BIAS] != 0, add = p->e.dtype[OP_ADD] != 0, inside = add && in[2 + bias] == out[0];
	struct hd_run keeps = *r;
	float *at = (float *)((char *)hd_scratch() + p->copies);

	keeps.acc = r->acc || inside;
	for (int i = 0; i < bias + add; i++)
		ins[2 + i] = in[2 + i];
	for (int o = OP_A; o <= OP_C; o++) {
		if (!(p->widened >> o & 1))
			continue;
		if (o != OP_C || keeps.acc)
			raise_all(at, o == OP_C ? out[0] : in[o], p->count[o]);
		*(o == OP_C ? &outs[0] : &ins[o]) = at;
		at += p->count[o];
	}
	if (inside)
		ins[2 + bias] = outs[0];
	run_product(p, outs, ins, inside ? r : &keeps);
	if (p->widened >> OP_C & 1)
		lower_all(out[0], outs[0], p->count[OP_C]);
}

static void run(const struct hd_prep *prep, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct cpu_product *p = prep->state;

	(p->widened ? run_widened : run_product)(p, out, in, r);
}

/* Returns whether the product itself can add the addend, which must have c's layout. */
static int adds_in_place(const struct cpu_product *p, void *const *mem, int keep)
{
	const struct einsum *e = &p->e;

	if (!mem[OP_ADD] || keep || !p->mm || p->thin || e->nouter || e->dtype[OP_ADD] != e->dtype[OP_C] ||
	    (mem[OP_BIAS] && !p->bias_inside))
		return 0;
	for (int d = 0; d < e->nout; d++)
		if (e->out[d].stride[OP_ADD] != e->out[d].stride[OP_C])
			return 0;
	return hd_mm_adds(p->mm);
}

static void run_product(const struct cpu_product *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct einsum *e = &p->e;
	void *mem[OPERANDS] = { in[0], in[1], out[0], NULL, NULL };
	void *first[OPERANDS] = { NULL, NULL, out[0], NULL, NULL };
	int keep = r->acc;

	if (e->dtype[OP_BIAS])
		mem[OP_BIAS] = in[2];
	if (e->dtype[OP_ADD])
		mem[OP_ADD] = in[e->dtype[OP_BIAS] ? 3 : 2];
	if (mem[OP_ADD] == out[0] && mem[OP_ADD]) { /* in place: c already contains the addend */
		mem[OP_ADD] = NULL;
		keep = 1;
	}
	if (!p->mm && !p->thin) {
		if (!e->empty)
			plain(e, mem, keep);
		else if (!keep || mem[OP_BIAS] || mem[OP_ADD])
			start(e, mem, keep);
		return;
	}
	if (adds_in_place(p, mem, keep)) {
		hd_mm_add(p->mm, mem[OP_ADD], out[0], mem[e->swapped ? OP_B : OP_A], mem[e->swapped ? OP_A : OP_B],
			  mem[OP_BIAS]);
		return;
	}
	first[OP_ADD] = mem[OP_ADD];
	first[OP_BIAS] = p->bias_inside ? NULL : mem[OP_BIAS];
	if (first[OP_ADD] || first[OP_BIAS]) {
		start(e, first, keep);
		keep = 1;
	}
	mem[OP_ADD] = NULL; /* c contains it by now, and also a bias that is not inside */
	if (!p->bias_inside)
		mem[OP_BIAS] = NULL;
	if (p->thin) {
		hd_thin_run(p->thin, hd_scratch(), keep, out[0], mem[e->swapped ? OP_B : OP_A],
			    mem[e->swapped ? OP_A : OP_B], mem[OP_BIAS], e->dtype[OP_BIAS]);
		return;
	}
	/* A refusal comes before anything is written, so plain loops can still take over. */
	if (products(p, mem, keep) < 0)
		plain(e, mem, keep);
}

/* ---- several products as one ----------------------------------------------------------------- */
/* Consecutive products of one shape that read the same a, as for queries, keys and values, and the gradients of their
 * weights. Our own implementations read and pack a once for all of them. */
enum { MOST = 8 };

struct lot {
	size_t from, n;
	struct hd_mm_own as_one;
	int tried, joined; /* joined 0: they run one after the other */
};

struct product_lots {
	struct hd_joint *l;
	struct lot *lots;
	size_t n;
};

static const struct cpu_product *product_of(const struct hd_joint *l)
{
	return l->prep->state;
}

/* Returns operand o in the product's roles, or NULL for a bias that is missing. */
static void *operand(const struct hd_joint *l, int o)
{
	const struct einsum *e = &product_of(l)->e;

	if (o == HD_MM_C)
		return l->out[0];
	if (o == HD_MM_BIAS)
		return e->dtype[OP_BIAS] ? l->in[2] : NULL;
	return l->in[(o == HD_MM_B) != e->swapped];
}

/* Returns whether the launch is one product, and nothing else. */
static int is_plain(const struct hd_joint *l)
{
	const struct cpu_product *p = product_of(l);

	return p->mm && !p->widened && !p->e.nouter && !p->e.dtype[OP_ADD] && (!p->e.dtype[OP_BIAS] || p->bias_inside);
}

static int is_mate(const struct hd_joint *a, const struct hd_joint *b)
{
	return is_plain(b) && product_of(a)->mm == product_of(b)->mm && a->acc == b->acc &&
	       product_of(a)->e.swapped == product_of(b)->e.swapped && operand(a, HD_MM_A) == operand(b, HD_MM_A);
}

/* Returns whether a's result overlaps neither the operands nor the result of b. */
static int no_overlap(const struct hd_joint *a, const struct hd_joint *b)
{
	const struct hd_mm_shape *s = hd_mm_shape_of(product_of(a)->mm);
	struct hd_range c = hd_range_of(s, HD_MM_C, operand(a, HD_MM_C));

	for (int o = 0; o < HD_MM_OPERANDS; o++)
		if (s->dtype[o] && hd_ranges_overlap(c, hd_range_of(s, o, operand(b, o))))
			return 0;
	return 1;
}

static struct lot lot_of(const struct hd_joint *l, size_t at, size_t end)
{
	struct lot lot = { .from = at, .n = 1 };

	while (at + lot.n < end && lot.n < MOST && is_plain(&l[at]) && is_mate(&l[at], &l[at + lot.n])) {
		for (size_t i = at; i < at + lot.n; i++)
			if (!no_overlap(&l[i], &l[at + lot.n]) || !no_overlap(&l[at + lot.n], &l[i]))
				return lot;
		lot.n++;
	}
	return lot;
}

static void unjoin(void *state)
{
	struct product_lots *j = state;

	for (size_t i = 0; i < j->n; i++)
		hd_mm_own_drop(&j->lots[i].as_one);
	free(j->l);
	free(j->lots);
	free(j);
}

static void *join(const struct hd_joint *l, size_t n)
{
	struct product_lots *j = hd_alloc(sizeof(*j));

	j->l = hd_alloc(n * sizeof(*l));
	j->lots = hd_alloc(n * sizeof(*j->lots));
	memcpy(j->l, l, n * sizeof(*l));
	for (size_t at = 0; at < n; at += j->lots[j->n++].n)
		j->lots[j->n] = lot_of(l, at, n);
	if (j->n < n)
		return j;
	unjoin(j);
	return NULL;
}

static void run_as_one(const struct lot *t, const struct hd_joint *l)
{
	struct hd_mm_operands o[MOST];

	for (size_t i = 0; i < t->n; i++)
		o[i] = (struct hd_mm_operands){ .c = l[i].out[0],
						.from = l[i].acc ? l[i].out[0] : NULL,
						.b = operand(&l[i], HD_MM_B),
						.bias = operand(&l[i], HD_MM_BIAS) };
	hd_mm_several_run(&t->as_one, operand(l, HD_MM_A), o);
}

/* The choice of implementations is known only at the first run, so that is when lots are joined. */
static void run_joined(void *state, const struct hd_run *r)
{
	struct product_lots *j = state;
	struct hd_run mine = *r;

	for (size_t i = 0; i < j->n; i++) {
		struct lot *t = &j->lots[i];
		const struct hd_joint *l = &j->l[t->from];

		if (t->n > 1 && !t->tried) {
			t->tried = 1;
			t->joined = hd_mm_several(&t->as_one, product_of(l)->mm, l->acc != 0, (int64_t)t->n);
		}
		if (t->joined) {
			run_as_one(t, l);
			continue;
		}
		for (size_t k = 0; k < t->n; k++) {
			mine.acc = l[k].acc;
			run(l[k].prep, l[k].out, l[k].in, &mine);
		}
	}
}

static double bound(const struct hd_prep *prep, int any)
{
	const struct cpu_product *p = prep->state;
	struct einsum e = p->e;
	struct hd_mm_shape s;
	double times = 1;

	if (!e.count || e.empty)
		return 0;
	e.nouter = 0;
	hd_plan_product(&e, &s);
	for (int i = 0; i < e.nouter; i++)
		times *= (double)e.outer[i].n;
	return times * hd_mm_least(&s, any);
}

const struct hd_kernel hd_cpu_einsum = { .name = "einsum",
					 .flags = HD_K_ACC,
					 .prepare = prepare,
					 .scratch = scratch,
					 .run = run,
					 .join = join,
					 .run_joined = run_joined,
					 .unjoin = unjoin,
					 .bound = bound };
