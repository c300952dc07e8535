/* SPDX-License-Identifier: Apache-2.0
 * Measures rates of kernels as steps run them: each rank trains small models of its own for a few steps, and times each
 * command. So operands are as cold, and caches, cores and memory as busy, as in a run. A new kernel is measured without
 * being listed anywhere.
 */
#include <config.h>
#include "engine/bench/bench.h"
#include "engine/measure/measure.h"
#include "engine/predict/work.h"
#include "engine/run/autotune.h"
#include "engine/run/commands.h"
#include "engine/train/progress.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_STEPS = 15 };
#define LONG_ENOUGH 0.4 /* seconds of steps are enough, so a large model runs fewer of them */

struct small_model { /* of this rank alone */
	struct hd_conf *conf;
	struct hd_plan *plan;
	struct hd_program *g;
	char *memory;
	const struct hd_device_ops *device;
	int idle;        /* another rank of the host computes instead */
	double *seconds; /* by command; those that run as one have their time at the first */
	size_t *ends;    /* by command: the one after those that run as one with it */
};

/* Fills in ids that depend only on the position in the batch. */
static int fill(void *ctx, const struct hd_program *g, const struct tensor *t, int64_t micro, int32_t *out)
{
	int64_t n = hd_local_count(t), vocab = g->plan->model.vocab;

	(void)ctx;
	for (int64_t i = 0; i < n; i++)
		out[i] = (int32_t)((uint64_t)(i + 1 + micro * n) * 2654435761u % (uint64_t)vocab);
	return HD_OK;
}

static char *ini_of(const struct hd_small_shape *s, int bf16)
{
	return hd_format(
		"[model]\nfamily = %s\nlayers = %d\nembed = %d\nheads = %d\nvocab = %d\n%s[data]\ntrain = none\n"
		"[train]\nseq = %d\nglobal_batch = %d\nmicro_batch = %d\nsteps = 1\nprecision = %s\n",
		s->family, s->layers, s->embed, s->heads, s->vocab, s->more, s->seq, s->batch, s->batch,
		bf16 ? "bf16" : "fp32");
}

static int plan_model(struct hd_job *j, const struct hd_small_shape *s, struct small_model *x, struct hd_err *err)
{
	struct hd_plan_options o = { .ranks = 1, .train = 1, .compute_dtype = j->compute_dtype };
	struct hd_program_options po = { .rank = 0, .device = j->device };
	char *ini = ini_of(s, j->compute_dtype == HD_DTYPE_BF16);
	int rc = hd_conf_parse("machine", ini, NULL, 0, &x->conf, err);

	free(ini);
	HD_TRY(rc);
	o.data_vocab = s->vocab;
	o.gelu = j->device->kernel("einsum_gelu") != NULL;
	o.no_multi_output_kernels = j->device->kernel("gelu_slope") == NULL;
	o.own_memory = !hd_device_in_host(j->device);
	o.separate_loss_gradient = s->separate_loss_gradient;
	HD_TRY(hd_plan_create(x->conf, &o, &x->plan, err));
	return hd_program_build(x->plan, &po, &x->g, err);
}

static int bind_model(struct hd_job *j, struct small_model *x, struct hd_err *err)
{
	struct hd_bind b = { .device = j->device, .threads = j->threads };
	size_t bytes = (size_t)(x->g->memory.persistent + x->g->memory.transient + 8191) / 4096 * 4096;

	x->device = j->device;
	if (!hd_device_in_host(j->device))
		x->memory = j->device->alloc(bytes, err);
	else if ((x->memory = aligned_alloc(4096, bytes)))
		memset(x->memory, 0, bytes);
	if (!x->memory)
		return hd_err_set(err, HD_ENOMEM, "machine: %zu bytes for a small model", bytes);
	b.persistent = x->memory;
	b.transient = x->memory + x->g->memory.persistent;
	b.members = hd_plan_alloc(x->plan, (x->plan->ngroups + 1) * sizeof(*b.members));
	for (size_t i = 0; i < x->plan->ngroups; i++)
		b.members[i] = hd_communicator_create(&j->world.rank, 1, x->plan->groups[i]->name);
	return hd_program_bind(x->g, &b, err);
}

static void close_model(struct small_model *x)
{
	free(x->seconds), free(x->ends);
	hd_program_destroy(x->g);
	hd_plan_destroy(x->plan);
	hd_conf_destroy(x->conf);
	if (x->memory && !hd_device_in_host(x->device))
		x->device->free(x->memory);
	else
		free(x->memory);
}

static int step(struct small_model *x, struct hd_run *run, int traced, int steps)
{
	hd_comm_barrier();
	if (x->idle)
		return HD_OK;
	hd_program_trace(x->g, traced ? (int32_t)run->step : 0, steps);
	run->step++;
	HD_TRY(hd_program_compute(x->g, run, fill, NULL));
	return hd_program_update(x->g, run);
}

static void take_time(void *ctx, const struct launch_time *t)
{
	struct small_model *x = ctx;

	x->seconds[t->from] = t->seconds;
	x->ends[t->from] = t->to;
}

/* Times the launches of a GPU in the order of a step. Waiting for each would take as long as many launches, and let
 * the GPU rest. */
static int time_launches(struct small_model *x, struct hd_run *run)
{
	x->seconds = hd_alloc(x->g->ncommands * sizeof(*x->seconds));
	x->ends = hd_alloc(x->g->ncommands * sizeof(*x->ends));
	return hd_bench_launches(x->g, run, take_time, x);
}

/* Measures by how much longer whole steps of a GPU take than their launches. Keeps the minimum over the small models;
 * larger ones are not steady enough. */
static int time_the_host(struct hd_measuring *m, struct small_model *x, struct hd_run *run, int steps)
{
	double seconds[MOST_STEPS], kernels = 0, more;

	for (int k = 0; k < steps; k++) {
		seconds[k] = hd_seconds();
		HD_TRY(step(x, run, 0, 0));
		seconds[k] = hd_seconds() - seconds[k];
	}
	hd_sort(seconds, (size_t)steps);
	for (size_t i = 0; i < x->g->ncommands; i++)
		kernels += x->seconds[i];
	more = fmax(seconds[steps / 2] - kernels, 0);
	m->rates->step = m->rates->step < 0 ? more : fmin(m->rates->step, more);
	return HD_OK;
}

static int work_of(const struct hd_program *g, const struct command *c, struct hd_work *w)
{
	if (c->node->is->role != OP_ROLE_ACCUMULATE)
		return hd_work_of(g, c->node, w);
	hd_work_added(c->launch->in[0], w);
	return 1;
}

struct stretch { /* the steps of a long run that begin between from and to, in seconds since its start */
	double from, to, sum;
	int n;
};

/* Returns the share of products in the time of all launches. */
static double share_of_products(const struct small_model *x)
{
	double products = 0, all = 0;
	struct hd_work w;

	for (size_t i = 0; i < x->g->ncommands; i++) {
		const struct command *c = &x->g->commands[i];

		all += x->seconds[i];
		if (c->node && work_of(x->g, c, &w) && w.flops > 0)
			products += x->seconds[i];
	}
	return all > 0 ? products / all : 0;
}

/* Measures how fast products are after some seconds. A GPU computes as fast as it can for most of a second. Then it has
 * taken more power than it may, and its clock falls, rises and falls again. Rates are those of the first second, and
 * later steps take longer because their products do. */
static int time_limits(struct hd_measuring *m, struct small_model *x, struct hd_run *run)
{
	struct stretch s[] = { { .from = 0.1, .to = 0.5 }, { .from = 1.5, .to = 4 } };
	const struct timespec rest = { .tv_sec = 1 };
	double products = share_of_products(x), more = 0, begin, at = 0;

	nanosleep(&rest, NULL);
	hd_comm_barrier();
	begin = hd_seconds();
	while (at < s[1].to) {
		double before = at;

		HD_TRY(step(x, run, 0, 0));
		at = hd_comm_max(hd_seconds() - begin); /* so all ranks run the same number of steps */
		for (int k = 0; k < 2; k++)
			if (before >= s[k].from && before < s[k].to)
				s[k].sum += at - before, s[k].n++;
	}
	if (s[0].n && s[1].n && products > 0)
		more = (s[1].sum / s[1].n / (s[0].sum / s[0].n) - 1) / products;
	m->sustained = 1 / (1 + fmax(more, 0));
	return HD_OK;
}

/* Runs steps of a small model and times their commands. Returns the number of traced steps. */
static int run_model(struct hd_measuring *m, struct small_model *x, const struct hd_small_shape *s, struct hd_err *err)
{
	struct hd_run run = { .seed = 1, .train = 1, .lr = 1e-4, .step = 1 };
	double seconds = 0;
	int steps = 0, rc = HD_OK;

	run.loss_scale = 1.0 / (double)(x->plan->batch * x->plan->micros * x->plan->model.seq);
	hd_init_weights(x->g, 1, NULL);
	/* The first allocates memory and generates code. */
	for (int k = 0; k < 2 && seconds < LONG_ENOUGH && rc >= 0; k++) {
		seconds = hd_seconds();
		rc = step(x, &run, 0, 0);
		seconds = hd_comm_max(hd_seconds() - seconds);
	}
	while (steps < MOST_STEPS && (steps < 3 || steps * seconds < LONG_ENOUGH))
		steps++;
	if (!hd_device_in_host(x->device) && rc >= 0)
		rc = time_launches(x, &run);
	else
		for (int k = 0; k < steps && rc >= 0; k++)
			rc = step(x, &run, 1, steps);
	if (x->seconds && s->embed <= 64 && rc >= 0)
		rc = time_the_host(m, x, &run, steps);
	if (x->seconds && !m->launches && hd_small_is_hot(m, s) && m->j->compute_dtype == HD_DTYPE_BF16 && rc >= 0)
		rc = time_limits(m, x, &run);
	if (rc < 0)
		return hd_err_set(err, rc, "machine: a step of a small model failed: %s", x->g->why.text);
	return steps;
}

/* Returns the time of commands from .. to - 1 together: the median over the steps. */
static double median(const struct hd_program *g, size_t from, size_t to, int steps)
{
	size_t each = g->ntrace / (size_t)steps;
	double sums[MOST_STEPS] = { 0 };

	for (int k = 0; k < steps; k++)
		for (size_t i = from; i < to; i++) {
			const struct trace_event *e = &g->trace[(size_t)k * each + i];

			sums[k] += e->end - e->begin;
		}
	hd_sort(sums, (size_t)steps);
	return sums[steps / 2];
}

/* Records a launch by a rank alone, or compares it with the same launch by the team. The rates only give the ratio of
 * the two, since the machine may have become faster or slower after they were measured. */
static void take_launch(struct hd_measuring *m, const struct hd_work *w, const char *name, double seconds)
{
	struct hd_launches *x = m->launches;
	double alone = hd_work_seconds(m->rates, w, name, m->rates->threads);
	double team = hd_work_seconds(m->rates, w, name, x->team);

	if (!x->by_team) {
		x->alone = hd_grow(x->alone, x->n, &x->cap, sizeof(*x->alone));
		x->alone[x->n++] = seconds;
	} else if (x->at < x->n && alone > 0) {
		hd_launch_fit_add(&x->fit, x->alone[x->at] * team / alone, seconds);
	}
	x->at++;
}

static double amount(const struct hd_work *w)
{
	return w->flops > 0 ? w->flops : w->bytes;
}

static void take(struct hd_measuring *m, const struct hd_work *w, const char *name, double seconds)
{
	double threads = (double)m->rates->threads, work = amount(w);
	struct hd_rate_point x = { .rate = work / seconds / threads };
	int type = w->bf16 ? HD_RATE_BF16 : HD_RATE_FP32;

	if (m->launches) {
		take_launch(m, w, name, seconds);
		return;
	}
	if (!(work > 0) || !(seconds > 0))
		return;
	if (w->product >= 0) {
		x.rows = w->rows;
		x.columns = w->columns;
		x.summed = w->summed;
		x.at = w->flops;
		hd_rates_add(&m->rates->products[w->product][type], x);
	} else {
		x.at = w->flops > 0 ? w->flops / w->bytes : w->bytes;
		hd_rates_add(&hd_rates_kernel(m->rates, name)->of[type], x);
	}
}

/* Returns the end of the commands that are one kernel with command i. Consecutive launches of a node are one kernel,
 * unless they ran as one with others. Launches that accumulate are separate kernels. */
static size_t end_of_kernel(const struct small_model *x, size_t i)
{
	const struct command *c = x->g->commands;
	size_t to = i + 1;

	while (c[i].node && c[i].node->is->role != OP_ROLE_ACCUMULATE && to < x->g->ncommands &&
	       c[to].node == c[i].node && (!x->ends || x->ends[to] == to + 1))
		to++;
	return to;
}

static void take_traced(struct hd_measuring *m, const struct small_model *x, int steps)
{
	const struct hd_program *g = x->g;

	for (size_t i = 0, to; i < g->ntrace / (size_t)steps; i = to) {
		const struct node *n = g->commands[i].node;
		struct hd_work w;

		to = end_of_kernel(x, i);
		if (g->commands[i].type == CMD_RUN && n && work_of(g, &g->commands[i], &w))
			take(m, &w, n->v.op->name, median(g, i, to, steps));
	}
}

/* Adds the rate of a node. Norms, sums, additions and updates also give a rate of memory, since they read and write all
 * of their operands once. */
static void take_node(struct hd_measuring *m, const struct node *n, const struct hd_work *w, double seconds)
{
	int role = n->is->role;

	take(m, w, n->v.op->name, seconds);
	if (seconds > 0 &&
	    (role == OP_ROLE_NORM || role == OP_ROLE_SUM || role == OP_ROLE_ADD || role == OP_ROLE_UPDATE))
		hd_rates_add(m->memory, (struct hd_rate_point){ .at = w->bytes, .rate = w->bytes / seconds });
}

/* Divides the time of commands that ran as one by their shares of the work. So a plan, which knows each of them alone,
 * has the rate of all. */
static void take_joined(struct hd_measuring *m, const struct small_model *x, size_t from, size_t to)
{
	const struct command *c = x->g->commands;
	struct hd_work w;
	double all = 0;

	for (size_t i = from; i < to; i++)
		if (c[i].node && work_of(x->g, &c[i], &w))
			all += amount(&w);
	for (size_t i = from; i < to && all > 0; i++)
		if (c[i].node && work_of(x->g, &c[i], &w))
			take_node(m, c[i].node, &w, x->seconds[from] * amount(&w) / all);
}

static void take_timed(struct hd_measuring *m, const struct small_model *x)
{
	const struct command *c = x->g->commands;

	for (size_t i = 0, to; i < x->g->ncommands; i = to) {
		double seconds = 0;
		struct hd_work w;

		to = i + 1;
		if (!c[i].node || !x->ends[i])
			continue;
		if (x->ends[i] > to) {
			to = x->ends[i];
			take_joined(m, x, i, to);
			continue;
		}
		to = end_of_kernel(x, i);
		for (size_t k = i; k < to; k++)
			seconds += x->seconds[k];
		if (work_of(x->g, &c[i], &w))
			take_node(m, c[i].node, &w, seconds);
	}
}

/* Returns the bytes that this process uses now in addition to the plan. The memory for timing products has been given
 * back. Only the first models are asked, since code that was generated for products stays. */
static double besides(const struct hd_measuring *m, const struct small_model *x)
{
	const struct hd_device_ops *d = m->j->device;
	int64_t left = 0, used = hd_device_in_host(d) ? hd_private_bytes() : d->memory(&left) - left;

	return (double)(used - x->g->memory.persistent - x->g->memory.transient - (d->scratch ? d->scratch() : 0));
}

/* Returns whether the model fits on the devices of all ranks. If it does not, all ranks skip it. */
static int fits(struct hd_measuring *m, const struct small_model *x)
{
	int64_t left = 0;

	if (hd_device_in_host(m->j->device))
		return 1;
	m->j->device->memory(&left);
	return hd_comm_max((double)(x->g->memory.persistent + x->g->memory.transient) > .9 * (double)left) <= 0;
}

static int measure(struct hd_measuring *m, const struct hd_small_shape *s, struct hd_err *err)
{
	struct small_model x = { .idle = m->launches && m->launches->by_team && m->j->world.local_rank };
	int steps = 0;

	plan_model(m->j, s, &x, err);
	if (hd_comm_agree(err) >= 0 && !fits(m, &x)) {
		close_model(&x);
		return HD_OK;
	}
	if (!err->code)
		bind_model(m->j, &x, err);
	if (hd_comm_agree(err) >= 0)
		hd_autotune(m->j, NULL, err);
	if (hd_comm_agree(err) >= 0)
		steps = run_model(m, &x, s, err);
	if (hd_comm_agree(err) >= 0 && !x.idle)
		x.seconds ? take_timed(m, &x) : take_traced(m, &x, steps);
	if (!err->code && !m->launches && s->embed <= 64)
		m->process_memory = fmax(m->process_memory, hd_comm_max(besides(m, &x)));
	free(m->j->tuned);
	m->j->tuned = NULL;
	close_model(&x);
	return err->code;
}

int hd_measure_small(struct hd_measuring *m, struct hd_err *err)
{
	static const struct hd_small_shape models[] = { { "gpt2", 8, 256, 8, 128, 1, 512, "" },
							{ "gpt2", 4, 256, 8, 128, 8, 512, "" } };

	for (int i = 0; i < 2 * (int)HD_LEN(models); i++) {
		m->j->compute_dtype = i % 2 ? HD_DTYPE_BF16 : 0;
		HD_TRY(measure(m, &models[i / 2], err));
	}
	return HD_OK;
}

int hd_measure_programs(struct hd_measuring *m, struct hd_err *err)
{
	int n = hd_small_count(m);

	for (int i = 0; i < n; i++)
		for (int bf16 = !hd_small_in_fp32(m, hd_small_model(m, i)); bf16 < 2; bf16++) {
			if (hd_comm_max(hd_seconds() > m->until) > 0) {
				hd_log(HD_LOG_WARN,
				       "%d of %d sizes are not measured: this machine is too slow for them", n - i, n);
				return HD_OK;
			}
			m->j->compute_dtype = bf16 ? HD_DTYPE_BF16 : 0;
			HD_TRY(measure(m, hd_small_model(m, i), err));
		}
	return HD_OK;
}
