/* SPDX-License-Identifier: Apache-2.0
 * Matrix products by cuBLASLt.
 *
 * cuBLASLt's matrices are column-major, ours are row-major.  c = a b is computed as c' = b' a', so its "A" is our b,
 * its rows are our n, and a bias along n is its bias.  A transposed operand is a flag.  The innermost batch dim is a
 * strided batch of one call, and other batch dims are loops around it.
 *
 * The library's heuristic offers several implementations for a shape, all with sums in fp32 throughout.  The first
 * is used unless timing prefers another (product_tune.cu).  Equal shapes share one.  fp32 products are computed in
 * fp32 (no TF32).  In the simulation the library is a few loops (sim_lt.h).
 */
#include "kernels/cuda/matmul/product.h"
#ifdef HD_SIM
#include "kernels/cuda/matmul/sim_lt.h"
#define LARGE 64
#else
#include <cublasLt.h>
#define LARGE 4096
#endif

#define WORKSPACE ((size_t)64 << 20)

struct hd_product {
	struct hd_product *next;
	int users;
	struct hd_mm_shape s;
	cublasLtMatmulDesc_t op;
	cublasLtMatrixLayout_t a, b, c; /* in cuBLASLt's roles */
	/* for operands that all begin at multiples of 16 bytes; at any element */
	cublasLtMatmulAlgo_t wide[HD_PRODUCT_MOST], narrow;
	int nwide, pick, has_narrow, has_bias; /* pick: index in wide */
	/* has_own: Heddle's own kernel is a choice; own: it is picked */
	int has_own, own;
	/* number of calls: the product of the batch dims without the innermost */
	int64_t outer;
};

static struct {
	cublasLtHandle_t lt;
	cudaStream_t queue;
	void *workspace;
	struct hd_product *products;
	double rate[2]; /* fp32, bf16: measured once */
} here;

int hd_product_open(cudaStream_t queue, struct hd_err *err)
{
	cublasStatus_t s = cublasLtCreate(&here.lt);

	if (s != CUBLAS_STATUS_SUCCESS)
		return hd_err_set(err, HD_ENOTSUP, "cuda: cuBLASLt cannot start: %s", cublasLtGetStatusString(s));
	here.queue = queue;
	if (cudaMalloc(&here.workspace, WORKSPACE) != cudaSuccess)
		return hd_err_set(err, HD_ENOMEM, "cuda: cannot allocate %zu bytes of device memory for products",
				  WORKSPACE);
	return HD_OK;
}

void hd_product_close(void)
{
	cudaFree(here.workspace);
	if (here.lt)
		cublasLtDestroy(here.lt);
	here.lt = NULL;
	here.workspace = NULL;
}

static cudaDataType type_of(uint32_t dtype)
{
	return dtype == HD_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* Describes an operand of rows x cols (row-major) as a column-major matrix.  Returns 0 if its strides do not
 * describe a matrix. */
static int layout(cublasLtMatrixLayout_t *m, int *turned, const struct hd_mm_shape *s, int o, int row_dim, int col_dim)
{
	int64_t rows = s->n[row_dim], cols = s->n[col_dim], rs = s->stride[o][row_dim], cs = s->stride[o][col_dim], ld,
		step = 0;
	int32_t batch = 1;

	/* a dim of one element has stride 0 */
	if (cs == 1 || cols == 1) { /* contiguous rows: columns of the transposed matrix */
		*turned = 0;
		ld = rows > 1 ? rs : cols;
		if (ld < cols || (cols > 1 && cs != 1))
			return 0;
		if (cublasLtMatrixLayoutCreate(m, type_of(s->dtype[o]), (uint64_t)cols, (uint64_t)rows, ld) !=
		    CUBLAS_STATUS_SUCCESS)
			return 0;
	} else if (rs == 1 || rows == 1) {
		*turned = 1;
		ld = cs;
		if (ld < rows)
			return 0;
		if (cublasLtMatrixLayoutCreate(m, type_of(s->dtype[o]), (uint64_t)rows, (uint64_t)cols, ld) !=
		    CUBLAS_STATUS_SUCCESS)
			return 0;
	} else {
		return 0;
	}
	if (s->ndim > 3) {
		batch = (int32_t)s->n[s->ndim - 4];
		step = s->stride[o][s->ndim - 4];
		cublasLtMatrixLayoutSetAttribute(*m, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch));
		cublasLtMatrixLayoutSetAttribute(*m, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof(step));
	}
	return 1;
}

/* Sets the epilogue, and a second matrix with c's layout for the gelu's input. */
static int describe_gelu(struct hd_product *p)
{
	static const cublasLtEpilogue_t with[2][4] = {
		{ CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_AUX,
		  CUBLASLT_EPILOGUE_DGELU },
		{ CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
		  CUBLASLT_EPILOGUE_DGELU },
	};
	const struct hd_mm_shape *s = &p->s;
	cublasLtEpilogue_t epilogue = with[p->has_bias][s->then];
	int64_t ld = s->n[s->ndim - 3] > 1 ? s->stride[HD_MM_C][s->ndim - 3] : s->n[s->ndim - 2];
	int64_t step = s->ndim > 3 ? s->stride[HD_MM_C][s->ndim - 4] : 0;
	const void *somewhere = here.workspace; /* any aligned address; the actual one will be aligned too */

	if (s->then == HD_MM_GELU_D && p->has_bias)
		return 0;
	cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
	if (s->then < HD_MM_GELU_KEEP)
		return 1;
	if (ld % 8 || step % 8) /* the library requires 16 bytes of bf16 */
		return 0;
	cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof(ld));
	cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &step, sizeof(step));
	cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &somewhere, sizeof(somewhere));
	return 1;
}

static int describe(struct hd_product *p)
{
	const struct hd_mm_shape *s = &p->s;
	int m = s->ndim - 3, n = s->ndim - 2, k = s->ndim - 1, ta, tb, tc;
	cublasOperation_t opa, opb;
	cudaDataType bias = type_of(s->dtype[HD_MM_BIAS]);
	const void *somewhere = here.workspace;
	int64_t step = s->ndim > 3 ? s->stride[HD_MM_BIAS][s->ndim - 4] : 0; /* 0: one bias for the whole batch */

	if (cublasLtMatmulDescCreate(&p->op, CUBLAS_COMPUTE_32F, CUDA_R_32F) != CUBLAS_STATUS_SUCCESS)
		return 0;
	/* our b (k x n) is their A, our a (m x k) their B, c (m x n) their C */
	if (!layout(&p->a, &ta, s, HD_MM_B, k, n) || !layout(&p->b, &tb, s, HD_MM_A, m, k) ||
	    !layout(&p->c, &tc, s, HD_MM_C, m, n) || tc)
		return 0;
	opa = ta ? CUBLAS_OP_T : CUBLAS_OP_N;
	opb = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
	cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSA, &opa, sizeof(opa));
	cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSB, &opb, sizeof(opb));
	if (p->has_bias) {
		cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias, sizeof(bias));
		cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &somewhere, sizeof(somewhere));
		cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &step, sizeof(step));
	}
	return describe_gelu(p);
}

/* Finds at most `few` implementations, the likely fastest first, and returns their number.  Partial sums of a split
 * depth stay in fp32: other schemes add them in the result's dtype. */
static int choose(struct hd_product *p, uint32_t align, cublasLtMatmulAlgo_t *algo, int few)
{
	cublasLtMatmulPreference_t wish;
	cublasLtMatmulHeuristicResult_t found[HD_PRODUCT_MOST];
	size_t most = WORKSPACE;
	uint32_t sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	int n = 0, good = 0;

	if (cublasLtMatmulPreferenceCreate(&wish) != CUBLAS_STATUS_SUCCESS)
		return 0;
	cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof(most));
	cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof(sums));
	cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align, sizeof(align));
	cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align, sizeof(align));
	cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align, sizeof(align));
	cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align, sizeof(align));
	if (cublasLtMatmulAlgoGetHeuristic(here.lt, p->op, p->a, p->b, p->c, p->c, wish, few, found, &n) !=
	    CUBLAS_STATUS_SUCCESS)
		n = 0;
	cublasLtMatmulPreferenceDestroy(wish);
	for (int i = 0; i < n; i++)
		if (found[i].state == CUBLAS_STATUS_SUCCESS)
			algo[good++] = found[i].algo;
	return good;
}

/* Tensors begin at multiples of 16 bytes, but loops or batch dims may move to any element.  So there are
 * implementations for both. */
static int choose_both(struct hd_product *p)
{
	uint32_t element = 16;

	for (int o = 0; o < HD_MM_BIAS; o++)
		if (HD_BITS(p->s.dtype[o]) / 8 < element)
			element = HD_BITS(p->s.dtype[o]) / 8;
	p->nwide = choose(p, 16, p->wide, HD_PRODUCT_MOST);
	p->has_narrow = choose(p, element, &p->narrow, 1);
	return p->nwide || p->has_narrow;
}

static int aligned_all(const void *a, const void *b, const void *c, const void *d)
{
	return hd_aligned(a) && hd_aligned(b) && hd_aligned(c) && hd_aligned(d);
}

static void drop(struct hd_product *p)
{
	if (p->op)
		cublasLtMatmulDescDestroy(p->op);
	if (p->a)
		cublasLtMatrixLayoutDestroy(p->a);
	if (p->b)
		cublasLtMatrixLayoutDestroy(p->b);
	if (p->c)
		cublasLtMatrixLayoutDestroy(p->c);
	free(p);
}

struct hd_product *hd_product_get(const struct hd_mm_shape *s)
{
	struct hd_product *p;

	for (p = here.products; p; p = p->next)
		if (!memcmp(&p->s, s, sizeof(*s))) {
			p->users++;
			return p;
		}
	p = (struct hd_product *)hd_alloc(sizeof(*p));
	p->s = *s;
	p->users = 1;
	p->has_bias = s->dtype[HD_MM_BIAS] != 0;
	p->outer = 1;
	for (int d = 0; d < s->ndim - 4; d++)
		p->outer *= s->n[d];
	if (s->dtype[HD_MM_A] != s->dtype[HD_MM_B] || !describe(p) || !choose_both(p) ||
	    (p->outer > 1 && !p->has_narrow)) {
		drop(p);
		return NULL;
	}
	p->has_own = p->nwide && hd_gelu_wgmma_has(s);
	p->next = here.products;
	return here.products = p;
}

int hd_product_anywhere(const struct hd_product *p)
{
	return p->has_narrow;
}

struct hd_product *hd_product_next(const struct hd_product *p)
{
	return p ? p->next : here.products;
}

const struct hd_mm_shape *hd_product_shape(const struct hd_product *p)
{
	return &p->s;
}

int hd_product_choices(const struct hd_product *p)
{
	return p->nwide + p->has_own;
}

int hd_product_has_own(const struct hd_product *p)
{
	return p->has_own;
}

void hd_product_pick(struct hd_product *p, int i)
{
	p->own = p->has_own && i == p->nwide;
	p->pick = i < p->nwide ? i : 0;
}

size_t hd_product_version(void)
{
	return cublasLtGetVersion();
}

void hd_product_release(struct hd_product *p)
{
	struct hd_product **at = &here.products;

	if (--p->users)
		return;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	drop(p);
}

static const void *moved(const struct hd_mm_shape *s, int o, const void *p, int64_t index)
{
	int64_t off = 0;

	for (int d = s->ndim - 5; d >= 0; d--) {
		off += index % s->n[d] * s->stride[o][d];
		index /= s->n[d];
	}
	return p ? (const char *)p + off * (int64_t)HD_BITS(s->dtype[o]) / 8 : NULL;
}

static int run_one(struct hd_product *p, void *c, const void *a, const void *b, const void *bias, const void *add,
		   const void *aux, cudaStream_t queue)
{
	float one = 1, beta = add ? 1.0f : 0.0f;
	const void *from = add ? add : c;
	int wide = p->nwide && aligned_all(a, b, c, from);

	if (!wide && !p->has_narrow)
		return HD_ENOTSUP;
	if (p->s.then >= HD_MM_GELU_KEEP)
		cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof(aux));
	if (p->has_bias)
		cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
	return cublasLtMatmul(here.lt, p->op, &one, b, p->a, a, p->b, &beta, from, p->c, c, p->c,
			      wide ? &p->wide[p->pick] : &p->narrow, here.workspace, WORKSPACE,
			      queue) == CUBLAS_STATUS_SUCCESS
		       ? HD_OK
		       : HD_ENOTSUP;
}

int hd_product_run(struct hd_product *p, const struct hd_run *r, void *c, const void *a, const void *b,
		   const void *bias, const void *add, const void *aux)
{
	const struct hd_mm_shape *s = &p->s;

	if (p->own && !add && hd_gelu_wgmma(s, r, c, a, b, bias, aux) >= 0)
		return HD_OK;
	for (int64_t i = 0; i < p->outer; i++)
		HD_TRY(run_one(p, (void *)moved(s, HD_MM_C, c, i), moved(s, HD_MM_A, a, i), moved(s, HD_MM_B, b, i),
			       moved(s, HD_MM_BIAS, bias, i), moved(s, HD_MM_C, add, i), moved(s, HD_MM_C, aux, i),
			       (cudaStream_t)r->queue));
	return HD_OK;
}

/* -- the rate of a large product ----------------------------------------------------------------------------------- */
static double measure(uint32_t dtype, int64_t n)
{
	struct hd_mm_shape s;
	struct hd_product *p;
	struct hd_run r;
	void *m = NULL;
	size_t bytes = (size_t)(n * n) * HD_BITS(dtype) / 8;
	cudaEvent_t from, to;
	float ms = 0;
	int times = 20;

	memset(&s, 0, sizeof(s));
	memset(&r, 0, sizeof(r));
	r.queue = (void *)here.queue;
	s.ndim = 3;
	for (int i = 0; i < 3; i++)
		s.dtype[i] = dtype, s.n[i] = n;
	s.stride[HD_MM_A][0] = s.stride[HD_MM_B][2] = s.stride[HD_MM_C][0] = n;
	s.stride[HD_MM_A][2] = s.stride[HD_MM_B][1] = s.stride[HD_MM_C][1] = 1;
	p = hd_product_get(&s);
	if (!p || cudaMalloc(&m, 3 * bytes) != cudaSuccess) {
		cudaGetLastError(); /* else the next launch would report it */
		return 0;
	}
	cudaMemsetAsync(m, 0x3c, 3 * bytes, here.queue); /* small numbers, since zeros take less power */
	cudaEventCreate(&from);
	cudaEventCreate(&to);
	for (int i = 0; i < times + 3; i++) {
		if (i == 3)
			cudaEventRecord(from, here.queue);
		hd_product_run(p, &r, (char *)m + 2 * bytes, m, (char *)m + bytes, NULL, NULL, NULL);
	}
	cudaEventRecord(to, here.queue);
	cudaEventSynchronize(to);
	cudaEventElapsedTime(&ms, from, to);
	cudaEventDestroy(from);
	cudaEventDestroy(to);
	cudaFree(m);
	hd_product_release(p);
	return ms > 0 ? 2.0 * (double)n * (double)n * (double)n * times / (ms * 1e-3) : 0;
}

double hd_matmul_rate(uint32_t dtype)
{
	int i = dtype == HD_DTYPE_BF16;

	if (!(here.rate[i] > 0))
		here.rate[i] = measure(dtype, LARGE);
	return here.rate[i];
}
