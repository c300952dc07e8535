/* SPDX-License-Identifier: Apache-2.0
 * Evaluates questions with several answers. Each answer, after its prompt, is a sequence of its own, of which only the
 * answer's tokens are counted. Filler after them completes the row. As attention is causal, the tokens do not see it.
 */
#include <config.h>
#include "engine/evaluate/choices.h"
#include "engine/evaluate/evaluate.h"
#include "engine/file/file.h"
#include "engine/text/leading.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- reading ----------------------------------------------------------------------------------- */
struct choice_reader {
	const char *path;
	int64_t line, seq;
	/* Number of answers whose prompts are cut; tokens of the longest answer with its prompt */
	int64_t cut, longest;
	struct hd_encoder *encoder; /* NULL: bytes are tokens */
	const struct hd_ids *begin; /* special tokens before a text; NULL: none */
	struct hd_err *err;
};

static int encode(struct choice_reader *r, const char *text, size_t n, struct hd_ids *out)
{
	if (r->encoder)
		HD_TRY(hd_encode(r->encoder, text, n, out, r->err));
	for (size_t i = 0; i < n && !r->encoder; i++)
		hd_ids_add(out, (unsigned char)text[i]);
	if (r->begin)
		hd_leading_put(r->begin, out);
	return HD_OK;
}

static size_t without_blanks(const char *text)
{
	size_t n = strlen(text);

	while (n && strchr(" \t\r\n\f\v", text[n - 1]))
		n--;
	return n;
}

static int bad(const struct choice_reader *r, const char *what)
{
	return hd_err_set(r->err, HD_EINVAL,
			  "%s:%lld: %s; a line is {\"prompt\": TEXT, \"choices\": [TEXT, ...], \"answer\": INDEX}",
			  r->path, (long long)r->line, what);
}

/* Cuts the beginning of the prompt, so that prompt and answer together have at most seq + 1 ids. */
static int keep_the_end(struct choice_reader *r, struct hd_answer *a)
{
	int64_t n = (int64_t)a->ids.n, over = n - (r->seq + 1);

	if (n - a->first > r->seq)
		return hd_err_set(r->err, HD_EINVAL,
				  "%s:%lld: an answer has %lld tokens, but the model reads train.seq = %lld", r->path,
				  (long long)r->line, (long long)(n - a->first), (long long)r->seq);
	if (over <= 0)
		return HD_OK;
	r->cut++;
	r->longest = n > r->longest ? n : r->longest;
	memmove(a->ids.at, a->ids.at + over, (size_t)(n - over) * sizeof(*a->ids.at));
	a->ids.n -= (size_t)over;
	a->first -= over;
	return HD_OK;
}

static int read_answer(struct choice_reader *r, const char *prompt, const char *text, struct hd_answer *a)
{
	struct hd_ids before = { 0 };
	char *all = hd_format("%s%s", prompt, text);
	int rc = encode(r, prompt, without_blanks(prompt), &before);

	if (rc >= 0)
		rc = encode(r, all, strlen(all), &a->ids);
	a->first = (int64_t)before.n;
	a->bytes = (int64_t)strlen(text);
	if (rc >= 0 && !a->first)
		rc = bad(r, "the prompt has no token, but an answer is scored given what is before it");
	else if (rc >= 0 && ((int64_t)a->ids.n <= a->first || !a->bytes))
		rc = bad(r, "an answer has no token of its own");
	if (rc >= 0)
		rc = keep_the_end(r, a);
	hd_ids_release(&before);
	free(all);
	return rc;
}

static int read_question(struct choice_reader *r, const json_t *o, struct hd_question *q)
{
	const char *prompt = json_string_value(json_object_get(o, "prompt"));
	const json_t *choices = json_object_get(o, "choices"), *right = json_object_get(o, "answer");
	size_t n = json_array_size(choices);

	if (!prompt)
		return bad(r, "no text \"prompt\"");
	if (!n)
		return bad(r, "no list \"choices\"");
	if (!json_is_integer(right) || json_integer_value(right) < 0 || json_integer_value(right) >= (json_int_t)n)
		return bad(r, "\"answer\" is not the index of a choice (from 0)");
	q->answers = hd_alloc(n * sizeof(*q->answers));
	q->right = json_integer_value(right);
	for (size_t i = 0; i < n; i++) {
		const char *text = json_string_value(json_array_get(choices, i));

		if (!text)
			return bad(r, "a choice is not a string");
		q->n++;
		HD_TRY(read_answer(r, prompt, text, &q->answers[i]));
	}
	return HD_OK;
}

static int read_line(struct choice_reader *r, const char *line, size_t n, struct hd_choices *out)
{
	json_error_t why;
	json_t *o;
	int rc;

	if (strspn(line, " \t\r\n") == n)
		return HD_OK;
	o = json_loadb(line, n, 0, &why);
	if (!o)
		return hd_err_set(r->err, HD_EINVAL, "%s:%lld: %s", r->path, (long long)r->line, why.text);
	out->all = hd_grow(out->all, out->n, &out->cap, sizeof(*out->all));
	rc = read_question(r, o, &out->all[out->n++]);
	out->answers += out->all[out->n - 1].n;
	json_decref(o);
	return rc;
}

static void warn_of_cuts(const struct choice_reader *r, int64_t answers)
{
	if (r->cut)
		hd_log(HD_LOG_WARN,
		       "%s: prompts and answers have up to %lld tokens, but the model reads only the last train.seq "
		       "+ 1 = %lld; cut: %lld of %lld",
		       r->path, (long long)r->longest, (long long)r->seq + 1, (long long)r->cut, (long long)answers);
}

int hd_choices_read(const char *path, const struct hd_tokenizer *t, int special, int64_t seq, struct hd_choices *out,
		    struct hd_err *err)
{
	struct choice_reader r = { .path = path, .seq = seq, .encoder = t ? hd_encoder_create(t) : NULL, .err = err };
	FILE *f = fopen(path, "r");
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	if (t && special)
		r.begin = hd_tokenizer_leading(t);
	if (!f)
		hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	while (!err->code && (n = hd_file_line(f, path, &line, &cap, err)) >= 0) {
		r.line++;
		read_line(&r, line, (size_t)n, out);
	}
	if (!err->code && !out->n)
		hd_err_set(err, HD_EINVAL, "%s: it contains no question", path);
	if (!err->code)
		warn_of_cuts(&r, out->answers);
	if (f)
		fclose(f);
	free(line);
	hd_encoder_destroy(r.encoder);
	return err->code;
}

void hd_choices_release(struct hd_choices *c)
{
	for (size_t i = 0; i < c->n; i++) {
		for (int64_t k = 0; k < c->all[i].n; k++)
			hd_ids_release(&c->all[i].answers[k].ids);
		free(c->all[i].answers);
	}
	free(c->all);
	*c = (struct hd_choices){ 0 };
}

/* -- scoring ----------------------------------------------------------------------------------- */
struct scoring {
	struct hd_answer **answers; /* the answers to all questions, in order */
	int64_t seq;
};

static int get(void *ctx, int64_t i, int32_t *ids, struct hd_err *err)
{
	const struct scoring *g = ctx;
	const struct hd_ids *have = &g->answers[i]->ids;

	(void)err;
	memset(ids, 0, (size_t)(g->seq + 1) * sizeof(*ids));
	memcpy(ids, have->at, have->n * sizeof(*ids));
	return HD_OK;
}

static void add(void *ctx, int64_t i, int64_t position, double loss)
{
	const struct scoring *g = ctx;
	struct hd_answer *a = g->answers[i];

	if (position + 1 >= a->first && position + 1 < (int64_t)a->ids.n)
		a->likelihood -= loss;
}

int hd_choices_score(struct hd_job *j, struct hd_choices *c, struct hd_err *err)
{
	struct scoring g = { .seq = j->program[HD_JOB_EVAL]->plan->model.seq };
	struct hd_sequences all = { .n = c->answers, .what = "answers", .get = get, .add = add, .ctx = &g, .shows = 1 };
	int64_t k = 0;
	int rc;

	g.answers = hd_alloc((size_t)c->answers * sizeof(struct hd_answer *));
	for (size_t i = 0; i < c->n; i++)
		for (int64_t a = 0; a < c->all[i].n; a++)
			g.answers[k++] = &c->all[i].answers[a];
	rc = hd_sequences_score(j, &all, err);
	for (k = 0; rc >= 0 && k < c->answers; k++) /* each rank adds what it computed */
		g.answers[k]->likelihood = hd_comm_sum(g.answers[k]->likelihood);
	free(g.answers);
	return rc;
}

double hd_answer_score(const struct hd_answer *a, enum hd_choice_by by)
{
	double by_tokens = (double)((int64_t)a->ids.n - a->first);

	return a->likelihood / (by == HD_CHOICE_SUM ? 1 : by == HD_CHOICE_TOKENS ? by_tokens : (double)a->bytes);
}

int64_t hd_question_best(const struct hd_question *q, enum hd_choice_by by)
{
	int64_t best = 0;

	for (int64_t i = 1; i < q->n; i++)
		if (hd_answer_score(&q->answers[i], by) > hd_answer_score(&q->answers[best], by))
			best = i;
	return best;
}

double hd_choices_accuracy(const struct hd_choices *c, enum hd_choice_by by)
{
	size_t right = 0;

	for (size_t i = 0; i < c->n; i++)
		right += hd_question_best(&c->all[i], by) == c->all[i].right;
	return (double)right / (double)c->n;
}
