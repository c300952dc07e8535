/* SPDX-License-Identifier: Apache-2.0
 * Finds added tokens in text. Of the tokens that match at one place, the longest is taken; the search continues after
 * it.
 *
 * The texts are sorted, so those with a common prefix are adjacent, and each further byte narrows the range.
 */
#include <config.h>
#include "engine/text/added.h"
#include <stdlib.h>

/* -- loading ----------------------------------------------------------------------------------- */
static int by_id(const void *a, const void *b)
{
	int32_t x = ((const struct hd_added_token *)a)->id, y = ((const struct hd_added_token *)b)->id;

	return (x > y) - (x < y);
}

static int by_text(const void *a, const void *b)
{
	const struct hd_added_token *x = *(const struct hd_added_token *const *)a;
	const struct hd_added_token *y = *(const struct hd_added_token *const *)b;
	int c = memcmp(x->text, y->text, x->ntext < y->ntext ? x->ntext : y->ntext);

	return c ? c : (x->ntext > y->ntext) - (x->ntext < y->ntext);
}

static int load_one(struct hd_added *a, json_t *o, const struct hd_vocab *v, struct hd_err *err)
{
	json_t *content = json_object_get(o, "content"), *id = json_object_get(o, "id");
	struct hd_added_token t = { .n = json_string_length(content) };
	int32_t known;

	if (!json_is_string(content) || !json_is_integer(id))
		return hd_err_set(err, HD_EINVAL, "added_tokens: one has no content or no id");
	known = hd_vocab_id(v, json_string_value(content), t.n);
	t.id = (int32_t)json_integer_value(id);
	if (json_integer_value(id) < 0 || json_integer_value(id) > 1 << 24 || (known >= 0 && known != t.id))
		return hd_err_set(err, HD_EINVAL, "added_tokens: %.60s has id %lld, and in model.vocab %d",
				  json_string_value(content), (long long)json_integer_value(id), known);
	t.content = hd_alloc(t.n + 1);
	memcpy(t.content, json_string_value(content), t.n);
	t.special = hd_step_flag(o, "special", 0);
	t.normalized = hd_step_flag(o, "normalized", !t.special);
	t.single_word = hd_step_flag(o, "single_word", 0);
	t.lstrip = hd_step_flag(o, "lstrip", 0);
	t.rstrip = hd_step_flag(o, "rstrip", 0);
	a->all = hd_grow(a->all, a->n, &a->cap, sizeof(*a->all));
	a->all[a->n++] = t;
	return HD_OK;
}

static int make_text(struct hd_added_token *t, const struct hd_steps *normalizer, struct hd_matcher *m,
		     struct hd_err *err)
{
	struct hd_buf text = { 0 };

	hd_buf_add(&text, t->content, t->n);
	for (size_t i = 0; t->normalized && i < normalizer->n; i++) {
		struct hd_buf next = { 0 };
		int rc = hd_normalize(&normalizer->all[i], m, (struct hd_span){ text.at, text.n }, &next, err);

		hd_buf_release(&text);
		text = next;
		HD_TRY(rc);
	}
	t->text = text.at;
	t->ntext = text.n;
	return HD_OK;
}

static void make_sets(struct hd_added *a)
{
	for (int s = 0; s < 2; s++) {
		struct hd_added_set *set = &a->set[s];

		set->sorted = hd_alloc((a->n + 1) * sizeof(*set->sorted));
		for (size_t i = 0; i < a->n; i++)
			if (a->all[i].normalized == s && a->all[i].ntext)
				set->sorted[set->n++] = &a->all[i];
		qsort(set->sorted, set->n, sizeof(*set->sorted), by_text);
		for (size_t i = 0; i < set->n; i++)
			set->begins[(unsigned char)*set->sorted[i]->text] = 1;
	}
}

int hd_added_load(struct hd_added *a, json_t *root, const struct hd_vocab *v, const struct hd_steps *normalizer,
		  struct hd_err *err)
{
	static const char word[] = "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}]";
	struct hd_matcher *m = hd_matcher_create();
	int single = 0, rc = HD_OK;
	size_t i;
	json_t *o;

	json_array_foreach(json_object_get(root, "added_tokens"), i, o) {
		rc = load_one(a, o, v, err);
		if (rc < 0)
			break;
	}
	if (a->n)
		qsort(a->all, a->n, sizeof(*a->all), by_id);
	for (i = 0; i < a->n && rc >= 0; i++) {
		rc = make_text(&a->all[i], normalizer, m, err);
		single |= a->all[i].single_word;
	}
	if (rc >= 0 && single)
		rc = hd_regex_compile(word, sizeof(word) - 1, &a->word, err);
	hd_matcher_destroy(m);
	make_sets(a);
	return rc;
}

void hd_added_release(struct hd_added *a)
{
	for (size_t i = 0; i < a->n; i++) {
		free(a->all[i].content);
		free(a->all[i].text);
	}
	free(a->all);
	free(a->set[0].sorted);
	free(a->set[1].sorted);
	hd_regex_free(a->word);
}

const struct hd_added_token *hd_added_by_id(const struct hd_added *a, int32_t id)
{
	struct hd_added_token key = { .id = id };

	return a->n ? bsearch(&key, a->all, a->n, sizeof(key), by_id) : NULL;
}

const struct hd_added_token *hd_added_by_content(const struct hd_added *a, const char *text, size_t n)
{
	for (size_t i = 0; i < a->n; i++)
		if (a->all[i].n == n && !memcmp(a->all[i].content, text, n))
			return &a->all[i];
	return NULL;
}

/* -- searching --------------------------------------------------------------------------------- */
/* Returns the index of the first text of sorted[lo, hi) whose byte at `depth` is at least c, or hi. Texts that end
 * there come first. */
static size_t lower(const struct hd_added_set *set, size_t lo, size_t hi, size_t depth, int c)
{
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		const struct hd_added_token *t = set->sorted[mid];

		if (t->ntext <= depth || (unsigned char)t->text[depth] < c)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Returns the longest token that text has at `at`, or NULL. */
static const struct hd_added_token *longest(const struct hd_added_set *set, struct hd_span text, size_t at)
{
	const struct hd_added_token *best = NULL;
	size_t lo = 0, hi = set->n;

	for (size_t depth = 0; at + depth < text.n && lo < hi; depth++) {
		int c = (unsigned char)text.at[at + depth];

		lo = lower(set, lo, hi, depth, c);
		hi = lower(set, lo, hi, depth, c + 1);
		if (lo < hi && set->sorted[lo]->ntext == depth + 1)
			best = set->sorted[lo];
	}
	return best;
}

/* Whether a word character ends (before 1) or begins (before 0) at `at`. */
static int is_word(const struct hd_added *a, struct hd_matcher *m, struct hd_span text, size_t at, int before)
{
	struct hd_err ignored = { 0 };
	size_t from = at, start, end;

	if (before ? !at : at == text.n)
		return 0;
	while (before && ((unsigned char)text.at[--from] & 0xc0) == 0x80)
		;
	end = from + (size_t)hd_utf8_length((unsigned char)text.at[from]);
	return hd_regex_find(a->word, m, text.at + from, end - from, 0, &start, &end, &ignored) > 0;
}

static size_t blanks_before(struct hd_span text, size_t at, size_t least)
{
	while (at > least) {
		size_t from = at - 1;
		uint32_t c;

		while (((unsigned char)text.at[from] & 0xc0) == 0x80)
			from--;
		hd_utf8_get(text.at + from, &c);
		if (!hd_utf8_white(c) || from < least)
			break;
		at = from;
	}
	return at;
}

static size_t blanks_after(struct hd_span text, size_t at)
{
	uint32_t c;

	while (at < text.n) {
		int k = hd_utf8_get(text.at + at, &c);

		if (!hd_utf8_white(c))
			break;
		at += (size_t)k;
	}
	return at;
}

int hd_added_split(const struct hd_added *a, int set, struct hd_matcher *m, struct hd_span text, struct hd_ids *out,
		   hd_between_fn between, void *ctx, struct hd_err *err)
{
	const struct hd_added_set *s = &a->set[set];
	size_t done = 0, at = 0;

	(void)err;
	while (s->n && at < text.n) {
		const struct hd_added_token *t;
		size_t start = at, end;

		if (!s->begins[(unsigned char)text.at[at]] || !(t = longest(s, text, at))) {
			at++;
			continue;
		}
		at = end = start + t->ntext;
		if (t->single_word && (is_word(a, m, text, start, 1) || is_word(a, m, text, end, 0)))
			continue;
		if (t->lstrip)
			start = blanks_before(text, start, done);
		if (t->rstrip)
			end = blanks_after(text, end);
		if (start > done)
			HD_TRY(between(ctx, (struct hd_span){ text.at + done, start - done }, done));
		hd_ids_add(out, t->id);
		done = end; /* may move back, if an earlier token took blanks that this one begins with */
	}
	return done < text.n ? between(ctx, (struct hd_span){ text.at + done, text.n - done }, done) : HD_OK;
}
