/* SPDX-License-Identifier: Apache-2.0
 * Times each launch on a device with its own memory, under the conditions of a step.
 *
 * A launch that is repeated at once finds its operands in a cache, and one that is waited for leaves the device idle.
 * So all launches run in the order of a step, several times before they are timed and while they are. A mark before
 * each launch reads the device's clock. That takes time, too, which is found by running the same launches without
 * marks.
 */
#include <config.h>
#include "engine/bench/bench.h"
#include "engine/run/commands.h"
#include <stdlib.h>

enum { PASSES = 5, MOST_IN_A_ROW = 16 };
#define WARM 0.3         /* seconds of warm-up passes: clocks have risen by then; power limits take effect later */
#define LONG_ENOUGH 0.05 /* seconds of passes after which the wait at the end is negligible */

struct timing {
	struct hd_program *g;
	struct hd_run *run;
	size_t n, *from;           /* launch i consists of commands from[i] to from[i + 1] - 1 */
	size_t *first;             /* the first launch of each recording; after the last: n */
	void **plain, **marked;    /* recordings without and with marks; NULL: its commands are run one by one */
	double (*seconds)[PASSES]; /* per launch */
};

static int wait_for_all(struct timing *t)
{
	return hd_comm_finish(t->g->device, &t->g->why);
}

/* Lists the launches of recordings. All others wait for the host, and are timed by its clock. */
static void list_launches(struct timing *t)
{
	const struct hd_program *g = t->g;
	const struct joined *j = g->joined, *end = j + g->njoined;

	t->from = hd_alloc((g->ncommands + g->nrecordings + 1) * sizeof(*t->from));
	t->first = hd_alloc((g->nrecordings + 1) * sizeof(*t->first));
	for (size_t r = 0; r < g->nrecordings; r++) {
		t->first[r] = t->n;
		for (size_t i = g->recordings[r].from; i < g->recordings[r].to;) {
			while (j < end && j->from < i)
				j++;
			t->from[t->n++] = i;
			i = j < end && j->from == i ? j->to : i + 1;
		}
	}
	t->first[g->nrecordings] = t->n;
}

static size_t end_of(const struct timing *t, size_t r, size_t i)
{
	return i + 1 < t->first[r + 1] ? t->from[i + 1] : t->g->recordings[r].to;
}

/* Enqueues recording r. Marks i + r and i + r + 1 enclose its launch i. */
static int enqueue(struct timing *t, size_t r, int marks)
{
	const struct hd_device_ops *d = t->g->device;

	for (size_t i = t->first[r]; i < t->first[r + 1]; i++) {
		if (marks)
			d->mark((int64_t)(i + r));
		HD_TRY(hd_run_commands(t->g, t->from[i], end_of(t, r, i), t->run, NULL, NULL));
	}
	if (marks)
		d->mark((int64_t)(t->first[r + 1] + r));
	return HD_OK;
}

static int record_launches(struct timing *t, size_t r, int marks, void **kept)
{
	int rc;

	if (t->g->device->record() < 0)
		return HD_OK;
	rc = enqueue(t, r, marks);
	*kept = t->g->device->recorded();
	return rc;
}

static int run_all(struct timing *t, int marks)
{
	void **kept = marks ? t->marked : t->plain;

	for (size_t r = 0; r < t->g->nrecordings; r++)
		HD_TRY(kept[r] ? t->g->device->replay(kept[r]) : enqueue(t, r, marks));
	return HD_OK;
}

/* Runs passes until the device's clocks are up. *seconds: the time of a pass without marks. */
static int warm_up(struct timing *t, double *seconds)
{
	double begin = hd_seconds(), since;
	int passes = 1;

	do {
		since = hd_seconds();
		for (int k = 0; k < passes; k++)
			HD_TRY(run_all(t, 0));
		HD_TRY(wait_for_all(t));
		*seconds = (hd_seconds() - since) / passes;
		while (passes < MOST_IN_A_ROW && passes * *seconds < LONG_ENOUGH)
			passes++;
	} while (hd_seconds() - begin < WARM);
	return HD_OK;
}

static int measure_times(struct timing *t)
{
	for (int k = 0; k < PASSES; k++) {
		HD_TRY(run_all(t, 1));
		HD_TRY(wait_for_all(t));
		for (size_t r = 0; r < t->g->nrecordings; r++)
			for (size_t i = t->first[r]; i < t->first[r + 1]; i++)
				t->seconds[i][k] = t->g->device->between((int64_t)(i + r), (int64_t)(i + r + 1));
	}
	return HD_OK;
}

/* Reports the median time of each launch, less the time of a mark, which is the same for all launches. `all` is the
 * time of a pass without marks. At least a quarter of a launch's time is kept. */
static void report_times(struct timing *t, double all, void (*each)(void *ctx, const struct launch_time *t), void *ctx)
{
	double marked = 0, more;

	for (size_t i = 0; i < t->n; i++) {
		hd_sort(t->seconds[i], PASSES);
		marked += t->seconds[i][PASSES / 2];
	}
	more = (marked - all) / (double)(t->n ? t->n : 1);
	for (size_t r = 0; r < t->g->nrecordings; r++)
		for (size_t i = t->first[r]; i < t->first[r + 1]; i++) {
			double s = t->seconds[i][PASSES / 2];
			struct launch_time x = { .name = t->g->commands[t->from[i]].name, .from = t->from[i] };

			x.to = end_of(t, r, i);
			x.seconds = s - more > s / 4 ? s - more : s / 4;
			for (size_t k = x.from; k < x.to; k++)
				hd_program_work(t->g, k, 0, &x);
			each(ctx, &x);
		}
}

/* Times commands outside recordings: those that the host runs, or that only some steps have. */
static int time_others(struct timing *t, void (*each)(void *ctx, const struct launch_time *t), void *ctx)
{
	const struct recording *r = t->g->recordings, *end = r + t->g->nrecordings;

	for (size_t i = 0; i < t->g->ncommands; i++) {
		struct launch_time x = { .name = t->g->commands[i].name, .from = i, .to = i + 1 };

		if (r < end && r->from == i) {
			i = r++->to - 1;
			continue;
		}
		if (t->g->commands[i].type != CMD_RUN)
			continue;
		HD_TRY(wait_for_all(t));
		x.seconds = hd_seconds();
		HD_TRY(hd_run_commands(t->g, i, i + 1, t->run, NULL, NULL));
		HD_TRY(wait_for_all(t));
		x.seconds = hd_seconds() - x.seconds;
		hd_program_work(t->g, i, 0, &x);
		each(ctx, &x);
	}
	return HD_OK;
}

static int time_all(struct timing *t, void (*each)(void *ctx, const struct launch_time *t), void *ctx)
{
	double all = 0;

	for (size_t r = 0; r < t->g->nrecordings; r++) {
		HD_TRY(record_launches(t, r, 0, &t->plain[r]));
		HD_TRY(record_launches(t, r, 1, &t->marked[r]));
	}
	HD_TRY(warm_up(t, &all));
	HD_TRY(measure_times(t));
	report_times(t, all, each, ctx);
	return time_others(t, each, ctx);
}

int hd_bench_launches(struct hd_program *g, struct hd_run *run, void (*each)(void *ctx, const struct launch_time *t),
		      void *ctx)
{
	struct timing t = { .g = g, .run = run };
	int rc;

	g->device->begin(run);
	list_launches(&t);
	t.plain = hd_alloc((g->nrecordings + 1) * sizeof(*t.plain));
	t.marked = hd_alloc((g->nrecordings + 1) * sizeof(*t.marked));
	t.seconds = hd_alloc((t.n + 1) * sizeof(*t.seconds));
	rc = time_all(&t, each, ctx);
	for (size_t r = 0; r < g->nrecordings; r++) {
		if (t.plain[r])
			g->device->forget(t.plain[r]);
		if (t.marked[r])
			g->device->forget(t.marked[r]);
	}
	free(t.from), free(t.first), free(t.plain), free(t.marked), free(t.seconds);
	return rc;
}
