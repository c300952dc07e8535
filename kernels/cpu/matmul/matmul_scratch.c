/* SPDX-License-Identifier: Apache-2.0
 * The scratch that a product takes, before an implementation has been chosen: the most that any candidate takes. A run
 * is planned before its products are timed, and perhaps on a different machine.
 */
#include <config.h>
#include "engine/base/hash.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/tiles/tiles.h"
#include "kernels/cpu/matmul/matmul_impl.h"
#include <omp.h>
#include <pthread.h>
#include <string.h>

#define BUCKETS 256

struct scratch_key {
	struct hd_mm_shape shape;
	int needs, threads, fixed;
};

struct scratch_known {
	struct scratch_key key;
	int64_t bytes;
	struct scratch_known *next;
};

static struct scratch_known *known[BUCKETS]; /* asking the library again for each layer would take long */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int hd_mm_can_swap(const struct hd_mm_shape *s)
{
	return !s->dtype[HD_MM_BIAS] && (s->n[s->ndim - 3] == 1 || s->n[s->ndim - 2] == 1);
}

/* With smaller extents, most of a tile would be zeros. */
int hd_mm_in_tiles(const struct hd_mm_shape *s)
{
	const int64_t *n = s->n + s->ndim - 3;

	return n[0] >= 16 && n[1] >= 16 && n[2] >= 16;
}

int hd_mm_has(const struct hd_mm_shape *s)
{
	struct hd_mm_offers o;

	if (hd_mm_open(NULL) < 0)
		return 0;
	if (!hd_mm_offers_begin(&o, s, 1, 0))
		return hd_mm_own_default(s, 1) > 0;
	hd_mm_offers_end(&o);
	return 1;
}

int64_t hd_mm_own_default(const struct hd_mm_shape *s, int threads)
{
	return hd_gemm_preferred() ? hd_gemm_bytes(s, threads) : 0;
}

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Returns the most scratch of any of the library's implementations: as a single primitive, or in pieces if it needs
 * too much. */
static int64_t of_offers(const struct hd_mm_shape *s, int sum, int swap)
{
	size_t limit = hd_mm_limit(s, sum);
	dnnl_primitive_desc_t pd;
	struct hd_mm_offers o;
	int64_t most = 0;
	int begun = 0;

	if (!hd_mm_offers_begin(&o, s, sum, swap))
		return 0;
	while ((pd = hd_mm_offers_next(&o, &begun))) {
		const char *name = hd_mm_name(pd);

		if (hd_mm_scratch(pd) <= limit)
			most = larger(most, (int64_t)hd_mm_scratch(pd));
		else if (!swap && !strstr(name, HD_MM_PLAIN_LOOPS))
			most = larger(most, hd_mm_pieces_of_scratch_bytes(s, sum, name));
		dnnl_primitive_desc_destroy(pd);
	}
	hd_mm_offers_end(&o);
	return most;
}

static int64_t timed(const struct hd_mm_shape *s, int sum, int threads)
{
	int64_t most = of_offers(s, sum, 0);

	for (int i = 0; i < HD_MM_OWN; i++)
		most = larger(most, hd_mm_own_bytes(s, hd_mm_own_names[i], threads));
	if (hd_mm_can_swap(s))
		most = larger(most, of_offers(s, sum, 1));
	if (hd_mm_scratch_needed(s, sum, NULL, hd_mm_limit(s, sum)) < 0)
		most = larger(most, hd_mm_pieces_of_scratch_bytes(s, sum, NULL));
	return most;
}

static int64_t fixed(const struct hd_mm_shape *s, int sum, int threads)
{
	int64_t tiles = hd_mm_in_tiles(s) ? hd_mm_own_bytes(s, HD_MM_TILES, threads) : 0;
	int64_t own = tiles ? tiles : hd_mm_own_default(s, threads);

	return own ? own : hd_mm_pieces_bytes(s, sum, threads);
}

static void compute(struct scratch_known *k)
{
	for (int sum = 0; sum < 2; sum++)
		if (k->key.needs >> sum & 1)
			k->bytes = larger(k->bytes, (k->key.fixed ? fixed : timed)(&k->key.shape, sum, k->key.threads));
}

static void *compute_in_thread(void *known_one)
{
	struct scratch_known *k = known_one;

	omp_set_num_threads(k->key.threads);
	compute(k);
	return NULL;
}

/* The library cuts a product for the number of threads that it finds. A separate thread sets the number that the run
 * will have. */
static int64_t ask(struct scratch_known *k)
{
	pthread_t thread;

	if ((!omp_in_parallel() && omp_get_max_threads() == k->key.threads) ||
	    pthread_create(&thread, NULL, compute_in_thread, k))
		compute(k);
	else
		pthread_join(thread, NULL);
	return k->bytes;
}

static uint64_t hash_of(const struct scratch_key *k)
{
	uint64_t h = HD_HASH_START;

	for (size_t i = 0; i < sizeof(*k); i++)
		h = hd_hash_add(h, ((const unsigned char *)k)[i]);
	return h;
}

int64_t hd_mm_bytes(const struct hd_mm_shape *s, int needs, int threads)
{
	struct scratch_known *k, **bucket;
	struct scratch_key key;
	int64_t bytes;

	if (!hd_mm_has(s))
		return 0;
	memset(&key, 0, sizeof(key)); /* keys are compared byte by byte */
	key.shape = *s;
	key.needs = needs;
	key.threads = threads;
	key.fixed = hd_mm_is_fixed();
	bucket = &known[hash_of(&key) % BUCKETS];
	pthread_mutex_lock(&lock);
	for (k = *bucket; k && memcmp(&k->key, &key, sizeof(key)) != 0;)
		k = k->next;
	if (!k) {
		k = hd_alloc(sizeof(*k));
		memcpy(&k->key, &key, sizeof(key));
		k->next = *bucket;
		*bucket = k;
		ask(k);
	}
	bytes = k->bytes;
	pthread_mutex_unlock(&lock);
	return bytes;
}
