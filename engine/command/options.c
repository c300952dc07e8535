/* SPDX-License-Identifier: Apache-2.0
 * Parses the command line from tables. A flag's value follows it or an = sign. A second value of a flag is an error,
 * since the first would be ignored; only --set is repeatable. A misspelt verb or flag is an error that suggests the
 * nearest name. Nothing may be abbreviated, so that a new option never changes the meaning of an old command.
 */
#include <config.h>
#include "engine/command/options.h"
#include "engine/config/conf.h"
#include "engine/base/parse.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAMES 64

static const struct hd_flag set_flag = { "set", "SECTION.KEY=VALUE", "override a key of the INI; repeatable" };
static const struct hd_flag help_flag = { "help", NULL, "print this" };

int hd_cli_takes_sets(const struct hd_verb *v)
{
	return v->positional && (!strncmp(v->positional, "CONF", 4) || !strncmp(v->positional, "CKPT", 4));
}

static int optional(const struct hd_verb *v)
{
	return v->positional && *v->positional == '[';
}

static const struct hd_verb *verb_find(const char *name, const struct hd_verb *verbs, int n, struct hd_err *err)
{
	const char *names[MAX_NAMES];
	char hint[480];
	int i;

	for (i = 0; i < n; i++)
		if (!strcmp(verbs[i].name, name))
			return &verbs[i];
	for (i = 0; i < n && i < MAX_NAMES; i++)
		names[i] = verbs[i].name;
	hd_suggest(hint, sizeof(hint), name, "verbs", names, i);
	hd_err_set(err, HD_EINVAL, "%.60s: unknown verb; %s", name, hint);
	return NULL;
}

/* Returns the index of the flag with a name of `len` bytes: nflags for --set, nflags + 1 for --help. -1: unknown, with
 * err set. */
static int flag_find(const struct hd_verb *v, const char *name, size_t len, struct hd_err *err)
{
	char dashed[MAX_NAMES][40], word[48], hint[480];
	const char *names[MAX_NAMES];
	int i, n = 0;

	for (i = 0; i <= v->nflags + 1; i++) {
		const struct hd_flag *f = i < v->nflags ? &v->flags[i] : i == v->nflags ? &set_flag : &help_flag;

		if (f == &set_flag && !hd_cli_takes_sets(v))
			continue;
		if (strlen(f->name) == len && !strncmp(f->name, name, len))
			return i;
		if (n < MAX_NAMES) {
			snprintf(dashed[n], sizeof(dashed[n]), "--%s", f->name);
			names[n] = dashed[n];
			n++;
		}
	}
	snprintf(word, sizeof(word), "--%.*s", (int)len, name);
	hd_suggest(hint, sizeof(hint), word, "options", names, n);
	hd_err_set(err, HD_EINVAL, "%s: unknown option %s; %s", v->name, word, hint);
	return -1;
}

/* Returns 1 for an option. A word with a blank is a value, such as the options of another program. */
static int is_option(const char *word)
{
	return !strncmp(word, "--", 2) && !strpbrk(word, " \t");
}

/* Stores flag i and its value. */
static int keep_flag(struct hd_cli *c, const struct hd_flag *f, int i, const char *value, struct hd_err *err)
{
	if (f == &help_flag)
		c->help = 1;
	else if (f == &set_flag)
		c->sets[c->nsets++] = value;
	else if (f->arg && c->values[i])
		return hd_err_set(err, HD_EINVAL, "%s: --%s is given twice: %s and %s", c->verb->name, f->name,
				  c->values[i], value);
	else
		c->values[i] = value ? value : "";
	return HD_OK;
}

/* Parses one "--flag", and its value if that is the next argument. Returns the number of arguments used, or an
 * error. */
static int parse_flag(struct hd_cli *c, char **argv, int left, struct hd_err *err)
{
	const struct hd_verb *v = c->verb;
	const char *name = argv[0] + 2, *value = strchr(name, '=');
	size_t len = value ? (size_t)(value++ - name) : strlen(name);
	int used = 1, i = flag_find(v, name, len, err);
	struct hd_err none = { 0 };
	const struct hd_flag *f;

	if (i < 0)
		return HD_EINVAL;
	f = i < v->nflags ? &v->flags[i] : i == v->nflags ? &set_flag : &help_flag;
	if (!f->arg && value)
		return hd_err_set(err, HD_EINVAL, "%s: --%s takes no value, '%s' was given", v->name, f->name, value);
	if (f->arg && !value) {
		if (left > 1 && is_option(argv[1]) && flag_find(v, argv[1] + 2, strcspn(argv[1] + 2, "="), &none) < 0)
			return hd_err_set(err, HD_EINVAL,
					  "%s: --%s needs a value: --%s %s, or --%s=%s if that is the value", v->name,
					  f->name, f->name, f->arg, f->name, argv[1]);
		if (left < 2 || is_option(argv[1]))
			return hd_err_set(err, HD_EINVAL, "%s: --%s needs a value: --%s %s", v->name, f->name, f->name,
					  f->arg);
		value = argv[1];
		used = 2;
	}
	HD_TRY(keep_flag(c, f, i, value, err));
	return used;
}

/* Returns how many positional arguments a verb takes. "CONF", "FILE[,FILE...]": one; "PLUGIN [CONF]": two; "[FILE...]":
 * any number. */
static int most_words(const struct hd_verb *v)
{
	if (strstr(v->positional, "...") && !strstr(v->positional, "[,"))
		return INT_MAX;
	return strchr(v->positional, ' ') ? 2 : 1;
}

static int parse_word(struct hd_cli *c, const char *word, struct hd_err *err)
{
	const struct hd_verb *v = c->verb;

	if (!v->positional)
		return hd_err_set(err, HD_EINVAL, "%s: takes no '%s'", v->name, word);
	if (c->nwords >= most_words(v))
		return hd_err_set(err, HD_EINVAL, "%s: '%s' is one too many after %s", v->name, word, c->positional);
	c->words[c->nwords++] = word;
	c->positional = c->words[0];
	return 1;
}

static int parse_rest(struct hd_cli *c, int argc, char **argv, struct hd_err *err)
{
	int i, used, words = 0; /* words: after --, only positional arguments follow */

	for (i = 0; i < argc; i += used) {
		if (words)
			used = parse_word(c, argv[i], err);
		else if (!strcmp(argv[i], "--"))
			words = used = 1;
		else if (!strcmp(argv[i], "-h"))
			c->help = used = 1;
		else if (argv[i][0] == '-' && argv[i][1] == '-')
			used = parse_flag(c, argv + i, argc - i, err);
		else if (argv[i][0] == '-' && argv[i][1])
			used = hd_err_set(err, HD_EINVAL, "%s: unknown option %s; options have two dashes",
					  c->verb->name, argv[i]);
		else
			used = parse_word(c, argv[i], err);
		HD_TRY(used);
	}
	if (c->verb->positional && !c->positional && !c->help && !optional(c->verb))
		return hd_err_set(err, HD_EINVAL, "%s: %s is missing: heddle %s %s", c->verb->name, c->verb->positional,
				  c->verb->name, c->verb->positional);
	return 0;
}

int hd_cli_parse(int argc, char **argv, const struct hd_verb *verbs, int nverbs, struct hd_cli *out, struct hd_err *err)
{
	const char *first = argc > 1 ? argv[1] : NULL;

	memset(out, 0, sizeof(*out));
	out->argc = argc;
	out->argv = argv;
	out->verbs = verbs;
	out->nverbs = nverbs;
	if (!first)
		return hd_err_set(err, HD_EINVAL, "no verb; see heddle --help");
	if (!strcmp(first, "--version") || !strcmp(first, "-V") || !strcmp(first, "version")) {
		out->version = 1;
		return 0;
	}
	if (!strcmp(first, "--help") || !strcmp(first, "-h") || !strcmp(first, "help")) {
		out->help = 1;
		if (argc > 2) /* heddle help train */
			out->verb = verb_find(argv[2], verbs, nverbs, err);
		return argc > 2 && !out->verb ? HD_EINVAL : 0;
	}
	if (*first == '-')
		return hd_err_set(err, HD_EINVAL, "a verb comes first, not %s; see heddle --help", first);
	out->verb = verb_find(first, verbs, nverbs, err);
	if (!out->verb)
		return HD_EINVAL;
	out->sets = hd_alloc((size_t)argc * sizeof(*out->sets));
	out->words = hd_alloc((size_t)argc * sizeof(*out->words));
	out->values = hd_alloc((size_t)out->verb->nflags * sizeof(*out->values));
	return parse_rest(out, argc - 2, argv + 2, err);
}

void hd_cli_release(struct hd_cli *c)
{
	free(c->sets);
	free(c->words);
	free(c->values);
	memset(c, 0, sizeof(*c));
}

/* -- values ------------------------------------------------------------------------------------ */

static const char *value(const struct hd_cli *c, const char *flag)
{
	int i;

	for (i = 0; c->verb && c->values && i < c->verb->nflags; i++)
		if (!strcmp(c->verb->flags[i].name, flag))
			return c->values[i];
	return NULL;
}

int hd_cli_has(const struct hd_cli *c, const char *flag)
{
	return value(c, flag) != NULL;
}

const char *hd_cli_str(const struct hd_cli *c, const char *flag, const char *otherwise)
{
	const char *v = value(c, flag);

	return v ? v : otherwise;
}

static int wrong(const struct hd_cli *c, const char *flag, const char *what, struct hd_err *err)
{
	return hd_err_set(err, HD_EINVAL, "%s: --%s: '%s' is not %s", c->verb->name, flag, value(c, flag), what);
}

int hd_cli_int(const struct hd_cli *c, const char *flag, int64_t min, int64_t max, int64_t otherwise, int64_t *out,
	       struct hd_err *err)
{
	const char *v = value(c, flag);

	*out = otherwise;
	if (!v)
		return 0;
	if (hd_word_int(v, out))
		return wrong(c, flag, "a whole number", err);
	if (*out < min)
		return hd_err_set(err, HD_EINVAL, "%s: --%s: %s is too small, at least %lld", c->verb->name, flag, v,
				  (long long)min);
	if (*out > max)
		return hd_err_set(err, HD_EINVAL, "%s: --%s: %s is too large, at most %lld", c->verb->name, flag, v,
				  (long long)max);
	return 0;
}

int hd_cli_num(const struct hd_cli *c, const char *flag, double min, double max, double otherwise, double *out,
	       struct hd_err *err)
{
	const char *v = value(c, flag);

	*out = otherwise;
	if (!v)
		return 0;
	if (hd_word_num(v, out))
		return wrong(c, flag, "a number", err);
	if (*out < min)
		return hd_err_set(err, HD_EINVAL, "%s: --%s: %s is too small, at least %g", c->verb->name, flag, v,
				  min);
	if (*out > max)
		return hd_err_set(err, HD_EINVAL, "%s: --%s: %s is too large, at most %g", c->verb->name, flag, v, max);
	return 0;
}

int hd_cli_bytes(const struct hd_cli *c, const char *flag, int64_t otherwise, int64_t *out, struct hd_err *err)
{
	const char *v = value(c, flag);

	*out = otherwise;
	if (v && hd_word_bytes(v, out))
		return wrong(c, flag, "a size (a whole number; K, M, G or T may follow it)", err);
	if (v && *out < 1)
		return hd_err_set(err, HD_EINVAL, "%s: --%s: %s is too small, at least 1", c->verb->name, flag, v);
	return 0;
}

/* -- help -------------------------------------------------------------------------------------- */

static void flag_line(FILE *f, const struct hd_flag *flag)
{
	char left[80];

	snprintf(left, sizeof(left), "--%s%s%s", flag->name, flag->arg ? " " : "", flag->arg ? flag->arg : "");
	fprintf(f, "  %-26s %s\n", left, flag->help);
}

void hd_cli_help(FILE *f, const struct hd_verb *v)
{
	int i;

	fprintf(f, "heddle %s%s%s%s [options]\n\n%s\n\n", v->name, v->positional ? " " : "",
		v->positional ? v->positional : "", hd_cli_takes_sets(v) ? " [--set section.key=value]..." : "",
		v->help);
	for (i = 0; i < v->nflags; i++)
		flag_line(f, &v->flags[i]);
	if (hd_cli_takes_sets(v))
		flag_line(f, &set_flag);
	flag_line(f, &help_flag);
}

void hd_cli_usage(FILE *f, const struct hd_verb *verbs, int nverbs)
{
	char left[80];
	int i;

	fprintf(f,
		"usage: heddle VERB ...\n\n"
		"Trains large transformer models on many ranks.  An INI file describes the model, the data and the layout.\n\n");
	for (i = 0; i < nverbs; i++) {
		snprintf(left, sizeof(left), "%s %s", verbs[i].name, verbs[i].positional ? verbs[i].positional : "");
		fprintf(f, "  %-24s %s\n", left, verbs[i].help);
	}
	fprintf(f, "\nheddle VERB --help lists the options of a verb, and heddle keys the keys of the INI.\n"
		   "To begin: heddle check layout.ini --ranks 8, then mpirun -np 8 heddle train layout.ini\n");
}
