/* SPDX-License-Identifier: Apache-2.0
 * heddle tokenize: converts text to ids, and ids to text.
 */
#include <config.h>
#include "engine/cli/verbs.h"
#include "engine/base/parse.h"
#include "engine/file/file.h"
#include "engine/text/corpus/corpus.h"
#include "engine/text/special.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* -- ids of a text ----------------------------------------------------------------------------- */
static int print_ids(const struct hd_tokenizer *t, const char *path, struct hd_err *err)
{
	struct hd_encoder *e = hd_encoder_create(t);
	struct hd_ids ids = { 0 };
	size_t n = 0, bad;
	char *text = hd_file_slurp(path, &n), *note = NULL;

	if (!text)
		hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	else if (hd_check_text(path, text, n, 0, "--ids takes text", err) >= 0)
		hd_encode(e, text, n, &ids, err);
	bad = err->code ? 0 : hd_utf8_bad(text, n);
	if (bad)
		note = hd_invalid_text(path, (int64_t)bad, (int64_t)n);
	if (note)
		hd_log(HD_LOG_WARN, "%s", note);
	free(note);
	for (size_t i = 0; i < ids.n && !err->code; i++)
		printf(i ? " %d" : "%d", ids.at[i]);
	if (!err->code)
		putchar('\n');
	free(text);
	hd_ids_release(&ids);
	hd_encoder_destroy(e);
	return err->code;
}

/* -- the text of ids --------------------------------------------------------------------------- */
static int parse_ids(const char *path, char *text, int64_t vocab, struct hd_ids *ids, struct hd_err *err)
{
	char *save, *end;

	for (char *word = strtok_r(text, " \t\r\n,", &save); word; word = strtok_r(NULL, " \t\r\n,", &save)) {
		long long id = strtoll(word, &end, 10);

		if (*end)
			return hd_err_set(err, HD_EINVAL, "%s: '%.40s' is not an id", path, word);
		if (id < 0 || id >= vocab)
			return hd_err_set(err, HD_EINVAL, "%s: id %s at position %zu is not in a vocabulary of %lld",
					  path, word, ids->n + 1, (long long)vocab);
		hd_ids_add(ids, (int32_t)id);
	}
	return HD_OK;
}

static int print_text(const struct hd_tokenizer *t, const char *path, struct hd_err *err)
{
	struct hd_ids ids = { 0 };
	struct hd_buf out = { 0 };
	char *text = hd_file_slurp(path, NULL);

	if (!text)
		hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	else if (parse_ids(path, text, hd_tokenizer_vocab(t), &ids, err) >= 0)
		hd_decode(t, ids.at, ids.n, &out, err);
	if (!err->code)
		fwrite(out.at, 1, out.n, stdout);
	free(text);
	hd_ids_release(&ids);
	hd_buf_release(&out);
	return err->code;
}

/* -- a corpus ---------------------------------------------------------------------------------- */
static int is_wanted(const struct hd_cli *c, const char *option, struct hd_err *err)
{
	int64_t yes = 0;

	if (hd_word_bool(hd_cli_str(c, option, "no"), &yes))
		return hd_err_set(err, HD_EINVAL, "tokenize: --%s: '%s' is not yes or no", option,
				  hd_cli_str(c, option, ""));
	return (int)yes;
}

static int find_begin(const struct hd_tokenizer *t, int32_t *id, struct hd_err *err)
{
	*id = hd_tokenizer_begin(t);
	if (*id < 0)
		return hd_err_set(err, HD_EINVAL,
				  "%s: which token begins a text? tokenizer_config.json next to it must have bos_token",
				  hd_tokenizer_path(t));
	return HD_OK;
}

static int find_end(const struct hd_tokenizer *t, int32_t *id, struct hd_err *err)
{
	const char *guessed;

	HD_TRY(hd_tokenizer_end(t, id, &guessed, err));
	if (guessed)
		hd_log(HD_LOG_INFO,
		       "tokenize: no file next to %s has eos_token; %s, id %d, is appended to each document",
		       hd_tokenizer_path(t), guessed, *id);
	return HD_OK;
}

/* Warns if no file has fields. Errors are those of the reading that follows. */
static void warn_of_field(const struct hd_cli *c)
{
	struct hd_files found = { 0 };
	struct hd_err ignored = { 0 };
	int rc = hd_files_find(c->words, (size_t)c->nwords, &found, &ignored), jsonl = 0;

	for (size_t i = 0; i < found.n; i++)
		jsonl |= hd_format_of(found.all[i].path) == HD_FORMAT_JSONL;
	if (rc >= 0 && !jsonl)
		hd_log(HD_LOG_WARN, "tokenize: --field does nothing where no file is JSONL");
	hd_files_release(&found);
}

static int write_corpus(const struct hd_cli *c, const struct hd_tokenizer *t, struct hd_err *err)
{
	const char *out = hd_cli_str(c, "out", NULL);
	struct hd_corpus corpus = {
		.names = c->words, .nnames = (size_t)c->nwords, .tokenizer = t, .begin = -1, .end = -1, .shows = 1
	};
	struct hd_corpus_counts counts;
	char *notes = NULL;
	int begin = is_wanted(c, "prepend-bos", err), end = is_wanted(c, "append-eos", err);

	HD_TRY(err->code);
	corpus.field = hd_cli_str(c, "field", "text");
	corpus.out = out;
	if (!out || !*out)
		return hd_err_set(err, HD_EINVAL,
				  "tokenize: --out PREFIX must be given (or --ids FILE, or --text FILE)");
	if (!c->nwords)
		return hd_err_set(err, HD_EINVAL, "tokenize: which files?");
	if (hd_cli_has(c, "field"))
		warn_of_field(c);
	if (begin)
		HD_TRY(find_begin(t, &corpus.begin, err));
	if (end)
		HD_TRY(find_end(t, &corpus.end, err));
	hd_corpus_tokenize(&corpus, &counts, &notes, err);
	hd_log_lines(HD_LOG_WARN, notes);
	free(notes);
	HD_TRY(err->code);
	printf("%s.bin: %lld document%s, %lld token%s, vocab %lld\n", out, (long long)counts.documents,
	       hd_plural(counts.documents, "s"), (long long)counts.tokens, hd_plural(counts.tokens, "s"),
	       (long long)hd_tokenizer_vocab(t));
	return HD_OK;
}

static int tokenize(struct hd_cli *c, struct hd_tokenizer **t, struct hd_err *err)
{
	const char *name = hd_cli_str(c, "tokenizer", NULL), *ids = hd_cli_str(c, "ids", NULL);
	const char *text = hd_cli_str(c, "text", NULL);
	static const char *const of_corpus[] = { "append-eos", "prepend-bos", "field" };

	if (!name)
		return hd_err_set(err, HD_EINVAL, "tokenize: --tokenizer DIR must be given");
	if (!!ids + !!text + hd_cli_has(c, "out") > 1 || ((ids || text) && c->nwords))
		return hd_err_set(err, HD_EINVAL,
				  "tokenize: give one of --out PREFIX FILE..., --ids FILE and --text FILE");
	for (size_t i = 0; (ids || text) && i < HD_LEN(of_corpus); i++)
		if (hd_cli_has(c, of_corpus[i]))
			return hd_err_set(err, HD_EINVAL, "tokenize: --%s does nothing with --%s", of_corpus[i],
					  ids ? "ids" : "text");
	HD_TRY(hd_tokenizer_open(name, t, err));
	return ids ? print_ids(*t, ids, err) : text ? print_text(*t, text, err) : write_corpus(c, *t, err);
}

int hd_verb_tokenize(struct hd_cli *c)
{
	struct hd_tokenizer *t = NULL;
	struct hd_err err = { 0 };

	tokenize(c, &t, &err);
	if (err.code)
		hd_log(HD_LOG_ERROR, "%s", err.text);
	hd_tokenizer_close(t);
	return err.code ? 1 : 0;
}
