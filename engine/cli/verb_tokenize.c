/* SPDX-License-Identifier: Apache-2.0
 * heddle tokenize: text to ids, and back.
 */
#include <config.h>
#include "engine/cli/verbs.h"
#include "engine/file/file.h"
#include "engine/text/tokenizer.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* -- ids of a text ----------------------------------------------------------------------------- */
static int print_ids(const struct hd_tokenizer *t, const char *path, struct hd_err *err)
{
	struct hd_encoder *e = hd_encoder_create(t);
	struct hd_ids ids = { 0 };
	size_t n = 0;
	char *text = hd_file_slurp(path, &n);

	if (!text)
		hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	else
		hd_encode(e, text, n, &ids, err);
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
			return hd_err_set(err, HD_EINVAL, "%s: id %s at place %zu is not in a vocabulary of %lld", path,
					  word, ids->n, (long long)vocab);
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

static int tokenize(struct hd_cli *c, struct hd_tokenizer **t, struct hd_err *err)
{
	const char *name = hd_cli_str(c, "tokenizer", NULL);

	if (!name)
		return hd_err_set(err, HD_EINVAL, "tokenize: --tokenizer DIR must be given");
	HD_TRY(hd_tokenizer_open(name, t, err));
	if (hd_cli_has(c, "ids"))
		return print_ids(*t, hd_cli_str(c, "ids", ""), err);
	return print_text(*t, hd_cli_str(c, "text", ""), err);
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
