/* SPDX-License-Identifier: Apache-2.0
 * The ids of synthetic text for bench.  If this broke, bench would measure a different text than it claims: one whose
 * frequent tokens are rarer than in any real text, or one that differs from run to run.
 */
#include <config.h>
#include <math.h>
#include <stdlib.h>
#include "t/lib/tap.h"
#include "engine/bench/bench.h"

enum { VOCAB = 1000, PLACES = 200000 };

/* The count of one id among PLACES draws is binomial; one in a billion is off by more than six standard deviations. */
static int about(int64_t count, double share)
{
	return fabs((double)count - share * PLACES) <= 6 * sqrt(share * (1 - share) * PLACES);
}

int main(void)
{
	struct hd_bench_ids *ids = hd_bench_ids_new(VOCAB), *again = hd_bench_ids_new(VOCAB);
	int64_t count[VOCAB] = { 0 }, tail = 0, outside = 0, differ = 0;
	double all = 0, rest = 0;

	for (int k = 0; k < VOCAB; k++)
		all += 1.0 / (k + 1);
	for (int64_t i = 0; i < PLACES; i++) {
		int32_t id = hd_bench_id(ids, i);

		outside += id < 0 || id >= VOCAB;
		differ += id != hd_bench_id(again, i);
		count[id < 0 || id >= VOCAB ? 0 : id]++;
	}
	is_int(outside, 0, "all ids are in the vocabulary");
	is_int(differ, 0, "the ids are the same each time");
	ok(about(count[0], 1 / all), "the first id is as frequent as Zipf's law says: %lld", (long long)count[0]);
	ok(about(count[1], 1 / all / 2), "the second id is half as frequent: %lld", (long long)count[1]);
	ok(about(count[9], 1 / all / 10), "the tenth id is a tenth as frequent: %lld", (long long)count[9]);
	for (int k = VOCAB / 2; k < VOCAB; k++) {
		tail += count[k];
		rest += 1 / all / (k + 1);
	}
	ok(about(tail, rest), "the rarer half of the vocabulary has its share: %lld", (long long)tail);
	ok(count[VOCAB - 1] > 0, "the last id occurs");
	hd_bench_ids_free(ids);
	hd_bench_ids_free(again);
	ids = hd_bench_ids_new(1);
	is_int(hd_bench_id(ids, 7), 0, "a vocabulary of one has the id 0");
	hd_bench_ids_free(ids);
	return done();
}
