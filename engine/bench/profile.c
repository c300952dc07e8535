/* SPDX-License-Identifier: Apache-2.0
 * The time of a step by kind of kernel, compared with what the machine could do (Williams, Waterman and Patterson,
 * Roofline, 2009). A launch takes at least its bytes over the memory rate, and its FLOPs over the rate of large matrix
 * products. Launches whose operands are still in a cache can be faster than the first of these.
 */
#include <config.h>
#include "engine/bench/bench.h"
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3 };
#define ARRAY ((int64_t)64 << 20) /* bytes of each array with which the memory rate is measured */

static int longest_first(const void *a, const void *b)
{
	const struct hd_bench_kind *x = a, *y = b;

	return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

static void add(void *ctx, const struct launch_time *t)
{
	struct hd_bench_profile *p = ctx;
	struct hd_bench_kind *k;
	size_t i = 0;

	while (i < p->n && strcmp(p->v[i].name, t->name))
		i++;
	if (i == HD_LEN(p->v))
		return;
	p->n += i == p->n;
	k = &p->v[i];
	k->name = t->name;
	k->seconds += t->seconds;
	k->bytes += t->bytes;
	k->flops += t->flops;
	k->calls++;
	p->seconds += t->seconds;
	if (t->bound > 0)
		k->bound += t->bound;
	else if (p->memory_rate > 0)
		k->bound += larger(t->bytes / p->memory_rate, t->flops / p->matmul_rate);
}

static double middle(double x[STEPS])
{
	for (int i = 1; i < STEPS; i++)
		for (int k = i; k > 0 && x[k] < x[k - 1]; k--) {
			double y = x[k];

			x[k] = x[k - 1];
			x[k - 1] = y;
		}
	return x[STEPS / 2];
}

/* Traces STEPS steps and adds the median time of each command. Every step runs the same commands, each once. */
static int traced(struct hd_program *g, struct hd_run *run, struct hd_bench_ids *ids, int products,
		  struct hd_bench_profile *p)
{
	size_t commands;

	for (int step = 1; step <= STEPS; step++) {
		hd_program_trace(g, step, STEPS);
		run->step = step;
		HD_TRY(hd_program_compute(g, run, hd_bench_fill, ids));
		HD_TRY(hd_program_update(g, run));
	}
	hd_program_trace(g, 0, 0);
	commands = g->ntrace / STEPS;
	for (size_t i = 0; i < commands; i++) {
		struct launch_time t = { .name = g->trace[i].name };
		double seconds[STEPS];

		for (size_t step = 0; step < STEPS; step++) {
			const struct trace_event *e = &g->trace[step * commands + i];

			seconds[step] = e->end - e->begin;
		}
		t.seconds = middle(seconds);
		hd_program_work(g, i, products, &t);
		add(p, &t);
	}
	return HD_OK;
}

int hd_bench_profile_take(struct hd_job *j, struct hd_bench_ids *ids, int products, struct hd_bench_profile *p)
{
	struct hd_program *g = j->program[HD_JOB_TRAIN];
	struct hd_run run = { .seed = 1, .train = 1, .lr = 1e-4, .step = 1, .loss_scale = 1 };

	memset(p, 0, sizeof(*p));
	if (hd_device_in_host(j->device)) {
		hd_comm_barrier();
		p->memory_rate = hd_bench_memory_rate(ARRAY);
		p->matmul_rate = j->device->matmul_rate(hd_job_dtype(j));
		HD_TRY(traced(g, &run, ids, products, p));
	} else {
		HD_TRY(hd_bench_launches(g, &run, add, p));
	}
	qsort(p->v, p->n, sizeof(p->v[0]), longest_first);
	return HD_OK;
}

void hd_bench_profile_print(const struct hd_bench_profile *p, FILE *to)
{
	double bound = 0;

	fprintf(to, "%-18s %10s %6s %6s %10s %9s %9s %8s", "kernel", "ms", "share", "calls", "GFLOP", "GB", "GFLOP/s",
		"GB/s");
	fprintf(to, p->memory_rate > 0 ? " %10s %10s\n" : "\n", "bound ms", "to win ms");
	for (size_t i = 0; i < p->n; i++) {
		const struct hd_bench_kind *k = &p->v[i];

		fprintf(to, "%-18s %10.3f %5.1f%% %6d %10.3f %9.4f %9.1f %8.2f", k->name, 1e3 * k->seconds,
			100 * k->seconds / p->seconds, k->calls, k->flops / 1e9, k->bytes / 1e9,
			k->flops / k->seconds / 1e9, k->bytes / k->seconds / 1e9);
		if (p->memory_rate > 0)
			fprintf(to, " %10.3f %10.3f", 1e3 * k->bound, 1e3 * larger(k->seconds - k->bound, 0));
		fprintf(to, "\n");
		bound += k->bound;
	}
	fprintf(to, "%-18s %10.3f\n", "all", 1e3 * p->seconds);
	if (p->memory_rate > 0)
		fprintf(to, "bound: %.3f ms; memory %.1f GB/s (a = b + s c), large products %.1f GFLOP/s\n",
			1e3 * bound, p->memory_rate / 1e9, p->matmul_rate / 1e9);
}
