/* SPDX-License-Identifier: Apache-2.0
 * map: an elementwise expression over inputs that are broadcast by dim to the dims of the output.
 *
 * prepare turns the postfix program into numbered values. Each is computed once, however often the text contains it
 * (derivatives repeat their subexpressions). Every value gets a buffer of one block, which is reused after its last
 * reader. run walks the output in blocks that stay in the first-level cache; per block each value is one vectorized
 * loop. Inputs with the layout of the output are read in place, scalars are spread once per thread, and all others are
 * gathered by rows.
 *
 * An output may be one of its inputs: only the last value of a block writes to it, element by element.
 */
#include <config.h>
#include "kernels/cpu/base/low.h"
#include "kernels/prepare/map.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 512         /* elements: 2 KiB per buffer */
#define POOL (32 * BLOCK) /* elements of all buffers of a thread, on its stack */
#define SPLIT 32768       /* elements below which one thread is faster */

enum { WHOLE, GATHER, SPREAD };
enum { NO_BUFFER = -1 };

struct map_value {
	int32_t code, var, arg[3];
	int32_t buffer; /* NO_BUFFER: read in place, or the output itself */
	float num;
};

struct program {
	int n, buffers, block;
	int64_t total;
	int32_t nd; /* dims of the output, adjacent ones merged where possible */
	int64_t extent[HD_MAX_DIMS];
	struct hd_map_input in[HD_MAP_INPUTS];
	int how[HD_MAP_INPUTS];
	uint32_t dtype;       /* of the output */
	struct map_value v[]; /* the last one is the result */
};

/* -- prepare: operands ------------------------------------------------------------------------- */

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

static int how(const struct program *p, const struct hd_map_input *x)
{
	int64_t dense = 1;
	int whole = x->dtype == HD_DTYPE_F32, spread = 1;

	for (int k = p->nd - 1; k >= 0; k--) {
		whole = whole && x->stride[k] == dense;
		spread = spread && x->stride[k] == 0;
		dense *= p->extent[k];
	}
	return spread ? SPREAD : whole ? WHOLE : GATHER;
}

static void set_operands(struct program *p, const struct hd_map_prep *m)
{
	p->dtype = m->dtype;
	p->total = m->total;
	p->nd = m->ndim;
	memcpy(p->extent, m->extent, sizeof(p->extent));
	memcpy(p->in, m->in, sizeof(p->in));
	join_dims(p, m->nin);
	for (int i = 0; i < m->nin; i++)
		p->how[i] = how(p, &p->in[i]);
}

/* -- prepare: values --------------------------------------------------------------------------- */

static int number_value(struct program *p, struct map_value v)
{
	for (int i = 0; i < p->n; i++)
		if (!memcmp(&p->v[i], &v, sizeof(v)))
			return i;
	p->v[p->n] = v;
	return p->n++;
}

/* The root contains all other values as subexpressions, so it equals none of them: the result is always the last
 * value. */
static void set_values(struct program *p, const struct hd_expr *e)
{
	int stack[HD_LEN(e->op)], top = 0;

	for (int i = 0; i < e->n; i++) {
		struct map_value v;

		memset(&v, 0, sizeof(v)); /* compared as bytes */
		v.code = e->op[i].code;
		v.buffer = NO_BUFFER;
		if (v.code == HD_X_VAR)
			v.var = e->op[i].var;
		if (v.code == HD_X_NUM)
			v.num = (float)e->op[i].num;
		top -= hd_expr_arity(v.code);
		memcpy(v.arg, stack + top, (size_t)hd_expr_arity(v.code) * sizeof(int));
		stack[top++] = number_value(p, v);
	}
}

static int is_constant(const struct program *p, const struct map_value *v)
{
	return v->code == HD_X_NUM || (v->code == HD_X_VAR && p->how[v->var] == SPREAD);
}

static int needs_buffer(const struct program *p, int i)
{
	const struct map_value *v = &p->v[i];

	if (v->code == HD_X_VAR)
		return p->how[v->var] != WHOLE;
	return i < p->n - 1 || p->dtype != HD_DTYPE_F32 || v->code == HD_X_NUM;
}

/* Assigns buffers. Constants keep theirs; the others return to the free list after the last reader. */
static void set_buffers(struct program *p)
{
	int last[HD_LEN(((struct hd_expr *)0)->op)] = { 0 }, list[HD_LEN(last)], nfree = 0;

	for (int i = 0; i < p->n; i++)
		for (int k = 0; k < hd_expr_arity(p->v[i].code); k++)
			last[p->v[i].arg[k]] = i;
	for (int i = 0; i < p->n; i++) {
		struct map_value *v = &p->v[i];

		if (needs_buffer(p, i))
			v->buffer = nfree && !is_constant(p, v) ? list[--nfree] : p->buffers++;
		for (int k = 0; k < hd_expr_arity(v->code); k++) {
			struct map_value *a = &p->v[v->arg[k]];

			if (last[v->arg[k]] != i || a->buffer == NO_BUFFER || is_constant(p, a))
				continue;
			list[nfree++] = a->buffer;
			last[v->arg[k]] = -1; /* f(x, x) releases it only once */
		}
	}
	p->block = p->buffers > POOL / BLOCK ? POOL / p->buffers & ~15 : BLOCK;
}

static int map_prepare(const struct hd_kernel_desc *d, struct hd_prep *prep, struct hd_err *err)
{
	struct hd_map_prep m = { .nin = 0 };
	struct program *p;

	HD_TRY(hd_prepare_map(d, 0, &m, err));
	p = hd_alloc(sizeof(*p) + (size_t)m.e.n * sizeof(p->v[0]));
	set_operands(p, &m);
	set_values(p, &m.e);
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

	if (dtype == HD_DTYPE_F64)
		for (int i = 0; i < n; i++)
			y[i] = (float)xd[at + i * stride];
	else if (dtype == HD_DTYPE_BF16 && stride == 1)
		hd_bf16_to_f32(y, (const uint16_t *)x + at, n);
	else if (dtype == HD_DTYPE_BF16)
		for (int i = 0; i < n; i++)
			y[i] = hd_of_bf16(((const uint16_t *)x)[at + i * stride]);
	else if (stride == 1)
		memcpy(y, xf + at, (size_t)n * sizeof(*y));
	else
		for (int i = 0; i < n; i++)
			y[i] = xf[at + i * stride];
}

/* Reads the n elements of an input that correspond to the output's elements from `from` on. */
static void gather(float *y, const void *x, const struct program *p, const struct hd_map_input *o, int64_t from, int n)
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

static inline float vsign(float x)
{
	float s = x < 0 ? -1 : x;

	return x > 0 ? 1 : s;
}

static inline float vwhere(float c, float x, float y) /* both are read: the choice is a blend */
{
	return c > 0 ? x : y;
}

#define EACH(e) \
	_Pragma("omp simd") for (int i = 0; i < n; i++) y[i] = (e); \
	break

HD_CLONES static void compute(float *y, int code, const float *a, const float *b, const float *c, int n)
{
	switch (code) {
	case HD_X_ADD: EACH(a[i] + b[i]);
	case HD_X_SUB: EACH(a[i] - b[i]);
	case HD_X_MUL: EACH(a[i] * b[i]);
	case HD_X_DIV: EACH(a[i] / b[i]);
	case HD_X_NEG: EACH(-a[i]);
	case HD_X_EXP: EACH(hd_expf_all(a[i]));
	case HD_X_LOG: EACH(hd_logf_all(a[i]));
	case HD_X_TANH: EACH(hd_tanhf_all(a[i]));
	case HD_X_SQRT: EACH(__builtin_sqrtf(a[i]));
	case HD_X_ABS: EACH(__builtin_fabsf(a[i]));
	case HD_X_SIGN: EACH(vsign(a[i]));
	case HD_X_MIN: EACH(b[i] < a[i] ? b[i] : a[i]);
	case HD_X_MAX: EACH(b[i] > a[i] ? b[i] : a[i]);
	case HD_X_WHERE: EACH(vwhere(a[i], b[i], c[i]));
	case HD_X_ROUND: EACH(hd_roundf_all(a[i]));
	case HD_X_FLOOR: EACH(hd_floorf_all(a[i]));
	case HD_X_ERF: EACH(hd_erff_all(a[i]));
	}
}

static void fill(float *y, float value, int n)
{
	for (int i = 0; i < n; i++)
		y[i] = value;
}

static float value_of(const void *x, uint32_t dtype)
{
	return dtype == HD_DTYPE_F64 ? (float)*(const double *)x : hd_get(x, dtype == HD_DTYPE_BF16, 0);
}

static void spread_constants(const struct program *p, float *pool, void *const *in)
{
	for (int i = 0; i < p->n; i++) {
		const struct map_value *v = &p->v[i];
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

	if (p->dtype == HD_DTYPE_BF16)
		hd_store_bf16((uint16_t *)out + from, x, n);
	else if (p->dtype == HD_DTYPE_F64)
		for (int i = 0; i < n; i++)
			yd[i] = x[i];
	else if (x != yf)
		memmove(yf, x, (size_t)n * sizeof(*yf));
}

static void run_block(const struct program *p, float *pool, void *out, void *const *in, int64_t from, int n)
{
	const float *at[HD_LEN(((struct hd_expr *)0)->op)];

	for (int i = 0; i < p->n; i++) {
		const struct map_value *v = &p->v[i];
		float *y = v->buffer == NO_BUFFER ? (float *)out + from : pool + (size_t)v->buffer * p->block;

		at[i] = y;
		if (v->code == HD_X_VAR && p->how[v->var] == WHOLE)
			at[i] = (const float *)in[v->var] + from;
		else if (v->code == HD_X_VAR && p->how[v->var] == GATHER)
			gather(y, in[v->var], p, &p->in[v->var], from, n);
		else if (v->code > HD_X_NUM)
			compute(y, v->code, at[v->arg[0]], at[v->arg[1]], at[v->arg[2]], n);
	}
	write_out(p, out, at[p->n - 1], from, n);
}

static void map_run(const struct hd_prep *prep, void *const *out, void *const *in, const struct hd_run *r)
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

			run_block(p, pool, out[0], in, from, left < p->block ? (int)left : p->block);
		}
	}
}

const struct hd_kernel hd_cpu_map = { .name = "map", .prepare = map_prepare, .run = map_run };
