/* SPDX-License-Identifier: Apache-2.0
 * What the engine offers to plugins: struct hd_host and struct hd_graph_api (heddle/host.h, heddle/graph.h).
 * Thin: each function checks what a plugin may do now, then calls the engine's own.
 */
#include <config.h>
#include "engine/plan/plan.h"
#include "engine/ops/movement.h"
#include "engine/ops/record.h"
#include "engine/device/device.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int in_slot(struct hd_plan *p, const char *slot)
{
	return p->slot && !strcmp(p->slot, slot);
}

static int refuse_out_of_turn(struct hd_plan *p, const char *what, const char *slot)
{
	return hd_plan_fail(p, HD_EBUG, "%s may be called in slot %s only, not in %s", what, slot, p->slot ? p->slot : "none");
}

/* -- talk ----------------------------------------------------------------------------------------------------------------- */
static void host_log(struct hd_plan *p, int32_t level, const char *file, int32_t line, const char *fmt, ...)
{
	char text[800];
	va_list v;

	va_start(v, fmt);
	vsnprintf(text, sizeof(text), fmt, v);
	va_end(v);
	if (level == HD_LOG_DEBUG)
		hd_log(level, "%s (%s:%d): %s", p->cur >= 0 ? p->inst[p->cur].name : "?", file, line, text);
	else
		hd_log(level, "%s: %s", p->cur >= 0 ? p->inst[p->cur].name : "?", text);
}

static int host_fail(struct hd_plan *p, int32_t code, const char *fmt, ...)
{
	char text[800];
	va_list v;

	va_start(v, fmt);
	vsnprintf(text, sizeof(text), fmt, v);
	va_end(v);
	if (p->cur < 0)
		return hd_plan_fail(p, code, "%s", text);
	hd_inst_fail(p, p->cur, code, text);
	return code;
}

static int host_status(struct hd_plan *p) { return p->err->code; }

static const void *host_query(struct hd_plan *p, const char *feature)
{
	return !strcmp(feature, "heddle.node_size") ? &p->node_size : NULL;
}

/* -- options ---------------------------------------------------------------------------------------------------------------- */
static struct hd_section *mine(struct hd_plan *p) { return p->inst[p->cur < 0 ? 0 : p->cur].section; }

/* An option that the plugin does not have, or has with another type, would read as 0. */
static int declared(struct hd_plan *p, const char *call, const char *key, uint32_t types)
{
	const struct hd_option *x = hd_option_find(&p->inst[p->cur < 0 ? 0 : p->cur], key);

	if (!x)
		return hd_plan_fail(p, HD_EBUG, "%s: the plugin declares no option %s", call, key ? key : "(NULL)"), 0;
	if (!(types >> x->type & 1))
		return hd_plan_fail(p, HD_EBUG, "%s: option %s is declared with a type that another call reads", call, key), 0;
	return 1;
}

static int64_t host_int(struct hd_plan *p, const char *key)
{
	return declared(p, "opt_int", key, 1u << HD_OPT_INT | 1u << HD_OPT_BOOL | 1u << HD_OPT_BYTES)
		? hd_section_int(mine(p), key) : 0;
}

static double host_num(struct hd_plan *p, const char *key)
{
	return declared(p, "opt_num", key, 1u << HD_OPT_NUM) ? hd_section_num(mine(p), key) : 0;
}

static const char *host_str(struct hd_plan *p, const char *key)
{
	return declared(p, "opt_str", key, ~0u) ? hd_section_str(mine(p), key) : "";
}

/* As it is written, from where the run was started, or else beside the INI. */
static FILE *open_text(const struct hd_plan *p, const char *path)
{
	const char *ini = hd_conf_path(p->conf), *slash = strrchr(ini, '/');
	FILE *f = fopen(path, "re");
	char beside[4096];

	if (f || *path == '/' || !slash)
		return f;
	snprintf(beside, sizeof(beside), "%.*s/%s", (int)(slash - ini), ini, path);
	return fopen(beside, "re");
}

static const char *host_text(struct hd_plan *p, const char *key)
{
	const char *path = host_str(p, key);
	char *text = NULL, *copy;
	size_t n = 0, cap = 0;
	int c;
	FILE *f = open_text(p, path);

	if (!f)
		return NULL;
	while ((c = fgetc(f)) != EOF && c) {
		text = hd_grow(text, n + 1, &cap, 1);
		text[n++] = (char)c;
	}
	if (c != EOF || ferror(f)) {		/* as text it would end at the first 0; a directory opens and cannot be read */
		fclose(f);
		free(text);
		return c != EOF ? hd_section_fail(p->conf, mine(p), key, p->err, HD_EINVAL, "%s is no text: byte %zu is 0", path,
						  n), NULL : NULL;
	}
	fclose(f);
	copy = hd_plan_alloc(p, n + 1);
	if (n)
		memcpy(copy, text, n);
	free(text);
	return copy;
}

/* -- names and mesh --------------------------------------------------------------------------------------------------------- */
static const struct hd_dim *host_dim(struct hd_plan *p, const char *name) { return hd_dim_get(p, name, 0); }

static const struct hd_dim *host_dim_new(struct hd_plan *p, const char *name, int64_t n)
{
	char full[96];

	snprintf(full, sizeof(full), "%s.%s", p->cur >= 0 ? p->inst[p->cur].name : "", name);
	return hd_dim_get(p, full, n);
}

static const struct hd_axis *host_axis(struct hd_plan *p, const char *suffix, int64_t n, int64_t spare)
{
	struct axis *a;

	if (!in_slot(p, "mesh"))
		return refuse_out_of_turn(p, "axis", "mesh"), NULL;
	if (n < 1 || p->naxes == HD_MAX_AXES)
		return hd_plan_fail(p, HD_EINVAL, n < 1 ? "axis: %lld members (slot mesh is given size 0 for auto, and takes left then)"
					  : "more than %lld axes",
				    n < 1 ? (long long)n : (long long)HD_MAX_AXES), NULL;
	if (spare)
		return hd_plan_fail(p, HD_ENOTSUP, "%lld spare coordinates: this version has none", (long long)spare), NULL;
	for (int i = 0; i < p->naxes; i++) {
		const char *name = p->inst[p->cur].name, *taken = p->axes[i]->v.name;

		if (p->axes[i]->inst == p->cur && (suffix ? strlen(taken) > strlen(name) && !strcmp(taken + strlen(name) + 1, suffix)
						   : !strcmp(taken, name)))
			return hd_plan_fail(p, HD_EBUG, "axis: %s is claimed already; another suffix makes another axis", taken), NULL;
	}
	a = hd_plan_alloc(p, sizeof(*a));
	a->v = (struct hd_axis){ sizeof(a->v), suffix ? hd_plan_text(p, "%s.%s", p->inst[p->cur].name, suffix)
					     : p->inst[p->cur].name, n, spare, 1 };
	a->inst = p->cur;
	a->id = p->naxes;
	a->stride = p->naxes ? p->axes[p->naxes - 1]->stride * (p->axes[p->naxes - 1]->v.n + p->axes[p->naxes - 1]->v.spare) : 1;
	p->axes[p->naxes++] = a;
	return &a->v;
}

static const struct hd_axis *host_axis_next(struct hd_plan *p, const struct hd_axis *prev)
{
	int i = prev ? A(prev)->id + 1 : 0;

	for (int k = 0; k < p->naxes; k++)
		p->axes[k]->v.mine = p->axes[k]->inst == p->cur;
	return i < p->naxes ? &p->axes[i]->v : NULL;
}

static const struct hd_group *host_group(struct hd_plan *p, const struct hd_axis *const *axes, uint32_t n, uint32_t role)
{
	struct axis *a[HD_MAX_AXES];

	if (!n || n > HD_MAX_AXES)
		return hd_plan_fail(p, HD_EINVAL, "group: of %u axes, not of 1 to %d", n, HD_MAX_AXES), NULL;
	for (uint32_t i = 0; i < n; i++) {
		if (!axes[i])
			return hd_plan_fail(p, HD_EBUG, "group: axis %u is NULL", i), NULL;
		a[i] = A(axes[i]);
	}
	return &hd_group_get(p, a, n, role)->v;
}

/* -- rules and stages ----------------------------------------------------------------------------------------------------- */

static int deal_layers(struct hd_plan *p, struct axis *a)
{
	int64_t layers = p->model.layers, k = -1;

	if (p->stages && p->stages != a)
		return hd_plan_fail(p, HD_EINVAL, "layers are dealt to %s already", p->stages->v.name);
	if (a->v.n > layers)
		return hd_section_fail(p->conf, p->inst[a->inst].section, hd_axis_key(p, &a->v), p->err, HD_EINVAL,
				       "%lld stages for model.layers = %lld", (long long)a->v.n, (long long)layers);
	p->stages = a;
	for (size_t i = 0; i < p->nblocks; i++) {
		if (!strncmp(p->blocks[i].name, "layer", 5))
			k++;
		p->blocks[i].coord = k < 0 ? 0 : k * a->v.n / layers;
		p->blocks[i].chunk = 0;
	}
	return HD_OK;
}

static int host_rule(struct hd_plan *p, const char *name, const struct hd_axis *axis, const char *kind, uint32_t flags)
{
	const struct hd_dim *d;
	struct rule *r;
	int64_t n;

	if (!in_slot(p, "rules"))
		return refuse_out_of_turn(p, "rule", "rules");
	if (!name || !axis)
		return hd_plan_fail(p, HD_EBUG, "rule: the %s is NULL (%s)", name ? "axis" : "dim",
				    name ? name : axis ? axis->name : "and so is the axis");
	d = hd_dim_get(p, name, 0);
	n = axis->n;
	if (!strcmp(name, "layer"))
		return deal_layers(p, A(axis));
	if (!d)
		return HD_OK;
	if (strcmp(name, "batch") && !(flags & HD_RULE_KEEP_REPLICATED) && D(d)->padded % n) {
		if (flags & HD_RULE_IF_DIVIDES)
			return HD_OK;
		if (!(flags & HD_RULE_PAD))
			return hd_section_fail(p->conf, p->inst[A(axis)->inst].section, hd_axis_key(p, axis), p->err, HD_EDIVIDE,
					       "%lld does not divide %s.%s = %lld", (long long)n,
					       strcmp(name, "seq") ? "model" : "train", name, (long long)d->n);
	}
	if (flags & HD_RULE_PAD) {		/* to a multiple of all axes that may cut it */
		int64_t all = n;

		for (size_t i = 0; i < p->nrules; i++)
			if (p->rules[i].dim == d && p->rules[i].axis != A(axis) && !(p->rules[i].flags & HD_RULE_KEEP_REPLICATED))
				all *= p->rules[i].axis->v.n;
		D(d)->padded = (d->n + all - 1) / all * all;
	}
	p->rules = hd_grow(p->rules, p->nrules, &p->cap_rules, sizeof(*p->rules));
	r = &p->rules[p->nrules++];
	*r = (struct rule){ d, A(axis), kind ? hd_plan_text(p, "%s", kind) : NULL, flags };
	return HD_OK;
}

static const struct hd_block *host_block_next(struct hd_plan *p, const struct hd_block *prev)
{
	size_t i = prev ? (size_t)((const struct block *)prev - p->blocks) + 1 : 0;

	return i < p->nblocks ? &p->blocks[i].v : NULL;
}

static int host_stage(struct hd_plan *p, const struct hd_block *b, const struct hd_axis *axis, int64_t coord, int64_t chunk)
{
	struct block *k = (struct block *)(uintptr_t)b;

	if (!in_slot(p, "rules"))
		return refuse_out_of_turn(p, "stage", "rules");
	if (!b || !axis)
		return p->err->code;
	if (p->stages && p->stages != A(axis))
		return hd_plan_fail(p, HD_EINVAL, "blocks are dealt to %s already", p->stages->v.name);
	if (coord < 0 || coord >= axis->n || chunk < 0)
		return hd_plan_fail(p, HD_EINVAL, "stage %lld of %lld, chunk %lld", (long long)coord, (long long)axis->n,
				    (long long)chunk);
	p->stages = A(axis);
	k->coord = coord;
	k->chunk = chunk;
	if (chunk + 1 > p->chunks)
		p->chunks = chunk + 1;
	return HD_OK;
}

static int host_unit(struct hd_plan *p, const struct hd_axis *axis, int64_t coord, uint32_t kind, int64_t chunk, int64_t micro)
{
	if (!in_slot(p, "schedule"))
		return refuse_out_of_turn(p, "unit", "schedule");
	if (!axis || A(axis) != p->stages)
		return hd_plan_fail(p, HD_EINVAL, "units are ordered on the axis that has the stages");
	if (coord < 0 || coord >= p->ncoords || chunk < 0 || chunk >= p->chunks || micro < 0 || micro >= p->micros ||
	    !(kind == HD_UNIT_F || kind == HD_UNIT_B || kind == HD_UNIT_W))
		return hd_plan_fail(p, HD_EINVAL, "unit of stage %lld, chunk %lld, micro-batch %lld: out of %lld, %lld, %lld",
				    (long long)coord, (long long)chunk, (long long)micro, (long long)p->ncoords,
				    (long long)p->chunks, (long long)p->micros);
	p->units[coord] = hd_grow(p->units[coord], (size_t)p->nunits[coord], &p->cap_units[coord], sizeof(**p->units));
	p->units[coord][p->nunits[coord]++] = (struct hd_unit){ kind, (int32_t)chunk, (int32_t)micro };
	p->separate_w |= kind == HD_UNIT_W;
	return HD_OK;
}

/* -- graph: read ------------------------------------------------------------------------------------------------------------ */
static int matches(const struct node *n, const struct hd_match *m)
{
	if (m->op && n->v.op != m->op)
		return 0;
	if (m->kind && strcmp(m->kind, n->v.kind))
		return 0;
	if (m->axis && (!n->v.reshard || n->v.reshard->axis != m->axis))
		return 0;
	return !m->phases || n->v.phase & m->phases;
}

static struct hd_node *graph_node_next(struct hd_plan *p, struct hd_node *prev, const struct hd_match *m)
{
	struct node *n = prev ? N(prev)->next : p->first;

	if (!prev)
		p->walk_limit = p->nnodes;
	for (; n; n = n->next)
		if (n->id < p->walk_limit && matches(n, m))
			return &n->v;
	return NULL;
}

/* A parameter's gradients have homes too: where contributions are added up, and where the update reads their sum. */
static int has_home(const struct tensor *t, uint32_t what)
{
	return !t->v.node || (what == HD_TENSOR_GRAD && t->v.of &&
			      (N(t->v.node)->is->role == ROLE_ACCUMULATE || N(t->v.node)->is->role == ROLE_SYNC));
}

static struct hd_tensor *graph_leaf_next(struct hd_plan *p, struct hd_tensor *prev, uint32_t what)
{
	for (size_t i = prev ? (size_t)T(prev)->id + 1 : 0; i < p->ntensors; i++) {
		struct tensor *t = p->tensors[i];

		if (t->v.what == what && has_home(t, what) && !t->source)
			return &t->v;
	}
	return NULL;
}

static const struct hd_place *graph_place(struct hd_plan *p, const struct hd_tensor *t, const struct hd_axis *axis)
{
	static const struct hd_place whole;

	(void)p;
	if (!t || !axis)
		return &whole;
	if (t->what == HD_TENSOR_GRAD && !T(t)->placed && t->of && !(T(t)->stored >> A(axis)->id & 1))
		t = t->of;
	return T(t)->stored >> A(axis)->id & 1 ? &T(t)->storage.on[A(axis)->id] : &T(t)->at.on[A(axis)->id];
}

static uint32_t graph_attr_dims(struct hd_plan *p, const char *attr, const char *key, const struct hd_dim **dims)
{
	const char *text = hd_attr_text(attr, key);

	return text ? hd_parse_dims(p, text, dims) : 0;
}

/* -- graph: change ---------------------------------------------------------------------------------------------------------- */
/* The local sizes of a leaf are those of its home at once: another section may cut what is left.  Where it is stays as it is
 * until all have spoken. */
static void resize(struct hd_plan *p, struct tensor *leaf)
{
	struct placement was = leaf->at;

	for (int a = 0; a < p->naxes; a++)
		if (leaf->stored >> a & 1)
			leaf->at.on[a] = leaf->storage.on[a];
	hd_localize(p, leaf);
	leaf->at = was;
}

static int graph_storage(struct hd_plan *p, struct hd_tensor *leaf, const struct hd_axis *axis, const struct hd_place *place)
{
	if (!in_slot(p, "storage"))
		return refuse_out_of_turn(p, "storage", "storage");
	if (!leaf || !axis || !place)
		return p->err->code;
	T(leaf)->storage.on[A(axis)->id] = *place;
	T(leaf)->stored |= 1u << A(axis)->id;
	if (!leaf->node && T(leaf)->placed)
		resize(p, T(leaf));
	return p->err->code;
}

/* Placement after a plugin's own communication is the plugin's word.  That there is none at all can be seen, from `t` back
 * to what the reshard has, over the nodes that were made after the reshard. */
static int sends(const struct hd_tensor *t, const struct hd_node *reshard)
{
	if (t == reshard->ins[0] || !t->node)
		return 0;
	if (N(t->node)->is->role == ROLE_COMM || N(t->node)->is->role == ROLE_RESHARD || N(t->node)->id < N(reshard)->id)
		return 1;
	for (uint32_t i = 0; i < t->node->nin; i++)
		if (sends(t->node->ins[i], reshard))
			return 1;
	return 0;
}

static int unsent(const struct hd_tensor *old, const struct hd_tensor *with)
{
	const struct hd_reshard *r = old->node ? old->node->reshard : NULL;

	return r && r->have.kind == HD_PLACE_PARTIAL && r->need.kind == HD_PLACE_REPLICATED && r->axis->n > 1 && !sends(with, old->node);
}

static int graph_replace(struct hd_plan *p, struct hd_tensor *old, struct hd_tensor *with)
{
	if (!old || !with)
		return hd_plan_fail(p, HD_EBUG, "replace: the %s tensor is NULL", old ? "new" : "old");
	if (old->ndim != with->ndim || memcmp(old->dims, with->dims, old->ndim * sizeof(*old->dims)))
		return hd_plan_fail(p, HD_EINVAL, "replace: (%s) is not like (%s)", with->spec, old->spec);
	if (old->dtype != with->dtype)
		return hd_plan_fail(p, HD_EINVAL, "replace: (%s) has elements of %u bits (dtype %#x) instead of %u (dtype %#x)",
				    with->spec, HD_BITS(with->dtype), with->dtype, HD_BITS(old->dtype), old->dtype);
	if (unsent(old, with))
		return hd_plan_fail(p, HD_EINVAL, "replace: (%s) is still a partial sum on %s: no communication lies between it and "
				    "the tensor that the reshard has", with->spec, N(old->node)->reshard.axis->name);
	for (uint32_t i = 0; i < old->ndim; i++)
		if (old->local[i] != with->local[i])
			return hd_plan_fail(p, HD_EINVAL, "replace: %s has %lld elements instead of %lld", old->dims[i]->name,
					    (long long)with->local[i], (long long)old->local[i]);
	if (T(old)->placed)
		T(with)->at = T(old)->at;
	hd_replace(p, T(old), T(with));
	return HD_OK;
}

/* Of what a plugin puts in place of a node that is no movement: that node. */
static char *reason_of(struct hd_plan *p, const struct node *n)
{
	const char *of = n->v.block[0] ? " of " : "";

	if (n->reason || !in_slot(p, "lower") || n->v.nin < 2 || !n->v.nout)
		return n->reason;
	return hd_plan_text(p, "%s%s%s: (%s) and (%s) make (%s)", n->v.op->name, of, n->v.block, n->ins[0]->spec, n->ins[1]->spec,
			    n->outs[0]->spec);
}

static int graph_cursor(struct hd_plan *p, struct hd_node *anchor, const struct hd_group *queue, uint32_t lane)
{
	(void)lane;
	if (!anchor)
		return p->err->code;
	p->anchor = N(anchor);
	p->phase = anchor->phase;
	p->block = N(anchor)->block;
	p->reason = reason_of(p, N(anchor));
	p->queue = queue ? G(queue) : NULL;
	return HD_OK;
}

/* Program order is the order of start: an order that the nodes were not built in cannot be had.  Sync runs as it becomes
 * ready, so there it must be said. */
static int graph_after(struct hd_plan *p, struct hd_tensor *t, const struct hd_tensor *u)
{
	struct wait *w;

	if (!t || !u || !t->node || !u->node)
		return p->err->code;
	for (const struct node *n = N(t->node)->next; n; n = n->next)
		if (n == N(u->node))
			return hd_plan_fail(p, HD_EINVAL, "after: %s of (%s) was built before %s of (%s), which it is to wait for",
					    t->node->op->name, t->spec, u->node->op->name, u->spec);
	w = hd_plan_alloc(p, sizeof(*w));
	*w = (struct wait){ N(t->node)->waits, T(u) };
	N(t->node)->waits = w;
	return HD_OK;
}

/* -- graph: build ------------------------------------------------------------------------------------------------------------ */
static const struct hd_op *graph_op(struct hd_plan *p, const char *name)
{
	const struct op *op = hd_op_find(name);

	(void)p;
	return op ? &op->v : NULL;
}

/* In slot lower a new tensor is where its first input is. */
static struct hd_tensor *settled(struct tensor *y, struct tensor *like)
{
	if (!y)
		return NULL;
	if (like->placed) {
		y->at = like->at;
		y->placed = 1;
		N(y->v.node)->placed = 1;
	}
	return &y->v;
}

static struct hd_node *graph_node(struct hd_plan *p, const struct hd_op *op, struct hd_tensor *const *ins, uint32_t nin,
				  const char *attr, ...)
{
	char text[600];
	va_list v;
	struct node *n;

	va_start(v, attr);
	vsnprintf(text, sizeof(text), attr, v);
	va_end(v);
	n = hd_node_new(p, op, hd_op_traits(op), (struct tensor *const *)ins, nin, text);
	for (uint32_t k = 0; n && nin && k < n->v.nout; k++)
		settled(n->outs[k], T(ins[0]));
	return n ? &n->v : NULL;
}

static struct hd_tensor *graph_einsum(struct hd_plan *p, struct hd_tensor *const *ins, uint32_t nin,
				      const struct hd_dim *const *dims, uint32_t ndim)
{
	char spec[400] = "out=";
	struct tensor *t[2] = { nin > 0 ? T(ins[0]) : NULL, nin > 1 ? T(ins[1]) : NULL };

	if (nin > 2)
		return hd_plan_fail(p, HD_EINVAL, "einsum of %u tensors", nin), NULL;
	for (uint32_t i = 0; i < ndim; i++)
		strncat(strncat(spec, i ? "," : "", sizeof(spec) - strlen(spec) - 1), dims[i]->name, sizeof(spec) - strlen(spec) - 1);
	return settled(hd_op1(p, nin == 2 ? "einsum" : "sum", t, nin, "%s", spec), t[0]);
}

static struct hd_tensor *graph_map(struct hd_plan *p, struct hd_tensor *const *ins, uint32_t nin, const char *expr, ...)
{
	char text[600];
	va_list v;

	va_start(v, expr);
	vsnprintf(text, sizeof(text), expr, v);
	va_end(v);
	return settled(hd_map_new(p, (struct tensor *const *)ins, nin, text), nin ? T(ins[0]) : NULL);
}

static struct hd_tensor *graph_cast(struct hd_plan *p, struct hd_tensor *x, uint32_t dtype)
{
	static const uint32_t known[] = { HD_DTYPE_F32, HD_DTYPE_F64, HD_DTYPE_F16, HD_DTYPE_BF16, HD_DTYPE_I32, HD_DTYPE_I64, HD_DTYPE_U8, HD_DTYPE_B1 };
	struct tensor *t = T(x);
	size_t i = 0;

	while (i < HD_LEN(known) && known[i] != dtype)
		i++;
	if (i == HD_LEN(known))
		return hd_plan_fail(p, HD_EINVAL, "cast: %#x is no dtype", dtype), NULL;
	return x ? settled(hd_op1(p, "cast", &t, 1, "dtype=%u", dtype), t) : NULL;
}

static struct hd_tensor *view(struct tensor *t) { return t ? &t->v : NULL; }

static struct hd_tensor *graph_chunk(struct hd_plan *p, struct hd_tensor *x, const struct hd_dim *dim, int64_t parts,
				     const struct hd_pos *at)
{
	return view(hd_build_chunk(p, T(x), dim, parts, at));
}

static struct hd_tensor *graph_join(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n, const struct hd_dim *dim,
				    const struct hd_pos *at)
{
	return view(hd_build_join(p, (struct tensor *const *)xs, n, dim, at));
}

static struct hd_tensor *graph_pick(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n, const struct hd_pos *at)
{
	return view(hd_build_pick(p, (struct tensor *const *)xs, n, at));
}

static struct hd_tensor *graph_pack(struct hd_plan *p, struct hd_tensor *const *xs, uint32_t n, int64_t multiple)
{
	return view(hd_build_pack(p, (struct tensor *const *)xs, n, multiple));
}

static int graph_unpack(struct hd_plan *p, struct hd_tensor *flat, struct hd_tensor *const *like, uint32_t n,
			struct hd_tensor **out)
{
	return hd_build_unpack(p, T(flat), (struct tensor *const *)like, n, (struct tensor **)out);
}

static struct hd_tensor *graph_comm(struct hd_plan *p, uint32_t kind, const struct hd_group *g, struct hd_tensor *x,
				    const struct hd_dim *dim, int64_t index)
{
	if (!g)
		return hd_plan_fail(p, HD_EBUG, "comm: the group is NULL"), NULL;
	if (kind < HD_COMM_ALL_REDUCE || kind > HD_COMM_ALL_MAX)
		return hd_plan_fail(p, HD_EINVAL, "comm: %u is no kind of collective", kind), NULL;
	return view(hd_build_comm(p, kind, G(g), T(x), dim, index));
}

static struct hd_tensor *graph_reshard(struct hd_plan *p, struct hd_tensor *x, const struct hd_axis *axis,
				       const struct hd_place *to)
{
	return x && axis ? view(hd_reshard_step(p, T(x), A(axis), to)) : NULL;
}

static struct hd_tensor *graph_state(struct hd_plan *p, const char *name, struct hd_tensor *like, uint32_t dtype, uint32_t relayout)
{
	struct tensor *t, *l = T(like);

	char *full;

	if (!like)
		return NULL;
	full = hd_plan_text(p, "%s.%s.%s", p->inst[p->cur].name, name, like->of ? like->of->name : like->name);
	for (size_t i = 0; i < p->ntensors; i++)
		if (p->tensors[i]->v.what == HD_TENSOR_STATE && !strcmp(p->tensors[i]->v.name, full))
			return hd_plan_fail(p, HD_EBUG, "state: there is a state %s already; a checkpoint could not tell them apart",
					    full), NULL;
	t = hd_tensor_new(p, full, HD_TENSOR_STATE, dtype, l->dims, l->v.ndim);
	t->v.of = like->of;
	t->at = l->at;
	memcpy(t->local, l->local, sizeof(t->local));
	t->placed = l->placed;
	t->step = 1;
	t->init = HD_INIT_ZERO;
	t->on_reshard = relayout;
	return &t->v;
}

static int graph_assign(struct hd_plan *p, struct hd_tensor *state, struct hd_tensor *value)
{
	if (!state || !value)
		return hd_plan_fail(p, HD_EBUG, "assign: the %s is NULL", state ? "value" : "state");
	hd_assign(T(state), T(value));
	return HD_OK;
}

/* -- record ----------------------------------------------------------------------------------------------------------------- */
static int64_t record_index(struct hd_record *r, const struct hd_group *g) { return r->index(r, g); }

static int record_launch(struct hd_record *r, const char *kernel, struct hd_tensor *const *ins, uint32_t nin,
			 struct hd_tensor *const *outs, uint32_t nout, const char *attr, ...)
{
	char text[600];
	va_list v;

	va_start(v, attr);
	vsnprintf(text, sizeof(text), attr, v);
	va_end(v);
	return r->launch(r, kernel, ins, nin, outs, nout, text);
}

const struct hd_record_api hd_record_table = { .size = sizeof(struct hd_record_api), .index = record_index,
	.launch = record_launch };

const struct hd_graph_api hd_graph_table = {
	.size = sizeof(struct hd_graph_api), .node_next = graph_node_next, .leaf_next = graph_leaf_next, .place = graph_place,
	.attr = hd_attr_num, .attr_dims = graph_attr_dims, .storage = graph_storage, .replace = graph_replace, .cursor = graph_cursor,
	.after = graph_after, .op = graph_op, .node = graph_node, .einsum = graph_einsum, .map = graph_map, .cast = graph_cast,
	.chunk = graph_chunk, .join = graph_join, .pick = graph_pick, .pack = graph_pack, .unpack = graph_unpack,
	.comm = graph_comm, .reshard = graph_reshard, .state = graph_state, .assign = graph_assign,
};

const struct hd_host hd_host_table = {
	.size = sizeof(struct hd_host), .abi_major = HD_ABI_MAJOR, .abi_minor = HD_ABI_MINOR, .log = host_log, .fail = host_fail,
	.status = host_status, .alloc = hd_plan_alloc, .query = host_query, .opt_int = host_int, .opt_num = host_num,
	.opt_str = host_str, .opt_text = host_text, .dim = host_dim, .dim_new = host_dim_new, .axis = host_axis,
	.axis_next = host_axis_next, .group = host_group, .rule = host_rule, .block_next = host_block_next, .stage = host_stage,
	.unit = host_unit, .graph = &hd_graph_table, .record = &hd_record_table,
};
