/* SPDX-License-Identifier: Apache-2.0
 * Extracts the text of a JSONL line. JSON is UTF-8: invalid bytes, and escapes of half a surrogate pair, count as
 * U+FFFD, as in a file of text.
 */
#include <config.h>
#include "engine/text/corpus/documents.h"
#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>

/* -- errors ------------------------------------------------------------------------------------ */
static int is_array(const struct hd_batch *b, int64_t line, struct hd_err *err)
{
	return hd_err_set(
		err, HD_EINVAL,
		"%s:%lld: is an array, not an object; each line must be an object, as jq -c '.[]' prints them", b->path,
		(long long)line + 1);
}

/* Reports a line that is not JSON. One that begins with a bracket is likely the first line of a file with one array. */
static int not_json(const struct hd_batch *b, int64_t line, struct hd_span json, const char *why, struct hd_err *err)
{
	size_t first = 0;

	while (first < json.n && strchr(" \t\r\n", json.at[first]))
		first++;
	if (first < json.n && json.at[first] == '[')
		return is_array(b, line, err);
	return hd_err_set(err, HD_EINVAL, "%s:%lld: is not JSON: %s; each line must be an object", b->path,
			  (long long)line + 1, why);
}

/* Returns advice for lines in one of the usual formats of conversations, else "". */
static const char *chat_advice(json_t *o)
{
	if (!json_is_array(json_object_get(o, "messages")) && !json_is_array(json_object_get(o, "conversations")))
		return "";
	return ". Convert conversations to text first, with apply_chat_template(messages, tokenize=False) of "
	       "transformers";
}

static int no_field(const struct hd_batch *b, int64_t line, json_t *o, const char *field, struct hd_err *err)
{
	json_t *have = json_object_get(o, field);
	char *names = hd_strdup("");
	const char *key;
	json_t *value;

	json_object_foreach(o, key, value)
		hd_append(&names, "%s%s", *names ? ", " : "", key);
	if (!json_is_object(o))
		is_array(b, line, err);
	else if (have)
		hd_err_set(err, HD_EINVAL, "%s:%lld: the field %s is not a string", b->path, (long long)line + 1,
			   field);
	else
		hd_err_set(err, HD_EINVAL, "%s:%lld: has no field %s; it has: %.400s%s", b->path, (long long)line + 1,
			   field, names, chat_advice(o));
	free(names);
	return err->code;
}

/* -- replacing invalid text -------------------------------------------------------------------- */
enum { NONE, HIGH, LOW };

/* Returns which half of a surrogate pair the escape at s is (\ud800 to \udfff), or NONE. */
static int surrogate(const char *s, size_t n)
{
	if (n < 6 || s[0] != '\\' || s[1] != 'u' || tolower((unsigned char)s[2]) != 'd' ||
	    !isxdigit((unsigned char)s[4]) || !isxdigit((unsigned char)s[5]) || !s[3])
		return NONE;
	return strchr("89abAB", s[3]) ? HIGH : strchr("cdefCDEF", s[3]) ? LOW : NONE;
}

/* Replaces unpaired halves in place by the escape of U+FFFD, which has the same length. Returns the bytes replaced. */
static size_t replace_halves(char *s, size_t n)
{
	size_t bad = 0;

	for (size_t i = 0; i + 1 < n;) {
		int half = surrogate(s + i, n - i), pair = half == HIGH && surrogate(s + i + 6, n - i - 6) == LOW;

		if (half && !pair) {
			memcpy(s + i + 2, "fffd", 4);
			bad += 6;
		}
		i += pair ? 12 : half ? 6 : s[i] == '\\' ? 2 : 1;
	}
	return bad;
}

/* Replaces the numbers that Python writes but JSON lacks, NaN and Infinity, in place by 0 and blanks. Returns how many.
 * Only texts are read here, so a number may change. */
static size_t replace_constants(char *s, size_t n)
{
	static const char *const words[] = { "NaN", "Infinity" };
	size_t found = 0, k;
	int in_text = 0;

	for (size_t i = 0; i < n; i += s[i] == '\\' ? 2 : 1) {
		in_text ^= s[i] == '"';
		for (size_t w = 0; !in_text && w < HD_LEN(words); w++) {
			k = strlen(words[w]);
			if (n - i < k || memcmp(s + i, words[w], k) || (i && isalnum((unsigned char)s[i - 1])))
				continue;
			memset(s + i, ' ', k);
			s[i] = '0';
			found++;
		}
	}
	return found;
}

/* Integers are read as reals: jansson refuses one of more than 64 bits, such as a hash in a field of metadata. */
static json_t *load(const char *s, size_t n, json_error_t *why)
{
	return json_loadb(s, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, why);
}

/* Parses a line as JSON; *bad is the number of bytes replaced. Returns NULL and sets *why if it is not JSON. The
 * halves of pairs, and constants of Python, are replaced only if parsing fails without that. */
static json_t *parse(struct hd_span json, int64_t *bad, json_error_t *why)
{
	struct hd_buf repaired = { 0 };
	size_t halves = 0, constants = 0;
	json_t *o;

	*bad = (int64_t)hd_utf8_bad(json.at, json.n);
	hd_utf8_repair(json.at, *bad ? json.n : 0, &repaired);
	o = *bad ? load(repaired.at, repaired.n, why) : load(json.at, json.n, why);
	if (!o && !*bad)
		hd_buf_add(&repaired, json.at, json.n);
	if (!o) {
		halves = replace_halves(repaired.at, repaired.n);
		constants = replace_constants(repaired.at, repaired.n);
	}
	if (halves || constants)
		o = load(repaired.at, repaired.n, why);
	*bad += (int64_t)halves;
	hd_buf_release(&repaired);
	return o;
}

int hd_document_text(const struct hd_batch *b, int64_t line, struct hd_span json, const char *field, struct hd_buf *out,
		     int64_t *bad, struct hd_err *err)
{
	json_error_t at;
	json_t *o = parse(json, bad, &at), *text = json_object_get(o, field);
	int rc = HD_OK;

	if (!o)
		rc = not_json(b, line, json, at.text, err);
	else if (!json_is_string(text))
		rc = no_field(b, line, o, field, err);
	else
		hd_buf_add(out, json_string_value(text), json_string_length(text));
	json_decref(o);
	return rc;
}
