/* SPDX-License-Identifier: Apache-2.0
 * Compares the predicted step with the measured one.
 */
#include <config.h>
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "engine/bench/bench.h"
#include "engine/foresight/foresight.h"
#include "engine/foresight/timeline.h"
#include "engine/human/human.h"
#include "engine/predict/here.h"
#include "engine/predict/simulate.h"
#include "engine/predict/work.h"
#include "engine/run/commands.h"
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { COMMUNICATION = HD_WORK_KINDS, STAGES, PARTS };
struct both_times {
	double predicted[PARTS], measured[PARTS], step[2]; /* in seconds; step: predicted, measured */
	size_t best;                                       /* index of the traced step that was measured */
};

static const char *name_of(int part)
{
	return part == COMMUNICATION ? "communication" : part == STAGES ? "waiting for stages" : hd_work_name(part);
}

/* Returns the part of the step that a command belongs to. A trace contains each command once a step. */
static int part_of(const struct hd_program *g, const struct trace_event *e, size_t command)
{
	const struct node *n = g->commands[command].node;

	if (e->kind == HD_TRACE_MESSAGE)
		return STAGES;
	if (e->kind == HD_TRACE_GROUP)
		return COMMUNICATION;
	return n ? hd_work_kind(n) : HD_WORK_ELEMENTWISE;
}

/* Measures the fastest of the traced steps, since the others contain other work of the host. */
static void measure(const struct hd_program *g, struct both_times *p)
{
	size_t steps = g->ncommands ? g->ntrace / g->ncommands : 0, best = 0;
	double least = INFINITY, mine;

	for (size_t k = 0; k < steps; k++) {
		const struct trace_event *e = &g->trace[k * g->ncommands];

		mine = hd_comm_max(e[g->ncommands - 1].end - e[0].begin);
		if (mine < least)
			least = mine, best = k;
	}
	p->step[1] = steps ? least : 0;
	p->best = best;
	for (size_t i = 0; steps && i < g->ncommands; i++) {
		const struct trace_event *e = &g->trace[best * g->ncommands + i];

		p->measured[part_of(g, e, i)] += e->end - e->begin;
	}
}

/* Spreads the time of shared cores over kernels and communication. A rank that leaves its core to another is inside one
 * of these, and a trace counts the time there. */
static void share_cores(struct both_times *p, double busy, double more)
{
	for (int k = 0; k < STAGES && busy > 0; k++)
		p->predicted[k] *= 1 + more / busy;
}

static void predict(const struct hd_prediction *r, struct both_times *p, int64_t *rank)
{
	const struct hd_stage_price *s = r->stages;
	double rest;

	for (int64_t i = 1; i < r->nstages; i++)
		if (r->stages[i].compute > s->compute)
			s = &r->stages[i];
	for (int k = 0; k < HD_WORK_KINDS; k++)
		p->predicted[k] = s->kinds[k];
	p->predicted[COMMUNICATION] = s->exposed;
	rest = fmax(r->step - r->host - r->sharing - s->compute - s->exposed, 0);
	p->predicted[r->nstages > 1 ? STAGES : COMMUNICATION] += rest;
	share_cores(p, s->compute + s->exposed, r->sharing);
	p->step[0] = r->step;
	*rank = s->rank;
}

static int largest(const struct both_times *p)
{
	int most = 0;

	for (int k = 1; k < PARTS; k++)
		if (fabs(p->predicted[k] - p->measured[k]) > fabs(p->predicted[most] - p->measured[most]))
			most = k;
	return most;
}

static void print(const struct both_times *p, const char *machine)
{
	int most = largest(p);

	printf("a step, as predicted by %s and as measured:\n%-20s %12s %12s\n", machine, "", "predicted", "measured");
	for (int k = 0; k < PARTS; k++)
		if (p->predicted[k] > 0 || p->measured[k] > 0)
			printf("%-20s %12s %12s\n", name_of(k), hd_human_seconds(p->predicted[k]).text,
			       hd_human_seconds(p->measured[k]).text);
	printf("%-20s %12s %12s %+.1f%%\n", "step", hd_human_seconds(p->step[0]).text,
	       hd_human_seconds(p->step[1]).text, 100 * (p->step[0] / p->step[1] - 1));
	printf("largest difference: %s, %s\n", name_of(most),
	       hd_human_seconds(fabs(p->predicted[most] - p->measured[most])).text);
}

static json_t *json_of(const struct both_times *p, const char *machine, json_t *timeline)
{
	json_t *rows = json_array();

	for (int k = 0; k <= PARTS; k++)
		json_array_append_new(rows, json_pack("{s:s, s:o, s:o}", "kind", k == PARTS ? "step" : name_of(k),
						      "predicted_seconds",
						      hd_json_number(k == PARTS ? p->step[0] : p->predicted[k]),
						      "measured_seconds",
						      hd_json_number(k == PARTS ? p->step[1] : p->measured[k])));
	return json_pack("{s:s, s:s, s:o, s:o}", "machine", machine, "largest", name_of(largest(p)), "parts", rows,
			 "timeline", timeline);
}

int hd_foresight_check(struct hd_conf *c, struct hd_err *err)
{
	struct hd_section *s = hd_conf_section(c, NULL, "log");
	struct hd_machine m = { .name = "" };
	struct hd_err why = { 0 };

	if (*hd_section_str(s, "machine") && hd_machine_open(hd_section_str(s, "machine"), &m, &why) < 0)
		hd_section_fail(c, s, "machine", err, why.code, "%s", why.text);
	hd_machine_close(&m);
	return err->code;
}

/* Logs a message if the host has moved the cores of a virtual machine since it was measured. A rank's threads then take
 * more or less time than the file predicts. */
static void say_if_moved(const struct hd_job *j, const struct hd_machine *m)
{
	double then = hd_machine_is_host(m) ? m->rates->exchange : 0, now;
	cpu_set_t mine;
	int cores = sched_getaffinity(0, sizeof(mine), &mine) ? 0 : CPU_COUNT(&mine);

	/* Only the threads of one rank exchange cache lines. If a rank has fewer cores than were measured, these may be
	 * nearer to each other. */
	if (!(then > 0) || hd_comm_max(j->threads > 1 ? 0 : 1) > 0 || hd_comm_max(cores < m->rates->cores ? 1 : 0) > 0)
		return;
	now = hd_bench_exchange(j);
	if (j->world.rank == 0 && hd_bench_cores_moved(then, now))
		hd_log(HD_LOG_INFO,
		       "%s: handing a cache line from one core to another took %.0f ns when this was measured, and "
		       "takes %.0f ns now. The host has moved the cores; a rank's threads take %s than predicted",
		       m->name, 1e9 * then, 1e9 * now, now > then ? "longer" : "less long");
}

int hd_foresight(struct hd_job *j, const char *machine, json_t **out, struct hd_err *err)
{
	struct hd_program *g = j->program[HD_JOB_TRAIN];
	struct hd_machine m = { .name = "" };
	struct hd_prediction r = { .want_spans = 1 };
	struct both_times p = { .step = { 0 } };
	json_t *timeline = NULL;
	int64_t rank = 0;

	*out = NULL;
	measure(g, &p);
	if (!(p.step[1] > 0)) /* no step was traced; it is the same on all ranks */
		return HD_OK;
	if (hd_machine_open(machine, &m, err) >= 0 &&
	    hd_simulate(j->plan[HD_JOB_TRAIN], &m, &hd_style_heddle, &r, err) >= 0)
		predict(&r, &p, &rank);
	hd_comm_agree(err);
	for (int k = 0; k < PARTS && !err->code; k++)
		p.measured[k] = hd_comm_max(j->world.rank == rank ? p.measured[k] : 0);
	if (!err->code)
		timeline = hd_timeline_json(j, &r, &g->trace[p.best * g->ncommands], g->ncommands);
	if (!err->code)
		say_if_moved(j, &m);
	if (!err->code && j->world.rank == 0) {
		print(&p, m.name);
		*out = json_of(&p, m.name, timeline);
	}
	hd_prediction_release(&r);
	hd_machine_close(&m);
	return err->code;
}
