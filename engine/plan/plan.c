/* SPDX-License-Identifier: Apache-2.0
 * The way of a plan: read the INI, build the model's graph, let strategies take part slot by slot, place, lower.
 * The order of calls is the drawing in heddle/strategy.h.
 */
#include <config.h>
#include "engine/base/hash.h"
#include "engine/config/output_config.h"
#include "engine/plan/host_impl.h"
#include "engine/models/experts.h"
#include "engine/data/data.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct hd_option strategy_options[] = {
	{ "plugin", HD_OPT_STR, 0, NULL, NULL, "name of a plugin, or path of a .so" },
	{ "size", HD_OPT_STR, 0, "auto", NULL, "ranks on this axis; auto: what the other sections leave over" },
};

/* -- the INI ------------------------------------------------------------------------------------------------------------------ */
static const char *const sections[] = { "model", "data", "train", "checkpoint", "log", NULL };

/* NAME is the axis' in all output, NAME.row of a plugin with several, a+b of a group, and NAME.key of --set. */
static int check_name(struct hd_plan *p, struct hd_section *s)
{
	const char *name = hd_section_name(s);

	for (const char *c = name; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '_' && *c != '-')
			return hd_section_fail(p->conf, s, NULL, p->err, HD_EINVAL,
					       "a name has letters, digits, _ and -, not %c", *c);
	for (int i = 0; sections[i]; i++)
		if (!strcmp(name, sections[i]))
			return hd_section_fail(p->conf, s, NULL, p->err, HD_EINVAL,
					       "there is a section [%s]: --set %s.size would be "
					       "its key",
					       name, name);
	return HD_OK;
}

static int open_instance(struct hd_plan *p, struct hd_section *s)
{
	struct inst *in = &p->inst[p->ninst];
	struct hd_key_table tables[2] = { { strategy_options, HD_LEN(strategy_options), sizeof(strategy_options[0]) } };
	char dir[512];
	const char *slash;
	struct hd_plugin_entry *e = NULL;
	struct hd_err why = { 0 };

	if (p->ninst == HD_MAX_AXES)
		return hd_err_set(p->err, HD_EINVAL, "more than %d strategies", HD_MAX_AXES);
	HD_TRY(check_name(p, s));
	if (!hd_section_has(s, "plugin"))
		return hd_section_fail(p->conf, s, NULL, p->err, HD_EINVAL, "the key plugin must be given");
	slash = strrchr(hd_conf_path(p->conf), '/');
	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - hd_conf_path(p->conf)) : 1,
		 slash ? hd_conf_path(p->conf) : ".");
	if (hd_registry_find(hd_section_str(s, "plugin"), dir, &e, &why) < 0)
		return hd_section_fail(p->conf, s, "plugin", p->err, why.code, "%s", why.text);
	tables[1] = (struct hd_key_table){ e->ops->options, e->ops->noptions, e->ops->option_size };
	HD_TRY(hd_section_check(p->conf, s, tables, 2, p->err));
	*in = (struct inst){ .name = hd_section_name(s), .section = s, .plugin = e };
	p->ninst++;
	return HD_OK;
}

int hd_plan_sections(struct hd_conf *c, struct hd_err *err)
{
	static const char *const kinds[] = { "strategy", NULL };

	return hd_conf_known(c, sections, kinds, err);
}

static int read_conf(struct hd_plan *p)
{
	static const struct hd_key_table *const tables[] = { &hd_model_keys, &hd_data_keys, &hd_train_keys,
							     &hd_checkpoint_keys, &hd_log_keys };
	struct hd_checkpoint_config checkpoint;
	struct hd_log_config log;
	struct hd_section *s = NULL;

	HD_TRY(hd_plan_sections(p->conf, p->err));
	for (int i = 0; sections[i]; i++)
		HD_TRY(hd_section_check(p->conf, hd_conf_section(p->conf, NULL, sections[i]), tables[i], 1, p->err));
	HD_TRY(hd_train_config_read(p->conf, &p->config, p->err));
	HD_TRY(hd_checkpoint_config_read(p->conf, &checkpoint, p->err));
	HD_TRY(hd_log_config_read(p->conf, &log, p->err));
	while ((s = hd_conf_next(p->conf, "strategy", s)))
		HD_TRY(open_instance(p, s));
	return HD_OK;
}

/* -- mesh ------------------------------------------------------------------------------------------------------------------------ */
static int size_of(struct hd_plan *p, struct inst *in, int64_t *size)
{
	const char *v = hd_section_str(in->section, "size");
	char *end;

	*size = 0;
	if (!strcmp(v, "auto"))
		return HD_OK;
	*size = strtoll(v, &end, 10);
	if (*end || *size < 1)
		return hd_section_fail(p->conf, in->section, "size", p->err, HD_EINVAL,
				       "%s is not a number of ranks (1 or more, or auto)", v);
	return HD_OK;
}

static int mesh(struct hd_plan *p, int64_t *needs)
{
	int64_t size[HD_MAX_AXES], given = 1, total = 1;
	int automatic = -1;

	*needs = 0;
	for (int i = 0; i < p->ninst; i++) {
		HD_TRY(size_of(p, &p->inst[i], &size[i]));
		if (size[i])
			given *= size[i];
		else if (automatic >= 0)
			return hd_section_fail(p->conf, p->inst[i].section, "size", p->err, HD_EINVAL,
					       "auto, and so is that of [strategy %s]: at most one can be",
					       p->inst[automatic].name);
		else
			automatic = i;
	}
	if (automatic >= 0 && p->ranks % given) {
		*needs = given;
		return hd_section_fail(
			p->conf, p->inst[automatic].section, "size", p->err, HD_EDIVIDE,
			"auto: %lld rank%s cannot be shared out to the %lld that the other sections need",
			(long long)p->ranks, p->ranks == 1 ? "" : "s", (long long)given);
	}
	p->slot = "mesh";
	for (int i = 0; i < p->ninst; i++) {
		int64_t left = automatic == i ? p->ranks / given : size[i];

		p->cur = i;
		HD_TRY(hd_slot_returned(p, p->inst[i].plugin->ops->mesh
						   ? p->inst[i].plugin->ops->mesh(p->inst[i].self, p, size[i], left)
						   : hd_basic_mesh(p, left)));
	}
	p->cur = -1;
	for (int a = 0; a < p->naxes; a++)
		total *= p->axes[a]->v.n + p->axes[a]->v.spare;
	if (total != p->ranks) {
		*needs = total;
		return hd_err_set(p->err, HD_EINVAL, "%s: the layout needs %lld rank%s, and there %s %lld",
				  hd_conf_path(p->conf), (long long)total, total == 1 ? "" : "s",
				  p->ranks == 1 ? "is" : "are", (long long)p->ranks);
	}
	return HD_OK;
}

/* -- slots ------------------------------------------------------------------------------------------------------------------------- */
static int each(struct hd_plan *p, const char *name,
		int (*call)(const struct hd_strategy_ops *, struct hd_strategy *, struct hd_plan *))
{
	p->slot = name;
	for (int i = 0; i < p->ninst; i++) {
		p->cur = i;
		p->cursor = hd_cursor_end(HD_UNIT_F, -1);
		hd_slot_returned(p, call(p->inst[i].plugin->ops, p->inst[i].self, p));
		p->cur = -1;
		HD_TRY(p->err->code);
	}
	p->slot = NULL;
	p->nwalks = 0;
	return HD_OK;
}

static int call_open(const struct hd_strategy_ops *o, struct hd_strategy *s, struct hd_plan *p)
{
	int rc;

	(void)s;
	p->inst[p->cur].open = 1;
	rc = o->open ? o->open(p, &hd_host_table, &p->inst[p->cur].self) : hd_basic_open(p);
	return rc < 0 || p->inst[p->cur].self ? rc : hd_plan_fail(p, HD_EBUG, "slot open left *self NULL");
}
static int call_rewrite(const struct hd_strategy_ops *o, struct hd_strategy *s, struct hd_plan *p)
{
	return o->rewrite(s, p);
}
static int call_rules(const struct hd_strategy_ops *o, struct hd_strategy *s, struct hd_plan *p)
{
	return o->rules(s, p);
}
static int call_storage(const struct hd_strategy_ops *o, struct hd_strategy *s, struct hd_plan *p)
{
	return o->storage(s, p);
}
static int call_lower(const struct hd_strategy_ops *o, struct hd_strategy *s, struct hd_plan *p)
{
	return o->lower(s, p);
}

/* -- the model ------------------------------------------------------------------------------------------------------------------------ */
static void count_blocks(struct hd_plan *p)
{
	for (struct node *n = p->first; n; n = n->next) {
		struct hd_cost c = { .size = sizeof(c) };

		if (n->block < 0)
			continue;
		if (n->v.op->cost)
			n->v.op->cost(NULL, &n->v, &c);
		p->blocks[n->block].v.flops += c.matmul_flops + c.other_flops;
		p->blocks[n->block].v.boundary_bytes = hd_local_bytes(n->outs[0]);
		for (uint32_t i = 0; i < n->v.nin; i++)
			if (n->ins[i]->v.what == HD_TENSOR_PARAM && !n->ins[i]->placed) {
				p->blocks[n->block].v.param_bytes += hd_local_bytes(n->ins[i]);
				n->ins[i]->placed = 1; /* counted; placement comes later */
			}
	}
	for (size_t i = 0; i < p->ntensors; i++)
		p->tensors[i]->placed = 0;
}

static int build_model(struct hd_plan *p, const struct hd_plan_options *o)
{
	struct tensor *h, *stats[2], *ins[5];
	struct node *x;

	p->ids = hd_leaf(p, "ids", HD_TENSOR_DATA, HD_DTYPE_I32, "batch,seq");
	h = p->model.family->hidden(p, p->ids);
	if (o->generate) {
		h = hd_op1(p, "select", &h, 1, "%s", "");
		p->logits = p->model.family->logits(p, h);
		return p->err->code;
	}
	h = p->model.family->logits(p, h);
	p->targets = hd_leaf(p, "targets", HD_TENSOR_DATA, HD_DTYPE_I32, "batch,seq");
	stats[0] = h, stats[1] = p->targets;
	x = hd_node_make(p, "xent", stats, 2, "%s", "");
	if (!x)
		return p->err->code;
	ins[0] = x->outs[0], ins[1] = x->outs[0], ins[2] = x->outs[1];
	ins[1] = hd_op1(p, "xent_combine", ins, 3, "%s", "");
	ins[2] = x->outs[2], ins[3] = h, ins[4] = p->targets;
	p->nll = hd_op1(p, "nll", ins, 5, "%s", "");
	p->loss = p->nll ? hd_op1(p, "sum", &p->nll, 1, "out=") : NULL;
	return p->err->code;
}

static int make_dims(struct hd_plan *p)
{
	const struct hd_model *m = &p->model;

	hd_dim_get(p, "batch", p->micro_batch ? p->micro_batch : 1);
	hd_dim_get(p, "seq", m->seq);
	hd_dim_get(p, "position", m->max_seq);
	hd_dim_get(p, "embed", m->embed);
	hd_dim_get(p, "heads", m->heads);
	hd_dim_get(p, "kv_heads", m->kv_heads);
	hd_dim_get(p, "head_dim", m->head_dim);
	hd_dim_get(p, "mlp", m->mlp);
	hd_dim_get(p, "vocab", m->vocab);
	hd_experts_dims(p);
	return p->err->code;
}

/* -- batch ------------------------------------------------------------------------------------------------------------------------------ */
static int64_t cuts_of_batch(const struct hd_plan *p, int inside)
{
	int64_t n = 1;
	uint32_t seen = 0;

	for (size_t i = 0; i < p->nrules; i++) {
		const struct rule *r = &p->rules[i];

		if (strcmp(r->dim->name, "batch") || r->flags & HD_RULE_KEEP_REPLICATED ||
		    !(r->flags & HD_RULE_INSIDE) != !inside || seen >> r->axis->id & 1)
			continue;
		seen |= 1u << r->axis->id;
		n *= r->axis->v.n;
	}
	return n;
}

/* Every size of the ramp must divide, and have an order of its units. */
static int check_ramp(struct hd_plan *p, const struct hd_ramp *r)
{
	for (int64_t k = 0; k < r->steps; k++) {
		int64_t size = hd_ramp_size(r, k);

		if (size % (p->micro_batch * p->replicas))
			return hd_train_fail(
				p->conf, &p->config, "global_batch_ramp", p->err, HD_EDIVIDE,
				"step %lld of the ramp, %lld sequences, is not a multiple of micro_batch %lld x %lld "
				"replicas",
				(long long)k + 1, (long long)size, (long long)p->micro_batch, (long long)p->replicas);
		if (!p->train)
			continue;
		p->micros = size / (p->micro_batch * p->replicas);
		if (hd_pass_schedule(p) < 0) {
			const char *why = hd_plan_text(p, "%s", p->err->text);

			p->err->code = 0; /* said anew, with the step */
			return hd_train_fail(p->conf, &p->config, "global_batch_ramp", p->err, HD_EDIVIDE,
					     "step %lld of the ramp, %lld sequences: %s", (long long)k + 1,
					     (long long)size, why);
		}
		hd_schedule_report_release(&p->timing);
	}
	return HD_OK;
}

static int fits(const struct hd_plan *p, const struct hd_ramp *ramp, int64_t global, int64_t micro_batch)
{
	int64_t n = micro_batch * p->replicas;

	return global % n == 0 && (!ramp->steps || (ramp->start % n == 0 && ramp->step % n == 0));
}

/* The largest up to 8 that divides, of those that axes which cut it inside can cut, if there is one. */
static int64_t default_micro_batch(const struct hd_plan *p, const struct hd_ramp *ramp, int64_t global)
{
	int64_t unit = cuts_of_batch(p, 1);

	for (int64_t k = unit > 8 ? unit : 8 / unit * unit; k >= unit; k -= unit)
		if (fits(p, ramp, global, k))
			return k;
	for (int64_t k = 8; k >= 1; k--)
		if (fits(p, ramp, global, k))
			return k;
	return 0;
}

static int batches(struct hd_plan *p, const struct hd_plan_options *o)
{
	struct dim *d = D(hd_dim_get(p, "batch", 0));
	const struct hd_ramp *ramp = &p->config.batch;
	int64_t global = ramp->full;

	p->replicas = cuts_of_batch(p, 0);
	p->micro_batch = p->config.micro_batch ? p->config.micro_batch : default_micro_batch(p, ramp, global);
	if (!p->micro_batch && ramp->steps)
		p->micro_batch = 1;
	if (!p->micro_batch || global % (p->micro_batch * p->replicas))
		return hd_train_fail(p->conf, &p->config, "global_batch", p->err, HD_EDIVIDE,
				     "%lld is not a multiple of micro_batch %lld x %lld replicas", (long long)global,
				     (long long)(p->micro_batch ? p->micro_batch : 1), (long long)p->replicas);
	HD_TRY(check_ramp(p, ramp));
	if (o->global_batch)
		global = o->global_batch;
	if (o->generate)
		p->micro_batch = cuts_of_batch(p, 1);
	p->micros = o->train ? global / (p->micro_batch * p->replicas) : 1;
	p->batch = p->micro_batch * p->replicas;
	d->v.n = d->padded = p->batch;
	return HD_OK;
}

/* -- hash ------------------------------------------------------------------------------------------------------------------------------- */
static void mix(uint64_t *h, const char *s)
{
	*h = hd_hash_add(hd_hash_add_text(*h, s), 0xff);
}

static void hash_plan(struct hd_plan *p)
{
	p->hash = HD_HASH_START;
	for (struct node *n = p->first; n; n = n->next) {
		char shape[32];

		mix(&p->hash, n->v.op->name);
		mix(&p->hash, n->attr);
		if (n->only.group)
			mix(&p->hash, hd_plan_text(p, "%s %d %d", G(n->only.group)->name, n->only.from, n->only.to));
		for (uint32_t i = 0; i < n->v.nin; i++) {
			snprintf(shape, sizeof(shape), "%d:%lld", n->ins[i]->id, (long long)hd_local_count(n->ins[i]));
			mix(&p->hash, shape);
		}
	}
}

/* -- sites ------------------------------------------------------------------------------------------------------------------------------ */
static void set_sites(struct hd_plan *p)
{
	for (struct node *n = p->first; n; n = n->next)
		n->v.stage = (uint32_t)(hd_node_stage(p, n) + 1);
}

/* A node runs where all its inputs are, so two of them on two stages would be a node that runs nowhere right. */
static int check_sites(struct hd_plan *p)
{
	for (struct node *n = p->first; p->stages && n; n = n->next) {
		int64_t at = -1;

		for (uint32_t i = 0; i < n->v.nin && n->is->role != ROLE_NORM2; i++) {
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

/* Correct, and a waste that nobody can have meant: a rule for a dim that the model has not looks like this. */
static void warn_of_idle_axes(const struct hd_plan *p)
{
	for (int a = 0; a < p->naxes; a++) {
		int used = p->axes[a]->v.n == 1 || p->stages == p->axes[a];

		for (size_t i = 0; i < p->ntensors && !used; i++)
			used = p->tensors[i]->at.on[a].kind != HD_PLACE_REPLICATED;
		if (!used)
			hd_log(HD_LOG_WARN,
			       "[strategy %s] axis %s: nothing is sharded along it: its %lld members all compute the same",
			       p->inst[p->axes[a]->inst].name, p->axes[a]->v.name, (long long)p->axes[a]->v.n);
	}
}

static int is_kind(const struct hd_plan *p, const char *kind)
{
	const struct node *n = p->first;

	while (n && strcmp(n->v.kind, kind))
		n = n->next;
	return n || hd_op_find(kind);
}

/* A rule for a kind that no op has does nothing, and the layout works all the same, in another way than was meant. */
static void warn_of_strange_kinds(const struct hd_plan *p)
{
	for (size_t i = 0; i < p->nrules; i++)
		if (p->rules[i].kind && !is_kind(p, p->rules[i].kind))
			hd_log(HD_LOG_WARN,
			       "[strategy %s] rule: no op is of kind %s, so the rule for %s shards nothing",
			       p->inst[p->rules[i].axis->inst].name, p->rules[i].kind, p->rules[i].dim->name);
}

/* -- the passes --------------------------------------------------------------------------------------------------------------- */
static int model(struct hd_plan *p)
{
	p->micro_batch = p->config.micro_batch;
	if (p->options->generate) /* a text has no group: every token gets what it chose */
		p->model.capacity_factor = 0, p->model.group_tokens = p->model.seq;
	HD_TRY(make_dims(p));
	return build_model(p, p->options);
}

static int slot_open(struct hd_plan *p)
{
	count_blocks(p);
	return each(p, "open", call_open);
}

static int slot_mesh(struct hd_plan *p)
{
	int64_t needs;

	return mesh(p, p->options->needs ? p->options->needs : &needs);
}

static int slot_rewrite(struct hd_plan *p)
{
	HD_TRY(each(p, "rewrite", call_rewrite));
	return hd_pass_precision(p); /* of what plugins have put there */
}

static int slot_rules(struct hd_plan *p)
{
	return each(p, "rules", call_rules);
}
static int batch(struct hd_plan *p)
{
	return batches(p, p->options);
}
static int slot_storage(struct hd_plan *p)
{
	return each(p, "storage", call_storage);
}

static int check_placed(struct hd_plan *p)
{
	HD_TRY(hd_experts_check(p));
	warn_of_idle_axes(p);
	warn_of_strange_kinds(p);
	return HD_OK;
}

static int drop_dead(struct hd_plan *p)
{
	hd_drop_dead(p);
	return p->err->code;
}

static int slot_lower(struct hd_plan *p)
{
	set_sites(p);
	HD_TRY(each(p, "lower", call_lower));
	return drop_dead(p);
}

static int check(struct hd_plan *p)
{
	HD_TRY(hd_check_users(p));
	HD_TRY(hd_check_members(p));
	return check_sites(p);
}

enum {
	GRAPH = 1, /* needs a graph and its rules, and nothing of an INI */
	TRAIN = 2, /* not of a plan that is forward only */
};
static const struct pass {
	const char *name;
	int (*run)(struct hd_plan *p);
	int flags;
} passes[] = {
	{ "model", model, 0 },
	{ "precision", hd_pass_precision, GRAPH },
	{ "slot-open", slot_open, 0 },
	{ "slot-mesh", slot_mesh, 0 },
	{ "slot-rewrite", slot_rewrite, 0 },
	{ "autodiff", hd_pass_autodiff, GRAPH | TRAIN },
	{ "slot-rules", slot_rules, 0 },
	{ "decompose", hd_pass_decompose, GRAPH },
	{ "batch", batch, 0 },
	{ "schedule", hd_pass_schedule, GRAPH },
	{ "recompute", hd_pass_recompute, GRAPH | TRAIN },
	{ "place-leaves", hd_pass_place_leaves, GRAPH },
	{ "slot-storage", slot_storage, 0 },
	{ "place", hd_pass_place, GRAPH },
	{ "check-placed", check_placed, 0 },
	{ "drop-dead", drop_dead, GRAPH },
	{ "slot-lower", slot_lower, 0 },
	{ "toposort", hd_pass_toposort, GRAPH },
	{ "lower", hd_pass_lower, GRAPH },
	{ "fuse", hd_pass_fuse, GRAPH },
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

/* Each begins with the cursor behind all nodes, and leaves it to the next as it was. */
static int run_pass(struct hd_plan *p, const struct pass *pass)
{
	struct hd_cursor was = p->cursor;
	int rc;

	p->cursor = hd_cursor_end(HD_UNIT_F, -1);
	rc = pass->run(p);
	p->cursor = was;
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
		return hd_plan_fail(p, HD_EBUG, "no pass is called %s", first < HD_LEN(passes) ? to : from);
	return run_passes(p, first, last, GRAPH);
}

static int build(struct hd_plan *p, const struct hd_plan_options *o)
{
	size_t last = o->after ? pass_index(o->after) : HD_LEN(passes) - 1;

	if (last >= HD_LEN(passes))
		return hd_err_set(p->err, HD_EINVAL, "no pass is called %s", o->after);
	p->options = o;
	HD_TRY(read_conf(p));
	HD_TRY(hd_model_read(p->conf, o->data_vocab, &p->model, p->err));
	HD_TRY(run_passes(p, 0, last, 0));
	hash_plan(p);
	p->options = NULL;
	return p->err->code;
}

void hd_plan_destroy(struct hd_plan *p)
{
	if (!p)
		return;
	for (int i = 0; i < p->ninst; i++)
		if (p->inst[i].open && p->inst[i].self && p->inst[i].plugin->ops->close)
			p->inst[i].plugin->ops->close(p->inst[i].self);
	for (int64_t c = 0; c < p->ncoords; c++)
		free(p->units[c]);
	hd_schedule_report_release(&p->timing);
	free(p->dims), free(p->groups), free(p->rules), free(p->blocks), free(p->tensors), free(p->moe_stats),
		free(p->walks);
	hd_plan_free(p);
}

int hd_plan_create(struct hd_conf *c, const struct hd_plan_options *o, struct hd_plan **out, struct hd_err *err)
{
	struct hd_plan *p = hd_alloc(sizeof(*p));
	int rc;

	*out = NULL;
	p->conf = c;
	p->err = &p->own;
	p->ranks = o->ranks;
	p->node_size = o->node_size;
	p->train = o->train;
	p->cur = -1;
	p->cursor = hd_cursor_end(HD_UNIT_F, -1);
	p->chunks = 1;
	p->master_dtype = o->master_dtype ? o->master_dtype : HD_DTYPE_F32;
	p->compute_dtype = o->compute_dtype;
	p->gelu = o->gelu;
	rc = build(p, o);
	if (rc < 0 || p->err->code) {
		rc = p->err->code ? p->err->code : rc;
		hd_err_set(err, rc, "%s", p->err->code ? p->err->text : "the plan failed without a text");
		hd_plan_destroy(p);
		return rc;
	}
	*out = p;
	return HD_OK;
}
