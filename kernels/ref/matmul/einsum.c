/* SPDX-License-Identifier: Apache-2.0
 * Reference kernels for einsum, in plain loops. Every element of c is the sum over all indices of the dims that c does
 * not have.
 */
#include <config.h>
#include "engine/device/device.h"
#include <stdlib.h>

extern const struct hd_kernel hd_ref_gelu, hd_ref_gelu_d;
enum { A, B, C, BIAS, ADD, OPERANDS };

struct ref_einsum {
	int nout, ndims, has_bias, has_add; /* the first nout dims are c's, the others are summed */
	int64_t n[3 * HD_MAX_DIMS], stride[3 * HD_MAX_DIMS][OPERANDS];
};

static int64_t stride_of(const struct hd_view *v, const struct hd_dim *dim)
{
	int64_t s = 1;

	for (uint32_t i = v->ndim; i-- > 0; s *= v->n[i])
		if (v->dims[i] == dim)
			return s;
	return 0;
}

static int known(const struct hd_view *v, const struct hd_dim *dim)
{
	for (uint32_t i = 0; i < v->ndim; i++)
		if (v->dims[i] == dim)
			return 1;
	return 0;
}

static void add_dim(struct ref_einsum *e, const struct hd_view *const *v, const struct hd_dim *dim, int64_t n)
{
	for (int o = 0; o < OPERANDS; o++)
		e->stride[e->ndims][o] = v[o] ? stride_of(v[o], dim) : 0;
	e->n[e->ndims++] = n;
}

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	int bias = hd_attr_num(d->attr, "bias", 0) != 0, add = hd_attr_num(d->attr, "add", 0) != 0;
	const struct hd_view *v[OPERANDS] = { 0 };
	struct ref_einsum *e;

	if ((int)d->nin != 2 + bias + add || d->nout != 1)
		return hd_err_set(err, HD_EINVAL, "einsum: %u inputs, not %d", d->nin, 2 + bias + add);
	v[A] = &d->in[0];
	v[B] = &d->in[1];
	v[C] = &d->out[0];
	v[BIAS] = bias ? &d->in[2] : NULL;
	v[ADD] = add ? &d->in[2 + bias] : NULL;
	for (int o = 0; o < OPERANDS; o++)
		if (v[o] && v[o]->dtype != HD_DTYPE_F64)
			return hd_err_set(err, HD_ENOTSUP, "einsum: no %s on ref", hd_dtype_name(v[o]->dtype));
	e = hd_alloc(sizeof(*e));
	e->has_bias = bias;
	e->has_add = add;
	for (uint32_t i = 0; i < v[C]->ndim; i++)
		add_dim(e, v, v[C]->dims[i], v[C]->n[i]);
	e->nout = e->ndims;
	for (int o = A; o <= B; o++)
		for (uint32_t i = 0; i < v[o]->ndim; i++)
			if (!known(v[C], v[o]->dims[i]) && !(o == B && known(v[A], v[o]->dims[i])))
				add_dim(e, v, v[o]->dims[i], v[o]->n[i]);
	p->state = e;
	p->release = free;
	return 0;
}

/* Returns the sum over dims d..., where operands begin at `at`. */
static double product(const struct ref_einsum *e, double *const *mem, int d, const int64_t *at)
{
	int64_t here[OPERANDS];
	double sum = 0;

	if (d == e->ndims)
		return mem[A][at[A]] * mem[B][at[B]];
	for (int64_t i = 0; i < e->n[d]; i++) {
		for (int o = 0; o < OPERANDS; o++)
			here[o] = at[o] + i * e->stride[d][o];
		sum += product(e, mem, d + 1, here);
	}
	return sum;
}

static void each(const struct ref_einsum *e, double *const *mem, int acc, int d, const int64_t *at)
{
	int64_t here[OPERANDS];
	double x;

	if (d == e->nout) {
		x = product(e, mem, d, at);
		if (acc)
			x += mem[C][at[C]];
		if (e->has_bias)
			x += mem[BIAS][at[BIAS]];
		if (e->has_add)
			x += mem[ADD][at[ADD]];
		mem[C][at[C]] = x;
		return;
	}
	for (int64_t i = 0; i < e->n[d]; i++) {
		for (int o = 0; o < OPERANDS; o++)
			here[o] = at[o] + i * e->stride[d][o];
		each(e, mem, acc, d + 1, here);
	}
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct ref_einsum *e = p->state;
	double *mem[OPERANDS] = { in[0], in[1], out[0], NULL, NULL };
	const int64_t start[OPERANDS] = { 0 };

	if (e->has_bias)
		mem[BIAS] = in[2];
	if (e->has_add)
		mem[ADD] = in[2 + e->has_bias];
	each(e, mem, r->acc && mem[ADD] != mem[C], 0, start);
}

const struct hd_kernel hd_ref_einsum = { .name = "einsum", .flags = HD_K_ACC, .prepare = prepare, .run = run };

/* -- with gelu ------------------------------------------------------------------------------------------- */
/* y = gelu(product + bias), and perhaps gelu's argument; or the product times gelu's slope at x. */
struct with_gelu {
	struct hd_prep product, gelu;
	int64_t n;
};

static void release_gelu(void *state)
{
	struct with_gelu *s = state;

	s->product.release(s->product.state);
	free(s);
}

static int prepare_with(const struct hd_kernel_desc *d, struct hd_prep *p, int back, struct hd_err *err)
{
	struct hd_kernel_desc mm = { d->attr, d->nin - (uint32_t)back, 1, d->in, d->out, d->never };
	struct hd_view both[2] = { d->out[0], d->out[0] };
	struct hd_kernel_desc act = { "", 1 + (uint32_t)back, 1, both, d->out, d->never };
	struct with_gelu *s;

	if (d->nin < 2 + (uint32_t)back || d->nout != 1 + (hd_attr_num(d->attr, "keep", 0) != 0))
		return hd_err_set(err, HD_EINVAL, "einsum_gelu: %u inputs and %u outputs", d->nin, d->nout);
	s = hd_alloc(sizeof(*s));
	s->n = hd_view_count(&d->out[0]);
	if (prepare(&mm, &s->product, err) < 0 ||
	    (back ? &hd_ref_gelu_d : &hd_ref_gelu)->prepare(&act, &s->gelu, err) < 0) {
		if (s->product.release)
			s->product.release(s->product.state);
		free(s);
		return err->code;
	}
	p->n[0] = d->nout > 1;
	p->n[1] = d->nin - 1;
	p->state = s;
	p->release = release_gelu;
	return 0;
}

static int prepare_gelu(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	return prepare_with(d, p, 0, err);
}
static int prepare_gelu_d(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	return prepare_with(d, p, 1, err);
}

static void run_gelu(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct with_gelu *s = p->state;
	void *x = p->n[0] ? out[1] : out[0];

	run(&s->product, &x, in, r);
	hd_ref_gelu.run(&s->gelu, out, &x, r);
}

static void run_gelu_d(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct with_gelu *s = p->state;
	void *both[2] = { in[p->n[1]], out[0] };

	run(&s->product, out, in, r);
	hd_ref_gelu_d.run(&s->gelu, out, both, r);
}

const struct hd_kernel hd_ref_einsum_gelu = { .name = "einsum_gelu", .prepare = prepare_gelu, .run = run_gelu };
const struct hd_kernel hd_ref_einsum_gelu_d = { .name = "einsum_gelu_d", .prepare = prepare_gelu_d, .run = run_gelu_d };
