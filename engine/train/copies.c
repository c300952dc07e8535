/* SPDX-License-Identifier: Apache-2.0
 * Compares copies of parameters and states between ranks, by hash. Each rank hashes its slices. Rank 0 gets all
 * hashes, and compares those of ranks whose slices are the same. Nothing that is allocated outlives the call.
 */
#include <config.h>
#include "engine/base/rng.h"
#include "engine/train/copies.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEX 16

struct hashing {
	const char *data;
	size_t item; /* bytes of an element */
	uint64_t hash;
};

static int is_compared(const struct tensor *t)
{
	return !t->v.node &&
	       (t->v.what == HD_TENSOR_PARAM || t->v.what == HD_TENSOR_MASTER || t->v.what == HD_TENSOR_STATE);
}

static void hash_run(void *ctx, int64_t global, int64_t local, int64_t count)
{
	struct hashing *h = ctx;
	uint64_t hash = 0; /* a sum, so the order does not matter */

#pragma omp parallel for schedule(static) reduction(+ : hash) if (count >= 4096)
	for (int64_t i = 0; i < count; i++) {
		uint64_t bits = 0;

		memcpy(&bits, h->data + (size_t)(local + i) * h->item, h->item);
		hash += hd_hash64(hd_hash64(bits) ^ (uint64_t)(global + i));
	}
	h->hash += hash;
}

/* For tests only: flips one bit of the first tensor, if HD_TEST_FLIP is "RANK,STEP" and names this rank and step. */
static void flip(const struct hd_program *g, const struct tensor *t, int64_t step)
{
	const char *where = getenv("HD_TEST_FLIP");
	long long rank = 0, at = 0;
	char *data;

	if (!where || sscanf(where, "%lld,%lld", &rank, &at) != 2 || rank != g->rank || at != step)
		return;
	data = hd_program_map(g, t, HD_STEP, HD_MAP_WRITE);
	data[0] ^= 1;
	hd_program_unmap(g, t, HD_STEP, data, HD_MAP_WRITE);
}

/* Returns 16 digits for each compared tensor, in the order of the plan. The caller frees them. */
static char *hashes(const struct hd_program *g, int64_t step)
{
	char *text = hd_alloc(g->plan->ntensors * HEX + 1), *to = text;

	for (size_t i = 0; i < g->plan->ntensors; i++) {
		const struct tensor *t = g->plan->tensors[i];
		struct hashing h = { .item = HD_BITS(t->v.dtype) / 8 };

		if (!is_compared(t))
			continue;
		if (hd_is_representative(g->plan, g->rank, &t->at, 0,
					 1)) { /* no hash for a tensor that is pinned elsewhere */
			if (to == text)
				flip(g, t, step);
			h.data = hd_program_map(g, t, HD_STEP, HD_MAP_READ);
			hd_slice_runs(g, t, hash_run, &h);
			hd_program_unmap(g, t, HD_STEP, (void *)(uintptr_t)h.data, HD_MAP_READ);
		}
		snprintf(to, HEX + 1, "%016llx", (unsigned long long)h.hash);
		to += HEX;
	}
	hd_program_forget_copies(g);
	return text;
}

static int64_t agreeing(const struct hd_plan *p, const struct tensor *t, char *const *all, size_t at, int64_t rank)
{
	int64_t n = 0;

	for (int64_t r = 0; r < p->ranks; r++)
		n += hd_has_same_slice(p, t, rank, r) && !memcmp(all[r] + at, all[rank] + at, HEX);
	return n;
}

/* Of two ranks that differ, blames the one that fewer ranks agree with,
 * or the higher one if their numbers are equal. */
static int compare(const struct hd_plan *p, const struct tensor *t, char *const *all, size_t at, int64_t step,
		   const char *why, struct hd_err *err)
{
	for (int64_t a = 0; a < p->ranks; a++)
		for (int64_t b = a + 1; b < p->ranks; b++) {
			int64_t odd = b, even = a;
			char *one, *other;

			if (!hd_has_same_slice(p, t, a, b) || !memcmp(all[a] + at, all[b] + at, HEX))
				continue;
			if (agreeing(p, t, all, at, a) < agreeing(p, t, all, at, b)) {
				odd = a;
				even = b;
			}
			one = hd_rank_text((int)odd);
			other = hd_rank_text((int)even);
			hd_err_set(err, HD_EIO, "step %lld: %s of %s is not that of %s (hashes %.16s and %.16s): %s",
				   (long long)step, t->v.name, one, other, all[odd] + at, all[even] + at, why);
			free(one);
			free(other);
			return HD_EIO;
		}
	return HD_OK;
}

static int compare_all(const struct hd_plan *p, char *const *all, int64_t step, const char *why, struct hd_err *err)
{
	size_t at = 0;

	for (size_t i = 0; i < p->ntensors; i++) {
		if (!is_compared(p->tensors[i]))
			continue;
		HD_TRY(compare(p, p->tensors[i], all, at, step, why, err));
		at += HEX;
	}
	return HD_OK;
}

int hd_copies_check(const struct hd_job *j, int64_t step, const char *why, struct hd_err *err)
{
	const struct hd_program *g = hd_job_first_program(j);
	char *mine = hashes(g, step), **all = hd_comm_gather_text(mine);

	if (all)
		compare_all(g->plan, all, step, why, err);
	for (int64_t r = 0; all && r < g->plan->ranks; r++)
		free(all[r]);
	free(all);
	free(mine);
	return hd_comm_agree(err);
}
