/* SPDX-License-Identifier: Apache-2.0
 * heddle check: refuses what can be refused before a run, for any number of ranks. It prints the layout with the memory
 * of each stage. It is a single process and does not start MPI.
 */
#include <config.h>
#include "engine/cli/verbs.h"
#include "engine/command/command.h"
#include "engine/command/stage_lines.h"
#include "engine/base/json.h"
#include "engine/human/human.h"
#include "engine/against/against.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/foresight/foresight.h"
#include "engine/generate/generate.h"
#include "engine/plugin/turn.h"
#include "engine/graph/mesh.h"
#include "engine/graph/traffic.h"
#include "engine/process/affinity.h"
#include "engine/process/launch.h"
#include "engine/passes/passes.h"
#include "engine/program/match.h"
#include "engine/run/job.h"
#include "engine/run/run.h"
#include <malloc.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the number of parameters in all stages, and adds to each stage the parameters that live on it. Both are
 * counted once, however many ranks share them. */
static int64_t count_parameters(const struct hd_plan *p, struct hd_stage_line *stages)
{
	int64_t all = 0;

	for (size_t i = 0; i < p->ntensors; i++) {
		const struct tensor *t = p->tensors[i];
		const struct hd_place *at = p->stages ? &t->at.on[p->stages->id] : NULL;
		int pinned = at && at->kind == HD_PLACE_PINNED;

		if (t->v.node || t->v.what != HD_TENSOR_PARAM)
			continue;
		all += hd_global_count(t);
		for (int64_t s = pinned ? at->index : 0; s < (pinned ? at->index + 1 : p->ncoords); s++)
			stages[s].stage_parameters += hd_global_count(t);
	}
	return all;
}

/* Bytes that a rank sends in a step along each axis or several axes together, and the maximum over ranks. */
struct traffic_sum {
	const char *name[64];
	double bytes[64], most[64];
	int n;
};

static void count_traffic(const struct hd_program *g, struct traffic_sum *t)
{
	memset(t->bytes, 0, sizeof(t->bytes));
	for (size_t i = 0; i < g->nmine; i++) {
		const struct node *n = g->mine[i];
		int64_t count = n->v.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W) ? g->plan->micros : 1;
		int k = 0;

		if (!n->comm.kind)
			continue;
		while (k < t->n && strcmp(t->name[k], n->comm.group->name))
			k++;
		if (k == t->n && t->n < (int)HD_LEN(t->name))
			t->name[t->n++] = n->comm.group->name;
		if (k < t->n)
			t->bytes[k] += (double)hd_comm_node_sent(g->plan, n, g->rank) * (double)count;
	}
	for (int k = 0; k < t->n; k++)
		t->most[k] = t->bytes[k] > t->most[k] ? t->bytes[k] : t->most[k];
}

static void print_traffic(const struct traffic_sum *t, int exact)
{
	for (int k = 0; k < t->n; k++) {
		printf("%s%s ", k ? ", " : "sent in a step, by the rank that sends most: ", t->name[k]);
		if (exact)
			printf("%.*f MB", t->most[k] < 1e9 ? 6 : 1, t->most[k] / 1e6);
		else
			printf("%s", hd_human_bytes(t->most[k]).text);
	}
	printf(t->n ? "\n" : "");
}

/* Ranks that do not compute the model: how many, and those with least and most memory. */
struct servers {
	int64_t n;
	struct hd_stage_line least, most;
};

static void add_server(struct servers *s, const struct hd_stage_line *mine)
{
	if (!s->n || hd_stage_line_bytes(mine) < hd_stage_line_bytes(&s->least))
		s->least = *mine;
	if (!s->n || hd_stage_line_bytes(mine) > hd_stage_line_bytes(&s->most))
		s->most = *mine;
	s->n++;
}

#define MOST_THREADS 4 /* each thread has the program of one class in memory */

struct class_checks {
	struct hd_plan *p;
	struct hd_classes classes;
	int threads; /* threads per rank */
	struct hd_match_run *match;
	struct hd_stage_line *stages; /* indexed by coordinate */
	struct servers *servers;
	struct traffic_sum *traffic;
};

/* Checks and counts the program of class k; called in class order. */
static int check_class(struct class_checks *c, int64_t k, struct hd_program *g, struct hd_err *err)
{
	struct hd_stage_line *most = &c->stages[g->coord], mine;

	if (c->p->config.device != HD_DEVICE_CUDA)
		HD_TRY(hd_program_scratch(g, hd_device_cpu(), c->threads, err));
	mine = (struct hd_stage_line){ .rank = g->rank,
				       .parameters = hd_program_parameters(g),
				       .persistent = g->memory.persistent,
				       .transient = g->memory.transient,
				       .snapshot = g->memory.snapshot,
				       .scratch = hd_program_kernel_bytes(&g->memory),
				       .host = g->memory.host_persistent + g->memory.host_transient,
				       .communicators = hd_plan_has_nccl(c->p) ? hd_program_communicators(g) : 0 };

	if (c->p->config.device != HD_DEVICE_CUDA)
		HD_TRY(hd_program_try(g, hd_device_cpu(), &c->classes, k, err));
	hd_match_add(c->match, k, g);
	count_traffic(g, c->traffic);
	if (!hd_is_worker(c->p, g->rank))
		add_server(c->servers, &mine);
	else if (hd_stage_line_bytes(&mine) > hd_stage_line_bytes(most))
		*most = mine;
	return HD_OK;
}

/* Builds the programs of all classes in parallel threads, and checks them in order. */
static int check_classes(struct class_checks *c, struct hd_err *err)
{
	int threads = omp_get_max_threads() < MOST_THREADS ? omp_get_max_threads() : MOST_THREADS;
	struct hd_program_options all;

	HD_TRY(hd_cli_program_options(c->p, &all, err)); /* reads the INI, which the threads share */
	/* Memory that the program of one class frees is reused by the next: new memory from the system would cost a
	 * third of the time. */
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, 32 << 20);
	mallopt(M_TRIM_THRESHOLD, 512 << 20);
#pragma omp parallel for ordered schedule(dynamic, 1) num_threads(threads)
	for (int64_t k = 0; k < c->classes.n; k++) {
		struct hd_err why = { 0 };
		struct hd_program_options o = all;
		struct hd_program *g = NULL;

		o.rank = c->classes.ranks[c->classes.first[k]];
		hd_program_build(c->p, &o, &g, &why);
#pragma omp ordered
		if (!err->code && g)
			check_class(c, k, g, err);
		else if (!err->code)
			*err = why;
		hd_program_destroy(g);
	}
	return err->code ? err->code : hd_match_all(c->match, err);
}

/* Checks the program of each class of ranks, then whether the messages of all ranks match. */
static int check_stages(struct hd_plan *p, struct hd_stage_line *stages, struct servers *servers, struct traffic_sum *t,
			struct hd_err *err)
{
	struct class_checks c = { .p = p, .traffic = t, .stages = stages, .servers = servers };

	c.threads = hd_affinity_threads(p->config.threads, p->ranks);
	hd_classes_find(p, &c.classes);
	c.match = hd_match_create(p, &c.classes);
	check_classes(&c, err);
	for (int64_t s = 0; s < p->ncoords; s++) {
		for (size_t b = 0; b < p->nblocks; b++)
			stages[s].blocks += p->blocks[b].coord == s;
	}
	hd_match_destroy(c.match);
	hd_classes_release(&c.classes);
	return err->code;
}

static json_t *server_json(const struct hd_stage_line *s)
{
	return json_pack("{s:I, s:I, s:I}", "rank", (json_int_t)s->rank, "memory_bytes",
			 (json_int_t)hd_stage_line_bytes(s), "state_bytes", (json_int_t)s->persistent);
}

static json_t *plan_json(const struct hd_plan *p, const struct hd_stage_line *s, int64_t parameters,
			 const struct traffic_sum *t)
{
	json_t *axes = json_array(), *sent = json_object();

	for (int a = 0; a < p->naxes; a++)
		json_array_append_new(axes,
				      json_pack("{s:s, s:I, s:I}", "name", p->axes[a]->v.name, "size",
						(json_int_t)p->axes[a]->v.n, "stride", (json_int_t)p->axes[a]->stride));
	for (int a = 0; a < p->naxes; a++)
		if (p->axes[a]->v.spare)
			json_object_set_new(json_array_get(axes, (size_t)a), "servers",
					    json_integer((json_int_t)p->axes[a]->v.spare));
	for (int k = 0; k < t->n; k++)
		json_object_set_new(sent, t->name[k], json_integer((json_int_t)t->most[k]));
	return json_pack("{s:I, s:o, s:I, s:I, s:I, s:I, s:o, s:I, s:o, s:o}", "ranks", (json_int_t)p->ranks, "axes",
			 axes, "replicas", (json_int_t)p->replicas, "micro_batches", (json_int_t)p->micros,
			 "micro_batch", (json_int_t)p->micro_batch, "seq", (json_int_t)p->model.seq, "bubble",
			 hd_json_number(hd_plan_bubble(p)), "parameters", (json_int_t)parameters, "stages",
			 hd_stage_lines_json(p, s, p->ncoords), "bytes", sent);
}

/* Fails because `who`, such as "rank 3", needs too much memory. */
static int too_large(const struct hd_plan *p, const char *who, int64_t need, int64_t limit, struct hd_err *err)
{
	struct hd_human text[2];
	char *keys = hd_memory_advice(p);

	hd_human_two((double)need, (double)limit, text);
	hd_err_set(err, HD_EINVAL, "%s needs %s of memory, and --memory is %s. This helps: %s", who, text[0].text,
		   text[1].text, keys);
	free(keys);
	return err->code;
}

/* Returns the number of stages up to and including the first that exceeds the limit, which is an error. */
static int64_t within(const struct hd_plan *p, const struct hd_stage_line *s, int64_t limit, struct hd_err *err)
{
	int64_t n = 0;
	char *who;

	while (n < p->ncoords && !(limit && hd_stage_line_bytes(&s[n]) > limit))
		n++;
	if (n == p->ncoords)
		return n;
	who = hd_format("rank %lld", (long long)s[n].rank);
	too_large(p, who, hd_stage_line_bytes(&s[n]), limit, err);
	free(who);
	return n + 1;
}

/* Prints "2 ranks of servers, the most on rank 4: no parameters, memory ...". */
static void print_servers(const struct servers *s, int exact)
{
	struct hd_human least = hd_human_bytes((double)hd_stage_line_bytes(&s->least));

	if (!s->n)
		return;
	printf("%lld server rank%s, the largest is rank %lld: no parameters, memory ", (long long)s->n,
	       hd_plural(s->n, "s"), (long long)s->most.rank);
	if (exact) {
		printf("%.1f MB (masters and states %.1f, within a step %.1f)\n",
		       (double)hd_stage_line_bytes(&s->most) / 1e6, (double)s->most.persistent / 1e6,
		       (double)s->most.transient / 1e6);
		return;
	}
	if (strcmp(least.text, hd_human_bytes((double)hd_stage_line_bytes(&s->most)).text))
		printf("%s to ", least.text);
	printf("%s (masters and states ", hd_human_bytes((double)hd_stage_line_bytes(&s->most)).text);
	printf("%s, within a step ", hd_human_bytes((double)s->most.persistent).text);
	printf("%s)\n", hd_human_bytes((double)s->most.transient).text);
}

static int within_servers(const struct hd_plan *p, const struct servers *s, int64_t limit, struct hd_err *err)
{
	char *who;

	if (!limit || !s->n || err->code || hd_stage_line_bytes(&s->most) <= limit)
		return HD_OK;
	who = hd_format("rank %lld, a server,", (long long)s->most.rank);
	too_large(p, who, hd_stage_line_bytes(&s->most), limit, err);
	free(who);
	return err->code;
}

static void print_stages(const struct hd_cli *c, const struct hd_plan *p, struct hd_stage_line *s,
			 const struct servers *servers, int64_t limit, const struct traffic_sum *t, struct hd_err *err)
{
	int exact = hd_cli_has(c, "all");
	int64_t n = within(p, s, limit, err), parameters = count_parameters(p, s);

	within_servers(p, servers, limit, err);
	if (hd_cli_has(c, "json")) {
		json_t *o = plan_json(p, s, parameters, t);
		char *line;

		if (servers->n)
			json_object_set_new(o, "servers",
					    json_pack("{s:I, s:o, s:o}", "ranks", (json_int_t)servers->n, "least",
						      server_json(&servers->least), "most",
						      server_json(&servers->most)));
		if (hd_memory_case(p))
			json_object_set_new(o, "memory_case", json_string(hd_memory_case(p)));
		if (limit) {
			json_object_set_new(o, "memory_limit_bytes", json_integer((json_int_t)limit));
			json_object_set_new(o, "fits", json_boolean(!err->code));
		}
		line = hd_json_line(o);
		puts(line);
		free(line);
		return;
	}
	printf("%lld parameters", (long long)parameters);
	if (exact)
		printf("\n");
	else
		printf(" (%s)\n", hd_human_count((double)parameters).text);
	hd_stage_lines_print(p, s, n, exact);
	hd_memory_case_print(p);
	print_servers(servers, exact);
	if (!err->code)
		print_traffic(t, exact);
}

static int check_plan(const struct hd_cli *c, struct hd_plan *p, int64_t limit, struct hd_err *err)
{
	struct hd_stage_line *stages = hd_alloc((size_t)p->ncoords * sizeof(*stages));
	struct servers servers = { .n = 0 };
	struct traffic_sum t = { .n = 0 };

	if (check_stages(p, stages, &servers, &t, err) >= 0) {
		servers.n = p->ranks - hd_plan_workers(p); /* a class may have several */
		print_stages(c, p, stages, &servers, limit, &t, err);
	}
	free(stages);
	return err->code;
}

static void print_precision(const struct hd_plan *p)
{
	const char *slow = hd_device_cpu()->slow(p->compute_dtype);

	if (!p->compute_dtype && p->config.precision == HD_PRECISION_AUTO)
		printf("note: train.precision = auto is measured when a run begins; this is fp32\n");
	if (!p->compute_dtype)
		return;
	printf("precision bf16: matmuls and activations; masters, gradients and states fp32\n");
	if (slow && p->config.device != HD_DEVICE_CUDA)
		printf("note: %s\n", slow);
}

/* Checks log.sample_prompt, whose ids a run would refuse. */
static int check_prompt(struct hd_conf *conf, const struct hd_plan *p, const struct hd_data *d, struct hd_err *err)
{
	struct hd_ids ids = { 0 };
	struct hd_log_config log;

	HD_TRY(hd_log_config_read(conf, &log, err));
	if (log.sample)
		hd_sample_prompt(conf, &log, d, p->model.vocab, &ids, err);
	hd_ids_release(&ids);
	return err->code;
}

/* Checks the files of a run: its data, its outputs, and the checkpoint from which it would continue. *looked: 0 if the
 * data are not here. If they need not be, because model.vocab is given, the run will be on another machine, so no other
 * file is checked. *evaluates: set to 1 if there are validation data. against: --against-one-rank saves to its own
 * folder, so checkpoints of earlier runs do not matter. resume_error: the error that existing checkpoints would cause in
 * a run; it does not concern the layout. */
static int check_files(struct hd_conf *conf, const struct hd_plan *p, int against, int *looked, int *evaluates,
		       struct hd_err *resume_error, struct hd_err *err)
{
	struct hd_data *d = NULL;
	struct hd_err why = { 0 };
	char *resume = NULL;

	*looked = hd_data_open(conf, p->model.seq, p->model.vocab, 1, &d, &why) >= 0;
	if (!*looked)
		return why.code == HD_EIO && hd_section_int(hd_conf_section(conf, NULL, "model"), "vocab") &&
				       !hd_data_is_here(conf)
			       ? HD_OK
			       : hd_err_set(err, why.code, "%s", why.text);
	hd_data_warn(d);
	*evaluates = hd_data_valid_samples(d, 0) > 0;
	check_prompt(conf, p, d, err);
	hd_data_close(d);
	HD_TRY(err->code);
	HD_TRY(hd_outputs_check(conf, err));
	if (!against && hd_checkpoint_choose(conf, &resume, resume_error) >= 0 && resume)
		hd_checkpoint_resumes(p, resume, resume_error);
	free(resume);
	return err->code;
}

/* Checks the names in the checkpoints that a run would write. */
static int check_names(struct hd_conf *conf, const struct hd_plan *p, struct hd_err *err)
{
	struct hd_checkpoint_config k;

	HD_TRY(hd_checkpoint_config_read(conf, &k, err));
	return *k.dir ? hd_checkpoint_names_check(p, err) : HD_OK;
}

static void print_data(struct hd_conf *conf, int looked)
{
	const char *train = hd_section_str(hd_conf_section(conf, NULL, "data"), "train");

	if (!looked && strcmp(train, "none") != 0)
		printf("note: data.train = %s does not exist here, so no file of the run is checked\n", train);
}

/* Checks that the weights of model.load fit, unless the run continues from a checkpoint and does not read them. */
static int check_load(struct hd_conf *conf, const struct hd_plan *p, struct hd_err *err)
{
	const char *load = hd_section_str(hd_conf_section(conf, NULL, "model"), "load");
	struct hd_err ignored = { 0 };
	char *resume = NULL;

	hd_checkpoint_choose(conf, &resume, &ignored);
	if (*load && !resume)
		hd_checkpoint_fits(p, load, err);
	free(resume);
	return err->code;
}

/* Plans another program that the run would need, and refuse before its first step. Some layouts can train a model, but
 * not evaluate it or generate from it. */
static int check_other(struct hd_conf *conf, struct hd_plan *p, int generate, struct hd_err *err)
{
	struct hd_plan_options o = { .generate = generate,
				     .ranks = p->ranks,
				     .node_size = p->node_size,
				     .data_vocab = p->model.vocab,
				     .compute_dtype = p->compute_dtype,
				     .quiet = 1 };
	struct hd_plan *other = NULL;

	if (hd_plan_create(conf, &o, &other, err) >= 0)
		hd_plans_store_alike(p, other, err);
	hd_plan_destroy(other);
	return err->code;
}

/* evaluates: the run has validation data. Experts have no limit in generation. */
static int check_others(struct hd_conf *conf, struct hd_plan *p, int evaluates, struct hd_err *err)
{
	struct hd_log_config log;

	HD_TRY(hd_log_config_read(conf, &log, err));
	if (evaluates)
		HD_TRY(check_other(conf, p, 0, err));
	return log.sample ? check_other(conf, p, 1, err) : HD_OK;
}

static int check(struct hd_cli *c, struct hd_conf **conf, struct hd_plan **p, struct hd_err *err)
{
	struct hd_err resume_error = { 0 };
	int64_t limit = 0, node = 0;
	int looked, evaluates = 0;

	if (hd_cli_has(c, "all") && hd_cli_has(c, "json"))
		return hd_err_set(err, HD_EINVAL, "check: --all does nothing with --json, which has all stages");
	HD_TRY(hd_cli_bytes(c, "memory", 0, &limit, err));
	if (hd_cli_has(c, "against-one-rank")) /* of the layout that the launcher would run */
		c->ranks = hd_launch_ranks();
	HD_TRY(hd_cli_int(c, "ranks-per-node", 1, 10000000, 0, &node, err));
	HD_TRY(hd_cli_plan(c, node, conf, p, err));
	HD_TRY(check_load(*conf, *p, err));
	HD_TRY(check_names(*conf, *p, err));
	HD_TRY(hd_foresight_check(*conf, err));
	HD_TRY(check_files(*conf, *p, hd_cli_has(c, "against-one-rank"), &looked, &evaluates, &resume_error, err));
	HD_TRY(check_others(*conf, *p, evaluates, err));
	hd_warn_without_effect(*p);
	if (!hd_cli_has(c, "json")) {
		hd_mesh_print(*p);
		print_precision(*p);
		print_data(*conf, looked);
	}
	HD_TRY(check_plan(c, *p, limit, err));
	if (hd_cli_has(c, "against-one-rank")) {
		struct hd_against a = { c->positional, c->sets, c->nsets, *p };

		fflush(stdout);
		/* With --json, stdout is one line. */
		HD_TRY(hd_against_one_rank(&a, hd_cli_has(c, "json") ? stderr : stdout, err));
	}
	return resume_error.code ? hd_err_set(err, resume_error.code, "%s", resume_error.text) : HD_OK;
}

static int in_child(void *c)
{
	return hd_cli_end(hd_cli_run(c, check));
}

/* Runs check in a child process, so that a message is printed even if a plugin crashes or loops forever. */
int hd_verb_check(struct hd_cli *c)
{
	const char *seconds = getenv("HD_TEST_SLOT_SECONDS"); /* for tests: a loop should not take a minute */

	return hd_guard_run(in_child, c, seconds ? atoi(seconds) : 60);
}
