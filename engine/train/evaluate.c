/* SPDX-License-Identifier: Apache-2.0
 * Evaluation: the forward program over the validation split, in the same layout, sharing the training program's weights.
 * The losses of the tokens come back per token and are added up here in double; a last micro-batch that is not full is
 * filled up and its surplus left out, so every validation token counts once.
 */
#include <config.h>
#include "engine/train/train.h"
#include <stdlib.h>
#include <string.h>

struct eval_feed {
	struct hd_job *j;
	int64_t first, total;
	int32_t *ids;
	struct hd_err *err;
};

static int fill(void *ctx, const struct hd_program *g, const struct tensor *t, int64_t micro, int32_t *out)
{
	struct eval_feed *f = ctx;
	int shift = !strcmp(t->v.name, "targets");
	int64_t s0 = f->first + hd_offset(g->plan, t, 0, g->rank);

	(void)micro;
	for (int64_t i = 0; i < t->local[0]; i++) {
		int64_t at = s0 + i < f->total ? s0 + i : 0;

		HD_TRY(hd_data_valid_sample(f->j->data, at, f->ids, f->err));
		hd_pieces_tokens(g->plan, t, g->rank, f->ids + shift, out + i * t->local[1]);
	}
	return HD_OK;
}

static double sum_rows(const struct hd_program *g, const struct tensor *nll, int64_t first, int64_t total)
{
	float *x;
	int64_t s0 = first + hd_offset(g->plan, nll, 0, g->rank);
	double sum = 0;

	if (!hd_owns(g, nll))
		return 0;
	x = hd_program_map(g, nll, 0, HD_MAP_READ);
	for (int64_t i = 0; i < nll->local[0] && s0 + i < total; i++)
		for (int64_t q = 0; q < nll->local[1]; q++)
			sum += x[i * nll->local[1] + q];
	hd_program_unmap(g, nll, 0, x, HD_MAP_READ);
	return sum;
}

int hd_evaluate(struct hd_job *j, int64_t batches, double *loss, int64_t *tokens, struct hd_err *err)
{
	struct hd_program *g = j->program[HD_JOB_EVAL];
	int64_t batch = g->plan->batch, global = j->train.batch.full, total = hd_data_valid_samples(j->data),
		seq = g->plan->model.seq;
	int32_t *ids = hd_alloc((size_t)(seq + 1) * sizeof(*ids));
	struct eval_feed f = { j, 0, 0, ids, err };
	struct hd_run run = { .seed = (uint64_t)j->train.seed };
	double sum = 0;
	int rc = HD_OK;

	if (batches && batches * global < total)
		total = batches * global;
	f.total = total;
	for (f.first = 0; f.first < total && rc >= 0; f.first += batch) {
		rc = hd_program_compute(g, &run, fill, &f);
		if (rc >= 0)
			sum += sum_rows(g, g->plan->nll, f.first, total);
	}
	free(ids);
	if (rc >= 0)
		rc = hd_comm_agree(err);
	*tokens = total * seq;
	*loss = hd_comm_sum(sum) / (double)(total ? total * seq : 1);
	return rc;
}
