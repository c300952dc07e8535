/* SPDX-License-Identifier: Apache-2.0
 * What is printed: a line of TAP for each check, or all of them as one JSON object at the end.
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

/* Layouts differ in numbers, and the engine warns of each. */
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

void tap_end(struct judge *j, FILE *out)
{
	int passed = j->printed - j->failed - j->skipped;
	char *line;

	if (!j->options.json) {
		fprintf(out, "1..%d\n# %s %s: %d passed, %d failed, %d skipped\n", j->printed, j->plugin->name,
			j->plugin->version, passed, j->failed, j->skipped);
		return;
	}
	line = hd_json_line(json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:O, s:O}", "plugin", j->plugin->name, "path",
				      j->plugin->path, "version", j->plugin->version, "passed", passed, "failed",
				      j->failed, "skipped", j->skipped, "checks", j->results, "warnings", j->warnings));
	fprintf(out, "%s\n", line);
	free(line);
}
