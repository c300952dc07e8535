/* SPDX-License-Identifier: Apache-2.0
 * The order of units on each coordinate of the stage axis.  It comes from the only plugin that orders units, or is
 * plain: each micro-batch forward, then backward.  It is checked before anything runs: each unit occurs once, and there
 * is no deadlock.
 */
#include <config.h>
#include "engine/graph/mesh.h"
#include "engine/graph/placement.h"
#include "engine/passes/passes.h"
#include "engine/schedule/schedule_check.h"
#include <stdlib.h>
#include <string.h>

static void append(struct hd_plan *p, int64_t coord, uint32_t kind, int64_t chunk, int64_t micro)
{
	p->units[coord] = hd_grow(p->units[coord], (size_t)p->nunits[coord], &p->cap_units[coord], sizeof(**p->units));
	p->units[coord][p->nunits[coord]++] = (struct hd_schedule_unit){ kind, (int32_t)chunk, (int32_t)micro };
}

/* Returns how many micro-batches, or pairs of them, are ordered. */
static int64_t ordered(const struct hd_plan *p)
{
	return p->micros / hd_micros_at_once(p);
}

/* Returns whether block b begins a chunk. */
static int begins_chunk(const struct hd_plan *p, size_t b)
{
	return !b || p->blocks[b].coord != p->blocks[b - 1].coord || p->blocks[b].chunk != p->blocks[b - 1].chunk;
}

/* Orders the micro-batches of a plan that is forward only, in rounds of as many as there are stages. A round runs
 * through the chunks in the model's order. So while a stage computes a micro-batch, the stage before it computes the
 * next one. */
static void forward_rounds(struct hd_plan *p)
{
	for (int64_t from = 0; from < p->micros; from += p->ncoords)
		for (size_t b = 0; b < p->nblocks; b++)
			for (int64_t m = from; m < from + p->ncoords && m < p->micros && begins_chunk(p, b); m++)
				append(p, p->blocks[b].coord, HD_UNIT_F, p->blocks[b].chunk, m);
}

/* Returns whether the plan computes several micro-batches forward only, so that stages work at the same time. */
static int is_forward_pipeline(const struct hd_plan *p)
{
	return !p->train && p->stages && p->micros > 1;
}

/* Returns the instance that orders units, or -1. */
static int orderer(struct hd_plan *p)
{
	int who = -1;

	for (int i = 0; i < p->ninst && p->train && p->stages; i++) {
		if (!p->inst[i].plugin->orders)
			continue;
		if (who >= 0)
			hd_plan_fail(p, HD_EINVAL,
				     "[strategy %s] and [strategy %s] both order units, but only one section may",
				     p->inst[who].name, p->inst[i].name);
		who = i;
	}
	return who;
}

/* Replaces each unit of a pair by those of its two micro-batches, which the timeline interleaves. */
static void take_pairs_apart(struct hd_plan *p, int64_t coord)
{
	int n = p->nunits[coord];

	for (int i = 0; i < n; i++)
		append(p, coord, 0, 0, 0);
	for (int i = n - 1; i >= 0; i--) {
		struct hd_schedule_unit *u = p->units[coord], pair = u[i];

		for (int32_t k = 0; k < 2; k++) {
			u[2 * i + k] = pair;
			u[2 * i + k].micro = 2 * pair.micro + k;
		}
	}
}

static int from_plugin(struct hd_plan *p, int who)
{
	struct hd_slot was = hd_slot_begin(p, who, "schedule");

	hd_slot_returned(p, p->inst[who].plugin->ops->schedule(p->inst[who].self, p, ordered(p)));
	hd_slot_end(p, was);
	return p->err->code;
}

/* Runs each micro-batch forward through the parts in the model's order, then backward. A plugin may number the chunks
 * of a stage in any order. If the plan does not train, nodes of no block have units too. Those that read no block may
 * be in a chunk that a stage does not hold, and run first; the others run last. */
static void plain(struct hd_plan *p)
{
	int64_t all = p->ncoords * p->chunks, *at = hd_alloc((size_t)all * sizeof(*at)), n = 0;
	int *part_of = hd_plan_part_of(p);

	for (int64_t i = 0; i < all; i++)
		if (part_of[i] >= 0)
			at[part_of[i]] = i, n++;
	for (int64_t m = 0; m < ordered(p); m++) {
		for (int64_t i = 0; i < all && !p->train; i++)
			if (part_of[i] < 0)
				append(p, i / p->chunks, HD_UNIT_F, i % p->chunks, m);
		for (int64_t i = 0; i < n; i++)
			append(p, at[i] / p->chunks, HD_UNIT_F, at[i] % p->chunks, m);
		for (int64_t c = 0; c < p->ncoords && !p->train && p->chunks > 1; c++)
			append(p, c, HD_UNIT_F, p->chunks, m);
		for (int64_t i = n - 1; i >= 0 && p->train; i--)
			append(p, at[i] / p->chunks, HD_UNIT_B, at[i] % p->chunks, m);
	}
	free(at), free(part_of);
}

/* Checks that the blocks of a chunk are adjacent.  Otherwise a chunk would need its own results. */
static int check_blocks(struct hd_plan *p)
{
	char *seen = hd_alloc((size_t)(p->ncoords * p->chunks));
	int64_t last = -1;
	int rc = 0;

	for (size_t b = 0; b < p->nblocks && !rc; b++) {
		int64_t at = p->blocks[b].coord * p->chunks + p->blocks[b].chunk;

		if (at != last && seen[at])
			rc = hd_plan_fail(p, HD_EINVAL,
					  "%s returns to stage %lld, chunk %lld, which other blocks have left",
					  p->blocks[b].name, (long long)p->blocks[b].coord,
					  (long long)p->blocks[b].chunk);
		seen[at] = 1;
		last = at;
	}
	free(seen);
	return rc;
}

/* Returns the plan's units as schedule_check.h describes them.  The caller frees part_of. */
static struct hd_schedule view(const struct hd_plan *p)
{
	return (struct hd_schedule){ .p = (int)p->ncoords,
				     .v = (int)p->chunks,
				     .m = (int)p->micros,
				     .units = (const struct hd_schedule_unit *const *)p->units,
				     .n = p->nunits,
				     .part_of = hd_plan_part_of(p) };
}

static int64_t count_parts(const struct hd_plan *p, const int *part_of)
{
	int64_t n = 0;

	for (int64_t i = 0; i < p->ncoords * p->chunks; i++)
		n += part_of[i] >= 0;
	return n;
}

int64_t hd_plan_parts(const struct hd_plan *p)
{
	struct hd_schedule s = view(p);
	int64_t n = count_parts(p, s.part_of);

	free((void *)(uintptr_t)s.part_of);
	return n;
}

/* Returns the number of layers of each part of the model, or NULL if all parts have the same.  The caller frees it.  It
 * does not count FLOPs: an embedding or a head would make stages with equal numbers of layers unequal, and the bubble
 * would match no paper.  Nor is it used for p->timing, from which programs derive their waits: there, no unit may have
 * length 0. */
static double *layers_of_parts(const struct hd_plan *p, const int *part_of)
{
	int64_t n = count_parts(p, part_of), differ = 0;
	double *layers = hd_alloc((size_t)n * sizeof(*layers));

	for (size_t b = 0; b < p->nblocks; b++)
		layers[part_of[p->blocks[b].coord * p->chunks + p->blocks[b].chunk]] +=
			!strncmp(p->blocks[b].name, "layer", 5);
	for (int64_t i = 1; i < n; i++)
		differ |= layers[i] != layers[0];
	if (differ)
		return layers;
	free(layers);
	return NULL;
}

double hd_plan_bubble(const struct hd_plan *p)
{
	struct hd_schedule s;
	struct hd_schedule_report rep = { .bubble = 0 };
	double *layers, bubble;

	if (!p->train)
		return 0;
	s = view(p);
	s.weight = layers = layers_of_parts(p, s.part_of);
	hd_schedule_check(&s, &rep, NULL);
	bubble = rep.bubble;
	hd_schedule_report_release(&rep);
	free(layers);
	free((void *)(uintptr_t)s.part_of);
	return bubble;
}

/* Gives parts without a layer a length for the drawing, because units of length 0 would hide each other. Returns
 * whether there are any. */
static int widen_empty(double *layers, int64_t n)
{
	int any = 0;

	for (int64_t i = 0; layers && i < n; i++)
		if (layers[i] == 0)
			layers[i] = 0.5, any = 1;
	return any;
}

static void print_legend(const struct hd_schedule *s, const struct hd_schedule_report *rep, int timed, int widened,
			 FILE *f)
{
	const char *of = s->v > 1 ? "F0.1: forward of micro-batch 0 through chunk 1 of its stage"
				  : "F0: forward of micro-batch 0";

	fprintf(f,
		"units: %s, B its backward%s; time runs to the right, - while a unit goes on, blank while the stage waits; ",
		of, rep->separate_w ? ", W the gradients of its weights" : "");
	if (timed)
		fprintf(f, "widths are those of --times\n");
	else if (s->weight)
		fprintf(f, "not measured: of each layer a forward takes 1, a backward %s%s\n",
			rep->separate_w ? "1, the gradients of weights 1" : "2",
			widened ? "; units without a layer, which count as 0, are drawn like half a layer" : "");
	else
		fprintf(f, "not measured: a forward takes 1, a backward %s\n",
			rep->separate_w ? "1, the gradients of weights 1" : "2");
}

void hd_plan_draw(const struct hd_plan *p, const struct hd_unit_times *t, FILE *f)
{
	struct hd_schedule s = view(p);
	struct hd_schedule_report rep = { 0 };
	double *layers = layers_of_parts(p, s.part_of);
	int busiest = 0, widened = widen_empty(layers, count_parts(p, s.part_of));

	s.weight = layers;
	if (t)
		s.tf = t->f, s.tb = t->b, s.tw = t->w;
	if (hd_schedule_check(&s, &rep, NULL) >= 0) {
		hd_schedule_draw(f, &s, &rep);
		print_legend(&s, &rep, t != NULL, widened, f);
		fprintf(f, "%s in flight at most, by stage:", s.v > 1 ? "chunks of micro-batches" : "micro-batches");
		for (int r = 0; r < s.p; r++) {
			fprintf(f, " %d", rep.in_flight[r]);
			busiest = rep.busy[r] > rep.busy[busiest] ? r : busiest;
		}
		fprintf(f, "\n");
		if (t)
			fprintf(f, "with these times: a step takes %.6f s, stage %d is busy for %.6f s, bubble %.3f\n",
				rep.makespan, busiest, rep.busy[busiest], rep.bubble);
		hd_schedule_report_release(&rep);
	}
	free(layers);
	free((void *)(uintptr_t)s.part_of);
}

/* Refuses an odd number of micro-batches, because two are computed at a time. */
static int check_pairs(struct hd_plan *p)
{
	if (!hd_computes_pairs(p) || p->micros % 2 == 0)
		return HD_OK;
	return hd_train_fail(p->conf, &p->config, "overlap_micro_batches", p->err, HD_EINVAL,
			     "yes, but a replica has %lld micro-batch%s a step, which is odd", (long long)p->micros,
			     hd_plural(p->micros, "es"));
}

int hd_pass_schedule(struct hd_plan *p)
{
	struct hd_err why = { 0 };
	struct hd_schedule s;
	int who;

	p->ncoords = p->stages ? p->stages->v.n : 1;
	p->units = hd_plan_alloc(p, (size_t)p->ncoords * sizeof(*p->units));
	p->nunits = hd_plan_alloc(p, (size_t)p->ncoords * sizeof(*p->nunits));
	p->cap_units = hd_plan_alloc(p, (size_t)p->ncoords * sizeof(*p->cap_units));
	HD_TRY(check_blocks(p));
	HD_TRY(check_pairs(p));
	who = orderer(p);
	HD_TRY(p->err->code);
	if (who >= 0)
		HD_TRY(from_plugin(p, who));
	if (is_forward_pipeline(p))
		forward_rounds(p);
	for (int64_t c = 0, any = 0; c < p->ncoords; c++) {
		any |= p->nunits[c] > 0;
		if (c + 1 == p->ncoords && !any)
			plain(p);
	}
	if (!p->train && !is_forward_pipeline(p))
		return HD_OK;
	for (int64_t c = 0; c < p->ncoords && hd_computes_pairs(p); c++)
		take_pairs_apart(p, c);
	s = view(p);
	s.forward_only = !p->train;
	hd_schedule_check(&s, &p->timing, &why);
	free((void *)(uintptr_t)s.part_of);
	if (!why.code)
		return HD_OK;
	if (who < 0)
		return hd_plan_fail(p, why.code, "%s", why.text);
	hd_plan_mistake(p, who);
	return hd_inst_fail(p, who, why.code, why.text);
}
