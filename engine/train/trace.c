/* SPDX-License-Identifier: Apache-2.0
 * Writes the trace. Events are kept in memory while the traced steps run. Then rank 0 writes them in the format
 * of Chrome's trace viewer. Each rank is a process with three rows. They are units (F3 B2 W1, with the micro-batch; G
 * S U, once a step), kernels, and the rank's communication calls. Movements in flight are shown as asynchronous
 * events.
 */
#include <config.h>
#include "engine/train/train_impl.h"
#include "engine/foresight/foresight.h"
#include "engine/run/run.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- one event --------------------------------------------------------------------------------------------------- */
enum { UNITS, KERNELS, COMMUNICATION, ROWS };
struct out {
	FILE *f;
	int rank, first, id;
	double zero;
	const int *part_of; /* hd_plan_part_of */
};

static void begin(struct out *o, const char *name, const char *phase, int row, double at)
{
	fprintf(o->f, "%s{\"name\":\"", o->first ? "" : ",\n");
	for (; *name; name++)
		fputc(*name == '"' || *name == '\\' || (unsigned char)*name < ' ' ? '_' : *name, o->f);
	fprintf(o->f, "\",\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f", phase, o->rank, row, 1e6 * (at - o->zero));
	o->first = 0;
}

static void bar(struct out *o, const char *name, int row, const struct trace_event *from, const struct trace_event *to)
{
	begin(o, name, "X", row, from->begin);
	fprintf(o->f, ",\"dur\":%.3f", 1e6 * (to->end - from->begin));
}

/* Writes a movement in flight, from its start to its end. Movements overlap, so they are asynchronous events. */
static void movement(struct out *o, const struct trace_event *e)
{
	for (int end = 0; end < 2; end++) {
		begin(o, e->what, end ? "e" : "b", COMMUNICATION, end ? e->to : e->from);
		fprintf(o->f, ",\"cat\":\"movement\",\"id\":\"%d.%d\"}", o->rank, o->id);
	}
	o->id++;
}

static void single(struct out *o, const struct trace_event *e)
{
	bar(o, e->name, e->kind == HD_TRACE_KERNEL ? KERNELS : COMMUNICATION, e, e);
	if (e->what) {
		fprintf(o->f, ",\"args\":{\"what\":\"");
		for (const char *s = e->what; *s; s++)
			fputc(*s == '"' || *s == '\\' ? '_' : *s, o->f);
		fprintf(o->f, "\"}");
	}
	fputc('}', o->f);
	if (e->what && e->to > e->from && e->from > 0)
		movement(o, e);
}

/* -- units ------------------------------------------------------------------------------------------------------- */
static char unit_letter(uint32_t kind)
{
	return kind == HD_UNIT_F   ? 'F'
	       : kind == HD_UNIT_B ? 'B'
	       : kind == HD_UNIT_W ? 'W'
	       : kind == HD_UNIT_G ? 'G'
	       : kind == HD_UNIT_S ? 'S'
				   : 'U';
}

static int is_unit(const struct trace_event *e)
{
	return e->unit.micro >= 0;
}

static int same_unit(const struct trace_event *a, const struct trace_event *b)
{
	return !memcmp(&a->unit, &b->unit, sizeof(a->unit)) && a->step == b->step;
}

/* Returns the time of all pieces of the unit that begins with e, without waiting for other stages. If two micro-batches
 * are computed by turns, pieces of the other come in between. */
static double busy_time(const struct hd_program *g, const struct trace_event *e)
{
	double busy = 0;

	for (const struct trace_event *k = e; k < g->trace + g->ntrace && k->step == e->step; k++) {
		if (same_unit(e, k) && k->kind != HD_TRACE_MESSAGE)
			busy += k->end - k->begin;
		if (is_unit(k) && !same_unit(e, k) && k->unit.micro % 2 == e->unit.micro % 2)
			break;
	}
	return busy;
}

/* Writes a bar of a unit, F3, or F3.1 for chunk 1, as heddle explain --schedule draws it. The first of a unit's bars has
 * the busy time of all. part: the chunk's position in the model. */
static void unit_bar(struct out *o, const struct hd_program *g, const struct trace_event *e,
		     const struct trace_event *last, int first)
{
	char name[48];

	if (g->plan->chunks > 1)
		snprintf(name, sizeof(name), "%c%d.%d", unit_letter(e->unit.kind), e->unit.micro, e->unit.chunk);
	else
		snprintf(name, sizeof(name), "%c%d", unit_letter(e->unit.kind), e->unit.micro);
	bar(o, name, UNITS, e, last);
	fprintf(o->f, ",\"args\":{\"kind\":\"%c\",\"micro\":%d,\"chunk\":%d,\"stage\":%lld,\"part\":%d",
		unit_letter(e->unit.kind), e->unit.micro, e->unit.chunk, (long long)g->coord,
		o->part_of[g->coord * g->plan->chunks + e->unit.chunk]);
	fprintf(o->f, ",\"step\":%d", e->step);
	if (first)
		fprintf(o->f, ",\"busy\":%.3f", 1e6 * busy_time(g, e));
	fprintf(o->f, "}}");
}

/* Returns a unit's last event. Work done once a step may interrupt the unit:
 * that has a bar of its own within the unit's bar. */
static size_t unit_end(const struct hd_program *g, size_t i)
{
	size_t last = i;

	for (size_t k = i + 1; k < g->ntrace; k++) {
		if (is_unit(&g->trace[i]) && !is_unit(&g->trace[k]) && g->trace[k].step == g->trace[i].step)
			continue;
		if (!same_unit(&g->trace[i], &g->trace[k]))
			break;
		last = k;
	}
	return last;
}

static void units(struct out *o, const struct hd_program *g)
{
	const struct trace_event *t = g->trace, *open = NULL, *last[2] = { NULL, NULL }; /* last: by turn */

	for (size_t i = 0; i < g->ntrace; i++) {
		char name[2] = { unit_letter(t[i].unit.kind), 0 };

		if (is_unit(&t[i])) {
			const struct trace_event **turn = &last[t[i].unit.micro % 2];

			if (!open || !same_unit(open, &t[i]))
				unit_bar(o, g, &t[i], &t[unit_end(g, i)], !*turn || !same_unit(*turn, &t[i]));
			open = *turn = &t[i];
		} else if (!i || !same_unit(&t[i - 1], &t[i])) {
			bar(o, name, UNITS, &t[i], &t[unit_end(g, i)]);
			fprintf(o->f, ",\"args\":{\"step\":%d}}", t[i].step);
		}
	}
}

static void names(struct out *o)
{
	static const char *const rows[] = { "units", "kernels", "communication" };

	for (int i = 0; i < ROWS; i++) {
		begin(o, "thread_name", "M", i, o->zero);
		fprintf(o->f, ",\"args\":{\"name\":\"%s\"}}", rows[i]);
	}
	begin(o, "process_name", "M", 0, o->zero);
	fprintf(o->f, ",\"args\":{\"name\":\"rank %d\"}}", o->rank);
	begin(o, "process_sort_index", "M", 0, o->zero);
	fprintf(o->f, ",\"args\":{\"sort_index\":%d}}", o->rank);
}

/* Returns a common time 0 for all ranks. On one host, that is rank 0's start; else it is found through a barrier. */
static double common_zero(const struct hd_job *j)
{
	double at[2];

	hd_comm_barrier();
	at[0] = hd_seconds();
	at[1] = j->started;
	if (j->world.hosts == 1) {
		hd_comm_bcast(&at[1], sizeof(at[1]), 0);
		return at[1];
	}
	at[1] = at[0] - at[1]; /* time from rank 0's start to the barrier */
	hd_comm_bcast(&at[1], sizeof(at[1]), 0);
	return at[0] - at[1];
}

/* Checks the file before the first step, so that a run does not fail after its last one. */
int hd_trace_check(struct hd_log_config *log, int rank, int64_t first, int64_t last, struct hd_err *err)
{
	const char *path = log->trace;
	FILE *f;

	if ((*path || *log->machine) && (log->trace_from > last || log->trace_to < first)) {
		hd_log(HD_LOG_WARN, "%s: no step is traced; log.trace_steps is %s, but this run has steps %lld to %lld",
		       *path ? path : "log.machine", hd_section_str(log->section, "trace_steps"), (long long)first,
		       (long long)last);
		log->trace = log->machine = "";
		return HD_OK;
	}
	if (!*path || rank)
		return HD_OK;
	f = fopen(path, "ae");
	if (!f)
		return hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	fclose(f);
	return HD_OK;
}

static int write_all(const char *path, char *const *all, int ranks)
{
	FILE *f = fopen(path, "we");
	int failed;

	if (!f)
		return -1;
	fprintf(f, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
	for (int r = 0; r < ranks; r++)
		fprintf(f, "%s%s", all[r], r + 1 < ranks ? ",\n" : "\n");
	failed = fprintf(f, "]}\n") < 0 || fflush(f) || ferror(f);
	return fclose(f) || failed ? -1 : 0;
}

static int write_trace(struct hd_job *j, struct hd_program *g, struct hd_err *err)
{
	const char *path = j->log.trace;
	char *text = NULL, **all;
	int *part_of;
	size_t bytes = 0;
	struct out o;

	if (!*path)
		return HD_OK;
	o = (struct out){
		.f = open_memstream(&text, &bytes), .rank = j->world.rank, .first = 1, .zero = common_zero(j)
	};
	o.part_of = part_of = hd_plan_part_of(g->plan);
	names(&o);
	units(&o, g);
	for (size_t i = 0; i < g->ntrace; i++)
		single(&o, &g->trace[i]);
	fclose(o.f), free(part_of);
	all = hd_comm_gather_text(text);
	free(text);
	if (!all)
		return hd_comm_agree(err);
	if (write_all(path, all, j->world.size) < 0)
		hd_err_set(err, HD_EIO, "log.trace: %s: %s", path, strerror(errno));
	for (int r = 0; r < j->world.size; r++)
		free(all[r]);
	free(all);
	return hd_comm_agree(err);
}

/* -- of a run -------------------------------------------------------------------------------------------------------- */
/* Shows what log.machine predicts for a step next to what was traced. */
static int foresee(struct train_loop *l)
{
	json_t *o = NULL;

	if (!*l->j->log.machine)
		return HD_OK;
	hd_show_line(&l->show);
	HD_TRY(hd_foresight(l->j, l->j->log.machine, &o, l->err));
	if (o)
		hd_train_emit(l, json_pack("{s:I, s:o}", "step", (json_int_t)l->at.step, "foresight", o));
	return HD_OK;
}

static int is_traced(const struct train_loop *l)
{
	return !l->traced && (*l->j->log.trace || *l->j->log.machine);
}

static int64_t last_traced(const struct train_loop *l)
{
	return l->j->log.trace_to < l->steps ? l->j->log.trace_to : l->steps;
}

/* If the trace cannot be written, the run goes on, and ends with the error. */
static void end_trace(struct train_loop *l)
{
	l->traced = 1;
	hd_program_trace(l->g, 0, 0);
	if (foresee(l) >= 0 && write_trace(l->j, l->g, l->err) >= 0)
		return;
	hd_log(HD_LOG_WARN, "%s; the run goes on", l->err->text);
	l->trace_error = *l->err;
	*l->err = (struct hd_err){ 0 };
}

void hd_trace_begin(struct train_loop *l)
{
	int64_t from = l->j->log.trace_from, to = last_traced(l), step = l->at.step + 1;

	if (is_traced(l))
		hd_program_trace(l->g, step >= from ? (int32_t)step : 0, to - from + 1);
}

void hd_trace_end(struct train_loop *l)
{
	if (is_traced(l) && l->at.step == last_traced(l))
		end_trace(l);
}

void hd_trace_cut(struct train_loop *l)
{
	const struct hd_log_config *log = &l->j->log;

	if (!is_traced(l) || l->at.step < log->trace_from || l->at.step == l->first)
		return;
	hd_log(HD_LOG_INFO, "%s ends with step %lld: the next one has another batch size",
	       *log->trace ? "log.trace" : "log.machine", (long long)l->at.step);
	end_trace(l);
}
