/* SPDX-License-Identifier: Apache-2.0
 * map: an elementwise expression over inputs that are broadcast by dim to the dims of the output.
 *
 * The expression is a short postfix program.  Every thread interprets it with a stack of its own, for four elements
 * at once unless it is deep.  Nothing is compiled at run time: plugins' expressions are a small part of a step, and
 * memory bounds their speed.  The program is in device memory, and each block copies it to shared memory: small
 * outputs would otherwise wait for one operation after another.
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/map.h"
}

#define SHALLOW 8 /* depth of stack that suffices for most expressions */
#define DEEP 128
#define OPS 250
#define SMALL (132 * 256 * 4) /* up to this many elements, each has its own thread */

struct code {
	int32_t code, var;
	float num;
};
struct program {
	int64_t total;
	int64_t extent[HD_MAX_DIMS];
	struct hd_map_input in[HD_MAP_INPUTS];
	int32_t ndim, n, nin, depth, flat; /* flat: element i of the output uses element i of each input */
	uint32_t out;
	struct code op[OPS];
};
struct map_state {
	struct program *device;
	int64_t total;
	int32_t nin, depth, n, flat;
	uint32_t out, in[HD_MAP_INPUTS]; /* dtypes */
};
struct map_operands {
	const void *in[HD_MAP_INPUTS];
	uint32_t dtype[HD_MAP_INPUTS];
	int64_t total;
	int32_t n, flat;
	uint32_t out;
};

static void release(void *state)
{
	hd_cuda_constant_free(((struct map_state *)state)->device);
	free(state);
}

static int is_flat(const struct hd_map_prep *m)
{
	for (int i = 0; i < m->nin; i++) {
		int64_t step = 1;

		for (int d = m->ndim - 1; d >= 0; step *= m->extent[d], d--)
			if (m->extent[d] > 1 && m->in[i].stride[d] != step)
				return 0;
	}
	return 1;
}

static int set(struct program *p, const struct hd_kernel_desc *d, struct hd_err *err)
{
	struct hd_map_prep m = {};

	HD_TRY(hd_prepare_map(d, 0, &m, err));
	if (m.e.depth > DEEP)
		return hd_err_set(err, HD_ENOTSUP,
				  "map: \"%.200s\" needs %d intermediate results at once, but %d are possible on cuda",
				  d->attr, m.e.depth, DEEP);
	p->out = m.dtype;
	p->total = m.total;
	p->ndim = m.ndim;
	p->nin = m.nin;
	memcpy(p->extent, m.extent, sizeof(p->extent));
	memcpy(p->in, m.in, sizeof(p->in));
	p->n = m.e.n;
	p->depth = m.e.depth;
	p->flat = is_flat(&m);
	for (int i = 0; i < m.e.n; i++)
		p->op[i] = code{ m.e.op[i].code, m.e.op[i].var, (float)m.e.op[i].num };
	return 0;
}

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *prep, struct hd_err *err)
{
	struct program *p = (struct program *)hd_alloc(sizeof(*p));
	struct map_state *s = (struct map_state *)hd_alloc(sizeof(*s));
	int rc = set(p, d, err);

	if (rc >= 0) {
		s->device = (struct program *)hd_cuda_constant(p, sizeof(*p), err);
		s->total = p->total;
		s->nin = p->nin;
		s->depth = p->depth;
		s->n = p->n;
		s->flat = p->flat;
		s->out = p->out;
		for (int i = 0; i < p->nin; i++)
			s->in[i] = p->in[i].dtype;
		rc = s->device ? 0 : HD_ENOMEM;
	}
	free(p);
	if (rc < 0) {
		free(s);
		return rc;
	}
	prep->state = s;
	prep->release = release;
	return 0;
}

HD_DEV float element(const void *x, uint32_t dtype, int64_t i)
{
	if (dtype == HD_DTYPE_F32)
		return ((const float *)x)[i];
	return dtype == HD_DTYPE_F64 ? (float)((const double *)x)[i] : to_float(((const bf16 *)x)[i]);
}

HD_DEV float one(int code, float a, float b, float c)
{
	switch (code) {
	case HD_X_ADD: return a + b;
	case HD_X_SUB: return a - b;
	case HD_X_MUL: return a * b;
	case HD_X_DIV: return a / b;
	case HD_X_NEG: return -a;
	case HD_X_EXP: return expf(a);
	case HD_X_LOG: return logf(a);
	case HD_X_TANH: return tanhf(a);
	case HD_X_SQRT: return sqrtf(a);
	case HD_X_ABS: return fabsf(a);
	case HD_X_SIGN: return a > 0 ? 1.0f : a < 0 ? -1.0f : a;
	case HD_X_MIN: return b < a ? b : a;
	case HD_X_MAX: return b > a ? b : a;
	case HD_X_ROUND: return rintf(a);
	case HD_X_FLOOR: return floorf(a);
	case HD_X_ERF: return erff(a);
	default: return a > 0 ? b : c;
	}
}

HD_DEV int arity(int code)
{
	if (code <= HD_X_NUM)
		return 0;
	if (code <= HD_X_DIV || code == HD_X_MIN || code == HD_X_MAX)
		return 2;
	return code == HD_X_WHERE ? 3 : 1;
}

/* Computes the index along each dim for `have` elements of the output, from i on. */
template <int N> HD_DEV void places(int64_t (*index)[HD_MAX_DIMS], const struct program *p, int64_t i, int have)
{
	for (int k = 0; k < have; k++) {
		int64_t rest = i + k;

		for (int d = p->ndim - 1; d >= 0; d--) {
			index[k][d] = rest % p->extent[d];
			rest /= p->extent[d];
		}
	}
}

template <int DEPTH, int N>
__global__ void __launch_bounds__(256, 4) interpret(const struct program *p, void *y, map_operands x)
{
	HD_SHARED(struct code, ops, [OPS]);
	int64_t step = (int64_t)gridDim.x * blockDim.x * N;

	if ((int)threadIdx.x < x.n)
		ops[threadIdx.x] = p->op[threadIdx.x];
	__syncthreads();
	for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N; i < x.total; i += step) {
		float stack[DEPTH][N];
		int top = 0, have = x.total - i < N ? (int)(x.total - i) : N;
		int64_t index[N][HD_MAX_DIMS];

		if (!x.flat)
			places<N>(index, p, i, have);
		for (int o = 0; o < x.n; o++) {
			struct code c = ops[o];

			top -= arity(c.code);
			for (int k = 0; k < have; k++) {
				int64_t at = x.flat ? i + k : 0;

				for (int d = 0; !x.flat && d < p->ndim && c.code == HD_X_VAR; d++)
					at += index[k][d] * p->in[c.var].stride[d];
				stack[top][k] = c.code == HD_X_VAR   ? element(x.in[c.var], x.dtype[c.var], at)
						: c.code == HD_X_NUM ? c.num
								     : one(c.code, stack[top][k],
									   top + 1 < DEPTH ? stack[top + 1][k] : 0,
									   top + 2 < DEPTH ? stack[top + 2][k] : 0);
			}
			top++;
		}
		for (int k = 0; k < have; k++) {
			if (x.out == HD_DTYPE_F32)
				((float *)y)[i + k] = stack[0][k];
			else if (x.out == HD_DTYPE_F64)
				((double *)y)[i + k] = stack[0][k];
			else
				from_float((bf16 *)y + i + k, stack[0][k]);
		}
	}
}

static void run(const struct hd_prep *prep, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct map_state *s = (const struct map_state *)prep->state;
	map_operands x = {};

	for (int i = 0; i < s->nin; i++) {
		x.in[i] = in[i];
		x.dtype[i] = s->in[i];
	}
	x.total = s->total;
	x.n = s->n;
	x.flat = s->flat;
	x.out = s->out;
	if (s->total && s->depth <= SHALLOW && s->total <= SMALL)
		HD_LAUNCH((interpret<SHALLOW, 1>), hd_blocks(s->total, 256), 256, 0, r, s->device, out[0], x);
	else if (s->total && s->depth <= SHALLOW)
		HD_LAUNCH((interpret<SHALLOW, 4>), hd_blocks(s->total, 256 * 4), 256, 0, r, s->device, out[0], x);
	else if (s->total)
		HD_LAUNCH((interpret<DEEP, 1>), hd_blocks(s->total, 256), 256, 0, r, s->device, out[0], x);
}

HD_CUDA_KERNEL(map, "map", 0, prepare, run);
