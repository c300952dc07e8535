/* SPDX-License-Identifier: Apache-2.0
 * Completion scripts for shells, written from the tables of subcommands and keys.
 */
#include <config.h>
#include <folders.h>
#include "engine/base/library.h"
#include "engine/keys/keys.h"
#include "engine/plan/plan.h"
#include <stdlib.h>
#include <string.h>

#define KEYS_OF_PLUGINS "strategy "

/* Returns the folder in conf/ for options that take the name of an installed file, else NULL. */
static const char *installed_in(const struct hd_flag *f)
{
	static const char *const folders[][2] = { { "machine", "machines" },
						  { "style", "styles" },
						  { "space", "spaces" } };

	for (size_t i = 0; i < HD_LEN(folders); i++)
		if (!strcmp(f->name, folders[i][0]))
			return folders[i][1];
	return NULL;
}

/* Prints the words that the option's value must be one of, and what surrounds them. Returns 0 if there is no list of
 * them. */
static int print_choices(FILE *out, const struct hd_flag *f, const char *before, const char *after)
{
	int passes = !strcmp(f->name, "after");

	if (!passes && !f->values)
		return 0;
	fprintf(out, "%s%s", before, passes ? "list" : f->values);
	for (size_t i = 0; passes && hd_plan_pass(i); i++)
		fprintf(out, " %s", hd_plan_pass(i));
	fputs(after, out);
	return 1;
}

static int is_file(const struct hd_flag *f)
{
	static const char *const words[] = { "FILE", "DIR", "PREFIX", ".ini", ".jsonl", ".so" };

	for (size_t i = 0; f->arg && i < HD_LEN(words); i++)
		if (strstr(f->arg, words[i]))
			return 1;
	return 0;
}

/* Prints "model.layers= model.embed= ... x.size=" for --set. A plugin's name stands for an axis, which is often named
 * so. */
static void print_keys(FILE *out, const char *before)
{
	struct hd_key_section *s;
	int n = hd_key_sections(&s);

	for (int i = 0; i < n; i++) {
		const char *name = strncmp(s[i].label, KEYS_OF_PLUGINS, strlen(KEYS_OF_PLUGINS))
					   ? s[i].label
					   : s[i].label + strlen(KEYS_OF_PLUGINS);

		for (uint32_t k = 0; k < s[i].keys.n && !strchr(name, ' ') && strcmp(name, "NAME"); k++)
			fprintf(out, "%s%s.%s=", before, name, hd_key_at(&s[i].keys, k)->key);
	}
	free(s);
}

/* Prints shell lines that set dir to the folder of installed data. The variable `at` contains the path of the program:
 * the folder is found relative to it, or else is the one that configure chose. */
static void print_folder(FILE *out)
{
	const char *below = hd_within_prefix(HD_DATA_DIR);

	fprintf(out, "\tdir='%s'\n", HD_DATA_DIR);
	if (below)
		fprintf(out, "\t[ ! -d \"${at%%/bin/heddle}%s\" ] || dir=${at%%/bin/heddle}%s\n", below, below);
}

/* -- bash -- */
static void bash_flags(FILE *out, const struct hd_verb *v)
{
	fprintf(out, "\t%s) words='", v->name);
	for (int i = 0; i < v->nflags; i++)
		fprintf(out, "--%s ", v->flags[i].name);
	fprintf(out, "%s--help' ;;\n", hd_cli_takes_sets(v) ? "--set " : "");
}

static void bash_values(FILE *out, const struct hd_verb *v)
{
	for (int i = 0; i < v->nflags; i++) {
		const struct hd_flag *f = &v->flags[i];

		if (!f->arg)
			continue;
		fprintf(out, "\t'%s --%s') ", v->name, f->name);
		if (installed_in(f))
			fprintf(out, "_heddle_offer -W \"$(_heddle_conf %s)\" -f; ", installed_in(f));
		else if (!print_choices(out, f, "_heddle_offer -W '", "'; ") && is_file(f))
			fprintf(out, "_heddle_offer -f; ");
		fprintf(out, "return ;;\n");
	}
}

void hd_completion_bash(FILE *out, const struct hd_cli *c)
{
	fprintf(out, "# SPDX-License-Identifier: Apache-2.0\n# Written by heddle completion bash.\n"
		     "_heddle_conf()\n{\n\tlocal at=$(readlink -f \"$(type -P heddle)\") dir\n\n");
	print_folder(out);
	fprintf(out,
		"\t(cd \"$dir/conf/$1\" 2>/dev/null && ls | sed 's/\\.ini$//')\n}\n"
		"# Offers what compgen prints, a line each: names of files may have blanks.\n"
		"_heddle_offer()\n{\n\tmapfile -t COMPREPLY < <(compgen \"$@\" -- \"$cur\")\n}\n"
		"_heddle()\n{\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} "
		"words=\n\n\tCOMPREPLY=()\n\tif [ \"$COMP_CWORD\" -eq 1 ]; then\n\t\t_heddle_offer -W 'help");
	for (int i = 0; i < c->nverbs; i++)
		fprintf(out, " %s", c->verbs[i].name);
	fprintf(out, " --help --version'\n\t\treturn\n\tfi\n"
		     "\tif [ \"$prev\" = --set ]; then\n\t\t_heddle_offer -W '");
	print_keys(out, " ");
	fprintf(out, "'\n\t\tcompopt -o nospace 2>/dev/null\n\t\treturn\n\tfi\n\tcase \"$verb $prev\" in\n");
	for (int i = 0; i < c->nverbs; i++)
		bash_values(out, &c->verbs[i]);
	fprintf(out, "\tesac\n\tcase $verb in\n");
	for (int i = 0; i < c->nverbs; i++)
		bash_flags(out, &c->verbs[i]);
	fprintf(out, "\thelp) words='");
	for (int i = 0; i < c->nverbs; i++)
		fprintf(out, "%s%s", i ? " " : "", c->verbs[i].name);
	fprintf(out,
		"' ;;\n\tesac\n\tcase $verb:$cur in\n\t*:-*|help:*) _heddle_offer -W \"$words\" ;;\n"
		"\tplugins:*|conform:*) _heddle_offer -W \"$(heddle plugins 2>/dev/null | sed -n '2,$s/ .*//p')\" -f ;;\n"
		"\tkeys:*) _heddle_offer -W \"$(heddle keys 2>/dev/null | sed -n 's/^\\[\\(strategy \\|plugin \\)*\\([^]]*\\)\\].*/\\2/p')\" ;;\n"
		"\tcompletion:*) _heddle_offer -W 'bash zsh' ;;\n\t*) _heddle_offer -f ;;\n\tesac\n}\ncomplete -o filenames -F _heddle heddle\n");
}

/* -- zsh -- */
/* Prints text within '...' of _arguments and _describe. */
static void zsh_text(FILE *out, const char *s)
{
	for (; *s; s++)
		if (*s == '\'')
			fputs("'\\''", out);
		else if (*s == '[' || *s == ']' || *s == ':' || *s == '\\')
			fprintf(out, "\\%c", *s);
		else
			fputc(*s, out);
}

static void zsh_flag(FILE *out, const struct hd_flag *f)
{
	fprintf(out, " \\\n\t\t\t'--%s[", f->name);
	zsh_text(out, f->help);
	fputc(']', out);
	if (f->arg) {
		fputc(':', out);
		zsh_text(out, f->arg);
		if (installed_in(f))
			fprintf(out, ":_heddle_%s", installed_in(f));
		else if (!print_choices(out, f, ":(", ")"))
			fputs(is_file(f) ? ":_files" : ": ", out);
	}
	fputc('\'', out);
}

static void zsh_verb(FILE *out, const struct hd_verb *v)
{
	fprintf(out, "\t%s)\n\t\t_arguments", v->name);
	for (int i = 0; i < v->nflags; i++)
		zsh_flag(out, &v->flags[i]);
	if (hd_cli_takes_sets(v))
		fprintf(out, " \\\n\t\t\t'*--set[override a key of the INI]:section.key=value:_heddle_keys'");
	fprintf(out, " \\\n\t\t\t'--help[lists the options]'");
	if (v->positional)
		fprintf(out, " \\\n\t\t\t%s",
			!strcmp(v->name, "completion") ? "':shell:(bash zsh)'" : "'*:file:_files'");
	fprintf(out, " ;;\n");
}

void hd_completion_zsh(FILE *out, const struct hd_cli *c)
{
	fprintf(out, "#compdef heddle\n# SPDX-License-Identifier: Apache-2.0\n# Written by heddle completion zsh.\n"
		     "_heddle_conf()\n{\n\tlocal at=${commands[heddle]:A} dir\n");
	print_folder(out);
	fprintf(out,
		"\tnames=($dir/conf/$1/*.ini(N:t:r))\n}\n"
		"_heddle_machines()\n{\n\tlocal -a names\n\t_heddle_conf machines\n\t_alternative 'machines:machine:($names)' "
		"'files:file:_files'\n}\n"
		"_heddle_styles()\n{\n\tlocal -a names\n\t_heddle_conf styles\n\t_alternative 'styles:style:($names)' "
		"'files:file:_files'\n}\n"
		"_heddle_spaces()\n{\n\tlocal -a names\n\t_heddle_conf spaces\n\t_alternative 'spaces:space:($names)' "
		"'files:file:_files'\n}\n_heddle_keys()\n{\n\tcompadd -S '' --");
	print_keys(out, " ");
	fprintf(out, "\n}\n_heddle()\n{\n\tlocal -a verbs=(");
	for (int i = 0; i < c->nverbs; i++) {
		fprintf(out, "\n\t\t'%s:", c->verbs[i].name);
		zsh_text(out, c->verbs[i].help);
		fputc('\'', out);
	}
	fprintf(out, "\n\t)\n\n\tif (( CURRENT == 2 )); then\n\t\t_describe subcommand verbs\n\t\treturn\n\tfi\n"
		     "\tshift words\n\t(( CURRENT-- ))\n\tcase $words[1] in\n");
	for (int i = 0; i < c->nverbs; i++)
		zsh_verb(out, &c->verbs[i]);
	fprintf(out,
		"\tesac\n}\nif [ \"$funcstack[1]\" = _heddle ]; then\n\t_heddle \"$@\"\nelse\n\tcompdef _heddle heddle\nfi\n");
}

int hd_verb_completion(struct hd_cli *c)
{
	if (!strcmp(c->positional, "bash")) {
		hd_completion_bash(stdout, c);
		return 0;
	}
	if (!strcmp(c->positional, "zsh")) {
		hd_completion_zsh(stdout, c);
		return 0;
	}
	hd_log(HD_LOG_ERROR, "completion: there is one for bash and one for zsh, not for %s", c->positional);
	return 1;
}
