/* SPDX-License-Identifier: Apache-2.0
 * The ids of steps on synthetic text.  What breaks here makes bench measure another text than it says: one whose frequent tokens are
 * rarer than in any text, or that differs from run to run.
 */
#include <config.h>
#include <math.h>
#include <stdlib.h>
#include "t/lib/tap.h"
#include "engine/bench/bench.h"

enum { VOCAB = 1000, PLACES = 200000 };

/* Of PLACES draws those of one id are binomial: six deviations, of which one in a billion is beyond. */
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
	is_int(outside, 0, "all ids are of the vocabulary");
	is_int(differ, 0, "and the same each time");
	ok(about(count[0], 1 / all), "the first is as frequent as Zipf's law says: %lld", (long long)count[0]);
	ok(about(count[1], 1 / all / 2), "the second half as frequent: %lld", (long long)count[1]);
	ok(about(count[9], 1 / all / 10), "the tenth a tenth: %lld", (long long)count[9]);
	for (int k = VOCAB / 2; k < VOCAB; k++) {
		tail += count[k];
		rest += 1 / all / (k + 1);
	}
	ok(about(tail, rest), "and the rarer half of the vocabulary together: %lld", (long long)tail);
	ok(count[VOCAB - 1] > 0, "the last of all occurs");
	hd_bench_ids_free(ids);
	hd_bench_ids_free(again);
	ids = hd_bench_ids_new(1);
	is_int(hd_bench_id(ids, 7), 0, "a vocabulary of one");
	hd_bench_ids_free(ids);
	return done();
}
