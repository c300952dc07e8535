/* SPDX-License-Identifier: Apache-2.0
 * The state of an unfinished corpus. PREFIX.part.bin contains the ids so far, and PREFIX.part.lengths the number of
 * tokens of each document. PREFIX.part.json tells how much of both is complete and where the remaining text begins.
 * The next run truncates the rest and writes the same bytes again. PREFIX.part.bin is locked while a process writes.
 */
#include <config.h>
#include "engine/text/corpus/corpus.h"
#include "engine/file/atomic_file.h"
#include "engine/file/same_file.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char *name(const struct hd_journal *j, const char *ending)
{
	return hd_format("%s%s", j->prefix, ending);
}

static int io_fail(const struct hd_journal *j, const char *ending, struct hd_err *err)
{
	return hd_err_set(err, HD_EIO, "%s%s: %s", j->prefix, ending, strerror(errno));
}

static int read_state(struct hd_journal *j, const char *text, struct hd_err *err)
{
	json_t *o = json_loads(text, 0, NULL);
	const char *identity = "", *notes = "";
	char ours[20];
	json_int_t file = 0, byte = 0, line = 0, documents = 0, tokens = 0, part = 0, bad = 0, bytes = 0;

	snprintf(ours, sizeof(ours), "%016llx", (unsigned long long)j->identity);
	json_unpack(o, "{s:s, s:I, s:I, s:I, s:I, s:I, s?I, s?I, s?I, s?s}", "identity", &identity, "file", &file,
		    "byte", &byte, "line", &line, "documents", &documents, "tokens", &tokens, "open", &part, "bad",
		    &bad, "text", &bytes, "notes", &notes);
	j->open = part;
	j->bad = bad;
	j->text = bytes;
	hd_append(&j->notes, "%s", notes);
	if (strcmp(identity, ours))
		hd_err_set(err, HD_EINVAL,
			   "%s.part.json: was begun with different files, options or a different tokenizer; remove it "
			   "to start again",
			   j->prefix);
	j->at = (struct hd_corpus_place){ file, byte, line };
	j->counts = j->kept = (struct hd_corpus_counts){ documents, tokens };
	json_decref(o);
	return err->code;
}

static int open_part(struct hd_journal *j, const char *ending, struct hd_err *err)
{
	char *path = name(j, ending);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

	free(path);
	return fd < 0 ? io_fail(j, ending, err) : fd;
}

/* Two processes that write PREFIX.part.bin would each finish with the ids of the other. */
static int open_locked(struct hd_journal *j, struct hd_err *err)
{
	char *path = name(j, ".part.bin");
	int fd = hd_file_open_locked(path, O_RDWR | O_CREAT, 0);

	free(path);
	if (fd < 0 && errno == EWOULDBLOCK)
		return hd_err_set(err, HD_EINVAL,
				  "%s.part.bin: another process is writing it; wait until it ends, or give another "
				  "prefix",
				  j->prefix);
	return fd < 0 ? io_fail(j, ".part.bin", err) : fd;
}

/* Removes what an earlier run wrote beyond its last complete state. */
static int resume_part(struct hd_journal *j, const char *ending, int fd, int64_t bytes, struct hd_err *err)
{
	struct stat st;

	if (fstat(fd, &st))
		return io_fail(j, ending, err);
	if (st.st_size < bytes)
		return hd_err_set(err, HD_EIO,
				  "%s%s: has %lld bytes, but %s.part.json says %lld; remove that to start again",
				  j->prefix, ending, (long long)st.st_size, j->prefix, (long long)bytes);
	return ftruncate(fd, bytes) || lseek(fd, 0, SEEK_END) < 0 ? io_fail(j, ending, err) : HD_OK;
}

int hd_journal_open(struct hd_journal *j, struct hd_err *err)
{
	struct hd_err none = { 0 };
	char *path, *text;

	j->ids = j->lengths = -1;
	HD_TRY(j->ids = open_locked(j, err));
	path = name(j, ".part.json");
	text = hd_file_read(path, NULL, &none);
	free(path);
	if (text)
		read_state(j, text, err);
	free(text);
	HD_TRY(err->code);
	HD_TRY(resume_part(j, ".part.bin", j->ids, j->counts.tokens * j->width, err));
	HD_TRY(j->lengths = open_part(j, ".part.lengths", err));
	return resume_part(j, ".part.lengths", j->lengths, j->counts.documents * 4, err);
}

static int write_all(struct hd_journal *j, int fd, const void *at, size_t n, const char *ending, struct hd_err *err)
{
	for (const char *p = at; n;) {
		ssize_t k = write(fd, p, n);

		if (k < 0 && errno != EINTR)
			return io_fail(j, ending, err);
		p += k > 0 ? k : 0;
		n -= k > 0 ? (size_t)k : 0;
	}
	return HD_OK;
}

/* Closes sequences of an unfinished document that has more tokens than the index can count in one. Their negative
 * lengths tell write_index that the document goes on. */
static void close_full(struct hd_journal *j, struct hd_ids *closed)
{
	int32_t most = j->most ? j->most : INT32_MAX;

	for (; j->open > most; j->open -= most)
		hd_ids_add(closed, -most);
}

/* Adds the tokens that are already written of an unfinished document to the first length of e, which is its rest. */
static void close_document(struct hd_journal *j, struct hd_encoded *e, struct hd_ids *closed)
{
	if (!e->lengths.n)
		hd_ids_add(&e->lengths, 0);
	j->open += e->lengths.at[0];
	close_full(j, closed);
	e->lengths.at[0] = (int32_t)j->open;
	j->open = 0;
}

static int write_lengths(struct hd_journal *j, const struct hd_ids *lengths, struct hd_err *err)
{
	j->counts.documents += (int64_t)lengths->n;
	return write_all(j, j->lengths, lengths->at, lengths->n * 4, ".part.lengths", err);
}

int hd_journal_add(struct hd_journal *j, struct hd_encoded *e, struct hd_err *err)
{
	uint16_t *narrow = j->width == 2 ? hd_alloc((e->ids.n + 1) * 2) : NULL;
	struct hd_ids closed = { 0 };
	int rc;

	for (size_t i = 0; narrow && i < e->ids.n; i++)
		narrow[i] = (uint16_t)e->ids.at[i];
	rc = write_all(j, j->ids, narrow ? (void *)narrow : e->ids.at, e->ids.n * (size_t)j->width, ".part.bin", err);
	free(narrow);
	HD_TRY(rc);
	j->counts.tokens += (int64_t)e->ids.n;
	if (e->continues) {
		j->open += (int64_t)e->ids.n;
		close_full(j, &closed);
	} else if (j->open) {
		close_document(j, e, &closed);
	}
	rc = write_lengths(j, &closed, err);
	hd_ids_release(&closed);
	HD_TRY(rc);
	return write_lengths(j, &e->lengths, err);
}

int hd_journal_save(struct hd_journal *j, const struct hd_corpus_place *at, struct hd_err *err)
{
	char identity[20], *path = name(j, ".part.json"), *text;
	json_t *o;
	int rc;

	snprintf(identity, sizeof(identity), "%016llx", (unsigned long long)j->identity);
	o = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "identity", identity, "file",
		      (json_int_t)at->file, "byte", (json_int_t)at->byte, "line", (json_int_t)at->line, "documents",
		      (json_int_t)j->counts.documents, "tokens", (json_int_t)j->counts.tokens, "open",
		      (json_int_t)j->open, "bad", (json_int_t)j->bad, "text", (json_int_t)j->text, "notes",
		      j->notes ? j->notes : "");
	text = json_dumps(o, 0);
	if (fdatasync(j->ids) || fdatasync(j->lengths))
		rc = io_fail(j, ".part.bin", err);
	else
		rc = hd_file_write(path, text, err);
	if (rc >= 0)
		j->kept = j->counts;
	json_decref(o);
	free(text);
	free(path);
	return rc;
}

/* -- the index --------------------------------------------------------------------------------- */
static void put(FILE *f, const void *at, size_t n)
{
	fwrite(at, 1, n, f);
}

/* Returns the number of documents: sequences that do not go on in the next one. */
static int64_t documents_of(const int32_t *lengths, int64_t n)
{
	int64_t documents = 0;

	for (int64_t i = 0; i < n; i++)
		documents += lengths[i] >= 0;
	return documents;
}

/* Writes the index that engine/data reads. A document is one sequence, or several if it is too long for one. */
static void write_index(FILE *f, const int32_t *lengths, int64_t n, int64_t documents, int width)
{
	const unsigned char type = width == 2 ? 8 : 4;
	const uint64_t head[] = { (uint64_t)n, (uint64_t)documents + 1 }, version = 1;
	int64_t at = 0;

	put(f, "MMIDIDX\0", 9);
	put(f, &version, 8);
	put(f, &type, 1);
	put(f, head, sizeof(head));
	for (int64_t i = 0; i < n; i++)
		put(f, &(int32_t){ abs(lengths[i]) }, 4);
	for (int64_t i = 0; i < n; at += (int64_t)abs(lengths[i++]) * width)
		put(f, &at, 8);
	put(f, &(int64_t){ 0 }, 8);
	for (int64_t i = 0; i < n; i++)
		if (lengths[i] >= 0)
			put(f, &(int64_t){ i + 1 }, 8);
}

static int make_index(struct hd_journal *j, struct hd_err *err)
{
	int64_t sequences = j->counts.documents;
	size_t bytes = (size_t)sequences * 4;
	const int32_t *lengths = mmap(NULL, bytes, PROT_READ, MAP_SHARED, j->lengths, 0);
	char *path = name(j, ".part.idx");
	FILE *f = fopen(path, "wbe");
	int bad = !f || lengths == MAP_FAILED;

	free(path);
	if (!bad) {
		j->counts.documents = documents_of(lengths, sequences);
		write_index(f, lengths, sequences, j->counts.documents, j->width);
		bad = fflush(f) || ferror(f) || fsync(fileno(f));
	}
	if (bad)
		io_fail(j, ".part.idx", err);
	if (lengths != MAP_FAILED)
		munmap((void *)lengths, bytes);
	if (f)
		fclose(f);
	return err->code;
}

static int rename_part(struct hd_journal *j, const char *from, const char *to, struct hd_err *err)
{
	char *a = name(j, from), *b = name(j, to);
	int rc = rename(a, b) ? io_fail(j, to, err) : HD_OK;

	free(a);
	free(b);
	return rc;
}

static void remove_parts(struct hd_journal *j, const char *const *endings, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char *path = name(j, endings[i]);

		unlink(path);
		free(path);
	}
}

int hd_journal_finish(struct hd_journal *j, struct hd_err *err)
{
	/* .part.json is last: a new run that no longer finds it may create the others. */
	static const char *const made[] = { ".part.lengths", ".part.json" };

	HD_TRY(make_index(j, err));
	if (fsync(j->ids))
		return io_fail(j, ".part.bin", err);
	HD_TRY(rename_part(j, ".part.bin", ".bin", err));
	HD_TRY(rename_part(j, ".part.idx", ".idx", err));
	remove_parts(j, made, HD_LEN(made));
	return HD_OK;
}

void hd_journal_drop_empty(struct hd_journal *j)
{
	static const char *const all[] = { ".part.json", ".part.lengths", ".part.idx", ".part.bin" };

	if (j->lengths >= 0 && !j->kept.documents && !j->kept.tokens)
		remove_parts(j, all, HD_LEN(all));
}

void hd_journal_close(struct hd_journal *j)
{
	free(j->notes);
	if (j->ids >= 0)
		close(j->ids);
	if (j->lengths >= 0)
		close(j->lengths);
}
