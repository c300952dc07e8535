/* SPDX-License-Identifier: Apache-2.0
 * heddle explain: prints the program that a rank would run. It is a single process and does not start MPI.
 */
#include <config.h>
#include "engine/cli/verbs.h"
#include "engine/command/command.h"
#include "engine/command/unit_times.h"
#include "engine/cli/work.h"
#include "engine/graph/traffic.h"
#include "engine/human/human.h"
#include "engine/report/fold.h"
#include "engine/train/metrics.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *hd_unit_name(uint32_t phase)
{
	return phase == HD_UNIT_F   ? "forward"
	       : phase == HD_UNIT_B ? "backward"
	       : phase == HD_UNIT_W ? "weight-gradient"
	       : phase == HD_UNIT_G ? "gather"
	       : phase == HD_UNIT_S ? "sync"
				    : "update";
}

/* Returns the name of a movement. Numbers of rows are sent before the rows: they are metadata, and named so. */
static const char *collective(const struct node *n)
{
	if (n->comm.kind == HD_COMM_ALL_TO_ALL && n->ins[0]->v.dtype == HD_DTYPE_I32)
		return "count-exchange";
	return n->comm.kind ? hd_comm_kind_name(n->comm.kind) : n->v.op->name;
}

struct line {
	const struct node *n;
	int64_t count;
};

/* Returns where a movement sends data: along axes of the mesh, or between the memories of a device and its host. */
static const char *along(const struct node *n)
{
	return n->comm.kind ? n->comm.group->name : "host";
}

static const char *subject_name(const struct node *n)
{
	const struct hd_tensor *of = n->outs[0]->v.of;

	return n->comm.kind ? hd_comm_node_subject_name(n) : of ? of->name : "the factor of clipping";
}

static int64_t sent_by(const struct hd_plan *p, const struct node *n, int64_t rank)
{
	return n->comm.kind ? hd_comm_node_sent(p, n, rank) : hd_local_bytes(n->ins[0]);
}

static json_t *line_json(struct hd_plan *p, const struct node *n, int64_t rank, int64_t count)
{
	const char *unit = n->v.block[0] ? hd_plan_text(p, "%s %s", hd_unit_name(n->v.phase), n->v.block)
					 : hd_unit_name(n->v.phase);
	uint32_t dtype = n->comm.kind && n->comm.wire ? n->comm.wire : n->ins[0]->v.dtype;
	json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:s, s:s}", "axis", along(n), "collective",
			      collective(n), "tensor", subject_name(n), "dims", n->ins[0]->v.spec, "dtype",
			      hd_dtype_name(dtype), "elements", (json_int_t)hd_local_count(n->ins[0]), "bytes",
			      (json_int_t)sent_by(p, n, rank), "count", (json_int_t)count, "unit", unit, "reason",
			      n->reason ? n->reason : "");

	if (n->comm.kind && hd_comm_node_largest(n) != hd_comm_node_bytes(n))
		json_object_set_new(o, "largest", json_integer((json_int_t)hd_comm_node_largest(n)));
	return o;
}

/* Returns the bytes that a rank sends, as text. A receiver sends nothing: for it, unless exact, they are the bytes
 * received. */
static char *bytes_text(const struct hd_plan *p, const struct node *n, int64_t rank, int exact)
{
	int64_t sent = sent_by(p, n, rank);

	if (exact)
		return hd_format("%12lld bytes", (long long)sent);
	if (n->comm.kind == HD_COMM_RECV)
		return hd_format("%12s", hd_human_bytes((double)hd_local_bytes(n->outs[0])).text);
	return hd_format("%12s", hd_human_bytes((double)sent).text);
}

static void add_line(struct hd_fold *f, const struct hd_plan *p, const struct node *n, int64_t rank, int64_t count,
		     int exact)
{
	char *bytes = bytes_text(p, n, rank, exact), *text = NULL;

	hd_append(&text, " %-8s %-14s %s x%-4lld %s (%s)\n%20s%s\n", along(n), collective(n), bytes, (long long)count,
		  subject_name(n), (n->comm.kind ? hd_comm_node_subject(n) : n->ins[0])->v.spec, "",
		  n->reason ? n->reason : "");
	if (n->comm.kind && hd_comm_node_largest(n) != hd_comm_node_bytes(n))
		hd_append(&text, "%20sif experts are chosen equally; at most %lld bytes\n", "",
			  (long long)hd_comm_node_largest(n));
	hd_fold_add(f, hd_unit_name(n->v.phase), n->v.block, hd_format("%-15s ", hd_unit_name(n->v.phase)), text);
	free(bytes);
}

/* Prints the name of a tensor, or its number if it has none, so that a reader can find where it is used. */
static void print_tensor(const struct tensor *t)
{
	if (t->v.name[0])
		printf("%s(%s)", t->v.name, t->v.spec);
	else
		printf("#%d(%s)", t->id, t->v.spec);
}

/* Prints the nodes of the rank of g, or of all ranks if g is NULL. */
static void print_nodes(struct hd_plan *p, const struct hd_program *g)
{
	printf("plan %016llx\n", (unsigned long long)p->hash);
	for (const struct node *n = p->first; n; n = n->next) {
		if (g && !hd_node_here(g, n))
			continue;
		printf("%-15s %-10s %s", hd_unit_name(n->v.phase), n->v.block, n->v.op->name);
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
			printf(" %s%s", hd_placement_text(p, &n->outs[k]->at),
			       n->outs[k]->v.space == HD_SPACE_HOST ? ", in host memory" : "");
		}
		printf(n->made_by >= 0 ? "; made by %s\n" : "\n", n->made_by >= 0 ? p->inst[n->made_by].name : "");
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

static int is_pass(const char *name)
{
	for (size_t i = 0; hd_plan_pass(i); i++)
		if (!strcmp(hd_plan_pass(i), name))
			return 1;
	return 0;
}

static int list_passes(const char *asked, struct hd_err *err)
{
	if (strcmp(asked, "list"))
		return hd_err_set(err, HD_EINVAL, "--after %s: there is no such pass (--after list prints their names)",
				  asked);
	for (size_t i = 0; hd_plan_pass(i); i++)
		puts(hd_plan_pass(i));
	return HD_OK;
}

/* Options that print programs, which a plan after a pass does not have yet. */
static const char *const of_programs[] = { "json", "schedule", "rank", "saved", "kept", "work" };

/* Refuses combinations of options of which only the first would take effect. */
static int check_views(const struct hd_cli *c, struct hd_err *err)
{
	static const char *const tables[] = { "saved", "kept", "work" }, *const others[] = { "work", "schedule",
											     "nodes", "all" };
	const char *after = hd_cli_str(c, "after", NULL);

	for (size_t i = 0; after && i < HD_LEN(of_programs); i++)
		if (hd_cli_has(c, of_programs[i]))
			return hd_err_set(
				err, HD_EINVAL,
				"explain: --after prints the nodes of a plan and cannot be combined with --%s",
				of_programs[i]);
	for (size_t i = 0; i < HD_LEN(tables); i++)
		for (size_t k = 0; hd_cli_has(c, tables[i]) && k < HD_LEN(others); k++)
			if (strcmp(tables[i], others[k]) && hd_cli_has(c, others[k]))
				return hd_err_set(err, HD_EINVAL, "explain: --%s and --%s: give one of the two",
						  tables[i], others[k]);
	if (hd_cli_has(c, "json") && (hd_cli_has(c, "schedule") || hd_cli_has(c, "nodes")))
		hd_log(HD_LOG_WARN, "explain: --%s does nothing with --json, which lists movements",
		       hd_cli_has(c, "schedule") ? "schedule" : "nodes");
	if (hd_cli_has(c, "times") && !hd_cli_has(c, "schedule"))
		return hd_err_set(err, HD_EINVAL, "explain: --times needs --schedule");
	return HD_OK;
}

static int explain(struct hd_cli *c, struct hd_conf **conf, struct hd_plan **out, struct hd_err *err)
{
	struct hd_plan *p;
	struct hd_program *g;
	json_t *all;
	struct hd_fold lines = { .n = 0 };
	int64_t rank = 0, node = 0;
	int json = hd_cli_has(c, "json"), exact = hd_cli_has(c, "all") || hd_cli_has(c, "nodes"),
	    saved = hd_cli_has(c, "saved") || hd_cli_has(c, "kept");
	const char *after = hd_cli_str(c, "after", NULL);

	HD_TRY(check_views(c, err));
	if (after && (!strcmp(after, "list") || !is_pass(after)))
		return list_passes(after, err);
	HD_TRY(hd_cli_int(c, "ranks-per-node", 1, 10000000, 0, &node, err));
	HD_TRY(hd_cli_plan(c, node, conf, out, err));
	p = *out;
	if (after) {
		print_nodes(p, NULL);
		return HD_OK;
	}
	hd_warn_of_recompute(p);
	HD_TRY(hd_cli_int(c, "rank", 0, p->ranks - 1, 0, &rank, err));
	g = hd_cli_program(p, rank, err);
	if (!g)
		return err->code;
	if (saved || hd_cli_has(c, "work")) {
		saved ? hd_saved_print(g, json) : hd_work_print(p, g, json);
		hd_program_destroy(g);
		return HD_OK;
	}
	if (!json)
		hd_mesh_print(p);
	if (hd_cli_has(c, "schedule") && !json && draw(c, p, err) != HD_OK) {
		hd_program_destroy(g);
		return err->code;
	}
	if (hd_cli_has(c, "nodes") && !json)
		print_nodes(p, g);
	all = json_array();
	for (const struct node *n = p->first; n && !(hd_cli_has(c, "schedule") && !json); n = n->next) {
		int64_t count = n->v.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W) ? p->micros : 1;

		if (!hd_node_moves(n) || !hd_node_here(g, n))
			continue;
		if (json)
			json_array_append_new(all, line_json(p, n, rank, count));
		else
			add_line(&lines, p, n, rank, count, exact);
	}
	hd_fold_print(&lines, !exact);
	if (json) {
		char *text = hd_json_line(all);

		puts(text);
		free(text);
	} else {
		json_decref(all);
	}
	hd_program_destroy(g);
	return HD_OK;
}

int hd_verb_explain(struct hd_cli *c)
{
	return hd_cli_run(c, explain);
}
