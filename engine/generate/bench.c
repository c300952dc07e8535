/* SPDX-License-Identifier: Apache-2.0
 * Measures how fast a model generates, compared with how fast it could. For each token, every weight in a product must
 * be read once, and the filled part of the caches. The read rate is measured in this run, on the same memory, between
 * the steps.
 */
#include <config.h>
#include "engine/generate/generate.h"
#include <stdlib.h>

/* Returns whether t is a weight that has been moved, alone or in one message with others. */
static int is_moved_weight(const struct tensor *t)
{
	while (t->v.node && N(t->v.node)->is->flags & (OP_FLAG_PIECES | OP_FLAG_NAMES) && t->v.node->nin)
		t = N(t->v.node)->ins[0];
	return !t->v.node && t->v.what == HD_TENSOR_PARAM;
}

/* Returns whether a product or an attention reads t on this rank, and t is a leaf or a weight from other ranks. */
static int is_read(const struct hd_program *g, const struct tensor *t)
{
	if (t->v.node ? !is_moved_weight(t) : t->v.what == HD_TENSOR_DATA)
		return 0;
	if (!hd_tensor_here(g, t))
		return 0;
	for (const struct node *n = g->plan->first; n; n = n->next) {
		struct hd_cost c = { .size = sizeof(c) };

		for (uint32_t i = 0; i < n->v.nin; i++)
			if (n->ins[i] == t)
				hd_node_cost(n, &c);
		if (c.matmul_flops > 0)
			return 1;
	}
	return 0;
}

/* Returns the filled fraction of a cache when `at` tokens exist; the cache of a window is never more than full. */
static double filled(const struct tensor *t, double at)
{
	double most = t->v.what == HD_TENSOR_STATE ? (double)t->dims[1]->n : 0;

	return at < most ? at / most : 1;
}

/* Returns the bytes that this rank must read for a token when `at` tokens exist. */
static double needed(const struct hd_program *g, double at)
{
	double sum = 0;

	for (size_t i = 0; i < g->plan->ntensors; i++) {
		const struct tensor *t = g->plan->tensors[i];

		if (is_read(g, t))
			sum += (double)hd_local_bytes(t) * filled(t, at);
	}
	return sum;
}

/* Returns how many bytes are read to measure the rate: all leaves, or as much as a token needs if other ranks send
 * more. */
static int64_t measured_bytes(const struct hd_job *j, double token)
{
	int64_t leaves = hd_job_first_program(j)->memory.persistent, n = (int64_t)token;

	n = n < leaves ? leaves : n < j->arena_bytes ? n : j->arena_bytes;
	return n > 0 ? n : 1;
}

/* Reads so many bytes once, with all threads. Returns the seconds, or 0 if they are in a device's own memory. */
static double read_once(const struct hd_job *j, int64_t bytes, uint64_t *sum)
{
	const uint64_t *x = (const uint64_t *)j->arena;
	int64_t n = bytes / (int64_t)sizeof(*x);
	uint64_t all = 0;
	double begin;

	if (!hd_device_in_host(j->device))
		return 0;
	hd_comm_barrier();
	begin = hd_seconds();
#pragma omp parallel for simd schedule(static) reduction(+ : all)
	for (int64_t i = 0; i < n; i++)
		all += x[i];
	*sum += all;
	return hd_seconds() - begin;
}

static void make_texts(struct hd_ids *texts, int64_t n, int64_t tokens, int64_t vocab)
{
	for (int64_t i = 0; i < n; i++)
		for (int64_t k = 0; k < tokens; k++)
			hd_ids_add(&texts[i],
				   (int32_t)((uint64_t)(i * tokens + k + 1) * 2654435761u % (uint64_t)vocab));
}

static void shorten(struct hd_ids *texts, int64_t n, int64_t tokens)
{
	for (int64_t i = 0; i < n; i++)
		texts[i].n = (size_t)tokens;
}

enum { TIMES = 7 };
static volatile uint64_t was_read; /* keeps the compiler from removing the sum */

/* Measures several turns. Where memory is shared, its rate changes from second to second. So each turn begins and ends
 * with reading, and gets a share of its own. */
static int measure(struct hd_job *j, struct hd_generation_bench *b, struct hd_ids *texts, struct hd_err *err)
{
	const struct hd_sampling greedy = { .temperature = 0 };
	double prompt[TIMES], next[TIMES], share[TIMES];
	int64_t read = measured_bytes(j, b->bytes);
	uint64_t sum = 0;

	for (int k = -1; k < TIMES; k++) { /* turn -1 warms up */
		struct hd_generation_times t = { 0 };
		double reading = read_once(j, read, &sum);

		HD_TRY(hd_cached_generate(j, texts, b->batch, b->tokens + 1, &greedy, &t, err));
		shorten(texts, b->batch, b->prompt);
		if (k < 0)
			continue;
		reading = (reading + read_once(j, read, &sum)) / 2;
		prompt[k] = hd_comm_max(t.prompt);
		next[k] = hd_comm_max(t.next);
		share[k] = (double)b->tokens * hd_comm_max(b->bytes * reading / (double)read) / next[k];
	}
	b->prompt_rate = (double)(b->batch * b->prompt) / hd_median(prompt, TIMES);
	b->rate = (double)(b->batch * b->tokens) / hd_median(next, TIMES);
	if (hd_device_in_host(j->device))
		b->bound = b->rate / hd_median(share, TIMES);
	b->bytes = hd_comm_max(b->bytes);
	b->read_rate = b->bound * b->bytes / (double)b->batch;
	was_read = sum;
	return HD_OK;
}

int hd_generation_measure(struct hd_job *j, struct hd_generation_bench *b, struct hd_err *err)
{
	const struct hd_program *g = j->program[HD_JOB_NEXT];
	struct hd_ids *texts;
	int rc;

	b->batch = hd_cached_rows(j);
	texts = hd_alloc((size_t)b->batch * sizeof(*texts));
	make_texts(texts, b->batch, b->prompt, g->plan->model.vocab);
	hd_init_weights(hd_job_first_program(j), j->train.seed, NULL);
	b->bytes = needed(g, (double)b->prompt + (double)b->tokens / 2);
	rc = measure(j, b, texts, err);
	for (int64_t i = 0; i < b->batch; i++)
		hd_ids_release(&texts[i]);
	free(texts);
	return rc;
}
