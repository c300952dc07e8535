/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/matmul/sim_lt.h - the part of cuBLASLt that product_lt.cu uses, in plain loops on the host.
 *
 * Matrices are column-major, so this tests how our products are described to the library.  It refuses what the library
 * refuses, as far as we depend on it.  That is extents and leading dimensions that do not fit, operands of different
 * dtypes, and a bias whose dtype is not the result's.
 *
 * Among the implementations that a preference allows, the heuristic names the worst one.  That implementation needs
 * the full alignment that it was told.  If allowed, it splits a deep sum in two halves and rounds the first to the
 * result's dtype.  The heuristic names one, or a list from HD_TEST_LT_MS ("5,2,9"): the milliseconds that each takes.
 * One that takes 0 is refused when it is run.
 */
#ifndef HD_KERNELS_CUDA_MATMUL_SIM_LT_H
#define HD_KERNELS_CUDA_MATMUL_SIM_LT_H
#include "kernels/cuda/base/cuda.h"

typedef int cublasStatus_t, cudaDataType, cublasOperation_t, cublasLtEpilogue_t;
typedef void *cublasLtHandle_t;
typedef struct sim_preference *cublasLtMatmulPreference_t;
enum { CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_NOT_SUPPORTED };
enum { CUDA_R_32F, CUDA_R_16BF };
enum { CUBLAS_OP_N, CUBLAS_OP_T };
enum { CUBLAS_COMPUTE_32F };
enum {
	CUBLASLT_EPILOGUE_DEFAULT = 1,
	CUBLASLT_EPILOGUE_BIAS = 4,
	CUBLASLT_EPILOGUE_GELU = 32,
	CUBLASLT_EPILOGUE_GELU_BIAS = 36,
	CUBLASLT_EPILOGUE_GELU_AUX = 160,
	CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 164,
	CUBLASLT_EPILOGUE_DGELU = 192
};
enum { CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET };
enum {
	CUBLASLT_MATMUL_DESC_TRANSA,
	CUBLASLT_MATMUL_DESC_TRANSB,
	CUBLASLT_MATMUL_DESC_EPILOGUE,
	CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
	CUBLASLT_MATMUL_DESC_BIAS_POINTER,
	CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE,
	CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
	CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
	CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE
};
enum { CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE = 4 };
enum {
	CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
	CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
	CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
	CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
	CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
	CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
};

struct sim_matrix {
	cudaDataType type;
	uint64_t rows, cols;
	int64_t ld, step;
	int32_t batch;
};
struct sim_matmul {
	int ta, tb, epilogue;
	cudaDataType bias_type;
	const void *bias;
	int64_t bias_step;
	void *aux;
	int64_t aux_ld, aux_step;
};
typedef struct sim_matrix *cublasLtMatrixLayout_t;
typedef struct sim_matmul *cublasLtMatmulDesc_t;
struct sim_preference {
	uint64_t value[6];
}; /* indexed by the numbers above */
struct cublasLtMatmulAlgo_t {
	uint32_t align[4];
	int rounds;
	double ms;
}; /* align: of A, B, C, D; ms: negative if not given */
struct cublasLtMatmulHeuristicResult_t {
	cublasLtMatmulAlgo_t algo;
	cublasStatus_t state;
};

static inline const char *cublasLtGetStatusString(cublasStatus_t)
{
	return "simulated";
}
static inline cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
	*h = malloc(1);
	return 0;
}
static inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
	free(h);
	return 0;
}
static inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
	*p = (cublasLtMatmulPreference_t)hd_alloc(sizeof(**p));
	**p = sim_preference{ { 0, 7, 256, 256, 256, 256 } };
	return 0;
}
static inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
	free(p);
	return 0;
}
static inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p, int what, const void *x,
								  size_t n)
{
	p->value[what] = 0;
	memcpy(&p->value[what], x, n);
	return 0;
}

static inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *m, cudaDataType type, uint64_t rows,
							uint64_t cols, int64_t ld)
{
	*m = (cublasLtMatrixLayout_t)hd_alloc(sizeof(**m));
	**m = sim_matrix{ type, rows, cols, ld, 0, 1 };
	return 0;
}
static inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t m)
{
	free(m);
	return 0;
}
static inline cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t m, int what, const void *x,
							      size_t n)
{
	memcpy(what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? (void *)&m->batch : (void *)&m->step, x, n);
	return 0;
}
static inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, int, cudaDataType)
{
	*d = (cublasLtMatmulDesc_t)hd_alloc(sizeof(**d));
	(*d)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
	return 0;
}
static inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
	free(d);
	return 0;
}
static inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, int what, const void *x, size_t n)
{
	void *to[] = { &d->ta,        &d->tb,  &d->epilogue, &d->bias_type, &d->bias,
		       &d->bias_step, &d->aux, &d->aux_ld,   &d->aux_step };

	memcpy(to[what], x, n);
	return 0;
}

static inline int sim_lt_fits(cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
			      cublasLtMatrixLayout_t c)
{
	uint64_t m = d->ta ? a->cols : a->rows, ka = d->ta ? a->rows : a->cols, kb = d->tb ? b->cols : b->rows,
		 n = d->tb ? b->rows : b->cols;

	return m == c->rows && n == c->cols && ka == kb && a->type == b->type &&
	       (c->type == a->type || c->type == CUDA_R_32F) && a->ld >= (int64_t)a->rows &&
	       b->ld >= (int64_t)b->rows && c->ld >= (int64_t)c->rows && a->batch == c->batch && b->batch == c->batch &&
	       (!(d->epilogue & CUBLASLT_EPILOGUE_BIAS) || d->bias_type == c->type) &&
	       (!(d->epilogue & 128) ||
		(d->aux_ld % 8 == 0 && d->aux_ld >= (int64_t)c->rows && (uintptr_t)d->aux % 16 == 0));
}
static inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d,
							    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
							    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
							    cublasLtMatmulPreference_t wish, int most,
							    cublasLtMatmulHeuristicResult_t *found, int *n)
{
	const char *times = getenv("HD_TEST_LT_MS");
	cublasLtMatmulAlgo_t algo;

	for (int i = 0; i < 4; i++)
		algo.align[i] = (uint32_t)wish->value[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i];
	algo.rounds =
		(wish->value[CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK] & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) != 0;
	*n = 0;
	if (!sim_lt_fits(d, a, b, c))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	do {
		algo.ms = times ? strtod(times, (char **)&times) : -1;
		found[*n].algo = algo;
		found[(*n)++].state = CUBLAS_STATUS_SUCCESS;
	} while (*n < most && times && *times++ == ',');
	return CUBLAS_STATUS_SUCCESS;
}
static inline size_t cublasLtGetVersion(void)
{
	return 0;
}

HD_SIM_UNSEEN static inline double sim_lt_at(const void *p, cudaDataType type, int64_t i)
{
	return type == CUDA_R_32F ? ((const float *)p)[i] : to_float(((const bf16 *)p)[i]);
}

static inline double sim_lt_rounded(double x, cudaDataType type)
{
	bf16 b;

	from_float(&b, (float)x);
	return type == CUDA_R_32F ? (float)x : to_float(b);
}

static inline double sim_lt_inner(double x)
{
	return 0.79788456080286536 * (x + 0.044715 * x * x * x);
}

/* The second matrix: stores the gelu's input there, or reads it. */
HD_SIM_UNSEEN static inline double sim_lt_aux(const struct sim_matmul *d, cudaDataType type, int64_t i, double sum)
{
	double x, t;

	if (d->epilogue != CUBLASLT_EPILOGUE_DGELU) {
		if (type == CUDA_R_32F)
			((float *)d->aux)[i] = (float)sum;
		else
			from_float((bf16 *)d->aux + i, (float)sum);
		return sum;
	}
	x = sim_lt_at(d->aux, type, i);
	t = tanh(sim_lt_inner(x));
	return sum * (1 + t + x * (1 - t * t) * 0.79788456080286536 * (1 + 3 * 0.044715 * x * x)) / 2;
}

struct sim_lt_call {
	struct sim_matmul d;
	struct sim_matrix la, lb, lc;
	float alpha, beta;
	const void *a, *b, *c;
	void *y;
	int rounds;
};

HD_SIM_UNSEEN static inline void sim_lt_touch(const struct sim_matrix *m, const void *p, int how)
{
	size_t each = m->type == CUDA_R_32F ? 4 : 2;

	for (int32_t i = 0; i < m->batch; i++)
		for (uint64_t col = 0; col < m->cols; col++)
			hd_sim_touch((const char *)p + (size_t)(i * m->step + (int64_t)col * m->ld) * each,
				     m->rows * each, how);
}

HD_SIM_UNSEEN static inline void sim_lt_element(const struct sim_lt_call *x, int64_t row, int64_t col, int64_t at)
{
	const struct sim_matmul *d = &x->d;
	const struct sim_matrix *la = &x->la, *lb = &x->lb, *lc = &x->lc;
	int64_t depth = (int64_t)(d->ta ? la->rows : la->cols), ia = at * la->step, ib = at * lb->step;
	int64_t ic = at * lc->step + row + col * lc->ld;
	double sum = 0;

	for (int64_t k = 0; k < depth; k++) {
		if (x->rounds && k == depth / 2)
			sum = sim_lt_rounded(sum, lc->type);
		sum += sim_lt_at(x->a, la->type, ia + (d->ta ? k + row * la->ld : row + k * la->ld)) *
		       sim_lt_at(x->b, lb->type, ib + (d->tb ? col + k * lb->ld : k + col * lb->ld));
	}
	sum = x->alpha * sum + (x->beta == 0 ? 0 : x->beta * sim_lt_at(x->c, lc->type, ic));
	if (d->epilogue & CUBLASLT_EPILOGUE_BIAS)
		sum += sim_lt_at(d->bias, d->bias_type, at * d->bias_step + row);
	if (d->epilogue & 128)
		sum = sim_lt_aux(d, lc->type, at * d->aux_step + row + col * d->aux_ld, sum);
	if (d->epilogue & CUBLASLT_EPILOGUE_GELU)
		sum = sum * (1 + tanh(sim_lt_inner(sum))) / 2;
	if (lc->type == CUDA_R_32F)
		((float *)x->y)[ic] = (float)sum;
	else
		from_float((bf16 *)x->y + ic, (float)sum);
}

static inline void sim_lt_run(void *arg)
{
	const struct sim_lt_call *x = (const struct sim_lt_call *)arg;
	int64_t rows = (int64_t)x->lc.rows, cols = (int64_t)x->lc.cols;

	sim_lt_touch(&x->la, x->a, HD_SIM_READ);
	sim_lt_touch(&x->lb, x->b, HD_SIM_READ);
	if (x->beta != 0)
		sim_lt_touch(&x->lc, x->c, HD_SIM_READ);
	sim_lt_touch(&x->lc, x->y, HD_SIM_WRITE);
	for (int64_t i = 0; i < x->lc.batch * rows * cols; i++)
		sim_lt_element(x, i % rows, i / rows % cols, i / rows / cols);
}

static inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const float *alpha, const void *a,
					    cublasLtMatrixLayout_t la, const void *b, cublasLtMatrixLayout_t lb,
					    const float *beta, const void *c, cublasLtMatrixLayout_t lc, void *y,
					    cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *algo, void *, size_t,
					    cudaStream_t s)
{
	if (getenv("HD_TEST_LT_REFUSES") || algo->ms == 0)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	struct sim_lt_call *x = (struct sim_lt_call *)malloc(sizeof(*x));
	struct hd_sim_work w = { "cublasLtMatmul", NULL, 1, 1, 0, sim_lt_run, x };

	hd_sim_ms += algo->ms > 0 ? algo->ms : 0;
	hd_sim_aligned(a, algo->align[0], "A of a product");
	hd_sim_aligned(b, algo->align[1], "B of a product");
	hd_sim_aligned(c, algo->align[2], "C of a product");
	hd_sim_aligned(y, algo->align[3], "D of a product");
	*x = sim_lt_call{ *d, *la, *lb, *lc, *alpha, *beta, a, b, c, y, algo->rounds };
	hd_sim_enqueue(s, &w);
	return CUBLAS_STATUS_SUCCESS;
}

#endif
