/* SPDX-License-Identifier: Apache-2.0
 * heddle bench: times steps on synthetic tokens, with their cost in matrix products, communication and memory.
 */
#include <config.h>
#include "engine/bench/bench.h"
#include "engine/cli/verbs.h"
#include "engine/command/command.h"
#include "engine/generate/generate.h"
#include "engine/train/metrics.h"
#include "engine/train/progress.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench_state {
	struct hd_bench_step steps[1000], middle;
	double products[1000], products_median, fastest;
	double *bytes; /* per group: bytes that this rank sends in a step */
	double sent;   /* bytes that this rank sends in a step along all axes, as the transports have counted them */
	double peak, own_peak; /* peak bytes, taken before bounds are measured, which needs memory too */
	/* bound: least seconds of the matrix products, with operands as they are and in any layout; or 0 */
	double startup, bound[2];
	int n, with_products;
	struct hd_bench_ids *ids;
};

/* Returns the times of a step that took `seconds`, with the communication since `before`. Collective. */
static struct hd_bench_step step_of(double seconds, const struct hd_comm_stats *before)
{
	struct hd_comm_stats now = hd_comm_stats_take(0);
	struct hd_bench_step s = { .seconds = hd_comm_max(seconds),
				   .exposed = hd_comm_max(now.exposed - before->exposed) };

	s.hidden = hd_comm_max(now.busy - before->busy) - s.exposed;
	s.hidden = s.hidden > 0 ? s.hidden : 0;
	return s;
}

static int measure(struct hd_job *j, struct bench_state *b)
{
	struct hd_program *g = j->program[HD_JOB_TRAIN];
	const struct hd_plan *p = g->plan;
	struct hd_run run = {
		.seed = 1, .train = 1, .lr = 1e-4, .loss_scale = 1.0 / (double)(p->batch * p->micros * p->model.seq)
	};

	hd_init_weights(g, j->train.seed, NULL);
	for (int k = -2; k < b->n; k++) { /* two steps to warm up */
		struct hd_comm_stats before;
		double t;

		if (k == 0)
			hd_comm_stats_take(1);
		hd_comm_barrier();
		before = hd_comm_stats_take(0);
		t = hd_seconds();
		if (k == -2)
			b->startup = t - j->started;
		run.step = k + 3;
		HD_TRY(hd_program_compute(g, &run, hd_bench_fill, b->ids));
		HD_TRY(hd_program_update(g, &run));
		t = hd_seconds() - t;
		if (k >= 0)
			b->steps[k] = step_of(t, &before);
		if (k >= 0 && b->with_products) { /* between the steps, because the machine's speed drifts */
			hd_comm_barrier();
			b->products[k] = hd_comm_max(hd_program_products(g, &run));
		}
	}
	for (size_t i = 0; i < p->ngroups; i++)
		b->bytes[i] = (double)hd_communicator_bytes(g->members[i]) / b->n;
	b->sent = (double)hd_comm_stats_take(1).bytes / b->n;
	b->peak = (double)hd_peak_bytes();
	b->own_peak = (double)hd_own_peak_bytes();
	b->middle = hd_bench_middle(b->steps, b->n);
	b->fastest = b->steps[0].seconds; /* the steps are sorted now */
	b->products_median = hd_median(b->products, (size_t)b->n);
	hd_comm_barrier();
	/* the rate of this run, not the cached one */
	j->rate = hd_comm_sum(j->device->matmul_rate(hd_job_dtype(j))) / j->world.size;
	return HD_OK;
}

/* Returns the bytes sent per step along each axis, or several axes together, as the maximum over ranks. The transports
 * have counted them. Several groups may have the same name. */
static json_t *bytes_by_axis(struct hd_job *j, const struct bench_state *b)
{
	const struct hd_plan *p = j->plan[HD_JOB_TRAIN];
	json_t *o = json_object();

	for (size_t i = 0; i < p->ngroups; i++) {
		double sum = 0;

		for (size_t k = 0; k < p->ngroups; k++)
			sum += strcmp(p->groups[k]->name, p->groups[i]->name) ? 0 : b->bytes[k];
		json_object_set_new(o, p->groups[i]->name, json_integer((json_int_t)hd_comm_max(sum)));
	}
	return o;
}

/* Measures a profile on all ranks, and prints it on rank 0. */
static int profile(struct hd_job *j, struct hd_bench_ids *ids, int products, FILE *to)
{
	struct hd_bench_profile p;

	HD_TRY(hd_bench_profile_take(j, ids, products, &p));
	if (j->world.rank == 0)
		hd_bench_profile_print(&p, to);
	return HD_OK;
}

static double bubble(const struct hd_plan *p)
{
	return hd_plan_bubble(p);
}

static void add_bounds(json_t *o, const struct bench_state *b, double tokens)
{
	if (!(b->bound[0] > 0))
		return;
	json_object_set_new(o, "bound_seconds", hd_json_number(b->bound[0]));
	json_object_set_new(o, "bound_tokens_per_second", hd_json_number(tokens / b->bound[0]));
	json_object_set_new(o, "bound_share", hd_json_number(b->bound[0] / b->middle.seconds));
	json_object_set_new(o, "bound_any_layout_tokens_per_second", hd_json_number(tokens / b->bound[1]));
	json_object_set_new(o, "bound_any_layout_share", hd_json_number(b->bound[1] / b->middle.seconds));
}

static void print(struct hd_job *j, const struct bench_state *b, int json)
{
	const struct hd_plan *p = j->plan[HD_JOB_TRAIN];
	double tokens = (double)(p->batch * p->micros * p->model.seq),
	       flops = j->flops_per_token * tokens / b->middle.seconds;
	double share = flops / (j->rate * j->world.size), peak = hd_comm_max(b->peak), own = hd_comm_max(b->own_peak);
	double planned = hd_comm_max((double)(j->arena_bytes + j->scratch_bytes)), startup = hd_comm_max(b->startup);
	double scratch = hd_comm_max((double)((j->device->scratch ? j->device->scratch() : 0) +
					      hd_program_plugin_bytes(j->program[HD_JOB_TRAIN])));
	double counted = hd_comm_max(b->sent), exchange = json ? hd_bench_exchange(j) : 0;
	json_t *bytes = bytes_by_axis(j, b), *o;
	char *line;

	o = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:I}", "tokens_per_second",
		      hd_json_number(tokens / b->middle.seconds), "step_seconds", hd_json_number(b->middle.seconds),
		      "flops_per_second", hd_json_number(flops), "matmul_share", hd_json_number(share),
		      "comm_hidden_seconds", hd_json_number(b->middle.hidden), "comm_exposed_seconds",
		      hd_json_number(b->middle.exposed), "bytes", bytes, "bubble", hd_json_number(bubble(p)),
		      "planned_peak_bytes", (json_int_t)planned, "measured_peak_bytes", (json_int_t)peak,
		      "startup_seconds", hd_json_number(startup), "ranks", (json_int_t)j->world.size);
	json_object_set_new(o, "precision", json_string(j->compute_dtype ? "bf16" : "fp32"));
	json_object_set_new(o, "matmul_rate", hd_json_number(j->rate));
	json_object_set_new(o, "measured_own_peak_bytes", json_integer((json_int_t)own));
	json_object_set_new(o, "kernel_scratch_bytes", json_integer((json_int_t)scratch));
	json_object_set_new(o, "bytes_counted", json_integer((json_int_t)counted));
	json_object_set_new(o, "fastest_step_seconds", hd_json_number(b->fastest));
	if (exchange > 0)
		json_object_set_new(o, "exchange_seconds", hd_json_number(exchange));
	if (b->with_products)
		json_object_set_new(o, "products_share", hd_json_number(b->products_median / b->middle.seconds));
	add_bounds(o, b, tokens);
	line = hd_json_line(o);
	if (j->world.rank == 0 && json)
		puts(line);
	if (j->world.rank == 0 && !json) {
		hd_show_model(j);
		printf("%s: %.0f tokens/s, %.4f s a step (median of %d), %.1f GFLOP/s of all ranks = %.0f%% of the matmul rate\n"
		       "communication: %.4f s exposed, %.4f s hidden; memory: planned %.1f MB, high-water mark %.1f MB; "
		       "ready after %.2f s\n",
		       j->compute_dtype ? "bf16" : "fp32", tokens / b->middle.seconds, b->middle.seconds, b->n,
		       flops / 1e9, 100 * share, b->middle.exposed, b->middle.hidden, planned / 1e6, peak / 1e6,
		       startup);
	}
	if (j->world.rank == 0 && !json && b->with_products)
		printf("the step's matmuls alone: %.4f s = %.0f%% of the step\n", b->products_median,
		       100 * b->products_median / b->middle.seconds);
	if (j->world.rank == 0 && !json && b->bound[0] > 0)
		printf("bound: with the best known implementation of each matmul they take %.4f s, or %.0f tokens/s, "
		       "of which the step reaches %.0f%%. With the best layout of the operands %.4f s, or %.0f tokens/s: "
		       "%.0f%%\n",
		       b->bound[0], tokens / b->bound[0], 100 * b->bound[0] / b->middle.seconds, b->bound[1],
		       tokens / b->bound[1], 100 * b->bound[1] / b->middle.seconds);
	free(line);
}

static int find_bound(struct hd_job *j, struct bench_state *b, struct hd_err *err)
{
	for (int any = 0; any < 2; any++) {
		const struct hd_node *unknown = NULL;

		b->bound[any] = hd_comm_max(hd_bench_bound(j, any, &unknown));
		if (unknown)
			hd_err_set(err, HD_ENOTSUP,
				   "bench: --bound: device %s cannot tell how long %s of %s needs at best",
				   j->device->name, unknown->op->name, unknown->block);
		HD_TRY(hd_comm_agree(err));
	}
	return HD_OK;
}

static int bench(struct hd_job *j, struct hd_conf *conf, struct hd_cli *c, struct hd_err *err)
{
	struct bench_state *b = hd_alloc(sizeof(*b));
	int64_t steps = 5;
	int rc;

	hd_cli_int(c, "steps", 1, 1000, 5, &steps, err);
	rc = hd_comm_agree(err);
	b->n = (int)steps;
	b->with_products = hd_cli_has(c, "products");
	if (rc >= 0)
		rc = hd_job_open(j, conf, 1u << HD_JOB_TRAIN, NULL, err);
	if (rc >= 0) {
		b->bytes = hd_alloc((j->plan[HD_JOB_TRAIN]->ngroups + 1) * sizeof(*b->bytes));
		b->ids = hd_bench_ids_new(j->plan[HD_JOB_TRAIN]->model.vocab);
		rc = measure(j, b);
	}
	if (rc >= 0 && hd_cli_has(c, "bound"))
		rc = find_bound(j, b, err);
	if (rc >= 0)
		print(j, b, hd_cli_has(c, "json"));
	if (rc >= 0 && hd_cli_has(c, "profile"))
		rc = profile(j, b->ids, hd_cli_has(c, "bound"), hd_cli_has(c, "json") ? stderr : stdout);
	if (rc < 0 && !err->code)
		hd_program_failed(j->program[HD_JOB_TRAIN], rc, "a step of bench", err);
	hd_bench_ids_free(b->ids);
	free(b->bytes);
	free(b);
	return rc;
}

/* -- generation -------------------------------------------------------------------------------- */
static void print_generation(const struct hd_job *j, const struct hd_generation_bench *b, int json)
{
	json_t *o = json_object();
	char *line;

	json_object_set_new(o, "batch", json_integer(b->batch));
	json_object_set_new(o, "prompt_tokens", json_integer(b->prompt));
	json_object_set_new(o, "tokens", json_integer(b->tokens));
	json_object_set_new(o, "prompt_tokens_per_second", hd_json_number(b->prompt_rate));
	json_object_set_new(o, "tokens_per_second", hd_json_number(b->rate));
	json_object_set_new(o, "bytes_per_token", hd_json_number(b->bytes));
	if (b->bound > 0) {
		json_object_set_new(o, "bound_tokens_per_second", hd_json_number(b->bound));
		json_object_set_new(o, "bound_share", hd_json_number(b->rate / b->bound));
		json_object_set_new(o, "read_bytes_per_second", hd_json_number(b->read_rate));
	}
	json_object_set_new(o, "precision", json_string(j->compute_dtype ? "bf16" : "fp32"));
	json_object_set_new(o, "ranks", json_integer(j->world.size));
	line = hd_json_line(o);
	if (j->world.rank == 0 && json)
		puts(line);
	if (j->world.rank == 0 && !json)
		printf("%s, %lld text%s: prompt %.0f tokens/s, generation %.1f tokens/s",
		       j->compute_dtype ? "bf16" : "fp32", (long long)b->batch, hd_plural(b->batch, "s"),
		       b->prompt_rate, b->rate);
	if (j->world.rank == 0 && !json && b->bound > 0)
		printf(" = %.0f%% of %.1f, which reading %.1f MB at %.1f GB/s allows\n", 100 * b->rate / b->bound,
		       b->bound, b->bytes / 1e6, b->read_rate / 1e9);
	else if (j->world.rank == 0 && !json)
		printf(", reading %.1f MB from the memory of device %s, whose rate is not measured\n", b->bytes / 1e6,
		       j->device->name);
	free(line);
}

static int bench_generation(struct hd_job *j, struct hd_conf *conf, struct hd_cli *c, struct hd_err *err)
{
	struct hd_generation_bench b = { 0 };
	struct hd_train_config t;

	hd_train_config_read(conf, &t, err);
	if (!err->code)
		hd_cli_int(c, "batch", 1, 4096, 1, &b.batch, err);
	if (!err->code)
		hd_cli_int(c, "steps", 1, 100000, 32, &b.tokens, err);
	if (!err->code && t.seq < 3)
		hd_err_set(err, HD_EINVAL, "bench: train.seq = %lld leaves no room for a prompt and tokens after it",
			   (long long)t.seq);
	if (!err->code && hd_cli_has(c, "steps") && b.tokens > t.seq / 2)
		hd_err_set(err, HD_EINVAL,
			   "bench: --steps %lld: with --generate it is a number of tokens, of which half of "
			   "train.seq = %lld has room for %lld",
			   (long long)b.tokens, (long long)t.seq, (long long)(t.seq / 2));
	HD_TRY(hd_comm_agree(err));
	b.tokens = b.tokens < t.seq / 2 ? b.tokens : t.seq / 2;
	b.prompt = t.seq / 2 < 128 ? t.seq / 2 : 128;
	j->cache = hd_cached_sizes(b.batch, b.prompt, b.tokens + 1, t.seq, j->world.size);
	j->cache.rows = b.batch;
	HD_TRY(hd_job_open(j, conf, 1u << HD_JOB_PROMPT | 1u << HD_JOB_NEXT, NULL, err));
	if (!hd_cached_rows(j))
		return hd_err_set(err, HD_ENOTSUP, "bench: --generate: device %s has no kernel attention_cached",
				  j->device->name);
	HD_TRY(hd_generation_measure(j, &b, err));
	print_generation(j, &b, hd_cli_has(c, "json"));
	return HD_OK;
}

/* Refuses options that would have no effect. */
static int check_options(const struct hd_cli *c, struct hd_err *err)
{
	if (hd_cli_has(c, "batch") && !hd_cli_has(c, "generate"))
		return hd_err_set(err, HD_EINVAL,
				  "bench: --batch works only with --generate; for training, set train.global_batch");
	if (hd_cli_has(c, "generate") &&
	    (hd_cli_has(c, "products") || hd_cli_has(c, "profile") || hd_cli_has(c, "bound")))
		return hd_err_set(err, HD_EINVAL,
				  "bench: --generate cannot be combined with --products, --profile or --bound");
	return HD_OK;
}

/* Sets the vocabulary to the size that training would use: a tokenizer's, or that of a file of ids. No ids are read. */
static int vocabulary(struct hd_job *j, struct hd_conf *conf, struct hd_err *err)
{
	struct hd_section *m = hd_conf_section(conf, NULL, "model");
	struct hd_tokenizer *t = NULL;
	struct hd_data *d = NULL;
	struct hd_train_config train;
	struct hd_err why = { 0 };
	int rc;

	/* In this order, so that the first error is the one that check names. */
	HD_TRY(hd_train_config_read(conf, &train, err));
	HD_TRY(hd_section_check(conf, m, &hd_model_keys, 1, err));
	if (hd_section_int(m, "vocab") || *hd_section_str(m, "load"))
		return HD_OK;
	HD_TRY(hd_section_check(conf, hd_conf_section(conf, NULL, "data"), &hd_data_keys, 1, err));
	rc = hd_data_text_tokenizer(conf, "bench", 0, &t, &why);
	if (t) {
		j->text_vocab = hd_tokenizer_vocab(t);
		hd_tokenizer_close(t);
	} else if (hd_data_has_ids(conf)) { /* whose tokenizer this program may not know */
		rc = hd_cli_data(conf, &d, &why);
		j->text_vocab = d ? hd_data_vocab(d) : 0;
		hd_data_close(d);
	}
	return rc < 0 ? hd_err_set(err, why.code, "%s", why.text) : HD_OK;
}

int hd_verb_bench(struct hd_cli *c)
{
	struct hd_job j = { 0 };
	struct hd_conf *conf = NULL;
	struct hd_err err = { 0 };
	int rc;

	if (check_options(c, &err) >= 0)
		hd_cli_conf(c, &conf, &err);
	if (hd_start(c, &j, conf, &err) >= 0) {
		hd_cli_warn_unread(c);
		vocabulary(&j, conf, &err);
		hd_comm_agree(&err);
	}
	if (!err.code)
		(hd_cli_has(c, "generate") ? bench_generation : bench)(&j, conf, c, &err);
	rc = hd_finish(c, &j, &err);
	j.conf = conf;
	hd_job_close(&j);
	return rc;
}
