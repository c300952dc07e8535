#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A state may be assigned the old value of a parameter or of another state.  It must get the value from before the step,
# also if the other one changes in the same step, if both exchange their values, and in only some steps.  Otherwise
# momentum from earlier weights, or a gradient that is two steps late, would silently be something else.
#
# The plugin assigns these values directly or, with node = yes, through a map.  Both must write the same files.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

cat >old.c <<'END'
#include <heddle/strategy.h>
#include <string.h>
static const struct hd_option options[] = {
	{ "node", HD_OPT_BOOL, 0, "no", NULL, "assign the results of nodes" },
	{ "what", HD_OPT_STR, 0, "weights", NULL, "weights, late, turns, ring, exchange or some" },
};

static struct hd_tensor *value_of(const struct hd_host *h, struct hd_plan *p, struct hd_tensor *x)
{
	return h->opt_int(p, "node") ? h->graph->map(p, &x, 1, "a") : x;
}

static int update(struct hd_strategy *self, struct hd_plan *p, const struct hd_update *u, struct hd_tensor **value)
{
	const struct hd_host *h = u->h;
	const struct hd_graph_api *g = h->graph;
	const char *what = h->opt_str(p, "what");
	struct hd_tensor *first = hd_state(g, p, "first", u->param, u->param->dtype, HD_RESHARD_REFUSE);
	struct hd_tensor *second = hd_state(g, p, "second", u->param, u->param->dtype, HD_RESHARD_REFUSE);
	struct hd_tensor *in[4] = { u->param, u->gradient, g->scalar(p, HD_SCALAR_LR, NULL), first };

	(void)self;
	g->initial(p, first, strcmp(what, "weights") ? HD_INITIAL_NORMAL : HD_INITIAL_PARAMETER, 0.02);
	g->initial(p, second, HD_INITIAL_VALUE, 0.5);
	*value = g->map(p, in, 4, "a - c * b + 0.5 * (a - d)"); /* momentum from the weights before the last step */
	if (!strcmp(what, "weights")) {
		g->assign(p, first, value_of(h, p, u->param));
	} else if (!strcmp(what, "late")) {
		g->assign(p, first, *value);
		g->assign(p, second, value_of(h, p, first));
	} else if (!strcmp(what, "turns")) {
		g->assign(p, first, g->map(p, in, 4, "d - c * b"));
		*value = value_of(h, p, first);
		g->assign(p, second, value_of(h, p, u->param));
	} else if (!strcmp(what, "ring")) {
		g->assign(p, first, value_of(h, p, second));
		g->assign(p, second, value_of(h, p, first));
	} else if (!strcmp(what, "exchange")) {
		*value = value_of(h, p, first);
		g->assign(p, first, value_of(h, p, u->param));
	} else {
		g->every(p, 3);
		g->assign(p, second, value_of(h, p, u->param));
	}
	return h->status(p);
}

static const struct hd_strategy_ops ops = { .size = sizeof(ops), .options = options, .noptions = 2,
	.option_size = sizeof(options[0]) };
static const struct hd_optimizer_ops optimizer = { .size = sizeof(optimizer), .update = update };
HD_PLUGIN_TABLES("old", "1.0", .strategy = &ops, .optimizer = &optimizer)
END
ok 'the plugin builds' "${CC:-cc}" -std=gnu11 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -Wl,-z,defs \
	-I "$src/include" -o old.so old.c

{ sed '/^\[strategy/,$d' tiny.ini; printf '[plugin old]\nfile = ./old.so\n'; } >one.ini
{ cat one.ini; printf '[strategy dp]\nplugin = dp\nzero = 1\nsize = 2\n'; } >two.ini
run() {	# RANKS WHAT NODE: trains four steps; the checkpoint is in RANKS-WHAT-NODE
	ini=one.ini
	[ "$1" = 1 ] || ini=two.ini
	heddle_mpi "$1" train "$ini" --set train.optimizer=old --set train.weight_decay=0 --set train.steps=4 \
		--set old.what="$2" --set old.node="$3" --set checkpoint.dir="$1-$2-$3" >out 2>&1 || { cat out; return 1; }
}
same() {	# RANKS WHAT: whether both ways train the same
	run "$1" "$2" yes && run "$1" "$2" no || return 1
	for file in model.safetensors heddle/optimizer.safetensors; do
		cmp "$1-$2-yes/step-00000004/$file" "$1-$2-no/step-00000004/$file" || return 1
	done
}
for what in weights late turns ring exchange some; do
	ok "one rank, $what: the same with and without nodes" same 1 "$what"
done
for what in weights ring exchange; do
	ok "zero 1 on two ranks, $what: the same with and without nodes" same 2 "$what"
done
fails "... and such a state does change the run" cmp 1-weights-no/step-00000004/model.safetensors \
	1-some-no/step-00000004/model.safetensors
done_testing
