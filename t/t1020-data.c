/* SPDX-License-Identifier: Apache-2.0
 * Samples: which tokens a step sees must depend on the seed and the step alone, each token is
 * seen once in an epoch, and a file that is not what it says is refused with both numbers.
 */
#include <config.h>
#include "engine/data.h"
#include "engine/rng.h"
#include "t/lib/tap.h"
#include <unistd.h>

static struct hd_err err;
static struct hd_data *data;

static void put(const char *name, const void *bytes, size_t n)
{
	FILE *f = fopen(name, "w");

	if (!f || fwrite(bytes, 1, n, f) != n || fclose(f))
		printf("Bail out! cannot write %s\n", name);
}

/* Opens with this [data]; the error, or "". */
static const char *try_open(const char *keys, int64_t seq, int64_t vocab, uint64_t seed)
{
	char *text = hd_format("[data]\n%s\n", keys);
	struct hd_conf *c;
	int rc;

	hd_data_close(data);
	data = NULL;
	memset(&err, 0, sizeof(err));
	rc = hd_conf_parse("x.ini", text, NULL, 0, &c, &err);
	if (!rc) {
		rc = hd_data_open(c, seq, vocab, seed, &data, &err);
		hd_conf_destroy(c);
	}
	if (rc != err.code)
		snprintf(err.text, sizeof(err.text), "code %d, but %d with the text", rc, err.code);
	free(text);
	return err.text;
}

static void text_file(void)
{
	unsigned char bytes[1000];
	int32_t ids[11];
	int i, j, bad = 0, seen[100] = {0};

	for (i = 0; i < 1000; i++)
		bytes[i] = (unsigned char)(i / 10); /* the value tells the window for seq = 10 */
	put("a.txt", bytes, 1000);
	is_str(try_open("train = a.txt\norder = sequential", 10, 256, 1), "", "text");
	is_int(hd_data_vocab(data), 256, "has 256 ids");
	is_int(hd_data_tokens(data, 0), 900, "nine tenths train");
	is_int(hd_data_tokens(data, 1), 100, "one tenth validates");
	is_int(hd_data_valid_samples(data), 9, "windows that share their ends");
	for (j = 0; j < 200; j++) { /* 89 windows: (900 - 1) / 10 */
		bad += hd_data_sample(data, 2 * j, j % 2, ids, &err) != 0;
		for (i = 0; i < 11; i++)
			bad += ids[i] != bytes[(2 * j + j % 2) % 89 * 10 + i];
	}
	is_int(bad, 0, "sequential, over epochs");
	for (j = 0; j < 9; j++) {
		bad += hd_data_valid_sample(data, j, ids, &err) != 0;
		for (i = 0; i < 11; i++)
			bad += ids[i] != bytes[900 + 10 * j + i];
	}
	is_int(bad, 0, "validation, in order");
	is_str(try_open("train = a.txt", 10, 0, 1), "", "random order");
	for (j = 0; j < 89; j++) {
		bad += hd_data_sample(data, 0, j, ids, &err) != 0;
		seen[ids[0]]++;
		bad += ids[0] != ids[9] || ids[10] != ids[0] + 1;
	}
	for (j = 0; j < 89; j++)
		bad += seen[j] != 1;
	is_int(bad, 0, "the first epoch has every window once");
}

/* The sum over samples of a hash of their ids. */
static uint64_t mark(int64_t first, int64_t count)
{
	uint64_t sum = 0, h;
	int32_t ids[11];
	int64_t i;
	int k;

	for (i = 0; i < count; i++) {
		hd_data_sample(data, first, i, ids, &err);
		for (k = 0, h = 0; k < 11; k++)
			h = hd_hash64(h + (uint64_t)ids[k]);
		sum = hd_hash64(sum ^ h);
	}
	return sum;
}

static void orders(void)
{
	unsigned char bytes[1009];
	int32_t a[11], b[11];
	uint64_t one, two, other;
	int i;

	for (i = 0; i < 1009; i++)
		bytes[i] = (unsigned char)hd_random_bits(1, (uint64_t)i);
	put("r.txt", bytes, 1009);
	try_open("train = r.txt\nvalid_fraction = 0", 10, 256,
		 1); /* 100 windows, 8 tokens are left */
	is_int(hd_data_valid_samples(data), 0, "no validation split");
	one = mark(0, 100);
	two = mark(100, 100);
	ok(one != two, "epochs differ");
	hd_data_sample(data, 7, 5, a, &err);
	hd_data_sample(data, 10, 2, b, &err);
	ok(!memcmp(a, b, sizeof(a)), "a sample is its number, whatever the batches before it");
	try_open("train = r.txt\nvalid_fraction = 0", 10, 256, 2);
	other = mark(0, 100);
	ok(other != one, "seeds differ");
	try_open("train = r.txt\nvalid_fraction = 0", 10, 256, 1);
	ok(mark(0, 100) == one && mark(100, 100) == two, "and the same one repeats");
	is_int((long long)(one >> 1), 6879925959534674915ll,
	       "frozen: the order of a seed never changes");
}

static void lists(void)
{
	int32_t ids[8];

	put("1.txt", "abc", 3);
	put("2.txt", "d", 1);
	put("3.txt", "efghi", 5);
	is_str(try_open("train = 1.txt, 2.txt,3.txt\nvalid = 3.txt, 1.txt\norder = sequential", 7,
			256, 1),
	       "", "several files");
	hd_data_sample(data, 0, 0, ids, &err);
	ok(ids[0] == 'a' && ids[2] == 'c' && ids[3] == 'd' && ids[4] == 'e' && ids[7] == 'h',
	   "are one stream");
	hd_data_valid_sample(data, 0, ids, &err);
	ok(ids[0] == 'e' && ids[4] == 'i' && ids[5] == 'a', "so is the validation split");
	ok(hd_data_sample(data, -1, 0, ids, &err) == HD_EBUG, "a sample before the first");
	hd_data_close(data);
	data = NULL;
	memset(&err, 0, sizeof(err));
	ok(!hd_data_open_file("3.txt", 2, 256, &data, &err) && hd_data_valid_samples(data) == 2,
	   "one file to evaluate");
	hd_data_valid_sample(data, 1, ids, &err);
	ok(ids[0] == 'g' && ids[2] == 'i', "its second window");
	hd_data_close(data);
	data = NULL;
	hd_data_open_file("3.txt", 5, 256, &data, &err);
	is_str(err.text, "3.txt: 5 tokens, fewer than seq + 1 = 6", "too short to evaluate");
}

static void llmc_files(void)
{
	uint32_t head[256] = {20240520, 1, 5}, wide[256 + 3] = {20240801, 7, 3};
	unsigned char file[1024 + 10];
	uint16_t ids[5] = {1, 50256, 65535, 0, 7};
	int32_t got[5];

	memcpy(file, head, 1024);
	memcpy(file + 1024, ids, 10);
	put("g.bin", file, sizeof(file));
	is_str(try_open("train = g.bin\nvalid_fraction = 0\norder = sequential", 4, 0, 1), "",
	       "llm.c, 16 bits");
	is_int(hd_data_vocab(data), 50257, "implies GPT-2's vocab");
	ok(!hd_data_sample(data, 0, 0, got, &err) && got[1] == 50256 && got[2] == 65535 &&
		   got[4] == 7,
	   "ids");
	try_open("train = g.bin\nvalid_fraction = 0\norder = sequential", 4, 50257, 1);
	ok(hd_data_sample(data, 0, 0, got, &err) == HD_EINVAL, "an id beyond the vocab");
	is_str(err.text, "g.bin: token 2 has id 65535, which is not in a vocab of 50257",
	       "is named");
	put("h.bin", file, sizeof(file) - 1);
	is_str(try_open("train = h.bin", 4, 0, 1),
	       "x.ini:2: [data] train: h.bin: 1033 bytes, its header tells of 5 "
	       "tokens, which need 1034",
	       "truncated");
	wide[256] = 100000;
	wide[258] = 3;
	put("w.bin", wide, sizeof(wide));
	is_str(try_open("train = w.bin\nvalid_fraction = 0", 2, 0, 1), "", "llm.c, 32 bits");
	ok(!hd_data_sample(data, 0, 0, got, &err) && got[0] == 100000 && got[2] == 3, "ids");
	wide[1] = 8;
	put("w.bin", wide, sizeof(wide));
	is_str(try_open("train = w.bin", 2, 0, 1),
	       "x.ini:2: [data] train: w.bin: version 8 of an llm.c file, 7 is known", "version");
	put("n.bin", "none", 5);
	is_str(try_open("train = n.bin", 2, 0, 1),
	       "x.ini:2: [data] train: n.bin: neither llm.c's (it begins with "
	       "1701736302, not 20240520 or 20240801) nor Megatron's (there is no .idx beside it)",
	       "neither");
}

/* Writes m.bin (ids 0, 1, 2, ... of 16 bits) and m.idx; -> bytes of the latter. */
static size_t write_megatron(unsigned char *idx, int type, const int32_t *lengths,
			     const int64_t *places, int n, const int64_t *documents, int nd)
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
	int32_t lengths[3] = {8, 5, 7}, ids[20];
	int64_t places[3] = {0, 16, 26}, moved[3] = {24, 14, 0}, docs[3] = {0, 2, 3},
		swapped[4] = {0, 0, 1, 3};
	size_t n = write_megatron(idx, 8, lengths, places, 3, docs, 3);
	int i, bad = 0;

	is_str(try_open("train = m.bin\nvalid_fraction = 0", 19, 20, 1), "",
	       "Megatron, by its .bin");
	hd_data_sample(data, 0, 0, ids, &err);
	for (i = 0; i < 20; i++)
		bad += ids[i] != i;
	is_int(bad, 0, "ids");
	is_int(hd_data_vocab(data), 0, "which vocab is not known");
	is_str(try_open("train = m.idx\nvalid_fraction = 0", 19, 20, 1), "", "by its .idx");
	is_str(try_open("train = m\nvalid_fraction = 0", 19, 20, 1), "", "by its name");
	is_str(try_open("train = m, a.txt", 2, 0, 1),
	       "x.ini:2: [data] train: a.txt is text and m.bin holds ids of a "
	       "tokenizer",
	       "with text");
	is_str(try_open("train = m\nvalid = a.txt", 2, 0, 1),
	       "x.ini:3: [data] valid: text, but train is ids of a "
	       "tokenizer",
	       "validated with text");
	put("m.idx", idx, n - 1);
	is_str(try_open("train = m", 2, 0, 1),
	       "x.ini:2: [data] train: m.idx: 93 bytes, its header tells of 3 sequences "
	       "and 3 boundaries, which need 94",
	       "truncated index");
	put("m.idx", idx, 20);
	is_str(try_open("train = m", 2, 0, 1),
	       "x.ini:2: [data] train: m.idx: not a Megatron index (20 bytes, its header "
	       "needs 34)",
	       "truncated header");
	write_megatron(idx, 8, lengths, moved, 3, swapped, 4);
	is_str(try_open("train = m\nvalid_fraction = 0\norder = sequential", 19, 20, 1), "",
	       "scattered sequences");
	hd_data_sample(data, 0, 0, ids, &err);
	ok(ids[0] == 12 && ids[7] == 19 && ids[8] == 7 && ids[12] == 11 && ids[13] == 0 &&
		   ids[19] == 6,
	   "come in the order of the documents");
	lengths[2] = 8;
	write_megatron(idx, 8, lengths, places, 3, docs, 3);
	is_str(try_open("train = m", 2, 0, 1),
	       "x.ini:2: [data] train: m.bin: 40 bytes, m.idx puts sequence 2, 8 tokens, "
	       "at byte 26",
	       "truncated data");
	write_megatron(idx, 7, lengths, places, 3, docs, 3);
	is_str(try_open("train = m", 2, 0, 1),
	       "x.ini:2: [data] train: m.idx: type 7 is not one of ids (1 to 5 and 8 are)",
	       "floats");
}

static void refused(void)
{
	static const char tokens[] =
		"{\"model\":{\"vocab\":{\"a\":0,\"b\":5}},\"added_tokens\":[{\"id\":9}]}";

	put("e.txt", "", 0);
	put("tokenizer.json", tokens, strlen(tokens));
	is_str(try_open("", 2, 0, 1), "x.ini:1: [data] train: missing; it has no default",
	       "no key");
	is_str(try_open("train = no.txt", 2, 0, 1),
	       "x.ini:2: [data] train: no.txt: No such file or directory", "no file");
	is_str(try_open("train = e.txt", 2, 0, 1),
	       "x.ini:2: [data] train: e.txt: the file is empty", "empty");
	is_str(try_open("train = .", 2, 0, 1), "x.ini:2: [data] train: .: not a regular file",
	       "a directory");
	is_str(try_open("train = 1.txt,,2.txt", 2, 0, 1),
	       "x.ini:2: [data] train: '1.txt,,2.txt' has an empty name of a "
	       "file",
	       "an empty name");
	is_str(try_open("train = a.txt", 900, 0, 1),
	       "x.ini:2: [data] train: 900 tokens without the validation split, "
	       "fewer than train.seq + 1 = 901",
	       "short for training");
	is_str(try_open("train = a.txt", 100, 0, 1),
	       "x.ini: [data] valid_fraction: 0.1 of 1000 tokens is 100, fewer than "
	       "train.seq + 1 = 101; 0 is for no validation",
	       "short for validation");
	is_str(try_open("train = a.txt\nvalid = 1.txt", 3, 0, 1),
	       "x.ini:3: [data] valid: 3 tokens, fewer than train.seq "
	       "+ 1 = 4",
	       "short file for validation");
	is_str(try_open("train = a.txt\nvalid = 1.txt\nvalid_fraction = 0.5", 3, 0, 1),
	       "x.ini:4: [data] valid_fraction: not together with valid = 1.txt", "two splits");
	is_str(try_open("train = a.txt\ntokenizer = .", 3, 0, 1),
	       "x.ini:3: [data] tokenizer: text is read as bytes; for . "
	       "give [data] train as ids that it has made (.bin)",
	       "text with a tokenizer");
	is_int(err.code, HD_ENOTSUP, "is not supported");
	is_str(try_open("train = g.bin\nvalid_fraction = 0\ntokenizer = none", 4, 0, 1),
	       "x.ini:4: [data] tokenizer: "
	       "unable to open none/tokenizer.json: No such file or directory",
	       "no tokenizer");
	is_str(try_open("train = g.bin\nvalid_fraction = 0\ntokenizer = .", 4, 0, 1), "",
	       "ids with their tokenizer");
	is_int(hd_data_vocab(data), 10, "whose vocab it is");
	put("tokenizer.json", "{\n\"model\"", 9);
	is_str(try_open("train = g.bin\nvalid_fraction = 0\ntokenizer = .", 4, 0, 1),
	       "x.ini:4: [data] tokenizer: "
	       "./tokenizer.json:2: ':' expected near end of file",
	       "a truncated tokenizer");
	is_str(try_open("train = a.txt\norder = randm", 3, 0, 1),
	       "x.ini:3: [data] order: 'randm' is not a choice; did you "
	       "mean random?",
	       "order");
}

int main(void)
{
	char dir[] = "/tmp/heddle-data-XXXXXX";

	if (!mkdtemp(dir) || chdir(dir))
		skip_all("no place for files");
	text_file();
	orders();
	lists();
	llmc_files();
	megatron_files();
	refused();
	hd_data_close(data);
	if (system("rm -f *.txt *.bin *.idx tokenizer.json"))
		note("files are left in %s", dir);
	rmdir(dir);
	return done();
}
