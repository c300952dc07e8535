/* SPDX-License-Identifier: Apache-2.0
 * map: an elementwise expression over inputs that are broadcast by dim to the dims of the output.
 *
 * prepare turns the postfix program into numbered values, each computed once however often the
 * text has it (derivatives repeat their subexpressions), and gives every value a buffer of one
 * block that is used again after its last reader.  run walks the output in blocks that stay in the
 * first-level cache: per block each value is one vectorised loop.  Inputs that lie like the output
 * are read in place, scalars are spread once per thread, all others are gathered by rows.
 *
 * An output may be one of its inputs: only the last value of a block writes to it, element by
 * element.
 */
#include <config.h>
#include "engine/device/device.h"
#include "engine/base/expr.h"
#include "kernels/cpu/low.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 512			/* elements: 2 KiB a buffer */
#define POOL (32 * BLOCK)		/* elements of all buffers of a thread, on its stack */
#define SPLIT 32768			/* elements below which one thread is faster */
#define MAX_IN 26

enum { WHOLE, GATHER, SPREAD };
enum { NO_BUFFER = -1 };

struct value {
	int32_t code, var, arg[3];
	int32_t buffer;			/* NO_BUFFER: read in place, or the output itself */
	float num;
};

struct program {
	int n, buffers, block;
	int64_t total;
	int32_t nd;			/* dims of the output, neighbours joined where possible */
	int64_t extent[HD_MAX_DIMS];
	struct operand {
		int how;
		uint32_t dtype;
		int64_t stride[HD_MAX_DIMS];
	} in[MAX_IN];
	uint32_t dtype;			/* of the output */
	struct value v[];		/* the last one is the result */
};

/* -- prepare: operands ------------------------------------------------------------------------- */

static int find_dim(const struct hd_view *v, const struct hd_dim *d)
{
	for (uint32_t i = 0; i < v->ndim; i++)
		if (v->dims[i] == d)
			return (int)i;
	return -1;
}

static int possible(uint32_t dtype) { return dtype == HD_F32 || dtype == HD_F64 || dtype == HD_BF16; }

static int set_operand(struct program *p, int i, const struct hd_view *x, const struct hd_view *y,
		       struct hd_err *err)
{
	struct operand *o = &p->in[i];
	int64_t stride = 1;

	if (!possible(x->dtype))
		return hd_err_set(err, HD_ENOTSUP, "map: input %c is %s, only f32, f64 and bf16 are "
				  "possible", 'a' + i, hd_dtype_name(x->dtype));
	o->dtype = x->dtype;
	for (uint32_t k = x->ndim; k-- > 0; stride *= x->n[k]) {
		int at = find_dim(y, x->dims[k]);

		if (at < 0)
			return hd_err_set(err, HD_EINVAL, "map: input %c has dim %s, the output "
					  "has not", 'a' + i, x->dims[k]->name);
		if (x->n[k] != y->n[at])
			return hd_err_set(err, HD_EINVAL, "map: dim %s has %lld elements in input "
					  "%c and %lld in the output", x->dims[k]->name,
					  (long long)x->n[k], 'a' + i, (long long)y->n[at]);
		o->stride[at] = stride;
	}
	return 0;
}

static void drop_dim(struct program *p, int at, int nin)
{
	p->nd--;
	for (int k = at; k < p->nd; k++) {
		p->extent[k] = p->extent[k + 1];
		for (int i = 0; i < nin; i++)
			p->in[i].stride[k] = p->in[i].stride[k + 1];
	}
}

static int joins(const struct program *p, int k, int nin)
{
	for (int i = 0; i < nin; i++)
		if (p->in[i].stride[k] != p->in[i].stride[k + 1] * p->extent[k + 1])
			return 0;
	return 1;
}

static void join_dims(struct program *p, int nin)
{
	for (int k = p->nd - 1; k >= 0; k--)
		if (p->extent[k] == 1)
			drop_dim(p, k, nin);
	for (int k = p->nd - 2; k >= 0; k--)
		if (joins(p, k, nin)) {
			p->extent[k + 1] *= p->extent[k];
			drop_dim(p, k, nin);
		}
}

static void classify(struct program *p, struct operand *o)
{
	int64_t dense = 1;
	int whole = o->dtype == HD_F32, spread = 1;

	for (int k = p->nd - 1; k >= 0; k--) {
		whole = whole && o->stride[k] == dense;
		spread = spread && o->stride[k] == 0;
		dense *= p->extent[k];
	}
	o->how = spread ? SPREAD : whole ? WHOLE : GATHER;
}

static int set_operands(struct program *p, const struct hd_kernel_desc *d, struct hd_err *err)
{
	const struct hd_view *y = &d->out[0];

	if (!possible(y->dtype))
		return hd_err_set(err, HD_ENOTSUP, "map: the output is %s, only f32, f64 and bf16 are "
				  "possible", hd_dtype_name(y->dtype));
	p->dtype = y->dtype;
	p->total = hd_view_count(y);
	p->nd = (int32_t)y->ndim;
	memcpy(p->extent, y->n, y->ndim * sizeof(*y->n));
	for (int i = 0; i < (int)d->nin; i++)
		HD_TRY(set_operand(p, i, &d->in[i], y, err));
	join_dims(p, (int)d->nin);
	for (int i = 0; i < (int)d->nin; i++)
		classify(p, &p->in[i]);
	return 0;
}

/* -- prepare: values --------------------------------------------------------------------------- */

static int number_value(struct program *p, struct value v)
{
	for (int i = 0; i < p->n; i++)
		if (!memcmp(&p->v[i], &v, sizeof(v)))
			return i;
	p->v[p->n] = v;
	return p->n++;
}

static int arity(int code)
{
	if (code <= HD_X_NUM)
		return 0;
	if (code <= HD_X_DIV || code == HD_X_MIN || code == HD_X_MAX)
		return 2;
	return code == HD_X_WHERE ? 3 : 1;
}

/* A root that is an input or a number is equal to no later value, so the result is always last. */
static void set_values(struct program *p, const struct hd_expr *e)
{
	int stack[HD_LEN(e->op)], top = 0;

	for (int i = 0; i < e->n; i++) {
		struct value v;

		memset(&v, 0, sizeof(v));	/* compared as bytes */
		v.code = e->op[i].code;
		v.buffer = NO_BUFFER;
		if (v.code == HD_X_VAR)
			v.var = e->op[i].var;
		if (v.code == HD_X_NUM)
			v.num = (float)e->op[i].num;
		top -= arity(v.code);
		memcpy(v.arg, stack + top, (size_t)arity(v.code) * sizeof(int));
		stack[top++] = number_value(p, v);
	}
}

static int is_constant(const struct program *p, const struct value *v)
{
	return v->code == HD_X_NUM || (v->code == HD_X_VAR && p->in[v->var].how == SPREAD);
}

static int needs_buffer(const struct program *p, int i)
{
	const struct value *v = &p->v[i];

	if (v->code == HD_X_VAR)
		return p->in[v->var].how != WHOLE;
	return i < p->n - 1 || p->dtype != HD_F32 || v->code == HD_X_NUM;
}

/* Constants keep theirs; the others go back to the free list after the last reader. */
static void set_buffers(struct program *p)
{
	int last[HD_LEN(((struct hd_expr *)0)->op)] = { 0 }, list[HD_LEN(last)], nfree = 0;

	for (int i = 0; i < p->n; i++)
		for (int k = 0; k < arity(p->v[i].code); k++)
			last[p->v[i].arg[k]] = i;
	for (int i = 0; i < p->n; i++) {
		struct value *v = &p->v[i];

		if (needs_buffer(p, i))
			v->buffer = nfree && !is_constant(p, v) ? list[--nfree] : p->buffers++;
		for (int k = 0; k < arity(v->code); k++) {
			struct value *a = &p->v[v->arg[k]];

			if (last[v->arg[k]] != i || a->buffer == NO_BUFFER || is_constant(p, a))
				continue;
			list[nfree++] = a->buffer;
			last[v->arg[k]] = -1;	/* f(x, x) gives it back once */
		}
	}
	p->block = p->buffers > POOL / BLOCK ? POOL / p->buffers & ~15 : BLOCK;
}

static int map_prepare(const struct hd_kernel_desc *d, struct hd_prep *prep, struct hd_err *err)
{
	struct hd_expr e;
	struct program *p;
	int rc;

	if (d->nout != 1 || d->nin > MAX_IN)
		return hd_err_set(err, HD_EINVAL, "map: %u inputs and %u outputs, at most %d and "
				  "one are possible", d->nin, d->nout, MAX_IN);
	HD_TRY(hd_expr_compile(d->attr, &e, err));
	if (e.vars > (int)d->nin)
		return hd_err_set(err, HD_EINVAL, "map: \"%.200s\" reads input %c, the node has "
				  "%u inputs", d->attr, 'a' + e.vars - 1, d->nin);
	p = hd_alloc(sizeof(*p) + (size_t)e.n * sizeof(p->v[0]));
	rc = set_operands(p, d, err);
	if (rc < 0) {
		free(p);
		return rc;
	}
	set_values(p, &e);
	set_buffers(p);
	prep->state = p;
	prep->release = free;
	return 0;
}

/* -- run --------------------------------------------------------------------------------------- */

static void read_row(float *y, const void *x, uint32_t dtype, int64_t at, int64_t stride, int n)
{
	const double *xd = x;
	const float *xf = x;

	if (dtype == HD_F64)
		for (int i = 0; i < n; i++)
			y[i] = (float)xd[at + i * stride];
	else if (dtype == HD_BF16 && stride == 1)
		hd_raise(y, (const uint16_t *)x + at, n);
	else if (dtype == HD_BF16)
		for (int i = 0; i < n; i++)
			y[i] = hd_of_bf16(((const uint16_t *)x)[at + i * stride]);
	else if (stride == 1)
		memcpy(y, xf + at, (size_t)n * sizeof(*y));
	else
		for (int i = 0; i < n; i++)
			y[i] = xf[at + i * stride];
}

/* The n elements of an input that belong to the output's elements from `from` on. */
static void gather(float *y, const void *x, const struct program *p, const struct operand *o,
		   int64_t from, int n)
{
	int64_t index[HD_MAX_DIMS], at = 0;
	int last = p->nd - 1;

	for (int k = last; k >= 0; from /= p->extent[k--]) {
		index[k] = from % p->extent[k];
		at += index[k] * o->stride[k];
	}
	for (int done = 0, row; done < n; done += row) {
		int64_t left = p->extent[last] - index[last];

		row = left < n - done ? (int)left : n - done;
		read_row(y + done, x, o->dtype, at, o->stride[last], row);
		index[last] += row;
		at += row * o->stride[last];
		for (int k = last; k > 0 && index[k] == p->extent[k]; k--) {
			at += o->stride[k - 1] - index[k] * o->stride[k];
			index[k] = 0;
			index[k - 1]++;
		}
	}
}

/* exp, log, tanh by reduction and the polynomials of Cephes (single precision), without branches: a
 * loop over them vectorises.  Errors below 2 units in the last place, denormals included: other
 * kernels know their arguments and may use the shorter hd_expf, a text can say anything. */

/* c ? x : y by bits: where two ?: look at one number GCC makes jumps of them, and no vectors. */
static inline float pick(int c, float x, float y)
{
	uint32_t mask = -(uint32_t)c;

	return hd_float_of((hd_bits_of(x) & mask) | (hd_bits_of(y) & ~mask));
}

static inline float vexp(float x)
{
	const float magic = 0x1.8p23f;		/* adding it leaves an integer in the low bits */
	float in = pick(x > 89, 89, pick(x < -104, -104, x));	/* beyond: inf and 0 as well */
	float t = in * 1.44269504f + magic, n = t - magic, r, y;
	int32_t k = (int32_t)(hd_bits_of(t) - 0x4b400000u), half = k >> 1;

	r = in - n * 0.693359375f;
	r = r + n * 2.12194440e-4f;
	y = 1.9875691500e-4f;
	y = y * r + 1.3981999507e-3f;
	y = y * r + 8.3334519073e-3f;
	y = y * r + 4.1665795894e-2f;
	y = y * r + 1.6666665459e-1f;
	y = y * r + 5.0000001201e-1f;
	y = y * (r * r) + r + 1;
	/* 2^k in two factors: k goes from -150 to 128 */
	y = y * hd_float_of((uint32_t)(half + 127) << 23);
	return y * hd_float_of((uint32_t)(k - half + 127) << 23);
}

static inline float vlog(float x)
{
	const float smallest = 1.17549435e-38f, largest = 3.40282347e38f;
	int tiny = x < smallest;
	uint32_t root_half = 0x3f3504f3;
	int32_t bits = (int32_t)(hd_bits_of(pick(tiny, x * 8388608, x)) - root_half);
	float e = (float)(bits >> 23) - pick(tiny, 23, 0);
	float m = hd_float_of(((uint32_t)bits & 0x7fffff) + root_half) - 1, z = m * m, y;

	y = 7.0376836292e-2f;
	y = y * m - 1.1514610310e-1f;
	y = y * m + 1.1676998740e-1f;
	y = y * m - 1.2420140846e-1f;
	y = y * m + 1.4249322787e-1f;
	y = y * m - 1.6668057665e-1f;
	y = y * m + 2.0000714765e-1f;
	y = y * m - 2.4999993993e-1f;
	y = y * m + 3.3333331174e-1f;
	y = y * m * z - 2.12194440e-4f * e - 0.5f * z;
	y = m + y + 0.693359375f * e;
	y = pick(x == 0, -__builtin_inff(), pick(x < 0, __builtin_nanf(""), y));
	return pick(x <= largest, y, x);		/* inf and nan stay */
}

static inline float vtanh(float x)
{
	float a = __builtin_fabsf(x), z = x * x, p, q;

	p = -5.70498872745e-3f;
	p = p * z + 2.06390887954e-2f;
	p = p * z - 5.37397155531e-2f;
	p = p * z + 1.33314422036e-1f;
	p = p * z - 3.33332819422e-1f;
	p = p * z * x + x;
	q = __builtin_copysignf(1 - 2 / (vexp(a + a) + 1), x);
	return pick(a < 0.625f, p, q);
}

static inline float vsign(float x)
{
	float s = x < 0 ? -1 : x;

	return x > 0 ? 1 : s;
}

static inline float vwhere(float c, float x, float y)	/* both are read: the choice is a blend */
{
	return c > 0 ? x : y;
}

#define EACH(e) \
	_Pragma("omp simd") \
	for (int i = 0; i < n; i++) \
		y[i] = (e); \
	break

HD_CLONES static void compute(float *y, int code, const float *a, const float *b, const float *c,
			   int n)
{
	switch (code) {
	case HD_X_ADD: EACH(a[i] + b[i]);
	case HD_X_SUB: EACH(a[i] - b[i]);
	case HD_X_MUL: EACH(a[i] * b[i]);
	case HD_X_DIV: EACH(a[i] / b[i]);
	case HD_X_NEG: EACH(-a[i]);
	case HD_X_EXP: EACH(vexp(a[i]));
	case HD_X_LOG: EACH(vlog(a[i]));
	case HD_X_TANH: EACH(vtanh(a[i]));
	case HD_X_SQRT: EACH(__builtin_sqrtf(a[i]));
	case HD_X_ABS: EACH(__builtin_fabsf(a[i]));
	case HD_X_SIGN: EACH(vsign(a[i]));
	case HD_X_MIN: EACH(b[i] < a[i] ? b[i] : a[i]);
	case HD_X_MAX: EACH(b[i] > a[i] ? b[i] : a[i]);
	case HD_X_WHERE: EACH(vwhere(a[i], b[i], c[i]));
	}
}

static void fill(float *y, float value, int n)
{
	for (int i = 0; i < n; i++)
		y[i] = value;
}

static float value_of(const void *x, uint32_t dtype)
{
	return dtype == HD_F64 ? (float)*(const double *)x : hd_get(x, dtype == HD_BF16, 0);
}

static void spread_constants(const struct program *p, float *pool, void *const *in)
{
	for (int i = 0; i < p->n; i++) {
		const struct value *v = &p->v[i];
		float *y = pool + (size_t)v->buffer * p->block;

		if (v->code == HD_X_NUM)
			fill(y, v->num, p->block);
		else if (is_constant(p, v))
			fill(y, value_of(in[v->var], p->in[v->var].dtype), p->block);
	}
}

static void write_out(const struct program *p, void *out, const float *x, int64_t from, int n)
{
	float *yf = (float *)out + from;
	double *yd = (double *)out + from;

	if (p->dtype == HD_BF16)
		hd_lower((uint16_t *)out + from, x, n);
	else if (p->dtype == HD_F64)
		for (int i = 0; i < n; i++)
			yd[i] = x[i];
	else if (x != yf)
		memmove(yf, x, (size_t)n * sizeof(*yf));
}

static void run_block(const struct program *p, float *pool, void *out, void *const *in,
		      int64_t from, int n)
{
	const float *at[HD_LEN(((struct hd_expr *)0)->op)];

	for (int i = 0; i < p->n; i++) {
		const struct value *v = &p->v[i];
		float *y = v->buffer == NO_BUFFER ? (float *)out + from :
			   pool + (size_t)v->buffer * p->block;

		at[i] = y;
		if (v->code == HD_X_VAR && p->in[v->var].how == WHOLE)
			at[i] = (const float *)in[v->var] + from;
		else if (v->code == HD_X_VAR && p->in[v->var].how == GATHER)
			gather(y, in[v->var], p, &p->in[v->var], from, n);
		else if (v->code > HD_X_NUM)
			compute(y, v->code, at[v->arg[0]], at[v->arg[1]], at[v->arg[2]], n);
	}
	write_out(p, out, at[p->n - 1], from, n);
}

static void map_run(const struct hd_prep *prep, void *const *out, void *const *in,
		    const struct hd_run *r)
{
	const struct program *p = prep->state;
	int64_t blocks = (p->total + p->block - 1) / p->block;

	(void)r;
#pragma omp parallel if (p->total >= SPLIT)
	{
		float pool[POOL] __attribute__((aligned(64)));
		int64_t me = omp_get_thread_num(), all = omp_get_num_threads();
		int64_t end = (me + 1) * blocks / all;

		spread_constants(p, pool, in);
		for (int64_t b = me * blocks / all; b < end; b++) {
			int64_t from = b * p->block, left = p->total - from;

			run_block(p, pool, out[0], in, from,
				  left < p->block ? (int)left : p->block);
		}
	}
}

const struct hd_kernel hd_cpu_map = { .name = "map", .prepare = map_prepare, .run = map_run };
