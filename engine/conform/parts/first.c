/* SPDX-License-Identifier: Apache-2.0
 * Finds the first tensor of a layout that differs from one rank's, and the node that computed it.
 *
 * Both runs are repeated with every result kept. A node that both graphs had from the beginning must have equal
 * operands and results, assembled from all ranks. If an operand differs, an error arose on its way to the node: in the
 * node that computed it, perhaps one of a plugin.
 */
#include <config.h>
#include "engine/conform/parts/parts.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A node with a key that describes it, and its position among nodes with the same key. Both graphs had such nodes from
 * the beginning. */
struct named {
	char *key;
	const struct node *node;
	int order;
};
struct operand_pair {
	struct hd_inprocess *one, *r;
	const struct node **of; /* indexed by nodes of r: the same node of one rank, or NULL */
	double bound, floor;    /* floor: gradients are compared with at least this magnitude */
};

static char *key_of(const struct node *n)
{
	char *key = hd_format("%u %s %s", n->v.phase, n->v.block, n->v.op->name);

	for (uint32_t i = 0; i < n->v.nin; i++)
		hd_append(&key, " %s/%s", n->ins[i]->spec, n->ins[i]->v.node ? "" : n->ins[i]->v.name);
	for (uint32_t i = 0; i < n->v.nout; i++)
		hd_append(&key, " -> %s/%s", n->outs[i]->spec, n->outs[i]->v.of ? n->outs[i]->v.name : "");
	return key;
}

static int by_key(const void *a, const void *b)
{
	const struct named *x = a, *y = b;
	int c = strcmp(x->key, y->key);

	return c ? c : x->order - y->order;
}

static struct named *names_of(const struct hd_plan *p, size_t *count)
{
	struct named *all = hd_alloc((size_t)(p->nnodes + 1) * sizeof(*all));

	*count = 0;
	for (const struct node *n = p->first; n; n = n->next)
		if (!n->comm.kind && n->is->role != OP_ROLE_RESHARD && !n->recompute_of && n->made_by < 0) {
			all[*count] = (struct named){ key_of(n), n, (int)*count };
			++*count;
		}
	if (*count)
		qsort(all, *count, sizeof(*all), by_key);
	return all;
}

static size_t end_of(const struct named *all, size_t n, size_t from)
{
	size_t to = from;

	while (to < n && !strcmp(all[to].key, all[from].key))
		to++;
	return to;
}

/* Pairs the nodes of both graphs by key. If one graph has more nodes with a key than the other, none of them is
 * paired. */
static void find_twins(struct operand_pair *p)
{
	size_t n, m, i = 0, k = 0;
	struct named *a = names_of(p->one->plan, &n), *b = names_of(p->r->plan, &m);

	while (i < n && k < m) {
		int c = strcmp(a[i].key, b[k].key);
		size_t ie = end_of(a, n, i), ke = end_of(b, m, k);

		for (size_t x = 0; !c && ie - i == ke - k && x < ie - i; x++)
			p->of[b[k + x].node->id] = a[i + x].node;
		i = c <= 0 ? ie : i;
		k = c >= 0 ? ke : k;
	}
	for (i = 0; i < n; i++)
		free(a[i].key);
	for (k = 0; k < m; k++)
		free(b[k].key);
	free(a), free(b);
}

static const struct node *twin(const struct operand_pair *p, const struct node *n)
{
	return p->of[n->id];
}

static int comparable(const struct tensor *a, const struct tensor *b)
{
	/* The parts of cross entropy are relative to the largest logit of the rank's own share of the vocabulary. */
	if (!a->v.node || !b->v.node || N(a->v.node)->is->role == OP_ROLE_XENT)
		return 0;
	return a->v.dtype == HD_DTYPE_F64 && b->v.dtype == HD_DTYPE_F64 && a->step == b->step &&
	       !strcmp(a->spec, b->spec);
}

/* Returns how far both tensors are apart, relative to the largest element; 0 if one of them was not observed. */
static double distance(const struct operand_pair *p, const struct tensor *want, const struct tensor *have,
		       int64_t micro)
{
	double apart = 0, off = 0, scale = have->v.node->phase == HD_UNIT_F ? 0 : p->floor;
	double *a = hd_inprocess_assemble(p->one, want, &micro, NULL),
	       *b = hd_inprocess_assemble(p->r, have, &micro, &apart);

	for (int64_t i = 0; a && b && i < hd_global_count(want); i++) {
		double d = fabs(a[i] - b[i]);

		scale = fmax(scale, fabs(a[i]));
		off = !(d <= off) ? d : off;
	}
	off = a && b && scale > 0 ? fmax(off, apart) / scale : 0;
	free(a);
	free(b);
	return isnan(off) ? INFINITY : off;
}

static const char *unit_of(const struct node *n)
{
	return n->v.phase == HD_UNIT_F   ? "forward"
	       : n->v.phase == HD_UNIT_B ? "backward"
	       : n->v.phase == HD_UNIT_W ? "weight gradients"
	       : n->v.phase == HD_UNIT_S ? "sync"
	       : n->v.phase == HD_UNIT_U ? "update"
					 : "gather";
}

static void name_of(const struct hd_plan *p, const struct node *n, char **text)
{
	int who = n->inst >= 0 ? n->inst : n->made_by;

	hd_append(text, "%s%s%s%s%s (%s%s%s)", n->comm.kind ? hd_comm_kind_name(n->comm.kind) : n->v.op->name,
		  n->comm.kind ? " on " : "", n->comm.kind ? n->comm.group->name : "", *n->attr ? " " : "", n->attr,
		  unit_of(n), *n->v.block ? ", " : "", n->v.block);
	if (who >= 0)
		hd_append(text, ", made by [%s %s]", hd_inst_section(&p->inst[who]), p->inst[who].name);
	else
		hd_append(text, ", made by the engine");
}

/* Describes the difference: the node that computed t, and the nodes before it that one rank does not have. */
static char *tell(const struct operand_pair *p, const struct tensor *t, const struct node *reader, int64_t micro,
		  double off)
{
	char *text = hd_format("first tensor that differs: %s (%s), by %.3g of its largest element",
			       t->v.name ? t->v.name : "", t->spec, off);

	if (micro >= 0)
		hd_append(&text, ", in micro-batch %lld", (long long)micro);
	hd_append(&text, "\nit was made by ");
	name_of(p->r->plan, N(t->v.node), &text);
	/* sync computes nothing: it only names the result of movements */
	for (const struct node *n = N(t->v.node); (!twin(p, n) || n->is->role == OP_ROLE_SYNC) && n->v.nin;) {
		const struct node *from = N(n->ins[0]->v.node);

		if (!from)
			break;
		hd_append(&text, "\n  from ");
		name_of(p->r->plan, from, &text);
		n = from;
	}
	if (reader) {
		hd_append(&text, "\nand read by ");
		name_of(p->r->plan, reader, &text);
	}
	return text;
}

static char *look_at(const struct operand_pair *p, const struct node *n, int64_t micro)
{
	const struct node *x = twin(p, n);

	for (uint32_t side = 0; x && side < 2; side++)
		for (uint32_t i = 0; i < (side ? n->v.nout : n->v.nin); i++) {
			const struct tensor *want = side ? x->outs[i] : x->ins[i],
					    *have = side ? n->outs[i] : n->ins[i];
			double off;

			if (!comparable(want, have) || want->step != (micro < 0))
				continue;
			off = distance(p, want, have, micro);
			if (off > p->bound)
				return tell(p, have, side ? NULL : n, micro, off);
		}
	return NULL;
}

char *first_difference(struct hd_inprocess *one, struct hd_inprocess *r, double tolerance, double scale)
{
	struct operand_pair p = { one, r, hd_alloc((size_t)(r->plan->nnodes + 2) * sizeof(struct node *)),
				  100 * tolerance, scale / 1000 };
	struct hd_err err = { 0 };
	char *found = NULL;

	find_twins(&p);
	if (one->plan->micros != r->plan->micros || hd_inprocess_observe(one, &err) < 0 ||
	    hd_inprocess_observe(r, &err) < 0) {
		free(p.of);
		return err.code ? hd_strdup(err.text) : NULL;
	}
	for (struct node *n = r->plan->first; n && !found; n = n->next)
		for (int64_t m = -1; m < r->plan->micros && !found; m++)
			found = look_at(&p, n, m);
	free(p.of);
	return found;
}
