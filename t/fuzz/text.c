/* SPDX-License-Identifier: Apache-2.0
 * Data: ids, texts, tokenizers, questions, and the numbers of a run.
 */
#include <config.h>
#include "t/fuzz/fuzz.h"
#include "engine/data/tokens.h"
#include "engine/report/report.h"
#include "engine/text/corpus/documents.h"
#include "engine/text/tokenizer.h"
#include "engine/evaluate/choices.h"
#include <stdlib.h>
#include <string.h>

/* -- ids --------------------------------------------------------------------------------------- */
static void read_ids(const char *path)
{
	enum { ROW = 8 };
	struct hd_tokens *t = NULL;
	struct hd_err err = { 0 };
	int32_t ids[ROW];

	hd_fuzz_judge(hd_tokens_open(path, NULL, &t, &err), &err);
	for (int64_t at = 0, rows = 0; t && at <= t->n - ROW && rows < 100; at += ROW, rows++) {
		struct hd_err why = { 0 };
		int rc = hd_tokens_read(t, at, ROW, 0, ids, &why);

		hd_fuzz_judge(rc, &why);
		for (int i = 0; i < ROW && rc >= 0; i++)
			if (ids[i] < 0)
				abort();
	}
	hd_tokens_close(t);
}

void hd_fuzz_megatron(const uint8_t *data, size_t n)
{
	static char bin[64];

	if (!*bin)
		hd_fuzz_file("ids.bin", memset(bin, 1, sizeof(bin)), sizeof(bin));
	read_ids(hd_fuzz_file("ids.idx", data, n));
}

void hd_fuzz_llmc(const uint8_t *data, size_t n)
{
	read_ids(hd_fuzz_file("llmc.bin", data, n));
}

/* -- texts ------------------------------------------------------------------------------------- */
static void lines(const struct hd_batch *b, struct hd_buf *text)
{
	const char *at = b->text.at, *end = at + b->text.n;

	for (int64_t line = b->line; at < end; line++) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));
		struct hd_span json = { at, (size_t)((stop ? stop : end) - at) };
		struct hd_err err = { 0 };
		int64_t bad = 0;

		text->n = 0;
		hd_fuzz_judge(hd_document_text(b, line, json, "text", text, &bad, &err), &err);
		at += json.n + 1;
	}
}

static void read_documents(const char *path, int format)
{
	struct hd_files files = { 0 };
	struct hd_documents d = { .files = &files, .format = format };
	struct hd_batch batch = { .line = 0 };
	struct hd_buf text = { 0 };
	struct hd_err err = { 0 };
	size_t all = 0;

	hd_fuzz_judge(hd_files_find(&path, 1, &files, &err), &err);
	while (!err.code && hd_documents_next(&d, 100, &batch, &err) >= 0 && batch.text.n && all < 1 << 22) {
		all += batch.text.n;
		if (batch.format == HD_FORMAT_JSONL)
			lines(&batch, &text);
	}
	hd_documents_close(&d);
	hd_buf_release(&batch.text);
	hd_buf_release(&text);
	hd_files_release(&files);
}

void hd_fuzz_jsonl(const uint8_t *data, size_t n)
{
	read_documents(hd_fuzz_file("x.jsonl", data, n), HD_FORMAT_AUTO);
}

void hd_fuzz_packed(const uint8_t *data, size_t n)
{
	read_documents(hd_fuzz_file("x.jsonl.gz", data, n), HD_FORMAT_AUTO);
}

void hd_fuzz_choices(const uint8_t *data, size_t n)
{
	struct hd_choices c = { 0 };
	struct hd_err err = { 0 };

	hd_fuzz_judge(hd_choices_read(hd_fuzz_file("choices.jsonl", data, n), NULL, 1, 16, &c, &err), &err);
	for (size_t i = 0; i < c.n && !err.code; i++)
		if (c.all[i].right < 0 || c.all[i].right >= c.all[i].n)
			abort();
	hd_choices_release(&c);
}

/* -- tokenizers -------------------------------------------------------------------------------- */
static void encode(const struct hd_tokenizer *t, const char *text, size_t n)
{
	struct hd_encoder *e = hd_encoder_create(t);
	struct hd_ids ids = { 0 };
	struct hd_buf back = { 0 };
	struct hd_err err = { 0 };

	hd_fuzz_judge(hd_encode(e, text, n, &ids, &err), &err);
	for (size_t i = 0; i < ids.n; i++)
		if (ids.at[i] < 0 || ids.at[i] >= hd_tokenizer_vocab(t))
			abort();
	err = (struct hd_err){ 0 };
	hd_fuzz_judge(hd_decode(t, ids.at, ids.n, &back, &err), &err);
	hd_encoder_destroy(e);
	hd_ids_release(&ids);
	hd_buf_release(&back);
}

void hd_fuzz_tokenizer(const uint8_t *data, size_t n)
{
	static const char usual[] = "Hello, world! 123  \n\t e\xcc\x81 \xe4\xb8\xad <s>x</s> \xff.";
	const uint8_t *end = memchr(data, 0, n);
	size_t json = end ? (size_t)(end - data) : n;
	struct hd_tokenizer *t = NULL;
	struct hd_err err = { 0 };

	hd_fuzz_judge(hd_tokenizer_open(hd_fuzz_file("tokenizer.json", data, json), &t, &err), &err);
	if (!t)
		return;
	encode(t, usual, sizeof(usual) - 1);
	if (end)
		encode(t, (const char *)end + 1, n - json - 1);
	hd_tokenizer_close(t);
}

/* -- metrics ----------------------------------------------------------------------------------- */
void hd_fuzz_metrics(const uint8_t *data, size_t n)
{
	struct hd_report *r = hd_alloc(sizeof(*r));
	struct hd_err err = { 0 };
	char *page = NULL;
	size_t bytes = 0;
	FILE *f;
	int rc = hd_curves_read(hd_fuzz_file("metrics.jsonl", data, n), &r->run[0], &err);

	hd_fuzz_judge(rc, &err);
	r->n = 1;
	f = rc >= 0 ? open_memstream(&page, &bytes) : NULL;
	if (f) {
		hd_report_page(f, r);
		fclose(f);
	}
	free(page);
	hd_curves_free(&r->run[0]);
	free(r);
}
