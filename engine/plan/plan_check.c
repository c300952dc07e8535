/* SPDX-License-Identifier: Apache-2.0
 * Errors that a plan may have although each of its steps was right, and layouts that nobody can have intended.
 */
#include <config.h>
#include "engine/graph/placement.h"
#include "engine/models/decoder/experts.h"
#include "engine/ops/build.h"
#include "engine/plan/plan_impl.h"
#include <string.h>

static const char *maker(const struct hd_plan *p, const struct node *n)
{
	return n->made_by >= 0 ? p->inst[n->made_by].name : "the engine";
}

static int is_between_stages(const struct hd_plan *p, const struct node *n)
{
	for (uint32_t i = 0; n->comm.kind && i < n->comm.group->n; i++)
		if (n->comm.group->axes[i] == p->stages)
			return 1;
	return 0;
}

/* Checks that the operands of a unit's node are on its block's stage.  On a different stage, an operand would be read
 * where it is not.  A rank that does not have the tensor would send it, and the other ranks would wait forever. */
static int check_unit_stage(struct hd_plan *p, const struct node *n)
{
	int64_t here = hd_node_stage(p, n);

	for (uint32_t i = 0; i < n->v.nin && here >= 0; i++) {
		const struct hd_place *w = &n->ins[i]->at.on[p->stages->id];

		if (w->kind == HD_PLACE_PINNED && w->index != here)
			return hd_plan_fail(
				p, HD_EINVAL,
				"[strategy %s]: %s of %s runs on stage %lld, but its operand (%s) is on stage %d. "
				"Set the cursor at the node that made it",
				maker(p, n), n->v.op->name, n->v.block, (long long)here, n->ins[i]->v.spec, w->index);
	}
	return HD_OK;
}

/* Checks that no node joins two stages.  A node runs where all its inputs are, so it could run on neither. */
int hd_check_stages(struct hd_plan *p)
{
	for (struct node *n = p->first; p->stages && n; n = n->next) {
		int64_t at = -1;

		if (n->block >= 0 && n->v.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W) && !is_between_stages(p, n))
			HD_TRY(check_unit_stage(p, n));
		for (uint32_t i = 0; i < n->v.nin && n->is->role != OP_ROLE_NORM2; i++) {
			const struct hd_place *w = &n->ins[i]->at.on[p->stages->id];

			if (w->kind == HD_PLACE_PINNED && at >= 0 && w->index != at)
				return hd_plan_fail(p, HD_EINVAL,
						    "%s (made by %s) joins tensors of stages %lld and %d: %s (%s)",
						    n->v.op->name,
						    n->inst >= 0 ? p->inst[n->inst].name : "the engine or a lowering",
						    (long long)at, w->index, n->ins[i]->v.name, n->ins[i]->v.spec);
			at = w->kind == HD_PLACE_PINNED ? w->index : at;
		}
	}
	return HD_OK;
}

/* Checks that a node that runs only in some steps is not read in others. */
int hd_check_periods(struct hd_plan *p)
{
	for (struct node *n = p->first; n; n = n->next)
		for (uint32_t i = 0; i < n->v.nin; i++) {
			const struct node *m = n->ins[i]->v.node ? N(n->ins[i]->v.node) : NULL;

			p->about = m;
			if (m && m->period && (!n->period || n->period % m->period))
				return hd_plan_fail(
					p, HD_EINVAL,
					"every: %s (made by %s) runs every %lld steps, but reads %s of (%s), which "
					"runs only every %lld steps",
					n->v.op->name, n->made_by >= 0 ? p->inst[n->made_by].name : "the engine",
					(long long)(n->period ? n->period : 1), m->v.op->name, n->ins[i]->v.spec,
					(long long)m->period);
		}
	return HD_OK;
}

static const struct tensor *leaf_that_takes(const struct hd_plan *p, const struct tensor *value)
{
	for (size_t i = 0; value->assigned && i < p->ntensors; i++)
		if (p->tensors[i]->assign == value)
			return p->tensors[i];
	return NULL;
}

/* Checks that no leaf changes before the norm is known.  The update begins with the first leaf that changes, and only
 * if the norm is finite.  A leaf that changes earlier would stay changed.  A rank with such a leaf would also reach the
 * norm later than one without. */
int hd_check_norm_first(struct hd_plan *p)
{
	const struct hd_node *norm = p->norm ? p->norm->v.node : NULL;

	for (const struct node *n = p->first; norm && n && &n->v != norm; n = n->next)
		for (uint32_t k = 0; k < n->v.nout && n->v.phase == HD_UNIT_U; k++) {
			const struct tensor *leaf = leaf_that_takes(p, n->outs[k]);

			p->about = n;
			if (leaf)
				return hd_plan_fail(p, HD_EINVAL,
						    "assign: the value of %s is made before the norm is known: set the "
						    "cursor at a node of kind update",
						    leaf->v.name);
		}
	return HD_OK;
}

/* Marks updates, and all nodes that need their results, even those on a different rank (pushes to servers, pulls by
 * workers).  If a rank waited for one of these before it checks the norm, it could wait forever: the others may find
 * that the update is skipped. */
int hd_mark_update(struct hd_plan *p)
{
	for (struct node *n = p->first; n; n = n->next) {
		n->in_update =
			n->is->role == OP_ROLE_UPDATE || (n->comm.kind == HD_COMM_PULL && n->v.phase == HD_UNIT_U);
		for (uint32_t i = 0; i < n->v.nin && n->v.phase == HD_UNIT_U; i++)
			n->in_update |= n->ins[i]->v.node && N(n->ins[i]->v.node)->in_update;
	}
	return HD_OK;
}

/* Checks that only updates, and the transfers of their operands and results, use host memory. */
int hd_check_spaces(struct hd_plan *p)
{
	for (const struct node *n = p->first; n && p->own_memory; n = n->next) {
		int host = 0, device = 0;

		/* Its second input only says where the update runs, and is not read. */
		for (uint32_t i = 0; i < n->v.nin + n->v.nout && n->is->role != OP_ROLE_TRANSFER; i++)
			if (n->is->role != OP_ROLE_SYNC || i != 1)
				(i < n->v.nin ? n->ins[i] : n->outs[i - n->v.nin])->v.space == HD_SPACE_HOST ? host++
													     : device++;
		p->about = n;
		if (host && (device || n->comm.kind))
			return hd_plan_fail(
				p, HD_ENOTSUP,
				"%s of (%s): %d of its tensors are in host memory, where only updates compute, but "
				"%d are not",
				n->v.op->name, n->v.nout ? n->outs[0]->spec : "", host, device);
	}
	return HD_OK;
}

/* Checks that the costs of a plugin's op can be added up: they are finite, and not negative. */
static int check_cost(struct hd_plan *p, const struct node *n)
{
	const char *const names[] = { "matmul_flops", "other_flops", "bytes" };
	struct hd_slot was = hd_slot_begin(p, n->inst, "cost");
	struct hd_cost c;

	hd_op_slot_returned(p, n->v.op, hd_node_cost(n, &c));
	for (size_t i = 0; i < HD_LEN(names); i++) {
		double x = i == 0 ? c.matmul_flops : i == 1 ? c.other_flops : c.bytes;

		if (!(x >= 0 && x < 1e30))
			hd_plan_fail(p, HD_EINVAL, "%s of (%s): %s is %g, not 0 to 1e30", n->v.op->name,
				     n->v.nout ? n->outs[0]->v.spec : "", names[i], x);
	}
	hd_slot_end(p, was);
	return p->err->code;
}

int hd_is_idle_axis(const struct hd_plan *p, int a)
{
	int used = p->axes[a]->v.n == 1 || p->stages == p->axes[a];

	for (size_t i = 0; i < p->ntensors && !used; i++)
		used = p->tensors[i]->at.on[a].kind != HD_PLACE_REPLICATED;
	return !used;
}

/* Warns of axes along which nothing is sharded.  Such a layout is correct, but wasteful, which cannot be intended.  A
 * rule for a dim that the model does not have is a usual cause.  A quiet plan is one of many: generation from a layout
 * that trains, for example, may leave an axis idle. */
static void warn_of_idle_axes(const struct hd_plan *p)
{
	for (int a = 0; a < p->naxes && !p->quiet; a++)
		if (hd_is_idle_axis(p, a))
			hd_log_once(
				HD_LOG_WARN,
				"[strategy %s] axis %s: nothing is sharded along it: its %lld members all compute the same",
				p->inst[p->axes[a]->inst].name, p->axes[a]->v.name, (long long)p->axes[a]->v.n);
}

/* -- values that differ between members ----------------------------------------------------------------------------- */
static uint32_t axes_of_group(const struct group *g)
{
	uint32_t axes = 0;

	for (uint32_t i = 0; g && i < g->n; i++)
		axes |= 1u << g->axes[i]->id;
	return axes;
}

/* Returns the axes along which a node's results differ between members, although their placement is replicated. */
static uint32_t differs_along(const struct hd_plan *p, const struct node *n, const uint32_t *differs)
{
	uint32_t axes = 0;

	for (uint32_t i = 0; i < n->v.nin; i++)
		axes |= differs[n->ins[i]->id];
	for (int a = 0; n->local && a < p->naxes; a++)
		axes |= (uint32_t)(n->ins[0]->at.on[a].kind == HD_PLACE_PARTIAL &&
				   n->outs[0]->at.on[a].kind == HD_PLACE_REPLICATED)
			<< a;
	return n->comm.kind && n->comm.kind != HD_COMM_SHIFT && n->comm.kind != HD_COMM_PERMUTE
		       ? axes & ~axes_of_group(n->comm.group)
		       : axes;
}

/* Returns whether a state is 0 in all steps.  A state that begins as another value is a legal constant of the plugin.
 * One that begins as 0 stays 0.  Plugins of any minor version may have one, so the layout is not refused. */
static int is_always_zero(const struct tensor *t)
{
	return t->v.what == HD_TENSOR_STATE && t->init == HD_INIT_ZERO && !t->assign;
}

const struct tensor *hd_constant_state(const struct hd_plan *p, int inst, int64_t *count)
{
	const struct tensor *first = NULL;
	uint32_t *reads = NULL;

	*count = 0;
	for (size_t k = 0; k < p->ntensors; k++) {
		const struct tensor *t = p->tensors[k];

		if (t->inst != inst + 1 || !is_always_zero(t))
			continue;
		/* It visits all nodes, and hardly any plugin has such a state. */
		reads = reads ? reads : hd_count_readers(p);
		if (!reads[t->id])
			continue;
		first = first ? first : t;
		++*count;
	}
	free(reads);
	return first;
}

void hd_warn_of_constant_states(const struct hd_plan *p)
{
	for (int i = 0; i < p->ninst && p->train; i++) {
		int64_t n;
		const struct tensor *first = hd_constant_state(p, i, &n);

		if (first)
			hd_log_once(HD_LOG_WARN,
				    "[%s %s] state %s of plugin %s is read but never assigned, so it is always 0%s",
				    hd_inst_section(&p->inst[i]), p->inst[i].name, first->v.name,
				    p->inst[i].plugin->name, n > 1 ? "; there are others" : "");
	}
}

/* Returns whether a parameter gets no update.  An update assigns each parameter that has a gradient.  If a rewrite
 * loses one, the rest still trains, and the loss hardly shows it. */
static int is_untrained(const struct tensor *t)
{
	return t->v.what == HD_TENSOR_PARAM && !t->v.node && !t->source && !t->no_gradient && !t->assign;
}

void hd_warn_of_untrained(const struct hd_plan *p)
{
	const struct tensor *first = NULL;
	int64_t n = 0;

	for (size_t k = 0; k < p->ntensors && p->train; k++)
		if (is_untrained(p->tensors[k])) {
			first = first ? first : p->tensors[k];
			n++;
		}
	if (n == 1)
		hd_log_once(HD_LOG_WARN, "parameter %s gets no gradient, so it keeps its initial value", first->v.name);
	else if (n)
		hd_log_once(HD_LOG_WARN,
			    "parameter %s and %lld more get no gradient, so they keep their initial values",
			    first->v.name, (long long)n - 1);
}

/* Refuses a replicated state whose members are assigned different values: a checkpoint holds one value, so the others
 * would be lost. */
int hd_check_own_states(struct hd_plan *p)
{
	uint32_t *differs;

	if (!hd_plan_has_own_gradients(p))
		return HD_OK;
	differs = hd_plan_alloc(p, (p->ntensors + 1) * sizeof(*differs));
	for (size_t i = 0; i < p->ntensors; i++)
		differs[i] = p->tensors[i]->own;
	for (const struct node *n = p->first; n; n = n->next)
		for (uint32_t k = 0; k < n->v.nout; k++)
			differs[n->outs[k]->id] = differs_along(p, n, differs);
	for (size_t i = 0; i < p->ntensors; i++) {
		const struct tensor *t = p->tensors[i];
		uint32_t lost =
			t->assign && t->v.what == HD_TENSOR_STATE && t->inst > 0 ? differs[t->assign->id] & ~t->own : 0;

		for (int a = 0; lost && a < p->naxes; a++)
			if (lost >> a & 1 && t->at.on[a].kind == HD_PLACE_REPLICATED) {
				hd_plan_mistake(p, t->inst - 1);
				return hd_inst_fail(
					p, t->inst - 1, HD_EINVAL,
					hd_plan_text(
						p,
						"assign: the value of state %s differs between the members along %s "
						"(local), but a checkpoint stores one: own makes it each member's own",
						t->v.name, p->axes[a]->v.name));
			}
	}
	return HD_OK;
}

static int is_in_micro_batches(const struct node *n)
{
	return n->v.phase == HD_UNIT_F || n->v.phase == HD_UNIT_B || n->v.phase == HD_UNIT_W;
}

/* A state takes its value once a step.  If the value differs between micro-batches, only that of the last would
 * remain.  A program that is forward only gives states no values. */
int hd_check_summed_states(struct hd_plan *p)
{
	char *anew = hd_plan_alloc(p, p->ntensors + 1);

	if (!p->train || p->micros < 2)
		return HD_OK;
	for (size_t i = 0; i < p->ntensors; i++)
		anew[i] = p->tensors[i]->v.what == HD_TENSOR_DATA;
	for (const struct node *n = p->first; n; n = n->next)
		for (uint32_t i = 0; i < n->v.nin && n->is->role != OP_ROLE_ACCUMULATE && is_in_micro_batches(n); i++)
			for (uint32_t k = 0; k < n->v.nout; k++)
				anew[n->outs[k]->id] |= anew[n->ins[i]->id];
	for (size_t i = 0; i < p->ntensors; i++) {
		const struct tensor *t = p->tensors[i];

		if (t->assign && t->v.what == HD_TENSOR_STATE && t->inst > 0 && anew[t->assign->id])
			return hd_inst_fail(
				p, t->inst - 1, HD_EINVAL,
				hd_plan_text(
					p,
					"assign: each of the %lld micro-batches computes a different value for state "
					"%s, but only the last would be kept: use one micro-batch a step",
					(long long)p->micros, t->v.name));
	}
	return HD_OK;
}

static int is_kind(const struct hd_plan *p, const char *kind)
{
	const struct node *n = p->first;

	while (n && strcmp(n->v.kind, kind))
		n = n->next;
	return n || hd_op_find(kind);
}

/* Returns whether the model has nodes of the rule's kind, and the op of each says that the dim cannot be sharded. */
static int is_refused(const struct hd_plan *p, const struct rule *r)
{
	int refused = 0;

	for (const struct node *n = p->first; n; n = n->next)
		if (!strcmp(n->v.kind, r->kind)) {
			if (!hd_is_unshardable(n, r->dim))
				return 0;
			refused = 1;
		}
	return refused;
}

/* Warns of rules that can never apply, and so do nothing.  The layout still works, but not as intended. */
static void warn_of_idle_rules(const struct hd_plan *p)
{
	for (size_t i = 0; i < p->nrules; i++) {
		const struct rule *r = &p->rules[i];

		if (r->kind && !is_kind(p, r->kind))
			hd_log_once(HD_LOG_WARN,
				    "[strategy %s] rule: no op is of kind %s, so the rule for %s shards nothing",
				    p->inst[r->axis->inst].name, r->kind, r->dim->name);
		else if (r->kind && is_refused(p, r))
			hd_log_once(
				HD_LOG_WARN,
				"[strategy %s] rule: op %s cannot be sharded along %s, so the rule for it shards nothing",
				p->inst[r->axis->inst].name, r->kind, r->dim->name);
	}
}

int hd_check_placed(struct hd_plan *p)
{
	HD_TRY(hd_experts_check(p));
	for (const struct node *n = p->first; n; n = n->next) {
		HD_TRY(hd_attention_check(p, n));
		if (n->inst >= 0)
			HD_TRY(check_cost(p, n));
	}
	warn_of_idle_axes(p);
	warn_of_idle_rules(p);
	return HD_OK;
}
