/* SPDX-License-Identifier: Apache-2.0
 * The INI file: what breaks here is a job that runs for days with a key that nobody read.  Error
 * texts are compared whole, because users and scripts read them.
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

/* The error of reading, of unknown sections, or of [strategy x]; "" if all is well. */
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
	is_str(verdict(X "size 3\n", NULL), "x.ini:2: 'size 3' is neither [section] nor key = value", "no =");
	is_str(verdict("\n[strategy x\nsize = 3\n", NULL), "x.ini:2: '[strategy x' is a section without its ]", "no ]");
	is_str(verdict(X "= 3\n", NULL), "x.ini:2: no key before the =", "no key");
	is_str(verdict("size = 3\n", NULL), "x.ini:1: size: a key before the first [section]", "no section");
	is_str(verdict(X "size = 3\n\nsize = 4\n", NULL), "x.ini:4: [strategy x] size: given twice, first in line 2",
	       "duplicate key");
	is_str(verdict(X "size = 3\n[model]\n[strategy  x]\n", NULL),
	       "x.ini:4: [strategy x]: section given twice, first in line 1", "duplicate section");
	is_str(verdict("[model] layers = 2\n", NULL), "x.ini:1: [model]: 'layers = 2' follows the section's name",
	       "text after ]");
	is_str(verdict("[a b c]\n", NULL), "x.ini:1: [a b c]: a section is [name] or [kind name]", "three words");
	is_str(verdict("[strategy aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]\n",
		       NULL),
	       "x.ini:1: [strategy...]: the name of a section has at most 90 letters, this one 91", "a long name");
	is_str(verdict("[]\n", NULL), "x.ini:1: [ ]: a section is [name] or [kind name]", "no words");
	is_str(verdict("[model]\n\x7f"
		       "ELF\n",
		       NULL),
	       "x.ini:2: byte 0x7f: this is not a text file", "binary");
	is_str(verdict(X "junk\nsize = 1\nsize = 1\n", NULL), "x.ini:2: 'junk' is neither [section] nor key = value",
	       "the first error of two");
	is_str(verdict("[mod", NULL), "x.ini:1: '[mod' is a section without its ]", "a truncated file");
	is_str(verdict("\xef\xbb\xbf" X "\tsize = 3 ; comment\r\n# c\r\n ; c\r\n   lr = 1\r\n", NULL), "",
	       "byte order mark, carriage returns, comments, indented keys");
}

static void sections(void)
{
	is_str(verdict("[modle]\n", NULL), "x.ini:1: [modle]: unknown section; did you mean [model]?", "near");
	is_str(verdict("[stratgy x]\n", NULL), "x.ini:1: [stratgy x]: unknown section; did you mean [strategy x]?",
	       "near kind");
	is_str(verdict("[x]\n", NULL),
	       "x.ini:1: [x]: unknown section; sections: [model], [train], [data], [strategy NAME]", "none is near");
	is_str(verdict("[optimizer]\n", NULL), "x.ini:1: [optimizer]: unknown section; did you mean [train]?",
	       "as others call it");
	is_str(verdict("[distributed]\n", NULL),
	       "x.ini:1: [distributed]: unknown section; did you mean [strategy NAME]?", "a kind as others call it");
	is_str(verdict("[strategy]\n", NULL),
	       "x.ini:1: [strategy]: unknown section; the section needs a name: [strategy NAME]", "no name");
}

static void keys(void)
{
	is_str(verdict(X "sise = 3\n", NULL), "x.ini:2: [strategy x] sise: unknown key; did you mean size?", "near");
	is_str(verdict(X "isze = 3\n", NULL), "x.ini:2: [strategy x] isze: unknown key; did you mean size?", "swapped");
	is_str(verdict(X "colour = 3\n", NULL),
	       "x.ini:2: [strategy x] colour: unknown key; keys: size, chunks, "
	       "bucket, overlap, lr, schedule, form, split, plugin",
	       "none is near");
	is_str(verdict(X "plugin = dp\nlayers_per_split = 3\n", NULL),
	       "x.ini:3: [strategy x] layers_per_split: unknown key; the nearest is split; `heddle keys dp` prints all",
	       "a word in it is near");
	is_str(verdict(X "plugin = ./x.so\nno = 3\n", NULL),
	       "x.ini:3: [strategy x] no: unknown key; `heddle plugins ./x.so` prints all", "of a file");
	is_str(verdict(X "World-Size = 3\n", NULL), "x.ini:2: [strategy x] World-Size: unknown key; did you mean size?",
	       "as others call it");
	is_str(verdict(X "hidden_size = 3\n", NULL),
	       "x.ini:2: [strategy x] hidden_size: unknown key; did you mean [model] embed?",
	       "as others call one of another section");
	is_str(verdict(X, NULL), "x.ini:1: [strategy x] size: missing; it has no default", "missing");
	is_str(verdict("", NULL), "x.ini: [strategy x] size: missing; it has no default", "missing with its section");
	is_str(verdict(X "size =\n", NULL), "x.ini:2: [strategy x] size: no value after the =", "empty");
	is_str(verdict(X "size = 3.5\n", NULL),
	       "x.ini:2: [strategy x] size: '3.5' is not a whole number (K, M or G may follow it)", "int");
	is_str(verdict(X "size = 3T\n", NULL),
	       "x.ini:2: [strategy x] size: '3T' is not a whole number (K, M or G may follow it)", "int, T");
	is_str(verdict(X "size = 1K\n", NULL), "x.ini:2: [strategy x] size: 1K is not in 1..64", "int, K");
	is_str(verdict(X "size = 65\n", NULL), "x.ini:2: [strategy x] size: 65 is not in 1..64", "range");
	is_str(verdict(X "size = 99999999999999999999\n", NULL),
	       "x.ini:2: [strategy x] size: '99999999999999999999' is not a whole number (K, M or G may follow it)",
	       "overflow");
	is_str(verdict(X "size = 1\nchunks = -1\n", NULL), "x.ini:3: [strategy x] chunks: -1 is too small, at least 1",
	       "half a range");
	is_str(verdict(X "size = 1\nbucket = 2G", NULL), "x.ini:3: [strategy x] bucket: 2G is not in 1K..1G", "bytes");
	is_str(verdict(X "size = 1\nbucket = 2X", NULL),
	       "x.ini:3: [strategy x] bucket: '2X' is not a size (a whole "
	       "number; K, M, G or T may follow it)",
	       "bytes");
	is_str(verdict(X "size = 1\noverlap = maybe", NULL), "x.ini:3: [strategy x] overlap: 'maybe' is not yes or no",
	       "bool");
	is_str(verdict(X "size = 1\nlr = nan", NULL), "x.ini:3: [strategy x] lr: 'nan' is not a number", "num");
	is_str(verdict(X "size = 1\nlr = 1e999", NULL), "x.ini:3: [strategy x] lr: '1e999' is not a number", "num");
	is_str(verdict(X "size = 1\nlr = -1", NULL), "x.ini:3: [strategy x] lr: -1 is too small, at least 0", "num");
	is_str(verdict(X "size = 1\nform = 4d", NULL),
	       "x.ini:3: [strategy x] form: '4d' is not a choice; did you mean 1d?", "choice");
	is_str(verdict(X "size = 1\nform = cube", NULL),
	       "x.ini:3: [strategy x] form: 'cube' is not a choice; choices: 1d, 2d, 2.5d", "choice");
	is_str(verdict(X "size = 1\nschedule = 1fib", NULL),
	       "x.ini:3: [strategy x] schedule: '1fib' is not a choice; "
	       "did you mean 1f1b? (a file of that name: ./1fib)",
	       "choice or file");
	is_str(verdict(X "size = 1\nschedule = a/b.csv", NULL), "", "a file");
}

static void sets(void)
{
	is_str(verdict(X "size = 3\n", "x.size=65"), "--set x.size: 65 is not in 1..64", "a bad value");
	is_str(verdict(X "size = 3\n", "x.sise=4"), "--set x.sise: unknown key; did you mean size?", "unknown key");
	is_str(verdict(X, "x.size = 4"), "", "reaches [strategy x]");
	is_str(verdict(X, "strategy x.size=4"), "", "by its whole name");
	is_str(verdict(X, "xsize"), "--set xsize: write section.key=value", "no =");
	is_str(verdict(X, "size=4"), "--set size=4: write section.key=value", "no section");
	is_str(verdict(X, "x.a b=4"), "--set x.a b=4: write section.key=value", "two words");
	is_str(verdict(X, "yy.size=4"),
	       "--set yy.size: no section [yy] or [strategy yy]; sections: model, data, "
	       "train, checkpoint, log, x; --set yy.plugin=PLUGIN before it adds one",
	       "no such section");
	is_str(verdict(X, "x.y.size=4"),
	       "--set x.y.size: no section [x.y] or [strategy x.y]; sections: model, data, "
	       "train, checkpoint, log, x; --set x.y.plugin=PLUGIN before it adds one",
	       "the last dot ends the section");
	is_str(verdict(X, "modle.layers=4"),
	       "--set modle.layers: no section [modle] or [strategy modle]; did you mean "
	       "model?",
	       "misspelt section");
	is_str(verdict(X, "x.split=a ;b"),
	       "--set x.split: a value cannot hold a control character, nor a ; after a "
	       "blank",
	       "what an INI cannot hold");
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
	   "checked twice");
	is_int(hd_section_int(s, "size"), 4, "int");
	is_int(hd_section_int(s, "bucket"), 3072, "bytes");
	is_int(hd_section_int(s, "overlap"), 0, "bool");
	is_int(hd_section_int(s, "chunks"), 1, "default");
	near(hd_section_num(s, "lr"), 2.5, 0, "the last --set wins");
	is_str(hd_section_str(s, "split"), "a;b # c", "; without a blank and # are no comments");
	is_str(hd_section_str(s, "nothing"), "", "a key that is not there");
	ok(hd_section_has(s, "size") && !hd_section_has(s, "chunks"), "given, or a default");
	hd_section_fail(c, s, "size", &err, HD_EDIVIDE, "%d does not divide model.heads = %d", 3, 8);
	is_str(err.text, "x.ini:4: [strategy x] size: 3 does not divide model.heads = 8",
	       "a later error names the line");
	is_int(err.code, HD_EDIVIDE, "and keeps its code");
	s = hd_conf_next(c, "strategy", s);
	is_str(s ? hd_section_name(s) : NULL, "y", "--set y.plugin makes a section, at the end");
	ok(!hd_conf_next(c, "strategy", s), "which is the last");
	hd_conf_section(c, NULL, "checkpoint");
	canon = hd_conf_text(c);
	is_str(canon,
	       "[model]\nlayers = 2\n\n[strategy x]\nsize = 4\nbucket = 3K\noverlap = off\nsplit = "
	       "a;b # c\n"
	       "lr = 2.5\n\n[strategy y]\nplugin = q\n\n[train]\nsteps = 7\n",
	       "canonical text");
	ok(!hd_conf_parse("y.ini", canon, NULL, 0, &again, NULL), "which reads");
	twice = hd_conf_text(again);
	is_str(twice, canon, "as itself");
	free(canon);
	free(twice);
	hd_conf_destroy(c);
	hd_conf_destroy(again);
}

/* Longer than inih's buffer: lists of files are. */
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
	ok(!hd_conf_parse("x.ini", text, NULL, 0, &c, &err), "a line of %zu bytes", strlen(want));
	is_str(hd_section_str(hd_conf_section(c, "strategy", "x"), "split"), want, "is read whole");
	hd_section_check(c, hd_conf_section(c, "strategy", "x"), &table, 1, &err);
	is_str(err.text, "x.ini:4: [strategy x] lr: 'x' is not a number", "and counts as one");
	hd_conf_destroy(c);
}

static void files(void)
{
	struct hd_conf *c;

	memset(&err, 0, sizeof(err));
	is_int(hd_conf_read("t/no/such.ini", NULL, 0, &c, &err), HD_EIO, "a missing file");
	is_str(err.text, "t/no/such.ini: No such file or directory", "is named");
	memset(&err, 0, sizeof(err));
	hd_conf_read("/", NULL, 0, &c, &err);
	is_str(err.text, "/: Is a directory", "a directory");
}

static void nearest(void)
{
	static const char *const w[] = { "layers", "heads", "kv_heads", "lr" };

	is_str(hd_suggest_nearest("kv-heads", w, 4), "kv_heads", "a dash for a line");
	is_str(hd_suggest_nearest("Layer", w, 4), "layers", "case and a missing letter");
	is_str(hd_suggest_nearest("rl", w, 4), "lr", "swapped letters");
	is_str(hd_suggest_nearest("kv_", w, 4), "kv_heads", "the beginning of a name");
	is_str(hd_suggest_nearest("kv", w, 4), NULL, "two letters are too few");
	is_str(hd_suggest_nearest("x", w, 4), NULL, "nothing is near one letter");
	is_str(hd_suggest_nearest("", w, 4), NULL, "nor none");
	is_str(hd_suggest_nearest("size", w, 0), NULL, "nor is there anything among none");
}

/* Efficiencies by size: between two points along the logarithm, beyond them the nearest. */
static void curves(void)
{
	static const struct hd_size_curve c = { .n = 2, .size = { 100, 10000 }, .value = { 0.25, 0.75 } };
	static const double at[][2] = { { 1, 0.25 }, { 100, 0.25 }, { 1000, 0.5 }, { 10000, 0.75 }, { 1e6, 0.75 } };

	for (size_t i = 0; i < HD_LEN(at); i++) {
		char name[60];

		snprintf(name, sizeof(name), "a curve at %g", at[i][0]);
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
