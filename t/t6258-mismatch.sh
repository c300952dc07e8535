#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks that read different files: a different plugin, weights or data.  Each difference ends all ranks at the start,
# with one message that names the rank and the first tensor that differs.  If this broke, a run would hang in its
# first collective, or train copies of a model that are not the same.  Test t6003 covers a different INI or build.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

mkdir a b
# Runs rank 0 in folder a, and the others in b.
apart() {	# RANKS args...
	n=$1
	shift
	# shellcheck disable=SC2016
	HD_TEST_SECONDS=60 mpi "$n" sh -c 'if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then cd "$0/a"; else cd "$0/b"; fi && exec "$@"' \
		"$tmp" "$build/heddle" "$@" >out 2>&1
	rc=$?
	said=$(failures <out)
}
ends() {	# WHAT PATTERN
	ok "$1: the run fails, with status $rc, and does not hang" [ $rc -gt 0 -a $rc -lt 124 ]
	is "$1: one message is printed" "$(printf '%s\n' "$said" | grep -c .)" 1
	like "$1: the message names the rank and what differs" "$said" "$2"
}

cat >shards.c <<'END'
#include <heddle/strategy.h>
struct hd_strategy {
	const struct hd_host *h;
	const struct hd_axis *axis;
};
static int mine_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	*self = h->alloc(p, sizeof(**self));
	(*self)->h = h;
	return HD_OK;
}
static int mine_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	const struct hd_axis_args a = { .size = sizeof(a), .n = size ? size : left };

	s->axis = s->h->axis(p, &a);
	return s->axis ? HD_OK : HD_EINVAL;
}
static int mine_rules(struct hd_strategy *s, struct hd_plan *p)
{
	return hd_rule(s->h, p, DIM, s->axis, NULL, 0);
}
static const struct hd_strategy_ops ops = { .size = sizeof(ops), .open = mine_open, .mesh = mine_mesh, .rules = mine_rules };
HD_PLUGIN_TABLES("mine", "1", .strategy = &ops)
END
for d in a b; do
	[ $d = a ] && dim=heads || dim=mlp
	${CC:-cc} -std=gnu11 -fPIC -shared -fvisibility=hidden "-DDIM=\"$dim\"" -I"$src/include" -o $d/mine.so shards.c || exit 1
	cp text.txt $d
	{ sed '/^\[strategy/,$d' tiny.ini; printf '[strategy mine]\nplugin = ./mine.so\nsize = 2\n'; } >$d/mine.ini
	sed 's/^steps.*/steps = 2/' tiny.ini >$d/tiny.ini
done
# Data with the same number of tokens, and with fewer.
tr a-z b-za <text.txt >b/text.txt
apart 2 train tiny.ini --set dp.size=2
ends "a different text" 'rank 1.* has different data from rank 0.*: the same number of tokens, but different ones$'
head -c 15000 text.txt >b/text.txt
apart 2 train tiny.ini --set dp.size=2
ends "a shorter text" \
	'rank 1.* has different data from rank 0.*: for training and validation 13500 and 1500 tokens there, [0-9]+ and [0-9]+ tokens here$'
cp text.txt b

apart 2 train mine.ini
ends "a different plugin" \
	'rank 1.* has a different plan from rank 0, from node [0-9]+ on: .* of [a-z0-9.]+\([a-z,_]+: [0-9 x]+\) there, .* here'

# Plugins that differ only in what they do with gradients, which depends on a macro.
cat >sums.c <<'END'
#include <heddle/strategy.h>
static int rules(struct hd_strategy *self, struct hd_plan *p)
{
	return hd_rule(hd_basic_of(self)->h, p, "batch", hd_basic_of(self)->axis, NULL, 0);
}
static int lower(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_basic *b = hd_basic_of(self);
	const struct hd_graph_api *g = b->h->graph;
	const struct hd_match moves = { .size = sizeof(moves), .kind = "reshard", .axis = b->axis };
	const struct hd_group *all = hd_group_of(b->h, p, &b->axis, 1);
	struct hd_node *n = NULL;

	while ((n = g->node_next(p, n, &moves))) {
		struct hd_tensor *x[2] = { n->ins[0], n->ins[0] };

		if (x[0]->what != HD_TENSOR_GRAD)
			continue;
		hd_cursor(g, p, n, all);
		GRADIENT;
	}
	return b->h->status(p);
}
static const struct hd_strategy_ops ops = { .size = sizeof(ops), .rules = rules, .lower = lower };
HD_PLUGIN("mine", "1", &ops)
END
differ() {	# STATEMENT STATEMENT: the plugin of rank 0, and that of rank 1
	for d in a b; do
		[ $d = a ] && statement=$1 || statement=$2
		${CC:-cc} -std=gnu11 -fPIC -shared -fvisibility=hidden "-DGRADIENT=$statement" -I"$src/include" \
			-o $d/mine.so sums.c || exit 1
	done
	apart 2 train mine.ini
}
differ 'hd_comm(g, p, HD_COMM_ALL_REDUCE, all, x[0], NULL, 0)' \
	'g->replace(p, n->outs[0], hd_comm(g, p, HD_COMM_SHIFT, all, x[0], NULL, 1))'
ends "another collective" \
	'rank 1.* from node [0-9]+ on: comm shift group=mine of grad:wte.weight\(.* there, comm all-reduce group=mine of grad:wte.weight\(.* here'
differ 'x[0] = g->map(p, x, 1, "2 * a"); g->replace(p, n->outs[0], hd_comm(g, p, HD_COMM_ALL_REDUCE, all, g->map(p, x, 2, "a - b"), NULL, 0))' \
	'x[1] = g->map(p, x, 1, "2 * a"); g->replace(p, n->outs[0], hd_comm(g, p, HD_COMM_ALL_REDUCE, all, g->map(p, x, 2, "a - b"), NULL, 0))'
ends "other operands" \
	'rank 1.* from node [0-9]+ on: map a - b of grad:wte.weight\(vocab,embed: 256 x 32\) on both, with other operands'
differ ';' 'g->map(p, x, 1, "2 * a")'
ends "nodes that nothing reads" 'a plugin has built nodes on some of them that nothing reads'

# The last tensor of a file, and one of its bits.
heddle train tiny.ini --set train.steps=0 --set checkpoint.dir=start >start.out 2>&1
cp -r start/step-00000000 a/m
cp -r start/step-00000000 b/m
at=$(($(wc -c <b/m/model.safetensors) - 3))
printf '\1' | dd of=b/m/model.safetensors bs=1 seek=$at conv=notrunc 2>/dev/null
apart 2 train tiny.ini --set model.load=m
ends "a different file of weights" \
	'step 0: [a-z0-9_.]+ of rank 1.* is not that of rank 0.*: they have read different files'
apart 3 train tiny.ini --set model.load=m --set train.global_batch=6
ends "a different file of weights on one of three ranks" \
	'step 0: [a-z0-9_.]+ of rank 0.* is not that of rank [12].*: they have read different files'
cp a/m/model.safetensors b/m/model.safetensors
apart 2 train tiny.ini --set model.load=m
is "the same file of weights: the run succeeds without a message" "$rc $said" "0 "

# A checkpoint on the disk of one host.  If rank 1 started from scratch while rank 0 resumes, it would overwrite that
# checkpoint.
begun() {	# FOLDER: resumes, with the first checkpoint in this folder only
	rm -rf a/out b/out
	mkdir "$1/out"
	cp -r start/step-00000000 start/latest "$1/out"
	apart 2 train tiny.ini --set checkpoint.dir=out --set checkpoint.resume=auto
}
for has in a b; do
	[ $has = a ] && lacks=1 || lacks=0
	begun $has
	ends "a checkpoint that only rank $((1 - lacks)) has" \
		"checkpoint.dir: rank $lacks.* finds no checkpoint in out, but other ranks have found one in theirs: all hosts must share it"
	is "... and no checkpoint is written" "$(ls -d ?/out/step-* | tr '\n' ' ')" "$has/out/step-00000000 "
done
done_testing
