/* SPDX-License-Identifier: Apache-2.0
 * How fast a model generates, beside how fast it could. To make a token every weight that is multiplied must be read once, and
 * of the caches what is filled.  The rate of reading is measured in this run, on the same memory, between the steps.
 */
#include <config.h>
#include "engine/generate/generate.h"
#include <stdlib.h>

/* A leaf that a product or an attention reads on this rank. */
static int is_read(const struct hd_program *g, const struct tensor *t)
{
	if (t->v.node || t->v.what == HD_TENSOR_DATA || !hd_tensor_here(g, t))
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

/* Of a cache, the part that is there: of a window's not more than all. */
static double filled(const struct tensor *t, double at)
{
	double most = t->v.what == HD_TENSOR_STATE ? (double)t->dims[1]->n : 0;

	return at < most ? at / most : 1;
}

/* What a token needs read on this rank, when `at` tokens are there. */
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

/* Reads all leaves once, on all threads: seconds; 0 where they are in a device's own memory. */
static double read_once(const struct hd_job *j, uint64_t *sum)
{
	const uint64_t *x = (const uint64_t *)j->arena;
	int64_t n = hd_job_owner(j)->memory.persistent / (int64_t)sizeof(*x);
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
static volatile uint64_t was_read; /* so that the sum is made */

/* Memory's rate changes by the second where others share it.  So each turn begins and ends with reading, and has a share of its own. */
static int measure(struct hd_job *j, struct hd_generation_bench *b, struct hd_ids *texts, struct hd_err *err)
{
	const struct hd_sampling greedy = { .temperature = 0 };
	double prompt[TIMES], next[TIMES], share[TIMES], read = (double)hd_job_owner(j)->memory.persistent;
	uint64_t sum = 0;

	for (int k = -1; k < TIMES; k++) { /* once to warm up */
		struct hd_generation_times t = { 0 };
		double reading = read_once(j, &sum);

		HD_TRY(hd_cached_generate(j, texts, b->batch, b->tokens + 1, &greedy, &t, err));
		shorten(texts, b->batch, b->prompt);
		if (k < 0)
			continue;
		reading = (reading + read_once(j, &sum)) / 2;
		prompt[k] = hd_comm_max(t.prompt);
		next[k] = hd_comm_max(t.next);
		share[k] = (double)b->tokens * hd_comm_max(b->bytes * reading / read) / next[k];
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
	hd_init_weights(hd_job_owner(j), j->train.seed, NULL);
	b->bytes = needed(g, (double)b->prompt + (double)b->tokens / 2);
	rc = measure(j, b, texts, err);
	for (int64_t i = 0; i < b->batch; i++)
		hd_ids_release(&texts[i]);
	free(texts);
	return rc;
}
