/* SPDX-License-Identifier: Apache-2.0
 * The command heddle plan --search, from its options to what it prints and writes.
 */
#include <config.h>
#include "engine/base/json.h"
#include "engine/command/picture.h"
#include "engine/file/atomic_file.h"
#include "engine/human/human.h"
#include "engine/search/command.h"
#include "engine/predict/here.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t tries_of(int64_t layers)
{
	return layers <= 16 ? 200 : layers <= 200 ? 3200 / layers : 16;
}

static int options_of(struct hd_cli *c, struct search_options *o, int64_t *top, struct hd_err *err)
{
	static const char *const files[] = { "out", "html" };

	o->space = hd_cli_str(c, "space", "default");
	HD_TRY(hd_cli_int(c, "top", 1, 1000000, 10, top, err));
	HD_TRY(hd_cli_int(c, "tries", 0, 1000000000, -1, &o->tries, err));
	o->patient = hd_cli_has(c, "tries");
	HD_TRY(hd_cli_bytes(c, "memory", 0, &o->memory, err));
	if (!hd_cli_has(c, "ranks"))
		return hd_err_set(err, HD_EINVAL, "plan: --search needs the number of ranks: --ranks N");
	for (size_t i = 0; i < HD_LEN(files); i++)
		if (hd_cli_has(c, files[i]))
			HD_TRY(hd_path_writable(hd_cli_str(c, files[i], ""), 0, err));
	return HD_OK;
}

static int write_best(struct hd_cli *c, const struct search_result *r, const struct hd_machine *m, struct hd_err *err)
{
	const struct found_layout *best = &r->found[0];
	char *about, *text;

	if (!hd_cli_has(c, "out"))
		return HD_OK;
	about = hd_format("the best of heddle plan %s --search on %lld ranks of %s: %s a step, %s of memory a rank",
			  c->positional, (long long)r->space.ranks, m->name, hd_human_step(best->result.step).text,
			  hd_human_bytes(best->result.memory).text);
	text = hd_search_ini(r, best, about);
	hd_file_write(hd_cli_str(c, "out", ""), text, err);
	free(about), free(text);
	return err->code;
}

static struct hd_page_point *points_of(const struct search_result *r)
{
	struct hd_page_point *v = hd_alloc(((size_t)r->nfound + 1) * sizeof(*v));

	for (int64_t i = 0; i < r->nfound; i++)
		v[i] = (struct hd_page_point){ r->found[i].result.step, r->found[i].result.memory,
					       hd_search_line(r, &r->found[i]), r->found[i].fits };
	return v;
}

/* Fills in what the page says of the search. */
static void search_of(const struct search_result *r, int64_t top, const struct hd_page_point *own,
		      struct hd_page_results *s)
{
	char *sum = hd_search_sum(r);

	s->points = points_of(r);
	s->npoints = r->nfound;
	s->own = r->own.verdict.code ? NULL : own;
	s->rows = hd_search_rows(r, top, &s->nrows);
	s->sum = hd_format("%s; %lld were less promising, so not looked at", sum, (long long)r->not_tried);
	s->ini = hd_search_ini(r, &r->found[0], NULL);
	free(sum);
}

static void release(struct hd_page_results *s)
{
	for (int64_t i = 0; i < s->npoints; i++)
		free(s->points[i].text);
	hd_search_rows_release((struct hd_page_found *)(uintptr_t)s->rows, s->nrows);
	free((void *)(uintptr_t)s->points), free((void *)(uintptr_t)s->sum), free((void *)(uintptr_t)s->ini);
}

static int draw(const struct hd_cli *c, const struct search_options *o, struct hd_plan *p,
		const struct search_result *r, int64_t top, struct hd_err *err)
{
	struct hd_prediction times = { .want_spans = 1 };
	static char text[] = "the layout of the INI";
	struct hd_page_point own = { r->own.step, r->own.memory, text, r->limit <= 0 || r->own.memory <= r->limit };
	struct hd_page_results s = { .npoints = 0 };
	char *title = hd_format("%s: the best of %lld layouts", c->positional, (long long)r->layouts);
	struct hd_machine m = *o->machine;
	struct hd_picture x = { .title = title,
				.plan = p,
				.machine = &m,
				.prediction = &times,
				.search = &s,
				.style = hd_cli_str(c, "style", NULL) };

	search_of(r, top, &own, &s);
	hd_machine_share(&m, p);
	if (hd_simulate(p, &m, o->style, &times, err) >= 0)
		hd_picture_write(&x, hd_cli_str(c, "html", ""), err);
	hd_prediction_release(&times);
	release(&s), free(title);
	return err->code;
}

static int draw_best(const struct hd_cli *c, const struct search_options *o, const struct search_result *r, int64_t top,
		     struct hd_err *err)
{
	struct hd_conf *conf = NULL;
	struct hd_plan *p = NULL;

	if (!hd_cli_has(c, "html"))
		return HD_OK;
	if (hd_search_conf(r, &r->found[0], &conf, err) >= 0 && hd_plan_create(conf, &o->plan, &p, err) >= 0)
		draw(c, o, p, r, top, err);
	hd_plan_destroy(p);
	hd_conf_destroy(conf);
	return err->code;
}

static void print_json(const struct search_result *r, const struct search_options *s, int64_t top)
{
	const struct evaluated *own = r->own.verdict.code ? NULL : &r->own;
	int fits = own && (r->limit <= 0 || own->memory <= r->limit);
	json_t *o = json_pack("{s:s, s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "machine", s->machine->name, "precision",
			      s->plan.compute_dtype == HD_DTYPE_BF16 ? "bf16" : "fp32", "ranks",
			      (json_int_t)r->space.ranks, "layouts", (json_int_t)r->layouts, "given_step_seconds",
			      own ? hd_json_number(own->step) : json_null(), "given_memory_bytes",
			      own ? json_integer((json_int_t)own->memory) : json_null(), "given_fits",
			      own ? json_boolean(fits) : json_null(), "candidates", hd_search_json(r, top), "lost",
			      hd_search_dropped_json(r));
	char *line = hd_json_line(o);

	puts(line);
	free(line);
}

static int none_fits(const struct search_result *r, struct hd_err *err)
{
	char *least = hd_search_line(r, &r->found[0]), *floor = hd_strdup("");

	if (r->floor > 0)
		hd_append(&floor, "; those that were not planned for lack of memory need at least %s",
			  hd_human_bytes(r->floor).text);
	hd_err_set(err, HD_ENOMEM,
		   "plan: no layout fits into %s: of the %lld that were planned completely, the smallest needs %s "
		   "(%s)%s. %lld of %lld were not looked at%s",
		   hd_human_bytes(r->limit).text, (long long)r->nfound, hd_human_bytes(r->found[0].result.memory).text,
		   least, floor, (long long)r->not_tried, (long long)r->layouts,
		   r->not_tried ? "; --tries N looks at more" : "");
	free(least), free(floor);
	return err->code;
}

/* Prints why nothing was found to stderr, where the error is printed too. */
static int nothing(const struct search_result *r, struct hd_err *err)
{
	if (!r->layouts)
		return hd_err_set(err, HD_EINVAL,
				  "plan: the search space has no layout of %lld ranks: its sizes do not multiply to it",
				  (long long)r->space.ranks);
	fprintf(stderr, "%lld layouts: %lld planned completely; why the others were not:\n", (long long)r->layouts,
		(long long)r->nfound);
	hd_search_print_dropped(stderr, r);
	if (r->nfound)
		return none_fits(r, err);
	return hd_err_set(err, HD_EINVAL, "plan: no layout of %lld is possible; %lld: %s", (long long)r->layouts,
			  r->ndropped ? (long long)r->dropped[0].layouts : 0LL, r->ndropped ? r->dropped[0].why : "");
}

/* Prints the result, then writes the files. A search takes long, so an error of a file must not cost its result. */
static int report(struct hd_cli *c, const struct search_options *o, const struct search_result *r, int64_t top,
		  struct hd_err *err)
{
	/* If nothing was found, the JSON object says why, too. */
	if (hd_cli_has(c, "json"))
		print_json(r, o, hd_cli_has(c, "top") ? top : r->nfound);
	else if (r->nfits)
		hd_search_print(r, top);
	if (!r->nfits)
		return nothing(r, err);
	HD_TRY(write_best(c, r, o->machine, err));
	return draw_best(c, o, r, top, err);
}

int hd_search_run(struct hd_cli *c, const struct hd_machine *m, const struct hd_style *style, struct hd_conf **conf,
		  struct hd_err *err)
{
	struct search_options o = { .machine = m, .style = style };
	struct search_result r = { .layouts = 0 };
	int64_t top;

	HD_TRY(options_of(c, &o, &top, err));
	HD_TRY(hd_cli_plan_options(c, hd_machine_node_size(m), conf, &o.plan, err));
	HD_TRY(hd_cli_outputs_check(c, *conf, err));
	hd_warn_of_peak(m, o.plan.compute_dtype);
	o.conf = *conf;
	o.plan.quiet = 1;
	if (o.tries < 0) /* the time of a plan grows with its layers */
		o.tries = tries_of(hd_section_int(hd_conf_section(*conf, NULL, "model"), "layers"));
	o.unbounded = getenv("HD_TEST_SEARCH_ALL") != NULL;
	if (hd_search(&o, &r, err) >= 0)
		report(c, &o, &r, top, err);
	hd_search_release(&r);
	return err->code;
}
