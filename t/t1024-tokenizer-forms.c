/* SPDX-License-Identifier: Apache-2.0
 * Forms of tokenizer.json that few files have, and texts at their edges: each against the ids, the text or the message that the
 * format asks for.  If this broke, a file that is valid would be read as another one.
 */
#include <config.h>
#include "engine/text/special.h"
#include "engine/text/tokenizer.h"
#include "engine/text/bpe/bpe.h"
#include "engine/text/unicode/regex.h"
#include "engine/text/unicode/unicode.h"
#include "engine/text/unicode/utf8.h"
#include "t/lib/tap.h"
#include <sys/stat.h>
#include <unistd.h>

static struct hd_tokenizer *tokenizer;
static struct hd_err err;

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	fputs(text, f);
	fclose(f);
}

static const char *open_path(const char *path)
{
	hd_tokenizer_close(tokenizer);
	tokenizer = NULL;
	memset(&err, 0, sizeof(err));
	hd_tokenizer_open(path, &tokenizer, &err);
	return err.text;
}

static const char *open_json(const char *json)
{
	put("t.json", json);
	return open_path("t.json");
}

static const char *ids_of(const char *text)
{
	static char out[400];
	struct hd_encoder *e = hd_encoder_create(tokenizer);
	struct hd_ids ids = { 0 };
	size_t n = 0;

	*out = 0;
	if (hd_encode(e, text, strlen(text), &ids, &err) < 0)
		snprintf(out, sizeof(out), "%s", err.text);
	for (size_t i = 0; i < ids.n && n + 20 < sizeof(out); i++)
		n += (size_t)snprintf(out + n, sizeof(out) - n, "%s%d", i ? " " : "", ids.at[i]);
	hd_ids_release(&ids);
	hd_encoder_destroy(e);
	return out;
}

static const char *text_of(const int32_t *ids, size_t n)
{
	static char out[400];
	struct hd_buf b = { 0 };

	if (hd_decode(tokenizer, ids, n, &b, &err) < 0)
		return err.text;
	snprintf(out, sizeof(out), "%.*s", (int)b.n, b.at ? b.at : "");
	hd_buf_release(&b);
	return out;
}

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define BPE(vocab, merges) "\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[" merges "]}"
#define FLAGS(flags, vocab, merges) \
	"{\"model\":{\"type\":\"BPE\"," flags ",\"vocab\":{" vocab "},\"merges\":[" merges "]}}"
#define IDS(...) text_of((int32_t[]){ __VA_ARGS__ }, sizeof((int32_t[]){ __VA_ARGS__ }) / sizeof(int32_t))

/* -- refused --------------------------------------------------------------------------------------------------------------- */
#define SPLIT(regex) \
	"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex \
	"\"},\"behavior\":\"Isolated\"}," MODEL "}"

static const struct {
	const char *json, *says;
} refused[] = {
	{ "{\"model\":7}", "it contains no model" },
	{ "{\"model\":{\"type\":\"BPE\",\"vocab\":[1],\"merges\":[]}}", "model.vocab is missing" },
	{ "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1.5},\"merges\":[]}}", "model.vocab: the id of a is -1" },
	{ "{" BPE("\"a\":0", "[\"a\"]") "}", "merge 0 is not a pair of tokens" },
	{ "{" BPE("\"a\":0", "[1,\"a\"]") "}", "merge 0 is not a pair of tokens" },
	{ "{" BPE("\"a\":0", "[\"a\",\"a\",\"a\"]") "}", "merge 0 is not a pair of tokens" },
	{ FLAGS("\"continuing_subword_prefix\":\"##\"", "\"a\":0", "\"a #\""), "merge 0 is not a pair of tokens" },
	{ "{\"added_tokens\":[{\"content\":7,\"id\":3}]," MODEL "}", "one has no content or no id" },
	{ "{\"added_tokens\":[{\"content\":\"x\",\"id\":\"3\"}]," MODEL "}", "one has no content or no id" },
	{ "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":7}," MODEL "}",
	  "normalizer: a Sequence without normalizers" },
	{ "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":7},\"content\":\"x\"}," MODEL "}",
	  "normalizer Replace: no pattern with a String or a Regex" },
	{ "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":7},\"content\":\"x\"}," MODEL "}",
	  "normalizer Replace: no pattern with a String or a Regex" },
	{ "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":7}," MODEL "}",
	  "normalizer Replace: no content" },
	{ "{\"decoder\":{\"type\":\"Replace\",\"pattern\":{}}," MODEL "}", "decoder Replace: no pattern" },
	{ SPLIT("(a){2}+"), "{...}+ is not supported" },
	{ SPLIT("a{,3}"), "{,n} is not supported" },
	{ SPLIT("[a&&b]"), "&& within [...] is not supported" },
	{ SPLIT("[a\\\\W]"), "\\S or \\W within [...] is not supported" },
	{ SPLIT("[a\\\\"), "a \\ at the end is not supported" },
	{ SPLIT("[^"), "[ without ] is not supported" },
	{ SPLIT("(?"), "the expression (?: " },
	{ SPLIT("(?i"), "this kind of group is not supported" },
	{ SPLIT("(?i=a)"), "this kind of group is not supported" },
	{ SPLIT("\\\\p"), "\\p without {name} is not supported" },
	{ SPLIT("(a"), "the expression (a: " },
	{ SPLIT("\\\\p{Klingon}"), "the expression \\p{Klingon}: " },
};

/* Expressions with another form for the library that finds them: ids of "ab b\xc3\xa9" tell where they cut. */
static void expressions(void)
{
	static const char *const fine[] = {
		"\\\\p{Any}", "\\\\P{L}",    "\\\\p{Latin}", "\\\\p{^L}", "\\\\p{Lu}", "\\\\p{White_Space}",
		"\\\\S+",     "\\\\W",       "\\\\w+",       "\\\\v",     "\\\\u0041", "[^a]",
		"[a&b]",      "[[:alpha:]]", "(?i)A",        "(?:a)",     "(?i-x:a)",  "(a)",
		"}",          "a}b",         "a{1}",         "a{",        "[]a]",      "[a&]"
	};
	char json[600];

	for (size_t i = 0; i < HD_LEN(fine); i++) {
		snprintf(
			json, sizeof(json),
			"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},\"behavior\":\"Isolated\"}," MODEL
			"}",
			fine[i]);
		is_str(open_json(json), "", fine[i]);
	}
	is_str(open_json(SPLIT("\\\\P{Latin}")), "", "what is not Latin");
	is_str(ids_of("a-b"), "0 1", "... cuts at the sign");
	is_str(ids_of("ab"), "2", "... and not within a word");
	is_str(open_json(SPLIT("(?i)B")), "", "an expression without case");
	is_str(ids_of("ab"), "0 1", "... cuts before b");
}

/* -- before the model ----------------------------------------------------------------------------------------------------- */
static void normalizers(void)
{
	is_str(open_json("{\"normalizer\":{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":false}," BPE(
		       "\"a\":0,\" \":1", "") "}"),
	       "", "Strip on the left");
	is_str(ids_of("  a "), "0 1", "... leaves the right");
	is_str(ids_of("   "), "", "... and nothing of blanks");
	is_str(open_json("{\"normalizer\":{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":1}," BPE(
		       "\"a\":0,\" \":1", "") "}"),
	       "", "Strip on the right, which is so unless it says no");
	is_str(ids_of(" a  "), "1 0", "... leaves the left");
	is_str(ids_of("  \xc2\xa0"), "", "... and nothing of blanks");
	is_str(open_json(
		       "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x*\"},\"content\":\"b\"}," MODEL
		       "}"),
	       "", "what may be nothing is replaced");
	is_str(ids_of("a\xc3\xa9xa"), "1 2 1 2", "... before each character that is not, and at the end");
	is_str(ids_of("xx"), "1", "... and not once more behind what was there");
	is_str(open_json("{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"b\"}," MODEL
			 "}"),
	       "", "a string of nothing");
	is_str(ids_of("ab"), "2", "... is nowhere");
	is_str(open_json(
		       "{\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"b\"},\"added_tokens\":[{\"id\":3,\"content\":\"\",\"normalized\":true},"
		       "{\"id\":4,\"content\":\"<x>\",\"normalized\":true}]," MODEL "}"),
	       "", "added tokens behind a normalizer, one of nothing");
	is_str(ids_of("<x>"), "4", "... are found as it leaves them");
	is_str(ids_of(""), "", "... and nothing in nothing");
	is_str(open_json("{\"normalizer\":null,\"pre_tokenizer\":null,\"decoder\":null," MODEL "}"), "",
	       "parts that are null");
	is_str(ids_of("ab"), "2", "... do nothing");
	is_str(IDS(2, 0), "ab a", "... tokens without a decoder are words");
	is_str(text_of(NULL, 0), "", "... of which there may be none");
}

static void pre_tokenizers(void)
{
#define META \
	"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"always\"}," BPE( \
		"\"a\":0,\"\xe2\x96\x81\":1,\"\xe2\x96\x81" \
		"a\":2", \
		"\"\xe2\x96\x81 a\"") "}"
	is_str(open_json(META), "", "Metaspace");
	is_str(ids_of(" a"), "2", "... puts no sign before a blank");
	is_str(ids_of("\xe2\x96\x81"
		      "a"),
	       "2", "... nor before itself");
	is_str(ids_of("\xe2\x96"), "1", "... but before what only begins so");
	is_str(open_json(
		       "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":false}," BPE(
			       "\"a\":0,\"\\u0120\":1,\"\\u0120a\":2", "\"\\u0120 a\"") "}"),
	       "", "ByteLevel with a blank in front");
	is_str(ids_of("a"), "2", "... adds it");
	is_str(ids_of(" a"), "2", "... once");
	is_str(open_json(
		       "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"MergedWithPrevious\"}," BPE(
			       "\"a\":0,\"-\":1,\"a-\":2,\"--\":3", "\"a -\",\"- -\"") "}"),
	       "", "signs that stay with what is before them");
	is_str(ids_of("a--"), "2 1", "... and not with each other");
	is_str(ids_of("--a"), "1 1 0", "... nor at the beginning");
}

/* -- the model -------------------------------------------------------------------------------------------------------------- */
static void models(void)
{
	is_str(open_json(FLAGS("\"continuing_subword_prefix\":\"##\"", "\"a\":0,\"##b\":1,\"ab\":2,\"##c\":3",
			       "\"a ##b\"")),
	       "", "pieces within a word have a sign");
	is_str(ids_of("abc"), "2 3", "... which is left out where they are joined");
	is_str(ids_of("b"), "", "... and which the first has not");
	is_str(open_json(FLAGS("\"end_of_word_suffix\":\"</w>\",\"continuing_subword_prefix\":\"\"",
			       "\"a\":0,\"b</w>\":1,\"ab</w>\":2", "\"a b</w>\"")),
	       "", "the last piece of a word has a sign");
	is_str(ids_of("ab"), "2", "... and is joined with it");
	is_str(ids_of("aa"), "0", "... or has no token");
	is_str(open_json(FLAGS("\"unk_token\":\"?\"", "\"?\":0,\"a\":1", "")), "", "a token for what has none");
	is_str(ids_of("xya"), "0 0 1", "... each");
	is_str(open_json(FLAGS("\"unk_token\":\"?\",\"fuse_unk\":true", "\"?\":0,\"a\":1", "")), "", "or fused");
	is_str(ids_of("xyax"), "0 1 0", "... all in a row");
	is_str(open_json(FLAGS("\"unk_token\":\"?\",\"byte_fallback\":true",
			       "\"?\":0,\"<0xC3>\":1,\"<0xA9>\":2,\"a\":3", "")),
	       "", "bytes for what has none");
	is_str(ids_of("\xc3\xa9"
		      "a\xc3\xa8"),
	       "1 2 3 0", "... where each byte has one");
	is_str(open_json(FLAGS("\"ignore_merges\":true", "\"a\":0,\"b\":1,\"ab\":2", "")), "", "words that are tokens");
	is_str(ids_of("ab"), "2", "... need no merges");
	is_str(ids_of("ba"), "1 0", "... and others have none");
}

/* All bytes in the alphabet of ByteLevel, a token of other signs, and one that is a whole word; ids with a gap. */
static void whole_words_of_bytes(void)
{
	struct hd_buf json = { 0 };
	char entry[64], sign[5];

	hd_buf_add(
		&json,
		"{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false},\"decoder\":{\"type\":\"ByteLevel\"},"
		"\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{",
		strlen("{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false},\"decoder\":{\"type\":\"ByteLevel\"},"
		       "\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{"));
	for (int b = 0; b < 256; b++) {
		sign[hd_utf8_put(sign, hd_byte_char((unsigned char)b))] = 0;
		snprintf(entry, sizeof(entry), "\"%s%s\":%d,", *sign == '"' || *sign == '\\' ? "\\" : "", sign, b);
		hd_buf_add(&json, entry, strlen(entry));
	}
	hd_buf_add(&json, "\"ab\":300,\"\xe4\xb8\x80\":301},\"merges\":[]}}\0",
		   strlen("\"ab\":300,\"\xe4\xb8\x80\":301},\"merges\":[]}}") + 1);
	is_str(open_json(json.at), "", "all bytes");
	is_str(ids_of("ab"), "300", "... and a word that is a token");
	is_str(ids_of("ba"), "98 97", "... or is none");
	is_str(IDS(97, 299, 98), "ab", "ids of no token are left out");
	is_str(IDS(301, 97),
	       "\xe4\xb8\x80"
	       "a",
	       "a token of other signs is itself");
	hd_buf_release(&json);
}

/* -- behind the model ------------------------------------------------------------------------------------------------------ */
static void decoders(void)
{
	is_str(open_json("{\"decoder\":{\"type\":\"ByteFallback\"}," BPE(
		       "\"<0x41>\":0,\"<0xg1>\":1,\"<0x1G>\":2,\"<0x41)\":3,\"<1x41>\":4,\"<0xa\":5,"
		       "\"<0xAf>\":6,\"<0x/1>\":7,\"<0x:1>\":8,\"<0x@1>\":9,\"<0x`1>\":10",
		       "") "}"),
	       "", "bytes by number");
	is_str(IDS(0), "A", "... in hexadecimal");
	for (int32_t i = 1; i < 11; i++)
		if (i != 6)
			ok(IDS(i)[0] == '<', "... token %d is no number", i);
	is_str(open_json("{\"decoder\":{\"type\":\"Strip\",\"content\":\"__\",\"start\":2,\"stop\":2}," BPE(
		       "\"_\":0,\"____a____\":1,\"__\":2", "") "}"),
	       "", "Strip, twice on each side");
	is_str(IDS(1), "a", "... takes as many");
	is_str(IDS(0, 2), "_", "... or as many as there are");
	is_str(open_json(
		       "{\"decoder\":{\"type\":\"Strip\",\"content\":\"_\",\"start\":0,\"stop\":3}," BPE("\"_a_b_\":0",
													 "") "}"),
	       "", "... on one side");
	is_str(IDS(0), "_a_b", "... up to another character");
	is_str(open_json("{\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\"}," BPE(
		       "\"\xe2\x96\x81"
		       "a\":0,\"\xe2\x96\x80\":1",
		       "") "}"),
	       "", "Metaspace");
	is_str(IDS(0, 0, 1), "a a\xe2\x96\x80", "... is its own sign, and no other");
	is_str(open_json("{\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"}," BPE(
		       "\"a_\":0", "") "}"),
	       "", "Replace");
	is_str(IDS(0, 0), "a a ", "... in each token");
}

static void added(void)
{
	is_str(open_json(
		       "{\"added_tokens\":[{\"id\":3,\"content\":\"<x>\",\"rstrip\":true},{\"id\":4,\"content\":\" y\"},"
		       "{\"id\":5,\"content\":\"w\",\"single_word\":true},{\"id\":6,\"content\":\"<z>\",\"lstrip\":true}]," MODEL
		       "}"),
	       "", "added tokens");
	is_str(ids_of("<x> ya"), "3 0", "one takes the blank that another begins with");
	is_str(ids_of("\xc3\xa9w"), "", "one is no part of a word with an accent");
	is_str(ids_of("\xe2\x80\xa6w"), "5", "and is one behind a sign of three bytes");
	is_str(ids_of("\xc2\xa0\xe2\x80\x83<z>"), "6", "one takes blanks of all kinds before it");
}

/* -- texts ------------------------------------------------------------------------------------------------------------------ */
static const char *normal(const char *s, int compose)
{
	static char out[80];
	struct hd_buf b = { 0 };

	hd_unicode_normalize(s, strlen(s), compose, &b);
	snprintf(out, sizeof(out), "%.*s", (int)b.n, b.at);
	hd_buf_release(&b);
	return out;
}

static void unicode(void)
{
	static const uint32_t white[] = { 9,      10,     13,     0x20,   0x85,   0xa0,   0x1680,
					  0x2000, 0x200a, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000 };
	static const uint32_t other[] = { 0,      8,      14,     0x21,   0x84,   0x86,   0xa1,
					  0x167f, 0x1fff, 0x200b, 0x2027, 0x202a, 0x2060, 0x3001 };
	int bytes = 0;

	is_str(normal("\xea\xb0\x80\xe1\x86\xa8", 1), "\xea\xb0\x81", "a syllable takes a final consonant");
	is_str(normal("\xe1\x84\x80\xe1\x85\xa1", 1), "\xea\xb0\x80", "a consonant and a vowel are one");
	is_str(normal("\xe1\x84\x80"
		      "a",
		      1),
	       "\xe1\x84\x80"
	       "a",
	       "... and it and a letter are not");
	is_str(normal("\xea\xb0\x81\xe1\x86\xa8", 1), "\xea\xb0\x81\xe1\x86\xa8", "a syllable has one final consonant");
	is_str(normal("\xea\xb0\x80\xe1\x86\xa7", 1), "\xea\xb0\x80\xe1\x86\xa7",
	       "... and what stands before them is none");
	is_str(normal("\xea\xb0\x80\xe1\x87\x83", 1), "\xea\xb0\x80\xe1\x87\x83", "... nor what stands behind");
	is_str(normal("\xf0\xaf\xa8\x9d\xf0\xaf\xa8\x9e", 0), "\xf0\xaa\x98\x80\xf0\xaf\xa8\x9e",
	       "the last that is another, and one behind it");
	is_str(normal("a\xcc\x81\xcc\xa3", 0), "a\xcc\xa3\xcc\x81", "marks stand in their order");
	is_str(normal("\xcc\x81\xcc\xa3", 0), "\xcc\xa3\xcc\x81", "... also without a letter");
	for (size_t i = 0; i < HD_LEN(white); i++)
		ok(hd_utf8_white(white[i]) && !hd_utf8_white(other[i]), "U+%04X is white, and U+%04X is not", white[i],
		   other[i]);
	for (uint32_t c = 0; c < 0x200; c++)
		bytes += hd_char_byte(c) >= 0;
	is_int(bytes, 256, "the alphabet of bytes has 256 signs below U+0200");
	is_int(hd_char_byte(0x4e00), -1, "and none above");
	hd_matcher_destroy(NULL);
	hd_bpe_state_destroy(NULL);
}

/* -- files beside it -------------------------------------------------------------------------------------------------------- */
static const char *guessed;
static int32_t ends(const char *file, const char *text)
{
	int32_t id = -7;

	if (file)
		put(file, text);
	memset(&err, 0, sizeof(err));
	hd_tokenizer_end(tokenizer, &id, &guessed, &err);
	if (file)
		unlink(file);
	return id;
}

static void beside(void)
{
	static const char *const names[] = { "tokenizer_config.json", "special_tokens_map.json" }, *const numbers[] = {
		"generation_config.json", "config.json"
	};

	is_str(open_json("{" MODEL "}"), "", "a tokenizer without a token that ends texts");
	is_int(ends(NULL, NULL), -1, "... has none");
	for (size_t i = 0; i < 2; i++) {
		is_int(ends(names[i], "{\"eos_token\":\"b\"}"), 1, names[i]);
		is_int(ends(names[i], "{\"eos_token\":{\"content\":\"b\"}}"), 1, "... in an object");
		is_int(ends(names[i], "{\"eos_token\":\"c\"}"), -1, "... which is no token");
		is_int(ends(names[i], "{\"eos_token\":7}"), -1, "... or no text");
		is_int(ends(names[i], "{\"eos_token\":{\"content\":7}}"), -1, "... or an object without one");
		is_int(ends(numbers[i], "{\"eos_token_id\":1}"), 1, numbers[i]);
		is_int(ends(numbers[i], "{\"eos_token_id\":[2,0]}"), 2, "... the first of several");
		is_int(ends(numbers[i], "{\"eos_token_id\":[]}"), -1, "... or of none");
		is_int(ends(numbers[i], "{\"eos_token_id\":\"b\"}"), -1, "... which is no number");
		is_int(ends(numbers[i], "{\"eos_token_id\":99}"), -1, "... or none of its ids");
		is_int(ends(numbers[i], "{\"eos_token_id\":-1}"), -1, "... or less than none");
	}
	put("special_tokens_map.json", "{\"bos_token\":\"a\"}");
	is_int(hd_tokenizer_begin(tokenizer), 0, "the token that begins texts, of the other file");
	put("tokenizer_config.json", "{\"bos_token\":\"b\"}");
	is_int(hd_tokenizer_begin(tokenizer), 1, "... or of the first");
	unlink("special_tokens_map.json");
	unlink("tokenizer_config.json");
	is_str(open_json("{" BPE("\"</s>\":0,\"a\":1", "") "}"), "", "a token that ends texts in most files");
	is_int(ends(NULL, NULL), 0, "... is taken");
	is_str(guessed, "</s>", "... and named, because it is a guess");
	is_int(ends("config.json", "{\"eos_token_id\":1}"), 1, "... unless a file says which");
	is_str(guessed, NULL, "... which is none");
	is_int(ends("tokenizer_config.json", "{\"eos_token\":\"b\"}"), -1, "... or one that is no token");
	is_str(err.text, "tokenizer_config.json: eos_token is b, which is not in the vocabulary of t.json",
	       "... is refused");
	is_int(ends("config.json", "{\"eos_token_id\":99}"), -1, "... as is an id that is none");
	is_str(err.text, "config.json: eos_token_id is 99, which is not in the vocabulary of t.json",
	       "... with its number");
	is_str(open_json("{" BPE("\"</s>\":0,\"<eos>\":1", "") "}"), "", "two of them");
	is_int(ends(NULL, NULL), -1, "... are none");
	is_str(open_path("./t.json"), "", "a path with a folder");
	is_int(ends("config.json", "{\"eos_token_id\":1}"), 1, "... in which the file beside it is");
}

static void paths(void)
{
	char *file;

	is_str(open_path("nowhere.json"), "nowhere.json: No such file or directory", "a file that is not there");
	is_str(open_path("abc"), "abc/tokenizer.json: No such file or directory",
	       "a name that is no file's is a folder's");
	mkdir("sub", 0777);
	put("sub/tokenizer.json", "{" MODEL "}");
	is_str(open_path("sub"), "", "a folder has its tokenizer.json");
	unlink("sub/tokenizer.json");
	is_str(open_path("sub"), "sub/tokenizer.json: No such file or directory", "... or has not");
	put("sub/x", "{");
	is_str(open_path("sub/x"), "sub/x:1: string or '}' expected near end of file",
	       "a file of any name that is there");
	if (!symlink("/etc/passwd", "sub/tokenizer.json"))
		ok(strstr(open_path("sub"), "sub/tokenizer.json") != NULL && err.code,
		   "a link to elsewhere is refused");
	file = hd_tokenizer_file("x.json");
	is_str(file, "x.json", "the name of a file that is not there");
	free(file);
	unlink("sub/tokenizer.json");
	unlink("sub/x");
	rmdir("sub");
}

int main(void)
{
	char dir[] = "/tmp/heddle-t1024.XXXXXX";

	if (!mkdtemp(dir) || chdir(dir))
		skip_all("no temporary directory");
	for (size_t i = 0; i < HD_LEN(refused); i++)
		if (!ok(strstr(open_json(refused[i].json), refused[i].says) != NULL, "%s", refused[i].says))
			note("%s: said: %s", refused[i].json, err.text);
	expressions();
	normalizers();
	pre_tokenizers();
	models();
	whole_words_of_bytes();
	decoders();
	added();
	unicode();
	beside();
	paths();
	hd_tokenizer_close(tokenizer);
	unlink("t.json");
	if (!chdir("/"))
		rmdir(dir);
	return done();
}
