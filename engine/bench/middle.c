/* SPDX-License-Identifier: Apache-2.0
 * The step that bench reports: the step of median time, with its own communication. If the mean communication were
 * printed with the median time, one slow step could make the wait longer than the step.
 */
#include <config.h>
#include "engine/bench/bench.h"
#include <stdlib.h>

static int by_seconds(const void *a, const void *b)
{
	double x = ((const struct hd_bench_step *)a)->seconds, y = ((const struct hd_bench_step *)b)->seconds;

	return (x > y) - (x < y);
}

struct hd_bench_step hd_bench_middle(struct hd_bench_step *steps, int n)
{
	const struct hd_bench_step *high = &steps[n / 2], *low = n % 2 ? high : high - 1;

	qsort(steps, (size_t)n, sizeof(*steps), by_seconds);
	return (struct hd_bench_step){ .seconds = (low->seconds + high->seconds) / 2,
				       .exposed = (low->exposed + high->exposed) / 2,
				       .hidden = (low->hidden + high->hidden) / 2 };
}
