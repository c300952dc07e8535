/* SPDX-License-Identifier: Apache-2.0
 * einsum: a product of two tensors with named dims.
 *
 * kernels/prepare/product.h finds the matrix product, and the loops around it.  Bias and addend are part of the
 * product if its layout allows this.  If there is no matrix product, one thread computes each element: slowly, but
 * with the same numbers.
 */
#include "kernels/cuda/matmul/product.h"

struct product {
	struct einsum e;
	struct hd_product *mm;
	int bias_inside, add_matches;
};

/* Counts of products. Loops are hundreds of times slower than the library, so benchmarks read these counts. */
static int64_t prepared;       /* so far */
static int64_t in_loops;       /* of these, those that run in loops */
static int64_t with_gelus;     /* those with a gelu inside */
static int64_t refused_at_run; /* those that loops computed because of their operands' addresses */
static int64_t grouped;        /* those that run in a batch with others */

char *hd_einsum_choices(void)
{
	return hd_format(
		"einsum.products %lld\neinsum.in_loops %lld\neinsum.with_gelu %lld\neinsum.refused %lld\neinsum.grouped %lld\n",
		(long long)prepared, (long long)in_loops, (long long)with_gelus, (long long)refused_at_run,
		(long long)grouped);
}

/* -- what cuBLASLt refuses ----------------------------------------------------------------------------------------- */
/* Loops are a hundred times slower than the library, so a run prints a warning, once for each set of new refusals. */
static int64_t refused, refused_terms, refused_count, refused_reported;

static void refuse(const struct einsum *e)
{
	refused++;
	refused_count = e->count;
	refused_terms = 1;
	for (int d = 0; d < e->nred; d++)
		refused_terms *= e->red[d].n;
}

char *hd_einsum_refusals(void)
{
	if (refused == refused_reported)
		return NULL;
	refused_reported = refused;
	return hd_format(
		"cuda: cuBLASLt cannot compute %lld of the products, the last of %lld sums of %lld terms: they run "
		"in plain loops, which are slow",
		(long long)refused, (long long)refused_count, (long long)refused_terms);
}

static void release(void *state)
{
	struct product *p = (struct product *)state;

	if (p->mm)
		hd_product_release(p->mm);
	free(p);
}

/* Returns whether the addend has c's layout and dtype. */
static int add_matches_c(const struct einsum *e)
{
	for (int d = 0; d < e->nout; d++)
		if (e->out[d].n > 1 && e->out[d].stride[OP_ADD] != e->out[d].stride[OP_C])
			return 0;
	return e->dtype[OP_ADD] == e->dtype[OP_C];
}

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	struct product *q = (struct product *)hd_alloc(sizeof(*q));
	struct hd_mm_shape s;
	int rc = hd_prepare_einsum(d, &q->e, "cuda", err);

	if (rc < 0) {
		free(q);
		return rc;
	}
	if (q->e.count && !q->e.empty) {
		q->bias_inside = hd_plan_product(&q->e, &s);
		if (q->bias_inside)
			s.dtype[HD_MM_BIAS] = q->e.dtype[OP_BIAS];
		else
			memset(s.stride[HD_MM_BIAS], 0, sizeof(s.stride[HD_MM_BIAS]));
		q->mm = hd_product_get(&s);
		if (!q->mm && q->bias_inside) { /* the library has no product with a bias of this dtype */
			q->bias_inside = 0;
			s.dtype[HD_MM_BIAS] = 0;
			memset(s.stride[HD_MM_BIAS], 0, sizeof(s.stride[HD_MM_BIAS]));
			q->mm = hd_product_get(&s);
		}
	}
	if (q->mm && q->e.nouter && !hd_product_anywhere(q->mm)) { /* a refusal must come before anything is written */
		hd_product_release(q->mm);
		q->mm = NULL;
	}
	prepared += q->e.count && !q->e.empty;
	in_loops += q->e.count && !q->e.empty && !q->mm;
	if (q->e.count && !q->e.empty && !q->mm)
		refuse(&q->e);
	q->add_matches = q->e.dtype[OP_ADD] && add_matches_c(&q->e);
	p->state = q;
	p->release = release;
	return HD_OK;
}

HD_DEV float element(const void *p, uint32_t dtype, int64_t i)
{
	return dtype == HD_DTYPE_F32 ? ((const float *)p)[i] : to_float(((const bf16 *)p)[i]);
}

struct operands {
	void *mem[OPERANDS];
};

/* c = (keep ? c : 0) + bias + add, plus the product if `product` is set */
struct plain_einsum {
	struct einsum e;
	operands m;
	int keep, product;

	HD_DEV double dot(int64_t a, int64_t b) const
	{
		int64_t terms = 1;
		double sum = 0;

		for (int d = 0; d < e.nred; d++)
			terms *= e.red[d].n;
		for (int64_t t = 0; t < terms; t++) {
			int64_t rest = t, ia = a, ib = b;

			for (int d = e.nred - 1; d >= 0; d--) {
				ia += rest % e.red[d].n * e.red[d].stride[OP_A];
				ib += rest % e.red[d].n * e.red[d].stride[OP_B];
				rest /= e.red[d].n;
			}
			sum += (double)element(m.mem[OP_A], e.dtype[OP_A], ia) *
			       element(m.mem[OP_B], e.dtype[OP_B], ib);
		}
		return sum;
	}

	template <int N> HD_DEV void at(int64_t i) const
	{
		int64_t left = i, at[OPERANDS];
		double x = keep ? element(m.mem[OP_C], e.dtype[OP_C], i) : 0;

		for (int o = 0; o < OPERANDS; o++)
			at[o] = 0;
		for (int d = e.nout - 1; d >= 0; d--) {
			int64_t j = left % e.out[d].n;

			left /= e.out[d].n;
			for (int o = 0; o < OPERANDS; o++)
				at[o] += j * e.out[d].stride[o];
		}
		if (m.mem[OP_BIAS])
			x += element(m.mem[OP_BIAS], e.dtype[OP_BIAS], at[OP_BIAS]);
		if (m.mem[OP_ADD])
			x += element(m.mem[OP_ADD], e.dtype[OP_ADD], at[OP_ADD]);
		if (product)
			x += dot(at[OP_A], at[OP_B]);
		if (e.dtype[OP_C] == HD_DTYPE_F32)
			((float *)m.mem[OP_C])[i] = (float)x;
		else
			from_float((bf16 *)m.mem[OP_C] + i, (float)x);
	}
};

static void plain_run(const struct hd_run *r, const struct einsum *e, operands m, int keep, int product)
{
	hd_each<1>(r, e->count, 1, plain_einsum{ *e, m, keep, product });
}

static void *shift(const struct einsum *e, const operands *m, int o, int64_t by)
{
	return m->mem[o] ? (char *)m->mem[o] + by * (HD_BITS(e->dtype[o]) / 8) : NULL;
}

/* Runs the matrix product for every index of the loops around it.  The loops' strides are in the product's roles,
 * which may be swapped. */
static int products(const struct product *p, const struct hd_run *r, const operands *m, int keep)
{
	const struct einsum *e = &p->e;
	int64_t at[3 * HD_MAX_DIMS] = { 0 }, off[OPERANDS] = { 0 };
	int a = e->swapped ? OP_B : OP_A, b = e->swapped ? OP_A : OP_B;

	for (;;) {
		int i = e->nouter - 1, again = 0;
		void *c = shift(e, m, OP_C, off[OP_C]);

		for (int j = 0; j < e->nouter; j++)
			again |= at[j] && !e->outer[j].stride[OP_C];
		HD_TRY(hd_product_run(p->mm, r, c, shift(e, m, a, off[OP_A]), shift(e, m, b, off[OP_B]),
				      again ? NULL : shift(e, m, OP_BIAS, off[OP_BIAS]),
				      keep || again ? c : shift(e, m, OP_ADD, off[OP_C]), NULL));
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

static void run(const struct hd_prep *prep, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct product *p = (const struct product *)prep->state;
	const struct einsum *e = &p->e;
	operands m = { { in[0], in[1], out[0], NULL, NULL } }, first = { { NULL, NULL, out[0], NULL, NULL } };
	int keep = r->acc;

	if (e->dtype[OP_BIAS])
		m.mem[OP_BIAS] = in[2];
	if (e->dtype[OP_ADD])
		m.mem[OP_ADD] = in[e->dtype[OP_BIAS] ? 3 : 2];
	if (m.mem[OP_ADD] == out[0] && m.mem[OP_ADD]) { /* in place: c already contains the addend */
		m.mem[OP_ADD] = NULL;
		keep = 1;
	}
	if (!p->mm) {
		if (!e->empty || !keep || m.mem[OP_BIAS] || m.mem[OP_ADD])
			plain_run(r, e, m, keep, !e->empty);
		return;
	}
	first.mem[OP_BIAS] = p->bias_inside ? NULL : m.mem[OP_BIAS];
	first.mem[OP_ADD] = p->add_matches && !keep && !first.mem[OP_BIAS] ? NULL : m.mem[OP_ADD];
	if (first.mem[OP_ADD] || first.mem[OP_BIAS]) {
		plain_run(r, e, first, keep, 0);
		keep = 1;
	}
	if (first.mem[OP_ADD])
		m.mem[OP_ADD] = NULL;
	if (first.mem[OP_BIAS])
		m.mem[OP_BIAS] = NULL;
	/* A refusal comes before anything is written, so plain loops can still take over. */
	if (products(p, r, &m, keep) < 0) {
		refuse(e);
		refused_at_run++;
		plain_run(r, e, m, keep, 1);
	}
}

/* -- several as one ------------------------------------------------------------------------------------------------ */
/* Products of equal shapes in succession that share an operand are one batch, if the others are evenly spaced.
 * Examples are queries, keys and values, and the gradients of their weights.  Such a launch has a single last wave
 * of blocks instead of three.  Products that add to the same result (the gradient of what those three read) are one
 * sum, if that is faster (chain.cu). */
struct lot {
	struct hd_product *mm;  /* a batch of all n, or NULL */
	struct hd_chain *chain; /* a sum of all n; if both are NULL, they run one after another */
	size_t from, n;
	void *at[OPERANDS]; /* operands of the first, in the product's roles */
};
struct joined {
	struct hd_joint *l;
	struct lot *lots;
	size_t n;
};

static const struct product *product_of(const struct hd_joint *l)
{
	return (const struct product *)l->prep->state;
}

/* Returns operand o in the product's roles, or NULL for a bias that does not exist. */
static void *operand(const struct hd_joint *l, int o)
{
	const struct einsum *e = &product_of(l)->e;

	return o == HD_MM_C      ? l->out[0]
	       : o == HD_MM_BIAS ? e->dtype[OP_BIAS] ? l->in[2] : NULL
				 : l->in[(o == HD_MM_B) != e->swapped];
}

/* Returns whether this is one call of the library, and nothing else. */
static int is_plain(const struct hd_joint *l)
{
	const struct product *p = product_of(l);

	return p->mm && !p->e.nouter && !p->e.dtype[OP_ADD] && hd_product_shape(p->mm)->ndim == 3 &&
	       (!p->e.dtype[OP_BIAS] || p->bias_inside);
}

/* Returns whether no result overlaps another product's operands or result. */
static int no_overlap(const struct hd_joint *l, size_t n, const struct hd_mm_shape *s)
{
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < n; j++)
			for (int o = 0; o <= HD_MM_BIAS; o++)
				if (i != j && (o < HD_MM_BIAS || s->dtype[o]) &&
				    hd_ranges_overlap(hd_range_of(s, HD_MM_C, operand(&l[i], HD_MM_C)),
						      hd_range_of(s, o, operand(&l[j], o))))
					return 0;
	return 1;
}

/* Returns the distance from one operand o to the next in elements, going through l forwards (step 1) or backwards
 * (-1).  Returns -1 if it is uneven, negative, or not a multiple of 16 bytes. */
static int64_t spacing(const struct hd_joint *l, size_t n, int o, uint32_t dtype, int step)
{
	const struct hd_joint *first = step > 0 ? l : l + n - 1;
	int64_t by = (const char *)operand(first + step, o) - (const char *)operand(first, o),
		each = HD_BITS(dtype) / 8;

	for (size_t i = 1; i < n; i++)
		if ((const char *)operand(first + step * (ptrdiff_t)i, o) -
			    (const char *)operand(first + step * ((ptrdiff_t)i - 1), o) !=
		    by)
			return -1;
	return by < 0 || by % 16 ? -1 : by / each;
}

/* Returns n products as one batch, or NULL if that is not possible. */
static struct hd_product *as_batch(const struct hd_joint *l, size_t n, int step)
{
	struct hd_mm_shape s = *hd_product_shape(product_of(l)->mm);

	if (!no_overlap(l, n, &s))
		return NULL;
	s.ndim = 4;
	memmove(s.n + 1, s.n, 3 * sizeof(*s.n));
	s.n[0] = (int64_t)n;
	for (int o = 0; o < HD_MM_OPERANDS; o++) {
		memmove(s.stride[o] + 1, s.stride[o], 3 * sizeof(*s.n));
		s.stride[o][0] = s.dtype[o] ? spacing(l, n, o, s.dtype[o], step) : 0;
		if (s.stride[o][0] < 0)
			return NULL;
	}
	return s.stride[HD_MM_A][0] && s.stride[HD_MM_B][0] ? NULL : hd_product_get(&s);
}

/* Returns what is added to the product: c itself, the addend, or NULL. */
static void *addend(const struct hd_joint *l)
{
	const struct einsum *e = &product_of(l)->e;

	return l->acc ? l->out[0] : e->dtype[OP_ADD] ? l->in[e->dtype[OP_BIAS] ? 3 : 2] : NULL;
}

/* Returns whether l adds to the result of `first`. */
static int adds_to(const struct hd_joint *first, const struct hd_joint *l)
{
	return l->out[0] == first->out[0] && addend(l) == first->out[0];
}

/* Returns n products, each of which adds to the previous one, as one sum.  Returns NULL if that is not possible. */
static struct hd_chain *as_sum(const struct hd_joint *l, size_t n)
{
	struct hd_product *p[HD_CHAIN_MOST];

	for (size_t i = 0; i < n; i++) {
		const struct product *x = product_of(&l[i]);

		p[i] = x->mm;
		if (!x->mm || x->e.nouter || x->e.dtype[OP_BIAS] || hd_product_shape(x->mm)->ndim != 3 ||
		    (x->e.dtype[OP_ADD] && (!x->add_matches || (l[i].acc && l[i].in[2] != l[i].out[0]))))
			return NULL;
	}
	for (size_t i = 0; i < n; i++)
		for (int o = 0; o < HD_MM_C; o++) /* a sum writes c only at its end, so no operand may overlap c */
			if (hd_ranges_overlap(hd_range_of(hd_product_shape(p[0]), HD_MM_C, l->out[0]),
					      hd_range_of(hd_product_shape(p[i]), o, operand(&l[i], o))))
				return NULL;
	return hd_chain_get(p, (int)n);
}

static int run_sum(const struct lot *t, const struct hd_joint *l, const struct hd_run *r)
{
	const void *a[HD_CHAIN_MOST], *b[HD_CHAIN_MOST];

	for (size_t i = 0; i < t->n; i++) {
		a[i] = operand(&l[i], HD_MM_A);
		b[i] = operand(&l[i], HD_MM_B);
	}
	return hd_chain_run(t->chain, r, l->out[0], a, b, addend(l));
}

static struct lot lot_of(const struct hd_joint *l, size_t at, size_t end)
{
	struct lot lot = { NULL, NULL, at, 1, { NULL } };
	size_t n = 1;

	while (at + n < end && is_plain(&l[at]) && is_plain(&l[at + n]) && l[at + n].acc == l[at].acc &&
	       product_of(&l[at + n])->mm == product_of(&l[at])->mm &&
	       product_of(&l[at + n])->e.swapped == product_of(&l[at])->e.swapped)
		n++;
	for (; n > 1; n--)
		for (int step = 1; step >= -1; step -= 2) {
			const struct hd_joint *first = step > 0 ? &l[at] : &l[at + n - 1];

			lot.mm = as_batch(&l[at], n, step);
			if (!lot.mm)
				continue;
			for (int o = 0; o <= HD_MM_BIAS; o++)
				lot.at[o] = operand(first, o);
			lot.n = n;
			grouped += (int64_t)n;
			return lot;
		}
	for (n = 1; at + n < end && n < HD_CHAIN_MOST && adds_to(&l[at], &l[at + n]);)
		n++;
	for (; n > 1 && !lot.chain; n--)
		if ((lot.chain = as_sum(&l[at], n)))
			lot.n = n;
	return lot;
}

static void unjoin(void *state)
{
	struct joined *j = (struct joined *)state;

	for (size_t i = 0; i < j->n; i++) {
		if (j->lots[i].mm)
			hd_product_release(j->lots[i].mm);
		if (j->lots[i].chain)
			hd_chain_release(j->lots[i].chain);
	}
	free(j->l);
	free(j->lots);
	free(j);
}

static void *join(const struct hd_joint *l, size_t n)
{
	struct joined *j = (struct joined *)hd_alloc(sizeof(*j));

	j->l = (struct hd_joint *)hd_alloc(n * sizeof(*l));
	j->lots = (struct lot *)hd_alloc(n * sizeof(*j->lots));
	memcpy(j->l, l, n * sizeof(*l));
	for (size_t at = 0; at < n; at += j->lots[j->n++].n)
		j->lots[j->n] = lot_of(l, at, n);
	if (j->n < n)
		return j;
	unjoin(j);
	return NULL;
}

static void run_joined(void *state, const struct hd_run *r)
{
	const struct joined *j = (const struct joined *)state;
	struct hd_run mine = *r;

	for (size_t i = 0; i < j->n; i++) {
		const struct lot *t = &j->lots[i];
		const struct hd_joint *l = &j->l[t->from];

		mine.acc = l->acc;
		if (t->mm && hd_product_run(t->mm, &mine, t->at[HD_MM_C], t->at[HD_MM_A], t->at[HD_MM_B],
					    t->at[HD_MM_BIAS], l->acc ? t->at[HD_MM_C] : NULL, NULL) >= 0)
			continue;
		if (t->chain && run_sum(t, l, &mine) >= 0)
			continue;
		for (size_t k = 0; k < t->n; k++) {
			mine.acc = l[k].acc;
			run(l[k].prep, l[k].out, l[k].in, &mine);
		}
	}
}

HD_CUDA_KERNEL_JOINS(einsum, "einsum", HD_K_ACC, prepare, run, join, run_joined, unjoin);

/* -- with a gelu --------------------------------------------------------------------------------------------------- */
/* The library's own gelu (for bf16, if all is one matrix product); otherwise the product, and then the gelu kernel. */
extern "C" const struct hd_kernel hd_cuda_gelu, hd_cuda_gelu_d;

struct with_gelu {
	struct hd_prep product, gelu;
	struct hd_product *whole; /* NULL: in two steps */
	int32_t keep, last;       /* last: the input that gelu_d reads */
};

static void release_gelu(void *state)
{
	struct with_gelu *s = (struct with_gelu *)state;

	if (s->whole)
		hd_product_release(s->whole);
	if (s->product.release)
		s->product.release(s->product.state);
	free(s);
}

static struct hd_product *in_one(const struct hd_kernel_desc *d, int then)
{
	struct einsum e;
	struct hd_mm_shape s;
	struct hd_err none = {};
	int bias;

	memset(&e, 0, sizeof(e));
	if (hd_prepare_einsum(d, &e, "cuda", &none) < 0 || !e.count || e.empty || e.dtype[OP_C] != HD_DTYPE_BF16)
		return NULL;
	bias = hd_plan_product(&e, &s);
	if (e.nouter || e.dtype[OP_ADD] || (e.dtype[OP_BIAS] && !bias))
		return NULL;
	if (bias)
		s.dtype[HD_MM_BIAS] = e.dtype[OP_BIAS];
	else
		memset(s.stride[HD_MM_BIAS], 0, sizeof(s.stride[HD_MM_BIAS]));
	s.then = then;
	return hd_product_get(&s);
}

static int prepare_with(const struct hd_kernel_desc *d, struct hd_prep *p, int back, struct hd_err *err)
{
	int keep = hd_attr_num(d->attr, "keep", 0) != 0;
	struct hd_kernel_desc mm = { d->attr, d->nin - (uint32_t)back, 1, d->in, d->out, d->never };
	struct hd_view both[2] = { d->out[0], d->out[0] };
	struct hd_kernel_desc act = { "", 1 + (uint32_t)back, 1, both, d->out, d->never };
	struct with_gelu *s;
	int rc;

	if (d->nin < 2 + (uint32_t)back || d->nout != 1 + (uint32_t)keep ||
	    (keep && d->out[1].dtype != d->out[0].dtype) || (back && d->in[d->nin - 1].dtype != d->out[0].dtype))
		return hd_err_set(err, HD_EINVAL, "einsum_gelu: %u inputs and %u outputs", d->nin, d->nout);
	s = (struct with_gelu *)hd_alloc(sizeof(*s));
	rc = prepare(&mm, &s->product, err);
	if (rc >= 0)
		rc = (back ? &hd_cuda_gelu_d : &hd_cuda_gelu)->prepare(&act, &s->gelu, err);
	if (rc < 0) {
		release_gelu(s);
		return rc;
	}
	s->keep = keep;
	s->last = (int32_t)d->nin - 1;
	s->whole = in_one(&mm, back ? HD_MM_GELU_D : keep ? HD_MM_GELU_KEEP : HD_MM_GELU);
	with_gelus += s->whole != NULL;
	p->state = s;
	p->release = release_gelu;
	return HD_OK;
}

static int prepare_gelu(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	return prepare_with(d, p, 0, err);
}
static int prepare_gelu_d(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	return prepare_with(d, p, 1, err);
}

static int run_in_one(const struct with_gelu *s, void *const *out, void *const *in, const void *aux,
		      const struct hd_run *r)
{
	const struct einsum *e = &((const struct product *)s->product.state)->e;

	return s->whole && hd_aligned(aux) && hd_aligned(out[0]) &&
	       hd_product_run(s->whole, r, out[0], in[e->swapped], in[!e->swapped], e->dtype[OP_BIAS] ? in[2] : NULL,
			      NULL, aux) >= 0;
}

static void run_gelu(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct with_gelu *s = (const struct with_gelu *)p->state;
	void *x = s->keep ? out[1] : out[0];

	if (run_in_one(s, out, in, s->keep ? x : NULL, r))
		return;
	run(&s->product, &x, in, r);
	hd_cuda_gelu.run(&s->gelu, out, &x, r);
}

static void run_gelu_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct with_gelu *s = (const struct with_gelu *)p->state;
	void *both[2] = { in[s->last], out[0] };

	if (run_in_one(s, out, in, in[s->last], r))
		return;
	run(&s->product, out, in, r);
	hd_cuda_gelu_d.run(&s->gelu, out, both, r);
}

HD_CUDA_KERNEL(einsum_gelu, "einsum_gelu", 0, prepare_gelu, run_gelu);
HD_CUDA_KERNEL(einsum_gelu_d, "einsum_gelu_d", 0, prepare_gelu_d, run_gelu_d);
