/* SPDX-License-Identifier: Apache-2.0
 * Builds a plan: creates the model's graph, lets strategies take part slot by slot, places and lowers.
 * heddle/strategy.h has a drawing of the order of calls.
 */
#include <config.h>
#include "engine/graph/mesh.h"
#include "engine/base/hash.h"
#include "engine/host/host.h"
#include "engine/passes/loss/loss.h"
#include "engine/plan/plan_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- hash ------------------------------------------------------------------------------------------------------------------------------- */
void hd_plan_hash_op(struct hd_plan *p, const struct node *n, uint64_t *h)
{
	*h = hd_hash_add_field(*h, n->v.op->name);
	*h = hd_hash_add_field(*h, n->attr);
	if (n->only.group)
		*h = hd_hash_add_field(*h,
				       hd_plan_text(p, "%s %d %d", G(n->only.group)->name, n->only.from, n->only.to));
}

/* Mixes what the node computes into *h. */
static void hash_node(struct hd_plan *p, const struct node *n, uint64_t *h)
{
	char shape[32];

	hd_plan_hash_op(p, n, h);
	for (uint32_t i = 0; i < n->v.nin; i++) {
		snprintf(shape, sizeof(shape), "%d:%lld", n->ins[i]->id, (long long)hd_local_count(n->ins[i]));
		*h = hd_hash_add_field(*h, shape);
	}
}

static void hash_plan(struct hd_plan *p)
{
	p->hash = HD_HASH_START;
	for (const struct node *n = p->first; n; n = n->next)
		hash_node(p, n, &p->hash);
}

/* -- the passes --------------------------------------------------------------------------------------------------------------- */
static int model(struct hd_plan *p)
{
	return hd_model_graph(p, p->options->generate);
}

/* Counts the model's FLOPs before a layout repeats or a strategy splits any.  With backward, a product counts 3 times
 * (2 products in backward), an attention 3.5 times (5 products instead of 2). */
static void count_flops(struct hd_plan *p)
{
	struct hd_cost c;

	p->model_flops = 0;
	for (const struct node *n = p->first; n; n = n->next) {
		double times = !p->train ? 1 : n->is->role == OP_ROLE_ATTENTION ? 3.5 : 3;

		hd_node_cost(n, &c);
		p->model_flops += times * c.matmul_flops;
	}
}

static int slot_open(struct hd_plan *p)
{
	count_flops(p);
	hd_model_count_blocks(p);
	return hd_slot_open(p);
}

static int slot_rewrite(struct hd_plan *p)
{
	HD_TRY(hd_slot_rewrite(p));
	hd_find_reader_of_other_tokens(p);
	HD_TRY(hd_pass_toposort(p)); /* autodiff follows program order */
	return hd_pass_precision(p); /* for nodes that plugins added */
}

static int drop_dead(struct hd_plan *p)
{
	hd_drop_dead(p);
	return p->err->code;
}

/* Sets the stage of each node, for plugins that combine nodes. */
static void set_sites(struct hd_plan *p)
{
	for (struct node *n = p->first; n; n = n->next)
		n->v.stage = (uint32_t)(hd_node_stage(p, n) + 1);
}

static int slot_lower(struct hd_plan *p)
{
	set_sites(p);
	HD_TRY(hd_slot_lower(p));
	return drop_dead(p);
}

/* Checks that each node has kernels to record or is communication: any other would be missing when a run begins. */
static int check_recorded(struct hd_plan *p)
{
	const struct node *n = p->first;
	struct hd_slot was;

	while (n && (n->v.op->record || n->comm.kind))
		n = n->next;
	if (!n)
		return HD_OK;
	if (n->inst >= 0)
		hd_plan_mistake(p, n->inst);
	was = hd_slot_begin(p, n->inst, NULL);
	hd_plan_fail(p, HD_EINVAL, "op %s of (%s) has no record and was not lowered%s", n->v.op->name,
		     n->v.nout ? n->outs[0]->spec : "",
		     n->inst >= 0 ? ": it needs a slot record, or slot lower replaces it" : "");
	hd_slot_end(p, was);
	return p->err->code;
}

static int check(struct hd_plan *p)
{
	HD_TRY(hd_check_users(p));
	HD_TRY(hd_check_periods(p));
	HD_TRY(hd_check_norm_first(p));
	HD_TRY(hd_mark_update(p));
	HD_TRY(hd_check_spaces(p));
	HD_TRY(hd_check_members(p));
	HD_TRY(hd_check_own_states(p));
	HD_TRY(hd_check_summed_states(p));
	hd_warn_of_constant_states(p);
	hd_warn_of_untrained(p);
	HD_TRY(check_recorded(p));
	return hd_check_stages(p);
}

enum {
	GRAPH = 1, /* needs only a graph and its rules, no INI */
	TRAIN = 2, /* skipped in a plan that is forward only */
	RULES = 4, /* needed to find out which batch the rules ask for */
};
static const struct pass {
	const char *name;
	int (*run)(struct hd_plan *p);
	int flags;
} passes[] = {
	{ "model", model, RULES },
	{ "precision", hd_pass_precision, GRAPH | RULES },
	{ "cache", hd_pass_cache, GRAPH | RULES },
	{ "slot-open", slot_open, RULES },
	{ "slot-mesh", hd_slot_mesh, RULES },
	{ "slot-rewrite", slot_rewrite, RULES },
	{ "autodiff", hd_pass_autodiff, GRAPH | TRAIN },
	{ "slot-rules", hd_slot_rules, RULES },
	{ "decompose", hd_pass_decompose, GRAPH },
	{ "batch", hd_plan_batch, 0 },
	{ "schedule", hd_pass_schedule, GRAPH },
	{ "loss-gradient", hd_pass_loss_gradient, GRAPH | TRAIN },
	{ "recompute", hd_pass_recompute, GRAPH | TRAIN },
	{ "place-leaves", hd_pass_place_leaves, GRAPH },
	{ "slot-storage", hd_slot_storage, 0 },
	{ "offload", hd_pass_offload, GRAPH | TRAIN },
	{ "pulls", hd_pass_pulls, GRAPH | TRAIN },
	{ "place", hd_pass_place, GRAPH },
	{ "check-placed", hd_check_placed, 0 },
	{ "drop-dead", drop_dead, GRAPH },
	{ "slot-lower", slot_lower, 0 },
	{ "toposort", hd_pass_toposort, GRAPH },
	{ "lower", hd_pass_lower, GRAPH },
	{ "fuse", hd_pass_fuse, GRAPH },
	{ "loss-once", hd_pass_loss_once, GRAPH | TRAIN },
	{ "loss-parts", hd_pass_loss_parts, GRAPH },
	{ "overlap", hd_pass_overlap, GRAPH },
	{ "check", check, GRAPH },
};

const char *hd_plan_pass(size_t i)
{
	return i < HD_LEN(passes) ? passes[i].name : NULL;
}

static size_t pass_index(const char *name)
{
	size_t i = 0;

	while (i < HD_LEN(passes) && strcmp(passes[i].name, name))
		i++;
	return i;
}

/* Runs a pass with the cursor after all nodes, and restores the cursor. */
static int run_pass(struct hd_plan *p, const struct pass *pass)
{
	struct cursor was = p->cursor;
	int rc;

	p->cursor = hd_cursor_end(HD_UNIT_F, -1);
	rc = pass->run(p);
	p->cursor = was;
	p->about = NULL;
	return rc < 0 ? rc : p->err->code;
}

static int run_passes(struct hd_plan *p, size_t from, size_t to, int flags)
{
	for (size_t i = from; i <= to && i < HD_LEN(passes); i++) {
		if ((passes[i].flags & flags) != flags || (passes[i].flags & TRAIN && !p->train))
			continue;
		HD_TRY(run_pass(p, &passes[i]));
	}
	return HD_OK;
}

int hd_plan_run(struct hd_plan *p, const char *from, const char *to)
{
	size_t first = pass_index(from), last = pass_index(to);

	if (first >= HD_LEN(passes) || last >= HD_LEN(passes))
		return hd_plan_fail(p, HD_EBUG, "there is no pass %s", first < HD_LEN(passes) ? to : from);
	return run_passes(p, first, last, GRAPH);
}

void hd_plan_destroy(struct hd_plan *p)
{
	if (!p)
		return;
	for (int i = 0; i < p->ninst; i++)
		if (p->inst[i].open && p->inst[i].self && p->inst[i].plugin->ops->close) {
			struct hd_slot was = hd_slot_begin(p, i, "close");

			p->inst[i].plugin->ops->close(p->inst[i].self);
			hd_slot_end(p, was);
		}
	for (int64_t c = 0; c < p->ncoords; c++)
		free(p->units[c]);
	hd_schedule_report_release(&p->timing);
	free(p->dims), free(p->groups), free(p->rules), free(p->blocks), free(p->tensors), free(p->moe_stats),
		free(p->walks);
	hd_plan_free(p);
}

/* -- a plan ------------------------------------------------------------------------------------------------------------------ */
static struct hd_plan *new_plan(struct hd_conf *c, const struct hd_plan_options *o)
{
	struct hd_plan *p = hd_alloc(sizeof(*p));

	p->conf = c;
	p->options = o;
	p->err = &p->own;
	p->ranks = o->ranks;
	p->node_size = o->node_size;
	p->node_asked = o->node_asked;
	p->train = o->train;
	p->past = o->past;
	p->slot.inst = -1;
	p->host = &hd_host_table;
	p->cursor = hd_cursor_end(HD_UNIT_F, -1);
	p->chunks = 1;
	p->master_dtype = o->master_dtype ? o->master_dtype : HD_DTYPE_F32;
	p->compute_dtype = o->compute_dtype;
	p->gelu = o->gelu;
	p->no_multi_output_kernels = o->no_multi_output_kernels;
	p->own_memory = o->own_memory;
	p->undivided_logits = o->undivided_logits;
	p->separate_residual_adds = o->separate_residual_adds;
	p->separate_loss_gradient = o->separate_loss_gradient;
	p->quiet = o->quiet;
	return p;
}

static int failed(struct hd_plan *p, int rc, struct hd_err *err)
{
	if (rc >= 0 && !p->err->code)
		return 0;
	hd_host_messages(p);
	rc = p->err->code ? p->err->code : rc;
	if (p->err->code)
		hd_err_pass(err, p->err);
	else
		hd_err_set(err, rc, "the plan failed without a message");
	hd_plan_destroy(p);
	return 1;
}

static int build(struct hd_plan *p, const struct hd_step_batch *b, const char *last, int flags)
{
	int rc;

	if (p->past)
		p->model.step_seq = p->options->tokens;
	p->replicas = b->replicas;
	p->micro_batch = b->micro_batch;
	p->batch = b->replicas * b->micro_batch;
	rc = run_passes(p, 0, last ? pass_index(last) : HD_LEN(passes), flags);
	return rc;
}

/* Finds out which batch the rules ask for.  They can be evaluated only on a graph, and the graph needs the batch.  So
 * they are evaluated on the graph of a preliminary batch, which is then discarded. */
static int ask_rules(struct hd_conf *c, const struct hd_plan_options *o, struct hd_step_batch *b, struct hd_err *err)
{
	struct hd_plan *p = new_plan(c, o);
	int rc = hd_plan_conf(p);

	p->asking = 1;
	*b = (struct hd_step_batch){ 1, p->config.micro_batch ? p->config.micro_batch : 1 };
	if (rc >= 0)
		rc = build(p, b, "slot-rules", RULES);
	if (rc >= 0)
		rc = hd_batch_of_rules(p, b);
	if (failed(p, rc, err))
		return err->code;
	hd_plan_destroy(p);
	return HD_OK;
}

int hd_plan_create(struct hd_conf *c, const struct hd_plan_options *o, struct hd_plan **out, struct hd_err *err)
{
	struct hd_step_batch b;
	struct hd_plan *p;
	int rc;

	*out = NULL;
	if (o->after && pass_index(o->after) >= HD_LEN(passes))
		return hd_err_set(err, HD_EINVAL, "there is no pass %s", o->after);
	HD_TRY(ask_rules(c, o, &b, err));
	p = new_plan(c, o);
	rc = hd_plan_conf(p);
	if (rc >= 0)
		rc = build(p, &b, o->after, 0);
	if (failed(p, rc, err))
		return err->code;
	hash_plan(p);
	p->options = NULL;
	*out = p;
	return HD_OK;
}
