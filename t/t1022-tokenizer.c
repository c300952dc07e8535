/* SPDX-License-Identifier: Apache-2.0
 * Tokenizers.  If a single id differed from Python's, a model would see text that it was never trained on.
 * t/data/tokenizers has a small tokenizer of each kind, and Python's ids for a text in which all
 * kinds of characters follow each other.
 */
#include <config.h>
#include "engine/file/file.h"
#include "engine/text/unicode/regex.h"
#include "engine/text/tokenizer.h"
#include "engine/text/unicode/unicode.h"
#include "t/lib/tap.h"
#include <unistd.h>

#define DATA HD_TEST_SRC "/t/data/tokenizers/"

static struct hd_err err;
static struct hd_tokenizer *tokenizer;
static struct hd_encoder *encoder;

static void open_kind(const char *kind)
{
	char path[400];

	hd_encoder_destroy(encoder);
	hd_tokenizer_close(tokenizer);
	tokenizer = NULL;
	encoder = NULL;
	memset(&err, 0, sizeof(err));
	snprintf(path, sizeof(path), DATA "%s", kind);
	if (!hd_tokenizer_open(path, &tokenizer, &err))
		encoder = hd_encoder_create(tokenizer);
	else
		printf("# %s\n", err.text);
}

static struct hd_ids encode(const char *text, size_t n)
{
	struct hd_ids ids = { 0 };

	hd_encode(encoder, text, n, &ids, &err);
	return ids;
}

/* Returns the ids in the format of the file: "1 2 3\n". */
static char *ids_text(const struct hd_ids *ids)
{
	char *text = hd_strdup("");
	struct hd_buf b = { 0 };
	char one[16];

	for (size_t i = 0; i < ids->n; i++)
		hd_buf_add(&b, one, (size_t)snprintf(one, sizeof(one), i ? " %d" : "%d", ids->at[i]));
	hd_buf_add(&b, "\n", 2);
	free(text);
	return b.at;
}

static void same_as_python(const char *kind, const char *mixed, size_t n)
{
	char path[400], *want, *got;
	struct hd_ids ids, again;

	open_kind(kind);
	if (!ok(encoder != NULL, "%s: the tokenizer is loaded", kind))
		return;
	snprintf(path, sizeof(path), DATA "%s/ids", kind);
	want = hd_file_slurp(path, NULL);
	ids = encode(mixed, n);
	got = ids_text(&ids);
	ok(want && !strcmp(got, want), "%s: every id equals Python's", kind);
	again = encode(mixed, n); /* words are cached now */
	ok(again.n == ids.n && !memcmp(again.at, ids.at, ids.n * sizeof(*ids.at)),
	   "%s: the ids are the same the second time", kind);
	free(got);
	free(want);
	hd_ids_release(&ids);
	hd_ids_release(&again);
}

static char *decoded(const struct hd_ids *ids)
{
	struct hd_buf b = { 0 };

	hd_decode(tokenizer, ids->at, ids->n, &b, &err);
	hd_buf_add(&b, "", 1);
	return b.at;
}

/* Decoding the ids of a text that the kind's normalizer does not change gives the text again. */
static void comes_back(const char *kind, const char *text)
{
	struct hd_ids ids;
	char *back;

	open_kind(kind);
	ids = encode(text, strlen(text));
	back = decoded(&ids);
	is_str(back, text, kind);
	free(back);
	hd_ids_release(&ids);
}

static void decoding(void)
{
	static const char *const kinds[] = { "gpt2",  "starcoder", "falcon",  "llama3", "qwen",
					     "o200k", "llama2",    "mistral", "gemma" };
	char runs[9000];
	int32_t half[2];
	struct hd_ids ids;
	char *back;

	memset(runs, ' ', sizeof(runs));
	memcpy(runs, "x\t\n", 3);
	memcpy(runs + 5000, "\r\n\n\n\xf0\x9f\x98\x80", 8);
	memset(runs + 6000, 'a', 1000); /* a word that needs the heap */
	runs[sizeof(runs) - 1] = 0;
	for (size_t i = 0; i < HD_LEN(kinds); i++) {
		comes_back(
			kinds[i],
			"Prose; \xc3\xa9t\xc3\xa9, \xe6\x9d\xb1\xe4\xba\xac\xe3\x80\x82 \xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd "
			"\xd8\xb9\xd8\xb1\xd8\xa8\xd9\x8a <|endoftext|>\x01\x7f\n  \n\tx");
		comes_back(kinds[i], runs);
	}
	open_kind("gpt2");
	ids = encode("\xf0\x9f\x98\x80", 4);
	half[0] = ids.at[0];
	hd_ids_release(&ids);
	ids = (struct hd_ids){ half, 1, 1 };
	back = decoded(&ids);
	is_str(back, "\xef\xbf\xbd", "half a character is decoded as U+FFFD");
	free(back);
}

/* Bytes that are not UTF-8 are encoded as the result of Python's bytes.decode("utf-8", "replace") is. */
static void invalid(void)
{
	static const struct {
		const char *bytes, *want;
	} all[] = {
		{ "a\xff"
		  "b",
		  "a\xef\xbf\xbd"
		  "b" },
		{ "\xe6\x9d", "\xef\xbf\xbd" },
		{ "\xf0\x9f\x98x", "\xef\xbf\xbdx" },
		{ "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
		{ "\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd" },
		{ "\xf5\x80", "\xef\xbf\xbd\xef\xbf\xbd" },
		{ "\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
		{ "\x80\xc3", "\xef\xbf\xbd\xef\xbf\xbd" },
	};

	open_kind("qwen");
	for (size_t i = 0; i < HD_LEN(all); i++) {
		struct hd_ids a = encode(all[i].bytes, strlen(all[i].bytes));
		struct hd_ids b = encode(all[i].want, strlen(all[i].want));

		ok(a.n == b.n && a.n && !memcmp(a.at, b.at, a.n * sizeof(*a.at)),
		   "bytes that are not UTF-8 have Python's ids: case %zu", i);
		hd_ids_release(&a);
		hd_ids_release(&b);
	}
}

/* -- refusals ---------------------------------------------------------------------------------- */
#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"

static const char *refusal(const char *json)
{
	FILE *f = fopen("t.json", "w");

	fputs(json, f);
	fclose(f);
	hd_encoder_destroy(encoder);
	hd_tokenizer_close(tokenizer);
	tokenizer = NULL;
	encoder = NULL;
	memset(&err, 0, sizeof(err));
	if (hd_tokenizer_open("t.json", &tokenizer, &err) != err.code)
		return "the code is not that of the text";
	return err.text;
}

/* Files with a part that is missing or has a wrong type, and the error text after "t.json: ". */
static const struct {
	const char *json, *want;
} damaged[] = {
#define BPE "{\"model\":{\"type\":\"BPE\","
#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
	{ "{}", "it contains no model" },
	{ "{\"model\":{}}", "model has no type; known: BPE" },
	{ BPE "\"merges\":[]}}", "model.vocab is missing" },
	{ BPE "\"vocab\":{},\"merges\":[]}}", "model.vocab is missing" },
	{ BPE "\"vocab\":{\"a\":\"0\"},\"merges\":[]}}", "model.vocab: the id of a is -1, not from 0 to " },
	{ BPE VOCAB "\"merges\":\"a b\"}}", "model.merges is missing" },
	{ BPE VOCAB "\"merges\":[1]}}", "model.merges: merge 0 is not a pair of tokens" },
	{ BPE VOCAB "\"merges\":[\"ab\"]}}", "model.merges: merge 0 is not a pair of tokens" },
	{ BPE VOCAB "\"merges\":[\"a b\",\"a b b\"]}}", "model.merges: merge 1 is not a pair of tokens" },
	{ BPE VOCAB "\"merges\":[[\"a\"]]}}", "model.merges: merge 0 is not a pair of tokens" },
	{ BPE VOCAB "\"merges\":[[1,\"a\"]]}}", "model.merges: merge 0 is not a pair of tokens" },
	{ BPE VOCAB "\"merges\":[[\"a\",1]]}}", "model.merges: merge 0 is not a pair of tokens" },
	{ BPE VOCAB "\"continuing_subword_prefix\":\"##\",\"merges\":[\"a b\"]}}",
	  "model.merges: merge 0 is not a pair of tokens" },
	{ BPE VOCAB "\"merges\":[\"c b\"]}}", "model.merges: merge 0, c and b: the first is not in model.vocab" },
	{ BPE VOCAB "\"merges\":[\"a c\"]}}", "model.merges: merge 0, a and c: the second is not in model.vocab" },
	{ BPE VOCAB "\"dropout\":0.1,\"merges\":[]}}", "model.dropout is 0.1: ids would be random; remove it" },
	{ BPE VOCAB "\"unk_token\":\"u\",\"merges\":[]}}", "model.unk_token: u is not in model.vocab" },
	{ "{\"normalizer\":{\"type\":\"Sequence\"}," MODEL "}", "normalizer: a Sequence without normalizers" },
	{ "{\"normalizer\":{\"type\":\"Replace\"}," MODEL "}",
	  "normalizer Replace: no pattern with a String or a Regex" },
	{ "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"}}," MODEL "}",
	  "normalizer Replace: no content" },
	{ "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}," MODEL "}",
	  "normalizer Replace: the expression (: " },
	{ "{\"added_tokens\":[{\"content\":\"x\"}]," MODEL "}", "added_tokens: one has no content or no id" },
	{ "{\"added_tokens\":[{\"id\":3}]," MODEL "}", "added_tokens: one has no content or no id" },
	{ "{\"added_tokens\":[{\"id\":3,\"content\":\"a\"}]," MODEL "}",
	  "added_tokens: a has id 3, and in model.vocab 0" },
};

static void refusals(void)
{
	for (size_t i = 0; i < HD_LEN(damaged); i++) {
		const char *said = refusal(damaged[i].json);

		if (!ok(!strncmp(said, "t.json: ", 8) && !strncmp(said + 8, damaged[i].want, strlen(damaged[i].want)),
			"refused: %s", damaged[i].want))
			note("said %s of %s", said, damaged[i].json);
	}
	is_str(refusal("{" MODEL "}"), "", "a file with only a model is accepted");
	is_str(refusal("{"), "t.json:1: string or '}' expected near end of file", "a file that is not JSON is refused");
	is_str(refusal("{\"normalizer\":{\"type\":\"NFKC\"}," MODEL "}"),
	       "t.json: normalizer is NFKC; known: NFC, NFD, Prepend, Replace, Strip, ByteLevel, Sequence",
	       "an unknown normalizer is refused");
	is_str(refusal("{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"BertPreTokenizer\"}]}," MODEL
		       "}"),
	       "t.json: pre_tokenizer is BertPreTokenizer; known: ByteLevel, Split, Digits, Punctuation, Metaspace, "
	       "Whitespace, WhitespaceSplit, Sequence",
	       "an unknown pre-tokenizer is refused");
	is_str(refusal("{\"decoder\":{\"type\":\"CTC\"}," MODEL "}"),
	       "t.json: decoder is CTC; known: ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence",
	       "an unknown decoder is refused");
	is_str(refusal("{\"model\":{\"type\":\"Unigram\"}}"), "t.json: model is Unigram; known: BPE",
	       "an unknown model is refused");
	is_str(refusal("{\"normalizer\":{\"type\":\"Precompiled\"},\"model\":{\"type\":\"Unigram\"}}"),
	       "t.json: model is Unigram; known: BPE", "... before its other parts are examined");
	is_str(refusal("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}}"),
	       "t.json: model.merges: merge 0, a and b: their concatenation is not in model.vocab",
	       "a merge whose result is not a token is refused");
	is_str(refusal("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},\"behavior\":\"Isolated\"}," MODEL
		       "}"),
	       "t.json: pre_tokenizer Split: the expression [a&&b]: && within [...] is not supported",
	       "an expression that is not supported is refused");
	is_str(refusal("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},\"behavior\":\"Merged\"}," MODEL
		       "}"),
	       "t.json: pre_tokenizer Split: behavior is Merged; known: Isolated, Removed, MergedWithPrevious, "
	       "MergedWithNext, Contiguous",
	       "an unknown behavior is refused");
}

int main(void)
{
	static const char *const kinds[] = { "gpt2",  "roberta", "starcoder", "falcon", "llama3",    "qwen",
					     "o200k", "llama2",  "mistral",   "gemma",  "characters" };
	size_t n = 0;
	char *mixed = hd_file_slurp(DATA "mixed.txt", &n), dir[] = "/tmp/heddle-test.XXXXXX";

	if (!mixed || !mkdtemp(dir) || chdir(dir))
		skip_all("no t/data/tokenizers, or no room in /tmp");
	for (size_t i = 0; i < HD_LEN(kinds); i++)
		same_as_python(kinds[i], mixed, n);
	decoding();
	invalid();
	refusals();
	hd_encoder_destroy(encoder);
	hd_tokenizer_close(tokenizer);
	free(mixed);
	unlink("t.json");
	if (!chdir("/"))
		rmdir(dir);
	return done();
}
