/* SPDX-License-Identifier: Apache-2.0
 * The parts of tokenizer.json: a damaged or unknown part is refused with its place and value, and forms that no
 * tokenizer of t/data has work as specified.  If this broke, a file that differs in one flag would be read as a
 * different tokenizer.
 */
#include <config.h>
#include "engine/text/bpe/bpe.h"
#include "engine/text/tokenizer.h"
#include "engine/text/unicode/regex.h"
#include "t/lib/tap.h"
#include <unistd.h>

static struct hd_tokenizer *tokenizer;
static struct hd_err err;

static const char *open_json(const char *json)
{
	FILE *f = fopen("t.json", "w");

	fputs(json, f);
	fclose(f);
	hd_tokenizer_close(tokenizer);
	tokenizer = NULL;
	memset(&err, 0, sizeof(err));
	if (hd_tokenizer_open("t.json", &tokenizer, &err) != err.code)
		return "the code is not that of the text";
	return err.text;
}

/* -- refused ------------------------------------------------------------------------------------------------------------------ */
#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}"
#define MODEL "\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a b\"]}"
#define SPLIT(regex) \
	"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex \
	"\"},\"behavior\":\"Isolated\"}," MODEL "}"
#define SAYS(what) "t.json: pre_tokenizer Split: the expression " what " is not supported"

static const struct {
	const char *json, *says;
} refused[] = {
	{ "[1]", "t.json: it contains no model" },
	{ "{\"model\":{" VOCAB "}}", "t.json: model has no type; known: BPE" },
	{ "{\"model\":{\"type\":\"BPE\",\"merges\":[]}}", "t.json: model.vocab is missing" },
	{ "{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", "t.json: model.vocab is missing" },
	{ "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}",
	  "t.json: model.vocab: the id of a is -1, not from 0 to 65552, for 1 tokens" },
	{ "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999},\"merges\":[]}}",
	  "t.json: model.vocab: the id of a is 99999999, not from 0 to 65552, for 1 tokens" },
	{ "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"0\"},\"merges\":[]}}",
	  "t.json: model.vocab: the id of a is -1, not from 0 to 65552, for 1 tokens" },
	{ "{\"model\":{\"type\":\"BPE\"," VOCAB "}}", "t.json: model.merges is missing" },
	{ "{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"ab\"]}}",
	  "t.json: model.merges: merge 0 is not a pair of tokens" },
	{ "{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a b b\"]}}",
	  "t.json: model.merges: merge 0 is not a pair of tokens" },
	{ "{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[[\"a\",1]]}}",
	  "t.json: model.merges: merge 0 is not a pair of tokens" },
	{ "{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[7]}}",
	  "t.json: model.merges: merge 0 is not a pair of tokens" },
	{ "{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"x b\"]}}",
	  "t.json: model.merges: merge 0, x and b: the first is not in model.vocab" },
	{ "{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a x\"]}}",
	  "t.json: model.merges: merge 0, a and x: the second is not in model.vocab" },
	{ "{\"model\":{\"type\":\"BPE\",\"dropout\":0.5," VOCAB ",\"merges\":[]}}",
	  "t.json: model.dropout is 0.5: ids would be random; remove it" },
	{ "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\"," VOCAB ",\"merges\":[]}}",
	  "t.json: model.unk_token: ? is not in model.vocab" },
	{ "{\"added_tokens\":[{\"content\":\"x\"}]," MODEL "}", "t.json: added_tokens: one has no content or no id" },
	{ "{\"added_tokens\":[{\"id\":3}]," MODEL "}", "t.json: added_tokens: one has no content or no id" },
	{ "{\"added_tokens\":[{\"content\":\"x\",\"id\":-3}]," MODEL "}",
	  "t.json: added_tokens: x has id -3, and in model.vocab -1" },
	{ "{\"added_tokens\":[{\"content\":\"x\",\"id\":99999999}]," MODEL "}",
	  "t.json: added_tokens: x has id 99999999, and in model.vocab -1" },
	{ "{\"added_tokens\":[{\"content\":\"a\",\"id\":3}]," MODEL "}",
	  "t.json: added_tokens: a has id 3, and in model.vocab 0" },
	{ "{\"normalizer\":{}," MODEL "}",
	  "t.json: normalizer is without a type; known: NFC, NFD, Prepend, Replace, Strip, ByteLevel, Sequence" },
	{ "{\"normalizer\":{\"type\":\"Sequence\"}," MODEL "}", "t.json: normalizer: a Sequence without normalizers" },
	{ "{\"normalizer\":{\"type\":\"Replace\",\"content\":\"x\"}," MODEL "}",
	  "t.json: normalizer Replace: no pattern with a String or a Regex" },
	{ "{\"normalizer\":{\"type\":\"Prepend\"}," MODEL "}", "t.json: normalizer Prepend: no prepend" },
	{ "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"}}," MODEL "}",
	  "t.json: pre_tokenizer Split: behavior is not given; known: Isolated, Removed, MergedWithPrevious, "
	  "MergedWithNext, Contiguous" },
	{ "{\"pre_tokenizer\":{\"type\":\"Punctuation\",\"behavior\":\"Kept\"}," MODEL "}",
	  "t.json: pre_tokenizer Punctuation: behavior is Kept; known: Isolated, Removed, MergedWithPrevious, "
	  "MergedWithNext, Contiguous" },
	{ "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}," MODEL "}",
	  "t.json: pre_tokenizer Metaspace: prepend_scheme is last; known: always, first, never" },
	{ "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\"}," MODEL "}",
	  "t.json: pre_tokenizer Metaspace: replacement is empty" },
	{ "{\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\"}," MODEL "}",
	  "t.json: decoder Metaspace: replacement is empty" },
	{ "{\"decoder\":{\"type\":\"Strip\",\"content\":\"\",\"start\":1,\"stop\":0}," MODEL "}",
	  "t.json: decoder Strip: content is empty" },
	{ SPLIT("\\\\pL"), SAYS("\\pL: \\p without {name}") },
	{ SPLIT("\\\\p{L"), SAYS("\\p{L: \\p without {name}") },
	{ SPLIT("a\\\\"), SAYS("a\\: a \\ at the end") },
	{ SPLIT("[\\\\S]"), SAYS("[\\S]: \\S or \\W within [...]") },
	{ SPLIT("\\\\u12"), SAYS("\\u12: \\u without four digits") },
	{ SPLIT("\\\\K"),
	  SAYS("\\K: an escape that is not one of \\s \\S \\w \\W \\d \\D \\p \\P \\b \\B \\A \\z \\Z") },
	{ SPLIT("[\\\\B]"), SAYS("[\\B]: \\B within [...]") },
	{ SPLIT("[a[b]]"), SAYS("[a[b]]: a set within [...]") },
	{ SPLIT("[a"), SAYS("[a: [ without ]") },
	{ SPLIT("(?P<n>a)"), SAYS("(?P<n>a): this kind of group") },
	{ SPLIT("(*FAIL)"), SAYS("(*FAIL): (*") },
	{ SPLIT("(?i)ß"), SAYS("(?i)ß: a character that may be several where case is ignored") },
	{ SPLIT("(?i:xSs)"), SAYS("(?i:xSs): ss, st, ff, fi or fl where case is ignored") },
	{ SPLIT("(?i)f(?:i)"), SAYS("(?i)f(?:i): ss, st, ff, fi or fl where case is ignored") },
	{ SPLIT("(?i)[\\\\p{L}]"),
	  SAYS("(?i)[\\p{L}]: \\w, \\W, \\p, \\P, \\S or \\D within [...] where case is ignored") },
	{ SPLIT("(?i)[é]"), SAYS("(?i)[é]: a character beyond ASCII within [...] where case is ignored") },
	{ SPLIT("(?i)[’-ⅷ]"), SAYS("(?i)[’-ⅷ]: a character beyond ASCII within [...] where case is ignored") },
	{ SPLIT("(?i)[a-’]"), SAYS("(?i)[a-’]: a character beyond ASCII within [...] where case is ignored") },
	{ SPLIT("(?i)Ⅷ"), SAYS("(?i)Ⅷ: a character that may be several where case is ignored") },
	{ SPLIT("(?i)[[:alpha:]]"), SAYS("(?i)[[:alpha:]]: [:name:] where case is ignored") },
	{ SPLIT("(?i)\\\\p{Lu}"), SAYS("(?i)\\p{Lu}: \\p{...} of one case where case is ignored") },
	{ SPLIT("(?i)\\\\x73"), SAYS("(?i)\\x73: a character by its number where case is ignored") },
	{ SPLIT("a(?i)b"), SAYS("a(?i)b: (?i) that is not the first in its group") },
	{ SPLIT("\\\\((?i)a"), SAYS("\\((?i)a: (?i) that is not the first in its group") },
	{ SPLIT("(?i)(?-i)a"), SAYS("(?i)(?-i)a: (?i) that is not the first in its group") },
	{ SPLIT("[[:^punct:]]"), SAYS("[[:^punct:]]: this [:name:]") },
};

/* -- forms --------------------------------------------------------------------------------------------------------------------- */
static const char *ids_of(const char *text)
{
	static char out[400];
	struct hd_encoder *e = hd_encoder_create(tokenizer);
	struct hd_ids ids = { 0 };
	size_t n = 0;

	*out = 0;
	if (hd_encode(e, text, strlen(text), &ids, &err) < 0)
		snprintf(out, sizeof(out), "%s", err.text);
	for (size_t i = 0; i < ids.n; i++)
		n += (size_t)snprintf(out + n, sizeof(out) - n, "%s%d", i ? " " : "", ids.at[i]);
	free(ids.at);
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

#define META(more) \
	"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"" more "}," \
	"\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"_\"" more "}," \
	"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"_\":1,\"_a\":2,\"a_\":3},\"merges\":[\"_ a\",\"a _\"]}}"

static void metaspace(void)
{
	is_str(open_json(META("")), "", "a Metaspace pre-tokenizer is accepted");
	is_str(ids_of("a a"), "2 2", "... puts its sign in front of the text, and cuts before each sign");
	is_str(text_of((int32_t[]){ 2, 2 }, 2), "a a", "... and the first sign is decoded as nothing");
	is_str(open_json(META(",\"add_prefix_space\":false")), "", "the old key add_prefix_space is accepted");
	is_str(ids_of("a a"), "0 2", "... and without it the first word has no sign");
	is_str(text_of((int32_t[]){ 2, 2 }, 2), " a a", "... and each sign is decoded as a blank");
	is_str(open_json(META(",\"prepend_scheme\":\"never\"")), "", "prepend_scheme never is accepted");
	is_str(ids_of("a a"), "0 2", "... and encodes as without add_prefix_space");
	is_str(text_of((int32_t[]){ 2, 0 }, 2), " aa", "... and decodes so");
	is_str(open_json(META(",\"prepend_scheme\":\"first\"")), "", "prepend_scheme first is accepted");
	is_str(ids_of("a a"), "2 2", "... and puts a sign where the text begins");
	is_str(open_json(META(",\"prepend_scheme\":\"always\",\"split\":false")), "",
	       "Metaspace without cuts is accepted");
	is_str(ids_of("a a"), "2 2", "... and the merge that is listed first is made first");
}

static void decoders(void)
{
	is_str(open_json(
		       "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
		       "{\"type\":\"Strip\",\"content\":\"_\",\"start\":1,\"stop\":1}]},\"model\":{\"type\":\"BPE\","
		       "\"byte_fallback\":true,\"vocab\":{\"_\":0,\"a\":1,\"<0xC3>\":2,\"<0xa9>\":3,\"<0xGG>\":4},"
		       "\"merges\":[]}}"),
	       "", "a decoder of bytes that also strips a sign is accepted");
	is_str(text_of((int32_t[]){ 0, 1, 0 }, 3), "a", "... strips the sign on both sides");
	is_str(text_of((int32_t[]){ 0, 0, 1 }, 3), "_a", "... only once on each side");
	is_str(text_of((int32_t[]){ 2, 3 }, 2), "\xc3\xa9",
	       "... joins bytes into a character, in either case of their digits");
	is_str(text_of((int32_t[]){ 2, 1 }, 2),
	       "\xef\xbf\xbd"
	       "a",
	       "... or into U+FFFD if they are not a character");
	is_str(text_of((int32_t[]){ 4 }, 1), "<0xGG>", "... and leaves a token without a valid number as it is");
	is_str(text_of((int32_t[]){ 1, 99, -1, 1 }, 4), "aa", "... and leaves out ids that no token has");
}

/* The pieces of "a-a", by what happens to the sign between them. */
static void behaviors(void)
{
	static const char *const each[][2] = { { "Isolated", "0 1 0" },
					       { "Removed", "0 0" },
					       { "MergedWithPrevious", "2 0" },
					       { "MergedWithNext", "0 3" },
					       { "Contiguous", "0 1 0" } };
	char json[600];

	for (size_t i = 0; i < sizeof(each) / sizeof(*each); i++) {
		snprintf(
			json, sizeof(json),
			"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"%s\"},"
			"\"model\":{\"vocab\":{\"a\":0,\"-\":1,\"a-\":2,\"-a\":3},\"merges\":[[\"a\",\"-\"],[\"-\",\"a\"]]}}",
			each[i][0]);
		is_str(open_json(json), "", each[i][0]);
		is_str(ids_of("a-a"), each[i][1], "... cuts a-a");
	}
}

/* Cuts are made at category P of Unicode 8: not at U+2E55, which is newer, but at U+166D, which has left it since. */
static void punctuation(void)
{
	is_str(open_json("{\"pre_tokenizer\":{\"type\":\"Punctuation\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,"
			 "\"\\u2e55\":1,\"a\\u2e55\":2,\"\\u166d\":3,\"a\\u166d\":4,\"~\":5,\"a~\":6},"
			 "\"merges\":[\"a \\u2e55\",\"a \\u166d\",\"a ~\"]}}"),
	       "", "a Punctuation pre-tokenizer is accepted");
	is_str(ids_of("a\xe2\xb9\x95"), "2", "... does not cut at a sign added after Unicode 8");
	is_str(ids_of("a\xe1\x99\xad"), "0 3", "... cuts at a character that was punctuation in Unicode 8");
	is_str(ids_of("a~"), "0 5", "... and at ASCII signs outside category P");
}

static void added(void)
{
	is_str(open_json("{\"added_tokens\":[{\"id\":3,\"content\":\"<x>\",\"rstrip\":true,\"lstrip\":true},"
			 "{\"id\":4,\"content\":\"aa\",\"single_word\":true}]," MODEL "}"),
	       "", "added tokens are accepted");
	is_str(ids_of("a <x>  b"), "0 3 1", "... one with lstrip and rstrip takes the blanks on both sides");
	is_str(ids_of("<x> <x>"), "3 3", "... except those that another has taken already");
	is_str(ids_of("aa"), "4", "... one with single_word is found as a word");
	is_str(ids_of("aab"), "0 2", "... but not at the beginning of a longer word");
	is_str(ids_of("baa"), "1 0 0", "... nor at its end");
	is_str(open_json(
		       "{\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"_\"},\"added_tokens\":[{\"id\":3,\"content\":\"<x>\","
		       "\"normalized\":true}],\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"}," MODEL
		       "}"),
	       "", "an added token after a normalizer is accepted");
	is_str(text_of((int32_t[]){ 0, 3 }, 2), "a <x>", "... and is decoded in its normalized form");
}

/* The matches of Python's tokenizers 0.23.3, which uses Oniguruma; a bar follows each. */
static void expressions(void)
{
	static const struct {
		const char *pattern, *text, *matches;
	} all[] = {
		{ "\\w+", "a\u00bdb a\u00b2b \u2460 e\u0301_", "a\u00bdb|a\u00b2b|e\u0301_|" },
		{ "[\\w']+", "a\u00bdb", "a|b|" },
		{ "\\W+", "a\u00bd-\u2460b", "-\u2460|" },
		{ "\\b.", "e\u0301-\u00bd", "e|-|\u00bd|" },
		{ "[\\b]", "b\b", "\b|" },
		{ "\\B.", "e\u0301b-", "\u0301|b|" },
		{ "[[:alpha:]]+", "a\u2167\u24d0\u0345-\u00b2\u0663", "a\u2167\u24d0\u0345|" },
		{ "[[:alnum:]]+", "a\u0663\u00b2b", "a\u0663|b|" },
		{ "[[:^alpha:]]", "a\u0345-", "-|" },
		{ "[[:upper:]]", "A\u2160a", "A|\u2160|" },
		{ "[[:lower:]]", "A\u2170a", "\u2170|a|" },
		{ "[[:punct:]]", "$-\u20aca", "$|-|\u20ac|" },
		{ "[[:space:]]", "\u180e\u2028", "\u2028|" },
		{ "[[:blank:]]", "\u180e\u00a0\n", "\u00a0|" },
		{ "[[:graph:]]+", "\u180e\ue000 a", "\u180e\ue000|a|" },
		{ "[[:print:]]+", "\u180e a\n", "\u180e a|" },
		{ "[[:word:]]+", "a\u203f\u00bd", "a\u203f|" },
		{ "(?i)k\u00e9", "\u212a\u00c9", "\u212a\u00c9|" },
		{ "(?i:'s|'T)|T", "'S't't", "'S|'t|'t|" },
		{ "(?i:['\u2019]s|'t)", "x\u2019S 's 'T \u2019t", "\u2019S|'s|'T|" },
		{ "(?i)a\u2019S", "A\u2019s a's", "A\u2019s|" },
		{ "(?i)x[^\u2019]", "X\u2019xa", "xa|" },
		{ "(?i)[\u2013\u2014]k", "\u2013K\u2014\u212a-k", "\u2013K|\u2014\u212a|" },
		{ "((?i)a|b)B", "AB BB Ab", "AB|BB|" },
		{ "(?:(?i)a|b)B", "AB BB Ab", "AB|BB|" },
		{ "(?i)a(?-i:ss)", "ASS Ass", "Ass|" },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		struct hd_matcher *m = hd_matcher_create();
		struct hd_regex *r = NULL;
		struct hd_buf got = { 0 };
		size_t start, end = 0, n = strlen(all[i].text);

		err = (struct hd_err){ 0 };
		hd_regex_compile(all[i].pattern, strlen(all[i].pattern), &r, &err);
		while (r && hd_regex_find(r, m, all[i].text, n, end, &start, &end, &err) > 0 && end > start) {
			hd_buf_add(&got, all[i].text + start, end - start);
			hd_buf_add(&got, "|", 1);
		}
		hd_buf_add(&got, "", 1);
		is_str(err.code ? err.text : got.at, all[i].matches, all[i].pattern);
		hd_buf_release(&got);
		hd_regex_free(r);
		hd_matcher_destroy(m);
	}
}

/* An empty match is stepped over, also at the end of the text. */
static void empty_matches(void)
{
	is_str(open_json(SPLIT("a*")), "", "a pattern with empty matches is accepted");
	is_str(ids_of("baab"), "1 0 0 1", "... and encoding reaches the end of the text");
}

/* Loads a model with byte tokens and one merge, as converted from SentencePiece, to test where text may be cut. */
static void load_bytes(struct hd_bpe *b, const char *left, const char *right)
{
	json_t *model = json_pack("{s:s, s:b, s:{s:i, s:i, s:i, s:i}, s:[[s, s]]}", "type", "BPE", "byte_fallback", 1,
				  "vocab", "a", 256, "b", 257, "ab", 258, "<0x00><0x01>", 259, "merges", left, right);
	json_t *vocab = json_object_get(model, "vocab");

	for (int c = 0; c < 256; c++) {
		char name[8];

		snprintf(name, sizeof(name), "<0x%02X>", c);
		json_object_set_new(vocab, name, json_integer(c));
	}
	memset(b, 0, sizeof(*b));
	ok(hd_bpe_load(b, model, 0, &err) == 0, "a model with byte tokens that merges %s and %s is loaded", left,
	   right);
	json_decref(model);
}

static void cuts(void)
{
	struct hd_bpe b;

	load_bytes(&b, "a", "b");
	ok(b.joined && hd_bpe_joined(&b, 'a', 'b') && !hd_bpe_joined(&b, 'b', 'a'),
	   "text may be cut everywhere except within ab");
	hd_bpe_release(&b);
	load_bytes(&b, "<0x00>", "<0x01>");
	ok(!b.joined, "text is not cut if bytes are merged");
	hd_bpe_release(&b);
	is_str(open_json("{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"<0x63>\":0,\"a\":1},"
			 "\"merges\":[]}}"),
	       "", "a model with a byte token of id 0 is accepted");
	is_str(ids_of("ac"), "1 0", "... and encodes that byte");
}

/* The first and last characters of each length. */
static void utf8(void)
{
	static const struct {
		uint32_t c;
		const char *bytes;
	} edges[] = { { 0x7f, "\x7f" },          { 0x80, "\xc2\x80" },       { 0x7ff, "\xdf\xbf" },
		      { 0x800, "\xe0\xa0\x80" }, { 0xffff, "\xef\xbf\xbf" }, { 0x10000, "\xf0\x90\x80\x80" } };

	for (size_t i = 0; i < sizeof(edges) / sizeof(*edges); i++) {
		char out[5] = { 0 }, name[40];

		snprintf(name, sizeof(name), "U+%04X in UTF-8", edges[i].c);
		hd_utf8_put(out, edges[i].c);
		is_str(out, edges[i].bytes, name);
	}
}

int main(void)
{
	char dir[] = "/tmp/heddle-t1023.XXXXXX";

	if (!mkdtemp(dir) || chdir(dir))
		skip_all("no temporary directory");
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
		is_str(open_json(refused[i].json), refused[i].says, refused[i].says);
	metaspace();
	decoders();
	behaviors();
	punctuation();
	added();
	empty_matches();
	expressions();
	cuts();
	utf8();
	hd_tokenizer_close(tokenizer);
	unlink("t.json");
	if (!chdir("/"))
		rmdir(dir);
	return done();
}
