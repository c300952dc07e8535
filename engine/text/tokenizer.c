/* SPDX-License-Identifier: Apache-2.0
 * Loads tokenizer.json and turns text into ids in this order: added tokens of the unchanged text, normalizer, added
 * tokens of the normalized text, pre-tokenizer, model.
 */
#include <config.h>
#include "engine/text/tokenizer.h"
#include "engine/file/file.h"
#include "engine/file/inside.h"
#include "engine/base/hash.h"
#include "engine/text/added.h"
#include "engine/text/leading.h"
#include "engine/text/decode.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

struct hd_tokenizer {
	char *path;
	uint64_t hash;
	struct hd_bpe bpe;
	struct hd_added added;
	struct hd_ids leading;
	struct hd_steps normalizer, pre_tokenizer, decoder;
	int has_decoder;
};

/* -- loading ----------------------------------------------------------------------------------- */
char *hd_tokenizer_file(const char *path)
{
	size_t n = strlen(path);
	struct stat st;
	int file = stat(path, &st) ? n > 5 && !strcmp(path + n - 5, ".json") : !S_ISDIR(st.st_mode);

	return file ? hd_strdup(path) : hd_format("%s/tokenizer.json", path);
}

#define CONVERTS "transformers makes a tokenizer.json with AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"

const char *hd_tokenizer_advice(const char *dir)
{
	if (!*dir || hd_file_has(dir, "tokenizer.json"))
		return "";
	if (hd_file_has(dir, "vocab.json") && hd_file_has(dir, "merges.txt"))
		return "; from vocab.json and merges.txt there, " CONVERTS;
	return hd_file_has(dir, "tokenizer.model") ? "; from tokenizer.model there, " CONVERTS : "";
}

/* Whether the last step is the only ByteLevel. The model can then take the words as raw bytes. */
static int ends_in_bytes(const struct hd_steps *s)
{
	size_t levels = 0;

	for (size_t i = 0; i < s->n; i++)
		levels += s->all[i].kind == HD_STEP_BYTES;
	return levels == 1 && s->all[s->n - 1].kind == HD_STEP_BYTES;
}

/* Inserts an HD_STEP_SPELL after each ByteLevel. */
static void spell_bytes(struct hd_steps *s)
{
	for (size_t i = 0; i < s->n; i++) {
		if (s->all[i].kind != HD_STEP_BYTES)
			continue;
		s->all = hd_grow(s->all, s->n, &s->cap, sizeof(*s->all));
		memmove(s->all + i + 2, s->all + i + 1, (s->n - i - 1) * sizeof(*s->all));
		s->all[++i] = (struct hd_text_step){ .kind = HD_STEP_SPELL };
		s->n++;
	}
}

/* Refuses other models before the other parts are read: those of a Unigram or WordPiece are unknown here too, but are
 * not the reason. */
static int check_type(json_t *root, struct hd_err *err)
{
	const char *type = json_string_value(json_object_get(json_object_get(root, "model"), "type"));

	return type && strcmp(type, "BPE") ? hd_err_set(err, HD_ENOTSUP, "model is %.60s; known: BPE", type) : HD_OK;
}

static int load_model(struct hd_tokenizer *t, json_t *root, struct hd_err *err)
{
	json_t *model = json_object_get(root, "model");

	if (!json_is_object(model))
		return hd_err_set(err, HD_EINVAL, "it contains no model");
	/* Early files name no type; those with merges are BPE. */
	if (!json_string_value(json_object_get(model, "type")) && !json_object_get(model, "merges"))
		return hd_err_set(err, HD_ENOTSUP, "model has no type; known: BPE");
	HD_TRY(hd_bpe_load(&t->bpe, model, ends_in_bytes(&t->pre_tokenizer), err));
	if (!t->bpe.raw)
		spell_bytes(&t->pre_tokenizer);
	return HD_OK;
}

static int check_leading(const struct hd_tokenizer *t, const struct hd_ids *ids, struct hd_err *err)
{
	for (size_t i = 0; i < ids->n; i++)
		if (ids->at[i] < 0 || ids->at[i] >= hd_tokenizer_vocab(t))
			return hd_err_set(err, HD_EINVAL, "post_processor: id %d is not in the vocabulary of %lld",
					  ids->at[i], (long long)hd_tokenizer_vocab(t));
	return HD_OK;
}

static int load(struct hd_tokenizer *t, json_t *root, struct hd_err *err)
{
	json_t *decoder = json_object_get(root, "decoder");

	HD_TRY(check_type(root, err));
	HD_TRY(hd_normalizer_load(&t->normalizer, root, err));
	HD_TRY(hd_pre_tokenizer_load(&t->pre_tokenizer, root, err));
	HD_TRY(hd_decoder_load(&t->decoder, root, err));
	t->has_decoder = decoder && !json_is_null(decoder);
	HD_TRY(load_model(t, root, err));
	HD_TRY(hd_added_load(&t->added, root, &t->bpe.vocab, &t->normalizer, err));
	HD_TRY(hd_leading_load(&t->leading, root, err));
	return check_leading(t, &t->leading, err);
}

static uint64_t hash_of(const char *text, size_t n)
{
	uint64_t h = HD_HASH_START;

	for (size_t i = 0; i < n; i++)
		h = hd_hash_add(h, (unsigned char)text[i]);
	return h;
}

int hd_tokenizer_open(const char *path, struct hd_tokenizer **out, struct hd_err *err)
{
	struct hd_tokenizer *t = hd_alloc(sizeof(*t));
	struct hd_err why = { 0 };
	json_error_t at;
	json_t *root = NULL;
	size_t n = 0;
	char *text;

	t->path = hd_tokenizer_file(path);
	if (strcmp(t->path, path) && hd_file_inside(path, "tokenizer.json", err) < 0)
		return hd_tokenizer_close(t), err->code;
	text = hd_file_slurp(t->path, &n);
	if (text) {
		t->hash = hash_of(text, n);
		root = json_loadb(text, n, JSON_ALLOW_NUL, &at);
	}
	if (!text)
		hd_err_set(err, HD_EIO, "%s: %s%s", t->path, strerror(errno), hd_tokenizer_advice(path));
	else if (!root)
		hd_err_set(err, HD_EINVAL, "%s:%d: %s", t->path, at.line, at.text);
	else if (load(t, root, &why) < 0)
		hd_err_set(err, why.code, "%s: %s", t->path, why.text);
	free(text);
	json_decref(root);
	if (err->code)
		hd_tokenizer_close(t);
	else
		*out = t;
	return err->code;
}

void hd_tokenizer_close(struct hd_tokenizer *t)
{
	if (!t)
		return;
	hd_bpe_release(&t->bpe);
	hd_added_release(&t->added);
	hd_ids_release(&t->leading);
	hd_steps_release(&t->normalizer);
	hd_steps_release(&t->pre_tokenizer);
	hd_steps_release(&t->decoder);
	free(t->path);
	free(t);
}

int64_t hd_tokenizer_vocab(const struct hd_tokenizer *t)
{
	int64_t n = (int64_t)t->bpe.vocab.nall, last = t->added.n ? t->added.all[t->added.n - 1].id : -1;

	return last >= n ? last + 1 : n;
}

int32_t hd_tokenizer_id(const struct hd_tokenizer *t, const char *token)
{
	const struct hd_added_token *a = hd_added_by_content(&t->added, token, strlen(token));

	return a ? a->id : hd_vocab_id(&t->bpe.vocab, token, strlen(token));
}

const struct hd_ids *hd_tokenizer_leading(const struct hd_tokenizer *t)
{
	return &t->leading;
}

uint64_t hd_tokenizer_hash(const struct hd_tokenizer *t)
{
	return t->hash;
}

const char *hd_tokenizer_path(const struct hd_tokenizer *t)
{
	return t->path;
}

/* -- encoding ---------------------------------------------------------------------------------- */
struct hd_encoder {
	const struct hd_tokenizer *t;
	struct hd_matcher *matcher;
	struct hd_bpe_state *state;
	struct hd_buf text, normal, next;
	/* for the text that is being encoded: */
	struct hd_ids *out;
	struct hd_err *err;
	int begins; /* it begins a text, rather than continuing an earlier piece */
	/* for the stretch between two added tokens: */
	int at_start, continued; /* it begins the text; it continues an earlier piece */
};

struct hd_encoder *hd_encoder_create(const struct hd_tokenizer *t)
{
	struct hd_encoder *e = hd_alloc(sizeof(*e));

	e->t = t;
	e->matcher = hd_matcher_create();
	e->state = hd_bpe_state_create(&t->bpe);
	return e;
}

void hd_encoder_destroy(struct hd_encoder *e)
{
	if (!e)
		return;
	hd_matcher_destroy(e->matcher);
	hd_bpe_state_destroy(e->state);
	hd_buf_release(&e->text);
	hd_buf_release(&e->normal);
	hd_buf_release(&e->next);
	free(e);
}

static int encode_words(void *ctx, struct hd_span text, size_t at)
{
	struct hd_encoder *e = ctx;
	struct hd_words w = { &e->t->pre_tokenizer, e->matcher, e->state, e->out, e->err, e->continued && !at };

	return hd_pre_tokenize(&w, text, e->at_start && !at);
}

/* Whether a step removes blanks from the beginning of a text. What is left no longer begins the text: Metaspace with
 * the scheme `first` asks where its first character was. */
static int strips_beginning(const struct hd_text_step *s, struct hd_span text)
{
	uint32_t c;

	return s->kind == HD_STEP_STRIP && s->left && text.n && hd_utf8_get(text.at, &c) && hd_utf8_white(c);
}

/* Encodes a stretch between two added tokens that were found in the text before normalization. */
static int encode_piece(void *ctx, struct hd_span text, size_t at)
{
	struct hd_encoder *e = ctx;
	const struct hd_steps *n = &e->t->normalizer;
	int stripped = 0;

	e->continued = !e->begins && !at;
	for (size_t i = 0; i < n->n; i++) {
		struct hd_buf swap = e->normal;

		if (n->all[i].kind == HD_STEP_PREPEND && e->continued)
			continue;
		stripped |= strips_beginning(&n->all[i], text);
		e->next.n = 0;
		hd_buf_room(&e->next, text.n + 1);
		HD_TRY(hd_normalize(&n->all[i], e->matcher, text, &e->next, e->err));
		e->normal = e->next;
		e->next = swap;
		text = (struct hd_span){ e->normal.at, e->normal.n };
	}
	e->at_start = e->begins && !at && !stripped;
	return hd_added_split(&e->t->added, 1, e->matcher, text, e->out, encode_words, e, e->err);
}

int hd_encoder_parts(const struct hd_encoder *e, uint32_t left, uint32_t right)
{
	const struct hd_steps *words = &e->t->pre_tokenizer;

	for (size_t i = 0; i < words->n; i++) {
		const struct hd_text_step *s = &words->all[i];

		if (s->kind != HD_STEP_METASPACE && (s->kind != HD_STEP_SPLIT || s->pattern.regex))
			return 0;
	}
	return e->t->bpe.joined && !e->t->bpe.ignore_merges && !hd_bpe_joined(&e->t->bpe, left, right);
}

size_t hd_encoder_longest_added(const struct hd_encoder *e)
{
	const struct hd_added *a = &e->t->added;
	size_t most = 0;

	for (size_t i = 0; i < a->n; i++) {
		most = a->all[i].n > most ? a->all[i].n : most;
		most = a->all[i].ntext > most ? a->all[i].ntext : most;
	}
	return most;
}

void hd_encoder_mark(struct hd_encoder *e, struct hd_ids *starts)
{
	hd_bpe_state_mark(e->state, starts);
}

int hd_encode(struct hd_encoder *e, const char *text, size_t n, struct hd_ids *out, struct hd_err *err)
{
	return hd_encode_piece(e, text, n, 1, out, err);
}

int hd_encode_piece(struct hd_encoder *e, const char *text, size_t n, int begins, struct hd_ids *out,
		    struct hd_err *err)
{
	struct hd_span all = { text, n };

	if (hd_utf8_valid(text, n) < n) {
		e->text.n = 0;
		hd_utf8_repair(text, n, &e->text);
		all = (struct hd_span){ e->text.at, e->text.n };
	}
	e->out = out;
	e->err = err;
	e->begins = begins;
	return hd_added_split(&e->t->added, 0, e->matcher, all, out, encode_piece, e, err);
}

/* -- decoding ---------------------------------------------------------------------------------- */
static struct hd_span token_text(const struct hd_tokenizer *t, int32_t id)
{
	const struct hd_added_token *a = hd_added_by_id(&t->added, id);

	if (!a)
		return hd_vocab_text(&t->bpe.vocab, id);
	/* The normalized text: the decoder turns the marker that the normalizer put before it back into a blank. */
	return a->ntext ? (struct hd_span){ a->text, a->ntext } : (struct hd_span){ a->content, a->n };
}

int hd_decode(const struct hd_tokenizer *t, const int32_t *ids, size_t n, struct hd_buf *out, struct hd_err *err)
{
	struct hd_matcher *m = hd_matcher_create();
	struct hd_texts texts = { 0 };
	int rc;

	hd_buf_room(&texts.bytes, 4 * n + 1);
	for (size_t i = 0; i < n; i++) {
		struct hd_span x = token_text(t, ids[i]);

		if (!x.at)
			continue;
		if (!t->has_decoder && texts.n) /* without a decoder, tokens are words */
			hd_texts_add(&texts, " ", 1);
		hd_texts_add(&texts, x.at, x.n);
	}
	rc = hd_texts_decode(&t->decoder, m, &texts, err);
	if (rc >= 0)
		hd_buf_add(out, texts.bytes.at, texts.bytes.n);
	hd_texts_release(&texts);
	hd_matcher_destroy(m);
	return rc;
}
