/* SPDX-License-Identifier: Apache-2.0
 * Products in pieces. There are two kinds. For train.deterministic, bits must depend only on a product's shape and on
 * the machine. For other products, oneDNN has no fast implementation that needs little memory.
 *
 * oneDNN cuts a product by the number of threads, along k too, and a different cut adds in a different order. For the
 * first kind, the result is cut, but never k, by a rule that depends only on the shape and the machine's cores. Each
 * piece is a product of one thread, by the first implementation that oneDNN offers on this processor. So it does not
 * matter which thread takes which piece.
 *
 * For the second kind: with some shapes, the large implementations copy a result as large as a vocabulary times all
 * tokens. Such products are cut until a piece's scratchpad is small. The pieces run one after the other, each on all
 * threads.
 */
#include <config.h>
#include "kernels/cpu/base/simd.h"
#include "kernels/cpu/matmul/matmul_impl.h"
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A piece with fewer FLOPs costs more to start than it gains. */
#define SMALL ((double)(1 << 22))
#define MOST 64   /* most cores that are counted */
#define OF_EACH 4 /* most pieces per core: several even out a number that does not divide by the cores */
#define ROWS 32   /* a piece has complete blocks of so many rows and columns */
#define COLUMNS 64
/* A piece packs its operands for the arithmetic units. To pack one element takes as long as this many
 * multiplications. */
#define BRING 64

struct piece_kind { /* pieces of one size: at most 2 sizes along each dim that is cut */
	struct hd_mm_shape shape;
	struct hd_mm_primitive made;
	struct hd_mm_bound *bound; /* one per thread */
	struct piece_kind *next;
};

struct matmul_piece {
	const struct piece_kind *kind;
	int64_t at[HD_MM_OPERANDS]; /* bytes */
};

struct hd_mm_pieces {
	struct piece_kind *kinds;
	struct matmul_piece *piece;
	int64_t n;
	/* Threads that take pieces, each alone; 1: all threads work on one piece after the other. */
	int threads;
	int64_t each;     /* bytes of scratch per such thread */
	const char *want; /* the implementation while pieces are created; NULL: the first */
};

/* Returns n / by, rounded up. */
static int64_t up(int64_t n, int64_t by)
{
	return (n + by - 1) / by;
}

static int64_t whole_pages(int64_t bytes)
{
	return up(bytes, 4096) * 4096;
}

/* ---- the cut --------------------------------------------------------------------------------- */

static int64_t half(int64_t n, int64_t unit)
{
	return up(up(n, 2), unit) * unit;
}

/* Returns the dim to cut in two: the outermost dim of the batch, else the longer of m and n, or -1 for none. */
static int next_cut(const int64_t *each, int ndim)
{
	int m = ndim - 3, n = ndim - 2;

	for (int d = 0; d < m; d++)
		if (each[d] > 1)
			return d;
	if (each[n] > COLUMNS && (each[n] >= each[m] || each[m] <= ROWS))
		return n;
	return each[m] > ROWS ? m : -1;
}

static int64_t count(const int64_t *n, int ndim, const int64_t *each)
{
	int64_t pieces = 1;

	for (int i = 0; i < ndim - 1; i++)
		pieces *= up(n[i], each[i]);
	return pieces;
}

/* Returns the cores of the machine, not those of this run. */
static int64_t cores(void)
{
	static int64_t known;

	if (!known)
		known = hd_min(sysconf(_SC_NPROCESSORS_CONF), MOST);
	return known;
}

/* Returns the time of all pieces of m x n on these cores, per element of k, in multiplications. */
static double rounds(int64_t pieces, int64_t m, int64_t n)
{
	return (double)up(pieces, cores()) * (double)(m * n + BRING * (m + n));
}

/* Finds m and n of a piece such that all cores finish the product soonest. outer: pieces along the batch; most: pieces
 * in all. */
static void cut_plane(int64_t outer, int64_t most, int64_t *m, int64_t *n)
{
	int64_t all_m = *m, all_n = *n;
	double best = INFINITY;

	for (int64_t i = 1; i * outer <= most && (i == 1 || (i - 1) * ROWS < all_m); i++)
		for (int64_t j = 1; i * j * outer <= most && (j == 1 || (j - 1) * COLUMNS < all_n); j++) {
			int64_t rows = hd_min(up(up(all_m, i), ROWS) * ROWS, all_m),
				columns = hd_min(up(up(all_n, j), COLUMNS) * COLUMNS, all_n);
			double t = rounds(outer * up(all_m, rows) * up(all_n, columns), rows, columns);

			if (t < best) {
				best = t;
				*m = rows;
				*n = columns;
			}
		}
}

/* Computes the extents of a piece in `each`. Returns the number of pieces. */
static int64_t cut(const int64_t *n, int ndim, int64_t *each)
{
	int m = ndim - 3;
	int64_t most;
	double flops = 2;

	for (int d = 0; d < ndim; d++) {
		each[d] = n[d];
		flops *= (double)n[d];
	}
	most = hd_min((int64_t)(flops / SMALL), OF_EACH * cores());
	for (int d = 0; d < m; d++)
		while (each[d] > 1 && count(n, ndim, each) < hd_min(cores(), most))
			each[d] = half(each[d], 1);
	cut_plane(count(n, ndim, each), most, &each[m], &each[m + 1]);
	return count(n, ndim, each);
}

/* Does the same, but cuts further where only plain loops would be within the scratch limit. */
static void cut_for(const struct hd_mm_shape *s, int sum, int64_t *each)
{
	struct hd_mm_shape part = *s;

	cut(s->n, s->ndim, part.n);
	hd_mm_shrink_scratch(&part, sum, NULL);
	memcpy(each, part.n, sizeof(part.n));
}

/* ---- preparation ----------------------------------------------------------------------------- */

static int build(struct hd_mm_pieces *p, struct piece_kind *k, int sum)
{
	const_dnnl_primitive_desc_t pd;

	if ((!hd_mm_create(&k->made, &k->shape, sum, 0, p->want) &&
	     (p->want || !hd_mm_create(&k->made, &k->shape, sum, 0, HD_MM_PLAIN_LOOPS))) ||
	    dnnl_primitive_get_primitive_desc(k->made.prim, &pd) != dnnl_success)
		return 0;
	if (whole_pages((int64_t)k->made.scratch_bytes) > p->each)
		p->each = whole_pages((int64_t)k->made.scratch_bytes);
	k->bound = hd_alloc((size_t)p->threads * sizeof(*k->bound));
	for (int t = 0; t < p->threads; t++)
		if (!hd_mm_bind(&k->bound[t], pd, 0, k->shape.dtype[HD_MM_BIAS] != 0))
			return 0;
	return 1;
}

static const struct piece_kind *kind_of(struct hd_mm_pieces *p, const struct hd_mm_shape *s, int sum)
{
	struct piece_kind *k;

	for (k = p->kinds; k; k = k->next)
		if (!memcmp(k->shape.n, s->n, sizeof(s->n)))
			return k;
	k = hd_alloc(sizeof(*k));
	k->shape = *s;
	k->next = p->kinds;
	p->kinds = k;
	return build(p, k, sum) ? k : NULL;
}

/* Sets piece i; pieces are numbered like the elements of an array of pieces. */
static int place(struct hd_mm_pieces *p, int64_t i, const struct hd_mm_shape *s, const int64_t *each, int sum)
{
	struct matmul_piece *piece = &p->piece[i];
	struct hd_mm_shape part = *s;

	for (int d = s->ndim - 2; d >= 0; d--) {
		int64_t along = up(s->n[d], each[d]), from = i % along * each[d];

		i /= along;
		part.n[d] = s->n[d] - from < each[d] ? s->n[d] - from : each[d];
		for (int o = 0; o < HD_MM_OPERANDS; o++)
			piece->at[o] += s->dtype[o] ? from * s->stride[o][d] * HD_BITS(s->dtype[o]) / 8 : 0;
	}
	piece->kind = kind_of(p, &part, sum);
	return piece->kind != NULL;
}

static struct hd_mm_pieces *create(const struct hd_mm_shape *s, int sum, const int64_t *each, int threads,
				   const char *want)
{
	struct hd_mm_pieces *p = hd_alloc(sizeof(*p));
	int ok = 1;

	p->threads = threads;
	p->want = want;
	p->n = count(s->n, s->ndim, each);
	p->piece = hd_alloc((size_t)p->n * sizeof(*p->piece));
	for (int64_t i = 0; ok && i < p->n; i++)
		ok = place(p, i, s, each, sum);
	p->want = NULL;
	if (ok)
		return p;
	hd_mm_pieces_destroy(p);
	return NULL;
}

/* Primitives are created for the number of threads that is set at that time, which must be one. */
struct hd_mm_pieces *hd_mm_pieces_create(const struct hd_mm_shape *s, int sum)
{
	int64_t each[HD_MAX_DIMS + 3];
	int threads = omp_get_max_threads();
	struct hd_mm_pieces *p;

	omp_set_num_threads(1);
	cut_for(s, sum, each);
	p = create(s, sum, each, threads, NULL);
	omp_set_num_threads(threads);
	return p;
}

int hd_mm_shrink_scratch(struct hd_mm_shape *s, int sum, const char *want)
{
	if (hd_mm_scratch_needed(s, sum, want, SIZE_MAX) < 0)
		return 0;
	while (hd_mm_scratch_needed(s, sum, want, hd_mm_limit(s, sum)) < 0) {
		int d = next_cut(s->n, s->ndim);

		if (d < 0)
			return 0;
		s->n[d] = half(s->n[d], d == s->ndim - 3 ? ROWS : d == s->ndim - 2 ? COLUMNS : 1);
	}
	return 1;
}

struct hd_mm_pieces *hd_mm_pieces_of_scratch(const struct hd_mm_shape *s, int sum, const char *want)
{
	struct hd_mm_shape part = *s;

	return hd_mm_shrink_scratch(&part, sum, want) ? create(s, sum, part.n, 1, want) : NULL;
}

/* ---- scratch --------------------------------------------------------------------------------- */

/* Returns the bytes that build would take for pieces of these extents, or -1 if it would fail. */
static int64_t wanted(const struct hd_mm_shape *s, int sum, const char *want)
{
	int64_t bytes = hd_mm_scratch_needed(s, sum, want, hd_mm_limit(s, sum));

	return bytes < 0 && !want ? hd_mm_scratch_needed(s, sum, HD_MM_PLAIN_LOOPS, hd_mm_limit(s, sum)) : bytes;
}

/* Returns the most scratch of any kind of piece, or -1. Along each dim that is cut, a piece has the full extent or is
 * the last. d: the first dim to vary. */
static int64_t most_wanted(struct hd_mm_shape *part, const struct hd_mm_shape *s, int d, int sum, const char *want)
{
	int64_t each = part->n[d], rest = s->n[d] % each, most, of_rest;

	if (d == s->ndim - 1)
		return wanted(part, sum, want);
	most = most_wanted(part, s, d + 1, sum, want);
	if (!rest || most < 0)
		return most;
	part->n[d] = rest;
	of_rest = most_wanted(part, s, d + 1, sum, want);
	part->n[d] = each;
	return of_rest < 0 || of_rest > most ? of_rest : most;
}

static int64_t scratch_of(const struct hd_mm_shape *s, const int64_t *each, int sum, int threads, const char *want)
{
	struct hd_mm_shape part = *s;
	int64_t bytes;

	memcpy(part.n, each, sizeof(part.n));
	bytes = most_wanted(&part, s, 0, sum, want);
	return bytes > 0 ? whole_pages(bytes) * threads : 0;
}

int64_t hd_mm_pieces_bytes(const struct hd_mm_shape *s, int sum, int threads)
{
	int64_t each[HD_MAX_DIMS + 3] = { 0 }, bytes;
	int was = omp_get_max_threads();

	omp_set_num_threads(1);
	cut_for(s, sum, each);
	bytes = scratch_of(s, each, sum, threads, NULL);
	omp_set_num_threads(was);
	return bytes;
}

int64_t hd_mm_pieces_of_scratch_bytes(const struct hd_mm_shape *s, int sum, const char *want)
{
	struct hd_mm_shape part = *s;

	return hd_mm_shrink_scratch(&part, sum, want) ? scratch_of(s, part.n, sum, 1, want) : 0;
}

int64_t hd_mm_pieces_taken(const struct hd_mm_pieces *p)
{
	return p->each * p->threads;
}

void hd_mm_pieces_destroy(struct hd_mm_pieces *p)
{
	while (p && p->kinds) {
		struct piece_kind *k = p->kinds;

		p->kinds = k->next;
		for (int t = 0; k->bound && t < p->threads; t++)
			hd_mm_unbind(&k->bound[t]);
		hd_mm_drop(&k->made);
		free(k->bound);
		free(k);
	}
	if (p)
		free(p->piece);
	free(p);
}

/* ---- run ------------------------------------------------------------------------------------- */

static void *into(void *mem, const struct matmul_piece *p, int o)
{
	return mem ? (char *)mem + p->at[o] : NULL;
}
static const void *at(const void *mem, const struct matmul_piece *p, int o)
{
	return mem ? (const char *)mem + p->at[o] : NULL;
}

static int run_piece(const struct hd_mm_pieces *p, int64_t i, int me, char *scratch, void *c, const void *a,
		     const void *b, const void *bias)
{
	const struct matmul_piece *x = &p->piece[i];

	return hd_mm_execute(x->kind->made.prim, &x->kind->bound[me], scratch + me * p->each, into(c, x, HD_MM_C),
			     at(a, x, HD_MM_A), at(b, x, HD_MM_B), at(bias, x, HD_MM_BIAS));
}

static int run_one_by_one(const struct hd_mm_pieces *p, char *scratch, void *c, const void *a, const void *b,
			  const void *bias)
{
	for (int64_t i = 0; i < p->n; i++)
		HD_TRY(run_piece(p, i, 0, scratch, c, a, b, bias));
	return 0;
}

/* oneDNN must see one thread, even within a team of one. */
int hd_mm_pieces_run(const struct hd_mm_pieces *p, void *scratch, void *c, const void *a, const void *b,
		     const void *bias)
{
	int threads = p->threads < p->n ? p->threads : (int)p->n, failed = 0;

	if (p->threads == 1)
		return run_one_by_one(p, scratch, c, a, b, bias);
#pragma omp parallel num_threads(threads) reduction(| : failed)
	{
		int me = omp_get_thread_num();

		omp_set_num_threads(1);
#pragma omp for schedule(dynamic)
		for (int64_t i = 0; i < p->n; i++)
			failed |= run_piece(p, i, me, scratch, c, a, b, bias) != 0;
	}
	return failed ? HD_ENOTSUP : 0;
}

/* Multiplies two row-major fp32 matrices as dnnl_sgemm does, for sizes that are known only at run time. */
void hd_mm_sgemm(char ta, char tb, const int64_t mnk[3], const float *a, int64_t lda, const float *b, int64_t ldb,
		 float beta, float *c, int64_t ldc)
{
	int64_t each[3] = { mnk[0], mnk[1] }, pieces = hd_mm_is_fixed() ? cut(mnk, 3, each) : 1;
	int64_t across = up(mnk[1], each[1]);

	if (!hd_mm_is_fixed()) {
		dnnl_sgemm(ta, tb, mnk[0], mnk[1], mnk[2], 1, a, lda, b, ldb, beta, c, ldc);
		return;
	}
#pragma omp parallel num_threads(omp_get_max_threads() < pieces ? omp_get_max_threads() : (int)pieces)
	{
		omp_set_num_threads(1);
#pragma omp for schedule(dynamic)
		for (int64_t i = 0; i < pieces; i++) {
			int64_t m = i / across * each[0], n = i % across * each[1];

			dnnl_sgemm(ta, tb, mnk[0] - m < each[0] ? mnk[0] - m : each[0],
				   mnk[1] - n < each[1] ? mnk[1] - n : each[1], mnk[2], 1,
				   a + (ta == 'N' ? m * lda : m), lda, b + (tb == 'N' ? n : n * ldb), ldb, beta,
				   c + m * ldc + n, ldc);
		}
	}
}
