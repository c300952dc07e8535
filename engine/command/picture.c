/* SPDX-License-Identifier: Apache-2.0
 * Fills the page of a plan from the plan and its prediction.
 */
#include <config.h>
#include "engine/command/picture.h"
#include "engine/file/atomic_file.h"
#include "engine/foresight/timeline.h"
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

static char *batch_of(const struct hd_plan *p)
{
	return hd_format("%lld replica%s x %lld micro-batch%s of %lld sequence%s of %lld tokens",
			 (long long)p->replicas, hd_plural(p->replicas, "s"), (long long)p->micros,
			 hd_plural(p->micros, "es"), (long long)p->micro_batch, hd_plural(p->micro_batch, "s"),
			 (long long)p->model.seq);
}

int hd_picture_write(const struct hd_picture *x, const char *path, struct hd_err *err)
{
	const struct hd_plan *p = x->plan;
	struct hd_page_axis axes[HD_MAX_AXES];
	struct hd_page_stage *stages = stages_of(x);
	char *machine = hd_format("%lld rank%s of %s; a step takes %s", (long long)p->ranks, hd_plural(p->ranks, "s"),
				  x->machine->name, hd_human_seconds(x->prediction->step).text);
	char *batch = batch_of(p);
	struct hd_page_stage *traced = NULL;
	double seconds = 0;
	struct hd_plan_page page = { .title = x->title,
				     .about = { machine, batch },
				     .ranks = p->ranks,
				     .node = x->machine->ranks_per_node,
				     .seconds = x->prediction->step,
				     .limit = x->machine->memory,
				     .server = x->prediction->servers.memory,
				     .axes = axes,
				     .stages = stages,
				     .points = x->points,
				     .naxes = p->naxes,
				     .nstages = x->prediction->nstages,
				     .npoints = x->npoints };

	for (int a = 0; a < p->naxes; a++)
		axes[a] = (struct hd_page_axis){ p->axes[a]->v.name, p->axes[a]->v.n, p->axes[a]->stride };
	if (!x->trace || hd_traced_read(x->trace, x->plan, page.nstages, &traced, &seconds, err) >= 0) {
		page.run = (struct hd_page_both){ stages,       traced,  page.nstages,
						  page.seconds, seconds, "the last step of the trace" };
		write_page(&page, path, err);
	}
	hd_page_stages_release(stages, page.nstages);
	hd_page_stages_release(traced, traced ? page.nstages : 0);
	free(machine), free(batch);
	return err->code;
}
