/* SPDX-License-Identifier: Apache-2.0
 * Logits in parts of the tokens (train.loss_parts).  Logits and their gradient are the largest activations of a model
 * with a large vocabulary: (batch, seq, vocab).  The loss of a token depends on no other token.  So the logits, the
 * losses, and what needs nothing else are computed for one part of the tokens after the other.  Each part reuses the
 * memory of the part before.
 *
 * Two passes do it.  Before placement, hd_pass_loss_gradient moves the readers of the logits' gradient into forward,
 * where each part's logits are.  After fusing, hd_pass_loss_parts repeats the nodes for each part: local extents are
 * final then, and no plugin sees the parts.
 *
 * Example: the products of the head of a GPT-2 and the nodes between them, on one rank, in 2 parts (t1211 runs it).
 *
 *   before:
 *     F einsum a, wte.weight -> b
 *     F xent_both b, targets -> c
 *     F nll d, e, f, c, targets -> g
 *     F einsum c, wte.weight -> h
 *     F einsum a, c -> i
 *     F sum g -> j
 *   after:
 *     F chunk a -> b
 *     F einsum b, wte.weight -> c
 *     F chunk targets -> d
 *     F xent_both c, d -> e
 *     F nll f, g, h, e, d -> i
 *     F einsum e, wte.weight -> j
 *     F einsum b, e -> k
 *     F chunk a -> l
 *     F einsum l, wte.weight -> m
 *     F chunk targets -> n
 *     F xent_both m, n -> o
 *     F nll p, q, r, o, n -> s
 *     F einsum o, wte.weight -> t
 *     F einsum l, o -> u
 *     F join i, s -> v
 *     F join j, t -> w
 *     F sum v -> x
 *
 * Chunks are views, and joined tensors are computed in place.  The products add k and u into the accumulator of
 * wte.weight (engine/program/alias.c).  Backward reads w, the gradient of a.  Communication between logits and loss, as
 * for a sharded vocabulary, is repeated for each part too.
 */
#include <config.h>
#include "engine/graph/placement.h"
#include "engine/ops/movement.h"
#include "engine/passes/loss/loss.h"
#include "engine/passes/passes.h"
#include "engine/comm/comm.h"
#include <stdlib.h>
#include <string.h>

/* By default, parts are chosen for memory: a part has at most PART_BYTES of logits.  But it has at least so many tokens
 * that the products stay fast.  Each part reads and writes the weight's gradient once more.  For each element of the
 * weight, that is 8 bytes, compared with 6 FLOPs per token of the part.  The cost is small from 256 tokens on a
 * processor, and from 8,192 on an accelerator: there it is 3 % of the products' time on an H200. */
#define PART_BYTES (64 << 20)
#define PART_TOKENS 256
#define PART_TOKENS_ACCELERATOR 8192

struct logit_parts {
	struct hd_plan *p;
	struct tensor *logits;
	const struct hd_dim *batch, *seq, *vocab;
	char *inside;       /* by node id: the node is repeated for each part */
	struct node **made; /* these nodes, in program order */
	size_t n;
	int64_t of_batch, of_seq; /* parts along each dim; if seq is divided, a part is of one sequence */
	struct tensor **part;     /* by tensor id: its piece in the current part */
	struct tensor ***parts;   /* by tensor id: its pieces in all parts */
	struct tensor *ones;      /* the gradient of the current part's losses */
	const char *why_not;
};

static int has_tokens(const struct logit_parts *s, const struct tensor *t)
{
	return t->v.ndim >= 2 && t->dims[0] == s->batch && t->dims[1] == s->seq;
}

static int is_large(const struct logit_parts *s, const struct tensor *t)
{
	return t->v.node && has_tokens(s, t) && hd_has_dim(t, s->vocab);
}

/* Returns 0 if the graph has no loss over a vocabulary. */
static int begin(struct logit_parts *s, struct hd_plan *p)
{
	const struct node *nll = p->nll ? hd_maker(p->nll) : NULL;

	*s = (struct logit_parts){ .p = p };
	if (!hd_is(nll, OP_ROLE_NLL) || p->logits)
		return 0;
	s->logits = nll->ins[3];
	s->batch = hd_dim_get(p, "batch", 0), s->seq = hd_dim_get(p, "seq", 0), s->vocab = hd_dim_get(p, "vocab", 0);
	if (!is_large(s, s->logits))
		return 0;
	s->inside = hd_alloc((size_t)p->nnodes + 1);
	return 1;
}

static int end(struct logit_parts *s, int rc)
{
	free(s->inside), free(s->made), free(s->part), free(s->parts);
	return rc < 0 ? rc : s->p->err->code;
}

/* -- what belongs to a part --------------------------------------------------------------------------------------------------- */
static int touches_large(const struct logit_parts *s, const struct node *n)
{
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (is_large(s, n->ins[i]))
			return 1;
	return n->v.nout && is_large(s, n->outs[0]);
}

/* Returns the fill node of which t is a copy, perhaps moved; NULL: t is no constant.  The gradient of each token's loss
 * is the constant 1 / tokens, so no part waits for another. */
static const struct node *fill_of(const struct tensor *t)
{
	const struct node *n = hd_maker(t);

	while (n && n->is->role != OP_ROLE_FILL &&
	       (n->comm.kind || n->is->flags & OP_FLAG_ARRANGES || n->is->role == OP_ROLE_CHUNK ||
		n->is->role == OP_ROLE_RESHARD))
		n = n->v.nin ? hd_maker(n->ins[0]) : NULL;
	return n && n->is->role == OP_ROLE_FILL ? n : NULL;
}

enum { DEPENDS_ON_LARGE = 1, LEADS_TO_LARGE = 2, TOUCHES = 4 };

static void scan_forward(struct logit_parts *s, const struct node *n)
{
	char *at = &s->inside[n->id];

	*at = touches_large(s, n) ? DEPENDS_ON_LARGE | TOUCHES : 0;
	for (uint32_t i = 0; i < n->v.nin && n->v.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W); i++)
		if (hd_maker(n->ins[i]) && s->inside[hd_maker(n->ins[i])->id] & DEPENDS_ON_LARGE)
			*at |= DEPENDS_ON_LARGE;
}

static void scan_backward(struct logit_parts *s, const struct node *n)
{
	if (s->inside[n->id] & TOUCHES)
		s->inside[n->id] |= LEADS_TO_LARGE;
	for (uint32_t i = 0; s->inside[n->id] & LEADS_TO_LARGE && i < n->v.nin; i++)
		if (hd_maker(n->ins[i]) && !fill_of(n->ins[i]))
			s->inside[hd_maker(n->ins[i])->id] |= LEADS_TO_LARGE;
}

/* Finds the nodes that read or compute a large tensor (one over the vocabulary), and the nodes between two of them.
 * Example: xent and xent_d read the logits, and xent_combine, which has only small tensors, is between the two. */
static void find_inside(struct logit_parts *s)
{
	for (struct node *n = s->p->first; n; n = n->next)
		scan_forward(s, n);
	for (struct node *n = s->p->last; n; n = n->prev)
		scan_backward(s, n);
	s->made = hd_alloc(((size_t)s->p->nnodes + 1) * sizeof(*s->made));
	for (struct node *n = s->p->first; n; n = n->next) {
		char at = s->inside[n->id];

		s->inside[n->id] = at & TOUCHES || (at & DEPENDS_ON_LARGE && at & LEADS_TO_LARGE);
		if (s->inside[n->id])
			s->made[s->n++] = n;
	}
}

/* -- how many parts --------------------------------------------------------------------------------------------------------- */
static int64_t divisor_from(int64_t n, int64_t least)
{
	while (least < n && n % least)
		least++;
	return least < n ? least : n;
}

static int64_t count(const struct logit_parts *s)
{
	return s->of_batch * s->of_seq;
}

/* Divides the tokens into at least this many parts.  Returns 0 if there are too few tokens. */
static int set_parts(struct logit_parts *s, int64_t least)
{
	int64_t batch = s->logits->local[0], seq = s->logits->local[1];

	s->of_batch = divisor_from(batch, least);
	s->of_seq = divisor_from(seq, (least + s->of_batch - 1) / s->of_batch);
	return count(s) >= least;
}

static int64_t chosen_parts(const struct logit_parts *s, int64_t tokens, int64_t bytes)
{
	int64_t most = tokens / (s->p->own_memory ? PART_TOKENS_ACCELERATOR : PART_TOKENS);
	int64_t parts = (bytes + PART_BYTES - 1) / PART_BYTES;

	return parts < most ? parts : most;
}

/* -- before placement: gradients that need only the loss move to where it is ---------------------------------------------------- */
/* Returns the product that computes the logits; a cap may follow it. */
static const struct node *product_of(const struct logit_parts *s)
{
	const struct node *n = hd_maker(s->logits);

	while (n->v.nin && is_large(s, n->ins[0]))
		n = hd_maker(n->ins[0]);
	return n;
}

/* Returns whether a rule shards a dim over which the product of the logits sums.  Then the members of that axis have
 * different terms of the logits. */
static int is_made_of_terms(const struct logit_parts *s)
{
	const struct node *n = product_of(s);

	for (int a = 0; a < s->p->naxes; a++)
		for (uint32_t d = 0; d < n->ins[0]->v.ndim; d++)
			if (!hd_has_dim(s->logits, n->ins[0]->dims[d]) &&
			    hd_dim_has_rule(s->p, n, s->p->axes[a], n->ins[0]->dims[d]))
				return 1;
	return 0;
}

/* Returns how many elements of the dim a rank has, according to the rules. */
static int64_t local_by_rules(const struct logit_parts *s, const struct hd_dim *d)
{
	int64_t local = d->n;

	for (int a = 0; a < s->p->naxes; a++)
		if (hd_sharded_by_rules(s->p, product_of(s), s->p->axes[a]) == d)
			local /= s->p->axes[a]->v.n;
	return local;
}

static int64_t wanted_parts(const struct logit_parts *s)
{
	int64_t tokens = local_by_rules(s, s->batch) * local_by_rules(s, s->seq);

	if (s->p->config.loss_parts || s->p->undivided_logits)
		return s->p->config.loss_parts;
	if (is_made_of_terms(s))
		return 1;
	return chosen_parts(s, tokens, tokens * local_by_rules(s, s->vocab) * HD_BITS(s->logits->v.dtype) / 8);
}

/* Moves the nodes into forward, right after the losses.  Their work still counts for the unit from which they came. */
static void make_with_loss(struct logit_parts *s)
{
	struct node *at = hd_maker(s->p->nll);

	for (size_t i = 0; i < s->n; i++) {
		struct node *n = s->made[i];

		for (uint32_t k = 0; k < n->v.nin; k++) {
			struct node *ones = hd_maker(n->ins[k]);

			if (!ones || ones->is->role != OP_ROLE_FILL || ones->v.phase == HD_UNIT_F)
				continue;
			ones->v.phase = HD_UNIT_F;
			hd_node_move(s->p, ones, at->next);
			at = ones;
		}
		if (n->v.phase == HD_UNIT_F)
			continue;
		n->computes_for = n->v.phase;
		n->v.phase = HD_UNIT_F;
		hd_node_move(s->p, n, at->next);
		at = n;
	}
}

static int refuse_parts(struct hd_plan *p, const char *why)
{
	return hd_section_fail(p->conf, hd_conf_section(p->conf, NULL, "train"), "loss_parts", p->err, HD_ENOTSUP,
			       "%lld: the loss cannot be computed in parts: %s", (long long)p->config.loss_parts, why);
}

int hd_pass_loss_gradient(struct hd_plan *p)
{
	struct logit_parts s;
	int are_losses = begin(&s, p);

	if (p->own_loss && p->config.loss_parts > 1)
		return end(&s, refuse_parts(p, "slot rewrite of a plugin changed what follows nll"));
	if (!are_losses || p->own_loss)
		return end(&s, HD_OK);
	p->loss_parts = wanted_parts(&s);
	if (p->loss_parts > 1) {
		find_inside(&s);
		make_with_loss(&s);
	}
	return end(&s, HD_OK);
}

/* -- a part ------------------------------------------------------------------------------------------------------------------ */
static struct tensor *chunk_of(struct logit_parts *s, struct tensor *t, int64_t which)
{
	struct hd_pos batch = { .add = (int32_t)(which / s->of_seq), .step = 1 },
		      seq = { .add = (int32_t)(which % s->of_seq), .step = 1 };

	if (s->of_batch > 1)
		t = hd_build_chunk(s->p, t, s->batch, s->of_batch, &batch);
	return s->of_seq > 1 ? hd_build_chunk(s->p, t, s->seq, s->of_seq, &seq) : t;
}

/* Returns the gradient of the current part's losses, which must exist already. */
static struct tensor *ones_of(struct logit_parts *s, const struct node *fill)
{
	struct tensor *like = s->part[hd_maker(s->p->nll)->outs[0]->id];

	if (!s->ones)
		s->ones = hd_op1(s->p, "fill", &like, 1, "%s", fill->attr);
	if (s->ones)
		hd_placed_like(s->ones, like);
	return s->ones;
}

static struct tensor *input_part(struct logit_parts *s, const struct node *n, uint32_t i, int64_t which)
{
	struct tensor *t = n->ins[i];
	const struct node *fill = fill_of(t);

	if (fill)
		return ones_of(s, fill);
	if (!has_tokens(s, t))
		return s->part[t->id] ? s->part[t->id] : t;
	if (!s->part[t->id])
		s->part[t->id] = chunk_of(s, t, which);
	return s->part[t->id];
}

static void set_part(struct logit_parts *s, const struct tensor *whole, struct tensor *part, int64_t which)
{
	hd_placed_like(part, whole);
	hd_tensor_inherit(part, whole);
	if (has_tokens(s, whole)) {
		part->local[0] /= s->of_batch;
		part->local[1] /= s->of_seq;
	}
	s->part[whole->id] = part;
	if (!s->parts[whole->id])
		s->parts[whole->id] = hd_plan_alloc(s->p, (size_t)count(s) * sizeof(*s->parts[whole->id]));
	s->parts[whole->id][which] = part;
}

static void make_node(struct logit_parts *s, const struct node *n, int64_t which)
{
	struct tensor **ins = hd_alloc((n->v.nin + 1) * sizeof(*ins));
	struct node *c;

	for (uint32_t i = 0; i < n->v.nin; i++)
		ins[i] = input_part(s, n, i, which);
	c = hd_node_again(s->p, n, ins);
	free(ins);
	for (uint32_t k = 0; c && k < n->v.nout; k++)
		set_part(s, n->outs[k], c->outs[k], which);
	if (c) {
		c->recompute_of = NULL;
		c->computes_for = n->computes_for;
	}
}

/* -- results that other nodes read ------------------------------------------------------------------------------------------- */
static struct tensor *whole_of(struct logit_parts *s, struct tensor *const *parts)
{
	struct tensor **rows = hd_alloc((size_t)s->of_batch * sizeof(*rows)), *y;

	for (int64_t b = 0; b < s->of_batch; b++)
		rows[b] = s->of_seq > 1 ? hd_build_join(s->p, parts + b * s->of_seq, (uint32_t)s->of_seq, s->seq, NULL)
					: parts[b];
	y = s->of_batch > 1 ? hd_build_join(s->p, rows, (uint32_t)s->of_batch, s->batch, NULL) : rows[0];
	free(rows);
	return y;
}

/* Makes each part of `whole`, a sum over tokens, an operand of the accumulator r. */
static void accumulate_parts(struct logit_parts *s, struct node *r, const struct tensor *whole)
{
	uint32_t n = (uint32_t)count(s), k = 0;
	struct tensor **ins = hd_alloc((r->v.nin + (size_t)n) * sizeof(*ins));

	for (uint32_t i = 0; i < r->v.nin; i++) {
		if (r->ins[i] != whole) {
			ins[k++] = r->ins[i];
			continue;
		}
		memcpy(ins + k, s->parts[whole->id], n * sizeof(*ins));
		k += n;
	}
	hd_set_inputs(s->p, r, ins, k);
	free(ins);
}

/* Adds up the parts of any other sum over tokens.  A product adds to the result of the part before, in place; add nodes
 * add up the rest. */
static struct tensor *summed(struct logit_parts *s, const struct tensor *whole)
{
	struct tensor *const *parts = s->parts[whole->id], *sum = parts[0];

	for (int64_t i = 1; i < count(s) && sum; i++) {
		const struct node *n = hd_maker(parts[i]);
		struct tensor *ins[] = { n->ins[0], n->ins[1], sum }, *both[] = { sum, parts[i] };
		int adds = n->is->role == OP_ROLE_EINSUM && n->v.nin == 2;

		s->p->cursor = hd_cursor_after(n);
		sum = adds ? hd_op1(s->p, "einsum", ins, 3, "%s add=1", n->attr)
			   : hd_op1(s->p, "add", both, 2, "%s", "");
		if (!sum)
			break;
		N(sum->v.node)->computes_for = n->computes_for;
		hd_placed_like(sum, whole);
		hd_tensor_inherit(sum, whole);
	}
	return sum;
}

static int accumulates_alone(const struct logit_parts *s, const struct tensor *t)
{
	for (size_t u = 0; u < t->nusers; u++)
		if (!t->users[u]->dead && !s->inside[t->users[u]->id] && t->users[u]->is->role != OP_ROLE_ACCUMULATE)
			return 0;
	return 1;
}

static int is_read_outside(const struct logit_parts *s, const struct tensor *t)
{
	int yes = t == s->p->nll;

	for (size_t u = 0; u < t->nusers && !yes; u++)
		yes = !t->users[u]->dead && !s->inside[t->users[u]->id];
	return yes;
}

static void hand_over(struct logit_parts *s, struct tensor *t)
{
	struct tensor *y;

	if (!s->parts[t->id] || !is_read_outside(s, t))
		return;
	if (!has_tokens(s, t) && accumulates_alone(s, t)) {
		for (size_t u = t->nusers; u-- > 0;)
			if (!t->users[u]->dead && !s->inside[t->users[u]->id])
				accumulate_parts(s, t->users[u], t);
		return;
	}
	y = has_tokens(s, t) ? whole_of(s, s->parts[t->id]) : summed(s, t);
	if (!y)
		return;
	hd_placed_like(y, t);
	hd_tensor_inherit(y, t);
	hd_replace(s->p, t, y);
}

/* -- all parts ----------------------------------------------------------------------------------------------------------------- */
static const char *of_plugin(struct hd_plan *p, const struct node *n)
{
	int i = n->made_by >= 0 ? n->made_by : n->inst;
	const struct inst *in = i >= 0 && i < p->ninst ? &p->inst[i] : NULL;

	return in ? hd_plan_text(p, "[%s %s] has nodes of its own there (plugin %s)", hd_inst_section(in), in->name,
				 in->plugin->name)
		  : "a plugin has nodes of its own there";
}

static const char *why_not(const struct logit_parts *s, const struct node *n)
{
	enum op_role role = n->is->role;
	int sum = n->comm.kind == HD_COMM_ALL_REDUCE || n->comm.kind == HD_COMM_ALL_MAX;

	if (n->is->flags & OP_FLAG_PLUGIN || n->made_by >= 0)
		return of_plugin(s->p, n);
	if (n->v.phase != HD_UNIT_F || n->only.group || n->block != hd_maker(s->p->nll)->block)
		return "not all of it is where and when the loss is computed";
	if (n->comm.kind ? sum
			 : role == OP_ROLE_NONE || role == OP_ROLE_EINSUM || role == OP_ROLE_XENT ||
				   role == OP_ROLE_XENT_COMBINE || role == OP_ROLE_XENT_D || role == OP_ROLE_NLL ||
				   role == OP_ROLE_CAST || role == OP_ROLE_SUM || role == OP_ROLE_MAP ||
				   role == OP_ROLE_VIEW)
		return NULL;
	return hd_plan_text(s->p, "%s stands between logits and loss", n->v.op->name);
}

static int make_parts(struct logit_parts *s)
{
	struct hd_plan *p = s->p;
	size_t before = p->ntensors;
	struct cursor at;

	at = hd_cursor_why(hd_cursor_after(s->made[s->n - 1]),
			   hd_plan_text(p, "logits in %lld parts (train.loss_parts)", (long long)count(s)));
	p->cursor = at;
	s->part = hd_alloc((before + 1) * sizeof(*s->part));
	s->parts = hd_alloc((before + 1) * sizeof(*s->parts));
	for (int64_t i = 0; i < count(s); i++) {
		memset(s->part, 0, before * sizeof(*s->part));
		s->ones = NULL;
		for (size_t k = 0; k < s->n && !p->err->code; k++)
			make_node(s, s->made[k], i);
	}
	for (size_t i = 0; i < before && !p->err->code; i++) {
		p->cursor = at;
		hand_over(s, p->tensors[i]);
	}
	if (p->err->code)
		return p->err->code;
	hd_drop_dead(p);
	return hd_pass_toposort(p); /* a reader of a joined tensor may precede its last part */
}

static int split(struct logit_parts *s)
{
	struct hd_plan *p = s->p;
	int64_t asked = p->config.loss_parts;

	if (!set_parts(s, p->loss_parts) || (asked && p->train && count(s) != asked))
		return hd_section_fail(
			p->conf, hd_conf_section(p->conf, NULL, "train"), "loss_parts", p->err, HD_EINVAL,
			"%lld: a rank's micro-batch has %lld x %lld tokens, which cannot be divided into that many "
			"parts of whole sequences, or of each sequence",
			(long long)asked, (long long)s->logits->local[0], (long long)s->logits->local[1]);
	find_inside(s);
	for (size_t i = 0; i < s->n && !s->why_not; i++)
		s->why_not = why_not(s, s->made[i]);
	if (s->why_not && asked)
		return refuse_parts(p, s->why_not);
	return s->why_not ? HD_OK : make_parts(s);
}

/* Batches and sequences of an evaluation may be shorter than those of training. */
static int64_t parts_of_evaluation(const struct logit_parts *s)
{
	int64_t asked = s->p->config.loss_parts, tokens = s->logits->local[0] * s->logits->local[1];

	if (!asked)
		return chosen_parts(s, tokens, hd_local_bytes(s->logits));
	return asked < tokens ? asked : tokens;
}

int hd_pass_loss_parts(struct hd_plan *p)
{
	struct logit_parts s;

	if (!begin(&s, p))
		return HD_OK;
	if (!p->train)
		p->loss_parts = parts_of_evaluation(&s);
	return end(&s, p->loss_parts > 1 ? split(&s) : HD_OK);
}
