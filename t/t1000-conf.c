/* SPDX-License-Identifier: Apache-2.0
 * Reading INI files.  If this broke, a job could run for days with a key that was silently ignored.  Complete error
 * texts are compared, because users and scripts read them.
 */
#include <config.h>
#include "engine/config/conf.h"
#include "engine/base/parse.h"
#include "engine/config/curve.h"
#include "t/lib/tap.h"

static const struct hd_option options[] = {
	{ "size", HD_OPT_INT, 0, NULL, "1..64", "members" },
	{ "chunks", HD_OPT_INT, 0, "1", "1..", "chunks of a stage" },
	{ "bucket", HD_OPT_BYTES, 0, "25M", "1K..1G", "bytes of a bucket" },
	{ "overlap", HD_OPT_BOOL, 0, "yes", NULL, "overlap" },
	{ "lr", HD_OPT_NUM, 0, "3e-4", "0..", "rate" },
	{ "schedule", HD_OPT_CHOICE, 0, "gpipe", "gpipe|1f1b|FILE", "order of units" },
	{ "form", HD_OPT_CHOICE, 0, "1d", "1d|2d|2.5d", "form" },
	{ "split", HD_OPT_STR, 0, "balanced", NULL, "layers" },
	{ "plugin", HD_OPT_STR, 0, "", NULL, "path" },
};
static const struct hd_key_table table = { options, HD_LEN(options), sizeof(options[0]) };
static const char *const names[] = { "model", "train", "data", NULL };
static const char *const kinds[] = { "strategy", NULL };

static struct hd_err err;

/* Returns the error of reading the text, of unknown sections, or of checking [strategy x]; "" if all is well. */
static const char *verdict(const char *text, const char *set)
{
	struct hd_conf *c = NULL;
	int rc;

	memset(&err, 0, sizeof(err));
	rc = hd_conf_parse("x.ini", text, &set, set != NULL, &c, &err);
	if (!rc)
		rc = hd_conf_known(c, names, kinds, &err);
	if (!rc)
		rc = hd_section_check(c, hd_conf_section(c, "strategy", "x"), &table, 1, &err);
	if (!!rc != !!err.code || rc != err.code)
		snprintf(err.text, sizeof(err.text), "code %d but text of %d", rc, err.code);
	if (!rc || c)
		hd_conf_destroy(c);
	return err.text;
}

#define X "[strategy x]\n"

static void syntax(void)
{
	is_str(verdict(X "size 3\n", NULL), "x.ini:2: 'size 3' is neither [section] nor key = value",
	       "a line without = is refused");
	is_str(verdict("\n[strategy x\nsize = 3\n", NULL), "x.ini:2: '[strategy x' is a section without its ]",
	       "a section without ] is refused");
	is_str(verdict(X "= 3\n", NULL), "x.ini:2: no key before the =", "a line without a key is refused");
	is_str(verdict("size = 3\n", NULL), "x.ini:1: size: a key before the first [section]",
	       "a key before the first section is refused");
	is_str(verdict(X "size = 3\n\nsize = 4\n", NULL), "x.ini:4: [strategy x] size: given twice, first in line 2",
	       "a duplicate key is refused");
	is_str(verdict(X "size = 3\n[model]\n[strategy  x]\n", NULL),
	       "x.ini:4: [strategy x]: section given twice, first in line 1", "a duplicate section is refused");
	is_str(verdict("[model] layers = 2\n", NULL), "x.ini:1: [model]: 'layers = 2' follows the section's name",
	       "text after ] is refused");
	is_str(verdict("[a b c]\n", NULL), "x.ini:1: [a b c]: a section is [name] or [kind name]",
	       "a section of three words is refused");
	is_str(verdict("[strategy aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]\n",
		       NULL),
	       "x.ini:1: [strategy...]: the name of a section has at most 90 letters, this one 91",
	       "a section name that is too long is refused");
	is_str(verdict("[]\n", NULL), "x.ini:1: [ ]: a section is [name] or [kind name]",
	       "a section without a name is refused");
	is_str(verdict("[model]\n\x7f"
		       "ELF\n",
		       NULL),
	       "x.ini:2: byte 0x7f: this is not a text file", "a binary file is refused");
	is_str(verdict(X "junk\nsize = 1\nsize = 1\n", NULL), "x.ini:2: 'junk' is neither [section] nor key = value",
	       "only the first of two errors is reported");
	is_str(verdict("[mod", NULL), "x.ini:1: '[mod' is a section without its ]", "a truncated file is refused");
	is_str(verdict("\xef\xbb\xbf" X "\tsize = 3 ; comment\r\n# c\r\n ; c\r\n   lr = 1\r\n", NULL), "",
	       "a byte order mark, carriage returns, comments and indented keys are accepted");
}

static void sections(void)
{
	is_str(verdict("[modle]\n", NULL), "x.ini:1: [modle]: unknown section; did you mean [model]?",
	       "an unknown section: a near name is suggested");
	is_str(verdict("[stratgy x]\n", NULL), "x.ini:1: [stratgy x]: unknown section; did you mean [strategy x]?",
	       "an unknown section: a near kind is suggested");
	is_str(verdict("[x]\n", NULL),
	       "x.ini:1: [x]: unknown section; sections: [model], [train], [data], [strategy NAME]",
	       "all sections are listed if no name is near");
	is_str(verdict("[optimizer]\n", NULL), "x.ini:1: [optimizer]: unknown section; did you mean [train]?",
	       "a section's name in other programs leads to ours");
	is_str(verdict("[distributed]\n", NULL),
	       "x.ini:1: [distributed]: unknown section; did you mean [strategy NAME]?",
	       "a kind's name in other programs leads to ours");
	is_str(verdict("[strategy]\n", NULL),
	       "x.ini:1: [strategy]: unknown section; the section needs a name: [strategy NAME]",
	       "a kind without a name is refused");
}

static void keys(void)
{
	is_str(verdict(X "sise = 3\n", NULL), "x.ini:2: [strategy x] sise: unknown key; did you mean size?",
	       "an unknown key: a near one is suggested");
	is_str(verdict(X "isze = 3\n", NULL), "x.ini:2: [strategy x] isze: unknown key; did you mean size?",
	       "an unknown key: one with swapped letters is suggested");
	is_str(verdict(X "colour = 3\n", NULL),
	       "x.ini:2: [strategy x] colour: unknown key; keys: size, chunks, "
	       "bucket, overlap, lr, schedule, form, split, plugin",
	       "all keys are listed if none is near");
	is_str(verdict(X "plugin = dp\nlayers_per_split = 3\n", NULL),
	       "x.ini:3: [strategy x] layers_per_split: unknown key; the nearest is split; `heddle keys dp` prints all",
	       "a key that shares a word with the unknown one is named");
	is_str(verdict(X "plugin = ./x.so\nno = 3\n", NULL),
	       "x.ini:3: [strategy x] no: unknown key; `heddle plugins ./x.so` prints all",
	       "an unknown key of a plugin's file");
	is_str(verdict(X "World-Size = 3\n", NULL), "x.ini:2: [strategy x] World-Size: unknown key; did you mean size?",
	       "a key's name in other programs leads to ours");
	is_str(verdict(X "hidden_size = 3\n", NULL),
	       "x.ini:2: [strategy x] hidden_size: unknown key; did you mean [model] embed?",
	       "a name that other programs use for a key of a different section leads there");
	is_str(verdict(X, NULL), "x.ini:1: [strategy x] size: missing; it has no default",
	       "a missing key without a default is refused");
	is_str(verdict("", NULL), "x.ini: [strategy x] size: missing; it has no default",
	       "a key that is missing with its section is refused");
	is_str(verdict(X "size =\n", NULL),
	       "x.ini:2: [strategy x] size: no value after the =", "an empty value is refused");
	is_str(verdict(X "size = 3.5\n", NULL),
	       "x.ini:2: [strategy x] size: '3.5' is not a whole number (K, M or G may follow it)",
	       "an integer with a fraction is refused");
	is_str(verdict(X "size = 3T\n", NULL),
	       "x.ini:2: [strategy x] size: '3T' is not a whole number (K, M or G may follow it)",
	       "an integer with the unit T is refused");
	is_str(verdict(X "size = 1K\n", NULL), "x.ini:2: [strategy x] size: 1K is not in 1..64",
	       "an integer with the unit K is scaled before its range is checked");
	is_str(verdict(X "size = 65\n", NULL), "x.ini:2: [strategy x] size: 65 is not in 1..64",
	       "an integer outside its range is refused");
	is_str(verdict(X "size = 99999999999999999999\n", NULL),
	       "x.ini:2: [strategy x] size: '99999999999999999999' is not a whole number (K, M or G may follow it)",
	       "an integer that overflows is refused");
	is_str(verdict(X "size = 1\nchunks = -1\n", NULL), "x.ini:3: [strategy x] chunks: -1 is too small, at least 1",
	       "an integer below a range without an upper end is refused");
	is_str(verdict(X "size = 1\nbucket = 2G", NULL), "x.ini:3: [strategy x] bucket: 2G is not in 1K..1G",
	       "a size outside its range is refused");
	is_str(verdict(X "size = 1\nbucket = 2X", NULL),
	       "x.ini:3: [strategy x] bucket: '2X' is not a size (a whole "
	       "number; K, M, G or T may follow it)",
	       "a size with an unknown unit is refused");
	is_str(verdict(X "size = 1\noverlap = maybe", NULL), "x.ini:3: [strategy x] overlap: 'maybe' is not yes or no",
	       "a value that is neither yes nor no is refused");
	is_str(verdict(X "size = 1\nlr = nan", NULL), "x.ini:3: [strategy x] lr: 'nan' is not a number",
	       "a NaN is refused");
	is_str(verdict(X "size = 1\nlr = 1e999", NULL), "x.ini:3: [strategy x] lr: '1e999' is not a number",
	       "a number that overflows is refused");
	is_str(verdict(X "size = 1\nlr = -1", NULL), "x.ini:3: [strategy x] lr: -1 is too small, at least 0",
	       "a number below its range is refused");
	is_str(verdict(X "size = 1\nform = 4d", NULL),
	       "x.ini:3: [strategy x] form: '4d' is not a choice; did you mean 1d?",
	       "a value that is not a choice: a near one is suggested");
	is_str(verdict(X "size = 1\nform = cube", NULL),
	       "x.ini:3: [strategy x] form: 'cube' is not a choice; choices: 1d, 2d, 2.5d",
	       "all choices are listed if none is near");
	is_str(verdict(X "size = 1\nschedule = 1fib", NULL),
	       "x.ini:3: [strategy x] schedule: '1fib' is not a choice; "
	       "did you mean 1f1b? (a file of that name: ./1fib)",
	       "a value that is neither a choice nor a path: a choice and a file are suggested");
	is_str(verdict(X "size = 1\nschedule = a/b.csv", NULL), "", "a path is accepted where a file may be given");
}

static void sets(void)
{
	is_str(verdict(X "size = 3\n", "x.size=65"), "--set x.size: 65 is not in 1..64",
	       "--set with a bad value is refused");
	is_str(verdict(X "size = 3\n", "x.sise=4"), "--set x.sise: unknown key; did you mean size?",
	       "--set of an unknown key is refused");
	is_str(verdict(X, "x.size = 4"), "", "--set x.KEY sets a key of [strategy x]");
	is_str(verdict(X, "strategy x.size=4"), "", "--set accepts the section's complete name");
	is_str(verdict(X, "xsize"), "--set xsize: write section.key=value", "--set without = is refused");
	is_str(verdict(X, "size=4"), "--set size=4: write section.key=value", "--set without a section is refused");
	is_str(verdict(X, "x.a b=4"), "--set x.a b=4: write section.key=value",
	       "--set of a key with two words is refused");
	is_str(verdict(X, "yy.size=4"),
	       "--set yy.size: no section [yy] or [strategy yy]; sections: model, data, "
	       "train, checkpoint, log, x; --set yy.plugin=PLUGIN before it adds one",
	       "--set of a section that does not exist is refused");
	is_str(verdict(X, "x.y.size=4"),
	       "--set x.y.size: no section [x.y] or [strategy x.y]; sections: model, data, "
	       "train, checkpoint, log, x; --set x.y.plugin=PLUGIN before it adds one",
	       "--set: the last dot ends the section's name");
	is_str(verdict(X, "modle.layers=4"),
	       "--set modle.layers: no section [modle] or [strategy modle]; did you mean "
	       "model?",
	       "--set of a misspelt section: the right one is suggested");
	is_str(verdict(X, "x.split=a ;b"),
	       "--set x.split: a value cannot hold a control character, nor a ; after a "
	       "blank",
	       "--set with a value that an INI file cannot hold is refused");
}

static void values(void)
{
	static const char *const over[] = { "x.lr=1", "x.lr=2.5", "y.plugin=q", "train.steps=7" };
	static const char text[] =
		"[model]\nlayers = 2\n" X "size: 4 ; c\nbucket = 3K\noverlap = off\nsplit = a;b # c\n";
	struct hd_conf *c = NULL, *again = NULL;
	struct hd_section *s;
	char *canon, *twice;

	memset(&err, 0, sizeof(err));
	ok(hd_conf_parse("x.ini", text, over, 4, &c, &err) == 0, "read %s", err.text);
	s = hd_conf_section(c, "strategy", "x");
	ok(hd_section_check(c, s, &table, 1, &err) == 0 && hd_section_check(c, s, &table, 1, &err) == 0,
	   "a section may be checked twice");
	is_int(hd_section_int(s, "size"), 4, "an integer is read");
	is_int(hd_section_int(s, "bucket"), 3072, "a size is read in bytes");
	is_int(hd_section_int(s, "overlap"), 0, "off is read as 0");
	is_int(hd_section_int(s, "chunks"), 1, "a key that is not given has its default");
	near(hd_section_num(s, "lr"), 2.5, 0, "the last --set wins");
	is_str(hd_section_str(s, "split"), "a;b # c", "neither # nor a ; without a blank before it begins a comment");
	is_str(hd_section_str(s, "nothing"), "", "a key that does not exist reads as an empty text");
	ok(hd_section_has(s, "size") && !hd_section_has(s, "chunks"),
	   "hd_section_has tells a given key from a default");
	hd_section_fail(c, s, "size", &err, HD_EDIVIDE, "%d does not divide model.heads = %d", 3, 8);
	is_str(err.text, "x.ini:4: [strategy x] size: 3 does not divide model.heads = 8",
	       "a later error names the line");
	is_int(err.code, HD_EDIVIDE, "... and keeps its code");
	s = hd_conf_next(c, "strategy", s);
	is_str(s ? hd_section_name(s) : NULL, "y", "--set y.plugin adds a section at the end");
	ok(!hd_conf_next(c, "strategy", s), "... which is the last one");
	hd_conf_section(c, NULL, "checkpoint");
	canon = hd_conf_text(c);
	is_str(canon,
	       "[model]\nlayers = 2\n\n[strategy x]\nsize = 4\nbucket = 3K\noverlap = off\nsplit = "
	       "a;b # c\n"
	       "lr = 2.5\n\n[strategy y]\nplugin = q\n\n[train]\nsteps = 7\n",
	       "the canonical text has all given keys and no defaults");
	ok(!hd_conf_parse("y.ini", canon, NULL, 0, &again, NULL), "the canonical text can be read");
	twice = hd_conf_text(again);
	is_str(twice, canon, "... and its canonical text is the same");
	free(canon);
	free(twice);
	hd_conf_destroy(c);
	hd_conf_destroy(again);
}

/* Tests a line longer than inih's buffer, as lists of files can be. */
static void long_lines(void)
{
	char text[4000] = X "size = 1\nsplit = ", want[2000] = "";
	struct hd_conf *c = NULL;
	int i;

	for (i = 0; i < 120; i++)
		sprintf(want + strlen(want), "%s/d;#/f%d", i ? "  , " : "", i);
	strcat(text, want);
	strcat(text, " ; comment\nlr = x\n");
	memset(&err, 0, sizeof(err));
	ok(!hd_conf_parse("x.ini", text, NULL, 0, &c, &err), "a line of %zu bytes is accepted", strlen(want));
	is_str(hd_section_str(hd_conf_section(c, "strategy", "x"), "split"), want, "... and is read completely");
	hd_section_check(c, hd_conf_section(c, "strategy", "x"), &table, 1, &err);
	is_str(err.text, "x.ini:4: [strategy x] lr: 'x' is not a number", "... and counts as one line");
	hd_conf_destroy(c);
}

static void files(void)
{
	struct hd_conf *c;

	memset(&err, 0, sizeof(err));
	is_int(hd_conf_read("t/no/such.ini", NULL, 0, &c, &err), HD_EIO, "a missing file is an I/O error");
	is_str(err.text, "t/no/such.ini: No such file or directory", "... and the message names it");
	memset(&err, 0, sizeof(err));
	hd_conf_read("/", NULL, 0, &c, &err);
	is_str(err.text, "/: Is a directory", "a directory is refused");
}

static void nearest(void)
{
	static const char *const w[] = { "layers", "heads", "kv_heads", "lr" };

	is_str(hd_suggest_nearest("kv-heads", w, 4), "kv_heads", "nearest: a dash instead of an underscore");
	is_str(hd_suggest_nearest("Layer", w, 4), "layers", "nearest: a different case and a missing letter");
	is_str(hd_suggest_nearest("rl", w, 4), "lr", "nearest: swapped letters");
	is_str(hd_suggest_nearest("kv_", w, 4), "kv_heads", "nearest: the beginning of a name");
	is_str(hd_suggest_nearest("kv", w, 4), NULL, "nearest: two letters of a beginning are too few");
	is_str(hd_suggest_nearest("x", w, 4), NULL, "nearest: nothing is near a single letter");
	is_str(hd_suggest_nearest("", w, 4), NULL, "nearest: nothing is near an empty text");
	is_str(hd_suggest_nearest("size", w, 0), NULL, "nearest: an empty list has no nearest word");
}

/* A curve of efficiency over size: linear in log(size) between two points, constant beyond them. */
static void curves(void)
{
	static const struct hd_size_curve c = { .n = 2, .size = { 100, 10000 }, .value = { 0.25, 0.75 } };
	static const double at[][2] = { { 1, 0.25 }, { 100, 0.25 }, { 1000, 0.5 }, { 10000, 0.75 }, { 1e6, 0.75 } };

	for (size_t i = 0; i < HD_LEN(at); i++) {
		char name[60];

		snprintf(name, sizeof(name), "the value of a curve at %g", at[i][0]);
		near(hd_curve_at(&c, at[i][0]), at[i][1], 1e-12, name);
	}
}

int main(void)
{
	syntax();
	sections();
	keys();
	sets();
	curves();
	values();
	long_lines();
	files();
	nearest();
	return done();
}
