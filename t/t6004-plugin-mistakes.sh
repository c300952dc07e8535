#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Mistakes that authors make while they write a first strategy.  Each must be refused with the section and the call, and
# none may end in a crash or in a run that computes something else.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

cat >mistake.c <<'EOF'
#include <heddle/strategy.h>
struct hd_strategy {
	const struct hd_host *h;
	const struct hd_axis *axis, *none;
	const struct hd_group *group;
};
static const struct hd_option options[] = { { "wide", HD_OPT_INT, 0, "1", "1..", "" } };
#ifndef SHAPE
#define SHAPE
#endif
#ifndef OPEN
#define OPEN
#endif
static struct hd_tensor *first_of(struct hd_plan *p, const struct hd_graph_api *g, uint32_t phases)
{
	const struct hd_match m = { .size = sizeof(m), .kind = "einsum", .phases = phases };
	struct hd_node *n = g->node_next(p, NULL, &m);
	return n ? n->outs[0] : NULL;
}
#ifndef SELF
#define SELF s
#endif
#ifndef MESH
#define MESH
#endif
#ifndef RULES
#define RULES
#endif
#ifndef LOWER
#define LOWER g->replace(p, n->outs[0], hd_comm(g, p, HD_COMM_ALL_REDUCE, s->group, x, NULL, 0))
#endif
#ifndef CURSOR
#define CURSOR hd_cursor(g, p, n, s->group)
#endif
static int same(struct hd_strategy *s, struct hd_plan *p, const char *attr, struct hd_tensor *const *ins, uint32_t nin,
	struct hd_shape *outs, uint32_t *nout)
{
	(void)s, (void)p, (void)attr, (void)nin;
	outs[0].dtype = ins[0]->dtype;
	outs[0].ndim = ins[0]->ndim;
	for (uint32_t i = 0; i < ins[0]->ndim; i++)
		outs[0].dims[i] = ins[0]->dims[i];
	*nout = 1;
	SHAPE;
	return HD_OK;
}
#ifndef KERNEL
#define KERNEL "none"
#endif
static int launched(struct hd_strategy *s, struct hd_record *r, const struct hd_node *n)
{
	return s->h->record->launch(r, KERNEL, n->ins, n->nin, n->outs, n->nout, "erf(a) + nothing");
}
static const struct hd_op loud = { .size = sizeof(loud), .name = "loud", .shape = same, .record = launched };
static const struct hd_op hollow = { .size = sizeof(hollow), .name = "hollow" };
static const struct hd_op small = { .size = 0, .name = "small", .shape = same };
#ifndef FLAGS
#define FLAGS 0
#endif
#ifndef ZERO
#define ZERO 0
#endif
#ifndef BITS
#define BITS .linear = 0
#endif
static const struct hd_op mute = { .size = sizeof(mute), .name = "mute", .shape = same, .flags = FLAGS, .zero = ZERO, BITS };
static const struct hd_op add = { .size = sizeof(add), .name = "add", .shape = same };
#ifndef VJP
#define VJP
#endif
static int bent_vjp(struct hd_strategy *s, struct hd_plan *p, struct hd_node *n, struct hd_tensor *const *dout, uint64_t want,
	struct hd_tensor **din)
{
	const struct hd_graph_api *g = s->h->graph;
	(void)g, (void)p, (void)n, (void)want;
	din[0] = dout[0];
	VJP;
	return HD_OK;
}
#ifndef COST
#define COST
#endif
static int bent_cost(struct hd_strategy *s, const struct hd_node *n, struct hd_cost *c)
{
	(void)s, (void)n;
	c->bytes = 8;
	COST;
	return HD_OK;
}
#ifndef RECORD
#define RECORD
#endif
static int bent_record(struct hd_strategy *s, struct hd_record *r, const struct hd_node *n)
{
	RECORD;
	return s->h->record->launch(r, "map", n->ins, 1, n->outs, 1, "a");
}
#ifndef PLACE
#define PLACE HD_DEFAULT
#endif
static int bent_place(struct hd_strategy *s, struct hd_plan *p, const struct hd_node *n, const struct hd_axis *axis,
	const struct hd_place *have, struct hd_place *need, struct hd_place *out)
{
	(void)s, (void)p, (void)n, (void)axis, (void)have, (void)need, (void)out;
	return PLACE;
}
static const struct hd_op bent = { .size = sizeof(bent), .name = "bent", .shape = same, .vjp = bent_vjp, .place = bent_place,
	.cost = bent_cost, .record = bent_record };
#ifndef ANCHOR
#define ANCHOR hd_cursor(g, p, n, NULL)
#endif
#ifndef ATTR
#define ATTR ""
#endif
static int m_rewrite(struct hd_strategy *s, struct hd_plan *p)
{
#ifdef BENT
	const struct hd_graph_api *g = s->h->graph;
	const struct hd_match gelus = { .size = sizeof(gelus), .kind = "gelu" };
	struct hd_node *n = NULL, *mine;
	while ((n = g->node_next(p, n, &gelus))) {
		ANCHOR;
		mine = g->node(p, &BENT, n->ins, 1, "%s", ATTR);
		if (mine)
			g->replace(p, n->outs[0], mine->outs[0]);
	}
#endif
	return s->h->status(p);
}
static int m_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	struct hd_strategy *s = h->alloc(p, sizeof(*s));
	s->h = h;
	OPEN;
	*self = SELF;
	return HD_OK;
}
static int m_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
#ifndef NOAXIS
	s->axis = hd_axis_new(s->h, p, "wide", size ? size : left);
#endif
	MESH;
	return s->h->status(p);
}
static int m_rules(struct hd_strategy *s, struct hd_plan *p)
{
	const char *dim = "batch";
	RULES;
	hd_rule(s->h, p, dim, s->axis, NULL, 0);
	return s->h->status(p);
}
static int m_lower(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_graph_api *g = s->h->graph;
	const struct hd_match ours = { .size = sizeof(ours), .kind = "reshard", .axis = s->axis };
	struct hd_node *n, *next;
	s->group = hd_group_of(s->h, p, &s->axis, 1);
	for (n = g->node_next(p, NULL, &ours); n; n = next) {
		struct hd_tensor *x = n->ins[0], *y = NULL;
		next = g->node_next(p, n, &ours);
		if (x->what != HD_TENSOR_GRAD)
			continue;
		CURSOR;
		LOWER;
		(void)y;
	}
	return s->h->status(p);
}
#ifndef STORAGE
#define STORAGE
#endif
static int m_storage(struct hd_strategy *s, struct hd_plan *p)
{
	const struct hd_place all = { .kind = HD_PLACE_REPLICATED };
	struct hd_storage_args at = { sizeof(at), s->h->graph->leaf_next(p, NULL, HD_TENSOR_PARAM), s->axis, &all, 0, 0 };
	STORAGE;
	(void)at;
	return s->h->status(p);
}
static const struct hd_strategy_ops ops = { .size = sizeof(ops), .options = options, .noptions = 1,
	.option_size = sizeof(options[0]), .open = m_open, .mesh = m_mesh, .rewrite = m_rewrite, .rules = m_rules, .storage = m_storage,
	.lower = m_lower };
HD_PLUGIN("mistake", "1.0", &ops)
EOF
{
	sed '/^\[strategy/,$d' tiny.ini
	printf '[strategy m]\nplugin = ./mistake.so\nsize = auto\n'
} >mistake.ini

# says NAME PATTERN STATUS -D...: builds the plugin with this mistake; check ends with STATUS and a message that
# matches.
says() {
	name=$1 pattern=$2 status=$3
	shift 3
	${CC:-cc} -std=gnu11 -fPIC -shared -fvisibility=hidden -I"$src/include" "$@" -o mistake.so mistake.c
	out=$(heddle check mistake.ini --ranks 2 2>&1)
	[ $? -eq "$status" ] && printf '%s\n' "$out" | grep -Eq -e "$pattern"
	tap_result $? "$name" || printf '%s\n want %s\n' "$out" "$pattern" | tap_comment
}

says "no mistake" '^2 ranks = m.wide 2' 0
says "an option that is not declared" 'm\]: opt_int: the plugin declares no option width' 1 '-DOPEN=h->opt_int(p, "width")'
says "an option of another type" 'm\]: opt_num: option wide is declared with' 1 '-DOPEN=h->opt_num(p, "wide")'
says "an option of another type, read as a string" \
	'm\]: opt_str: option wide is declared with' 1 '-DOPEN=h->opt_str(p, "wide")'
says "open forgets self" 'm\]: slot open left \*self NULL' 1 -DSELF=NULL
says "a return value of mesh that is not a status" \
	'm\]: slot mesh returned 7, which is not a status' 1 '-DMESH=return 7'
says "a failure of mesh without a message" 'm\]: slot mesh failed with code -42 and no message' 1 '-DMESH=return -42'
says "a return value of rules that is not a status" \
	'm\]: slot rules returned 7, which is not a status' 1 '-DRULES=return 7'
says "an axis claimed twice" 'm\]: axis: m\.wide is already claimed' 1 '-DMESH=hd_axis_new(s->h, p, "wide", 2)'
says "a call in the wrong slot" 'm\]: rule may be called in slot rules only, not in mesh' 1 \
	'-DMESH=hd_rule(s->h, p, "batch", s->axis, NULL, 0)'
says "a rule without a dim" 'm\]: rule: the dim is NULL' 1 -DRULES=dim=NULL
says "a rule without an axis" 'm\]: rule: the axis is NULL' 1 '-DRULES=s->axis = s->none'
says "an axis that nothing is sharded along" 'm\] axis m\.wide: nothing is sharded along it: its 2 members' 0 '-DRULES=dim="bacth"'
says "a rule for a kind that no op has" 'm\] rule: no op is of kind atention, .* rule for heads' 0 \
	'-DRULES=hd_rule(s->h, p, "heads", s->axis, "atention", 0)'
for dim in seq head_dim; do
	says "a rule that the op of its kind refuses: $dim" "m\\] rule: op attention cannot be sharded along $dim, .* shards nothing" 0 \
		"-DRULES=hd_rule(s->h, p, \"$dim\", s->axis, \"attention\", 0)"
done
says "a rule for a kind of op that this model does not contain" \
	'^2 ranks = m.wide 2' 0 '-DRULES=hd_rule(s->h, p, "batch", s->axis, "route", 0)'
! printf '%s\n' "$out" | grep -q 'no op is of kind'
tap_result $? "... is no mistake"
says "an axis with the size 0, which means auto" \
	'm\]: axis: 0 members \(for auto, slot mesh' 1 '-DMESH=hd_axis_new(s->h, p, "two", size)'
says "a collective without a cursor" 'm\]: comm: cursor must first say' 1 '-DCURSOR=(void)0'
says "a collective without a group" \
	'm\]: comm: the group is NULL' 1 '-DLOWER=hd_comm(g, p, HD_COMM_ALL_REDUCE, NULL, x, NULL, 0)'
says "a collective of an unknown kind" 'm\]: comm: 99 is not a kind' 1 '-DLOWER=hd_comm(g, p, 99, s->group, x, NULL, 0)'
says "a cast to an unknown dtype" 'm\]: cast: 0x4d is not a dtype' 1 '-DLOWER=g->cast(p, x, 77)'
says "a tensor replaced with NULL" 'm\]: replace: the new tensor is NULL' 1 '-DLOWER=g->replace(p, n->outs[0], y)'
says "a tensor replaced with one of another dtype" 'm\]: replace: .* has elements of 64 bits' 1 \
	'-DLOWER=g->replace(p, n->outs[0], g->cast(p, x, HD_DTYPE_F64))'
says "a tensor replaced with a partial sum" 'm\]: replace: .* is still a partial sum on m\.wide' 1 \
	'-DLOWER=g->replace(p, n->outs[0], g->map(p, &x, 1, "a + a"))'
says "a reduce-scatter without its all-gather" 'm\]: unpack: .* has [0-9]+ elements, but the tensors' 1 \
	'-DLOWER=y=g->pack(p, &x, 1, 2);if (!y) break;y=hd_comm(g, p, HD_COMM_REDUCE_SCATTER, s->group, y, y->dims[0], 0);g->unpack(p, y, &x, 1, &y);g->replace(p, n->outs[0], y)'
says "a state created twice" 'm\]: state: there is already a state m\.e\.' 1 \
	'-DLOWER=hd_state(g, p, "e", x, HD_DTYPE_F32, HD_RESHARD_SUM);hd_state(g, p, "e", x, HD_DTYPE_F32, HD_RESHARD_SUM)'
# Unknown flags, enums, orders, roles, indices and sizes: the message gives the value and what is allowed.
says "an unknown flag of a rule" \
	'm\]: rule: flags has the unknown bit 1024, this engine knows [0-9]+ \(slot rules of plugin mistake' 1 \
	'-DRULES=hd_rule(s->h, p, "batch", s->axis, NULL, 1024)'
says "arguments of size 0" 'm\]: rule: size of the arguments is 0, not 40' 1 \
	'-DRULES=s->h->rule(p, &(struct hd_rule_args){ .dim = dim })'
says "arguments that are longer than this engine knows" \
	'm\]: rule: the arguments have 48 bytes, this engine knows 40, and byte 40 is not 0' 1 \
	'-DRULES=struct { struct hd_rule_args x; int64_t more; } y = { { sizeof(y), dim, s->axis, NULL, 0, 0 }, 7 }; s->h->rule(p, &y.x)'
says "arguments that are NULL" 'm\]: rule: the arguments are NULL' 1 '-DRULES=s->h->rule(p, NULL)'
says "a reserved field that is not 0" 'm\]: rule: reserved is 3, it must be 0' 1 \
	'-DRULES=s->h->rule(p, &(struct hd_rule_args){ .size = sizeof(struct hd_rule_args), .dim = dim, .axis = s->axis, .reserved = 3 })'
says "a dim passed as an axis" 'm\]: rule: the axis is a dim and must be an axis' 1 \
	'-DRULES=hd_rule(s->h, p, dim, (const void *)s->h->dim(p, "batch"), NULL, 0)'
says "an axis that is not of this plan" 'm\]: rule: the axis is not an axis of this plan' 1 \
	'-DRULES=static const struct hd_axis far = { sizeof(far), "far", 2, 0, 1 }; hd_rule(s->h, p, dim, &far, NULL, 0)'
sed 's/^size = auto/size = 2/' mistake.ini >auto.ini && mv mistake.ini auto.sed && mv auto.ini mistake.ini
says "axes with more ranks than the section's size" \
	'mistake.ini:[0-9]+: \[strategy m\] size: 2, but slot mesh of plugin mistake claims axes of 4 ranks' 1 \
	'-DMESH=hd_axis_new(s->h, p, "more", 2)'
mv auto.sed mistake.ini
says "a size of 2 without an axis" \
	'size: 2 ranks, but slot mesh of plugin mistake claims no axis' 1 '-DMESH=s->axis = NULL' -DNOAXIS
says "a group of an unknown role" 'm\]: group: role is 7, this engine knows 0 to 2' 1 \
	'-DCURSOR=s->group = s->h->group(p, &(struct hd_group_args){ sizeof(struct hd_group_args), &s->axis, 1, 7 })'
says "an axis twice in a group" 'm\]: group: axis m.wide is both 0 and 1 of 2' 1 \
	'-DCURSOR=s->group = hd_group_of(s->h, p, (const struct hd_axis *[]){ s->axis, s->axis }, 2)'
says "a match of size 0" \
	'm\]: node_next: size of the arguments is 0' 1 '-DCURSOR=g->node_next(p, NULL, &(struct hd_match){ .size = 0 })'
says "a match that is NULL" 'm\]: node_next: the arguments are NULL' 1 '-DCURSOR=g->node_next(p, NULL, NULL)'
says "a stage beyond the end of the axis" 'm\]: stage 5 of 2, chunk 0' 1 \
	'-DRULES=hd_stage(s->h, p, s->h->block_next(p, NULL), s->axis, 5, 0)'
spare='-DMESH=s->axis = s->h->axis(p, &(struct hd_axis_args){ sizeof(struct hd_axis_args), "wide", 1, 1 })'
says "spare coordinates are allowed" '^2 ranks = m.wide 1 \+ 1 server' 0 -DNOAXIS "$spare"
says "layers along an axis with spare coordinates" \
	'^heddle: .*mistake.ini.* \[strategy m\]: rule: axis m.wide has 1 coordinates for stages and 1 spare ones.*\(slot rules of plugin mistake' 1 \
	-DNOAXIS "$spare" '-DRULES=dim = "layer"'
says "a stage along an axis with spare coordinates" \
	'\[strategy m\]: stage: axis m.wide has 1 coordinates for stages and 1 spare ones.*\(slot rules of plugin mistake' 1 \
	-DNOAXIS "$spare" '-DRULES=hd_stage(s->h, p, s->h->block_next(p, NULL), s->axis, 0, 0)'
says "a stage without a block" 'm\]: stage: the block is NULL' 1 '-DRULES=hd_stage(s->h, p, NULL, s->axis, 0, 0)'
says "a stage without blocks" 'm\]: stage: no block is on stage 1 of axis m.wide \(slot rules of plugin mistake' 1 \
	'-DRULES=hd_stage(s->h, p, s->h->block_next(p, NULL), s->axis, 0, 0)'
says "a block on two stages" 'm\]: stage: block embed is already on stage 0, chunk 0 \(slot rules of plugin mistake' 1 \
	'-DRULES=for (int i = 0; i < 2; i++) hd_stage(s->h, p, s->h->block_next(p, NULL), s->axis, i, 0)'
says "a chunk beyond the number of blocks" 'm\]: stage: chunk 9000, the model has 4 blocks' 1 \
	'-DRULES=hd_stage(s->h, p, s->h->block_next(p, NULL), s->axis, 0, 9000)'
says "a root that is not in the group" \
	'm\]: comm: the root is member 9 of 2' 1 '-DLOWER=hd_comm(g, p, HD_COMM_BROADCAST, s->group, x, NULL, 9)'
says "a shift beyond the size of the group" \
	'm\]: comm: a shift by 5 among 2 members' 1 '-DLOWER=hd_comm(g, p, HD_COMM_SHIFT, s->group, x, NULL, 5)'
says "local of a tensor that is not a partial sum" 'm\]: local: \(.*\) is not a term of a sum along m.wide' 1 \
	'-DLOWER=g->local(p, hd_comm(g, p, HD_COMM_ALL_REDUCE, s->group, g->local(p, x, s->axis), NULL, 0), s->axis)'
says "own of a gradient" 'm\]: own: .* is not a state in slot lower' 1 '-DLOWER=g->own(p, x, s->axis, HD_RESHARD_ZERO)'
says "own of a state that a new layout would sum" \
	'm\]: own: relayout 0 of .*: values that each member owns are not terms of a sum' 1 \
	'-DLOWER=y = hd_state(g, p, "y", g->local(p, x, s->axis), HD_DTYPE_F32, HD_RESHARD_ZERO); g->own(p, y, s->axis, HD_RESHARD_SUM)'
says "own of a state whose members already differ" \
	'm\]: own: .* is not replicated along m.wide: its members already differ' 1 \
	'-DLOWER=y = hd_state(g, p, "y", x, HD_DTYPE_F32, HD_RESHARD_ZERO); g->own(p, y, s->axis, HD_RESHARD_ZERO)'
# Nodes that only some members run.
some='(struct hd_members){ .group = s->group, .from = 0, .to = 1 }'
forward="y = first_of(p, g, HD_UNIT_F); hd_cursor(g, p, y->node, NULL)"
says "only some members in a unit that runs once a step" \
	'm\]: only: the cursor is in a unit that runs once a step' 1 "-DLOWER=g->only(p, &$some)"
says "members beyond the end of the group" 'm\]: only: members 1 to 2 of the 2 of m.wide' 1 \
	"-DLOWER=$forward; g->only(p, &(struct hd_members){ .group = s->group, .from = 1, .to = 3 })"
says "members with a reserved field that is not 0" 'm\]: only: reserved words of the members are 0 and 4, not 0' 1 \
	"-DLOWER=$forward; g->only(p, &(struct hd_members){ .group = s->group, .to = 1, .reserved = { 0, 4 } })"
says "an all-reduce that only some members reach" \
	'm\]: comm: along m.wide, under .only. members 0 to 0 of m.wide: the others would be waited for' 1 \
	"-DLOWER=$forward; g->only(p, &$some); hd_comm(g, p, HD_COMM_ALL_REDUCE, s->group, y->node->ins[0], NULL, 0)"
says "a value that only some members compute, read by all" \
	'reads map of .* on member 1 of m.wide, but only members 0 to 0 compute it' 1 \
	"-DLOWER=$forward; g->only(p, &$some); x = g->map(p, y->node->ins, 1, \"a + 1\"); g->only(p, NULL); g->replace_in(p, y->node, y->node->ins[0], g->map(p, &x, 1, \"a - 1\"))"
says "either of two tensors of different sizes" \
	'm\]: either: \(.*\) of [0-9]+ bytes on a rank is not like \(.*\) of [0-9]+' 1 \
	"-DLOWER=$forward; g->either(p, &$some, y, y->node->ins[1])"
says "either without members" 'm\]: either: the members are NULL' 1 "-DLOWER=$forward; g->either(p, NULL, y, y)"
says "a permutation that sends two tensors to one member" \
	'm\]: comm: a permutation by mul = 2 among 2 members: two of them would send to the same one' 1 '-DLOWER=hd_comm_permute(g, p, s->group, x, 2, 0)'
says "a permutation's factor for an all-reduce" \
	'm\]: comm: mul = 1 applies only to permutations, but this is all-reduce' 1 \
	'-DLOWER=g->comm(p, &(struct hd_comm_args){ sizeof(struct hd_comm_args), s->group, x, NULL, 0, HD_COMM_ALL_REDUCE, 0, 1 })'
# Wire dtypes of reductions, and pushes to and pulls from servers.
comm() { echo "-DLOWER=g->comm(p, &(struct hd_comm_args){ sizeof(struct hd_comm_args), s->group, $1 })"; }
says "an all-reduce with a wire of 16 bits" 'm\]: comm: the wire of an all-reduce is 0x[0-9a-f]+, not 0' 1 \
	"$(comm 'x, NULL, 0, HD_COMM_ALL_REDUCE, HD_DTYPE_BF16')"
says "a ring with a wire of integers" 'm\]: comm: the wire is 0x[0-9a-f]+, not 0, bf16 or fp16' 1 \
	"$(comm 'x, x->dims[0], 0, HD_COMM_RING_REDUCE_SCATTER, HD_DTYPE_I32')"
says "a wire of bf16 for a tensor of f64" 'm\]: comm: a wire of bf16, for \(.*\) of f64' 1 \
	"$(comm 'g->cast(p, x, HD_DTYPE_F64), x->dims[0], 0, HD_COMM_RING_REDUCE_SCATTER, HD_DTYPE_BF16')"
says "a push in a group without servers" \
	'm\]: comm: a push in a group of role 0, not HD_ROLE_ALL' 1 "$(comm 'x, NULL, 0, HD_COMM_PUSH')"
served='-DCURSOR=hd_cursor(g, p, n, s->group = s->h->group(p, &(struct hd_group_args){ sizeof(struct hd_group_args), &s->axis, 1, HD_ROLE_ALL }))'
says "a push to a server that does not exist" \
	'm\]: comm: a push with spare member 5 of 1' 1 -DNOAXIS "$spare" "$served" "$(comm 'x, NULL, 5, HD_COMM_PUSH')"
says "a push along a dim that the tensor does not have" \
	'm\]: comm: a push along batch, which \(.*\) does not have' 1 -DNOAXIS "$spare" "$served" \
	"$(comm 'x, s->h->dim(p, "batch"), 0, HD_COMM_PUSH')"
says "a pull of a tensor that is on the workers" \
	'm\]: comm: a pull of \(.*\), which is at coordinates of role 0 of m.wide, not 1' 1 \
	-DNOAXIS "$spare" "$served" "$(comm 'x, NULL, 0, HD_COMM_PULL')"
says "a shift in a group with servers" \
	'm\]: comm: shift in a group with spare members' 1 -DNOAXIS "$spare" "$served" "$(comm 'x, NULL, 0, HD_COMM_SHIFT')"
# Pieces, and the memory of a leaf.
pieces() { echo "-DLOWER=struct hd_tensor *xs[] = { x, x }; const struct hd_dim *ds[] = { x->dims[0], x->dims[0] }; $1"; }
says "a pack of 0 pieces" 'm\]: pack_pieces: 0 pieces, not 1 to' 1 "$(pieces 'g->pack_pieces(p, xs, ds, 2, 0)')"
says "pieces without dims" 'm\]: pack_pieces: the dims are NULL' 1 "$(pieces 'g->pack_pieces(p, xs, NULL, 2, 2)')"
says "pieces along a dim that the tensor does not have" \
	'm\]: pack_pieces: \(.*\) has no batch' 1 "$(pieces 'ds[1] = s->h->dim(p, "batch"); g->pack_pieces(p, xs, ds, 2, 1)')"
says "pieces of two dtypes" 'm\]: pack_pieces: input 1 has a different dtype from input 0' 1 \
	"$(pieces 'xs[1] = g->cast(p, x, HD_DTYPE_F64); g->pack_pieces(p, xs, ds, 2, 1)')"
says "pieces of a tensor with too few elements" \
	'm\]: unpack_pieces: \(.*\) has [0-9]+ elements, but 4 pieces have [0-9]+' 1 \
	"$(pieces 'y = g->pack_pieces(p, xs, ds, 1, 1); g->unpack_pieces(p, y, xs, ds, 2, 4, xs)')"
says "pieces without an array for the results" 'm\]: unpack_pieces: the array for the results is NULL' 1 \
	"$(pieces 'y = g->pack_pieces(p, xs, ds, 1, 1); g->unpack_pieces(p, y, xs, ds, 1, 1, NULL)')"
says "a parameter in the host's memory" \
	'm\]: storage: space 1 of \(.*\): only optimizer states and masters may be in HD_SPACE_HOST, all else is in HD_SPACE_DEVICE' 1 \
	'-DSTORAGE=at.space = HD_SPACE_HOST; s->h->graph->storage(p, &at)'
says "a parameter stored as terms of a sum" \
	'm\]: storage: \(.*\) as terms along m.wide: only gradients can be stored so, .*\(slot storage of plugin mistake' 1 \
	'-DSTORAGE=const struct hd_place sum = { .kind = HD_PLACE_PARTIAL }; at.place = &sum; s->h->graph->storage(p, &at)'
says "a memory space that does not exist" \
	'm\]: storage: space 7 of' 1 '-DSTORAGE=at.space = 7; s->h->graph->storage(p, &at)'
stored='wte.weight \(vocab,embed\): one program of the run stores it embed sharded by m.wide, another replicated; slot storage must choose the same place without states and gradients'
says "a parameter stored in pieces if there are states: an evaluation would take other values for it" "$stored" 1 \
	'-DSTORAGE=const struct hd_place cut = { .kind = HD_PLACE_SHARD, .dim = at.leaf->dims[1] }; at.place = &cut; if (s->h->graph->leaf_next(p, NULL, HD_TENSOR_STATE)) s->h->graph->storage(p, &at)'
heddle_mpi 2 train mistake.ini >out 2>&1
like "... so that a run is refused too" "$(messages <out)" "^heddle: $stored"
says "a leaf on all coordinates of an axis without spare ones" \
	'm\]: storage: place.role is HD_ROLE_ALL, but axis m.wide has no spare coordinates' 1 \
	'-DSTORAGE=const struct hd_place cut = { .kind = HD_PLACE_SHARD, .role = HD_ROLE_ALL, .dim = at.leaf->dims[0] }; at.place = &cut; s->h->graph->storage(p, &at)'
for what in STATE GRAD PARAM; do
	says "a leaf on one member of an axis without stages: $what" \
		'm\]: storage: pinned to coordinate 1 of m.wide, which has no stages; .*\(slot storage of plugin mistake' 1 \
		"-DSTORAGE=const struct hd_place one = { .kind = HD_PLACE_PINNED, .index = 1 }; at.place = &one; at.leaf = s->h->graph->leaf_next(p, NULL, HD_TENSOR_$what); s->h->graph->storage(p, &at)"
done
says "a position without a group" 'm\]: chunk: pos.mul is 7, but there is no group' 1 \
	'-DLOWER=g->chunk(p, x, x->dims[0], 2, &(struct hd_pos){ .mul = 7, .add = -5 })'
says "a pick without a position" 'm\]: pick: the position is NULL' 1 '-DLOWER=g->pick(p, &x, 1, NULL)'
says "a chunk of 0 parts" \
	'm\]: chunk: 0 parts of' 1 '-DLOWER=g->chunk(p, x, x->dims[0], 0, &(struct hd_pos){ .add = 0 })'
says "a placement of an unknown order" 'm\]: reshard: place.order is 9, this engine knows 0 to [0-9]' 1 \
	'-DLOWER=g->reshard(p, x, s->axis, &(struct hd_place){ .kind = HD_PLACE_SHARD, .order = 9, .dim = x->dims[0] })'
says "a placement on spare coordinates of an axis without them" \
	'm\]: reshard: place.role is HD_ROLE_SPARE, but axis m.wide has no spare coordinates' 1 \
	'-DLOWER=g->reshard(p, x, s->axis, &(struct hd_place){ .role = 1 })'
says "a placement beyond the end of the axis" 'm\]: reshard: place.index is 4, but axis m.wide has 2 coordinates' 1 \
	'-DLOWER=g->reshard(p, x, s->axis, &(struct hd_place){ .kind = HD_PLACE_PINNED, .index = 4 })'
says "a state that nothing assigns" '\[strategy m\] state m\.e\..* of plugin mistake is read but never assigned, so it is always 0; there are others$' 0 \
	'-DLOWER=y = hd_state(g, p, "e", x, x->dtype, HD_RESHARD_SUM); { struct hd_tensor *in[2] = { x, y }; y = g->map(p, in, 2, "a + b"); } g->replace(p, n->outs[0], hd_comm(g, p, HD_COMM_ALL_REDUCE, s->group, y, NULL, 0))'
says "a state that is assigned" '^2 ranks = m.wide 2' 0 \
	'-DLOWER=y = hd_state(g, p, "e", x, x->dtype, HD_RESHARD_SUM); { struct hd_tensor *in[2] = { x, y }; y = g->map(p, in, 2, "a + b"); g->assign(p, in[1], y); } g->replace(p, n->outs[0], hd_comm(g, p, HD_COMM_ALL_REDUCE, s->group, y, NULL, 0))'
! printf '%s\n' "$out" | grep -q 'never assigned'
tap_result $? "... is no mistake"
says "a state with an unknown relayout" 'm\]: state: relayout is 9, this engine knows 0 to 2' 1 \
	'-DLOWER=hd_state(g, p, "e", x, HD_DTYPE_F32, 9)'
says "a state of bytes" 'm\]: state: e has dtype 0x20800, which a state cannot have' 1 \
	'-DLOWER=hd_state(g, p, "e", x, HD_DTYPE_U8, HD_RESHARD_ZERO)'
says "a state without a name" \
	'm\]: state: the name is NULL' 1 '-DLOWER=hd_state(g, p, NULL, x, HD_DTYPE_F32, HD_RESHARD_ZERO)'
says "a scalar assigned to a state with dims" 'm\]: assign: m.e\..* is \(.*\), but the value is \(\)' 1 \
	'-DLOWER=g->assign(p, hd_state(g, p, "e", x, HD_DTYPE_F32, HD_RESHARD_ZERO), g->einsum(p, &x, 1, NULL, 0))'
says "a value of another dtype assigned to a state" \
	'm\]: assign: m.e\..* has dtype 0x34000, but the value has 0x32000' 1 \
	'-DLOWER=g->assign(p, hd_state(g, p, "e", x, HD_DTYPE_F64, HD_RESHARD_ZERO), g->map(p, &x, 1, "a"))'
says "a partial sum assigned to a state of the complete sum" \
	'm\]: assign: the value of state m.e\..* is still a partial sum on m.wide' 1 \
	'-DLOWER=g->assign(p, hd_state(g, p, "e", n->outs[0], HD_DTYPE_F32, HD_RESHARD_SUM), g->map(p, &x, 1, "a + a"))'
says "the complete sum assigned to a state of it" '^2 ranks = m.wide 2' 0 \
	'-DLOWER=y = hd_comm(g, p, HD_COMM_ALL_REDUCE, s->group, x, NULL, 0); g->replace(p, n->outs[0], y); g->assign(p, hd_state(g, p, "e", n->outs[0], HD_DTYPE_F32, HD_RESHARD_SUM), g->map(p, &y, 1, "a + a"))'
says "two values assigned to a state" 'm\]: assign: m.e\..* is already assigned' 1 \
	'-DLOWER=y = hd_state(g, p, "e", x, HD_DTYPE_F32, HD_RESHARD_ZERO); g->assign(p, y, g->map(p, &x, 1, "a")); g->assign(p, y, g->map(p, &x, 1, "a"))'
says "a value assigned to a parameter" 'm\]: assign: .* is not a state of this section' 1 \
	'-DLOWER=g->assign(p, g->leaf_next(p, NULL, HD_TENSOR_PARAM), x)'
says "a value of one micro-batch, read where nodes run once a step" \
	'm\]: map: .* of einsum is computed once a micro-batch, but is read where nodes run once' 1 \
	'-DLOWER=y = first_of(p, g, HD_UNIT_F); g->map(p, &y, 1, "a")'
says "an op without slot shape" \
	'm\]: node: op hollow has no slot shape' 1 '-DLOWER=g->node(p, &hollow, &x, 1, "%s", "")'
says "an op of size 0" 'm\]: node: size of the op is 0, not 96' 1 '-DLOWER=g->node(p, &small, &x, 1, "%s", "")'
says "an op with the name of an op of the engine" \
	'm\]: node: op add has the name of an op of the engine' 1 '-DLOWER=g->node(p, &add, &x, 1, "%s", "")'
says "an op that is NULL" 'm\]: node: the op is NULL' 1 '-DLOWER=g->node(p, g->op(p, "nothing"), &x, 1, "%s", "")'
says "an op with too few inputs" \
	'm\]: attention: 1 inputs, not 3 to 3' 1 '-DLOWER=g->node(p, g->op(p, "attention"), &x, 1, "%s", "")'
updated() { # NAME PATTERN ATTRIBUTES: an sgd with these attributes is refused
	says "$1" "m\\]: sgd: $2 \\(slot lower of plugin mistake" 1 \
		"-DLOWER=struct hd_tensor *xs[] = { x, x, x }; g->node(p, g->op(p, \"sgd\"), xs, 3, \"$3\")"
}
updated "an attribute that the op does not have" 'unknown attribute decai; did you mean decay\?' decai=0.1
updated "... nor one like it" 'unknown attribute momentum; its keys: decay, low, fp32, rows' momentum=0.1
updated "an attribute that is no number" 'attribute decay is "0.1,low=1", it must be a number' decay=0.1,low=1
updated "an attribute with blanks" 'attribute "decay" is not key=value; .*' 'decay = 0.1'
says "an op that only its own call creates" \
	'm\]: node: op comm cannot be created by name' 1 '-DLOWER=g->node(p, g->op(p, "comm"), &x, 1, "%s", "")'
says "an op with nine outputs" 'm\]: mute: slot shape says 9 outputs, more than 8' 1 '-DSHAPE=*nout = 9' \
	'-DLOWER=g->node(p, &mute, &x, 1, "%s", "")'
says "an op whose slot shape returns no status" \
	'm\]: mute: slot shape returned 7, which is not a status \(enum in heddle/host.h\) \(slot shape of plugin mistake' 1 \
	'-DSHAPE=return 7' '-DLOWER=g->node(p, &mute, &x, 1, "%s", "")'
says "an op whose slot shape fails without a message" \
	'mistake.ini:[0-9]+: \[strategy m\]: mute: slot shape failed with code -3 and no message' 1 \
	'-DSHAPE=return -3' '-DLOWER=g->node(p, &mute, &x, 1, "%s", "")'
says "an op with an output of an unknown dtype" \
	'm\]: mute: output 0 has dtype 0x4d, which is not a dtype' 1 '-DSHAPE=outs[0].dtype = 77' \
	'-DLOWER=g->node(p, &mute, &x, 1, "%s", "")'
says "an op with an output of an unknown dim" \
	'm\]: mute: output 0: dim 0 is not a dim of this plan' 1 '-DSHAPE=outs[0].dims[0] = (const void *)ins[0]' \
	'-DLOWER=g->node(p, &mute, &x, 1, "%s", "")'
says "an op with an output in host memory" 'm\]: mute: output 0 has space 1' 1 '-DSHAPE=outs[0].space = HD_SPACE_HOST' \
	'-DLOWER=g->node(p, &mute, &x, 1, "%s", "")'
says "an op that nothing lowers" 'mistake.ini:[0-9]+: \[strategy m\]: op mute.* has no record and was not lowered: it needs a slot record' 1 \
	'-DLOWER=y = hd_comm(g, p, HD_COMM_ALL_REDUCE, s->group, x, NULL, 0); if (y) g->replace(p, n->outs[0], g->node(p, &mute, &y, 1, "%s", "")->outs[0])'
says "an axis that the plugin writes to" \
	'm\]: axis m.wide: the view was written to: n is 3 but was 2' 1 '-DRULES=((struct hd_axis *)s->axis)->n = 3'
says "a tensor that the plugin writes to" \
	'm\]: tensor .*: the view was written to: dtype is 77' 1 '-DLOWER=x->dtype = 77'
says "a node's input that the plugin overwrites" \
	'm\]: node reshard: the view was written to: ins\[0\] is .* but was ' 1 \
	'-DLOWER=((struct hd_tensor **)n->ins)[0] = g->leaf_next(p, NULL, HD_TENSOR_DATA)'
says "a node's output that the plugin overwrites" \
	'm\]: node reshard: the view was written to: outs\[0\] is not a tensor of this plan but was ' 1 \
	'-DLOWER=((struct hd_tensor **)n->outs)[0] = (void *)n'
says "an op with an unknown flag" 'm\]: mute: flags has the unknown bit 8, this engine knows 1' 1 -DFLAGS=8 \
	'-DLOWER=g->node(p, &mute, &x, 1, "%s", "")'
says "an op with a reserved field that is not 0" \
	'm\]: mute: zero is 5, it must be 0' 1 -DZERO=5 '-DLOWER=g->node(p, &mute, &x, 1, "%s", "")'
says "a tensor that is not of this plan" 'm\]: replace: the new tensor is not a tensor of this plan' 1 \
	'-DLOWER=static struct hd_tensor far; g->replace(p, n->outs[0], &far)'
says "a tensor passed as a node" \
	'm\]: cursor: the anchor is a tensor and must be a node' 1 '-DCURSOR=hd_cursor(g, p, (void *)x, NULL)'
says "a node created in the wrong slot" \
	'm\]: cast may be called in slots rewrite, lower, vjp and update only, not in rules' 1 \
	'-DRULES=s->h->graph->cast(p, s->h->graph->leaf_next(p, NULL, HD_TENSOR_PARAM), HD_DTYPE_F32)'
says "a dim of 0 elements" 'm\]: dim_new: d has 0 elements' 1 '-DLOWER=s->h->dim_new(p, "d", 0)'
says "a dim created with two sizes" \
	'm\]: dim_new: m.d has 2 elements already, not 3' 1 '-DLOWER=s->h->dim_new(p, "d", 2); s->h->dim_new(p, "d", 3)'
says "a dim's name with a blank" 'm\]: dim_new: a name has letters' 1 '-DLOWER=s->h->dim_new(p, "a b", 2)'

# Mistakes in what kernels are given are found although nothing runs.
for kind in "an unknown kernel:my_own:kernel my_own" "an invalid expression:map:unknown"; do
	kernel=${kind#*:}
	says "${kind%%:*}" "m\\]: .*${kernel#*:}" 1 -DKERNEL="\"${kernel%:*}\"" \
		'-DLOWER=y = hd_comm(g, p, HD_COMM_ALL_REDUCE, s->group, x, NULL, 0); if (y) g->replace(p, n->outs[0], g->node(p, &loud, &y, 1, "%s", "")->outs[0])'
done
says "an unknown kernel, on the second member only" \
	'm\]: .*kernel my_own' 1 '-DKERNEL=s->h->record->index(r, s->group) ? "my_own" : "gelu"' \
	'-DLOWER=y = hd_comm(g, p, HD_COMM_ALL_REDUCE, s->group, x, NULL, 0); if (y) g->replace(p, n->outs[0], g->node(p, &loud, &y, 1, "%s", "")->outs[0])'
says "a cast to integers" 'cast: output 0 has dtype i32' 1 \
	'-DLOWER=y = g->cast(p, g->cast(p, hd_comm(g, p, HD_COMM_ALL_REDUCE, s->group, x, NULL, 0), HD_DTYPE_I32), HD_DTYPE_F32); g->replace(p, n->outs[0], y)'

# Gradients and costs of an op in the model.
says "an op in the model" '^2 ranks = m.wide 2' 0 -DBENT=bent
says "an op with an attribute that ops of the engine have" '^2 ranks = m.wide 2' 0 -DBENT=bent '-DATTR="rows=4"' \
	'-DRECORD=return s->h->record->launch(r, "gelu", n->ins, 1, n->outs, 1, "%s", "")'
says "an op in the model, without a cursor" 'm\]: bent: cursor must first say where new nodes belong \(slot rewrite of plugin mistake' 1 \
	-DBENT=bent '-DANCHOR=(void)0'
says "an op in the model, placed after its readers" '^2 ranks = m.wide 2' 0 -DBENT=bent \
	'-DANCHOR=struct hd_node *at = n; for (const struct hd_match all = { .size = sizeof(all) }; (at = g->node_next(p, mine = at, &all));); hd_cursor(g, p, mine, NULL)'
! printf '%s\n' "$out" | grep -q 'no gradient'
tap_result $? "... gets a gradient" || printf '%s\n' "$out" | tap_comment
says "an op that loses its gradient" '^heddle: parameter h\.0\..* and [0-9]+ more get no gradient, so they keep their initial values$' 0 \
	-DBENT=bent '-DVJP=din[0] = NULL'
says "a gradient that is not a tensor of this plan" \
	'bent: gradient 0 is not a tensor of this plan' 1 -DBENT=bent '-DVJP=din[0] = (void *)p'
says "a gradient with fewer dims than its input" \
	'bent: gradient 0 is \(\), but input 0 is \(' 1 -DBENT=bent '-DVJP=din[0] = g->einsum(p, dout, 1, NULL, 0)'
says "a gradient with as many dims as its input, but another one" \
	'bent: gradient 0 is \(.*\), but input 0 is \(' 1 -DBENT=bent \
	'-DVJP=din[0] = g->rename(p, dout[0], dout[0]->dims[2], s->h->dim_new(p, "other", dout[0]->dims[2]->n))'
says "a gradient of another dtype than its input" 'm\]: bent: gradient 0 is f64, but input 0 is f32 \(slot vjp of plugin mistake' 1 \
	-DBENT=bent '-DVJP=din[0] = g->cast(p, dout[0], HD_DTYPE_F64)'
says "a vjp that fails without a message" \
	'mistake.ini:[0-9]+: \[strategy m\]: bent: slot vjp failed with code -42 and no message' 1 -DBENT=bent '-DVJP=return -42'
says "a vjp that returns no status" 'm\]: bent: slot vjp returned 7, which is not a status' 1 -DBENT=bent '-DVJP=return 7'
says "an op without a vjp" \
	'mistake.ini:[0-9]+: \[strategy m\]: loud is not differentiable, .*: the op needs a slot vjp \(slot vjp of plugin mistake' 1 \
	-DBENT=loud
says "a cost that fails without a message" \
	'm\]: bent: slot cost failed with code -3 and no message' 1 -DBENT=bent '-DCOST=return -3'
says "a place that returns no status" 'm\]: bent: slot place returned 7, which is not a status' 1 -DBENT=bent -DPLACE=7
says "a record that returns no status" 'm\]: bent: slot record returned 7, which is not a status' 1 -DBENT=bent '-DRECORD=return 7'
says "a negative cost" 'bent of \(.*\): bytes is -1, not 0 to 1e30' 1 -DBENT=bent '-DCOST=c->bytes = -1'
says "an infinite cost" \
	'bent of \(.*\): matmul_flops is inf, not 0 to 1e30' 1 -DBENT=bent '-DCOST=c->matmul_flops = 1 / (c->bytes - 8)'

# Slots that end their process, or never return.
says "a crash" '^heddle: \[strategy m\]: slot rules of plugin mistake ended by signal SIGSEGV' 1 '-DRULES=*(volatile int *)0 = 1'
says "a crash in an op's record" '^heddle: \[strategy m\]: slot record of plugin mistake ended by signal SIGSEGV' 1 \
	'-DKERNEL=*(volatile int *)0 ? "a" : "b"' \
	'-DLOWER=y = hd_comm(g, p, HD_COMM_ALL_REDUCE, s->group, x, NULL, 0); if (y) g->replace(p, n->outs[0], g->node(p, &loud, &y, 1, "%s", "")->outs[0])'
says "a crash in an op" '^heddle: \[strategy m\]: slot shape of plugin mistake ended by signal SIGSEGV' 1 \
	'-DSHAPE=*(volatile int *)0 = 1' '-DLOWER=g->node(p, &mute, &x, 1, "%s", "")'
says "an abort" '^heddle: \[strategy m\]: slot lower of plugin mistake ended by signal SIGABRT' 1 '-DLOWER=abort()' -include stdlib.h
says "an exit" '^heddle: \[strategy m\]: slot mesh of plugin mistake called exit' 1 '-DMESH=exit(3)' -include stdlib.h
says "an exit at once" '\[strategy m\]: slot mesh of plugin mistake ended the process with status 3' 1 '-DMESH=_exit(3)' -include unistd.h
export HD_TEST_SLOT_SECONDS=2
says "a loop without end" '\[strategy m\]: slot rules of plugin mistake did not return within 2 s' 1 '-DRULES=for (volatile int i = 0;; i++)'
unset HD_TEST_SLOT_SECONDS
done_testing
