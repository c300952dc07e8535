/* SPDX-License-Identifier: Apache-2.0
 * Chooses the tokens of each sample.
 *
 * Training: the stream without its validation tail is cut into N = (tokens - 1) / seq windows of seq + 1 ids. Adjacent
 * windows share one id, so each token is a target once in an epoch. Sample g of the job, counted from its first step,
 * is window g mod N of epoch g / N. Windows are taken in order, or in a permutation determined by (seed, epoch). With
 * a permutation, later epochs also begin at a different token, within the remainder of the division. So they cut the
 * text elsewhere. No list of windows exists, so nothing is built at the start or shared between ranks. Only the number
 * of samples used is saved.
 *
 * With weights each name in train is a stream of its own, with its own windows, epochs and permutations. The stream of
 * sample g follows from g and the weights (mix.c).
 */
#include <config.h>
#include "engine/data/data.h"
#include "engine/base/parse.h"
#include "engine/base/rng.h"
#include "engine/data/mix.h"
#include "engine/data/tokens.h"
#include "engine/text/tokenizer.h"
#include <glob.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct hd_option options[] = {
	{ "train", HD_OPT_STR, 0, NULL, NULL,
	  "files, directories, patterns, comma separated: text, JSONL, Megatron's .bin/.idx, llm.c's .bin" },
	{ "weights", HD_OPT_STR, 0, "", NULL, "one number for each name in train: its share of the samples" },
	{ "valid", HD_OPT_STR, 0, "", NULL, "validation sets, comma separated, each evaluated by itself" },
	{ "valid_fraction", HD_OPT_NUM, 0, "0.1", "0..0.99",
	  "without valid: this fraction at the end of train is the validation split; 0: no validation" },
	{ "tokenizer", HD_OPT_STR, 0, "byte", NULL,
	  "tokenizer.json, or a directory that contains it, for text or for files of its ids; byte: bytes are ids, "
	  "with any vocab" },
	{ "format", HD_OPT_CHOICE, 0, "auto", "auto|text|jsonl|uint16|uint32|megatron|llmc",
	  "of the files; auto: from their names; uint16 and uint32: ids and nothing else" },
	{ "field", HD_OPT_STR, 0, "text", NULL, "for JSONL: the field that has the text" },
	{ "order", HD_OPT_CHOICE, 0, "random", "random|sequential", "of the samples of an epoch" },
};
const struct hd_key_table hd_data_keys = { options, HD_LEN(options), sizeof(options[0]) };

struct data_source { /* a stream to draw samples from: all of train, or with weights one of its names */
	struct hd_tokens *tokens;
	int64_t ntrain, weight; /* ntrain: tokens before its tail, which is for validation */
};
struct data_valid { /* a validation set: n consecutive tokens */
	char *name;
	struct hd_tokens *tokens;
	int64_t first, n;
	int shared; /* tokens belong to a source */
};
struct hd_data {
	struct data_source *sources;
	struct data_valid *valid;
	size_t nsources, sources_cap, nvalid, valid_cap;
	struct hd_mix mix;
	int64_t seq, limit, vocab; /* limit: vocab of the model; vocab: of the data */
	uint64_t seed;
	int random;
	struct hd_tokenizer *tokenizer; /* or NULL */
	struct hd_tokens_how how;
};

/* -- opening ----------------------------------------------------------------------------------- */

/* Sets *out to the highest id of DIR/tokenizer.json, plus one. */
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

/* Reports an error of code that knows no INI as one of this key. */
static int key_fail(struct hd_conf *c, const char *key, const struct hd_err *why, struct hd_err *err)
{
	return hd_section_fail(c, hd_conf_section(c, NULL, "data"), key, err, why->code, "%s", why->text);
}

static int is_byte(struct hd_section *s)
{
	return !strcmp(hd_section_str(s, "tokenizer"), "byte");
}

/* Refuses text as bytes for a model whose vocab has other tokens: nothing else would reveal the mistake. */
static int check_bytes(struct hd_conf *c, struct hd_section *s, const char *what, int64_t vocab, struct hd_err *err)
{
	if (!vocab || vocab == 256 || (vocab > 256 && s && hd_section_has(s, "tokenizer")))
		return HD_OK;
	if (vocab < 256)
		return hd_section_fail(c, s, "tokenizer", err, HD_EINVAL,
				       "%s is text, whose bytes need a vocab of 256, but the model's has %lld", what,
				       (long long)vocab);
	return hd_section_fail(
		c, s, "tokenizer", err, HD_EINVAL,
		"%s is text, but the model's vocab of %lld is not that of bytes. Give the DIR of its tokenizer.json, "
		"or byte if bytes are meant%s",
		what, (long long)vocab, hd_tokenizer_advice(hd_section_str(hd_conf_section(c, NULL, "model"), "load")));
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
	return hd_section_fail(c, s, "tokenizer", err, HD_EINVAL, "%s has %lld tokens, but the model's vocab is %lld",
			       hd_section_str(s, "tokenizer"), (long long)have, (long long)vocab);
}

static int format_of(const struct hd_section *s)
{
	static const char *const names[] = { "auto", "text", "jsonl", "uint16", "uint32", "megatron", "llmc" };
	int i = 0;

	while (strcmp(hd_section_str(s, "format"), names[i])) /* the table of keys admits no others */
		i++;
	return i;
}

/* Opens the tokenizer. For text it must be one that Heddle supports. For ids its vocab suffices, and it is otherwise
 * needed only for generated samples. */
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

static struct data_source *add_source(struct hd_data *d, struct hd_tokens *t)
{
	d->sources = hd_grow(d->sources, d->nsources, &d->sources_cap, sizeof(*d->sources));
	d->sources[d->nsources] = (struct data_source){ .tokens = t, .ntrain = t->n, .weight = 1 };
	return &d->sources[d->nsources++];
}

static struct data_valid *add_valid(struct hd_data *d, char *name, struct hd_tokens *t, int64_t first, int shared)
{
	d->valid = hd_grow(d->valid, d->nvalid, &d->valid_cap, sizeof(*d->valid));
	d->valid[d->nvalid] =
		(struct data_valid){ .name = name, .tokens = t, .first = first, .n = t->n - first, .shared = shared };
	return &d->valid[d->nvalid++];
}

/* Opens train as one source, or with weights each of its names as a source. */
static int open_sources(struct hd_data *d, struct hd_conf *c, struct hd_section *s, struct hd_err *err)
{
	struct hd_err why = { 0 };
	struct hd_names files = { 0 };
	struct hd_tokens *t;
	int rc, known = d->vocab > 0;

	if (!*hd_section_str(s, "weights"))
		hd_names_add(&files, hd_section_str(s, "train"));
	else
		hd_names_split(&files, hd_section_str(s, "train"));
	for (size_t i = 0; i < files.n && !why.code; i++)
		if (hd_tokens_open(files.all[i], &d->how, &t, &why) >= 0)
			add_source(d, t);
	if (!why.code && *hd_section_str(s, "weights"))
		rc = hd_mix_read(hd_section_str(s, "weights"), files.n, &d->mix, &why) < 0
			     ? key_fail(c, "weights", &why, err)
			     : HD_OK;
	else
		rc = why.code ? key_fail(c, "train", &why, err) : HD_OK;
	hd_names_release(&files);
	for (size_t i = 0; rc >= 0 && i < d->nsources; i++) {
		int64_t vocab = d->sources[i].tokens->vocab;

		d->vocab = !known && vocab > d->vocab ? vocab : d->vocab;
		if (d->sources[i].tokens->text != d->sources[0].tokens->text)
			rc = hd_section_fail(c, s, "train", err, HD_EINVAL,
					     "some files are text, others are ids of a tokenizer");
	}
	return rc;
}

/* Makes the tail of each source a validation set. */
static void cut_tails(struct hd_data *d, double fraction)
{
	for (size_t i = 0; i < d->nsources && fraction > 0; i++) {
		struct data_source *x = &d->sources[i];

		x->ntrain -= (int64_t)(fraction * (double)x->tokens->n);
		add_valid(d, d->nsources > 1 ? hd_format("%zu", i + 1) : NULL, x->tokens, x->ntrain, 1);
	}
}

/* Returns the name of a file without folders and endings; the caller frees it. */
static char *plain_name(const char *path)
{
	const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;

	return *base ? hd_format("%.*s", (int)strcspn(base + 1, ".") + 1, base) : hd_strdup(path);
}

/* Names each set after its file, without folders and endings, or as given where that is not unique. */
static void name_sets(struct hd_data *d, const struct hd_names *given)
{
	for (size_t i = 0; i < given->n; i++)
		d->valid[i].name = plain_name(given->all[i]);
	for (size_t i = 0; i < given->n; i++) {
		int alike = 0;

		for (size_t k = 0; k < given->n; k++) {
			char *other = plain_name(given->all[k]);

			alike += !strcmp(d->valid[i].name, other);
			free(other);
		}
		if (alike < 2)
			continue;
		free(d->valid[i].name);
		d->valid[i].name = hd_strdup(given->all[i]);
	}
}

static int is_given_before(const struct hd_names *files, size_t i)
{
	size_t k = 0;

	while (k < i && strcmp(files->all[k], files->all[i]))
		k++;
	return k < i;
}

static int open_sets(struct hd_data *d, struct hd_conf *c, struct hd_section *s, struct hd_err *err)
{
	struct hd_names files = { 0 };
	struct hd_err why = { 0 };
	struct hd_tokens *t;

	hd_names_split(&files, hd_section_str(s, "valid"));
	for (size_t i = 0; i < files.n && !why.code; i++) {
		if (is_given_before(&files, i)) {
			hd_err_set(&why, HD_EINVAL, "%s is given twice", files.all[i]);
			break;
		}
		if (hd_tokens_open(files.all[i], &d->how, &t, &why) < 0)
			break;
		add_valid(d, NULL, t, 0, 0);
		d->vocab = t->vocab > d->vocab && !d->tokenizer ? t->vocab : d->vocab;
		if (t->text != hd_data_is_text(d))
			hd_err_set(&why, HD_EINVAL, "%s, but train is %s", t->text ? "text" : "ids of a tokenizer",
				   t->text ? "ids of a tokenizer" : "text");
	}
	if (!why.code)
		name_sets(d, &files);
	hd_names_release(&files);
	return why.code ? key_fail(c, "valid", &why, err) : HD_OK;
}

static int open_splits(struct hd_data *d, struct hd_conf *c, struct hd_section *s, struct hd_err *err)
{
	const char *valid = hd_section_str(s, "valid");

	if (*valid && hd_section_has(s, "valid_fraction"))
		return hd_section_fail(c, s, "valid_fraction", err, HD_EINVAL, "cannot be combined with valid = %s",
				       valid);
	HD_TRY(open_sources(d, c, s, err));
	if (*valid)
		return open_sets(d, c, s, err);
	cut_tails(d, hd_section_num(s, "valid_fraction"));
	return HD_OK;
}

static int check_source(struct hd_data *d, size_t i, struct hd_conf *c, struct hd_section *s, struct hd_err *err)
{
	const struct data_source *x = &d->sources[i];
	char *which = d->nsources > 1 ? hd_format("file %zu of %zu: ", i + 1, d->nsources) : hd_strdup("");
	int rc = 0;

	if (x->ntrain < d->seq + 1)
		rc = hd_section_fail(c, s, "train", err, HD_EINVAL, "%s%lld tokens%s, fewer than train.seq + 1 = %lld",
				     which, (long long)x->ntrain,
				     x->ntrain < x->tokens->n ? " without the validation split" : "",
				     (long long)d->seq + 1);
	free(which);
	return rc;
}

static int check_sizes(struct hd_data *d, struct hd_conf *c, struct hd_section *s, struct hd_err *err)
{
	long long need = d->seq + 1;

	for (size_t i = 0; i < d->nsources; i++)
		HD_TRY(check_source(d, i, c, s, err));
	for (size_t i = 0; i < d->nvalid; i++) {
		const struct data_valid *v = &d->valid[i];

		if (v->n >= need)
			continue;
		if (!v->shared)
			return hd_section_fail(c, s, "valid", err, HD_EINVAL,
					       "%s%s%lld tokens, fewer than train.seq + 1 = %lld",
					       d->nvalid > 1 ? v->name : "", d->nvalid > 1 ? ": " : "", (long long)v->n,
					       need);
		return hd_section_fail(
			c, s, "valid_fraction", err, HD_EINVAL,
			"%s of %lld tokens is %lld, fewer than train.seq + 1 = %lld; 0 means no validation",
			hd_section_str(s, "valid_fraction"), (long long)v->tokens->n, (long long)v->n, need);
	}
	return 0;
}

#define MOST_CHECKED (256ll << 20) /* bytes of ids read at most when a run begins: a second or two on a slow disk */

static double share_to_check(const struct hd_data *d)
{
	int64_t bytes = 0;

	for (size_t i = 0; i < d->nsources; i++)
		bytes += hd_tokens_bytes(d->sources[i].tokens);
	for (size_t i = 0; i < d->nvalid; i++)
		bytes += d->valid[i].shared ? 0 : hd_tokens_bytes(d->valid[i].tokens);
	return bytes > MOST_CHECKED ? (double)MOST_CHECKED / (double)bytes : 1;
}

/* Refuses ids that the model does not have. Of large data only a share is checked here; each batch is checked when it
 * is read. */
static int check_ids(struct hd_data *d, struct hd_conf *c, struct hd_err *err)
{
	struct hd_err why = { 0 };
	double share = share_to_check(d);

	for (size_t i = 0; i < d->nsources && d->limit; i++)
		if (hd_tokens_check_ids(d->sources[i].tokens, d->limit, share, &why) < 0)
			return key_fail(c, "train", &why, err);
	for (size_t i = 0; i < d->nvalid && d->limit; i++)
		if (!d->valid[i].shared && hd_tokens_check_ids(d->valid[i].tokens, d->limit, share, &why) < 0)
			return key_fail(c, "valid", &why, err);
	return HD_OK;
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
	if (!rc)
		rc = check_ids(d, c, err);
	if (rc)
		hd_data_close(d);
	else
		*out = d;
	return rc;
}

int hd_data_is_here(struct hd_conf *c)
{
	struct hd_names names = { 0 };
	int here = 0;

	hd_names_split(&names, hd_section_str(hd_conf_section(c, NULL, "data"), "train"));
	for (size_t i = 0; i < names.n && !here; i++) {
		char *bin = hd_format("%s.bin", names.all[i]);
		glob_t found = { 0 };

		here = !access(names.all[i], F_OK) || !access(bin, F_OK) || !glob(names.all[i], 0, NULL, &found);
		globfree(&found);
		free(bin);
	}
	hd_names_release(&names);
	return here;
}

int hd_data_has_ids(struct hd_conf *c)
{
	struct hd_section *s = hd_conf_section(c, NULL, "data");
	struct hd_tokens_how how = { 0 };

	if (!s || !hd_data_is_here(c))
		return 0;
	how.format = format_of(s);
	return !hd_tokens_are_text(hd_section_str(s, "train"), &how);
}

static int open_file(struct hd_data *d, struct hd_conf *c, const char *path, struct hd_err *err)
{
	struct hd_section *s = hd_conf_section(c, NULL, "data");
	struct hd_err why = { 0 };
	struct hd_tokens *t;

	HD_TRY(hd_section_check(c, s, &hd_data_keys, 1, err));
	d->how.format = hd_section_set(s, "format") ? format_of(s) : hd_tokens_format(path, format_of(s));
	d->how.any_bytes = is_byte(s) && hd_section_has(s, "tokenizer");
	if (hd_tokens_are_text(path, &d->how) && hd_data_text_tokenizer(c, path, d->limit, &d->tokenizer, &why) < 0)
		return hd_err_set(err, why.code, "%s", why.text);
	d->how.field = hd_section_str(s, "field");
	d->how.tokenizer = d->tokenizer;
	HD_TRY(hd_tokens_open(path, &d->how, &t, err));
	d->vocab = t->vocab;
	if (add_valid(d, NULL, t, 0, 0)->n < 2)
		return hd_err_set(err, HD_EINVAL,
				  "%s: 1 token; a loss needs 2 or more, as the first has nothing before it", path);
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
	for (size_t i = 0; i < d->nsources; i++)
		hd_tokens_close(d->sources[i].tokens);
	for (size_t i = 0; i < d->nvalid; i++) {
		if (!d->valid[i].shared)
			hd_tokens_close(d->valid[i].tokens);
		free(d->valid[i].name);
	}
	free(d->sources);
	free(d->valid);
	hd_mix_release(&d->mix);
	hd_tokenizer_close(d->tokenizer);
	free(d);
}

void hd_data_warn(const struct hd_data *d)
{
	for (size_t i = 0; i < d->nsources; i++)
		hd_log_lines(HD_LOG_WARN, d->sources[i].tokens->notes);
	for (size_t i = 0; i < d->nvalid; i++)
		if (!d->valid[i].shared)
			hd_log_lines(HD_LOG_WARN, d->valid[i].tokens->notes);
}

/* -- samples ----------------------------------------------------------------------------------- */

int64_t hd_data_seq(const struct hd_data *d)
{
	return d->seq;
}

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
	return d->nsources ? d->sources[0].tokens->text : d->valid[0].tokens->text;
}

int64_t hd_data_tokens(const struct hd_data *d, int valid)
{
	int64_t n = 0;

	for (size_t i = 0; i < (valid ? d->nvalid : d->nsources); i++)
		n += valid ? d->valid[i].n : d->sources[i].ntrain;
	return n;
}

static int64_t windows(int64_t tokens, int64_t seq)
{
	return tokens > seq ? (tokens - 1) / seq : 0;
}

int64_t hd_data_valid_sets(const struct hd_data *d)
{
	return (int64_t)d->nvalid;
}

const char *hd_data_valid_name(const struct hd_data *d, int64_t set)
{
	return d->valid[set].name;
}

int64_t hd_data_valid_samples(const struct hd_data *d, int64_t set)
{
	return set < (int64_t)d->nvalid ? windows(d->valid[set].n, d->seq) : 0;
}

int64_t hd_data_valid_rest(const struct hd_data *d, int64_t set)
{
	int64_t n = d->valid[set].n;

	return n > 1 ? (n - 1) % d->seq : 0;
}

/* Reads sample g of a source: a window of an epoch, in the order determined by (seed, source, epoch). */
static int read_window(const struct hd_data *d, size_t source, int64_t g, int32_t *ids, struct hd_err *err)
{
	const struct data_source *x = &d->sources[source];
	int64_t n = windows(x->ntrain, d->seq), epoch, window, shift = 0;
	uint64_t key = source ? hd_key(d->seed, "source", source) : d->seed;

	if (g < 0 || !n)
		return hd_err_set(err, HD_EBUG, "sample %lld of %lld windows", (long long)g, (long long)n);
	epoch = g / n;
	window = g % n;
	if (d->random) {
		key = hd_key(key, "epoch", (uint64_t)epoch);
		window = (int64_t)hd_permute(key, (uint64_t)n, (uint64_t)window);
		if (epoch)
			shift = (int64_t)(hd_hash64(key) % (uint64_t)((x->ntrain - 1) % d->seq + 1));
	}
	return hd_tokens_read(x->tokens, shift + window * d->seq, d->seq + 1, d->limit, ids, err);
}

int hd_data_sample(const struct hd_data *d, int64_t first, int64_t index, int32_t *ids, struct hd_err *err)
{
	int64_t g = first + index;
	size_t source = d->mix.n ? hd_mix_at(&d->mix, g, &g) : 0;

	return read_window(d, source, g, ids, err);
}

int hd_data_valid_sample(const struct hd_data *d, int64_t set, int64_t index, int32_t *ids, struct hd_err *err)
{
	const struct data_valid *v = &d->valid[set];
	int64_t whole = hd_data_valid_samples(d, set), n = index < whole ? d->seq : hd_data_valid_rest(d, set);

	if (index < 0 || index > whole || !n)
		return hd_err_set(err, HD_EBUG, "validation sample %lld of %lld", (long long)index, (long long)whole);
	memset(ids + n + 1, 0, (size_t)(d->seq - n) * sizeof(*ids));
	return hd_tokens_read(v->tokens, v->first + index * d->seq, n + 1, d->limit, ids, err);
}
