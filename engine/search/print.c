/* SPDX-License-Identifier: Apache-2.0
 * Prints what a search has found, as a table, as JSON and as an INI.
 */
#include <config.h>
#include "engine/base/json.h"
#include "engine/human/human.h"
#include "engine/search/search.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_REASONS 12

/* Returns how many layouts directly after layout i have the same step and memory. Most often they differ in keys that
 * change nothing in this layout. */
static int64_t count_alike(const struct search_result *r, int64_t i)
{
	int64_t n = 0;

	while (i + n + 1 < r->nfits && r->found[i + n + 1].result.step == r->found[i].result.step &&
	       r->found[i + n + 1].result.memory == r->found[i].result.memory)
		n++;
	return n;
}

/* Returns the row of layout i, as the caller frees it by hd_search_rows_release. */
static struct hd_page_found row_of(const struct search_result *r, int64_t i, int64_t number, int64_t alike)
{
	const struct found_layout *f = &r->found[i];
	double percent = 100 * (f->result.step / r->found[0].result.step - 1);
	char *text = hd_search_line(r, f);
	struct hd_page_found row = {
		.number = hd_format("%lld", (long long)number),
		.step = hd_strdup(hd_human_step(f->result.step).text),
		.more = i ? hd_format("+%.*f%%", percent < 0.1 ? 3 : 1, percent) : hd_strdup(""),
		.memory = hd_strdup(hd_human_bytes(f->result.memory).text),
		.layout = alike ? hd_format("%s (%lld more take as long)", text, (long long)alike) : hd_strdup(text),
	};

	free(text);
	return row;
}

struct hd_page_found *hd_search_rows(const struct search_result *r, int64_t top, int64_t *n)
{
	struct hd_page_found *rows = hd_alloc(((size_t)r->nfits + 1) * sizeof(*rows));

	*n = 0;
	for (int64_t i = 0; i < r->nfits && *n < top; i++) {
		int64_t alike = count_alike(r, i);

		rows[*n] = row_of(r, i, *n + 1, alike);
		++*n;
		i += alike;
	}
	return rows;
}

void hd_search_rows_release(struct hd_page_found *rows, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		free(rows[i].number), free(rows[i].step), free(rows[i].more);
		free(rows[i].memory), free(rows[i].layout);
	}
	free(rows);
}

static void print_own_layout(const struct search_result *r)
{
	double step = r->own.step, best = r->nfits ? r->found[0].result.step : 0;

	if (r->own.verdict.code || !best)
		return;
	printf("the layout of the INI: %s, %s", hd_human_step(step).text, hd_human_bytes(r->own.memory).text);
	if (r->limit > 0 && r->own.memory > r->limit)
		printf(", more than there is");
	if (step > best)
		printf("; the best is %.1f%% faster\n", 100 * (step / best - 1));
	else
		printf("; nothing that was looked at is faster\n");
}

void hd_search_print_dropped(FILE *f, const struct search_result *r)
{
	int64_t rest = 0;

	for (int i = 0; i < r->ndropped; i++)
		if (i < MOST_REASONS)
			fprintf(f, "%10lld  %s (%s)\n", (long long)r->dropped[i].layouts, r->dropped[i].why,
				r->dropped[i].example);
		else
			rest += r->dropped[i].layouts;
	if (rest)
		fprintf(f, "%10lld  for other reasons (--json has them)\n", (long long)rest);
	if (r->not_tried)
		fprintf(f, "%10lld  less promising, so not looked at: --tries N looks at more\n",
			(long long)r->not_tried);
}

char *hd_search_sum(const struct search_result *r)
{
	char *text = hd_format("%lld layouts: %lld planned completely", (long long)r->layouts, (long long)r->nfound);
	int64_t over = r->nfound - r->nfits;

	if (over)
		hd_append(&text, ", %lld of which need more than %s (the nearest %s)", (long long)over,
			  hd_human_bytes(r->limit).text, hd_human_bytes(r->found[r->nfits].result.memory).text);
	return text;
}

static void print_sum(const struct search_result *r)
{
	char *sum = hd_search_sum(r);

	printf("\n%s; why the others were not:\n", sum);
	free(sum);
	hd_search_print_dropped(stdout, r);
	if (r->few_choices)
		printf("alternatives of also were tried only near the best: --tries 0 tries all\n");
	if (r->few_orders)
		printf("orders on the mesh other than that of the space were tried only near the best\n");
	if (!r->not_tried && !r->few_choices && !r->few_orders)
		printf("none of them that is possible can be faster\n");
}

void hd_search_print(const struct search_result *r, int64_t top)
{
	int64_t n;
	struct hd_page_found *rows = hd_search_rows(r, top, &n);

	if (n)
		printf("%3s  %-9s %7s  %-9s %s\n", "", "step", "", "memory", "layout, innermost axis first");
	for (int64_t i = 0; i < n; i++)
		printf("%3s  %-9s %7s  %-9s %s\n", rows[i].number, rows[i].step, rows[i].more, rows[i].memory,
		       rows[i].layout);
	hd_search_rows_release(rows, n);
	print_own_layout(r);
	print_sum(r);
}

static char *reason_of(const struct search_result *r, int64_t i)
{
	const struct found_layout *f = &r->found[i];

	if (!f->fits)
		return hd_format("does not fit: %s more than %s", hd_human_bytes(f->result.memory - r->limit).text,
				 hd_human_bytes(r->limit).text);
	if (!i)
		return hd_strdup("the best");
	return hd_format("%.2f%% slower than the best", 100 * (f->result.step / r->found[0].result.step - 1));
}

json_t *hd_search_json(const struct search_result *r, int64_t top)
{
	json_t *all = json_array();

	for (int64_t i = 0; i < r->nfound && i < top; i++) {
		const struct found_layout *f = &r->found[i];
		char *ini = hd_search_ini(r, f, NULL), *why = reason_of(r, i);

		json_array_append_new(all, json_pack("{s:s, s:o, s:I, s:o, s:s}", "ini", ini, "step_seconds",
						     hd_json_number(f->result.step), "memory_bytes",
						     (json_int_t)f->result.memory, "bound_seconds",
						     hd_json_number(f->bound), "reason", why));
		free(ini), free(why);
	}
	return all;
}

json_t *hd_search_dropped_json(const struct search_result *r)
{
	json_t *all = json_array();

	for (int i = 0; i < r->ndropped; i++)
		json_array_append_new(all,
				      json_pack("{s:s, s:I, s:s}", "reason", r->dropped[i].why, "layouts",
						(json_int_t)r->dropped[i].layouts, "example", r->dropped[i].example));
	if (r->not_tried)
		json_array_append_new(all, json_pack("{s:s, s:I}", "reason", "less promising, so not looked at",
						     "layouts", (json_int_t)r->not_tried));
	return all;
}

char *hd_search_line(const struct search_result *r, const struct found_layout *f)
{
	return f->verbatim ? hd_strdup("the layout of the INI as it stands; the space does not have it")
			   : hd_layout_line(&r->space, &f->layout);
}

int hd_search_conf(const struct search_result *r, const struct found_layout *f, struct hd_conf **out,
		   struct hd_err *err)
{
	return f->verbatim ? hd_conf_parse(r->space.name, r->own_text, NULL, 0, out, err)
			   : hd_layout_conf(&r->space, &f->layout, ~0u, NULL, 0, out, err);
}

char *hd_search_ini(const struct search_result *r, const struct found_layout *f, const char *about)
{
	struct hd_conf *c = NULL;
	struct hd_err err = { 0 };
	char *text, *all;

	if (hd_search_conf(r, f, &c, &err) < 0)
		return hd_format("; %s\n", err.text);
	text = hd_conf_text(c);
	all = about ? hd_format("; %s\n%s", about, text) : hd_strdup(text);
	free(text);
	hd_conf_destroy(c);
	return all;
}
