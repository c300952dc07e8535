/* SPDX-License-Identifier: Apache-2.0
 * Runs the worked examples at the head of the hard passes (place, reshard, lower, loss/once, loss/parts, alias,
 * timeline) and compares the result with the comment line by line.  If a pass changed but its example did not, its
 * readers would be misled.
 *
 * An example begins with " *   before:" and ends at the first line with less indentation.  Unnamed tensors get
 * letters, in the order in which the example shows them.
 */
#include <config.h>
#include "engine/base/parse.h"
#include "engine/graph/placement.h"
#include "engine/cli/work.h"
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"

#define PLUGIN(name) "plugin = " HD_TEST_BUILD "/plugins/" name "/.libs/" name ".so\nsize = 2\n"
#define MODEL(layers, more) \
	"[model]\nlayers = " layers "\nembed = 64\nheads = 4\nvocab = 128\n[data]\ntrain = none\n" \
	"[train]\nseq = 32\nsteps = 1\n" more
#define TP MODEL("1", "global_batch = 8\n") "[strategy shards]\n" PLUGIN("tp")
#define SEQUENCE TP "sequence_parallel = yes\n"
#define PP MODEL("2", "global_batch = 3\nmicro_batch = 1\n") "[strategy stages]\n" PLUGIN("pp") "schedule = 1f1b\n"

/* -- printing ------------------------------------------------------------------------------------------------------ */
static char *out;
static int seen[64]; /* ids of the unnamed tensors printed so far */
static size_t nseen;

static void begin(void)
{
	free(out);
	out = NULL;
	nseen = 0;
	hd_append(&out, "%s", "");
}

static const char *name(const struct tensor *t)
{
	static char text[8][120];
	static int next;
	size_t i = 0;

	if (t->v.name[0])
		return t->v.name;
	while (i < nseen && seen[i] != t->id)
		i++;
	if (i == nseen)
		seen[nseen++] = t->id;
	next = (next + 1) % 8;
	snprintf(text[next], sizeof(text[next]), "%c", (int)('a' + i % 26));
	return text[next];
}

static void print_node(const struct node *n)
{
	hd_append(&out, "%s", n->comm.kind ? hd_comm_kind_name(n->comm.kind) : n->v.op->name);
	if (n->comm.kind || n->is->role == OP_ROLE_RESHARD)
		hd_append(&out, " on %s", n->comm.kind ? n->comm.group->name : n->reshard.axis->name);
	for (uint32_t i = 0; i < n->v.nin; i++)
		hd_append(&out, "%s %s", i ? "," : "", name(n->ins[i]));
	hd_append(&out, " -> %s", name(n->outs[0]));
}

/* Returns whether a node is a forward node that reads the named tensor. */
static int is_first(const struct node *n, const char *reads)
{
	for (uint32_t i = 0; n->v.phase == HD_UNIT_F && i < n->v.nin; i++)
		if (!strcmp(n->ins[i]->v.name, reads))
			return 1;
	return 0;
}

static struct node *find(struct hd_plan *p, const char *reads)
{
	struct node *n = p->first;

	while (n && !is_first(n, reads))
		n = n->next;
	return n;
}

/* -- the planner's passes: nodes with the placements of their outputs ---------------------------------------------- */
static void print_placed(struct hd_plan *p, const char *reads, int skip, int count)
{
	struct node *n = find(p, reads);

	for (; n && skip; skip--)
		n = n->next;
	for (; n && count--; n = n->next) {
		print_node(n);
		hd_append(&out, ": %s\n", hd_placement_text(p, &n->outs[0]->at));
	}
}

static void after_pass(const char *ini, const char *pass, const char *reads, int skip, int count)
{
	struct hd_plan_options o = { .ranks = 2, .train = 1, .master_dtype = HD_DTYPE_F32, .after = pass };
	struct hd_conf *c = gt_conf(ini);
	struct hd_err err = { 0 };
	struct hd_plan *p = NULL;

	if (!c || hd_plan_create(c, &o, &p, &err) < 0) {
		hd_append(&out, "%s\n", err.text);
		hd_conf_destroy(c);
		return;
	}
	print_placed(p, reads, skip, count);
	gt_plan_destroy(p);
}

static void place(void)
{
	hd_append(&out, "before:\n");
	after_pass(TP, "slot-storage", "h.0.attn.proj.weight", 0, 3);
	hd_append(&out, "after:\n");
	after_pass(TP, "place", "h.0.attn.proj.weight", 0, 4);
}

/* -- reshard, on a graph built by hand ----------------------------------------------------------------------------- */
static void print_elements(struct hd_plan *p, const struct node *n, const struct tensor *t)
{
	int64_t k = 1;

	for (uint32_t i = 0; i < t->v.ndim; i++)
		k *= t->local[i];
	if (n)
		print_node(n);
	else
		hd_append(&out, "%s", name(t));
	hd_append(&out, ": %s; %lld elements\n", hd_placement_text(p, &t->at), (long long)k);
}

static void reshard(void)
{
	struct hd_plan *p = gt_plan(1);
	const struct hd_dim *batch = hd_dim_get(p, "batch", 8), *embed = hd_dim_get(p, "embed", 16);
	struct axis *tp = gt_axis(p, "shards", 2), *dp = gt_axis(p, "replicas", 2);
	struct tensor *x = gt_param(p, "", "batch,embed"), *y;
	struct placement need = { 0 };

	x->at.on[tp->id] = (struct hd_place){ .kind = HD_PLACE_PARTIAL, .red = HD_RED_SUM };
	x->at.on[dp->id] = (struct hd_place){ .kind = HD_PLACE_SHARD, .dim = batch };
	need.on[tp->id] = (struct hd_place){ .kind = HD_PLACE_SHARD, .dim = embed };
	hd_localize(p, x);
	x->placed = 1;
	hd_append(&out, "before:\n");
	print_elements(p, NULL, x);
	hd_append(&out, "needed: %s\n", hd_placement_text(p, &need));
	y = hd_reshard_to(p, x, &need, NULL);
	hd_append(&out, "after:\n");
	for (const struct node *n = p->first; n && y; n = n->next)
		if (n->is->role == OP_ROLE_RESHARD)
			print_elements(p, n, n->outs[0]);
	gt_plan_destroy(p);
}

static void lower(void)
{
	hd_append(&out, "before:\n");
	after_pass(PP, "toposort", "h.0.mlp.proj.bias", 1, 3);
	hd_append(&out, "after:\n");
	after_pass(PP, "lower", "h.0.mlp.proj.bias", 1, 4);
}

/* -- logits, once and in parts: the products of the head, and the nodes between them ------------------------------- */
static void print_head(const char *pass, const char *parts)
{
	struct hd_plan_options o = { .ranks = 1, .train = 1, .master_dtype = HD_DTYPE_F32, .after = pass };
	char *ini = hd_format(MODEL("1", "global_batch = 2\nmicro_batch = 2\nloss_parts = %s\n"), parts);
	struct hd_conf *c = gt_conf(ini);
	struct hd_err err = { 0 };
	struct hd_plan *p = NULL;

	free(ini);
	if (!c || hd_plan_create(c, &o, &p, &err) < 0) {
		hd_append(&out, "%s\n", err.text);
		return;
	}
	for (const struct node *n = p->first; n; n = n->next) {
		const char *op = n->v.op->name;

		if (strcmp(n->v.block, "head") ||
		    (strcmp(op, "einsum") && strcmp(op, "xent") && strcmp(op, "nll") && strcmp(op, "xent_d") &&
		     strcmp(op, "xent_combine") && strcmp(op, "xent_both") && strcmp(op, "chunk") &&
		     strcmp(op, "join") && strcmp(op, "sum")))
			continue;
		hd_append(&out, "%s ", n->v.phase & HD_UNIT_F ? "F" : n->v.phase & HD_UNIT_B ? "B" : "W");
		print_node(n);
		hd_append(&out, "\n");
	}
	gt_plan_destroy(p);
}

static void loss_once(void)
{
	hd_append(&out, "before:\n");
	print_head("fuse", "1");
	nseen = 0;
	hd_append(&out, "after:\n");
	print_head("loss-once", "1");
}

static void loss_parts(void)
{
	hd_append(&out, "before:\n");
	print_head("loss-once", "2");
	nseen = 0;
	hd_append(&out, "after:\n");
	print_head("loss-parts", "2");
}

/* -- the program's passes ------------------------------------------------------------------------------------------ */
static struct hd_program *program(const char *ini, int64_t rank, struct hd_plan **p)
{
	struct hd_program_options o = { .rank = rank, .device = hd_device_cpu() };
	struct hd_program *g = NULL;
	struct hd_err err = { 0 };

	*p = gt_plan_of(ini, 2, HD_DTYPE_F32);
	if (!*p || hd_program_build(*p, &o, &g, &err) < 0)
		hd_append(&out, "%s%s\n", gt_why(), err.text);
	return g;
}

static void alias(void)
{
	struct hd_plan *p;
	struct hd_program *g = program(TP, 0, &p);
	const struct node *n = g ? find(p, "h.0.attn.proj.weight") : NULL, *from = n;

	hd_append(&out, "before:\n");
	for (int k = 0; n && k < 3; k++, n = n->next) {
		print_node(n);
		hd_append(&out, "\n");
	}
	hd_append(&out, "after:\n");
	n = from;
	for (int k = 0; n && k < 3; k++, n = n->next) {
		const struct storage *s = &g->at[n->outs[0]->id];

		hd_append(&out, "%s: ", name(n->outs[0]));
		if (s->root == n->outs[0])
			hd_append(&out, "bytes of its own\n");
		else
			hd_append(&out, "the bytes of %s\n", name(s->root));
	}
	hd_program_destroy(g);
	if (p)
		gt_plan_destroy(p);
}

static const char *unit(const struct hd_schedule_unit *u)
{
	static char text[2][30];
	static int next;

	next = !next;
	if (u->micro == HD_STEP)
		snprintf(text[next], sizeof(text[next]), "%s", hd_unit_name(u->kind));
	else
		snprintf(text[next], sizeof(text[next]), "%c%d", u->kind == HD_UNIT_F ? 'F' : 'B', u->micro);
	return text[next];
}

/* Returns whether a node of the second stage is shown: the receive, its first reader, and the send back. */
static int shown(const struct hd_program *g, const struct node *n)
{
	const struct node *first = find(g->plan, "h.1.ln_1.weight");

	return n == first || (n && n == first->prev) ||
	       (n && n->comm.kind == HD_COMM_SEND && n->v.phase & HD_UNIT_B && hd_node_here(g, n));
}

static void timeline(void)
{
	struct hd_plan *p;
	struct hd_program *g = program(PP, 1, &p);

	hd_append(&out, "before:\n");
	for (size_t i = 0; g && i < g->nmine; i++)
		if (shown(g, g->mine[i])) {
			hd_append(&out, "%s ", g->mine[i]->v.phase == HD_UNIT_F ? "F" : "B");
			print_node(g->mine[i]);
			hd_append(&out, "\n");
		}
	hd_append(&out, "after:\n");
	for (size_t i = 0; g && i < g->n; i++) {
		const struct entry *e = &g->entries[i];

		if (e->type != HD_ENTRY_NODE || !shown(g, e->node))
			continue;
		hd_append(&out, "%s ", unit(&e->unit));
		print_node(e->node);
		if (e->micro != e->unit.micro)
			hd_append(&out, " of micro-batch %d", e->micro);
		if (e->wait >= (int64_t)g->n)
			hd_append(&out, ", waited for at the end");
		else if (e->wait >= 0)
			hd_append(&out, ", waited for in %s", unit(&g->entries[e->wait].unit));
		hd_append(&out, "\n");
	}
	hd_program_destroy(g);
	if (p)
		gt_plan_destroy(p);
}

/* -- the comments -------------------------------------------------------------------------------------------------- */
/* Returns the example in a file, without its indentation; the caller frees it. */
static char *written(const char *path)
{
	char line[300], *text = NULL;
	FILE *f = fopen(path, "r");
	int on = 0;

	hd_append(&text, "%s", "");
	while (f && fgets(line, sizeof(line), f)) {
		on |= !strcmp(line, " *   before:\n");
		if (on && strncmp(line, " *   ", 5))
			break;
		if (on)
			hd_append(&text, "%s", line + (strncmp(line, " *     ", 7) ? 5 : 7));
	}
	if (f)
		fclose(f);
	return text;
}

int main(void)
{
	static const struct {
		const char *file;
		void (*run)(void);
	} examples[] = { { "passes/place.c", place },           { "passes/reshard.c", reshard },
			 { "passes/lower.c", lower },           { "passes/loss/once.c", loss_once },
			 { "passes/loss/parts.c", loss_parts }, { "program/alias.c", alias },
			 { "program/timeline.c", timeline } };

	for (size_t i = 0; i < HD_LEN(examples); i++) {
		char path[500], *want;

		snprintf(path, sizeof(path), HD_TEST_SRC "/engine/%s", examples[i].file);
		want = written(path);
		begin();
		examples[i].run();
		is_str(out, want, examples[i].file);
		free(want);
	}
	free(out);
	return done();
}
