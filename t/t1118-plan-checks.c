/* SPDX-License-Identifier: Apache-2.0
 * The checks of a plan after each slot of a plugin and after the last one.  They find fields of views that were written
 * to, invalid shapes of ops, graphs that would deadlock or read values that do not exist, and invalid operands of
 * builders.  Each is refused with its own message; if this broke, a plugin's mistake would end in a crash or in wrong
 * numbers.
 */
#include <config.h>
#include "engine/graph/placement.h"
#include "engine/ops/movement.h"
#include "engine/ops/ops.h"
#include "engine/passes/passes.h"
#include "engine/host/host_impl.h"
#include "engine/plan/plan_impl.h"
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"

#define PLUGIN(name) HD_TEST_BUILD "/plugins/" name "/.libs/" name ".so\n"
static const char ini[] =
	"[model]\nfamily = gpt2\nlayers = 2\nheads = 2\nembed = 8\nmlp = 12\nvocab = 12\n[data]\ntrain = none\n"
	"[train]\nseq = 4\nglobal_batch = 8\nmicro_batch = 2\nsteps = 9\noptimizer = adamw\n"
	"[strategy dp]\nplugin = " PLUGIN("dp") "size = 2\n[strategy pp]\nplugin = " PLUGIN("pp") "size = 2\n";

static struct hd_plan *p;

static void said(int rc, const char *want, const char *what)
{
	if (!ok(rc < 0 && p->err->code < 0 && strstr(p->err->text, want), "%.90s", what))
		note("said: %s\n# want: %s", p->err->text, want);
	memset(p->err, 0, sizeof(*p->err));
}

static struct node *made_in(uint32_t phases, enum op_role role)
{
	struct node *n = p->first;

	while (n && !(n->v.phase & phases && n->is->role == role && n->v.nin && n->v.nout))
		n = n->next;
	return n;
}

/* -- views ------------------------------------------------------------------------------------------------------------------ */
/* Writes to a field, as a plugin can, and restores it. */
#define WRITTEN(type, field, value, want) \
	do { \
		uintptr_t to_ = (uintptr_t)(&(field)); \
		type *at_ = (type *)to_; \
		type was_ = *at_; \
		struct hd_views *v_ = hd_views_take(p); \
		*at_ = value; \
		said(hd_views_check(p, v_), want, #field " = " #value); \
		*at_ = was_; \
	} while (0)

static void views(void)
{
	struct tensor *t = p->tensors[0];
	struct node *n = made_in(HD_UNIT_F, OP_ROLE_EINSUM);
	struct hd_views *v = hd_views_take(p);

	is_int(hd_views_check(p, v), HD_OK, "views that were not written to pass");
	WRITTEN(int64_t, p->axes[0]->v.n, 77, "axis dp: the view was written to: n is 77 but was 2");
	WRITTEN(int64_t, p->axes[0]->v.spare, 3, "axis dp: the view was written to: spare is 3 but was 0");
	WRITTEN(const char *, p->axes[1]->v.name, "other", "axis pp: the view was written to: name is ");
	WRITTEN(int64_t, p->dims[0]->v.n, 77, "the view was written to: n is 77 but was ");
	WRITTEN(const char *, p->dims[0]->v.name, "other", "the view was written to: name is ");
	WRITTEN(int64_t, p->groups[0]->v.n, 77, "the view was written to: n is 77 but was ");
	WRITTEN(int64_t, p->blocks[0].v.param_bytes, 77, "the view was written to: param_bytes is 77 but was ");
	WRITTEN(uint32_t, t->v.ndim, 77, "the view was written to: ndim is 77 but was ");
	WRITTEN(uint32_t, t->v.dtype, 77, "the view was written to: dtype is 77 but was ");
	WRITTEN(const void *, t->v.dims, NULL, "the view was written to: dims is 0 but was ");
	WRITTEN(const void *, t->v.local, NULL, "the view was written to: local is 0 but was ");
	WRITTEN(const void *, t->v.spec, NULL, "the view was written to: spec is 0 but was ");
	WRITTEN(const void *, n->outs[0]->v.node, NULL, "the view was written to: node is 0 but was ");
	WRITTEN(int64_t, t->local[0], 77, "the view was written to: local is 77 but was ");
	WRITTEN(const void *, n->v.op, hd_op_find("gelu"), "node einsum: the view was written to: op is ");
	WRITTEN(const void *, n->v.kind, NULL, "node einsum: the view was written to: kind is 0 but was ");
	WRITTEN(const void *, n->v.attr, NULL, "node einsum: the view was written to: attr is 0 but was ");
	WRITTEN(const void *, n->v.block, NULL, "node einsum: the view was written to: block is 0 but was ");
	WRITTEN(const void *, n->v.ins, NULL, "node einsum: the view was written to: ins is 0 but was ");
	WRITTEN(const void *, n->v.outs, NULL, "node einsum: the view was written to: outs is 0 but was ");
	WRITTEN(const void *, n->v.owner, p, "node einsum: the view was written to: owner is ");
	WRITTEN(uint32_t, n->v.nin, 7, "node einsum: the view was written to: nin is 7 but was ");
	WRITTEN(uint32_t, n->v.nout, 7, "node einsum: the view was written to: nout is 7 but was 1");
	WRITTEN(uint32_t, n->v.phase, 77, "node einsum: the view was written to: phase is 77 but was 1");
	p->slot.name = "storage";
	v = hd_views_take(p);
	t->local[0]++;
	is_int(hd_views_check(p, v), HD_OK, "sizes of leaves may change in slot storage");
	t->local[0]--;
	p->slot.name = NULL;
}

/* -- shapes ----------------------------------------------------------------------------------------------------------------- */
#define SHAPE(change, want) \
	do { \
		struct hd_shape s = { .dtype = HD_DTYPE_F32, .ndim = 2, .dims = { embed, batch }, .local = { 8, 2 } }; \
		const struct hd_op op = { .size = sizeof(op), .name = "odd" }; \
		change; \
		said(hd_shapes_check(p, &op, 2, &s, 1), want, #change); \
	} while (0)

static void shapes(void)
{
	const struct hd_dim *embed = hd_dim_get(p, "embed", 0), *batch = hd_dim_get(p, "batch", 0);

	SHAPE(s.ndim = 9, "odd: output 0 has 9 dims, more than 8");
	SHAPE(s.local[1] = -1, "odd: output 0: -1 elements of batch");
	SHAPE(s.local[0] = (int64_t)1 << 41, "odd: output 0: 2199023255552 elements of embed");
	SHAPE(s.dims[1] = embed, "odd: output 0: dims 0 and 1 are both embed");
	SHAPE(s.dims[1] = (const void *)p, "odd: output 0: dim 1 is not a dim of this plan");
	SHAPE(s.dtype = 77, "odd: output 0 has dtype 0x4d, which is not a dtype");
	SHAPE(s.space = HD_SPACE_HOST, "odd: output 0 has space 1; it and the reserved words must be 0");
	for (int i = 0; i < 3; i++)
		SHAPE(s.reserved[i] = 1, "odd: output 0 has space 0; it and the reserved words must be 0");
}

/* -- graphs ------------------------------------------------------------------------------------------------------------------ */
static void graphs(void)
{
	struct node *n = made_in(HD_UNIT_F, OP_ROLE_EINSUM), *update = made_in(HD_UNIT_U, OP_ROLE_UPDATE),
		    *last = p->last;
	struct node *norm = p->norm ? N(p->norm->v.node) : NULL;
	struct tensor *was = n->ins[0];
	struct hd_place *at = &n->ins[0]->at.on[p->stages->id], place = *at;

	n->period = 3;
	said(hd_check_periods(p), "every: ", "a node of some steps must not be read in all steps");
	n->outs[0]->users[0]->period = 4;
	said(hd_check_periods(p), "runs every 4 steps, but reads einsum of (", "... nor in different steps");
	n->outs[0]->users[0]->period = n->period = 0;
	is_int(hd_check_periods(p), HD_OK, "nodes of all steps may read each other");
	*at = (struct hd_place){ .kind = HD_PLACE_PINNED, .index = 1 - (int)p->blocks[n->block].coord };
	said(hd_check_stages(p), " but its operand (", "an operand on a different stage is refused");
	*at = place;
	if (ok(update && norm, "the plan has an update and a norm")) {
		struct tensor *leaf = update->ins[0];
		struct tensor *assign = leaf->assign;

		leaf->assign = norm->ins[0], norm->ins[0]->assigned = 1;
		norm->ins[0]->v.node ? N(norm->ins[0]->v.node)->v.phase = HD_UNIT_U : 0;
		said(hd_check_norm_first(p), "is made before the norm is known",
		     "a value that is computed before the norm is refused");
		leaf->assign = assign, norm->ins[0]->assigned = 0;
	}
	p->own_memory = 1;
	n->outs[0]->v.space = HD_SPACE_HOST;
	said(hd_check_spaces(p), "of its tensors are in host memory, where only updates",
	     "a product in the host's memory is refused");
	n->outs[0]->v.space = HD_SPACE_DEVICE;
	p->own_memory = 0;
	hd_set_input(p, n, 0, last->v.nout ? last->outs[0] : n->outs[0]);
	hd_set_input(p, n, 0, n->outs[0]);
	said(hd_pass_toposort(p), " depends on its own result: a cycle", "a node that reads its own result is refused");
	hd_set_input(p, n, 0, was);
	is_int(hd_pass_toposort(p), HD_OK, "... and without it the graph can be sorted");
	n->ins[0] = update->outs[0];
	said(hd_check_users(p), " reads ", "an input that was set without hd_set_input is refused");
	n->ins[0] = was;
}

/* -- rules ------------------------------------------------------------------------------------------------------------------- */
static void rules(void)
{
	struct axis *a = p->axes[0];

	a->v.n = 3;
	said(hd_rule_add(p, "seq", a, NULL, HD_RULE_PAD | HD_RULE_ZIGZAG),
	     "3: zigzag order needs twice as many pieces, but 6 do not divide train.seq = 4",
	     "zigzag order of a sequence that does not divide is refused");
	said(hd_rule_add(p, "embed", a, NULL, 0), "3 does not divide model.embed = 8",
	     "a size that does not divide the dim is refused");
	said(hd_rule_add(p, "seq", a, NULL, 0), "3 does not divide train.seq = 4", "... nor the sequence");
	is_int(hd_rule_add(p, "embed", a, NULL, HD_RULE_IF_DIVIDES), HD_OK,
	       "... unless the rule has HD_RULE_IF_DIVIDES");
	is_int(hd_rule_add(p, "nothing", a, NULL, 0), HD_OK, "a rule for a dim that the model lacks has no effect");
	said(hd_assign_layers(p, a), "layers are already dealt to pp", "layers on two axes are refused");
	a->v.n = 2;
}

/* -- builders ---------------------------------------------------------------------------------------------------------------- */
/* With an operand of NULL, builders make nothing and report nothing: the plan has failed already. */
#define NOTHING(call) ok(!(call) && !p->err->code, "%s", #call)
#define REFUSED(call, want) said((call) ? 0 : p->err->code, want, #call)

static void operands_that_are_null(struct tensor *x, struct group *g)
{
	struct tensor *none = NULL, *half[] = { x, NULL };
	const struct hd_pos at = { .step = 1 };
	const struct hd_members who = { .group = &g->v, .from = 0, .to = 1 };
	const struct hd_dim *d = x->dims[0];

	NOTHING(hd_build_chunk(p, NULL, d, 1, &at));
	NOTHING(hd_build_join(p, half, 0, d, &at));
	NOTHING(hd_build_join(p, &none, 1, d, &at));
	NOTHING(hd_build_join(p, half, 2, d, &at));
	NOTHING(hd_build_pick(p, half, 0, &at));
	NOTHING(hd_build_pick(p, &none, 1, &at));
	NOTHING(hd_build_either(p, &who, NULL, x));
	NOTHING(hd_build_either(p, &who, x, NULL));
	NOTHING(hd_build_block(p, NULL, d, 1, HD_ORDER_CONTIGUOUS));
	NOTHING(hd_build_unblock(p, NULL, d, HD_ORDER_CONTIGUOUS, 0));
	NOTHING(hd_build_pack(p, half, 2, 1));
	NOTHING(hd_build_comm(p, HD_COMM_ALL_REDUCE, g, NULL, NULL, 0));
	NOTHING(hd_build_comm(p, HD_COMM_ALL_REDUCE, NULL, x, NULL, 0));
	NOTHING(hd_build_local(p, NULL, p->axes[0]));
	NOTHING(hd_build_permute(p, g, NULL, 1, 1));
	NOTHING(hd_op1(p, "gelu", &none, 1, "%s", ""));
}

/* In slot lower a plugin must first set the cursor; until then every builder returns nothing, with that message. */
#define OUT_OF_PLACE(call) REFUSED(call, "cursor must first say where new nodes belong")

static int gives_gradient(struct node *n)
{
	struct hd_tensor *din[HD_MAX_INS] = { NULL };

	n->v.op->vjp(NULL, p, &n->v, (struct hd_tensor *const *)n->outs, 1, din);
	return din[0] != NULL;
}

static void nodes_without_a_place(struct tensor *x, struct group *g)
{
	const struct hd_dim *last = x->dims[x->v.ndim - 1], *two = hd_dim_get(p, "test_two", 2), *same;
	struct node *top = hd_build_topk(p, x, last, two, 0);
	struct tensor *index = top->outs[1], *taken = hd_build_gather(p, x, index, last);
	struct tensor *put = hd_build_scatter(p, taken, index, two, last, 1), *sum = hd_op1(p, "sum", &x, 1, "out=");
	struct tensor *turned, *named;

	same = hd_dim_get(p, "test_same", last->n);
	named = hd_build_rename(p, x, last, same);
	turned = hd_op1(p, "gelu", &x, 1, "%s", "");
	if (!ok(taken && put && sum && named && turned && !p->err->code, "nodes of several ops are made"))
		return;
	p->slot = (struct hd_slot){ .inst = 0, .name = "lower" };
	OUT_OF_PLACE(hd_build_local(p, x, p->axes[0]));
	OUT_OF_PLACE(hd_build_permute(p, g, x, 1, 1));
	OUT_OF_PLACE(hd_build_scalar(p, 0, NULL));
	OUT_OF_PLACE(hd_build_rename(p, x, last, same));
	OUT_OF_PLACE(hd_build_topk(p, x, last, two, 0));
	OUT_OF_PLACE(hd_build_gather(p, x, index, last));
	OUT_OF_PLACE(hd_build_scatter(p, taken, index, two, last, 1));
	OUT_OF_PLACE(gives_gradient(top));
	OUT_OF_PLACE(gives_gradient(N(taken->v.node)));
	OUT_OF_PLACE(gives_gradient(N(put->v.node)));
	OUT_OF_PLACE(gives_gradient(N(sum->v.node)));
	OUT_OF_PLACE(gives_gradient(N(named->v.node)));
	OUT_OF_PLACE(gives_gradient(N(turned->v.node)));
	p->slot = (struct hd_slot){ .inst = -1 };
}

static void builders(void)
{
	struct tensor *x = made_in(HD_UNIT_F, OP_ROLE_EINSUM)->outs[0], *scalar = p->loss, *out[1], *ints, *flat;
	struct group *g = p->groups[0];
	const struct hd_dim *vocab = hd_dim_get(p, "vocab", 0), *embed = hd_dim_get(p, "embed", 0);
	struct tensor *two[] = { x, NULL }, *three[] = { scalar, scalar, scalar };

	p->cursor = hd_cursor_end(HD_UNIT_F, 0);
	operands_that_are_null(x, g);
	nodes_without_a_place(x, g);
	p->cursor = hd_cursor_end(HD_UNIT_F, 0);
	hd_dim_get(p, "test", 64);
	ints = hd_leaf(p, "test.ints", HD_TENSOR_STATE, HD_DTYPE_I32, "embed");
	flat = hd_leaf(p, "test.flat", HD_TENSOR_STATE, HD_DTYPE_I32, "test");
	two[1] = ints;
	REFUSED(hd_build_chunk(p, scalar, embed, 2, &(struct hd_pos){ .step = 1 }),
		"chunk: embed of () has 0 elements, not");
	REFUSED(hd_build_chunk(p, scalar, NULL, 2, &(struct hd_pos){ .step = 1 }),
		"chunk: ? of () has 0 elements, not");
	REFUSED(hd_build_join(p, &scalar, 1, embed, NULL), "join: () has no dim embed");
	REFUSED(hd_build_join(p, &scalar, 1, NULL, NULL), "join: () has no dim ?");
	REFUSED(hd_build_block(p, ints, embed, 3, HD_ORDER_CONTIGUOUS), "8 elements are not divisible by 3 members");
	REFUSED(hd_build_pack(p, two, 2, 1), "pack: input 1 has a different dtype from input 0");
	REFUSED(hd_build_comm(p, HD_COMM_REDUCE_SCATTER, g, scalar, embed, 0),
		"() does not have the dim that is sharded");
	REFUSED(hd_build_comm(p, HD_COMM_ALL_TO_ALL, g, scalar, NULL, 0), "all-to-all: the leading dim of () has");
	REFUSED(hd_op1(p, "nothing", &x, 1, "%s", ""), "there is no op nothing");
	REFUSED(hd_op1(p, "einsum", two, 2, "%s", ""), "attribute out= is missing in ''");
	REFUSED(hd_op1(p, "attention", three, 3, "%s", ""),
		"attention: q, k, v are (batch, seq, heads, head_dim), not ");
	REFUSED(hd_op1(p, "dispatch", three, 2, "%s", ""), "dispatch: () must be (batch, seq, ...)");
	REFUSED(hd_op1(p, "combine", three, 3, "%s", ""), "combine: () must be (expert, batch, slot, embed)");
	REFUSED(hd_op1(p, "route", &p->nll, 1, "%s", ""), "route: (");
	said(hd_build_unpack(p, NULL, two, 1, out), "unpack: the flat tensor is NULL", "unpack of NULL is refused");
	said(hd_build_unpack(p, ints, NULL, 1, out), "unpack: the tensor to be like is NULL",
	     "... or to tensors like NULL");
	said(hd_build_unpack(p, ints, &x, 1, out), "unpack: (embed) has 8 elements, but the tensors to be like have",
	     "... or of a tensor of another size");
	said(hd_build_unpack_pieces(p, NULL, &x, x->dims, 1, 2, out),
	     "unpack_pieces: () has 0 elements, but 2 pieces have 0", "unpack_pieces of NULL is refused");
	said(hd_build_unpack_pieces(p, flat, &ints, &vocab, 1, 1, out), "unpack_pieces: (embed) has no vocab",
	     "... or along a dim that the tensor does not have");
}

int main(void)
{
	p = gt_plan_of(ini, 4, HD_DTYPE_F64);
	if (!ok(p != NULL, "a layout of two sections is planned")) {
		note("%s", gt_why());
		return done();
	}
	p->err = &p->own;
	views();
	shapes();
	graphs();
	rules();
	builders();
	gt_plan_destroy(p);
	return done();
}
