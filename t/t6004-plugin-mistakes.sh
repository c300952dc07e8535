#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What goes wrong while a first strategy is written: each mistake is refused with the section and the call, and none ends
# in a crash or in a run that computes something else.
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
#ifndef OPEN
#define OPEN
#endif
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
	s->axis = hd_axis_new(s->h, p, "wide", size ? size : left);
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
static const struct hd_strategy_ops ops = { .size = sizeof(ops), .options = options, .noptions = 1,
	.option_size = sizeof(options[0]), .open = m_open, .mesh = m_mesh, .rules = m_rules, .lower = m_lower };
HD_PLUGIN("mistake", "1.0", &ops)
EOF
{
	sed '/^\[strategy/,$d' tiny.ini
	printf '[strategy m]\nplugin = ./mistake.so\nsize = auto\n'
} >mistake.ini

# says NAME PATTERN STATUS -D...: what check says of the plugin with this mistake.
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
says "open forgets self" 'm\]: slot open left \*self NULL' 1 -DSELF=NULL
says "a code that is none, of mesh" 'm\]: slot mesh returned 7, which is no status' 1 '-DMESH=return 7'
says "a failure without a text, of mesh" 'm\]: slot mesh failed with code -42 and no text' 1 '-DMESH=return -42'
says "a code that is none, of rules" 'm\]: slot rules returned 7, which is no status' 1 '-DRULES=return 7'
says "an axis twice" 'm\]: axis: m\.wide is claimed already' 1 '-DMESH=hd_axis_new(s->h, p, "wide", 2)'
says "a call out of turn" 'm\]: rule may be called in slot rules only, not in mesh' 1 \
	'-DMESH=hd_rule(s->h, p, "batch", s->axis, NULL, 0)'
says "a rule for no dim" 'm\]: rule: the dim is NULL' 1 -DRULES=dim=NULL
says "a rule along no axis" 'm\]: rule: the axis is NULL' 1 '-DRULES=s->axis = s->none'
says "an axis that nothing is sharded along" 'm\] axis m\.wide: nothing is sharded along it: its 2 members' 0 '-DRULES=dim="bacth"'
says "a rule for a kind that no op has" 'm\] rule: no op is of kind atention, .* rule for heads' 0 \
	'-DRULES=hd_rule(s->h, p, "heads", s->axis, "atention", 0)'
says "a rule for a kind that this model has not" '^2 ranks = m.wide 2' 0 '-DRULES=hd_rule(s->h, p, "batch", s->axis, "route", 0)'
! printf '%s\n' "$out" | grep -q 'no op is of kind'
tap_result $? "... is no mistake"
says "an axis of the size of auto" 'm\]: axis: 0 members \(slot mesh' 1 '-DMESH=hd_axis_new(s->h, p, "two", size)'
says "no cursor" 'm\]: comm: cursor must say first' 1 '-DCURSOR=(void)0'
says "no group" 'm\]: comm: the group is NULL' 1 '-DLOWER=hd_comm(g, p, HD_COMM_ALL_REDUCE, NULL, x, NULL, 0)'
says "no kind" 'm\]: comm: 99 is no kind' 1 '-DLOWER=hd_comm(g, p, 99, s->group, x, NULL, 0)'
says "no dtype" 'm\]: cast: 0x4d is no dtype' 1 '-DLOWER=g->cast(p, x, 77)'
says "replaced with nothing" 'm\]: replace: the new tensor is NULL' 1 '-DLOWER=g->replace(p, n->outs[0], y)'
says "replaced with another dtype" 'm\]: replace: .* has elements of 64 bits' 1 \
	'-DLOWER=g->replace(p, n->outs[0], g->cast(p, x, HD_DTYPE_F64))'
says "replaced with what is still partial" 'm\]: replace: .* is still a partial sum on m\.wide' 1 \
	'-DLOWER=g->replace(p, n->outs[0], g->map(p, &x, 1, "a + a"))'
says "half lowered" 'm\]: unpack: .* has [0-9]+ elements, and those' 1 \
	'-DLOWER=y=g->pack(p, &x, 1, 2);if (!y) break;y=hd_comm(g, p, HD_COMM_REDUCE_SCATTER, s->group, y, y->dims[0], 0);g->unpack(p, y, &x, 1, &y);g->replace(p, n->outs[0], y)'
says "a state twice" 'm\]: state: there is a state m\.e\..* already' 1 \
	'-DLOWER=hd_state(g, p, "e", x, HD_DTYPE_F32, HD_RESHARD_SUM);hd_state(g, p, "e", x, HD_DTYPE_F32, HD_RESHARD_SUM)'
done_testing
