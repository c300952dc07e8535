/* SPDX-License-Identifier: Apache-2.0
 * heddle check: refuses what can be refused before a run, for any number of ranks, and prints the layout with the memory
 * of each stage.  It works alone and does not start MPI.
 */
#include <config.h>
#include "engine/cli/verbs.h"
#include "engine/command/command.h"
#include "engine/against/against.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/plugin/turn.h"
#include "engine/graph/traffic.h"
#include "engine/passes/passes.h"
#include "engine/predict/match.h"
#include "engine/run/run.h"
#include <malloc.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whole parameters of all stages, and by stage those that live on it, however many ranks it has. */
static int64_t count_parameters(const struct hd_plan *p, int64_t *stage)
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
			stage[s] += hd_global_count(t);
	}
	return all;
}

/* Bytes that a rank sends in a step, along each axis or several. */
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

static void print_traffic(const struct traffic_sum *t)
{
	for (int k = 0; k < t->n; k++)
		printf("%s%s %.*f MB", k ? ", " : "sent in a step, by the rank that sends most: ", t->name[k],
		       t->most[k] < 1e9 ? 6 : 1, t->most[k] / 1e6);
	printf(t->n ? "\n" : "");
}

/* Of the ranks of a stage the one that needs most. */
struct stage_memory {
	int64_t rank, parameters;
	struct program_memory memory;
};

static int64_t bytes_of(const struct stage_memory *m)
{
	return m->memory.persistent + m->memory.transient;
}

static void print_stage(const struct hd_plan *p, const struct stage_memory *m, int64_t coord, int64_t whole)
{
	printf("rank %lld", (long long)m->rank);
	if (p->stages)
		printf(" (stage %lld:", (long long)coord);
	for (size_t b = 0; p->stages && b < p->nblocks; b++)
		if (p->blocks[b].coord == coord)
			printf(" %s", p->blocks[b].name);
	if (p->stages)
		printf("; %lld parameters)", (long long)whole);
	printf(": %lld parameters, memory %.1f MB (parameters and state %.1f, within a step %.1f)\n",
	       (long long)m->parameters, (double)bytes_of(m) / 1e6, (double)m->memory.persistent / 1e6,
	       (double)m->memory.transient / 1e6);
}

#define MOST_THREADS 4 /* each has the program of a class in memory */

struct class_checks {
	struct hd_plan *p;
	struct hd_classes classes;
	struct hd_match_run *match;
	struct stage_memory *stages; /* by coordinate */
	const int64_t *whole;        /* likewise: parameters */
	struct traffic_sum *traffic;
};

/* The program of a class, classes in their order. */
static int check_class(struct class_checks *c, int64_t k, struct hd_program *g, struct hd_err *err)
{
	struct stage_memory *most = &c->stages[g->coord];
	struct stage_memory mine = { g->rank, hd_program_parameters(g), g->memory };

	if (c->p->config.device != HD_DEVICE_CUDA)
		HD_TRY(hd_program_try(g, hd_device_cpu(), &c->classes, k, err));
	hd_match_add(c->match, k, g);
	count_traffic(g, c->traffic);
	if (bytes_of(&mine) > bytes_of(most))
		*most = mine;
	return HD_OK;
}

/* Classes are planned beside each other. */
static int check_classes(struct class_checks *c, struct hd_err *err)
{
	int threads = omp_get_max_threads() < MOST_THREADS ? omp_get_max_threads() : MOST_THREADS;

	/* What one class' program gives back serves the next: memory new from the system costs a third of the time. */
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, 32 << 20);
	mallopt(M_TRIM_THRESHOLD, 512 << 20);
#pragma omp parallel for ordered schedule(dynamic, 1) num_threads(threads)
	for (int64_t k = 0; k < c->classes.n; k++) {
		struct hd_err why = { 0 };
		struct hd_program *g = hd_cli_program(c->p, c->classes.ranks[c->classes.first[k]], &why);

#pragma omp ordered
		if (!err->code && g)
			check_class(c, k, g, err);
		else if (!err->code)
			*err = why;
		hd_program_destroy(g);
	}
	return err->code ? err->code : hd_match_all(c->match, err);
}

static int print_stages(const struct class_checks *c, int64_t limit, struct hd_err *err)
{
	for (int64_t s = 0; s < c->p->ncoords; s++) {
		const struct stage_memory *m = &c->stages[s];

		print_stage(c->p, m, s, c->whole[s]);
		if (limit && bytes_of(m) > limit)
			return hd_err_set(err, HD_EINVAL, "rank %lld needs %lld bytes of memory, and --memory is %lld",
					  (long long)m->rank, (long long)bytes_of(m), (long long)limit);
	}
	return HD_OK;
}

/* The program of each class of ranks; then, whether all ranks meet. */
static int check_stages(struct hd_plan *p, const int64_t *whole, int64_t limit, struct traffic_sum *t,
			struct hd_err *err)
{
	struct class_checks c = { .p = p, .whole = whole, .traffic = t };

	hd_classes_find(p, &c.classes);
	c.match = hd_match_create(p, &c.classes);
	c.stages = hd_alloc((size_t)p->ncoords * sizeof(*c.stages));
	if (check_classes(&c, err) >= 0)
		print_stages(&c, limit, err);
	hd_match_destroy(c.match);
	hd_classes_release(&c.classes);
	free(c.stages);
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

/* The files of a run: what it reads, goes on from and writes.  Where its data are not, and need not be (model.vocab is
 * given), nothing is known of the others either: the run will be elsewhere. */
static int check_files(struct hd_conf *conf, const struct hd_plan *p, struct hd_err *err)
{
	struct hd_data *d = NULL;
	struct hd_err why = { 0 };
	char *resume = NULL;

	if (hd_data_open(conf, p->model.seq, p->model.vocab, 1, &d, &why) < 0)
		return why.code == HD_EIO && hd_section_int(hd_conf_section(conf, NULL, "model"), "vocab")
			       ? HD_OK
			       : hd_err_set(err, why.code, "%s", why.text);
	hd_data_close(d);
	HD_TRY(hd_outputs_check(conf, err));
	if (hd_checkpoint_choose(conf, &resume, err) >= 0 && resume)
		hd_checkpoint_fits(p, resume, err);
	free(resume);
	return err->code;
}

static int check(struct hd_cli *c, struct hd_conf **conf, struct hd_plan **p, struct hd_err *err)
{
	struct traffic_sum t = { .n = 0 };
	const char *load;
	int64_t limit = 0, *whole;

	HD_TRY(hd_cli_bytes(c, "memory", 0, &limit, err));
	HD_TRY(hd_cli_plan(c, 0, conf, p, err));
	load = hd_section_str(hd_conf_section(*conf, NULL, "model"), "load");
	if (*load)
		HD_TRY(hd_checkpoint_fits(*p, load, err));
	HD_TRY(check_files(*conf, *p, err));
	hd_mesh_print(*p);
	print_precision(*p);
	whole = hd_plan_alloc(*p, (size_t)((*p)->ncoords + 1) * sizeof(*whole));
	printf("%lld parameters\n", (long long)count_parameters(*p, whole));
	HD_TRY(check_stages(*p, whole, limit, &t, err));
	print_traffic(&t);
	if (hd_cli_has(c, "against-one-rank")) {
		struct hd_against a = { c->positional, c->sets, c->nsets, *p };

		fflush(stdout);
		HD_TRY(hd_against_one_rank(&a, stdout, err));
	}
	return HD_OK;
}

static int in_child(void *c)
{
	return hd_cli_run(c, check);
}

/* A plugin's crash or endless loop ends the child, not the message. */
int hd_verb_check(struct hd_cli *c)
{
	const char *seconds = getenv("HD_TEST_SLOT_SECONDS"); /* for tests: a loop need not take a minute */

	return hd_guard_run(in_child, c, seconds ? atoi(seconds) : 60);
}
