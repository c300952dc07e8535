/* SPDX-License-Identifier: Apache-2.0
 * Prints the results: a line of TAP per check, or one JSON object with all of them at the end.
 */
#include <config.h>
#include "engine/base/json.h"
#include "engine/conform/judge.h"
#include <stdlib.h>
#include <string.h>

static void comment(FILE *out, const char *text)
{
	for (const char *at = text; *at;) {
		int n = (int)strcspn(at, "\n");

		fprintf(out, "#   %.*s\n", n, at);
		at += n + (at[n] == '\n');
	}
}

static json_t *result(const char *name, const struct outcome *o)
{
	static const char *const verdicts[] = { "ok", "wrong", "skipped" };

	return json_pack("{s:s, s:s, s:s?}", "check", name, "verdict", verdicts[o->verdict], "why", o->why);
}

void tap_result(struct judge *j, FILE *out, const char *name, const struct outcome *o)
{
	j->printed++;
	j->failed += o->verdict == JUDGED_WRONG;
	j->skipped += o->verdict == JUDGED_SKIPPED;
	json_array_append_new(j->results, result(name, o));
	if (j->options.json)
		return;
	if (o->verdict == JUDGED_SKIPPED)
		fprintf(out, "ok %d - %s # SKIP %s\n", j->printed, name, o->why ? o->why : "");
	else
		fprintf(out, "%s %d - %s\n", o->verdict == JUDGED_OK ? "ok" : "not ok", j->printed, name);
	if (o->verdict == JUDGED_WRONG && o->why)
		comment(out, o->why);
	fflush(out);
}

/* Compares warnings without their numbers, since the engine warns of each layout. */
static int is_same(const char *a, const char *b)
{
	for (;; a++, b++) {
		a += strspn(a, "0123456789");
		b += strspn(b, "0123456789");
		if (*a != *b || !*a)
			return *a == *b;
	}
}

static int is_new(const struct judge *j, const char *line)
{
	size_t i;
	json_t *x;

	json_array_foreach(j->warnings, i, x)
		if (is_same(json_string_value(x), line))
			return 0;
	return 1;
}

void tap_warnings(struct judge *j, FILE *out, char *lines)
{
	for (char *line = lines ? strtok(lines, "\n") : NULL; line; line = strtok(NULL, "\n")) {
		if (!is_new(j, line))
			continue;
		json_array_append_new(j->warnings, json_string(line));
		if (!j->options.json)
			fprintf(out, "#   warning: %s\n", line);
	}
	free(lines);
}

/* -- comparisons with one rank ------------------------------------------------------------------------------------- */
void tap_compared(struct judge *j, const struct outcome *o)
{
	const struct layout *l = &o->layout;

	if (!l->n)
		return;
	j->tried[l->family]++;
	j->compared[l->family] += o->compared;
	for (int k = 0; k < j->nothers; k++) {
		int with = 0;

		for (int i = 0; i < l->n; i++)
			with |= l->piece[i].other == k;
		j->tried_beside[k] += with;
		j->compared_beside[k] += with && o->compared;
	}
}

/* Lists the families and the other plugins that were compared, or those that were tried and never compared. */
static char *list_compared(const struct judge *j, int compared)
{
	char *text = NULL, *beside = NULL;

	for (int f = 0; f < families_end(j); f++)
		if (j->tried[f] && !j->compared[f] == !compared)
			hd_append(&text, "%s%s (%d of %d layouts)", text ? ", " : "", family_name(j, f), j->compared[f],
				  j->tried[f]);
	for (int k = 0; k < j->nothers; k++)
		if (j->tried_beside[k] && !j->compared_beside[k] == !compared)
			hd_append(&beside, "%s%s", beside ? ", " : "beside ", j->others[k]->name);
	if (beside)
		hd_append(&text, "%s%s", text ? "; " : "", beside);
	free(beside);
	return text;
}

static void warn_of_experts(struct judge *j, FILE *out)
{
	for (int f = 0; f < families_end(j); f++) {
		if (!j->tried[f] || j->compared[f] || j->options.only || !family_has_experts(j, f))
			continue;
		j->warned++;
		tap_warnings(
			j, out,
			hd_format("none of the %d layouts of %s was compared with one rank, so its experts were not "
				  "tested: each was refused, even with model.capacity_factor",
				  j->tried[f], family_name(j, f)));
	}
}

static void print_compared(struct judge *j, FILE *out)
{
	char *were = list_compared(j, 1), *were_not = list_compared(j, 0);

	if (!j->options.json && (were || were_not))
		fprintf(out, "# compared with one rank: %s%s%s\n", were ? were : "nothing",
			were_not ? "; never compared: " : "", were_not ? were_not : "");
	free(were), free(were_not);
}

static json_t *compared_json(const struct judge *j)
{
	json_t *all = json_object();

	for (int f = 0; f < families_end(j); f++)
		if (j->tried[f])
			json_object_set_new(all, family_name(j, f),
					    json_pack("{s:i, s:i}", "tried", j->tried[f], "compared", j->compared[f]));
	for (int k = 0; k < j->nothers; k++)
		if (j->tried_beside[k])
			json_object_set_new(all, j->others[k]->name,
					    json_pack("{s:i, s:i}", "tried", j->tried_beside[k], "compared",
						      j->compared_beside[k]));
	return all;
}

void tap_end(struct judge *j, FILE *out)
{
	int passed = j->printed - j->failed - j->skipped;
	char *line;

	warn_of_experts(j, out);
	if (!j->options.json) {
		fprintf(out, "1..%d\n", j->printed);
		print_compared(j, out);
		fprintf(out, "# %s %s: %d passed, %d failed, %d skipped", j->plugin->name, j->plugin->version, passed,
			j->failed, j->skipped);
		if (j->warned)
			fprintf(out, ", %d warning%s", j->warned, hd_plural(j->warned, "s"));
		fprintf(out, "\n");
		return;
	}
	line = hd_json_line(json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:o, s:O, s:O}", "plugin", j->plugin->name,
				      "path", j->plugin->path, "version", j->plugin->version, "passed", passed,
				      "failed", j->failed, "skipped", j->skipped, "compared", compared_json(j),
				      "checks", j->results, "warnings", j->warnings));
	fprintf(out, "%s\n", line);
	free(line);
}
