/* SPDX-License-Identifier: Apache-2.0
 * Measures by how much longer a movement takes between ranks that share a core.
 *
 * In a movement a rank waits for the others, so the ranks on its core take turns. Meanwhile their data replace what its
 * last kernel left in the core's private cache (L2). When its turn comes again, its next kernel reads that from further
 * away. So it is a time for each movement: the additional time of reading a part of L2 after other memory instead of
 * after itself. The other memory is larger than the cache that cores share (L3), where that is small.
 */
#include <config.h>
#include "engine/measure/measure.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Fitted: the part of L2 that a kernel would find again is 1 / FOUND_AGAIN. With a half, eight ranks on two cores
 * were predicted best. */
#define FOUND_AGAIN 2
#define USUAL_L2 (1 << 20)
#define MOST_READ (64 << 20)    /* bytes of others' memory, as ranks of usual models use between two turns */
enum { ROUNDS = 15, LINE = 8 }; /* LINE: words of a cache line */

/* Returns the seconds of reading n words. It reads one word of each cache line, or the loop would take longer
 * than the memory. */
static double read_through(const volatile uint64_t *memory, int64_t n)
{
	double begin = hd_seconds();

	for (int64_t i = 0; i < n; i += LINE)
		(void)memory[i];
	return hd_seconds() - begin;
}

/* Returns how many words of others' memory are read between two turns. */
static int64_t words_of_others(int64_t l2)
{
	long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
	int64_t words = 2 * (l3 > MOST_READ / 2 ? MOST_READ / 2 : l3) / (int64_t)sizeof(uint64_t);

	return words > 2 * l2 ? words : 2 * l2;
}

int hd_measure_shared_cores(struct hd_measuring *m, struct hd_err *err)
{
	long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
	int64_t all = (l2 > 0 ? l2 : USUAL_L2) / (int64_t)sizeof(uint64_t), between = words_of_others(all);
	uint64_t *mine = hd_alloc((size_t)(all / FOUND_AGAIN) * sizeof(*mine)),
		 *others = hd_alloc((size_t)between * sizeof(*others));
	double more[ROUNDS], median;

	memset(mine, 1, (size_t)(all / FOUND_AGAIN) * sizeof(*mine));
	memset(others, 1, (size_t)between * sizeof(*others));
	hd_comm_barrier(); /* as for the rates, all cores work at once */
	for (int i = 0; i < ROUNDS; i++) {
		read_through(others, between);
		more[i] = read_through(mine, all / FOUND_AGAIN);
		more[i] -= read_through(mine, all / FOUND_AGAIN);
	}
	free(mine);
	free(others);
	hd_sort(more, ROUNDS);
	median = hd_comm_max(more[ROUNDS / 2]);
	if (hd_device_in_host(m->j->device))
		m->rates->turn = fmax(median, 0);
	return hd_comm_agree(err);
}
