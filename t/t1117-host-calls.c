/* SPDX-License-Identifier: Apache-2.0
 * Each call of struct hd_host and struct hd_graph_api, with each argument wrong in turn, fails with its message and
 * makes no node. If this broke, a mistake in a plugin would be taken for something else, or the engine would read
 * invalid memory.
 */
#include <config.h>
#include "engine/host/host_impl.h"
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"

#define PLUGIN(name) HD_TEST_BUILD "/plugins/" name "/.libs/" name ".so\n"
static const char ini[] =
	"[model]\nfamily = gpt2\nlayers = 2\nheads = 2\nembed = 8\nmlp = 12\nvocab = 12\n[data]\ntrain = none\n"
	"[train]\nseq = 4\nglobal_batch = 8\nmicro_batch = 2\nsteps = 9\noptimizer = sgd\nclip = 0\n"
	"[plugin b]\nfile = " HD_TEST_BUILD "/t/plugins/.libs/builders.so\n"
	"[strategy dp]\nplugin = " PLUGIN("dp") "size = 2\nsync = server\nservers = 1\n"
						"[strategy pp]\nplugin = " PLUGIN("pp") "size = 2\n";

static const struct hd_host *const h = &hd_host_table;
static const struct hd_graph_api *const g = &hd_graph_table;
static struct hd_plan *p;
static const struct hd_axis *dp, *pp;
static const struct hd_group *both, *stages, *servers, *workers;
static struct hd_tensor *w, *act, *grad,
	*far; /* a parameter, a value of a micro-batch, a value of a step; not a tensor */
static const struct hd_dim *embed, *batch;
static int nodes;

static void in(const char *slot)
{
	p->slot.name = slot;
	p->slot.inst = 0;
}

static void clear(void)
{
	memset(p->err, 0, sizeof(*p->err));
	nodes = p->nnodes;
}

static void said(const char *want, const char *call)
{
	if (!ok(p->err->code < 0 && strstr(p->err->text, want) && p->nnodes == nodes, "%.90s", call))
		note("said: %s\n# want: %s; %d nodes more", p->err->text, want, p->nnodes - nodes);
}

#define BAD(call, want) (clear(), (void)(call), said(want, #call))

static void cursor_at(uint32_t phases)
{
	const struct node *n = p->first;

	while (n && !(n->v.phase & phases))
		n = n->next;
	p->cursor = hd_cursor_before((struct node *)(uintptr_t)n);
}

static struct hd_tensor *made_in(uint32_t phases, enum op_role role)
{
	for (struct node *n = p->first; n; n = n->next)
		if (n->v.phase & phases && n->is->role == role && n->v.nout && n->outs[0]->v.ndim > 1)
			return &n->outs[0]->v;
	return NULL;
}

static struct hd_tensor *leaf(const char *name)
{
	for (size_t i = 0; i < p->ntensors; i++)
		if (!p->tensors[i]->v.node && !strcmp(p->tensors[i]->v.name, name))
			return &p->tensors[i]->v;
	return NULL;
}

/* Returns a parameter with the number of dims of w, but different ones. */
static struct hd_tensor *other_parameter(void)
{
	struct hd_tensor *t = NULL;

	while ((t = g->leaf_next(p, t, HD_TENSOR_PARAM)) && (t->ndim != w->ndim || t->dims[0] == w->dims[0]))
		;
	return t;
}

/* -- reading ------------------------------------------------------------------------------------------------------- */
static void reading(void)
{
	const struct hd_match plain = { .size = sizeof(plain) };
	struct hd_match m = plain;
	const struct hd_dim *dims[HD_MAX_DIMS];

	BAD(g->node_next(p, (void *)far, &plain), "node_next: the node before is not a node of this plan");
	m.axis = (void *)far;
	BAD(g->node_next(p, NULL, &m), "node_next: the axis is not an axis of this plan");
	m.axis = NULL, m.reads = far;
	BAD(g->node_next(p, NULL, &m), "node_next: the tensor that is read is not a tensor of this plan");
	BAD(g->leaf_next(p, NULL, 99), "leaf_next: what is 99, this engine knows 0 to 5");
	BAD(g->leaf_next(p, far, HD_TENSOR_PARAM), "leaf_next: the leaf before is not a tensor");
	BAD(g->place(p, far, dp), "place: the tensor is not a tensor");
	BAD(g->place(p, w, (void *)w), "place: the axis is a tensor and must be an axis");
	BAD(g->attr_dims(p, NULL, "outs", dims), "attr_dims: the attributes are NULL");
	BAD(g->attr_dims(p, "outs=embed", NULL, dims), "attr_dims: the key is NULL");
	BAD(g->attr_dims(p, "outs=embed", "outs", NULL), "attr_dims: the array is NULL");
	BAD(g->attr_dims(p, "outs=nothing", "outs", dims), "there is no dim nothing in (nothing)");
	BAD(g->attr_dims(p, "outs=embed,embed,embed,embed,embed,embed,embed,embed,embed", "outs", dims),
	    "more than 8 dims");
	clear();
	ok(g->place(p, NULL, dp)->kind == HD_PLACE_REPLICATED && g->place(p, w, NULL)->kind == HD_PLACE_REPLICATED,
	   "the place of NULL is replicated");
	ok(g->attr(NULL, "k", 7) == 7 && g->attr("k=1", NULL, 7) == 7 && g->attr("k=1", "k", 7) == 1,
	   "an attribute of NULL has the default");
	BAD(g->op(p, NULL), "op: the name is NULL");
	BAD(h->query(p, NULL), "query: the feature is NULL");
	BAD(h->dim(p, NULL), "dim: the name is NULL");
	BAD(h->axis_next(p, (void *)far), "axis_next: the axis before is not an axis");
	BAD(h->block_next(p, (void *)far), "block_next: the block is not a block of this plan");
	BAD(g->updated(p, far), "updated: the leaf is not a tensor");
	BAD(g->updated(p, act), "is not a leaf");
	BAD(h->opt_int(p, NULL), "opt_int: the plugin declares no option (NULL)");
	BAD(h->opt_str(p, "nothing"), "opt_str: the plugin declares no option nothing");
	BAD(h->alloc(p, (size_t)1 << 40), "alloc: 1099511627776 bytes, more than 68719476736");
	BAD(h->fail(p, 5, "five"), "five (fail: 5 is not one of the codes from HD_EINVAL");
	BAD(h->fail(p, -999, "%d", 9), "9 (fail: -999 is not one of the codes");
}

/* -- layout ---------------------------------------------------------------------------------------------------------------- */
#define AXIS(...) h->axis(p, &(struct hd_axis_args){ sizeof(struct hd_axis_args), __VA_ARGS__ })
#define GROUP(...) h->group(p, &(struct hd_group_args){ sizeof(struct hd_group_args), __VA_ARGS__ })
#define UNIT(...) h->unit(p, &(struct hd_unit_args){ .size = sizeof(struct hd_unit_args), __VA_ARGS__ })
#define STAGE(...) h->stage(p, &(struct hd_stage_args){ .size = sizeof(struct hd_stage_args), __VA_ARGS__ })

static void layout(void)
{
	const struct hd_axis *none = (void *)far;
	const struct hd_block *first = h->block_next(p, NULL);
	int naxes;

	BAD(AXIS("x", 2), "axis may be called in slot mesh only, not in lower");
	in("mesh");
	BAD(h->axis(p, NULL), "axis: the arguments are NULL");
	BAD(AXIS("a b", 2), "axis: a name has letters, digits");
	BAD(AXIS("", 2), "axis: the name is empty");
	BAD(AXIS("x", 1 << 25), "axis: 33554432 members, more than 16777216");
	BAD(AXIS("x", 1, -1), "axis: -1 spare coordinates, not 0 to 65536");
	BAD(AXIS("x", 1, 1 << 17), "axis: 131072 spare coordinates, not 0 to 65536");
	naxes = p->naxes;
	p->naxes = HD_MAX_AXES;
	BAD(AXIS("x", 1), "more than 12 axes");
	p->naxes = naxes;
	BAD(AXIS("x", 1, 1), "axis: 1 spare coordinates, but axis dp has 1: only one axis of a layout may have them");
	in("lower");
	BAD(h->group(p, NULL), "group: the arguments are NULL");
	BAD(GROUP(NULL, 1), "group: of 0 axes, not of 1 to");
	BAD(GROUP(&dp, 0), "group: of 0 axes, not of 1 to");
	BAD(GROUP(&dp, 99), "group: of 99 axes, not of 1 to");
	BAD(GROUP(&none, 1), "group: the axis is not an axis");
	BAD(GROUP(&pp, 1, HD_ROLE_SPARE),
	    "group: role 1 needs one axis with spare coordinates, but pp is one of 1 and has 0");
	BAD(GROUP(((const struct hd_axis *[]){ dp, pp }), 2, HD_ROLE_ALL), ", but dp is one of 2 and has 1");
	BAD(h->dim_new(p, "d", (int64_t)1 << 40), "dim_new: d has 1099511627776 elements, not 1 to");
	BAD(h->dim_new(p, NULL, 1), "dim_new: the name is NULL");
	BAD(hd_rule(h, p, "batch", dp, NULL, 0), "rule may be called in slot rules only, not in lower");
	BAD(STAGE(.block = first, .axis = pp), "stage may be called in slot rules only, not in lower");
	BAD(UNIT(.axis = pp), "unit may be called in slot schedule only, not in lower");
	in("rules");
	BAD(hd_rule(h, p, NULL, NULL, NULL, 0), "rule: the dim is NULL (and so is the axis)");
	BAD(h->stage(p, NULL), "stage: the arguments are NULL");
	BAD(STAGE(.block = first, .axis = none), "stage: the axis is not an axis");
	BAD(STAGE(.block = first, .axis = pp, .coord = -1), "stage");
	BAD(STAGE(.block = first, .axis = pp, .coord = 2), "stage");
	BAD(STAGE(.block = first, .axis = pp, .chunk = -1), "stage");
	in("schedule");
	BAD(h->unit(p, NULL), "unit: the arguments are NULL");
	BAD(UNIT(.axis = none), "unit: the axis is not an axis");
	BAD(UNIT(.axis = dp), "units are ordered on the axis that has the stages");
	BAD(UNIT(.axis = pp, .kind = 3), "unit: kind 3 is not one of HD_UNIT_F 1, HD_UNIT_B 2, HD_UNIT_W 4");
	BAD(UNIT(.axis = pp, .kind = HD_UNIT_F, .coord = -1),
	    "unit of stage -1, chunk 0, micro-batch 0: out of 2, 1, ");
	BAD(UNIT(.axis = pp, .kind = HD_UNIT_F, .coord = 2), "unit of stage 2,");
	BAD(UNIT(.axis = pp, .kind = HD_UNIT_F, .chunk = -1), "chunk -1,");
	BAD(UNIT(.axis = pp, .kind = HD_UNIT_F, .chunk = 1), "chunk 1,");
	BAD(UNIT(.axis = pp, .kind = HD_UNIT_B, .micro = -1), "micro-batch -1:");
	BAD(UNIT(.axis = pp, .kind = HD_UNIT_W, .micro = 99), "micro-batch 99:");
	BAD(UNIT(.axis = pp, .kind = HD_UNIT_F, .reserved = 3), "unit: reserved is 3, it must be 0");
	in("lower");
}

#define STORAGE(...) g->storage(p, &(struct hd_storage_args){ .size = sizeof(struct hd_storage_args), __VA_ARGS__ })

static void storage(void)
{
	const struct hd_place whole = { .kind = HD_PLACE_REPLICATED }, low = { .kind = HD_PLACE_PINNED, .index = -1 },
			      high = { .kind = HD_PLACE_PINNED, .index = 2 }, nowhere = { .kind = HD_PLACE_SHARD },
			      strange = { .kind = HD_PLACE_SHARD, .dim = (void *)far },
			      other = { .kind = HD_PLACE_SHARD, .dim = batch };

	BAD(STORAGE(.leaf = w, .axis = dp, .place = &whole),
	    "storage may be called in slot storage only, not in lower");
	in("storage");
	BAD(g->storage(p, NULL), "storage: the arguments are NULL");
	BAD(STORAGE(.leaf = far, .axis = dp, .place = &whole), "storage: the leaf is not a tensor");
	BAD(STORAGE(.leaf = w, .axis = (void *)far, .place = &whole), "storage: the axis is not an axis");
	BAD(STORAGE(.leaf = w, .axis = dp), "storage: the place is NULL");
	BAD(STORAGE(.leaf = w, .axis = dp, .place = &low), "storage: place.index is -1, but axis dp has 2 coordinates");
	BAD(STORAGE(.leaf = w, .axis = dp, .place = &high), "storage: place.index is 2, but axis dp has 2 coordinates");
	BAD(STORAGE(.leaf = w, .axis = dp, .place = &nowhere), "storage: place.dim is NULL");
	BAD(STORAGE(.leaf = w, .axis = dp, .place = &strange), "storage: place.dim is not a dim of this plan");
	BAD(STORAGE(.leaf = w, .axis = dp, .place = &other), "storage: sharded along batch, which (");
	BAD(STORAGE(.leaf = act, .axis = dp, .place = &whole), "in each step and has no storage of its own");
	BAD(STORAGE(.leaf = w, .axis = dp, .place = &whole, .reserved = 3), "storage: reserved is 3, it must be 0");
	BAD(STORAGE(.leaf = w, .axis = dp, .place = &whole, .space = 9), "storage: space 9 of (");
	BAD(STORAGE(.leaf = w, .axis = dp, .place = &whole, .space = HD_SPACE_HOST), "storage: space 1 of (");
	in("lower");
}

/* -- building ---------------------------------------------------------------------------------------------------- */
static int no_shape(struct hd_strategy *s, struct hd_plan *plan, const char *attr, struct hd_tensor *const *ins,
		    uint32_t nin, struct hd_shape *outs, uint32_t *nout)
{
	(void)s, (void)plan, (void)attr, (void)ins, (void)nin, (void)outs;
	*nout = 0;
	return HD_OK;
}

static void building(void)
{
	const struct {
		struct hd_op op;
		int64_t more;
	} later = { { .size = sizeof(later), .name = "later", .shape = no_shape }, 1 };
	const struct hd_dim *none = (void *)far;
	const struct hd_op own = { .size = sizeof(own), .name = "own", .shape = no_shape };
	struct hd_tensor *two[] = { w, act }, *same[] = { w, w }, *out[2], *half, *bf, *scalars[2];
	const struct hd_pos first = { .group = both, .mul = 1 }, odd = { .reserved = { 0, 7 } },
			    strange = { .group = (void *)far };

	clear();
	half = g->chunk(p, w, w->dims[1], 2, &first);
	bf = g->cast(p, w, HD_DTYPE_BF16);
	scalars[0] = scalars[1] = g->scalar(p, HD_SCALAR_STEP, NULL);
	ok(half && bf && scalars[0] && other_parameter(),
	   "half of a parameter, a parameter in bf16, a number and another parameter are made");
	clear();
	BAD(g->einsum(p, two, 0, &embed, 1), "einsum: 0 inputs, not 1 to 2");
	BAD(g->einsum(p, NULL, 2, &embed, 1), "einsum: 2 inputs at NULL, not 1 to 2");
	BAD(g->einsum(p, two, 3, &embed, 1), "einsum: 3 inputs, not 1 to 2");
	BAD(g->einsum(p, &far, 1, &embed, 1), "einsum: the input 0 is not a tensor");
	BAD(g->einsum(p, &w, 1, &embed, 99), "einsum: 99 dims of the result, not 0 to");
	BAD(g->einsum(p, &w, 1, NULL, 1), "einsum: 1 dims of the result");
	BAD(g->einsum(p, &w, 1, &none, 1), "einsum: the dim is not a dim");
	BAD(g->einsum(p, &w, 1, &batch, 1), "einsum: no input has the dim batch of the result");
	BAD(g->map(p, &w, 0, "a"), "map: 0 inputs, not 1 to");
	BAD(g->map(p, &w, 1, NULL), "map: the text is NULL");

	BAD(g->node(p, &later.op, same, 1, "%s", ""), "node: op later has a slot at byte ");
	BAD(g->node(p, &own, same, 0, "%s", ""), "own: 0 inputs, not 1 to");
	BAD(g->node(p, g->op(p, "gelu"), same, 2, "%s", ""), "gelu: 2 inputs, not 1 to 1");
	BAD(g->node(p, g->op(p, "rope"), same, 1, "%s", ""), " dims, not 4");
	BAD(g->node(p, g->op(p, "norm"), scalars, 2, "%s", ""), " has 0 dims, not 1 or more");
	BAD(g->cast(p, far, HD_DTYPE_F32), "cast: the tensor is not a tensor");
	BAD(g->chunk(p, far, embed, 2, &first), "chunk: the tensor is not a tensor");
	BAD(g->chunk(p, w, none, 2, &first), "chunk: the dim is not a dim");
	BAD(g->chunk(p, w, w->dims[1], 2, &strange), "chunk: the group of the position is not a group");
	BAD(g->chunk(p, w, w->dims[1], 2, &odd), "chunk: pos.reserved is 7, it must be 0");
	BAD(g->chunk(p, w, batch, 2, &first), "chunk: batch of (");
	BAD(g->chunk(p, w, w->dims[1], 3, &first), "elements, not a multiple of 3");
	BAD(g->join(p, same, 2, none, NULL), "join: the dim is not a dim");
	BAD(g->join(p, same, 0, embed, NULL), "join: 0 inputs, not 1 to");
	BAD(g->join(p, two, 2, embed, NULL), "join: input 1 (");
	BAD(g->join(p, ((struct hd_tensor *[]){ w, bf }), 2, embed, NULL), "of 16 bits is not like input 0 (");
	BAD(g->join(p, ((struct hd_tensor *[]){ w, half }), 2, embed, NULL), "is not like input 0");
	BAD(g->join(p, ((struct hd_tensor *[]){ w, other_parameter() }), 2, embed, NULL), "is not like input 0");
	BAD(g->join(p, same, 2, embed, &odd), "join: pos.reserved is 7");
	BAD(g->join(p, same, 2, batch, NULL), "join: (");
	BAD(g->pick(p, &far, 1, &first), "pick: the input 0 is not a tensor");
	BAD(g->pick(p, same, 2, &odd), "pick: pos.reserved is 7");
	BAD(g->pack(p, same, 0, 1), "pack: 0 inputs, not 1 to");
	BAD(g->pack(p, same, 2, 1 << 25), "pack: a multiple of 33554432, more than 16777216");
	BAD(g->pack(p, ((struct hd_tensor *[]){ w, bf }), 2, 1), "pack: input 1 has a different dtype from input 0");
	BAD(g->unpack(p, far, same, 2, out), "unpack: the flat tensor is not a tensor");
	BAD(g->unpack(p, w, &far, 1, out), "unpack: the input 0 is not a tensor");
	BAD(g->unpack(p, w, same, 2, NULL), "unpack: the array for the results is NULL");
	BAD(g->unpack(p, w, same, 2, out), "elements, but the tensors to be like have");
	BAD(g->pack_pieces(p, &far, &embed, 1, 2), "pack_pieces: the input 0 is not a tensor");
	BAD(g->pack_pieces(p, &w, &none, 1, 2), "pack_pieces: the dim is not a dim");
	BAD(g->pack_pieces(p, &w, w->dims, 1, 1 << 21), "pack_pieces: 2097152 pieces, not 1 to");
	BAD(g->unpack_pieces(p, far, &w, w->dims, 1, 1, out), "unpack_pieces: the flat tensor is not a tensor");
	BAD(g->unpack_pieces(p, w, &far, w->dims, 1, 1, out), "unpack_pieces: the input 0 is not a tensor");
	BAD(g->unpack_pieces(p, w, &w, w->dims, 1, 1, out), "elements, but 1 pieces have");
}

static void building_in_a_step(void)
{
	struct hd_tensor *x[] = { act, act }, *out[2];
	const struct hd_pos first = { .group = both, .mul = 1 };
	const struct hd_comm_args sum = { sizeof(sum), both, act, NULL, 0, HD_COMM_ALL_REDUCE, 0, 0 };

	cursor_at(HD_UNIT_S | HD_UNIT_U | HD_UNIT_G);
	BAD(g->node(p, g->op(p, "gelu"), x, 1, "%s", ""),
	    "is computed once a micro-batch, but is read where nodes run once a step");
	BAD(g->einsum(p, x, 1, act->dims, 1), "einsum: (");
	BAD(g->cast(p, act, HD_DTYPE_BF16), "cast: (");
	BAD(g->chunk(p, act, act->dims[0], 1, &first), "chunk: (");
	BAD(g->join(p, x, 2, act->dims[0], NULL), "join: (");
	BAD(g->pick(p, x, 2, &first), "pick: (");
	BAD(g->pack(p, x, 2, 1), "pack: (");
	BAD(g->unpack(p, act, x, 1, out), "unpack: (");
	BAD(g->comm(p, &sum), "comm: (");
	BAD(g->pack_pieces(p, x, act->dims, 1, 1), "pack_pieces: (");
	BAD(g->unpack_pieces(p, act, x, act->dims, 1, 1, out), "unpack_pieces: (");
	cursor_at(HD_UNIT_F);
}

#define MEMBERS(...) \
	&(struct hd_members) \
	{ \
		__VA_ARGS__ \
	}

static void members(void)
{
	BAD(g->only(p, MEMBERS((void *)far, 0, 1)), "only: the group is not a group");
	BAD(g->only(p, MEMBERS(stages, 0, 1)), "only: pp is the axis of the stages, or of spare ranks");
	BAD(g->only(p, MEMBERS(servers, 0, 1)), "only: dp is the axis of the stages, or of spare ranks");
	BAD(g->only(p, MEMBERS(workers, -1, 1)), "only: members -1 to 0 of the 2 of dp");
	BAD(g->only(p, MEMBERS(workers, 1, 1)), "only: members 1 to 0 of the 2 of dp");
	BAD(g->only(p, MEMBERS(workers, 0, 1, { 5 })), "only: reserved words of the members are 5 and 0, not 0");
	in("rewrite");
	BAD(g->only(p, NULL), "only may be called in slot lower only, not in rewrite");
	in("lower");
	BAD(g->either(p, MEMBERS(workers, 0, 1), far, w), "either: the tensor of the members is not a tensor");
	BAD(g->either(p, MEMBERS(workers, 0, 1), w, far), "either: the tensor of the others is not a tensor");
	BAD(g->either(p, MEMBERS(workers, 0, 9), w, w), "either: members 0 to 8 of the 2 of dp");
	BAD(g->either(p, MEMBERS(workers, 0, 1), w, act), "bytes on a rank is not like (");
	BAD(g->either(p, MEMBERS(workers, 0, 1), w, other_parameter()), "bytes on a rank is not like (");
}

#define COMM(...) g->comm(p, &(struct hd_comm_args){ .size = sizeof(struct hd_comm_args), __VA_ARGS__ })

static void communication(void)
{
	const struct hd_dim *wide[HD_MAX_DIMS];
	struct hd_tensor *full, *bytes;

	for (int i = 0; i < HD_MAX_DIMS; i++)
		wide[i] = h->dim_new(p, (char[]){ 'w', (char)('0' + i), 0 }, 2);
	clear();
	full = g->constant(p, wide, HD_MAX_DIMS, 1);
	bytes = g->cast(p, w, HD_DTYPE_I8);
	BAD(g->comm(p, NULL), "comm: the arguments are NULL");
	BAD(COMM(.group = (void *)far, .x = w, .kind = HD_COMM_ALL_REDUCE), "comm: the group is not a group");
	BAD(COMM(.group = workers, .x = far, .kind = HD_COMM_ALL_REDUCE), "comm: the tensor is not a tensor");
	BAD(COMM(.group = workers, .x = w, .dim = (void *)far, .kind = HD_COMM_ALL_GATHER),
	    "comm: the dim is not a dim");
	BAD(COMM(.group = workers, .x = bytes, .kind = HD_COMM_ALL_REDUCE),
	    "which is i8: it can be moved, not added or compared");
	BAD(COMM(.group = workers, .x = bytes, .kind = HD_COMM_ALL_MAX), "it can be moved, not added or compared");
	BAD(COMM(.group = workers, .x = w, .kind = 0), "comm: 0 is not a kind of collective");
	BAD(COMM(.group = workers, .x = w, .kind = HD_COMM_BROADCAST, .index = -1), "comm: the root is member -1 of 2");
	BAD(COMM(.group = workers, .x = w, .kind = HD_COMM_SCATTER, .index = 2), "comm: the root is member 2 of 2");
	BAD(COMM(.group = workers, .x = w, .kind = HD_COMM_SHIFT, .index = -2), "comm: a shift by -2 among 2 members");
	BAD(COMM(.group = workers, .x = w, .kind = HD_COMM_SHIFT, .index = 2), "comm: a shift by 2 among 2 members");
	BAD(COMM(.group = workers, .x = w, .kind = HD_COMM_ALL_REDUCE, .wire = HD_DTYPE_BF16),
	    "comm: the wire of an all-reduce is ");
	BAD(COMM(.group = workers, .x = w, .kind = HD_COMM_BROADCAST, .wire = HD_DTYPE_BF16),
	    "comm: the wire of a broadcast is ");
	BAD(COMM(.group = workers, .x = w, .dim = wide[0], .kind = HD_COMM_REDUCE_SCATTER),
	    "does not have the dim that is sharded");
	BAD(COMM(.group = workers, .x = w, .kind = HD_COMM_REDUCE_SCATTER), "does not have the dim that is sharded");
	BAD(COMM(.group = workers, .x = w, .dim = batch, .kind = HD_COMM_ALL_GATHER), "comm: the new dim batch has");
	BAD(COMM(.group = workers, .x = full, .kind = HD_COMM_ALL_GATHER),
	    "has 8 dims, and a dim over the members must be added");
	BAD(COMM(.group = workers, .x = full, .kind = HD_COMM_GATHER),
	    "has 8 dims, and a dim over the members must be added");
	BAD(COMM(.group = workers, .x = full, .dim = wide[0], .kind = HD_COMM_REDUCE_SCATTER),
	    "has 8 dims, and a dim over");
	BAD(COMM(.group = workers, .x = full, .dim = wide[0], .kind = HD_COMM_SCATTER), "has 8 dims, and a dim over");
	BAD(COMM(.group = servers, .x = w, .kind = HD_COMM_SHIFT), "comm: shift in a group with spare members");
	in("rewrite");
	BAD(COMM(.group = workers, .x = w, .kind = HD_COMM_ALL_REDUCE), "in slot rewrite, where nothing is placed yet");
	in("vjp");
	BAD(COMM(.group = workers, .x = w, .kind = HD_COMM_ALL_REDUCE), "in slot vjp, where nothing is placed yet");
	in("lower");
	BAD(g->reshard(p, far, dp, &(struct hd_place){ 0 }), "reshard: the tensor is not a tensor");
	BAD(g->reshard(p, w, (void *)far, &(struct hd_place){ 0 }), "reshard: the axis is not an axis");
	BAD(g->reshard(p, w, dp, NULL), "reshard: the place is NULL");
	clear();
	g->only(p, MEMBERS(workers, 0, 1));
	BAD(g->reshard(p, w, dp, &(struct hd_place){ 0 }), "reshard: along dp, under `only` members 0 to 0 of dp");
	BAD(COMM(.group = both, .x = w, .kind = HD_COMM_ALL_REDUCE),
	    "comm: along dp, under `only` members 0 to 0 of dp");
	cursor_at(HD_UNIT_F);
}

/* -- changing ---------------------------------------------------------------------------------------------------- */
#define STATE(...) g->state(p, &(struct hd_state_args){ .size = sizeof(struct hd_state_args), __VA_ARGS__ })

static void changing(void)
{
	struct hd_tensor *s, *like[3], *half, *dead;
	struct hd_node *reader = act->node;

	clear();
	cursor_at(HD_UNIT_F);
	half = g->chunk(p, w, w->dims[1], 2, &(struct hd_pos){ .group = both, .mul = 1 });
	s = STATE(.name = "s", .like = w, .dtype = w->dtype);
	for (int i = 0; i < 3; i++)
		like[i] = g->map(p, &w, 1, "a + %d", i);
	dead = g->map(p, &w, 1, "a + 9");
	ok(s && like[2] && dead, "a state and values for it are made");
	N(dead->node)->dead = 1;
	BAD(g->replace(p, dead, w), "replace: the old tensor (");
	BAD(hd_cursor(g, p, dead->node, NULL), "cursor: the anchor, map, is no longer part of the program");
	N(dead->node)->dead = 0;
	BAD(g->replace(p, far, w), "replace: the old tensor is not a tensor");
	BAD(g->replace(p, w, act), "is not like (");
	BAD(g->replace(p, w, other_parameter()), "is not like (");
	BAD(g->replace(p, w, half), "elements instead of");
	BAD(g->replace_in(p, (void *)far, w, w), "replace_in: the reader is not a node");
	BAD(g->replace_in(p, reader, s, s), "does not read b.s");
	BAD(g->cursor(p, NULL), "cursor: the arguments are NULL");
	BAD(hd_cursor(g, p, reader, (void *)far), "cursor: the queue is not a group");
	BAD(g->after(p, far, act), "after: the tensor is not a tensor");
	BAD(g->after(p, act, far), "after: the tensor that it is to wait for is not a tensor");
	clear();
	is_int(g->after(p, w, act), 0, "a leaf that is to wait is accepted, without an effect");
	is_int(g->after(p, act, w), 0, "a wait for a leaf is accepted, without an effect");
	is_int(g->replace(p, w, w), 0, "a tensor may be replaced by itself");
	BAD(STATE(.name = "", .like = w, .dtype = w->dtype), "state: the name is empty");
	BAD(STATE(.name = "x", .like = far, .dtype = w->dtype), "state: the tensor to be like is not a tensor");
	BAD(STATE(.name = "x", .like = w, .dtype = 77), "state: x has dtype 0x4d, which a state cannot have");
	BAD(g->state(p, NULL), "state: the arguments are NULL");
	BAD(g->assign(p, far, w), "assign: the state is not a tensor");
	BAD(g->assign(p, s, far), "assign: the value is not a tensor");
	BAD(g->assign(p, act, w), "is not a state of this section");
	BAD(g->assign(p, s, act), ", but the value is (");
	BAD(g->assign(p, s, other_parameter()), ", but the value is (");
	BAD(g->assign(p, s, half), "elements on a rank, but the value has");
	clear();
	is_int(g->assign(p, s, like[0]), 0, "a value is assigned to a state");
	BAD(g->assign(p, s, w), "assign: b.s.");
	BAD(g->assign(p, s, like[1]), "is already assigned");
	N(like[1]->node)->period = N(like[2]->node)->period = 2;
	clear();
	is_int(g->assign(p, s, like[1]), 0, "a second value may be assigned in some steps");
	BAD(g->assign(p, s, like[2]), "is already assigned");
	N(like[1]->node)->period = N(like[2]->node)->period = 0;
	p->slot.inst = 1;
	BAD(g->assign(p, s, like[2]), "is not a state of this section");
	BAD(g->initial(p, s, HD_INITIAL_VALUE, 0), "is not a state of this section");
	p->slot.inst = 0;
	BAD(g->initial(p, far, HD_INITIAL_VALUE, 0), "initial: the state is not a tensor");
	BAD(g->initial(p, w, HD_INITIAL_VALUE, 0), "is not a state of this section");
	BAD(g->initial(p, act, HD_INITIAL_VALUE, 0), "is not a state of this section");
	BAD(g->initial(p, s, 9, 0), "is not one of the 3 ways to begin");
	clear();
	s = STATE(.name = "free", .like = g->scalar(p, HD_SCALAR_STEP, NULL), .dtype = p->master_dtype);
	BAD(g->initial(p, s, HD_INITIAL_PARAMETER, 0), "cannot begin as a parameter (none)");
	BAD(g->own(p, far, dp, HD_RESHARD_ZERO), "own: the state is not a tensor");
	BAD(g->own(p, s, (void *)far, HD_RESHARD_ZERO), "own: the axis is not an axis");
	BAD(g->own(p, w, dp, HD_RESHARD_ZERO), "is not a state in slot lower");
	BAD(g->local(p, far, dp), "local: the tensor is not a tensor");
	BAD(g->local(p, w, (void *)far), "local: the axis is not an axis");
	BAD(g->every(p, 0), "every: 0 steps, at least 1");
	BAD(g->every(p, 2), "every: 2 steps: nodes of a micro-batch run in every step");
	in("update");
	BAD(g->local(p, w, dp), "is not a term of a sum along dp in slot lower");
	BAD(g->own(p, s, dp, HD_RESHARD_ZERO), "is not a state in slot lower");
	in("lower");
}

/* -- numbers ---------------------------------------------------------------------------------------------------------------- */
static void numbers(void)
{
	const struct hd_dim *none = (void *)far, *k, *other, *dims[2] = { w->dims[0], w->dims[1] };
	struct hd_tensor *v, *i, *flat;

	clear();
	k = h->dim_new(p, "k", 2);
	other = h->dim_new(p, "other", dims[1]->n);
	is_int(g->topk(p, w, dims[1], k, 0, &v, &i), 0, "the largest entries are taken");
	flat = g->einsum(p, &i, 1, dims, 1);
	BAD(g->scalar(p, HD_SCALAR_INDEX, (void *)far), "scalar: the group is not a group");
	BAD(g->scalar(p, 99, NULL), "scalar");
	BAD(g->constant(p, dims, 99, 1), "constant: 99 dims, not 0 to 8");
	BAD(g->constant(p, NULL, 2, 1), "constant: 2 dims at NULL, not 0 to 8");
	BAD(g->constant(p, &none, 1, 1), "constant: the dim is not a dim");
	BAD(g->iota(p, dims, 2, batch), "iota: batch is not one of its 2 dims");
	BAD(g->iota(p, dims, 2, NULL), "iota: NULL is not one of its 2 dims");
	BAD(g->iota(p, NULL, 2, batch), "iota: 2 dims at NULL");
	BAD(g->random(p, NULL, 2, "r", 0), "random: 2 dims at NULL");
	BAD(g->random(p, dims, 2, NULL, 0), "random: the name is NULL");
	BAD(g->topk(p, w, dims[1], k, 0, NULL, &i), "topk: the pointer for the values is NULL");
	BAD(g->topk(p, w, dims[1], k, 0, &v, NULL), "topk: the pointer for the indices is NULL");
	clear();
	g->topk(p, w, dims[1], k, 0, &v, &i);
	BAD(g->topk(p, far, dims[1], k, 0, &(struct hd_tensor *){ 0 }, &(struct hd_tensor *){ 0 }),
	    "topk: the tensor is not a tensor");
	BAD(g->topk(p, w, none, k, 0, &(struct hd_tensor *){ 0 }, &(struct hd_tensor *){ 0 }),
	    "topk: the dim is not a dim");
	BAD(g->topk(p, w, batch, k, 0, &(struct hd_tensor *){ 0 }, &(struct hd_tensor *){ 0 }),
	    "does not have the dim batch");
	BAD(g->topk(p, w, dims[1], dims[0], 0, &(struct hd_tensor *){ 0 }, &(struct hd_tensor *){ 0 }),
	    "already has the dim");
	BAD(g->gather(p, w, NULL, dims[1]), "gather: the index is NULL");
	BAD(g->gather(p, far, i, dims[1]), "gather: the tensor is not a tensor");
	BAD(g->gather(p, w, far, dims[1]), "gather: the index is not a tensor");
	BAD(g->gather(p, w, i, none), "gather: the dim is not a dim");
	BAD(g->gather(p, w, w, dims[1]), "dtype f64, not i32");
	BAD(g->gather(p, w, i, batch), "does not have the dim batch");
	BAD(g->gather(p, act, i, act->dims[0]), "differs from (");
	BAD(g->gather(p, w, flat, dims[1]), "gather: the index (");
	BAD(g->scatter(p, v, NULL, k, dims[1], 1), "scatter: the index is NULL");
	BAD(g->scatter(p, v, i, k, none, 1), "scatter: the dim is not a dim");
	BAD(g->scatter(p, v, i, k, dims[0], 1), "already has the dim");
	BAD(g->rename(p, far, dims[1], other), "rename: the tensor is not a tensor");
	BAD(g->rename(p, w, batch, other), "does not have the dim batch");
	BAD(g->rename(p, w, dims[1], dims[0]), "already has the dim");
	BAD(g->rename(p, w, dims[1], k), "rename: ");
}

/* -- after a failure nothing is built --------------------------------------------------------------------------------------- */
static void after_a_failure(void)
{
	struct hd_tensor *x[2] = { w, w }, *out[2];
	const struct hd_pos first = { .group = both, .mul = 1 };
	struct hd_match m = { .size = sizeof(m) };

	BAD(g->op(p, NULL), "op: the name is NULL");
	g->einsum(p, x, 1, w->dims, 1), g->map(p, x, 1, "a"), g->cast(p, w, HD_DTYPE_BF16);
	g->chunk(p, w, w->dims[1], 2, &first), g->join(p, x, 2, embed, NULL), g->pick(p, x, 2, &first);
	g->pack(p, x, 2, 1), g->unpack(p, w, x, 1, out), g->pack_pieces(p, x, w->dims, 1, 1);
	g->unpack_pieces(p, w, x, w->dims, 1, 1, out), COMM(.group = workers, .x = w, .kind = HD_COMM_ALL_REDUCE);
	g->reshard(p, w, dp, &(struct hd_place){ 0 }), STATE(.name = "late", .like = w, .dtype = w->dtype);
	g->assign(p, w, w), g->replace(p, w, w), g->replace_in(p, act->node, w, w), g->after(p, act, w);
	hd_cursor(g, p, act->node, NULL), g->either(p, MEMBERS(workers, 0, 1), w, w),
		g->scalar(p, HD_SCALAR_STEP, NULL);
	g->constant(p, w->dims, 1, 1), g->iota(p, w->dims, 1, embed), g->random(p, w->dims, 1, "late", 0);
	g->initial(p, w, 0, 0), g->updated(p, w), g->every(p, 2), g->local(p, w, dp), g->own(p, w, dp, 1);
	g->topk(p, w, w->dims[1], embed, 0, &out[0], &out[1]), g->gather(p, w, w, embed);
	g->scatter(p, w, w, embed, batch, 1), g->rename(p, w, embed, batch);
	g->node(p, g->op(p, "gelu"), x, 1, "%s", "");
	said("op: the name is NULL", "after a failure nothing is built, and the first message stands");
	clear();
	ok(g->node_next(p, NULL, &m) != NULL, "a plan can be read again after its error was cleared");
}

/* -- outside of any slot -------------------------------------------------------------------------------------------------- */
static void by_nobody(void)
{
	p->slot.name = NULL;
	p->slot.inst = -1;
	BAD(AXIS("x", 2), "axis may be called in slot mesh only, not in none");
	BAD(h->fail(p, HD_EINVAL, "%s", "by nobody"), "by nobody");
	is_str(p->err->text, "by nobody", "outside of a slot no section is named");
	clear();
	ok(h->dim_new(p, "free", 3) && g->random(p, &embed, 1, "free", 1),
	   "a dim and random numbers can be made outside of a slot");
	h->log(p, HD_LOG_DEBUG, "file.c", 1, "%s", "said by nobody");
	ok(g->assign(p, leaf("b.short."), w) < 0, "outside of a slot a section's state cannot be assigned");
}

int main(void)
{
	static struct hd_tensor nowhere;

	p = gt_plan_of(ini, 6, HD_DTYPE_F64);
	if (!ok(p != NULL, "a layout of three sections is planned")) {
		note("%s", gt_why());
		return done();
	}
	p->err = &p->own;
	in("lower");
	far = &nowhere;
	dp = h->axis_next(p, NULL), pp = h->axis_next(p, dp);
	workers = hd_group_of(h, p, &dp, 1), stages = hd_group_of(h, p, &pp, 1);
	both = hd_group_of(h, p, (const struct hd_axis *[]){ dp, pp }, 2);
	servers = GROUP(&dp, 1, HD_ROLE_SPARE);
	embed = h->dim(p, "embed"), batch = h->dim(p, "batch");
	cursor_at(HD_UNIT_F);
	act = made_in(HD_UNIT_F, OP_ROLE_EINSUM), grad = made_in(HD_UNIT_B | HD_UNIT_W, OP_ROLE_EINSUM);
	w = leaf("h.0.mlp.in.weight");
	for (size_t i = 0; !w && i < p->ntensors; i++)
		if (p->tensors[i]->v.what == HD_TENSOR_PARAM && !p->tensors[i]->v.node && p->tensors[i]->v.ndim == 2)
			w = &p->tensors[i]->v;
	if (!ok(dp && pp && servers && act && grad && w && embed && batch, "the arguments of the calls are found"))
		return done();
	reading();
	layout();
	storage();
	building();
	building_in_a_step();
	members();
	communication();
	changing();
	numbers();
	after_a_failure();
	by_nobody();
	gt_plan_destroy(p);
	return done();
}
