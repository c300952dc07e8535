/* SPDX-License-Identifier: Apache-2.0
 * Fills the page of a plan from the plan and its prediction.
 */
#include <config.h>
#include "engine/command/picture.h"
#include "engine/file/atomic_file.h"
#include "engine/foresight/timeline.h"
#include "engine/graph/mesh.h"
#include "engine/human/human.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct hd_page_use *use_of(const struct hd_unit_spans *s, size_t *n)
{
	struct hd_page_use *v = hd_alloc((s->nunits + 1) * sizeof(*v));

	for (*n = 0; *n < s->nunits; ++*n) {
		const struct hd_memory_use *u = &s->units[*n].use;

		v[*n] = (struct hd_page_use){ s->units[*n].from,
					      { u->parameters, u->states, u->gradients, u->kept, u->working } };
	}
	return v;
}

/* Returns the blocks of a stage as "layer 3 to layer 5". A stage of several chunks has several such ranges. */
static char *blocks_of(const struct hd_plan *p, int64_t coord)
{
	char *text = hd_strdup("");

	for (size_t i = 0, n; i < p->nblocks; i += n) {
		for (n = 1; i + n < p->nblocks && p->blocks[i].coord == p->blocks[i + n].coord; n++)
			;
		if (p->blocks[i].coord != coord)
			continue;
		hd_append(&text, "%s%s", *text ? ", " : "", p->blocks[i].name);
		if (n > 1)
			hd_append(&text, " to %s", p->blocks[i + n - 1].name);
	}
	return text;
}

static struct hd_page_stage *stages_of(const struct hd_picture *x)
{
	const struct hd_prediction *r = x->prediction;
	struct hd_page_stage *v = hd_alloc(((size_t)r->nstages + 1) * sizeof(*v));

	for (int64_t i = 0; i < r->nstages; i++) {
		const struct hd_stage_price *s = &r->stages[i];

		v[i] = (struct hd_page_stage){ .name = x->plan->stages
							       ? hd_format("stage %lld", (long long)i)
							       : hd_strdup(r->servers.n ? "all workers" : "all ranks"),
					       .holds = x->plan->stages ? blocks_of(x->plan, i) : hd_strdup("all"),
					       .parameters = (double)s->parameters,
					       .memory = s->memory,
					       .sent = { s->sent[HD_LINK_NODE], s->sent[HD_LINK_NETWORK] },
					       .compute = s->compute,
					       .exposed = s->exposed,
					       .idle = s->idle };
		v[i].spans = hd_planned_spans(r, i, &v[i].nspans);
		v[i].use = use_of(&r->spans[i], &v[i].nuse);
	}
	return v;
}

void hd_page_stages_release(struct hd_page_stage *v, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		free(v[i].name), free(v[i].holds);
		free((void *)(uintptr_t)v[i].spans), free((void *)(uintptr_t)v[i].use);
	}
	free(v);
}

static int write_page(const struct hd_plan_page *page, const char *path, struct hd_err *err)
{
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);

	if (!f)
		return hd_err_set(err, HD_ENOMEM, "%s: %s", path, strerror(errno));
	hd_plan_page_write(f, page);
	fclose(f);
	hd_file_write(path, text, err);
	free(text);
	return err->code;
}

/* -- the lines at the top ---------------------------------------------------------------------------------------- */
static char *machine_line(const struct hd_picture *x)
{
	const struct hd_plan *p = x->plan;

	return hd_format("%lld rank%s of %s, %lld a node, %s%s%s", (long long)p->ranks, hd_plural(p->ranks, "s"),
			 x->machine->name, (long long)x->machine->ranks_per_node,
			 p->compute_dtype == HD_DTYPE_BF16 ? "bf16" : "fp32", x->style ? "; style " : "",
			 x->style ? x->style : "");
}

static char *step_line(const struct hd_picture *x)
{
	const struct hd_plan *p = x->plan;
	double step = x->prediction->step, flops = p->model_flops * (double)p->micros / step;

	return hd_format("a step takes %s: %s tokens/s, %s a rank, %.1f%% of the peak", hd_human_step(step).text,
			 hd_human_count(hd_plan_tokens(p) / step).text, hd_human_rate(flops / (double)p->ranks).text,
			 100 * flops / hd_plan_peak(p, x->machine));
}

static char *batch_line(const struct hd_plan *p)
{
	return hd_format("%lld replica%s x %lld micro-batch%s of %lld sequence%s of %lld tokens",
			 (long long)p->replicas, hd_plural(p->replicas, "s"), (long long)p->micros,
			 hd_plural(p->micros, "es"), (long long)p->micro_batch, hd_plural(p->micro_batch, "s"),
			 (long long)p->model.seq);
}

static int fits(const struct hd_picture *x)
{
	return x->machine->memory <= 0 || hd_prediction_memory(x->prediction) <= x->machine->memory;
}

static char *memory_line(const struct hd_picture *x)
{
	double bytes = hd_prediction_memory(x->prediction), limit = x->machine->memory;
	const char *given = x->machine->memory_given ? " (--memory)" : "";
	struct hd_human text[2];

	if (limit <= 0)
		return hd_format("memory of a rank: %s", hd_human_bytes(bytes).text);
	hd_human_two(bytes, limit, text);
	return fits(x) ? hd_format("memory of a rank: %s of %s%s, fits", text[0].text, text[1].text, given)
		       : hd_format("memory of a rank: %s, more than its %s%s: this layout does not fit", text[0].text,
				   text[1].text, given);
}

static char *slow_line(const struct hd_picture *x)
{
	const struct hd_machine *m = x->machine;

	if (m->slow <= 0)
		return NULL;
	return hd_format("rank %lld takes %.4g times as long to compute: a step takes %s instead of %s",
			 (long long)m->slow_rank, m->slow, hd_human_step(x->prediction->step).text,
			 hd_human_step(x->alike).text);
}

char *hd_groups_note(const struct hd_plan *p, const struct hd_machine *m, const struct hd_prediction *r)
{
	int64_t node = m->ranks_per_node;

	for (int i = 0; i < p->naxes; i++) {
		const struct axis *a = p->axes[i], *same = a == p->stages ? NULL : p->stages;
		struct hd_spread_of_axis all = hd_axis_spread(p, a, node, NULL, 0);

		for (int64_t s = 0; all.spanning && all.spanning < all.groups && s < r->nstages; s++) {
			int64_t rank = r->stages[s].rank, first = rank - hd_plan_coord(p, rank, a) * a->stride;
			int64_t last = first + (a->v.n + a->v.spare - 1) * a->stride;
			struct hd_spread_of_axis those = hd_axis_spread(p, a, node, same, rank);

			if (those.spanning && first / node == last / node)
				return hd_format("%lld of %lld groups along %s span nodes, but not that of rank %lld, "
						 "for which the prices are: those groups are slower",
						 (long long)all.spanning, (long long)all.groups, a->v.name,
						 (long long)rank);
		}
	}
	return NULL;
}

static void lines_of(const struct hd_picture *x, char *lines[HD_PAGE_LINES])
{
	char *all[] = { machine_line(x), step_line(x), batch_line(x->plan),
			memory_line(x),  slow_line(x), hd_groups_note(x->plan, x->machine, x->prediction) };
	size_t n = 0;

	_Static_assert(HD_LEN(all) <= HD_PAGE_LINES, "all lines have a place");
	for (size_t i = 0; i < HD_LEN(all); i++)
		if (all[i])
			lines[n++] = all[i];
}

/* -- the page ---------------------------------------------------------------------------------------------------- */
static void axes_of(const struct hd_picture *x, struct hd_page_axis *axes)
{
	for (int i = 0; i < x->plan->naxes; i++) {
		const struct axis *a = x->plan->axes[i];
		struct hd_spread_of_axis s = hd_axis_spread(x->plan, a, x->machine->ranks_per_node, NULL, 0);

		axes[i] = (struct hd_page_axis){ .name = hd_axis_text(a),
						 .n = a->v.n,
						 .servers = a->v.spare,
						 .stride = a->stride,
						 .groups = s.groups,
						 .spanning = s.spanning,
						 .apart = s.apart };
	}
}

/* Returns the row of the servers: they have no timeline. */
static struct hd_page_stage servers_of(const struct hd_server_price *s)
{
	static char one[] = "server", several[] = "servers", what[] = "values and states to update";

	return (struct hd_page_stage){ .name = s->n > 1 ? several : one,
				       .holds = what,
				       .memory = s->memory,
				       .compute = s->compute,
				       .sent = { s->sent[HD_LINK_NODE], s->sent[HD_LINK_NETWORK] } };
}

/* Reads the trace, if there is one, and writes the page. */
static int write_both(const struct hd_picture *x, struct hd_plan_page *page, const char *path, struct hd_err *err)
{
	struct hd_page_stage *traced = NULL;
	double seconds = 0;

	if (!x->trace || hd_traced_read(x->trace, x->plan, page->nstages, &traced, &seconds, err) >= 0) {
		page->run = (struct hd_page_both){ page->stages,  traced,  page->nstages,
						   page->seconds, seconds, "the last step of the trace" };
		write_page(page, path, err);
	}
	hd_page_stages_release(traced, traced ? page->nstages : 0);
	return err->code;
}

int hd_picture_write(const struct hd_picture *x, const char *path, struct hd_err *err)
{
	const struct hd_server_price *s = &x->prediction->servers;
	struct hd_page_axis axes[HD_MAX_AXES];
	struct hd_page_stage *stages = stages_of(x), servers = servers_of(s);
	char *title = hd_format("%s%s", x->title, fits(x) ? "" : ": does not fit");
	struct hd_plan_page page = { .title = title,
				     .ranks = x->plan->ranks,
				     .node = x->machine->ranks_per_node,
				     .seconds = x->prediction->step,
				     .sharing = x->prediction->sharing,
				     .limit = x->machine->memory,
				     .servers = s->n ? &servers : NULL,
				     .axes = axes,
				     .stages = stages,
				     .search = x->search,
				     .naxes = x->plan->naxes,
				     .nstages = x->prediction->nstages };

	axes_of(x, axes);
	lines_of(x, page.about);
	write_both(x, &page, path, err);
	hd_page_stages_release(stages, page.nstages);
	for (int i = 0; i < HD_PAGE_LINES; i++)
		free(page.about[i]);
	for (int i = 0; i < page.naxes; i++)
		free(axes[i].name);
	free(title);
	return err->code;
}
