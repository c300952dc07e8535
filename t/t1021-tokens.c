/* SPDX-License-Identifier: Apache-2.0
 * Files of tokens.  If this broke, a file shorter than its header says would be found days later, not on opening,
 * or its ids would be misread.
 */
#include <config.h>
#include "engine/data/tokens.h"
#include "engine/text/corpus/corpus.h"
#include "t/lib/tap.h"
#include <unistd.h>

static struct hd_err err;
static struct hd_tokens *tokens;

static void put(const char *name, const void *bytes, size_t n)
{
	FILE *f = fopen(name, "w");

	if (!f || fwrite(bytes, 1, n, f) != n || fclose(f))
		printf("Bail out! cannot write %s\n", name);
}

/* Opens the files and returns the error, or "". */
static const char *try_open_as(const char *files, int format)
{
	struct hd_tokens_how how = { .format = format };

	hd_tokens_close(tokens);
	tokens = NULL;
	memset(&err, 0, sizeof(err));
	if (hd_tokens_open(files, &how, &tokens, &err) != err.code)
		return "the code is not that of the text";
	return err.text;
}

static const char *try_open(const char *files)
{
	return try_open_as(files, HD_DATA_AUTO);
}

static void llmc_files(void)
{
	uint32_t head[256] = { 20240520, 1, 5 }, wide[256 + 3] = { 20240801, 7, 3 };
	unsigned char file[1024 + 10];
	uint16_t ids[5] = { 1, 50256, 65535, 0, 7 };
	int32_t got[5];

	memcpy(file, head, 1024);
	memcpy(file + 1024, ids, 10);
	put("g.bin", file, sizeof(file));
	is_str(try_open("g.bin"), "", "a file of llm.c with ids of 16 bits is opened");
	is_int(tokens->vocab, 50257, "... and implies the vocab of GPT-2");
	ok(!hd_tokens_read(tokens, 0, 5, 0, got, &err) && got[1] == 50256 && got[2] == 65535 && got[4] == 7,
	   "... and its ids are read");
	try_open("g.bin");
	ok(hd_tokens_read(tokens, 0, 5, 50257, got, &err) == HD_EINVAL, "an id beyond the vocab is refused");
	is_str(err.text, "g.bin: token 2 has id 65535, which is not in a vocab of 50257",
	       "... and the message names the token");
	put("h.bin", file, sizeof(file) - 1);
	is_str(try_open("h.bin"),
	       "h.bin: has 1033 bytes, but its header says 5 "
	       "tokens, which need 1034",
	       "a truncated file of llm.c is refused");
	wide[256] = 100000;
	wide[258] = 3;
	put("w.bin", wide, sizeof(wide));
	is_str(try_open("w.bin"), "", "a file of llm.c with ids of 32 bits is opened");
	ok(!hd_tokens_read(tokens, 0, 3, 0, got, &err) && got[0] == 100000 && got[2] == 3,
	   "... and its wide ids are read");
	wide[1] = 8;
	put("w.bin", wide, sizeof(wide));
	is_str(try_open("w.bin"), "w.bin: version 8 of an llm.c file; only version 7 is known",
	       "an unknown version of llm.c's format is refused");
	put("n.bin", "none", 5);
	is_str(try_open("n.bin"),
	       "n.bin: neither llm.c's (it begins with "
	       "1701736302, not 20240520 or 20240801) nor Megatron's (there is no .idx next to it). "
	       "For ids without a header, set [data] format = uint16 or uint32",
	       "a file of neither format is refused");
	put("n.idx", "index", 5);
	is_str(try_open_as("n.bin", HD_DATA_LLMC),
	       "n.bin: not llm.c's (it begins with 1701736302, not 20240520 or 20240801). For ids of Megatron, set "
	       "[data] format = megatron, and for ids without a header, uint16 or uint32",
	       "format = llmc is refused, whether there is an .idx or not");
	remove("n.idx");
}

/* Writes m.bin (ids 0, 1, 2, ... of 16 bits) and m.idx.  Returns the size of m.idx in bytes. */
static size_t write_megatron(unsigned char *idx, int type, const int32_t *lengths, const int64_t *places, int n,
			     const int64_t *documents, int nd)
{
	uint64_t one = 1, un = (uint64_t)n, und = (uint64_t)nd;
	uint16_t ids[20];
	size_t at = 34;
	int i;

	for (i = 0; i < 20; i++)
		ids[i] = (uint16_t)i;
	put("m.bin", ids, sizeof(ids));
	memcpy(idx, "MMIDIDX\0", 9);
	memcpy(idx + 9, &one, 8);
	idx[17] = (unsigned char)type;
	memcpy(idx + 18, &un, 8);
	memcpy(idx + 26, &und, 8);
	memcpy(idx + at, lengths, 4 * un);
	memcpy(idx + at + 4 * un, places, 8 * un);
	memcpy(idx + at + 12 * un, documents, 8 * und);
	at += 12 * un + 8 * und;
	put("m.idx", idx, at);
	return at;
}

static void megatron_files(void)
{
	unsigned char idx[500];
	int32_t lengths[3] = { 8, 5, 7 }, ids[20];
	int64_t places[3] = { 0, 16, 26 }, moved[3] = { 24, 14, 0 }, docs[3] = { 0, 2, 3 }, swapped[4] = { 0, 0, 1, 3 };
	int64_t beyond[3] = { 0, 2, 4 }, before[3] = { -1, 2, 3 };
	size_t n = write_megatron(idx, 8, lengths, places, 3, docs, 3);
	int i, bad = 0;

	is_str(try_open("m.bin"), "", "a Megatron file is opened by the name of its .bin");
	hd_tokens_read(tokens, 0, 20, 20, ids, &err);
	for (i = 0; i < 20; i++)
		bad += ids[i] != i;
	is_int(bad, 0, "... and its ids are read");
	is_int(tokens->vocab, 0, "... and its vocab is unknown");
	is_int((long long)tokens->nruns, 1, "sequences that follow one another in the file are merged into one run");
	is_str(try_open("m.idx"), "", "... by that of its .idx");
	is_str(try_open("m"), "", "... or without an extension");
	is_str(try_open("m, a.txt"),
	       "a.txt is text, but m contains ids of a "
	       "tokenizer",
	       "ids and text together are refused");
	put("m.idx", idx, n - 1);
	is_str(try_open("m"),
	       "m.idx: has 93 bytes, but its header says 3 sequences "
	       "and 3 boundaries, which need 94",
	       "a truncated index is refused");
	put("m.idx", idx, 20);
	is_str(try_open("m"),
	       "m.idx: not a Megatron index (20 bytes, but its header "
	       "needs 34)",
	       "a truncated header is refused");
	write_megatron(idx, 8, lengths, moved, 3, swapped, 4);
	is_str(try_open("m"), "", "sequences in any order in the file are accepted");
	hd_tokens_read(tokens, 0, 20, 20, ids, &err);
	ok(ids[0] == 12 && ids[7] == 19 && ids[8] == 7 && ids[12] == 11 && ids[13] == 0 && ids[19] == 6,
	   "... and are read in the order of the documents");
	write_megatron(idx, 8, lengths, places, 3, beyond, 3);
	is_str(try_open("m"), "m.idx: document 1 is sequences 2 to 4 of 3",
	       "a document that ends after the last sequence is refused");
	write_megatron(idx, 8, lengths, places, 3, before, 3);
	is_str(try_open("m"), "m.idx: document 0 is sequences -1 to 2 of 3",
	       "a document that begins before the first sequence is refused");
	lengths[2] = 8;
	write_megatron(idx, 8, lengths, places, 3, docs, 3);
	is_str(try_open("m"),
	       "m.bin: has 40 bytes, but m.idx puts sequence 2, of 8 tokens, "
	       "at byte 26",
	       "truncated data is refused");
	write_megatron(idx, 7, lengths, places, 3, docs, 3);
	is_str(try_open("m"), "m.idx: type 7 is not a type of ids (1 to 5 and 8 are)", "an index of floats is refused");
	write_megatron(idx, 200, lengths, places, 3, docs, 3);
	is_str(try_open("m"), "m.idx: type 200 is not a type of ids (1 to 5 and 8 are)",
	       "an index of an unknown type is refused");
}

static void unread_ids(void)
{
	unsigned char idx[500];
	int32_t lengths[3] = { 8, 5, 7 };
	int64_t places[3] = { 0, 16, 26 }, docs[3] = { 0, 2, 3 };

	write_megatron(idx, 8, lengths, places, 3, docs, 3);
	is_str(try_open("m"), "", "documents may cover all ids");
	ok(!tokens->notes, "... and then there is no note");
	write_megatron(idx, 8, lengths, places, 3, docs, 2);
	is_str(try_open("m"), "", "sequences may follow the last document");
	is_str(tokens->notes ? tokens->notes : "",
	       "m.bin: 7 of its 20 tokens are in no document of m.idx, so they stay unread\n",
	       "... and a note tells how many ids stay unread");
	is_int(tokens->n, 13, "... which the stream does not have");
}

static void damaged_megatron_files(void)
{
	unsigned char idx[500];
	int32_t lengths[3] = { 8, 5, -7 };
	int64_t places[3] = { 0, 16, 26 }, far[3] = { 0, 16, 41 }, docs[3] = { 0, 2, 3 }, back[4] = { 0, 2, 1, 3 };
	uint64_t many = (uint64_t)1 << 61;
	size_t n = write_megatron(idx, 8, lengths, places, 3, docs, 3);

	is_str(try_open("m"), "m.bin: has 40 bytes, but m.idx puts sequence 2, of -7 tokens, at byte 26",
	       "a sequence of negative length is refused");
	lengths[2] = 7;
	write_megatron(idx, 8, lengths, far, 3, docs, 3);
	is_str(try_open("m"), "m.bin: has 40 bytes, but m.idx puts sequence 2, of 7 tokens, at byte 41",
	       "a sequence that begins after the end of the data is refused");
	write_megatron(idx, 8, lengths, places, 3, back, 4);
	is_str(try_open("m"), "m.idx: document 1 is sequences 2 to 1 of 3",
	       "a document that ends before it begins is refused");
	n = write_megatron(idx, 8, lengths, places, 3, docs, 3);
	memcpy(idx + 18, &many, 8);
	put("m.idx", idx, n);
	ok(strstr(try_open("m"),
		  "m.idx: has 94 bytes, but its header says 2305843009213693952 sequences and 3 boundaries, "),
	   "a number of sequences whose size overflows is refused");
	n = write_megatron(idx, 8, lengths, places, 3, docs, 3);
	memcpy(idx + 26, &many, 8);
	put("m.idx", idx, n);
	ok(strstr(try_open("m"),
		  "m.idx: has 94 bytes, but its header says 3 sequences and 2305843009213693952 boundaries, "),
	   "... as is such a number of boundaries");
	idx[0] = 'N';
	put("m.idx", idx, n);
	is_str(try_open("m"), "m.idx: not a Megatron index (94 bytes that do not begin with MMIDIDX)",
	       "an index of another format is refused");
	put("m.idx", idx, 0);
	is_str(try_open("m"), "m.idx: the file is empty", "an empty index is refused");
	ok(!unlink("m.idx") && !symlink("/dev/null", "m.idx"), "the index is replaced by a link to a device");
	is_str(try_open("m"), "m.idx: not a regular file", "... which is refused");
}

/* Adds n ids, which continue a document, or end it if length is its number of them. */
static void add_ids(struct hd_journal *j, int n, int length)
{
	struct hd_encoded e = { .continues = !length };

	for (int i = 0; i < n; i++)
		hd_ids_add(&e.ids, (int32_t)(j->counts.tokens + i));
	if (length)
		hd_ids_add(&e.lengths, length);
	if (length && n > length)
		hd_ids_add(&e.lengths, n - length);
	hd_journal_add(j, &e, &err);
	hd_ids_release(&e.ids);
	hd_ids_release(&e.lengths);
}

/* What tokenize writes of a document with more tokens than a sequence may have, here 4 instead of 2^31. */
static void long_documents(void)
{
	struct hd_journal j = { .prefix = "long", .width = 2, .most = 4 };
	struct hd_corpus_place at = { 0, 6, 0 };
	unsigned char idx[34 + 4 * 12 + 3 * 8 + 1];
	int32_t lengths[4];
	int64_t documents[3];
	FILE *f;

	memset(&err, 0, sizeof(err));
	hd_journal_open(&j, &err);
	add_ids(&j, 6, 0);
	hd_journal_save(&j, &at, &err);
	hd_journal_close(&j);
	j = (struct hd_journal){ .prefix = "long", .width = 2, .most = 4 };
	hd_journal_open(&j, &err);
	is_int(j.open, 2, "a document that is too long for one sequence goes on after a stop");
	add_ids(&j, 5, 3);
	is_int(hd_journal_finish(&j, &err), HD_OK, "... and is written completely");
	is_int(j.counts.documents, 2, "... as one document, before another");
	hd_journal_close(&j);
	f = fopen("long.idx", "r");
	is_int(f ? fread(idx, 1, sizeof(idx), f) : 0, sizeof(idx) - 1, "the index has 4 sequences and 3 boundaries");
	memcpy(lengths, idx + 34, sizeof(lengths));
	memcpy(documents, idx + 34 + 4 * 12, sizeof(documents));
	ok(lengths[0] == 4 && lengths[1] == 4 && lengths[2] == 1 && lengths[3] == 2, "... of at most 4 tokens");
	ok(!documents[0] && documents[1] == 3 && documents[2] == 4, "... of which the first three are one document");
	is_str(try_open("long"), "", "... and is opened");
	is_int(tokens->n, 11, "... with all tokens");
	if (f)
		fclose(f);
}

int main(void)
{
	char dir[] = "/tmp/heddle-tokens-XXXXXX";

	if (!mkdtemp(dir) || chdir(dir))
		skip_all("no place for files");
	put("a.txt", "text", 4);
	llmc_files();
	megatron_files();
	unread_ids();
	damaged_megatron_files();
	long_documents();
	hd_tokens_close(tokens);
	if (system("rm -f *.txt *.bin *.idx"))
		note("files are left in %s", dir);
	rmdir(dir);
	return done();
}
