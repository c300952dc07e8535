/* SPDX-License-Identifier: Apache-2.0
 * The sharding rules (dim -> axis): they pad a dim so that its axes divide it, and distribute layers over stages.  A
 * node follows the first rule with a dim that the node has and may shard.
 */
#include <config.h>
#include "engine/graph/graph.h"
#include "engine/graph/mesh.h"
#include "engine/graph/placement.h"
#include <string.h>

/* Returns the extent of the dim, rounded up to a multiple of the product of all axes that may shard it, a included. */
static int64_t padded(const struct hd_plan *p, const struct hd_dim *d, const struct axis *a)
{
	int64_t all = a->v.n;

	for (size_t i = 0; i < p->nrules; i++)
		if (p->rules[i].dim == d && p->rules[i].axis != a && !(p->rules[i].flags & HD_RULE_KEEP_REPLICATED))
			all *= p->rules[i].axis->v.n;
	return (d->n + all - 1) / all * all;
}

int hd_rule_is_conditional(uint32_t flags)
{
	const uint32_t both = HD_RULE_INSIDE | HD_RULE_IF_DIVIDES;

	return (flags & both) == both;
}

/* Returns whether a, together with the axes that already shard one replica's micro-batch, divides its sequences. */
static int divides_micro_batch(const struct hd_plan *p, const struct hd_dim *d, const struct axis *a)
{
	int64_t all = a->v.n;

	for (size_t i = 0; i < p->nrules; i++)
		if (p->rules[i].dim == d && p->rules[i].axis != a && p->rules[i].flags & HD_RULE_INSIDE)
			all *= p->rules[i].axis->v.n;
	return p->micro_batch % all == 0;
}

/* Called after a later rule that shards the micro-batch too: drops the conditional rules that now do not divide it. */
static void drop_conditional(struct hd_plan *p, const struct hd_dim *d)
{
	size_t kept = 0;

	for (size_t i = 0; i < p->nrules; i++) {
		const struct rule *r = &p->rules[i];

		if (r->dim != d || !hd_rule_is_conditional(r->flags) || divides_micro_batch(p, d, r->axis))
			p->rules[kept++] = *r;
	}
	p->nrules = kept;
}

int hd_rule_add(struct hd_plan *p, const char *name, struct axis *a, const char *kind, uint32_t flags)
{
	const struct hd_dim *d = hd_dim_get(p, name, 0);

	/* With a cache, a run has few tokens of a sequence: nothing to shard. */
	if (!d || (p->past && !strcmp(name, "seq")))
		return HD_OK;
	if (!strcmp(name, "batch") && hd_rule_is_conditional(flags) && !divides_micro_batch(p, d, a))
		return HD_OK;
	if (strcmp(name, "batch") && !(flags & HD_RULE_KEEP_REPLICATED) && D(d)->padded % a->v.n) {
		if (flags & HD_RULE_IF_DIVIDES)
			return HD_OK;
		if (!(flags & HD_RULE_PAD))
			return hd_section_fail(p->conf, p->inst[a->inst].section, hd_axis_key(p, &a->v), p->err,
					       HD_EDIVIDE, "%lld does not divide %s.%s = %lld", (long long)a->v.n,
					       strcmp(name, "seq") ? "model" : "train", name, (long long)d->n);
	}
	if (flags & HD_RULE_ZIGZAG && D(d)->padded % (2 * a->v.n))
		return hd_section_fail(
			p->conf, p->inst[a->inst].section, hd_axis_key(p, &a->v), p->err, HD_EDIVIDE,
			"%lld: zigzag order needs twice as many pieces, but %lld do not divide train.%s = %lld",
			(long long)a->v.n, (long long)(2 * a->v.n), name, (long long)d->n);
	if (flags & HD_RULE_PAD)
		D(d)->padded = padded(p, d, a);
	p->rules = hd_grow(p->rules, p->nrules, &p->cap_rules, sizeof(*p->rules));
	p->rules[p->nrules++] = (struct rule){ d, a, kind ? hd_plan_text(p, "%s", kind) : NULL, flags };
	if (!strcmp(name, "batch") && flags & HD_RULE_INSIDE && !hd_rule_is_conditional(flags))
		drop_conditional(p, d);
	return HD_OK;
}

/* -- blocks to stages ----------------------------------------------------------------------------------------------------- */
/* A rank at a spare coordinate runs no node of the model, so it cannot be a stage. */
static int may_be_stages(struct hd_plan *p, const char *call, const struct axis *a)
{
	if (a->v.spare)
		hd_plan_fail(
			p, HD_ENOTSUP,
			"%s: axis %s has %lld coordinates for stages and %lld spare ones; the axis of the stages may "
			"have none",
			call, a->v.name, (long long)a->v.n, (long long)a->v.spare);
	return !a->v.spare;
}

int hd_assign_layers(struct hd_plan *p, struct axis *a)
{
	int64_t layers = p->model.layers, k = -1;

	if (p->stages && p->stages != a)
		return hd_plan_fail(p, HD_ENOTSUP, "layers are already dealt to %s", p->stages->v.name);
	if (!may_be_stages(p, "rule", a))
		return p->err->code;
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

int hd_assign_block(struct hd_plan *p, struct block *b, struct axis *a, int64_t coord, int64_t chunk)
{
	if (p->stages && p->stages != a)
		return hd_plan_fail(p, HD_ENOTSUP, "blocks are already dealt to %s", p->stages->v.name);
	if (!may_be_stages(p, "stage", a))
		return p->err->code;
	if (coord < 0 || coord >= a->v.n || chunk < 0)
		return hd_plan_fail(p, HD_EINVAL, "stage %lld of %lld, chunk %lld", (long long)coord, (long long)a->v.n,
				    (long long)chunk);
	p->stages = a;
	b->coord = coord;
	b->chunk = chunk;
	if (chunk + 1 > p->chunks)
		p->chunks = chunk + 1;
	return HD_OK;
}

/* -- which rule a node follows -------------------------------------------------------------------------------------------- */
int hd_is_unshardable(const struct node *n, const struct hd_dim *d)
{
	const char *const *u = n->v.op->unshardable;

	while (u && *u && strcmp(*u, d->name))
		u++;
	return u && *u;
}

static int may_cut(const struct node *n, const struct hd_dim *d)
{
	if (hd_is_unshardable(n, d))
		return 0;
	for (uint32_t i = 0; i < n->v.nin + n->v.nout; i++)
		if (hd_has_dim(i < n->v.nin ? n->ins[i] : n->outs[i - n->v.nin], d))
			return 1;
	return 0;
}

const struct rule *hd_rule_for(const struct hd_plan *p, const struct node *n, const struct axis *a)
{
	for (size_t i = 0; i < p->nrules; i++) {
		const struct rule *r = &p->rules[i];

		if (r->axis == a && (!r->kind || !strcmp(r->kind, n->v.kind)) && may_cut(n, r->dim))
			return r->flags & HD_RULE_KEEP_REPLICATED ? NULL : r;
	}
	return NULL;
}

int hd_dim_has_rule(const struct hd_plan *p, const struct node *n, const struct axis *a, const struct hd_dim *d)
{
	for (size_t i = 0; i < p->nrules; i++) {
		const struct rule *r = &p->rules[i];

		if (r->axis == a && r->dim == d && (!r->kind || !strcmp(r->kind, n->v.kind)))
			return !(r->flags & HD_RULE_KEEP_REPLICATED);
	}
	return 0;
}

const struct hd_dim *hd_sharded_by_rules(const struct hd_plan *p, const struct node *n, const struct axis *a)
{
	const struct rule *r = hd_rule_for(p, n, a);

	return r ? r->dim : NULL;
}
