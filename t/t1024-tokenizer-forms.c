/* SPDX-License-Identifier: Apache-2.0
 * Rare forms of tokenizer.json, and texts at the edges of their rules: each is compared with the ids, the text or the
 * message that the format demands.  If this broke, a valid file would be read as a different one.
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

/* Expressions that PCRE2 writes in a different form are accepted. */
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
	is_str(open_json(SPLIT("\\\\P{Latin}")), "", "an expression for characters that are not Latin is accepted");
	is_str(ids_of("a-b"), "0 1", "... cuts at a sign");
	is_str(ids_of("ab"), "2", "... but not within a Latin word");
	is_str(open_json(SPLIT("(?i)B")), "", "an expression that ignores case is accepted");
	is_str(ids_of("ab"), "0 1", "... cuts before b");
}

/* -- before the model ----------------------------------------------------------------------------------------------------- */
static void normalizers(void)
{
	is_str(open_json("{\"normalizer\":{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":false}," BPE(
		       "\"a\":0,\" \":1", "") "}"),
	       "", "Strip on the left is accepted");
	is_str(ids_of("  a "), "0 1", "... leaves the blanks on the right");
	is_str(ids_of("   "), "", "... and leaves nothing of a text of blanks");
	is_str(open_json("{\"normalizer\":{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":1}," BPE(
		       "\"a\":0,\" \":1", "") "}"),
	       "", "Strip on the right is accepted, with any value of strip_right but false");
	is_str(ids_of(" a  "), "1 0", "... leaves the blank on the left");
	is_str(ids_of("  \xc2\xa0"), "", "... and leaves nothing of blanks of several kinds");
	is_str(open_json(
		       "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x*\"},\"content\":\"b\"}," MODEL
		       "}"),
	       "", "Replace with an expression that may match nothing is accepted");
	is_str(ids_of("a\xc3\xa9xa"), "1 2 1 2",
	       "... replaces an empty match before each character that does not match, and at the end");
	is_str(ids_of("xx"), "1", "... but not one directly after a match");
	is_str(open_json("{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"b\"}," MODEL
			 "}"),
	       "", "Replace with an empty string is accepted");
	is_str(ids_of("ab"), "2", "... and replaces nothing");
	is_str(open_json(
		       "{\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"b\"},\"added_tokens\":[{\"id\":3,\"content\":\"\",\"normalized\":true},"
		       "{\"id\":4,\"content\":\"<x>\",\"normalized\":true}]," MODEL "}"),
	       "", "added tokens after a normalizer, one of them empty, are accepted");
	is_str(ids_of("<x>"), "4", "... are found in their normalized form");
	is_str(ids_of(""), "", "... and an empty text has no tokens");
	is_str(open_json("{\"normalizer\":null,\"pre_tokenizer\":null,\"decoder\":null," MODEL "}"), "",
	       "parts that are null are accepted");
	is_str(ids_of("ab"), "2", "... and do nothing");
	is_str(IDS(2, 0), "ab a", "... and without a decoder tokens are joined with blanks");
	is_str(text_of(NULL, 0), "", "... and no tokens are an empty text");
}

static void pre_tokenizers(void)
{
#define META \
	"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"always\"}," BPE( \
		"\"a\":0,\"\xe2\x96\x81\":1,\"\xe2\x96\x81" \
		"a\":2", \
		"\"\xe2\x96\x81 a\"") "}"
	is_str(open_json("{\"normalizer\":{\"type\":\"Strip\"},\"pre_tokenizer\":{\"type\":\"Metaspace\","
			 "\"replacement\":\"_\",\"prepend_scheme\":\"first\"}," BPE("\"_\":0,\"a\":1", "") "}"),
	       "", "Strip before a Metaspace with the scheme first is accepted");
	is_str(ids_of("a"), "0 1", "... and a text that begins with a letter gets the sign");
	is_str(ids_of(" a"), "1", "... but not one whose first blank is removed, as in Python");
	is_str(open_json(META), "", "a Metaspace pre-tokenizer is accepted");
	is_str(ids_of(" a"), "2", "... puts no sign before a blank");
	is_str(ids_of("\xe2\x96\x81"
		      "a"),
	       "2", "... nor before itself");
	is_str(ids_of("\xe2\x96"), "1", "... but puts one before bytes that only begin like it");
	is_str(open_json(
		       "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":false}," BPE(
			       "\"a\":0,\"\\u0120\":1,\"\\u0120a\":2", "\"\\u0120 a\"") "}"),
	       "", "ByteLevel with a blank in front is accepted");
	is_str(ids_of("a"), "2", "... and adds the blank");
	is_str(ids_of(" a"), "2", "... unless the text begins with one");
	is_str(open_json(
		       "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\" ?\"},\"behavior\":\"MergedWithNext\"}," BPE(
			       "\"a\":0,\" \":1,\" a\":2", "[\" \",\"a\"]") "}"),
	       "", "a pattern that matches nothing, too, is accepted");
	is_str(ids_of("  a"), "1 2", "... and does not match nothing directly after a match");
	is_str(open_json(
		       "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"MergedWithPrevious\"}," BPE(
			       "\"a\":0,\"-\":1,\"a-\":2,\"--\":3", "\"a -\",\"- -\"") "}"),
	       "", "the behavior MergedWithPrevious is accepted");
	is_str(ids_of("a--"), "2 1", "... and joins a sign to the text before it, but not two signs");
	is_str(ids_of("--a"), "1 1 0", "... nor a sign at the beginning to another");
}

/* -- the model -------------------------------------------------------------------------------------------------------------- */
static void models(void)
{
	is_str(open_json(FLAGS("\"continuing_subword_prefix\":\"##\"", "\"a\":0,\"##b\":1,\"ab\":2,\"##c\":3",
			       "\"a ##b\"")),
	       "", "a model with continuing_subword_prefix is accepted");
	is_str(ids_of("abc"), "2 3", "... and the prefix is removed where pieces are merged");
	is_str(ids_of("b"), "", "... and the first piece of a word has no prefix");
	is_str(open_json(FLAGS("\"end_of_word_suffix\":\"</w>\",\"continuing_subword_prefix\":\"\"",
			       "\"a\":0,\"b</w>\":1,\"ab</w>\":2", "\"a b</w>\"")),
	       "", "a model with end_of_word_suffix is accepted");
	is_str(ids_of("ab"), "2", "... and the last piece is merged with its suffix");
	is_str(ids_of("aa"), "0", "... or is left out if it has no token");
	is_str(open_json(FLAGS("\"unk_token\":\"?\"", "\"?\":0,\"a\":1", "")), "",
	       "a model with unk_token is accepted");
	is_str(ids_of("xya"), "0 0 1", "... and each unknown character is that token");
	is_str(open_json(FLAGS("\"unk_token\":\"?\",\"fuse_unk\":true", "\"?\":0,\"a\":1", "")), "",
	       "a model with fuse_unk is accepted");
	is_str(ids_of("xyax"), "0 1 0", "... and unknown characters in a row are one token");
	is_str(open_json(FLAGS("\"unk_token\":\"?\",\"byte_fallback\":true",
			       "\"?\":0,\"<0xC3>\":1,\"<0xA9>\":2,\"a\":3", "")),
	       "", "a model with byte_fallback is accepted");
	is_str(ids_of("\xc3\xa9"
		      "a\xc3\xa8"),
	       "1 2 3 0", "... and an unknown character becomes bytes if each of them has a token");
	is_str(open_json(FLAGS("\"end_of_word_suffix\":\"!\",\"byte_fallback\":true",
			       "\"<0x21>\":0,\"<0xC3>\":1,\"<0xA9>\":2,\"a\":3", "")),
	       "", "a model with byte_fallback and end_of_word_suffix is accepted");
	is_str(ids_of("\xc3\xa9"
		      "a\xc3\xa9"),
	       "1 2 3 1 2 0", "... and the suffix of an unknown last character becomes bytes too, as in Python");
	is_str(open_json(FLAGS("\"ignore_merges\":true", "\"a\":0,\"b\":1,\"ab\":2", "")), "",
	       "a model with ignore_merges is accepted");
	is_str(ids_of("ab"), "2", "... and a word that is a token needs no merges");
	is_str(ids_of("ba"), "1 0", "... and other words are not merged");
}

/* All bytes in the alphabet of ByteLevel, a token of other signs, and one that is a complete word.  The ids have a
 * gap. */
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
	is_str(open_json(json.at), "", "a model with all bytes is accepted");
	is_str(ids_of("ab"), "300", "... and a word that is a token is encoded as one");
	is_str(ids_of("ba"), "98 97", "... and any other word as its bytes");
	is_str(IDS(97, 299, 98), "ab", "... and ids without a token are left out");
	is_str(IDS(301, 97),
	       "\xe4\xb8\x80"
	       "a",
	       "... and a token of other signs is decoded as it is");
	hd_buf_release(&json);
}

/* -- after the model ----------------------------------------------------------------------------------------------- */
static void decoders(void)
{
	is_str(open_json("{\"decoder\":{\"type\":\"ByteFallback\"}," BPE(
		       "\"<0x41>\":0,\"<0xg1>\":1,\"<0x1G>\":2,\"<0x41)\":3,\"<1x41>\":4,\"<0xa\":5,"
		       "\"<0xAf>\":6,\"<0x/1>\":7,\"<0x:1>\":8,\"<0x@1>\":9,\"<0x`1>\":10",
		       "") "}"),
	       "", "a ByteFallback decoder is accepted");
	is_str(IDS(0), "A", "... and reads a byte's number in hexadecimal");
	for (int32_t i = 1; i < 11; i++)
		if (i != 6)
			ok(IDS(i)[0] == '<', "... and token %d, which has no valid number, is decoded as it is", i);
	is_str(open_json("{\"decoder\":{\"type\":\"Strip\",\"content\":\"__\",\"start\":2,\"stop\":2}," BPE(
		       "\"_\":0,\"____a____\":1,\"__\":2", "") "}"),
	       "", "a decoder that strips twice on each side is accepted");
	is_str(IDS(1), "a", "... and strips twice");
	is_str(IDS(0, 2), "_", "... or less often if the text has fewer");
	is_str(open_json(
		       "{\"decoder\":{\"type\":\"Strip\",\"content\":\"_\",\"start\":0,\"stop\":3}," BPE("\"_a_b_\":0",
													 "") "}"),
	       "", "a decoder that strips on one side is accepted");
	is_str(IDS(0), "_a_b", "... and stops at a different character");
	is_str(open_json("{\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\"}," BPE(
		       "\"\xe2\x96\x81"
		       "a\":0,\"\xe2\x96\x80\":1",
		       "") "}"),
	       "", "a Metaspace decoder is accepted");
	is_str(IDS(0, 0, 1), "a a\xe2\x96\x80", "... and replaces its own sign and no other");
	is_str(open_json("{\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"}," BPE(
		       "\"a_\":0", "") "}"),
	       "", "a Replace decoder is accepted");
	is_str(IDS(0, 0), "a a ", "... and replaces within each token");
}

static void added(void)
{
	is_str(open_json(
		       "{\"added_tokens\":[{\"id\":3,\"content\":\"<x>\",\"rstrip\":true},{\"id\":4,\"content\":\" y\"},"
		       "{\"id\":5,\"content\":\"w\",\"single_word\":true},{\"id\":6,\"content\":\"<z>\",\"lstrip\":true}]," MODEL
		       "}"),
	       "", "added tokens are accepted");
	is_str(ids_of("<x> ya"), "3 4 0", "one that begins with a blank that rstrip took is still found");
	is_str(ids_of("\xc3\xa9w"), "", "one with single_word is not found within a word with an accent");
	is_str(ids_of("\xe2\x80\xa6w"), "5", "... but is found after a sign of three bytes");
	is_str(ids_of("\xc2\xa0\xe2\x80\x83<z>"), "6", "one with lstrip takes all kinds of blanks before it");
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

	is_str(normal("\xea\xb0\x80\xe1\x86\xa8", 1), "\xea\xb0\x81",
	       "NFC: a syllable and a final consonant are composed");
	is_str(normal("\xe1\x84\x80\xe1\x85\xa1", 1), "\xea\xb0\x80", "NFC: a consonant and a vowel are composed");
	is_str(normal("\xe1\x84\x80"
		      "a",
		      1),
	       "\xe1\x84\x80"
	       "a",
	       "... but a consonant and a Latin letter are not");
	is_str(normal("\xea\xb0\x81\xe1\x86\xa8", 1), "\xea\xb0\x81\xe1\x86\xa8",
	       "NFC: a syllable takes only one final consonant");
	is_str(normal("\xea\xb0\x80\xe1\x86\xa7", 1), "\xea\xb0\x80\xe1\x86\xa7",
	       "... and the code point before the final consonants is not one");
	is_str(normal("\xea\xb0\x80\xe1\x87\x83", 1), "\xea\xb0\x80\xe1\x87\x83", "... nor is the one after them");
	is_str(normal("\xf0\xaf\xa8\x9d\xf0\xaf\xa8\x9e", 0), "\xf0\xaa\x98\x80\xf0\xaf\xa8\x9e",
	       "NFD: the last character of the table is replaced, and the next one is not");
	is_str(normal("a\xcc\x81\xcc\xa3", 0), "a\xcc\xa3\xcc\x81", "NFD: marks are put in canonical order");
	is_str(normal("\xcc\x81\xcc\xa3", 0), "\xcc\xa3\xcc\x81", "... also without a letter before them");
	for (size_t i = 0; i < HD_LEN(white); i++)
		ok(hd_utf8_white(white[i]) && !hd_utf8_white(other[i]), "U+%04X is white, and U+%04X is not", white[i],
		   other[i]);
	for (uint32_t c = 0; c < 0x200; c++)
		bytes += hd_char_byte(c) >= 0;
	is_int(bytes, 256, "the alphabet of ByteLevel has 256 characters below U+0200");
	is_int(hd_char_byte(0x4e00), -1, "... and none above");
	hd_matcher_destroy(NULL);
	hd_bpe_state_destroy(NULL);
}

/* -- files next to it ---------------------------------------------------------------------------------------------- */
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

	is_str(open_json("{" MODEL "}"), "", "a tokenizer without a token that ends texts is accepted");
	is_int(ends(NULL, NULL), -1, "... and no such token is found");
	for (size_t i = 0; i < 2; i++) {
		is_int(ends(names[i], "{\"eos_token\":\"b\"}"), 1, names[i]);
		is_int(ends(names[i], "{\"eos_token\":{\"content\":\"b\"}}"), 1, "... may have the token in an object");
		is_int(ends(names[i], "{\"eos_token\":\"c\"}"), -1, "... with an unknown token gives none");
		is_int(ends(names[i], "{\"eos_token\":7}"), -1, "... with a number for a token gives none");
		is_int(ends(names[i], "{\"eos_token\":{\"content\":7}}"), -1,
		       "... with an object without a text gives none");
		is_int(ends(numbers[i], "{\"eos_token_id\":1}"), 1, numbers[i]);
		is_int(ends(numbers[i], "{\"eos_token_id\":[2,0]}"), 2, "... may have a list, whose first id is taken");
		is_int(ends(numbers[i], "{\"eos_token_id\":[]}"), -1, "... with an empty list gives none");
		is_int(ends(numbers[i], "{\"eos_token_id\":\"b\"}"), -1, "... with a text for an id gives none");
		is_int(ends(numbers[i], "{\"eos_token_id\":99}"), -1,
		       "... with an id beyond the vocabulary gives none");
		is_int(ends(numbers[i], "{\"eos_token_id\":-1}"), -1, "... with a negative id gives none");
	}
	put("special_tokens_map.json", "{\"bos_token\":\"a\"}");
	is_int(hd_tokenizer_begin(tokenizer), 0, "the token that begins texts is taken from special_tokens_map.json");
	put("tokenizer_config.json", "{\"bos_token\":\"b\"}");
	is_int(hd_tokenizer_begin(tokenizer), 1, "... but first from tokenizer_config.json");
	unlink("special_tokens_map.json");
	unlink("tokenizer_config.json");
	is_str(open_json("{" BPE("\"</s>\":0,\"a\":1", "") "}"), "",
	       "a tokenizer with a token that usually ends texts is accepted");
	is_int(ends(NULL, NULL), 0, "... and that token is taken");
	is_str(guessed, "</s>", "... and named as a guess");
	is_int(ends("config.json", "{\"eos_token_id\":1}"), 1, "... unless a file says which token it is");
	is_str(guessed, NULL, "... which is not a guess");
	is_int(ends("tokenizer_config.json", "{\"eos_token\":\"b\"}"), -1,
	       "... and if the file names an unknown token, none is taken");
	is_str(err.text, "tokenizer_config.json: eos_token is b, which is not in the vocabulary of t.json",
	       "... with a message that names it");
	is_int(ends("config.json", "{\"eos_token_id\":99}"), -1, "... and if it has an unknown id, none is taken");
	is_str(err.text, "config.json: eos_token_id is 99, which is not in the vocabulary of t.json",
	       "... with a message that has the id");
	is_str(open_json("{" BPE("\"</s>\":0,\"<eos>\":1", "") "}"), "",
	       "a tokenizer with two tokens that usually end texts is accepted");
	is_int(ends(NULL, NULL), -1, "... and neither is taken");
	is_str(open_path("./t.json"), "", "a path with a folder is accepted");
	is_int(ends("config.json", "{\"eos_token_id\":1}"), 1, "... and the other files are looked for in that folder");
}

static void paths(void)
{
	char *file;

	is_str(open_path("nowhere.json"), "nowhere.json: No such file or directory",
	       "a file that does not exist is refused");
	is_str(open_path("abc"), "abc/tokenizer.json: No such file or directory",
	       "a name that does not exist is taken for a folder");
	mkdir("sub", 0777);
	put("sub/tokenizer.json", "{" MODEL "}");
	is_str(open_path("sub"), "", "a folder with a tokenizer.json is accepted");
	unlink("sub/tokenizer.json");
	is_str(open_path("sub"), "sub/tokenizer.json: No such file or directory", "... and one without it is refused");
	put("sub/x", "{");
	is_str(open_path("sub/x"), "sub/x:1: string or '}' expected near end of file", "a file of any name is read");
	if (!symlink("/etc/passwd", "sub/tokenizer.json"))
		ok(strstr(open_path("sub"), "sub/tokenizer.json") != NULL && err.code,
		   "a link to a file outside the folder is refused");
	file = hd_tokenizer_file("x.json");
	is_str(file, "x.json", "the name of a file that does not exist stays as it is");
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
