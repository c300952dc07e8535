/* SPDX-License-Identifier: Apache-2.0
 * "pre_tokenizer" of tokenizer.json: splits text into words. Each step splits the pieces of the step before it.
 */
#include <config.h>
#include "engine/text/punctuation.h"
#include "engine/text/steps.h"

/* -- loading ----------------------------------------------------------------------------------- */
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
/* The \w of Rust's regex: Unicode's letters, marks, digits, connectors and joiners. */
#define WORDS \
	"[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}]+|[^\\s\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}]+"

static int compile(struct hd_text_step *s, const char *pattern, struct hd_err *err)
{
	return hd_regex_compile(pattern, strlen(pattern), &s->pattern.regex, err);
}

static int load_bytes(struct hd_text_step *s, json_t *o, struct hd_err *err)
{
	s->prepend = hd_step_flag(o, "add_prefix_space", 1) ? HD_PREPEND_ALWAYS : HD_PREPEND_NEVER;
	return hd_step_flag(o, "use_regex", 1) ? compile(s, GPT2, err) : HD_OK;
}

static int load_behavior(struct hd_text_step *s, json_t *o, struct hd_err *err)
{
	static const char *const names[] = { "Isolated", "Removed", "MergedWithPrevious", "MergedWithNext",
					     "Contiguous" };
	const char *name = json_string_value(json_object_get(o, "behavior"));
	size_t i = 0;

	while (name && i < HD_LEN(names) && strcmp(name, names[i]))
		i++;
	if (!name || i == HD_LEN(names))
		return hd_err_set(err, HD_ENOTSUP,
				  "behavior is %.60s; known: Isolated, Removed, MergedWithPrevious, MergedWithNext, "
				  "Contiguous",
				  name ? name : "not given");
	s->behavior = (int)i;
	return HD_OK;
}

static int load_split(struct hd_text_step *s, json_t *o, struct hd_err *err)
{
	s->invert = hd_step_flag(o, "invert", 0);
	HD_TRY(load_behavior(s, o, err));
	return hd_step_pattern(s, o, err);
}

static int load_digits(struct hd_text_step *s, json_t *o, struct hd_err *err)
{
	s->behavior = hd_step_flag(o, "individual_digits", 0) ? HD_SPLIT_ISOLATED : HD_SPLIT_CONTIGUOUS;
	return compile(s, "\\p{N}", err);
}

static int load_punctuation(struct hd_text_step *s, json_t *o, struct hd_err *err)
{
	if (json_object_get(o, "behavior"))
		HD_TRY(load_behavior(s, o, err));
	return compile(s, HD_PUNCTUATION, err);
}

static int load_whitespace(struct hd_text_step *s, json_t *o, struct hd_err *err)
{
	(void)o;
	s->behavior = HD_SPLIT_REMOVED;
	s->invert = 1;
	return compile(s, WORDS, err);
}

static int load_whitespace_split(struct hd_text_step *s, json_t *o, struct hd_err *err)
{
	(void)o;
	s->behavior = HD_SPLIT_REMOVED;
	return compile(s, "\\s", err);
}

static int load_metaspace(struct hd_text_step *s, json_t *o, struct hd_err *err)
{
	const char *scheme = json_string_value(json_object_get(o, "prepend_scheme"));

	HD_TRY(hd_step_mark(s, o, "replacement", err));
	s->prepend = HD_PREPEND_ALWAYS;
	if (!scheme)
		s->prepend = hd_step_flag(o, "add_prefix_space", 1) ? HD_PREPEND_ALWAYS : HD_PREPEND_NEVER;
	else if (!strcmp(scheme, "never"))
		s->prepend = HD_PREPEND_NEVER;
	else if (!strcmp(scheme, "first"))
		s->prepend = HD_PREPEND_FIRST;
	else if (strcmp(scheme, "always"))
		return hd_err_set(err, HD_ENOTSUP, "prepend_scheme is %.60s; known: always, first, never", scheme);
	s->behavior = HD_SPLIT_NEXT;
	if (!hd_step_flag(o, "split", 1))
		return HD_OK;
	s->pattern.text = hd_strdup(s->content);
	s->pattern.n = s->ncontent;
	return HD_OK;
}

int hd_pre_tokenizer_load(struct hd_steps *s, json_t *root, struct hd_err *err)
{
	static const struct hd_component known[] = {
		{ "ByteLevel", HD_STEP_BYTES, load_bytes },
		{ "Split", HD_STEP_SPLIT, load_split },
		{ "Digits", HD_STEP_DIGITS, load_digits },
		{ "Punctuation", HD_STEP_SPLIT, load_punctuation },
		{ "Metaspace", HD_STEP_METASPACE, load_metaspace },
		{ "Whitespace", HD_STEP_SPLIT, load_whitespace },
		{ "WhitespaceSplit", HD_STEP_SPLIT, load_whitespace_split },
	};
	static const struct hd_step_family part = { "pre_tokenizer", "pretokenizers", known, (int)HD_LEN(known) };

	return hd_steps_load(s, &part, json_object_get(root, "pre_tokenizer"), err);
}

/* -- words ------------------------------------------------------------------------------------- */
struct walk { /* one step over one text; its pieces are passed to the next step */
	const struct hd_words *w;
	size_t step;
	struct hd_span text;
	int at_start;
	size_t from, to; /* the current piece, which may still grow */
	int have, last;  /* whether such a piece exists; whether the last stretch was a match */
};

static int apply_steps(const struct hd_words *w, size_t step, struct hd_span text, int at_start);

static int pass_piece(struct walk *k)
{
	struct hd_span piece = { k->text.at + k->from, k->to - k->from };

	if (!k->have || !piece.n)
		return HD_OK;
	k->have = 0;
	return apply_steps(k->w, k->step + 1, piece, k->at_start && !k->from);
}

/* Adds the stretch [from, to), a match of the pattern or the text between two matches. By the behavior of the step, it
 * extends the current piece, begins a new one or is dropped. */
static int add_stretch(struct walk *k, size_t from, size_t to, int match)
{
	const struct hd_text_step *s = &k->w->steps->all[k->step];
	int grows = 0, was = k->last;

	match ^= s->invert;
	k->last = match;
	if (s->behavior == HD_SPLIT_REMOVED && match)
		return pass_piece(k);
	if (s->behavior == HD_SPLIT_CONTIGUOUS)
		grows = match == was;
	else if (s->behavior == HD_SPLIT_PREVIOUS)
		grows = match && !was;
	else if (s->behavior == HD_SPLIT_NEXT)
		grows = !match && was;
	if (!grows || !k->have) {
		HD_TRY(pass_piece(k));
		k->from = from;
		k->have = 1;
	}
	k->to = to;
	return HD_OK;
}

static size_t after_character(struct hd_span text, size_t at)
{
	return at + (at < text.n ? (size_t)hd_utf8_length((unsigned char)text.at[at]) : 1);
}

static int split(const struct hd_words *w, size_t step, struct hd_span text, int at_start)
{
	const struct hd_text_step *s = &w->steps->all[step];
	struct walk k = { .w = w, .step = step, .text = text, .at_start = at_start };
	size_t from = 0, done = 0, last = SIZE_MAX, start, end;
	int rc = 0;

	while (from <= text.n &&
	       (rc = hd_pattern_find(&s->pattern, w->matcher, text.at, text.n, from, &start, &end, w->err)) > 0) {
		int directly_after = end == start && start == last; /* an empty match there does not count */

		if (start > done)
			HD_TRY(add_stretch(&k, done, start, 0));
		if (!directly_after)
			HD_TRY(add_stretch(&k, start, end, 1));
		done = last = end;
		from = end > start ? end : after_character(text, end);
	}
	HD_TRY(rc);
	if (done < text.n)
		HD_TRY(add_stretch(&k, done, text.n, 0));
	return pass_piece(&k);
}

/* Finishes a step whose text is ready: splits it if the step has a pattern. */
static int cut(const struct hd_words *w, size_t step, struct hd_span text, int at_start)
{
	const struct hd_text_step *s = &w->steps->all[step];

	return s->pattern.regex || s->pattern.text ? split(w, step, text, at_start)
						   : apply_steps(w, step + 1, text, at_start);
}

static int metaspace(const struct hd_words *w, size_t step, struct hd_span text, int at_start)
{
	const struct hd_text_step *s = &w->steps->all[step];
	const struct hd_pattern blank = { .text = (char *)" ", .n = 1 };
	struct hd_span with = { s->content, s->ncontent };
	struct hd_buf b = { 0 };
	int before = s->prepend == HD_PREPEND_ALWAYS || (s->prepend == HD_PREPEND_FIRST && at_start), rc;

	if (before && !(w->continued && !step) && *text.at != ' ' &&
	    (text.n < with.n || memcmp(text.at, with.at, with.n)))
		hd_buf_add(&b, with.at, with.n);
	rc = hd_pattern_replace(&blank, w->matcher, text, with, &b, w->err);
	if (rc >= 0)
		rc = cut(w, step, (struct hd_span){ b.at, b.n }, at_start);
	hd_buf_release(&b);
	return rc;
}

/* Writes the bytes of a word in GPT-2's alphabet, after ByteLevel has split the text. This is for a model that does
 * not take raw bytes: ByteLevel is not the last step, say, or the vocabulary lacks a byte. */
static int spell(const struct hd_words *w, size_t step, struct hd_span text, int at_start)
{
	static const struct hd_text_step bytes = { .kind = HD_STEP_BYTES };
	struct hd_buf b = { 0 };
	int rc;

	hd_normalize(&bytes, w->matcher, text, &b, w->err);
	rc = apply_steps(w, step, (struct hd_span){ b.at, b.n }, at_start);
	hd_buf_release(&b);
	return rc;
}

static int bytes(const struct hd_words *w, size_t step, struct hd_span text, int at_start)
{
	const struct hd_text_step *s = &w->steps->all[step];
	struct hd_buf b = { 0 };
	int rc;

	if (s->prepend == HD_PREPEND_NEVER || *text.at == ' ' || (w->continued && !step))
		return cut(w, step, text, at_start);
	hd_buf_add(&b, " ", 1);
	hd_buf_add(&b, text.at, text.n);
	rc = cut(w, step, (struct hd_span){ b.at, b.n }, at_start);
	hd_buf_release(&b);
	return rc;
}

/* Applies the steps from `step` on to a text that is not empty, then encodes the words. */
static int apply_steps(const struct hd_words *w, size_t step, struct hd_span text, int at_start)
{
	if (step == w->steps->n) {
		hd_bpe_encode(w->state, text.at, text.n, w->out);
		return HD_OK;
	}
	switch (w->steps->all[step].kind) {
	case HD_STEP_METASPACE: return metaspace(w, step, text, at_start);
	case HD_STEP_BYTES: return bytes(w, step, text, at_start);
	case HD_STEP_SPELL: return spell(w, step + 1, text, at_start);
	default: return split(w, step, text, at_start);
	}
}

int hd_pre_tokenize(const struct hd_words *w, struct hd_span text, int at_start)
{
	return text.n ? apply_steps(w, 0, text, at_start) : HD_OK;
}
