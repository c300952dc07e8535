/* SPDX-License-Identifier: Apache-2.0
 * Keys as tables for people, and as the manual page heddle.ini(5).
 */
#include <config.h>
#include "engine/keys/keys.h"
#include <stdlib.h>
#include <string.h>

const char *hd_key_type(const struct hd_option *k)
{
	static const char *const names[] = { "int", "bool", "bytes", "number", "text", "choice" };

	return k->type < HD_LEN(names) ? names[k->type] : "?";
}

const char *hd_key_default(const struct hd_option *k)
{
	if (!k->default_value)
		return "(must be given)";
	return *k->default_value ? k->default_value : "(none)";
}

const char *hd_key_range(const struct hd_option *k)
{
	if (k->range)
		return k->range;
	return k->type == HD_OPT_BOOL ? "yes|no" : "any";
}

void hd_table_print(FILE *out, const char *const (*rows)[HD_TABLE_COLUMNS + 1], size_t n)
{
	int width[HD_TABLE_COLUMNS] = { 0 };

	for (size_t i = 0; i < n; i++) {
		for (int c = 0; c < HD_TABLE_COLUMNS; c++) {
			int w = (int)strlen(rows[i][c]);

			width[c] = w > width[c] ? w : width[c];
		}
	}
	for (size_t i = 0; i < n; i++) {
		for (int c = 0; c < HD_TABLE_COLUMNS; c++)
			fprintf(out, "%s%-*s", c ? "  " : "", width[c], rows[i][c]);
		fprintf(out, "  %s\n", rows[i][HD_TABLE_COLUMNS]);
	}
}

void hd_keys_print(FILE *out, const struct hd_key_table *t)
{
	const char *(*rows)[HD_TABLE_COLUMNS + 1] = hd_alloc((t->n + 1) * sizeof(*rows));
	static const char *const head[] = { "key", "type", "default", "range", "meaning" };

	memcpy(rows[0], head, sizeof(head));
	for (uint32_t i = 0; i < t->n; i++) {
		const struct hd_option *k = hd_key_at(t, i);

		rows[i + 1][0] = k->key;
		rows[i + 1][1] = hd_key_type(k);
		rows[i + 1][2] = hd_key_default(k);
		rows[i + 1][3] = hd_key_range(k);
		rows[i + 1][4] = k->help ? k->help : "";
	}
	if (t->n)
		hd_table_print(out, (const char *const(*)[HD_TABLE_COLUMNS + 1]) rows, t->n + 1);
	else
		fprintf(out, "no options\n");
	free(rows);
}

/* -- the manual page -- */
static void roff(FILE *out, const char *s)
{
	if (*s == '.' || *s == '\'')
		fputs("\\&", out);
	for (; *s; s++)
		if (*s == '\\')
			fputs("\\e", out);
		else if (*s == '-')
			fputs("\\-", out);
		else
			fputc(*s, out);
}

static void roff_key(FILE *out, const struct hd_option *k)
{
	fputs(".TP\n.B ", out);
	roff(out, k->key);
	fprintf(out, " \\fR(%s", hd_key_type(k));
	if (k->range || k->type == HD_OPT_BOOL) {
		fputs(", ", out);
		roff(out, hd_key_range(k));
	}
	fputs(k->default_value ? "; default \\fI" : "; \\fI", out);
	roff(out, k->default_value ? hd_key_default(k) : "must be given");
	fputs("\\fR)\n", out);
	roff(out, k->help && *k->help ? k->help : "of the plugin");
	fputc('\n', out);
}

static const char before[] =
	".\\\" SPDX-License-Identifier: Apache-2.0\n"
	".\\\" Written by heddle keys --man.  Not to be edited.\n"
	".TH HEDDLE.INI 5 2026 \"heddle " PACKAGE_VERSION "\" \"File Formats\"\n"
	".SH NAME\nheddle.ini \\- model, data, training and layout of a run of heddle\n"
	".SH DESCRIPTION\n"
	"The file has sections, whose names stand in brackets, and in each section lines\n.IR key \" = \" value .\n"
	"A comment begins with ; at the beginning of a line or after a blank, or with # at the beginning of a line.\n"
	"Numbers of type int take K, M and G (powers of 1000); of type bytes K, M, G and T (powers of 1024).\n"
	"Lists are separated by commas.\n"
	"An unknown section or key is an error; the message names the nearest one.\n"
	"The option\n.B \\-\\-set section.key=value\nsets a key on the command line, and\n"
	".B \\-\\-set NAME.key=value\none of [strategy NAME].\n.PP\n"
	"The order of the sections [strategy NAME] is that of the mesh, innermost axis first.\n"
	".B heddle keys\nlists the same keys.\n"
	".PP\nA small run on one rank:\n.PP\n.nf\n"
	"[model]\nlayers = 4\nheads = 4\nembed = 128\n[data]\ntrain = book.txt\n[train]\nseq = 128\nglobal_batch = 8\nsteps = 500\n"
	".fi\n";
static const char after[] = ".SH SEE ALSO\n.BR heddle (1),\n.BR heddle-plugin (7)\n";

void hd_keys_man(FILE *out, const struct hd_key_section *s, int n)
{
	fputs(before, out);
	for (int i = 0; i < n; i++) {
		fputs(".SH \"[", out);
		roff(out, s[i].label);
		fputs("]\"\n", out);
		roff(out, s[i].about);
		fputs(s[i].keys.n ? ".\n" : ": none.\n", out);
		for (uint32_t k = 0; k < s[i].keys.n; k++)
			roff_key(out, hd_key_at(&s[i].keys, k));
	}
	fputs(after, out);
}
