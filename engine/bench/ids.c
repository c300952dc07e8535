/* SPDX-License-Identifier: Apache-2.0
 * Token ids for steps on synthetic text: the frequency of id k is proportional to 1 / (k + 1). This is Zipf's law with
 * exponent 1 (G. K. Zipf, Human Behavior and the Principle of Least Effort, 1949). Ids that are all distinct, or
 * equally frequent, would hide the cost of frequent tokens, whose rows of the embedding's gradient are long sums.
 */
#include <config.h>
#include "engine/base/rng.h"
#include "engine/bench/bench.h"
#include <stdlib.h>

struct hd_bench_ids {
	int64_t vocab;
	double *upto; /* upto[id]: 1 / 1 + ... + 1 / (id + 1) */
};

struct hd_bench_ids *hd_bench_ids_new(int64_t vocab)
{
	struct hd_bench_ids *ids = hd_alloc(sizeof(*ids));
	double sum = 0;

	ids->vocab = vocab;
	ids->upto = hd_alloc((size_t)vocab * sizeof(*ids->upto));
	for (int64_t k = 0; k < vocab; k++)
		ids->upto[k] = sum += 1 / (double)(k + 1);
	return ids;
}

void hd_bench_ids_free(struct hd_bench_ids *ids)
{
	if (ids)
		free(ids->upto);
	free(ids);
}

int32_t hd_bench_id(const struct hd_bench_ids *ids, int64_t place)
{
	double x = hd_random_uniform(0, (uint64_t)place) * ids->upto[ids->vocab - 1];
	int64_t low = 0, high = ids->vocab - 1;

	while (low < high) { /* finds the first id whose sum is larger */
		int64_t mid = (low + high) / 2;

		if (ids->upto[mid] > x)
			high = mid;
		else
			low = mid + 1;
	}
	return (int32_t)low;
}

int hd_bench_fill(void *ctx, const struct hd_program *g, const struct tensor *t, int64_t micro, int32_t *out)
{
	int64_t n = hd_local_count(t);

	(void)g;
	for (int64_t i = 0; i < n; i++)
		out[i] = hd_bench_id(ctx, i + micro * n);
	return HD_OK;
}
