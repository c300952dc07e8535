/* SPDX-License-Identifier: Apache-2.0
 * Tokenizes a corpus in rounds. While threads encode one batch, one thread reads the next; then the ids are written in
 * the order of the text.
 */
#include <config.h>
#include "engine/text/corpus/corpus.h"
#include "engine/base/hash.h"
#include "engine/file/disk_room.h"
#include "engine/file/same_file.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BATCH (1 << 20) /* bytes per round and thread */

struct corpus_run {
	const struct hd_corpus *c;
	struct hd_files files;
	struct hd_documents documents;
	struct hd_journal journal;
	struct hd_encoders encoders;
	struct hd_round round[2];
	double started, shown;
	const char *of; /* path of the file whose bytes are being counted; NULL: none yet */
	int64_t began;  /* bytes done by an earlier run */
};

/* -- progress ---------------------------------------------------------------------------------- */
static void show(struct corpus_run *r, int last)
{
	double now = hd_seconds(), took = now - r->started;
	int64_t done = hd_documents_read(&r->documents);
	int terminal = isatty(2);

	if (!r->c->shows || (!last && now - r->shown < (terminal ? 0.5 : 10)))
		return;
	r->shown = now;
	fprintf(stderr, "%stokenize: %.1f of %.1f MB, %lld document%s, %lld token%s, %.1f MB/s%s", terminal ? "\r" : "",
		(double)done / 1e6, (double)r->files.bytes / 1e6, (long long)r->journal.counts.documents,
		hd_plural(r->journal.counts.documents, "s"), (long long)r->journal.counts.tokens,
		hd_plural(r->journal.counts.tokens, "s"), took > 0 ? (double)(done - r->began) / 1e6 / took : 0,
		terminal && !last ? "  " : "\n");
}

/* -- room ---------------------------------------------------------------------------------------- */
#define LITTLE (1 << 20) /* bytes of text after which the rest can be estimated */

/* Refuses to go on if the disk lacks room for what is still to be written, as estimated from the text read so far.
 * That is the ids, the index, and the lengths, which are kept in a file of their own until the end. */
static int check_room(struct corpus_run *r, const struct hd_round *now, struct hd_err *err)
{
	double read = (double)hd_documents_read(&r->documents), all = (double)r->files.bytes;
	double tokens = (double)r->journal.counts.tokens, documents = (double)r->journal.counts.documents, need, left;

	for (size_t i = 0; i < now->nparts; i++) {
		tokens += (double)now->parts[i].made.ids.n;
		documents += (double)now->parts[i].made.lengths.n;
	}
	if (read < all && read < LITTLE)
		return HD_OK;
	need = all / read * (tokens * r->journal.width + documents * (4 + 4 + 8 + 8));
	need -= (double)r->journal.counts.tokens * r->journal.width;
	left = hd_disk_left(r->c->out);
	if (need <= left)
		return HD_OK;
	return hd_err_set(
		err, HD_EIO,
		"%s.bin: the ids of the rest of %.1f MB of text take about %.1f MB of disk space, but %.1f MB are "
		"free there",
		r->c->out, all / 1e6, need / 1e6, left / 1e6);
}

/* -- rounds ------------------------------------------------------------------------------------ */
static void encode_part(struct corpus_run *r, struct hd_round *now, size_t i)
{
	int thread = omp_get_thread_num();

	hd_part_encode(r->c, now, &now->parts[i], r->encoders.all[thread], &r->encoders.text[thread]);
}

static void encode_and_read(struct corpus_run *r, struct hd_round *now, struct hd_round *next, struct hd_err *err)
{
	size_t n = now->nparts;

	hd_round_cut(now, &r->documents.cutter);
	n = now->nparts;
#pragma omp parallel
#pragma omp single
	{
		for (size_t i = 0; i < n; i++) {
#pragma omp task firstprivate(i)
			encode_part(r, now, i);
		}
		hd_documents_next(&r->documents, (size_t)BATCH * (size_t)r->encoders.n, &next->batch, err);
	}
}

/* -- bytes that count as U+FFFD ------------------------------------------------------------------ */
/* Notes the bad bytes of the file that has ended. The note is made valid UTF-8: it is kept in JSON, and a path need
 * not be UTF-8. */
static void end_count(struct corpus_run *r)
{
	struct hd_journal *j = &r->journal;

	if (r->of && j->bad) {
		char *text = hd_invalid_text(r->of, j->bad, j->text);
		struct hd_buf valid = { 0 };

		hd_utf8_repair(text, strlen(text), &valid);
		hd_append(&j->notes, "%.*s\n", (int)valid.n, valid.at);
		hd_buf_release(&valid);
		free(text);
	}
	j->bad = j->text = 0;
}

static void count(struct corpus_run *r, const struct hd_round *now, const struct hd_corpus_place *behind)
{
	if (r->of != now->batch.path)
		end_count(r);
	r->of = now->batch.path;
	r->journal.text += (int64_t)now->batch.text.n;
	for (size_t i = 0; i < now->nparts; i++)
		r->journal.bad += now->parts[i].bad;
	if (!behind->byte)
		end_count(r);
}

/* -- rounds ------------------------------------------------------------------------------------ */
static int write_round(struct corpus_run *r, struct hd_round *now, const struct hd_corpus_place *behind,
		       struct hd_err *err)
{
	for (size_t i = 0; i < now->nparts; i++) {
		struct hd_part *p = &now->parts[i];

		if (p->err.code)
			return hd_err_set(err, p->err.code, "%s", p->err.text);
		HD_TRY(hd_journal_add(&r->journal, &p->made, err));
	}
	count(r, now, behind);
	return hd_journal_save(&r->journal, behind, err);
}

static int rounds(struct corpus_run *r, struct hd_err *err)
{
	struct hd_round *now = &r->round[0], *next = &r->round[1], *swap;
	struct hd_err reading = { 0 };
	struct hd_corpus_place behind;

	HD_TRY(hd_documents_next(&r->documents, (size_t)BATCH * (size_t)r->encoders.n, &now->batch, err));
	while (now->batch.text.n) {
		behind = r->documents.at;
		encode_and_read(r, now, next, &reading);
		HD_TRY(check_room(r, now, err));
		HD_TRY(write_round(r, now, &behind, err));
		if (reading.code)
			return hd_err_set(err, reading.code, "%s", reading.text);
		show(r, 0);
		swap = now;
		now = next;
		next = swap;
	}
	return HD_OK;
}

/* -- all --------------------------------------------------------------------------------------- */
static uint64_t identity(const struct corpus_run *r)
{
	uint64_t h = hd_files_hash(&r->files);

	h = hd_hash_add(h, r->c->tokenizer ? hd_tokenizer_hash(r->c->tokenizer) : 0);
	h = hd_hash_add(h, (uint64_t)(int64_t)r->c->begin);
	h = hd_hash_add(h, (uint64_t)(int64_t)r->c->end);
	h = hd_hash_add(h, (uint64_t)r->c->format);
	return hd_hash_add_text(h, r->c->field);
}

/* Refuses a path of the output that is also read as the tokenizer or as text. */
static int check_output(const struct corpus_run *r, const char *path, struct hd_err *err)
{
	const struct hd_tokenizer *t = r->c->tokenizer;

	if (t && hd_file_same(hd_tokenizer_path(t), path))
		return hd_err_set(err, HD_EINVAL,
				  "tokenize: --out %s: %s is read as the tokenizer too; give another prefix", r->c->out,
				  path);
	for (size_t i = 0; i < r->files.n; i++)
		if (hd_file_same(r->files.all[i].path, path))
			return hd_err_set(err, HD_EINVAL,
					  "tokenize: --out %s: %s is read as text too; give another prefix", r->c->out,
					  path);
	return HD_OK;
}

static int check_outputs(const struct corpus_run *r, struct hd_err *err)
{
	static const char *const endings[] = {
		".bin", ".idx", ".part.bin", ".part.idx", ".part.lengths", ".part.json"
	};

	for (size_t i = 0; i < HD_LEN(endings); i++) {
		char *path = hd_format("%s%s", r->c->out, endings[i]);

		if (!access(path, F_OK)) /* a file that does not exist cannot be an input */
			check_output(r, path, err);
		free(path);
		HD_TRY(err->code);
	}
	return HD_OK;
}

static int start(struct corpus_run *r, struct hd_err *err)
{
	const struct hd_corpus *c = r->c;
	int64_t vocab = c->tokenizer ? hd_tokenizer_vocab(c->tokenizer) : 256;

	HD_TRY(hd_files_find(c->names, c->nnames, &r->files, err));
	HD_TRY(check_outputs(r, err));
	r->journal = (struct hd_journal){ .prefix = c->out, .identity = identity(r), .width = vocab < 65500 ? 2 : 4 };
	HD_TRY(hd_journal_open(&r->journal, err));
	r->documents = (struct hd_documents){ .files = &r->files, .format = c->format, .at = r->journal.at };
	r->documents.cutter.encoder = c->tokenizer ? hd_encoder_create(c->tokenizer) : NULL;
	for (int64_t i = 0; i < r->journal.at.file; i++)
		r->documents.done += r->files.all[i].bytes;
	r->began = r->documents.done;
	r->of = r->journal.at.byte ? r->files.all[r->journal.at.file].path : NULL;
	if (c->shows && r->journal.counts.documents)
		hd_log(HD_LOG_INFO, "%s: continuing after %lld documents", c->out,
		       (long long)r->journal.counts.documents);
	hd_encoders_create(&r->encoders, c->tokenizer);
	return HD_OK;
}

static int run(struct corpus_run *r, struct hd_err *err)
{
	HD_TRY(start(r, err));
	HD_TRY(rounds(r, err));
	end_count(r);
	show(r, 1);
	if (!r->journal.counts.documents)
		return hd_err_set(err, HD_EINVAL, "%s: they contain no text", r->c->names[0]);
	return hd_journal_finish(&r->journal, err);
}

int hd_corpus_tokenize(const struct hd_corpus *c, struct hd_corpus_counts *counts, char **notes, struct hd_err *err)
{
	struct corpus_run r = { .c = c, .journal = { .ids = -1, .lengths = -1 }, .started = hd_seconds() };

	r.shown = r.started;
	if (run(&r, err) < 0)
		hd_journal_drop_empty(&r.journal);
	*counts = r.journal.counts;
	*notes = hd_strdup(r.journal.notes ? r.journal.notes : "");
	hd_round_release(&r.round[0]);
	hd_round_release(&r.round[1]);
	hd_encoders_destroy(&r.encoders);
	hd_documents_close(&r.documents);
	hd_journal_close(&r.journal);
	hd_files_release(&r.files);
	return err->code;
}
