/* SPDX-License-Identifier: Apache-2.0
 * Which tokens a sample is.
 *
 * Training: the stream less its tail is cut into N = (tokens - 1) / seq windows of seq + 1 ids
 * that share their end, so that each token is a target once in an epoch.  Sample g of the job,
 * counted from its first step, is window g mod N of epoch g / N: in order, or through a
 * permutation that belongs to (seed, epoch).  Epochs after the first also begin at another
 * token, as far as the rest of the division allows, so that they cut the text elsewhere.  No
 * list of windows exists, so nothing is built at the start, shared between ranks, or saved but
 * the number of samples used.
 */
#include <config.h>
#include "engine/data/data.h"
#include "engine/base/rng.h"
#include "engine/data/tokens.h"
#include "engine/text/tokenizer.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const struct hd_option options[] = {
	{ "train", HD_OPT_STR, 0, NULL, NULL,
	  "files, directories, patterns, comma separated: text, JSONL, Megatron's .bin/.idx, llm.c's .bin" },
	{ "valid", HD_OPT_STR, 0, "", NULL, "files of the validation split" },
	{ "valid_fraction", HD_OPT_NUM, 0, "0.1", "0..0.99",
	  "without valid: this tail of train is the validation split; 0: there is none" },
	{ "tokenizer", HD_OPT_STR, 0, "byte", NULL,
	  "tokenizer.json, or a directory with it: of text, or of what made the ids; byte: bytes are ids, with any vocab" },
	{ "format", HD_OPT_CHOICE, 0, "auto", "auto|text|jsonl|uint16|uint32|megatron|llmc",
	  "of the files; auto: by their names; uint16 and uint32: ids and nothing else" },
	{ "field", HD_OPT_STR, 0, "text", NULL, "of JSONL: which field has the text" },
	{ "order", HD_OPT_CHOICE, 0, "random", "random|sequential", "of the samples of an epoch" },
};
const struct hd_key_table hd_data_keys = { options, HD_LEN(options), sizeof(options[0]) };

struct hd_data {
	struct hd_tokens *train, *valid; /* valid: NULL where it is the tail of train */
	int64_t ntrain, nvalid;          /* tokens of the splits */
	int64_t seq, limit, vocab;       /* limit: vocab of the model */
	uint64_t seed;
	int random;
	struct hd_tokenizer *tokenizer; /* or NULL */
	struct hd_tokens_how how;
};

/* -- opening ----------------------------------------------------------------------------------- */

/* The highest id of DIR/tokenizer.json, plus one. */
static int tokenizer_vocab(const char *dir, int64_t *out, struct hd_err *err)
{
	char *path = hd_tokenizer_file(dir);
	json_error_t why;
	json_t *root = json_load_file(path, 0, &why), *vocab, *item;
	const char *name;
	size_t i;
	int rc = 0;

	*out = 0;
	vocab = json_object_get(json_object_get(root, "model"), "vocab");
	json_object_foreach(vocab, name, item)
		if (json_integer_value(item) >= *out)
			*out = json_integer_value(item) + 1;
	if (json_is_array(vocab)) /* unigram models */
		*out = (int64_t)json_array_size(vocab);
	json_array_foreach(json_object_get(root, "added_tokens"), i, item)
		if (json_integer_value(json_object_get(item, "id")) >= *out)
			*out = json_integer_value(json_object_get(item, "id")) + 1;
	if (!root && why.line > 0)
		rc = hd_err_set(err, HD_EINVAL, "%s:%d: %s", path, why.line, why.text);
	else if (!root)
		rc = hd_err_set(err, HD_EIO, "%s", why.text);
	else if (!*out)
		rc = hd_err_set(err, HD_EINVAL, "%s: no model.vocab in it", path);
	json_decref(root);
	free(path);
	return rc;
}

/* An error of a part that knows no INI, as one of this key. */
static int key_fail(struct hd_conf *c, const char *key, const struct hd_err *why, struct hd_err *err)
{
	return hd_section_fail(c, hd_conf_section(c, NULL, "data"), key, err, why->code, "%s", why->text);
}

static int is_byte(struct hd_section *s)
{
	return !strcmp(hd_section_str(s, "tokenizer"), "byte");
}

/* Bytes as tokens of a model that has others: nothing would tell. */
static int check_bytes(struct hd_conf *c, struct hd_section *s, const char *what, int64_t vocab, struct hd_err *err)
{
	if (!vocab || vocab == 256 || (vocab > 256 && s && hd_section_has(s, "tokenizer")))
		return HD_OK;
	if (vocab < 256)
		return hd_section_fail(c, s, "tokenizer", err, HD_EINVAL,
				       "%s is text, whose bytes need a vocab of 256, and the model's has %lld", what,
				       (long long)vocab);
	return hd_section_fail(c, s, "tokenizer", err, HD_EINVAL,
			       "%s is text, and the model's vocab of %lld is not one of bytes: give the DIR of its "
			       "tokenizer.json, or byte if bytes are meant",
			       what, (long long)vocab);
}

int hd_data_text_tokenizer(struct hd_conf *c, const char *what, int64_t vocab, struct hd_tokenizer **out,
			   struct hd_err *err)
{
	struct hd_section *s = hd_conf_section(c, NULL, "data");
	struct hd_err why = { 0 };
	int64_t have;

	*out = NULL;
	HD_TRY(hd_section_check(c, s, &hd_data_keys, 1, err));
	if (!s || is_byte(s))
		return check_bytes(c, s, what, vocab, err);
	if (hd_tokenizer_open(hd_section_str(s, "tokenizer"), out, &why) < 0)
		return key_fail(c, "tokenizer", &why, err);
	have = hd_tokenizer_vocab(*out);
	if (!vocab || have <= vocab)
		return HD_OK;
	hd_tokenizer_close(*out);
	*out = NULL;
	return hd_section_fail(c, s, "tokenizer", err, HD_EINVAL, "%s has %lld tokens, and the model's vocab is %lld",
			       hd_section_str(s, "tokenizer"), (long long)have, (long long)vocab);
}

static int format_of(const struct hd_section *s)
{
	static const char *const names[] = { "auto", "text", "jsonl", "uint16", "uint32", "megatron", "llmc" };
	int i = 0;

	while (strcmp(hd_section_str(s, "format"), names[i])) /* the table of keys knows no other */
		i++;
	return i;
}

/* Of text it must be one that this program knows; of ids it says the vocab, and is needed for samples only. */
static int open_tokenizer(struct hd_data *d, struct hd_conf *c, struct hd_section *s, const char *files,
			  struct hd_err *err)
{
	struct hd_err why = { 0 };

	d->how.format = format_of(s);
	d->how.field = hd_section_str(s, "field");
	d->how.any_bytes = is_byte(s) && hd_section_has(s, "tokenizer");
	if (hd_tokens_are_text(files, &d->how)) {
		HD_TRY(hd_data_text_tokenizer(c, files, d->limit, &d->tokenizer, err));
	} else if (!is_byte(s)) {
		if (tokenizer_vocab(hd_section_str(s, "tokenizer"), &d->vocab, &why))
			return key_fail(c, "tokenizer", &why, err);
		hd_tokenizer_open(hd_section_str(s, "tokenizer"), &d->tokenizer, &why);
	}
	d->how.tokenizer = d->tokenizer;
	return HD_OK;
}

static int open_splits(struct hd_data *d, struct hd_conf *c, struct hd_section *s, struct hd_err *err)
{
	const char *valid = hd_section_str(s, "valid");
	struct hd_err why = { 0 };

	if (*valid && hd_section_has(s, "valid_fraction"))
		return hd_section_fail(c, s, "valid_fraction", err, HD_EINVAL, "not together with valid = %s", valid);
	if (hd_tokens_open(hd_section_str(s, "train"), &d->how, &d->train, &why))
		return key_fail(c, "train", &why, err);
	d->ntrain = d->train->n;
	d->vocab = d->vocab ? d->vocab : d->train->vocab;
	if (!*valid) {
		d->nvalid = (int64_t)(hd_section_num(s, "valid_fraction") * (double)d->ntrain);
		d->ntrain -= d->nvalid;
		return 0;
	}
	if (hd_tokens_open(valid, &d->how, &d->valid, &why))
		return key_fail(c, "valid", &why, err);
	d->nvalid = d->valid->n;
	d->vocab = d->valid->vocab > d->vocab && !d->tokenizer ? d->valid->vocab : d->vocab;
	if (d->valid->text != d->train->text)
		return hd_section_fail(c, s, "valid", err, HD_EINVAL, "%s, but train is %s",
				       d->valid->text ? "text" : "ids of a tokenizer",
				       d->train->text ? "text" : "ids of a tokenizer");
	return 0;
}

static int check_sizes(struct hd_data *d, struct hd_conf *c, struct hd_section *s, struct hd_err *err)
{
	long long need = d->seq + 1;

	if (d->ntrain < need)
		return hd_section_fail(c, s, "train", err, HD_EINVAL, "%lld tokens%s, fewer than train.seq + 1 = %lld",
				       (long long)d->ntrain,
				       d->nvalid && !d->valid ? " without the validation split" : "", need);
	if (d->valid && d->nvalid < need)
		return hd_section_fail(c, s, "valid", err, HD_EINVAL, "%lld tokens, fewer than train.seq + 1 = %lld",
				       (long long)d->nvalid, need);
	if (hd_section_num(s, "valid_fraction") > 0 && d->nvalid < need)
		return hd_section_fail(c, s, "valid_fraction", err, HD_EINVAL,
				       "%s of %lld tokens is %lld, fewer than train.seq + 1 = "
				       "%lld; 0 is for no validation",
				       hd_section_str(s, "valid_fraction"), (long long)d->train->n,
				       (long long)d->nvalid, need);
	return 0;
}

int hd_data_open(struct hd_conf *c, int64_t seq, int64_t vocab, uint64_t seed, struct hd_data **out, struct hd_err *err)
{
	struct hd_section *s = hd_conf_section(c, NULL, "data");
	struct hd_data *d;
	int rc;

	HD_TRY(hd_section_check(c, s, &hd_data_keys, 1, err));
	d = hd_alloc(sizeof(*d));
	d->seq = seq;
	d->limit = vocab;
	d->seed = seed;
	d->random = !strcmp(hd_section_str(s, "order"), "random");
	rc = open_tokenizer(d, c, s, hd_section_str(s, "train"), err);
	if (!rc)
		rc = open_splits(d, c, s, err);
	if (!rc)
		rc = check_sizes(d, c, s, err);
	if (rc)
		hd_data_close(d);
	else
		*out = d;
	return rc;
}

static int open_file(struct hd_data *d, struct hd_conf *c, const char *path, struct hd_err *err)
{
	struct hd_section *s = hd_conf_section(c, NULL, "data");
	struct hd_err why = { 0 };

	HD_TRY(hd_section_check(c, s, &hd_data_keys, 1, err));
	d->how.any_bytes = is_byte(s) && hd_section_has(s, "tokenizer");
	if (hd_tokens_are_text(path, &d->how) && hd_data_text_tokenizer(c, path, d->limit, &d->tokenizer, &why) < 0)
		return hd_err_set(err, why.code, "%s", why.text);
	d->how.field = hd_section_str(s, "field");
	d->how.tokenizer = d->tokenizer;
	HD_TRY(hd_tokens_open(path, &d->how, &d->valid, err));
	d->nvalid = d->valid->n;
	d->vocab = d->valid->vocab;
	if (d->nvalid < d->seq + 1)
		return hd_err_set(err, HD_EINVAL, "%s: %lld tokens, fewer than seq + 1 = %lld", path,
				  (long long)d->nvalid, (long long)d->seq + 1);
	return HD_OK;
}

int hd_data_open_file(struct hd_conf *c, const char *path, int64_t seq, int64_t vocab, struct hd_data **out,
		      struct hd_err *err)
{
	struct hd_data *d = hd_alloc(sizeof(*d));
	int rc;

	d->seq = seq;
	d->limit = vocab;
	rc = open_file(d, c, path, err);
	if (rc)
		hd_data_close(d);
	else
		*out = d;
	return rc;
}

void hd_data_close(struct hd_data *d)
{
	if (!d)
		return;
	hd_tokens_close(d->train);
	hd_tokens_close(d->valid);
	hd_tokenizer_close(d->tokenizer);
	free(d);
}

/* -- samples ----------------------------------------------------------------------------------- */

int64_t hd_data_vocab(const struct hd_data *d)
{
	return d->vocab;
}

const struct hd_tokenizer *hd_data_tokenizer(const struct hd_data *d)
{
	return d->tokenizer;
}

int hd_data_is_text(const struct hd_data *d)
{
	return d->train ? d->train->text : d->valid->text;
}

int64_t hd_data_tokens(const struct hd_data *d, int valid)
{
	return valid ? d->nvalid : d->ntrain;
}

static int64_t windows(int64_t tokens, int64_t seq)
{
	return tokens > seq ? (tokens - 1) / seq : 0;
}

int64_t hd_data_valid_samples(const struct hd_data *d)
{
	return windows(d->nvalid, d->seq);
}

int hd_data_sample(const struct hd_data *d, int64_t first, int64_t index, int32_t *ids, struct hd_err *err)
{
	int64_t n = windows(d->ntrain, d->seq), g = first + index, epoch, window, shift = 0;
	uint64_t key;

	if (g < 0 || !n)
		return hd_err_set(err, HD_EBUG, "sample %lld of %lld windows", (long long)g, (long long)n);
	epoch = g / n;
	window = g % n;
	if (d->random) {
		key = hd_key(d->seed, "epoch", (uint64_t)epoch);
		window = (int64_t)hd_permute(key, (uint64_t)n, (uint64_t)window);
		if (epoch)
			shift = (int64_t)(hd_hash64(key) % (uint64_t)((d->ntrain - 1) % d->seq + 1));
	}
	return hd_tokens_read(d->train, shift + window * d->seq, d->seq + 1, d->limit, ids, err);
}

int hd_data_valid_sample(const struct hd_data *d, int64_t index, int32_t *ids, struct hd_err *err)
{
	int64_t at = index * d->seq;

	if (index < 0 || index >= hd_data_valid_samples(d))
		return hd_err_set(err, HD_EBUG, "validation sample %lld of %lld", (long long)index,
				  (long long)hd_data_valid_samples(d));
	return hd_tokens_read(d->valid ? d->valid : d->train, d->valid ? at : d->ntrain + at, d->seq + 1, d->limit, ids,
			      err);
}
