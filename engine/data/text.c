/* SPDX-License-Identifier: Apache-2.0
 * Opens text as ids. If bytes are the ids, the files are mapped unchanged. Otherwise they are tokenized once, and the
 * ids are kept in the cache as Megatron's .bin and .idx and mapped from there. Their name in the cache is a hash of
 * the files, the tokenizer, the options and the host.
 */
#include <config.h>
#include "engine/data/tokens.h"
#include "engine/base/hash.h"
#include "engine/file/atomic_file.h"
#include "engine/text/corpus/corpus.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#define LOOK (64ll << 20) /* bytes of a mapped file that are searched for a NUL; more would delay every start */

/* -- bytes ------------------------------------------------------------------------------------- */
static int open_bytes(struct hd_tokens *t, const char *path, const struct hd_tokens_how *how, struct hd_err *err)
{
	struct hd_mapping m;

	HD_TRY(hd_tokens_map(t, path, &m, err));
	if (!how->any_bytes)
		HD_TRY(hd_check_text_file(path, LOOK,
					  "[data] tokenizer = byte, given explicitly, takes the bytes of any file",
					  err));
	hd_tokens_append(t, &m, 0, (int64_t)m.bytes, HD_IDS_U8);
	t->vocab = 256;
	return HD_OK;
}

static int ends(const char *path, const char *end)
{
	size_t n = strlen(path), m = strlen(end);

	return n > m && !strcmp(path + n - m, end);
}

static int is_packed(const char *path)
{
	return ends(path, ".gz") || ends(path, ".zst");
}

/* Whether the ids are the bytes of the files, unchanged. */
static int bytes_are_ids(const struct hd_files *f, const struct hd_tokens_how *how)
{
	for (size_t i = 0; i < f->n; i++) {
		int format = how->format == HD_DATA_AUTO ? hd_format_of(f->all[i].path) == HD_FORMAT_JSONL
							 : how->format == HD_DATA_JSONL;

		if (how->tokenizer || format || (is_packed(f->all[i].path) && !how->any_bytes))
			return 0;
	}
	return 1;
}

/* -- ids in the cache -------------------------------------------------------------------------- */
static char *cache_prefix(const struct hd_files *f, const struct hd_tokens_how *how)
{
	const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	uint64_t h = hd_files_hash_here(f);
	char host[256] = "";

	gethostname(host, sizeof(host) - 1);
	h = hd_hash_add_text(h, host);
	h = hd_hash_add_text(h, how->field ? how->field : "text");
	h = hd_hash_add(h, (uint64_t)how->format);
	h = hd_hash_add(h, how->tokenizer ? hd_tokenizer_hash(how->tokenizer) : 0);
	if (base && *base)
		return hd_format("%s/heddle/tokens-%016llx", base, (unsigned long long)h);
	return hd_format("%s/.cache/heddle/tokens-%016llx", home && *home ? home : "/tmp", (unsigned long long)h);
}

static int make(const struct hd_files *f, const struct hd_tokens_how *how, const char *prefix, struct hd_err *err)
{
	struct hd_corpus c = { .tokenizer = how->tokenizer,
			       .field = how->field ? how->field : "text",
			       .begin = -1,
			       .end = -1,
			       .out = prefix,
			       .shows = 1 };
	const char **names = hd_alloc((f->n + 1) * sizeof(*names));
	struct hd_corpus_counts counts;
	char *notes = NULL, *file = hd_format("%s.notes", prefix);
	int rc;

	for (size_t i = 0; i < f->n; i++)
		names[i] = f->all[i].path;
	c.names = names;
	c.nnames = f->n;
	c.format = how->format == HD_DATA_TEXT    ? HD_FORMAT_TEXT
		   : how->format == HD_DATA_JSONL ? HD_FORMAT_JSONL
						  : HD_FORMAT_AUTO;
	rc = hd_corpus_tokenize(&c, &counts, &notes, err);
	if (rc >= 0 && *notes)
		rc = hd_file_write(file, notes, err);
	free(notes);
	free(file);
	free(names);
	return rc;
}

/* Whether both files of the ids are there. Their times differ, so a program that tidies up may remove only one. */
static int are_made(const char *bin, const char *idx)
{
	return !access(bin, F_OK) && !access(idx, F_OK);
}

/* Creates the folder of the cache, whose path the user may never have seen. */
static int make_folder(const char *dir, struct hd_err *err)
{
	struct hd_err why = { 0 };

	if (hd_dir_make(dir, &why) >= 0)
		return HD_OK;
	return hd_err_set(err, why.code, "%s; the ids of text are cached in %s (XDG_CACHE_HOME)", why.text, dir);
}

/* Tokenizes the files in one process of this host; the others wait for it. */
static int make_once(const struct hd_files *f, const struct hd_tokens_how *how, const char *prefix, const char *bin,
		     const char *idx, struct hd_err *err)
{
	char *name = hd_format("%s.lock", prefix),
	     *dir = hd_format("%.*s", (int)(strrchr(prefix, '/') - prefix), prefix);
	int rc = make_folder(dir, err), lock = -1;

	if (rc >= 0) {
		lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
		if (lock < 0 || flock(lock, LOCK_EX))
			rc = hd_err_set(err, HD_EIO, "%s: %s; the ids of text are cached there (XDG_CACHE_HOME)", name,
					strerror(errno));
	}
	if (rc >= 0 && !are_made(bin, idx)) {
		rc = make(f, how, prefix, err);
		hd_kept_ids_prune(dir);
	}
	if (lock >= 0)
		close(lock);
	free(name);
	free(dir);
	return rc;
}

/* Reads the notes that the run which tokenized the files wrote; each run prints them. */
static void add_notes(struct hd_tokens *t, const char *prefix)
{
	struct hd_err none = { 0 };
	char *path = hd_format("%s.notes", prefix), *text = hd_file_read(path, NULL, &none);

	if (text)
		hd_append(&t->notes, "%s", text);
	free(text);
	free(path);
}

static int open_cached(struct hd_tokens *t, const struct hd_files *f, const struct hd_tokens_how *how,
		       struct hd_err *err)
{
	char *prefix = cache_prefix(f, how), *bin = hd_format("%s.bin", prefix), *idx = hd_format("%s.idx", prefix);
	int rc = are_made(bin, idx) ? HD_OK : make_once(f, how, prefix, bin, idx, err);

	if (rc >= 0)
		rc = hd_megatron_open(t, bin, idx, err);
	hd_kept_ids_used(idx);
	add_notes(t, prefix);
	t->vocab = how->tokenizer ? hd_tokenizer_vocab(how->tokenizer) : 256;
	free(prefix);
	free(bin);
	free(idx);
	return rc;
}

static int check_files(const struct hd_files *f, struct hd_err *err)
{
	for (size_t i = 0; i < f->n; i++) {
		if (access(f->all[i].path, R_OK))
			return hd_err_set(err, HD_EIO, "%s: %s", f->all[i].path, strerror(errno));
		if (!f->all[i].bytes)
			return hd_err_set(err, HD_EINVAL, "%s: the file is empty", f->all[i].path);
	}
	return HD_OK;
}

int hd_text_open(struct hd_tokens *t, const struct hd_files *files, const struct hd_tokens_how *how, struct hd_err *err)
{
	t->text = 1;
	HD_TRY(check_files(files, err));
	if (!bytes_are_ids(files, how))
		return open_cached(t, files, how, err);
	for (size_t i = 0; i < files->n; i++)
		HD_TRY(open_bytes(t, files->all[i].path, how, err));
	return HD_OK;
}
