/* SPDX-License-Identifier: Apache-2.0
 * Generates text with a forward program that returns one position's logits. Every replica gets the same context. So
 * every rank draws the same token from the same logits, with random numbers keyed by (seed, position), and nothing
 * need be sent.
 */
#include <config.h>
#include "engine/generate/generate.h"
#include "engine/text/leading.h"
#include "engine/base/rng.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct context {
	const int32_t *ids;
	int64_t n;
};

static int fill(void *ctx, const struct hd_program *g, const struct tensor *t, int64_t micro, int32_t *out)
{
	const struct context *c = ctx;
	struct hd_pieces s = hd_pieces_of(g->plan, t, 1, g->rank);

	(void)micro;
	for (int64_t i = 0; i < t->local[0]; i++)
		for (int64_t q = 0; q < t->local[1]; q++) {
			int64_t at = hd_pieces_index(&s, q);

			out[i * t->local[1] + q] = at < c->n ? c->ids[at] : 0;
		}
	return HD_OK;
}

static int descending(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x < y) - (x > y);
}

/* Moves the k largest values of x to the front, in descending order. Hoare's selection (Algorithm 65, 1961) finds
 * them, and only they are sorted, because a vocabulary is large and k is small. */
static void sort_first(float *x, int64_t n, int64_t k)
{
	int64_t from = 0, to = n - 1;

	while (from < to && k < n) {
		float by = x[from + (to - from) / 2];
		int64_t i = from, j = to;

		while (i <= j) {
			while (i < to && x[i] > by)
				i++;
			while (j > from && x[j] < by)
				j--;
			if (i <= j) {
				float swap = x[i];

				x[i++] = x[j];
				x[j--] = swap;
			}
		}
		if (k <= j)
			to = j;
		else if (k > i)
			from = i;
		else
			break;
	}
	qsort(x, (size_t)k, sizeof(*x), descending);
}

/* Returns the first of the k sorted values of x at which the sum of
 * probabilities reaches p of `sum`. NULL: it does not. */
static const float *reach(const float *x, int64_t k, double p, double sum, double temperature)
{
	double part = 0;

	for (int64_t i = 0; i < k; i++) {
		part += exp((x[i] - x[0]) / temperature);
		if (part >= p * sum)
			return &x[i];
	}
	return NULL;
}

/* Returns the lowest logit that may be drawn. Candidates are the top_k largest; of these, the first whose
 * probabilities sum to top_p of theirs. */
static float lowest(const float *z, int64_t n, const struct hd_sampling *s, float top, float *scratch)
{
	int64_t k = s->top_k > 0 && s->top_k < n ? s->top_k : n;
	int all = s->top_p <= 0 || s->top_p >= 1;
	const float *at = NULL;
	double sum = 0;

	if (k == n && all)
		return -INFINITY;
	memcpy(scratch, z, (size_t)n * sizeof(*z));
	if (k < n)
		sort_first(scratch, n, k);
	if (all)
		return scratch[k - 1];
	for (int64_t i = 0; i < k; i++)
		sum += exp((scratch[i] - top) / s->temperature);
	for (int64_t few = 64; !at && few < k; few *= 8) {
		if (k == n)
			sort_first(scratch, n, few);
		at = reach(scratch, few, s->top_p, sum, s->temperature);
	}
	if (!at && k == n)
		sort_first(scratch, n, n);
	if (!at)
		at = reach(scratch, k, s->top_p, sum, s->temperature);
	return at ? *at : scratch[k - 1];
}

/* Returns the index of the largest logit, or -1 if one is not a number. */
static int32_t likeliest(const float *z, int64_t n)
{
	int32_t best = 0;

	for (int64_t i = 0; i < n; i++)
		if (isnan(z[i]))
			return -1;
		else if (z[i] > z[best])
			best = (int32_t)i;
	return best;
}

int hd_fail_draw(int64_t position, struct hd_err *err)
{
	return hd_err_set(err, HD_EINVAL,
			  "the logits of token %lld are not numbers: weights are not finite, or became too large",
			  (long long)position + 1);
}

#define PARTS 64 /* parts of a vocabulary: their sums are computed in parallel and added in order */

struct drawing {
	const float *z;
	float low, top;
	double temperature;
};

static double weight(const struct drawing *d, int64_t i)
{
	return d->z[i] >= d->low ? exp((d->z[i] - d->top) / d->temperature) : 0;
}

static double weights(const struct drawing *d, int64_t from, int64_t to)
{
	double sum = 0;

	for (int64_t i = from; i < to; i++)
		sum += weight(d, i);
	return sum;
}

int32_t hd_draw(const float *z, int64_t n, const struct hd_sampling *s, int64_t position, float *scratch)
{
	int32_t best = likeliest(z, n);
	struct drawing d = { z, 0, best < 0 ? 0 : z[best], s->temperature };
	double part[PARTS], sum = 0, u;
	int at = 0;

	if (best < 0 || s->temperature <= 0)
		return best;
	d.low = lowest(z, n, s, d.top, scratch);
#pragma omp parallel for schedule(static) if (n >= 16384)
	for (int p = 0; p < PARTS; p++)
		part[p] = weights(&d, n * p / PARTS, n * (p + 1) / PARTS);
	for (int p = 0; p < PARTS; p++)
		sum += part[p];
	u = hd_random_uniform(hd_key((uint64_t)s->seed, "generate", (uint64_t)s->text), (uint64_t)position) * sum;
	for (; at < PARTS - 1 && u >= part[at]; at++)
		u -= part[at];
	for (int64_t i = n * at / PARTS; i < n; i++) {
		u -= weight(&d, i);
		if (u < 0)
			return (int32_t)i;
	}
	return best;
}

static void done_with(struct hd_job *j, float *z)
{
	struct hd_program *g = j->program[HD_JOB_GENERATE];

	hd_program_unmap(g, g->plan->logits, 0, z, HD_MAP_READ);
}

/* Runs the model on the last of the ids. again: as in hd_run. Returns all logits for the next token, valid until
 * done_with. */
static float *next(struct hd_job *j, const int32_t *ids, int64_t n, int again, struct hd_err *err)
{
	struct hd_program *g = j->program[HD_JOB_GENERATE];
	int64_t seq = g->plan->model.seq, from = n > seq ? n - seq : 0;
	struct context c = { ids + from, n - from };
	struct hd_run run = { .seed = (uint64_t)j->train.seed, .position = c.n - 1, .again = again };
	int rc = hd_program_compute(g, &run, fill, &c);

	if (rc >= 0)
		return hd_program_map(g, g->plan->logits, 0, HD_MAP_READ);
	hd_program_failed(g, rc, "generation", err);
	return NULL;
}

int hd_next_logits(struct hd_job *j, const int32_t *ids, int64_t n, float *out, struct hd_err *err)
{
	float *z = next(j, ids, n, 0, err);

	if (z)
		memcpy(out, z, (size_t)j->program[HD_JOB_GENERATE]->plan->model.vocab * sizeof(*out));
	done_with(j, z);
	return err->code;
}

int hd_is_end(const struct hd_sampling *s, int32_t id)
{
	for (size_t i = 0; s->ends && i < s->ends->n; i++)
		if (s->ends->at[i] == id)
			return 1;
	return 0;
}

int hd_left(const struct hd_sampling *s, int failed)
{
	return s->asked && hd_comm_max((double)(failed || s->asked())) > 0;
}

/* again: as in hd_run. Returns 1 if the text has ended. */
static int add_token(struct hd_job *j, struct hd_ids *text, int again, const struct hd_sampling *s, float *scratch,
		     struct hd_err *err)
{
	float *z = next(j, text->at, (int64_t)text->n, again, err);
	int32_t id;

	if (!z)
		return err->code;
	id = hd_draw(z, j->program[HD_JOB_GENERATE]->plan->model.vocab, s, (int64_t)text->n, scratch);
	done_with(j, z);
	if (id < 0)
		return hd_fail_draw((int64_t)text->n, err);
	if (hd_is_end(s, id))
		return 1;
	hd_ids_add(text, id);
	return HD_OK;
}

int hd_generate(struct hd_job *j, struct hd_ids *text, int64_t n, const struct hd_sampling *s, struct hd_err *err)
{
	int64_t vocab = j->program[HD_JOB_GENERATE]->plan->model.vocab;
	float *scratch = hd_alloc((size_t)vocab * sizeof(*scratch));
	int rc = HD_OK, left = 0;

	for (int64_t k = 0; k < n && rc == HD_OK && !left; k++) {
		rc = add_token(j, text, k > 0, s, scratch, err);
		left = hd_left(s, rc < 0);
	}
	free(scratch);
	return rc < 0 ? rc : left ? HD_GENERATE_LEFT : HD_OK;
}

/* -- text -------------------------------------------------------------------------------------- */
int hd_prompt(const struct hd_tokenizer *t, const char *text, size_t *special, struct hd_ids *out, struct hd_err *err)
{
	struct hd_encoder *e = t ? hd_encoder_create(t) : NULL;

	if (t)
		hd_encode(e, text, strlen(text), out, err);
	for (const char *c = text; !t && *c; c++)
		hd_ids_add(out, (unsigned char)*c);
	if (special)
		*special = t ? hd_leading_put(hd_tokenizer_leading(t), out) : 0;
	hd_encoder_destroy(e);
	return err->code;
}

int hd_ids_parse(const char *text, int64_t vocab, struct hd_ids *out, struct hd_err *err)
{
	char *copy = hd_strdup(text), *save, *end;

	for (char *word = strtok_r(copy, " \t\n,", &save); word && !err->code; word = strtok_r(NULL, " \t\n,", &save)) {
		long long id = strtoll(word, &end, 10);

		if (*end || id < 0 || id >= vocab)
			hd_err_set(err, HD_EINVAL, "'%.40s' is not an id below the model's vocab of %lld", word,
				   (long long)vocab);
		hd_ids_add(out, (int32_t)id);
	}
	free(copy);
	return err->code;
}

static int is_obeyed(unsigned char c)
{
	return (c < ' ' && c != '\n' && c != '\t') || c == 0x7f;
}

/* Makes bytes printable, since models that have learnt little generate any bytes. */
static void make_readable(struct hd_buf *text)
{
	static const char replacement[] = "\xef\xbf\xbd";
	struct hd_buf valid = { 0 };

	hd_utf8_repair(text->at, text->n, &valid);
	text->n = 0;
	for (size_t i = 0; i < valid.n; i++) {
		int obeyed = is_obeyed((unsigned char)valid.at[i]);

		hd_buf_add(text, obeyed ? replacement : valid.at + i, obeyed ? sizeof(replacement) - 1 : 1);
	}
	hd_buf_release(&valid);
}

int hd_ids_print(const struct hd_tokenizer *t, const int32_t *ids, int64_t n, int readable, struct hd_err *err)
{
	struct hd_buf text = { 0 };

	if (t)
		hd_decode(t, ids, (size_t)n, &text, err);
	for (int64_t i = 0; !t && i < n; i++)
		hd_buf_add(&text, &(char){ (char)(ids[i] < 256 ? ids[i] : '?') }, 1);
	if (readable)
		make_readable(&text);
	fwrite(text.at, 1, text.n, stdout);
	putchar('\n');
	hd_buf_release(&text);
	return err->code;
}
