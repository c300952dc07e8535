/* SPDX-License-Identifier: Apache-2.0
 * Bounds of a step: the time of its matrix products alone, and the memory bandwidth.
 */
#include <config.h>
#include "engine/bench/bench.h"
#include <stdlib.h>

double hd_bench_bound(struct hd_job *j, int any, const struct hd_node **unknown)
{
	hd_comm_barrier();
	return hd_program_bound(j->program[HD_JOB_TRAIN], any, unknown);
}

/* Allocates n numbers and writes them all: pages that were never written would all map to one page of zeros. */
static double *array(int64_t n)
{
	double *x;

	if (posix_memalign((void **)&x, 4096, (size_t)n * sizeof(*x)))
		return NULL;
#pragma omp parallel for schedule(static)
	for (int64_t i = 0; i < n; i++)
		x[i] = (double)i;
	return x;
}

static double triad(double *a, const double *b, const double *c, int64_t n)
{
	double begin = hd_seconds();

#pragma omp parallel for simd schedule(static)
	for (int64_t i = 0; i < n; i++)
		a[i] = b[i] + 0.5 * c[i];
	return hd_seconds() - begin;
}

double hd_bench_memory_rate(int64_t bytes)
{
	int64_t n = bytes / (int64_t)sizeof(double);
	double *a = array(n), *b = array(n), *c = array(n), best = 1e9;

	for (int k = 0; a && b && c && k < 5; k++) {
		double s = triad(a, b, c, n);

		best = s < best ? s : best;
	}
	free(a);
	free(b);
	free(c);
	return best < 1e9 ? 3.0 * (double)n * (double)sizeof(double) / best : 0;
}
