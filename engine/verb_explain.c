/* SPDX-License-Identifier: Apache-2.0
 * heddle check and explain: the program that train would run, looked at instead of run.  Both work alone, for any number
 * of ranks, and neither starts MPI.
 */
#include <config.h>
#include "engine/verbs.h"
#include "engine/checkpoint.h"
#include "engine/data.h"
#include "engine/json.h"
#include "engine/movement.h"
#include <malloc.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- a plan without ranks ------------------------------------------------------------------------------------------------------------ */
static int open_data(struct hd_conf *conf, int64_t *vocab, struct hd_err *err)
{
	struct hd_section *t = hd_conf_section(conf, NULL, "train"), *m = hd_conf_section(conf, NULL, "model");
	struct hd_data *d = NULL;
	struct hd_err why = { 0 };

	HD_TRY(hd_section_check(conf, t, &hd_train_keys, 1, err));
	HD_TRY(hd_section_check(conf, m, &hd_model_keys, 1, err));
	*vocab = 256;
	if (hd_data_open(conf, hd_section_int(t, "seq"), hd_section_int(m, "vocab"), 1, &d, &why) >= 0)
		*vocab = hd_data_vocab(d);
	else if (!hd_section_int(m, "vocab"))		/* with vocab given the data need not exist */
		return hd_err_set(err, why.code, "%s", why.text);
	hd_data_close(d);
	return HD_OK;
}

int hd_cli_plan(struct hd_cli *c, int64_t node_size, struct hd_conf **conf, struct hd_plan **p, struct hd_err *err)
{
	struct hd_plan_options o = { .train = 1, .node_size = node_size };
	struct hd_err why = { 0 };
	int64_t needs = 0;

	HD_TRY(hd_cli_conf(c, conf, err));
	HD_TRY(open_data(*conf, &o.data_vocab, err));
	o.gelu = !strcmp(hd_section_str(hd_conf_section(*conf, NULL, "train"), "device"), "cuda");
	o.low = hd_precision_asked(*conf, o.gelu);
	HD_TRY(hd_cli_int(c, "ranks", 1, 10000000, 1, &o.ranks, err));
	if (!hd_cli_has(c, "ranks")) {		/* as many as the layout says */
		o.needs = &needs;
		if (hd_plan_create(*conf, &o, p, &why) >= 0)
			return HD_OK;
		if (!needs)
			return hd_err_set(err, why.code, "%s", why.text);
		o.ranks = needs;
		o.needs = NULL;
	}
	return hd_plan_create(*conf, &o, p, err);
}

static struct hd_program *program_of(struct hd_plan *p, int64_t rank, struct hd_err *err)
{
	struct hd_program_options o = { .rank = rank, .device = hd_device_cpu() };
	struct hd_program *g = NULL;

	hd_program_build(p, &o, &g, err);
	return g;
}

/* -- check ------------------------------------------------------------------------------------------------------------------------------ */
void hd_mesh_print(const struct hd_plan *p)
{
	printf("%lld rank%s", (long long)p->ranks, p->ranks == 1 ? "" : "s");
	for (int a = 0; a < p->naxes; a++)
		printf("%s%s %lld (%lld apart)", a ? " x " : " = ", p->axes[a]->v.name, (long long)p->axes[a]->v.n,
		       (long long)p->axes[a]->stride);
	printf("\n%lld replica%s x %lld micro-batch%s of %lld sequence%s of %lld tokens; bubble %.3f\n",
	       (long long)p->replicas, p->replicas == 1 ? "" : "s", (long long)p->micros, p->micros == 1 ? "" : "es",
	       (long long)p->micro_batch, p->micro_batch == 1 ? "" : "s", (long long)p->model.seq, hd_plan_bubble(p));
}

/* Whole parameters that live on a stage (coord; of all stages: -1), however many ranks it has. */
static int64_t whole_parameters(const struct hd_plan *p, int64_t coord)
{
	int64_t n = 0;

	for (size_t i = 0; i < p->ntensors; i++) {
		const struct tensor *t = p->tensors[i];
		const struct hd_place *at = p->stages ? &t->at.on[p->stages->id] : NULL;

		if (!t->v.node && t->v.what == HD_PARAM && (coord < 0 || !at || at->kind != HD_AT || at->index == coord))
			n += hd_whole_count(t);
	}
	return n;
}

/* Bytes that a rank sends in a step, along each axis or several. */
struct traffic { const char *name[64]; double bytes[64], most[64]; int n; };

static void count_traffic(const struct hd_program *g, struct traffic *t)
{
	memset(t->bytes, 0, sizeof(t->bytes));
	for (size_t i = 0; i < g->nmine; i++) {
		const struct node *n = g->mine[i];
		int64_t count = n->v.phase & (HD_F | HD_B | HD_W) ? g->plan->micros : 1;
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

static void print_traffic(const struct traffic *t)
{
	for (int k = 0; k < t->n; k++)
		printf("%s%s %.*f MB", k ? ", " : "sent in a step, by the rank that sends most: ", t->name[k],
		       t->most[k] < 1e9 ? 6 : 1, t->most[k] / 1e6);
	printf(t->n ? "\n" : "");
}

static void print_stage(const struct hd_program *g, int64_t coord)
{
	const struct hd_plan *p = g->plan;

	printf("rank %lld", (long long)g->rank);
	if (p->stages)
		printf(" (stage %lld:", (long long)coord);
	for (size_t b = 0; p->stages && b < p->nblocks; b++)
		if (p->blocks[b].coord == coord)
			printf(" %s", p->blocks[b].name);
	if (p->stages)
		printf("; %lld parameters)", (long long)whole_parameters(p, coord));
	printf(": %lld parameters, memory %.1f MB (parameters and state %.1f, within a step %.1f)\n",
	       (long long)hd_program_parameters(g), (double)(g->memory.persistent + g->memory.transient) / 1e6,
	       (double)g->memory.persistent / 1e6, (double)g->memory.transient / 1e6);
}

#define MOST_THREADS 4		/* each has the program of a stage in memory */

/* The first rank of each stage. Stages are planned beside each other, and printed in order. */
static int check_stages(struct hd_plan *p, int64_t limit, struct traffic *t, struct hd_err *err)
{
	int threads = omp_get_max_threads() < MOST_THREADS ? omp_get_max_threads() : MOST_THREADS;

	/* What one stage's program gives back serves the next: memory new from the system costs a third of the time. */
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, 32 << 20);
	mallopt(M_TRIM_THRESHOLD, 512 << 20);
#pragma omp parallel for ordered schedule(dynamic, 1) num_threads(threads)
	for (int64_t s = 0; s < p->ncoords; s++) {
		int64_t rank = p->stages ? s * p->stages->stride : 0, bytes;
		struct hd_err why = { 0 };
		struct hd_program *g = program_of(p, rank, &why);

#pragma omp ordered
		if (g && !err->code) {
			bytes = g->memory.persistent + g->memory.transient;
			print_stage(g, s);
			count_traffic(g, t);
			if (limit && bytes > limit)
				hd_err_set(err, HD_EINVAL, "rank %lld needs %lld bytes of memory, and --memory is %lld",
					   (long long)rank, (long long)bytes, (long long)limit);
		} else if (!err->code) {
			*err = why;
		}
		hd_program_destroy(g);
	}
	return err->code;
}

static void print_precision(const struct hd_plan *p)
{
	const char *slow = hd_device_cpu()->slow(p->low);

	if (!p->low && !strcmp(hd_section_str(hd_conf_section(p->conf, NULL, "train"), "precision"), "auto"))
		printf("note: train.precision = auto is measured when a run begins; this is fp32\n");
	if (!p->low)
		return;
	printf("precision bf16: products and activations; masters, gradients and states fp32\n");
	if (slow && strcmp(hd_section_str(hd_conf_section(p->conf, NULL, "train"), "device"), "cuda"))
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
		return why.code == HD_EIO && hd_section_int(hd_conf_section(conf, NULL, "model"), "vocab") ? HD_OK
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
	struct traffic t = { .n = 0 };
	const char *load;
	int64_t limit = 0;

	HD_TRY(hd_cli_bytes(c, "memory", 0, &limit, err));
	HD_TRY(hd_cli_plan(c, 0, conf, p, err));
	load = hd_section_str(hd_conf_section(*conf, NULL, "model"), "load");
	if (*load)
		HD_TRY(hd_checkpoint_fits(*p, load, err));
	HD_TRY(check_files(*conf, *p, err));
	hd_mesh_print(*p);
	print_precision(*p);
	printf("%lld parameters\n", (long long)whole_parameters(*p, -1));
	HD_TRY(check_stages(*p, limit, &t, err));
	print_traffic(&t);
	return HD_OK;
}

/* -- explain ------------------------------------------------------------------------------------------------------------------------------ */
static const char *unit_name(uint32_t phase)
{
	return phase == HD_F ? "forward" : phase == HD_B ? "backward" : phase == HD_W ? "weight-gradient" : phase == HD_G ? "gather"
		: phase == HD_S ? "sync" : "update";
}

/* Numbers of rows go ahead of the rows: metadata of the movement, not one of its own. */
static const char *collective(const struct node *n)
{
	if (n->comm.kind == HD_ALL_TO_ALL && n->ins[0]->v.dtype == HD_I32)
		return "count-exchange";
	return hd_comm_kind_name(n->comm.kind);
}

struct line { const struct node *n; int64_t count; };

static json_t *line_json(struct hd_plan *p, const struct node *n, int64_t rank, int64_t count)
{
	const char *unit = n->v.block[0] ? hd_plan_text(p, "%s %s", unit_name(n->v.phase), n->v.block) : unit_name(n->v.phase);

	json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:s, s:s}", "axis", n->comm.group->name, "collective",
			 collective(n), "tensor", hd_comm_node_subject_name(n), "dims", n->ins[0]->v.spec, "dtype",
			 hd_dtype_name(n->ins[0]->v.dtype), "elements", (json_int_t)hd_local_count(n->ins[0]), "bytes",
			 (json_int_t)hd_comm_node_sent(p, n, rank), "count", (json_int_t)count, "unit", unit, "reason",
			 n->reason ? n->reason : "");

	if (hd_comm_node_largest(n) != hd_comm_node_bytes(n))
		json_object_set_new(o, "largest", json_integer((json_int_t)hd_comm_node_largest(n)));
	return o;
}

static void line_text(const struct hd_plan *p, const struct node *n, int64_t rank, int64_t count)
{
	printf("%-15s %-10s %-8s %-14s %12lld bytes x%-4lld %s (%s)\n%20s%s\n", unit_name(n->v.phase), n->v.block,
	       n->comm.group->name, collective(n), (long long)hd_comm_node_sent(p, n, rank), (long long)count,
	       hd_comm_node_subject_name(n), hd_comm_node_subject(n)->v.spec, "", n->reason ? n->reason : "");
	if (hd_comm_node_largest(n) != hd_comm_node_bytes(n))
		printf("%20sif experts are chosen equally; at most %lld bytes\n", "", (long long)hd_comm_node_largest(n));
}

/* What has no name is numbered: a result is found again where it is read. */
static void print_tensor(const struct tensor *t)
{
	if (t->v.name[0])
		printf("%s(%s)", t->v.name, t->v.spec);
	else
		printf("#%d(%s)", t->id, t->v.spec);
}

static void print_nodes(struct hd_plan *p, const struct hd_program *g)
{
	for (const struct node *n = p->first; n; n = n->next) {
		if (!hd_node_here(g, n))
			continue;
		printf("%-15s %-10s %s", unit_name(n->v.phase), n->v.block, n->v.op->name);
		if (n->comm.kind)
			printf(" %s on %s", hd_comm_kind_name(n->comm.kind), n->comm.group->name);
		else if (n->attr[0])
			printf(" [%s]", n->attr);
		for (uint32_t i = 0; i < n->v.nin; i++) {
			printf(i ? ", " : " ");
			print_tensor(n->ins[i]);
		}
		for (uint32_t k = 0; k < n->v.nout; k++) {
			printf(" -> ");
			print_tensor(n->outs[k]);
			printf(" %s", hd_placement_text(p, &n->outs[k]->at));
		}
		printf(n->by >= 0 ? "; made by %s\n" : "\n", n->by >= 0 ? p->inst[n->by].name : "");
	}
}

static int draw(struct hd_cli *c, const struct hd_plan *p, struct hd_err *err)
{
	const char *path = hd_cli_str(c, "times", NULL);
	struct hd_unit_times t;

	if (path)
		HD_TRY(hd_unit_times_read(p, path, &t, err));
	hd_plan_draw(p, path ? &t : NULL, stdout);
	if (path)
		hd_unit_times_release(&t);
	return HD_OK;
}

static int explain(struct hd_cli *c, struct hd_conf **conf, struct hd_plan **out, struct hd_err *err)
{
	struct hd_plan *p;
	struct hd_program *g;
	json_t *all = json_array();
	int64_t rank = 0;
	int json = hd_cli_has(c, "json");

	HD_TRY(hd_cli_plan(c, 0, conf, out, err));
	p = *out;
	HD_TRY(hd_cli_int(c, "rank", 0, p->ranks - 1, 0, &rank, err));
	g = program_of(p, rank, err);
	if (!g)
		return err->code;
	if (hd_cli_has(c, "kept")) {
		hd_kept_print(g, json);
		json_decref(all);
		hd_program_destroy(g);
		return HD_OK;
	}
	if (!json)
		hd_mesh_print(p);
	if (hd_cli_has(c, "schedule") && !json)
		draw(c, p, err);
	if (hd_cli_has(c, "nodes") && !json)
		print_nodes(p, g);
	for (const struct node *n = p->first; n && !(hd_cli_has(c, "schedule") && !json); n = n->next) {
		int64_t count = n->v.phase & (HD_F | HD_B | HD_W) ? p->micros : 1;

		if (!n->comm.kind || !hd_node_here(g, n))
			continue;
		if (json)
			json_array_append_new(all, line_json(p, n, rank, count));
		else
			line_text(p, n, rank, count);
	}
	if (json) {
		char *text = hd_json_line(all);

		puts(text);
		free(text);
	}
	hd_program_destroy(g);
	return HD_OK;
}

/* -- verbs ---------------------------------------------------------------------------------------------------------------------------------- */
int hd_cli_run(struct hd_cli *c, int (*what)(struct hd_cli *, struct hd_conf **, struct hd_plan **, struct hd_err *))
{
	struct hd_conf *conf = NULL;
	struct hd_plan *p = NULL;
	struct hd_err err = { 0 };

	what(c, &conf, &p, &err);
	fflush(stdout);
	if (err.code)
		hd_log(HD_ERROR, "%s", err.text);
	hd_plan_destroy(p);
	hd_conf_destroy(conf);
	return err.code ? 1 : 0;
}

int hd_verb_check(struct hd_cli *c) { return hd_cli_run(c, check); }
int hd_verb_explain(struct hd_cli *c) { return hd_cli_run(c, explain); }
