/* SPDX-License-Identifier: Apache-2.0
 * Samples of training data: the tokens of a step depend only on the seed and the step, and each token is seen once in
 * an epoch.  If this broke, a resumed run would see other data, or a damaged file would be trained on.
 */
#include <config.h>
#include "engine/data/data.h"
#include "engine/base/rng.h"
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

/* Opens the data of a [data] section with these keys and returns the error, or "". */
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
	int i, j, bad = 0, seen[100] = { 0 };

	for (i = 0; i < 1000; i++)
		bytes[i] = (unsigned char)(i / 10 + 1); /* with seq = 10, the value identifies the window */
	put("a.txt", bytes, 1000);
	is_str(try_open("train = a.txt\norder = sequential", 10, 256, 1), "", "a text file is opened");
	is_int(hd_data_vocab(data), 256, "text has a vocab of 256");
	is_int(hd_data_tokens(data, 0), 900, "nine tenths of the tokens are for training");
	is_int(hd_data_tokens(data, 1), 100, "one tenth is for validation");
	is_int(hd_data_valid_samples(data, 0), 9, "validation windows share their ends");
	for (j = 0; j < 200; j++) { /* 89 windows: (900 - 1) / 10 */
		bad += hd_data_sample(data, 2 * j, j % 2, ids, &err) != 0;
		for (i = 0; i < 11; i++)
			bad += ids[i] != bytes[(2 * j + j % 2) % 89 * 10 + i];
	}
	is_int(bad, 0, "sequential order gives the windows in turn, over several epochs");
	for (j = 0; j < 9; j++) {
		bad += hd_data_valid_sample(data, 0, j, ids, &err) != 0;
		for (i = 0; i < 11; i++)
			bad += ids[i] != bytes[900 + 10 * j + i];
	}
	is_int(bad, 0, "validation windows come in the order of the file");
	is_str(try_open("train = a.txt", 10, 0, 1), "", "random order is the default");
	for (j = 0; j < 89; j++) {
		bad += hd_data_sample(data, 0, j, ids, &err) != 0;
		seen[ids[0] - 1]++;
		bad += ids[0] != ids[9] || ids[10] != ids[0] + 1;
	}
	for (j = 0; j < 89; j++)
		bad += seen[j] != 1;
	is_int(bad, 0, "the first epoch has every window once, in random order");
}

/* Returns a hash over the ids of these samples. */
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

#define WINDOWS 100

/* Returns the position of these 11 random bytes in the file, or -1. */
static int position(const unsigned char *bytes, int n, const int32_t *ids)
{
	for (int at = 0; at + 11 <= n; at++) {
		int same = 1;

		for (int k = 0; same && k < 11; k++)
			same = ids[k] == bytes[at + k];
		if (same)
			return at;
	}
	return -1;
}

/* Stores the windows of an epoch in their order.  Returns their common distance from multiples of seq, or -1 if they
 * have none or a window is missing. */
static int windows_of(int64_t epoch, const unsigned char *bytes, int n, int *order)
{
	char seen[WINDOWS] = { 0 };
	int shift = -1;

	for (int i = 0; i < WINDOWS; i++) {
		int32_t ids[11];
		int at = hd_data_sample(data, WINDOWS * epoch, i, ids, &err) ? -1 : position(bytes, n, ids);

		if (at < 0 || at / 10 >= WINDOWS || seen[at / 10]++ || (i && at % 10 != shift))
			return -1;
		order[i] = at / 10;
		shift = at % 10;
	}
	return shift;
}

/* A later epoch has a different order, and its windows begin at different tokens. */
static void epochs(const unsigned char *bytes, int n)
{
	int order[5][WINDOWS], shifts = 0, alike = 0;

	for (int e = 0; e < 5; e++) {
		int shift = windows_of(e, bytes, n, order[e]);

		ok(shift >= 0 && (e || !shift), "epoch %d: every window once, all shifted by %d tokens", e, shift);
		shifts |= 1 << (shift & 15);
		for (int f = 0; f < e; f++)
			alike += !memcmp(order[e], order[f], sizeof(order[e]));
	}
	is_int(alike, 0, "no two epochs have the same order");
	ok(__builtin_popcount((unsigned)shifts) >= 3, "epochs are cut at different places (%x)", (unsigned)shifts);
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
	try_open("train = r.txt\nvalid_fraction = 0\ntokenizer = byte", 10, 256,
		 1); /* 100 windows; 8 tokens are left over */
	is_int(hd_data_valid_samples(data, 0), 0, "valid_fraction = 0 leaves no validation split");
	one = mark(0, 100);
	two = mark(100, 100);
	ok(one != two, "two epochs have different samples");
	epochs(bytes, 1009);
	hd_data_sample(data, 7, 5, a, &err);
	hd_data_sample(data, 10, 2, b, &err);
	ok(!memcmp(a, b, sizeof(a)), "a sample depends on its number alone, not on the batches before it");
	try_open("train = r.txt\nvalid_fraction = 0\ntokenizer = byte", 10, 256, 2);
	other = mark(0, 100);
	ok(other != one, "a different seed gives a different order");
	try_open("train = r.txt\nvalid_fraction = 0\ntokenizer = byte", 10, 256, 1);
	ok(mark(0, 100) == one && mark(100, 100) == two, "... and the same seed gives the same order again");
	is_int((long long)(one >> 1), 6879925959534674915ll, "frozen: the order of a seed never changes");
}

static void lists(void)
{
	struct hd_conf *none;
	int32_t ids[8];

	put("1.txt", "abc", 3);
	put("2.txt", "d", 1);
	put("3.txt", "efghi", 5);
	is_str(try_open("train = 1.txt, 2.txt,3.txt\nvalid_fraction = 0\norder = sequential", 7, 256, 1), "",
	       "several files are opened");
	hd_data_sample(data, 0, 0, ids, &err);
	ok(ids[0] == 'a' && ids[2] == 'c' && ids[3] == 'd' && ids[4] == 'e' && ids[7] == 'h',
	   "... as one stream of tokens");
	ok(hd_data_sample(data, -1, 0, ids, &err) == HD_EBUG, "a sample before the first is refused");
	is_str(try_open("train = 3.txt\nvalid = 1.txt, ./3.txt\norder = sequential", 2, 256, 1), "",
	       "two validation files are opened");
	is_int(hd_data_valid_sets(data), 2, "... as two sets");
	ok(hd_data_valid_samples(data, 0) == 1 && hd_data_valid_samples(data, 1) == 2, "... each with its own windows");
	hd_data_valid_sample(data, 1, 1, ids, &err);
	ok(ids[0] == 'g' && ids[2] == 'i', "the second window of the second set has its tokens");
	is_str(hd_data_valid_name(data, 1), "3", "a set is named after its file");
	try_open("train = 3.txt\nvalid = 3.txt, ./3.txt", 2, 256, 1);
	ok(!strcmp(hd_data_valid_name(data, 0), "3.txt") && !strcmp(hd_data_valid_name(data, 1), "./3.txt"),
	   "... by its path if two files have the same name");
	is_str(try_open("train = 3.txt\nvalid = 3.txt, 2.txt", 2, 256, 1),
	       "x.ini:3: [data] valid: 2: 1 tokens, fewer than train.seq + 1 = 3",
	       "a validation set shorter than a window is refused");
	hd_data_close(data);
	data = NULL;
	memset(&err, 0, sizeof(err));
	hd_conf_parse("x.ini", "[data]\ntrain = none\n", NULL, 0, &none, &err);
	ok(!hd_data_open_file(none, "3.txt", 2, 256, &data, &err) && hd_data_valid_samples(data, 0) == 2,
	   "one file is opened for evaluation");
	hd_data_valid_sample(data, 0, 1, ids, &err);
	ok(ids[0] == 'g' && ids[2] == 'i', "... and its second window has its tokens");
	is_int(hd_data_valid_rest(data, 0), 0, "... after which no token is left");
	hd_data_close(data);
	data = NULL;
	ok(!hd_data_open_file(none, "3.txt", 6, 256, &data, &err) && hd_data_valid_samples(data, 0) == 0 &&
		   hd_data_valid_rest(data, 0) == 4,
	   "a file shorter than a window may be evaluated");
	ids[5] = ids[6] = 1;
	hd_data_valid_sample(data, 0, 0, ids, &err);
	ok(ids[0] == 'e' && ids[4] == 'i' && !ids[5] && !ids[6], "... and the rest of its window is filled with zeros");
	hd_data_close(data);
	data = NULL;
	hd_data_open_file(none, "2.txt", 5, 256, &data, &err);
	is_str(err.text, "2.txt: 1 token; a loss needs 2 or more, as the first has nothing before it",
	       "a file of one token cannot be evaluated");
	hd_conf_destroy(none);
}

static void write_ids(const char *name)
{
	uint32_t file[256 + 5] = { 20240801, 7, 5, [257] = 1, 2, 3, 4 };

	put(name, file, sizeof(file));
}

/* Writes 260 MB of ids, a sparse file with a single id. */
static void put_large(int64_t at, uint16_t id)
{
	enum { N = 130 << 20 };
	FILE *f = fopen("large.bin", "wb");

	fseek(f, at * 2, SEEK_SET);
	fwrite(&id, 2, 1, f);
	fclose(f);
	ok(!truncate("large.bin", N * 2ll), "a file of more than 256 MB is written");
}

/* An id beyond the vocab, one of a million.  Opening a file of more than 256 MB examines only parts of it; an id
 * between those parts is found when its batch is read. */
static void rare_id(int32_t *ids)
{
	enum { N = 1 << 20, AT = 12000, LATE = 2100000 };
	uint16_t *many = calloc(N, sizeof(*many));

	many[AT] = 4;
	put("many.bin", many, N * sizeof(*many));
	is_str(try_open("train = many.bin\nformat = uint16", 4, 4, 1),
	       "x.ini:2: [data] train: many.bin: token 12000 has id 4, which is not in a vocab of 4",
	       "a single id beyond the vocab is refused");
	put_large(LATE, 4);
	is_str(try_open("train = large.bin\nformat = uint16\nvalid_fraction = 0\norder = sequential", 4, 4, 1), "",
	       "a large file with one such id is opened");
	ok(!hd_data_sample(data, 0, LATE / 4 + 1, ids, &err), "... and a sample without that id is read");
	ok(hd_data_sample(data, 0, LATE / 4, ids, &err) == HD_EINVAL, "... and the sample with it is refused");
	is_str(err.text, "large.bin: token 2100000 has id 4, which is not in a vocab of 4",
	       "... with a message that names the token");
	put_large(LATE - 12000, 4);
	is_str(try_open("train = large.bin\nformat = uint16", 4, 4, 1),
	       "x.ini:2: [data] train: large.bin: token 2088000 has id 4, which is not in a vocab of 4",
	       "opening a large file examines most of its ids");
	unlink("large.bin");
	many[AT] = 0;
	put("many.bin", many, N * sizeof(*many));
	put("few.bin", (uint16_t[10]){ [2] = 4 }, 20);
	is_str(try_open("train = many.bin\nvalid = few.bin\nformat = uint16", 4, 4, 1),
	       "x.ini:3: [data] valid: few.bin: token 2 has id 4, which is not in a vocab of 4",
	       "an id beyond the vocab in a validation file is refused");
	free(many);
}

static void refused(void)
{
	static const char tokens[] = "{\"model\":{\"vocab\":{\"a\":0,\"b\":5}},\"added_tokens\":[{\"id\":9}]}";
	int32_t ids[5];

	put("e.txt", "", 0);
	write_ids("g.bin");
	put("tokenizer.json", tokens, strlen(tokens));
	is_str(try_open("", 2, 0, 1), "x.ini:1: [data] train: missing; it has no default",
	       "a missing train key is refused");
	is_str(try_open("train = no.txt", 2, 0, 1), "x.ini:2: [data] train: no.txt: No such file or directory",
	       "a missing file is refused");
	is_str(try_open("train = e.txt", 2, 0, 1), "x.ini:2: [data] train: e.txt: the file is empty",
	       "an empty file is refused");
	is_str(try_open("train = none/*.txt", 2, 0, 1), "x.ini:2: [data] train: none/*.txt: no file matches",
	       "a pattern that no file matches is refused");
	is_str(try_open("train = 1.txt,,2.txt", 2, 0, 1),
	       "x.ini:2: [data] train: '1.txt,,2.txt' has an empty file name", "a list with an empty name is refused");
	is_str(try_open("train = a.txt", 900, 0, 1),
	       "x.ini:2: [data] train: 900 tokens without the validation split, "
	       "fewer than train.seq + 1 = 901",
	       "a file without enough tokens for training is refused");
	is_str(try_open("train = a.txt", 100, 0, 1),
	       "x.ini:1: [data] valid_fraction: 0.1 of 1000 tokens is 100, fewer than "
	       "train.seq + 1 = 101; 0 means no validation",
	       "a validation split shorter than a window is refused");
	is_str(try_open("train = a.txt\nvalid = 1.txt", 3, 0, 1),
	       "x.ini:3: [data] valid: 3 tokens, fewer than train.seq "
	       "+ 1 = 4",
	       "a validation file shorter than a window is refused");
	is_str(try_open("train = a.txt\nvalid = 1.txt\nvalid_fraction = 0.5", 3, 0, 1),
	       "x.ini:4: [data] valid_fraction: cannot be combined with valid = 1.txt",
	       "a validation file and a fraction together are refused");
	is_str(try_open("train = a.txt\ntokenizer = .", 3, 0, 1),
	       "x.ini:3: [data] tokenizer: ./tokenizer.json: model has no type; known: BPE",
	       "text with a tokenizer of an unknown kind is refused");
	is_int(err.code, HD_ENOTSUP, "... as not supported");
	is_str(try_open("train = g.bin\nvalid_fraction = 0\ntokenizer = none", 4, 0, 1),
	       "x.ini:4: [data] tokenizer: "
	       "unable to open none/tokenizer.json: No such file or directory",
	       "ids with a missing tokenizer are refused");
	is_str(try_open("train = g.bin\nvalid_fraction = 0\ntokenizer = .", 4, 0, 1), "",
	       "ids with their tokenizer are accepted");
	is_int(hd_data_vocab(data), 10, "... and have its vocab");
	is_str(try_open("train = g.bin\nvalid = a.txt", 2, 0, 1),
	       "x.ini:3: [data] valid: text, but train is ids of a tokenizer", "ids validated with text are refused");
	is_str(try_open("train = g.bin\nvalid_fraction = 0\norder = sequential", 4, 4, 1),
	       "x.ini:2: [data] train: g.bin: token 4 has id 4, which is not in a vocab of 4",
	       "ids beyond the vocab are refused");
	rare_id(ids);
	put("tokenizer.json", "{\n\"model\"", 9);
	is_str(try_open("train = g.bin\nvalid_fraction = 0\ntokenizer = .", 4, 0, 1),
	       "x.ini:4: [data] tokenizer: "
	       "./tokenizer.json:2: ':' expected near end of file",
	       "a truncated tokenizer is refused");
	is_str(try_open("train = a.txt\norder = randm", 3, 0, 1),
	       "x.ini:3: [data] order: 'randm' is not a choice; did you "
	       "mean random?",
	       "an unknown order is refused");
}

/* Text for a model whose tokens are not bytes, and files that are not text. */
static void texts(void)
{
	static const char tokenizer[] =
		"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}";
	static const char lines[] = "{\"text\": \"ab\", \"x\": \"aab\"}\n{\"text\": \"bbaa\", \"x\": \"a\"}\n";
	uint16_t plain[5] = { 7, 300, 65535, 0, 1 };
	int32_t ids[5];

	put("tokenizer.json", tokenizer, strlen(tokenizer));
	put("t.txt", "ababbab", 7);
	put("t.jsonl", lines, strlen(lines));
	put("n.txt", "a\0b, more", 9);
	put("p.bin", plain, sizeof(plain));
	setenv("XDG_CACHE_HOME", "cache", 1);
	is_str(try_open("train = t.txt\nvalid_fraction = 0", 2, 300, 1),
	       "x.ini:1: [data] tokenizer: t.txt is text, but the model's vocab of 300 is not that of bytes. Give the DIR "
	       "of its tokenizer.json, or byte if bytes are meant",
	       "text without a tokenizer is refused for a model whose tokens are not bytes");
	is_str(try_open("train = t.txt\nvalid_fraction = 0\ntokenizer = byte", 2, 300, 1), "",
	       "... but accepted with tokenizer = byte");
	is_str(try_open("train = t.txt\nvalid_fraction = 0\ntokenizer = byte", 2, 200, 1),
	       "x.ini:4: [data] tokenizer: t.txt is text, whose bytes need a vocab of 256, but the model's has 200",
	       "tokenizer = byte is refused for a vocab below 256");
	is_str(try_open("train = t.txt\nvalid_fraction = 0\ntokenizer = .\norder = sequential", 3, 0, 1), "",
	       "text with a tokenizer is accepted");
	is_int(hd_data_vocab(data), 3, "... and has its vocab");
	is_int(hd_data_tokens(data, 0), 4, "... and its number of tokens");
	ok(!hd_data_sample(data, 0, 0, ids, &err) && ids[0] == 2 && ids[1] == 2 && ids[2] == 1 && ids[3] == 2,
	   "... and its ids");
	is_str(try_open("train = t.txt\nvalid_fraction = 0\ntokenizer = .", 2, 2, 1),
	       "x.ini:4: [data] tokenizer: . has 3 tokens, but the model's vocab is 2",
	       "a tokenizer with more tokens than the model's vocab is refused");
	is_str(try_open("train = t.jsonl\nvalid_fraction = 0\ntokenizer = .\norder = sequential", 4, 0, 1), "",
	       "a JSONL file is accepted");
	ok(!hd_data_sample(data, 0, 0, ids, &err) && ids[0] == 2 && ids[1] == 1 && ids[3] == 0,
	   "... and its field text is read");
	is_str(try_open("train = t.jsonl\nvalid_fraction = 0\nfield = x\norder = sequential", 3, 0, 1), "",
	       "a different field may be chosen, read as bytes");
	ok(!hd_data_sample(data, 0, 0, ids, &err) && ids[0] == 'a' && ids[2] == 'b' && ids[3] == 'a',
	   "... from each line");
	is_str(try_open("train = t.jsonl\nvalid_fraction = 0\nformat = text\norder = sequential", 3, 0, 1), "",
	       "JSONL with format = text is accepted");
	ok(!hd_data_sample(data, 0, 0, ids, &err) && ids[0] == '{', "... and read as it is");
	is_str(try_open("train = n.txt\nvalid_fraction = 0", 2, 0, 1),
	       "x.ini:2: [data] train: n.txt: is not text: its byte at offset 1 is 0; [data] tokenizer = byte, given explicitly, "
	       "takes the bytes of any file",
	       "a file with a zero byte is not text");
	is_str(try_open("train = p.bin\nvalid_fraction = 0\nformat = uint16\norder = sequential", 4, 0, 1), "",
	       "ids without a header are accepted");
	ok(!hd_data_sample(data, 0, 0, ids, &err) && ids[1] == 300 && ids[2] == 65535, "... as ids of 16 bits");
	is_str(try_open("train = p.bin\nvalid_fraction = 0\nformat = uint32", 2, 0, 1),
	       "x.ini:2: [data] train: p.bin: 10 bytes are not a multiple of the 4 bytes of an id",
	       "a file with half an id is refused");
	if (system("rm -rf cache t.jsonl"))
		note("files are left");
}

int main(void)
{
	char dir[] = "/tmp/heddle-data-XXXXXX";

	if (!mkdtemp(dir) || chdir(dir))
		skip_all("no place for files");
	text_file();
	orders();
	lists();
	refused();
	texts();
	hd_data_close(data);
	if (system("rm -f *.txt *.bin *.idx tokenizer.json"))
		note("files are left in %s", dir);
	rmdir(dir);
	return done();
}
