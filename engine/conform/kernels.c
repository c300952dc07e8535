/* SPDX-License-Identifier: Apache-2.0
 * The plugin's ops at run time: kernels must read and write their operands and no other memory, for all sizes.
 *
 * The model has odd sizes, so that a kernel that works on four or eight elements at once has a remainder. Each node of
 * the plugin runs on memory of its own (parts/trial.c), with the same inputs:
 *
 *   behind    the byte after each operand cannot be accessed
 *   before    the byte before each operand cannot be accessed
 *   again     results are prefilled with a different byte: elements not written, added to or not reproducible differ
 *   in place  results are stored where the op allows it
 *   threads   results with two threads are bit for bit the same
 *   linear    f(a + b) = f(a) + f(b) where the op claims to be linear
 *   numbers   cpu computes what ref computes, up to rounding
 *   habits    run and prepare do not keep more memory each time, and run prints nothing
 */
#include <config.h>
#include "engine/conform/judge.h"
#include "engine/conform/parts/habits.h"
#include "engine/conform/parts/trial.h"
#include "engine/plugin/kernel.h"
#include "engine/run/run.h"
#include "kernels/ref/ref.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 3
#define THREADED 2
#define SHARDS 2

/* The device and precision on which nodes run. */
enum { ON_REF, ON_CPU, ON_CPU_BF16, PLACES };
static const char *const places[PLACES] = { "ref", "cpu", "cpu in bf16" };

struct device_plan {
	struct hd_conf *conf;
	struct hd_plan *plan;
	struct hd_program *program, *threaded; /* threaded: its kernels are told to use THREADED threads */
	const struct hd_device_ops *device;
	int planned;
};

/* Opens the last of `ranks` ranks, whose operands begin latest in the global tensors. */
static int open_device(const char *ini, int64_t ranks, int place, struct device_plan *b, struct hd_err *err)
{
	struct hd_plan_options o = { .ranks = ranks, .train = 1 };
	const struct hd_device_ops *device = place == ON_REF ? hd_device_ref() : hd_device_cpu();
	struct hd_program_options with = { .rank = ranks - 1, .device = device };
	struct hd_classes c;
	int rc;

	o.master_dtype = place == ON_REF ? HD_DTYPE_F64 : 0;
	o.compute_dtype = place == ON_CPU_BF16 ? HD_DTYPE_BF16 : 0;
	HD_TRY(hd_conf_parse("layout", ini, NULL, 0, &b->conf, err));
	HD_TRY(hd_plan_create(b->conf, &o, &b->plan, err));
	b->planned = 1;
	HD_TRY(device->open(THREADS, err));
	b->device = device;
	HD_TRY(hd_program_build(b->plan, &with, &b->program, err));
	HD_TRY(hd_program_build(b->plan, &with, &b->threaded, err));
	hd_classes_find(b->plan, &c);
	rc = hd_program_try(b->program, device, &c, c.of[c.nranks - 1], err);
	hd_classes_release(&c);
	return rc < 0 ? rc : hd_program_record(b->threaded, device, THREADED, err);
}

static void close_device(struct device_plan *b)
{
	hd_program_destroy(b->program);
	hd_program_destroy(b->threaded);
	hd_plan_destroy(b->plan);
	hd_conf_destroy(b->conf);
	*b = (struct device_plan){ 0 };
}

/* Returns the next node of the plugin that launches, or should launch, a kernel on this rank. */
static const struct node *next_node(const struct device_plan *b, const struct node *n, const char *plugin)
{
	n = n ? n->next : b->plan->first;
	while (n && (n->inst < 0 || strcmp(b->plan->inst[n->inst].plugin->name, plugin) || !n->v.op->record ||
		     !b->program->here[n->id]))
		n = n->next;
	return n;
}

/* An output that no node reads is scratch memory. */
static int is_read(const struct hd_program *g, const struct tensor *t)
{
	return g->readers[t->id] && g->readers[t->id][0];
}

static void wrong(struct outcome *o, const struct node *n, const char *fmt, ...) HD_PRINTF(3, 4);
static void wrong(struct outcome *o, const struct node *n, const char *fmt, ...)
{
	va_list v;
	char *text;

	va_start(v, fmt);
	text = hd_vformat(fmt, v);
	va_end(v);
	outcome_set(o, JUDGED_WRONG, "%s of (%s): %s", n->v.op->name, n->v.nin ? n->ins[0]->v.spec : "", text);
	free(text);
}

/* Returns the first element in which a result differs between two runs, or -1. */
static int64_t differs_at(const struct hd_trial *a, const struct hd_trial *b, uint32_t k)
{
	size_t size = (size_t)HD_BITS(a->node->outs[k]->v.dtype) / 8;

	for (size_t i = 0; i < a->out[k].bytes; i++)
		if (a->out[k].at[i] != b->out[k].at[i])
			return (int64_t)(size ? i / size : i);
	return -1;
}

static int is_filled(const struct hd_trial *t, uint32_t k, int64_t at)
{
	size_t size = (size_t)HD_BITS(t->node->outs[k]->v.dtype) / 8;

	for (size_t i = 0; i < size; i++)
		if (t->out[k].at[(size_t)at * size + i] != (char)t->fill)
			return 0;
	return 1;
}

static void compare_runs(const struct hd_trial *a, const struct hd_trial *b, struct outcome *o)
{
	const struct node *n = a->node;

	for (uint32_t k = 0; k < n->v.nout && o->verdict == JUDGED_OK; k++) {
		const struct tensor *y = n->outs[k];
		int64_t at = is_read(a->program, y) ? differs_at(a, b, k) : -1;
		long long all = (long long)hd_local_count(y);

		if (at < 0)
			continue;
		if (b->in_place)
			wrong(o, n,
			      "in place of input %d, as the op allows, element %lld of %lld of output %u is %g instead of %g",
			      hd_trial_place(n, k), (long long)at, all, k, hd_trial_number(y, b->out[k].at, at),
			      hd_trial_number(y, a->out[k].at, at));
		else if (b->threads)
			wrong(o, n,
			      "element %lld of %lld of output %u is %.17g with 1 thread, and %.17g with %d: results "
			      "must not depend on the number of threads",
			      (long long)at, all, k, hd_trial_number(y, a->out[k].at, at),
			      hd_trial_number(y, b->out[k].at, at), b->threads);
		else if (is_filled(a, k, at) && is_filled(b, k, at))
			wrong(o, n, "element %lld of %lld of output %u is not written", (long long)at, all, k);
		else
			wrong(o, n,
			      "element %lld of %lld of output %u is %g, but %g when it runs again with the same "
			      "inputs. It depends on what was in memory, or on earlier runs",
			      (long long)at, all, k, hd_trial_number(y, a->out[k].at, at),
			      hd_trial_number(y, b->out[k].at, at));
	}
}

static int places_any(const struct node *n)
{
	int any = 0;

	for (uint32_t k = 0; k < n->v.nout; k++)
		any |= hd_trial_place(n, k) >= 0;
	return any;
}

static void run_trial(struct hd_trial *t, struct outcome *o)
{
	struct hd_err err = { 0 };

	if (hd_trial_run(t, &err) < 0)
		wrong(o, t->node, "%s", err.text);
	else if (t->changed >= 0)
		wrong(o, t->node, "it writes input %d", t->changed);
}

/* Runs a node in all ways. `first` is kept, for the comparison of numbers. */
static void try_node(const struct device_plan *b, const struct node *n, struct hd_trial *first, struct outcome *o)
{
	struct hd_trial again[] = {
		{ .program = b->program, .node = n, .guard = HD_GUARD_BEFORE, .fill = 0 },
		{ .program = b->program, .node = n, .guard = HD_GUARD_BEHIND, .fill = 0x11, .in_place = 1 },
		{ .program = b->threaded, .node = n, .guard = HD_GUARD_BEHIND, .fill = 0xff, .threads = THREADED },
	};

	*first = (struct hd_trial){ .program = b->program, .node = n, .guard = HD_GUARD_BEHIND, .fill = 0xff };
	run_trial(first, o);
	for (size_t i = 0; i < HD_LEN(again) && o->verdict == JUDGED_OK; i++) {
		if (again[i].in_place && !places_any(n))
			continue;
		run_trial(&again[i], o);
		if (o->verdict == JUDGED_OK)
			compare_runs(first, &again[i], o);
		hd_trial_release(&again[i]);
	}
}

/* -- numbers ---------------------------------------------------------------------------------------------------- */
static double unit_of(uint32_t dtype)
{
	return dtype == HD_DTYPE_BF16 ? 0x1p-8 : 0x1p-24;
}

/* Returns a bound on rounding: each of the terms of a result has passed some operations. It is that many units of the
 * largest result. */
static double bound_of(const struct hd_trial *t, const struct hd_trial *exact, uint32_t k)
{
	const struct node *n = t->node;
	double most = 1, terms = 0, unit = unit_of(n->outs[k]->v.dtype);

	for (uint32_t i = 0; i < n->v.nin; i++) {
		terms += (double)hd_local_count(n->ins[i]);
		unit = fmax(unit, unit_of(n->ins[i]->v.dtype));
	}
	for (int64_t i = 0; i < hd_local_count(n->outs[k]); i++) {
		double x = fabs(hd_trial_number(exact->node->outs[k], exact->out[k].at, i));

		most = x > most ? x : most;
	}
	return (16 + ceil(terms / (double)hd_local_count(n->outs[k]))) * unit * most;
}

static int is_number(uint32_t dtype)
{
	return dtype == HD_DTYPE_F64 || dtype == HD_DTYPE_F32 || dtype == HD_DTYPE_BF16 || dtype == HD_DTYPE_I32;
}

static void compare_numbers(const struct hd_trial *t, const struct hd_trial *exact, const char *place,
			    struct outcome *o)
{
	const struct node *n = t->node;

	for (uint32_t k = 0; k < n->v.nout && o->verdict == JUDGED_OK; k++) {
		double bound = bound_of(t, exact, k);

		if (!is_read(t->program, n->outs[k]) || !is_number(n->outs[k]->v.dtype) ||
		    hd_local_count(n->outs[k]) != hd_local_count(exact->node->outs[k]))
			continue;
		for (int64_t i = 0; i < hd_local_count(n->outs[k]) && o->verdict == JUDGED_OK; i++) {
			double x = hd_trial_number(n->outs[k], t->out[k].at, i),
			       want = hd_trial_number(exact->node->outs[k], exact->out[k].at, i);

			if (!(fabs(x - want) <= bound) && !(isnan(x) && isnan(want)))
				wrong(o, n,
				      "element %lld of %lld of output %u is %.9g on %s, and %.9g on ref; rounding explains %.3g",
				      (long long)i, (long long)hd_local_count(n->outs[k]), k, x, place, want, bound);
		}
	}
}

/* -- linear ----------------------------------------------------------------------------------------------------- */
#define LINEAR_BOUND 1e-9 /* relative to the largest result; in double */

static int is_once(const struct node *n, uint32_t i)
{
	int times = 0;

	for (uint32_t k = 0; k < n->v.nin; k++)
		times += n->ins[k] == n->ins[i];
	return times == 1 && n->ins[i]->v.dtype == HD_DTYPE_F64;
}

static void compare_sums(const struct hd_trial t[3], uint64_t mixed, struct outcome *o)
{
	const struct node *n = t->node;

	for (uint32_t k = 0; k < n->v.nout && o->verdict == JUDGED_OK; k++) {
		const struct tensor *y = n->outs[k];
		double most = 0, off = 0;

		if (!is_read(t->program, y) || y->v.dtype != HD_DTYPE_F64 || n->v.op->max_outputs >> k & 1)
			continue;
		for (int64_t i = 0; i < hd_local_count(y); i++) {
			double a = hd_trial_number(y, t[0].out[k].at, i), b = hd_trial_number(y, t[1].out[k].at, i);

			most = fmax(most, fabs(a) + fabs(b));
			off = fmax(off, fabs(hd_trial_number(y, t[2].out[k].at, i) - a - b));
		}
		if (off > LINEAR_BOUND * most)
			wrong(o, n,
			      "its .linear is %#llx, but output %u is not linear in %s %d: f(a + b) - f(a) - f(b) is "
			      "%.3g; the largest is %.3g",
			      (unsigned long long)n->v.op->linear, k, ~mixed ? "input" : "all inputs, from",
			      ~mixed ? __builtin_ctzll(mixed) : 0, off, most);
	}
}

/* Tells whether the same inputs give different results in a different step. */
static int depends_on_step(const struct device_plan *b, const struct node *n)
{
	struct hd_trial t[2];
	struct hd_err err = { 0 };
	int differs = 0;

	for (int k = 0; k < 2; k++) {
		t[k] = (struct hd_trial){ .program = b->program, .node = n, .later = k };
		if (!err.code)
			hd_trial_run(&t[k], &err);
	}
	for (uint32_t k = 0; k < n->v.nout && !err.code; k++)
		differs |= is_read(b->program, n->outs[k]) && differs_at(&t[0], &t[1], k) >= 0;
	for (int k = 0; k < 2; k++)
		hd_trial_release(&t[k]);
	return differs;
}

static void try_linear_in(const struct device_plan *b, const struct node *n, uint64_t mixed, struct outcome *o)
{
	struct hd_trial t[3];
	struct hd_err err = { 0 };

	for (int k = 0; k < 3; k++) {
		t[k] = (struct hd_trial){ .program = b->program, .node = n, .mixed = mixed, .mix = k };
		if (o->verdict == JUDGED_OK && hd_trial_run(&t[k], &err) < 0)
			wrong(o, n, "%s", err.text);
	}
	if (o->verdict == JUDGED_OK)
		compare_sums(t, mixed, o);
	if (o->verdict == JUDGED_WRONG && !err.code && depends_on_step(b, n)) {
		char *why = o->why;

		o->why = NULL;
		outcome_set(o, JUDGED_WRONG,
			    "%s\nits results depend on the step: the same inputs give different ones in step 2", why);
		free(why);
	}
	for (int k = 0; k < 3; k++)
		hd_trial_release(&t[k]);
}

static void try_linear(const struct device_plan *b, const struct node *n, struct outcome *o)
{
	uint64_t linear = n->v.op->linear;

	if (linear && !~linear)
		try_linear_in(b, n, linear, o);
	for (uint32_t i = 0; ~linear && i < n->v.nin && o->verdict == JUDGED_OK; i++)
		if (linear >> i & 1 && is_once(n, i))
			try_linear_in(b, n, UINT64_C(1) << i, o);
}

/* -- habits ----------------------------------------------------------------------------------------------------- */
/* How often it is repeated. The first FIRST_TIMES do not count: they include one-time allocations, and malloc's own
 * reserves. */
enum { TIMES = 10, FIRST_TIMES = 8 };

static void judge_run_memory(const struct device_plan *b, const struct node *n, struct outcome *o)
{
	int64_t least = INT64_MAX;

	for (int i = 0; i < TIMES && least > 0 && o->verdict == JUDGED_OK; i++) {
		struct hd_trial t = { .program = b->program, .node = n };
		int64_t before = hd_heap_bytes(), grown;

		run_trial(&t, o);
		grown = hd_heap_bytes() - before;
		least = i >= FIRST_TIMES && grown < least ? grown : least;
		hd_trial_release(&t);
	}
	if (o->verdict == JUDGED_OK && least > 0 && least < INT64_MAX)
		wrong(o, n, "each run leaves %lld more bytes allocated: is something never freed?", (long long)least);
}

/* Prepares all kernels again. A growth below this bound may be due to the plan, which keeps the records too. */
#define LEAST_KEPT 65536

static void judge_prepared_memory(struct device_plan *b, struct outcome *o)
{
	int64_t least = INT64_MAX;
	struct hd_err err = { 0 };

	for (int i = 0; i < TIMES && least >= LEAST_KEPT && !err.code; i++) {
		int64_t before = hd_heap_bytes(), grown;

		hd_program_record(b->threaded, b->device, THREADED, &err);
		grown = hd_heap_bytes() - before;
		least = i >= FIRST_TIMES && grown < least ? grown : least;
	}
	if (!err.code && least >= LEAST_KEPT && least < INT64_MAX)
		outcome_set(o, JUDGED_WRONG,
			    "each time that its kernels are prepared and released, %lld bytes stay allocated: slot "
			    "release must free what prepare made without alloc",
			    (long long)least);
}

/* -- the check --------------------------------------------------------------------------------------------------- */
static void try_nodes(const struct judge *j, const struct device_plan *b, const struct device_plan *exact, int place,
		      const struct hd_output *output, struct outcome *o)
{
	char printed[80];
	const struct node *n = next_node(b, NULL, j->plugin->name),
			  *e = exact->program ? next_node(exact, NULL, j->plugin->name) : NULL;

	if (!n)
		outcome_set(o, JUDGED_SKIPPED, "it has no ops of its own");
	while (n && o->verdict == JUDGED_OK) {
		struct hd_trial first, ref = { .program = exact->program, .node = e, .guard = HD_GUARD_BEHIND };
		struct hd_err err = { 0 };

		try_node(b, n, &first, o);
		if (o->verdict == JUDGED_OK && place == ON_REF)
			try_linear(b, n, o);
		if (o->verdict == JUDGED_OK)
			judge_run_memory(b, n, o);
		if (o->verdict == JUDGED_OK && hd_output_printed(output, printed, sizeof(printed)))
			wrong(o, n, "its kernel prints to the standard output, which is the program's: %s", printed);
		if (o->verdict == JUDGED_OK && e && e->v.op == n->v.op && hd_trial_run(&ref, &err) >= 0)
			compare_numbers(&first, &ref, places[place], o);
		hd_trial_release(&first);
		hd_trial_release(&ref);
		n = next_node(b, n, j->plugin->name);
		e = e ? next_node(exact, e, j->plugin->name) : NULL;
	}
}

/* Tells whether the plugin can run on the cpu. Otherwise a run there would be refused for any sizes. */
static int computes_on_cpu(const struct judge *j)
{
	const struct hd_kernel_ops *const *k = j->plugin->kernels;
	int others = 0;

	for (; k && *k; k++) {
		if (!strcmp((*k)->device, "cpu"))
			return 1;
		others++;
	}
	return !others;
}

static void kernels(struct judge *j, const struct judge_task *t, struct outcome *o)
{
	int place = (int)(-2 - t->number);
	char *ini = layout_ini(j, t->layout);
	struct device_plan b = { 0 }, exact = { 0 };
	struct hd_err err = { 0 }, none = { 0 };
	struct hd_output output;
	int64_t ranks = t->layout->n > 1 ? SHARDS : 1;

	hd_kernel_memory_guard(1);
	if (open_device(ini, ranks, place, &b, &err) < 0 && !b.planned)
		outcome_refused(j, &err, o);
	else if (err.code && place == ON_CPU && !computes_on_cpu(j))
		outcome_set(o, JUDGED_WRONG,
			    "it has no kernels for the cpu, so it cannot be used for training there: %s", err.text);
	else if (err.code)
		outcome_set(o, JUDGED_SKIPPED, "refused: %s", err.text);
	else if (place != ON_REF && open_device(ini, ranks, ON_REF, &exact, &none) < 0)
		close_device(&exact);
	if (o->verdict == JUDGED_OK) {
		hd_output_keep(&output);
		try_nodes(j, &b, &exact, place, &output, o);
		hd_output_return(&output);
	}
	if (o->verdict == JUDGED_OK)
		judge_prepared_memory(&b, o);
	hd_kernel_memory_guard(0);
	close_device(&exact);
	close_device(&b);
	free(ini);
}

/* Adds the checks of a rank that holds the second half of what another plugin shards. */
static void add_shards(struct judge *j, int family)
{
	for (int k = 0; j->plugin->kernels && k < (int)j->nothers; k++) {
		struct judge_piece pieces[] = { { .other = -1, .size = j->axes ? 1 : 0 },
						{ .other = k, .size = SHARDS } };
		struct layout *l = layout_of(family, 2, pieces);

		l->layers = 1;
		judge_add(j, kernels, l, -2 - ON_CPU, "ops keep to their operands, %s on cpu, second shard of %s",
			  family_name(j, family), j->others[k]->name);
	}
}

void kernels_add(struct judge *j)
{
	for (int f = families_first(j); f < families_end(j); f++)
		for (int place = 0; place < PLACES; place++) {
			struct layout *l = layout_alone(f, j->axes ? 1 : 0);

			l->layers = 1;
			l->odd = 1;
			judge_add(j, kernels, l, -2 - place, "ops keep to their operands, %s on %s", family_name(j, f),
				  places[place]);
		}
	for (int f = families_first(j); f < families_end(j); f++)
		add_shards(j, f);
}
