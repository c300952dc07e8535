/* SPDX-License-Identifier: Apache-2.0
 * Generates with a cache of keys and values. Several texts are processed together, each at its own position. A prompt
 * is read in pieces that end where it ends, so that the last token of each text is the last of its piece. Columns
 * before a text's beginning contain no token (position -1). Then each run computes one token of each text.
 *
 * If a text outgrows the cache, its last tokens are read again for each new token. The model then sees the same as
 * without a cache.
 *
 * A text that has ended stays in the batch unchanged: its last token is computed again, into the same place of the
 * cache.
 */
#include <config.h>
#include "engine/generate/generate.h"
#include <stdlib.h>
#include <string.h>

struct cached_run {
	struct hd_job *j;
	const struct hd_ids *texts;
	int64_t n;      /* number of texts; rows beyond repeat the last one */
	int64_t behind; /* how many tokens before the end of each text this run's columns end */
	char *ended;    /* by text: whether it has ended; NULL: no token is drawn */
	int64_t left;   /* number of texts that have not ended */
	int last;       /* the role of the program that ran last; 0: none */
	struct hd_err *err;
};

static int fill(void *ctx, const struct hd_program *g, const struct tensor *t, int64_t micro, int32_t *out)
{
	const struct cached_run *r = ctx;
	int positions = !strcmp(t->v.name, "positions");
	int64_t row0 = hd_offset(g->plan, t, 0, g->rank), cols = t->local[1];

	(void)micro;
	for (int64_t i = 0; i < t->local[0]; i++) {
		const struct hd_ids *x = &r->texts[row0 + i < r->n ? row0 + i : r->n - 1];
		int64_t len = (int64_t)x->n, from = len > g->plan->past ? len - g->plan->past : 0;

		for (int64_t q = 0; q < cols; q++) {
			int64_t at = len - r->behind - cols + q;

			out[i * cols + q] = at < from ? -positions : positions ? (int32_t)(at - from) : x->at[at];
		}
	}
	return HD_OK;
}

static int run(struct cached_run *r, int role)
{
	struct hd_program *g = r->j->program[role];
	struct hd_run run = { .seed = (uint64_t)r->j->train.seed,
			      .position = g->plan->model.step_seq - 1,
			      .again = r->last == role };
	int rc = hd_program_compute(g, &run, fill, r);

	r->last = role;
	return rc < 0 ? hd_program_failed(g, rc, "generation", r->err) : HD_OK;
}

static int64_t longest(const struct cached_run *r)
{
	int64_t most = 1;

	for (int64_t i = 0; i < r->n; i++)
		most = (int64_t)r->texts[i].n > most ? (int64_t)r->texts[i].n : most;
	return most;
}

/* Reads each text completely, or its last tokens if it outgrows the cache. */
static int read_prompts(struct cached_run *r)
{
	const struct hd_plan *p = r->j->plan[HD_JOB_PROMPT];
	int64_t piece = p->model.step_seq, most = longest(r), pieces;

	most = most < p->past ? most : p->past;
	pieces = (most + piece - 1) / piece;
	for (int64_t k = pieces - 1; k >= 0; k--) {
		r->behind = k * piece;
		HD_TRY(run(r, HD_JOB_PROMPT));
	}
	return HD_OK;
}

/* Reads the new tokens of the texts: all at first, then one of each. */
static int advance(struct cached_run *r, int first, int *role)
{
	*role = first || longest(r) > r->j->plan[HD_JOB_NEXT]->past ? HD_JOB_PROMPT : HD_JOB_NEXT;
	if (*role == HD_JOB_PROMPT)
		return read_prompts(r);
	r->behind = 0;
	return run(r, HD_JOB_NEXT);
}

static int draw(struct cached_run *r, int role, struct hd_ids *texts, struct hd_sampling s, float *scratch)
{
	struct hd_program *g = r->j->program[role];
	const struct tensor *t = g->plan->logits;
	float *z = hd_program_map(g, t, 0, HD_MAP_READ);

	for (int64_t i = 0; i < r->n && !r->err->code; i++, s.text++) {
		int64_t at = (int64_t)texts[i].n;
		int32_t id = r->ended[i] ? 0 : hd_draw(z + i * t->local[1], g->plan->model.vocab, &s, at, scratch);

		if (id < 0)
			hd_fail_draw(at, r->err);
		else if (!r->ended[i] && hd_is_end(&s, id))
			r->ended[i] = 1, r->left--;
		else if (!r->ended[i])
			hd_ids_add(&texts[i], id);
	}
	hd_program_unmap(g, t, 0, z, HD_MAP_READ);
	return r->err->code;
}

int hd_cached_rows(const struct hd_job *j)
{
	return j->plan[HD_JOB_NEXT] ? (int)j->plan[HD_JOB_NEXT]->batch : 0;
}

int hd_cached_generate(struct hd_job *j, struct hd_ids *texts, int64_t n, int64_t tokens, const struct hd_sampling *s,
		       struct hd_generation_times *times, struct hd_err *err)
{
	struct cached_run r = {
		.j = j, .texts = texts, .n = n, .ended = hd_alloc((size_t)n + 1), .left = n, .err = err
	};
	float *scratch = hd_alloc((size_t)j->plan[HD_JOB_NEXT]->model.vocab * sizeof(*scratch));
	int role, rc = HD_OK, left = 0;

	for (int64_t k = 0; k < tokens && r.left && rc >= 0 && !left; k++) {
		double begin = hd_seconds();

		rc = advance(&r, !k, &role);
		if (rc >= 0)
			rc = draw(&r, role, texts, *s, scratch);
		if (times && !k)
			times->prompt += hd_seconds() - begin;
		else if (times)
			times->next += hd_seconds() - begin, times->steps++;
		left = hd_left(s, rc < 0);
	}
	free(scratch);
	free(r.ended);
	return rc >= 0 && left ? HD_GENERATE_LEFT : rc;
}

int hd_cached_logits(struct hd_job *j, const struct hd_ids *texts, int64_t n, float *out, struct hd_err *err)
{
	struct cached_run r = { .j = j, .texts = texts, .n = n, .err = err };
	struct hd_program *g = j->program[HD_JOB_PROMPT];
	const struct tensor *t = g->plan->logits;
	int64_t vocab = g->plan->model.vocab;
	float *z;

	HD_TRY(read_prompts(&r));
	z = hd_program_map(g, t, 0, HD_MAP_READ);
	for (int64_t i = 0; i < n; i++)
		memcpy(out + i * vocab, z + i * t->local[1], (size_t)vocab * sizeof(*out));
	hd_program_unmap(g, t, 0, z, HD_MAP_READ);
	return HD_OK;
}

/* -- sizes ------------------------------------------------------------------------------------- */
#define PIECE 256 /* tokens of a prompt per run: enough for products to be fast */
#define ROWS 16   /* texts per run */

struct hd_cache_sizes hd_cached_sizes(int64_t texts, int64_t longest, int64_t tokens, int64_t most, int64_t ranks)
{
	struct hd_cache_sizes s = { .past = longest + tokens, .tokens = longest, .rows = texts < ROWS ? texts : ROWS };

	if (s.past > most) /* its end is read again for each token */
		s.past = s.tokens = most;
	s.tokens = s.tokens < PIECE ? s.tokens : PIECE;
	s.tokens = (s.tokens + ranks - 1) / ranks * ranks;
	return s;
}
