#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The batch is known before a plugin sees it, although rules determine it.  If this broke, a plugin would decide by a
# batch or shape that it sees in the slots mesh and rewrite, and run with other numbers.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

cat >sees.c <<'EOF'
#include <heddle/strategy.h>
struct hd_strategy {
	const struct hd_host *h;
	const struct hd_axis *axis;
};
#ifndef RULE
#define RULE hd_rule(s->h, p, "batch", s->axis, NULL, FLAGS)
#endif
#ifndef FLAGS
#define FLAGS 0
#endif
#ifndef FAIL
#define FAIL 0
#endif
/* The batch, the elements of the activation that is largest in it, and the cost of the second block. */
static void tell(struct hd_strategy *s, struct hd_plan *p, const char *slot)
{
	const struct hd_match all = { .size = sizeof(all), .phases = HD_UNIT_F };
	const struct hd_dim *batch = s->h->dim(p, "batch");
	const struct hd_block *b = s->h->block_next(p, s->h->block_next(p, NULL));
	long long rows = 0;

	for (struct hd_node *n = NULL; (n = s->h->graph->node_next(p, n, &all));)
		for (uint32_t i = 0; i < n->nin; i++)
			for (uint32_t d = 0; d < n->ins[i]->ndim; d++)
				if (n->ins[i]->dims[d] == batch && n->ins[i]->local[d] > rows)
					rows = n->ins[i]->local[d];
	s->h->log(p, HD_LOG_INFO, __FILE__, __LINE__, "%s: batch %lld, rows %lld, block %.0f flops, %lld bytes", slot,
		  (long long)batch->n, rows, b->flops, (long long)b->boundary_bytes);
}
static int s_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	*self = h->alloc(p, sizeof(**self));
	(*self)->h = h;
	tell(*self, p, "open");
	return HD_OK;
}
static int s_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	s->axis = hd_axis_new(s->h, p, NULL, size ? size : left);
	tell(s, p, "mesh");
	return s->h->status(p);
}
static int s_rewrite(struct hd_strategy *s, struct hd_plan *p)
{
	tell(s, p, "rewrite");
	return FAIL ? s->h->fail(p, HD_EINVAL, "not like this") : HD_OK;
}
static int s_rules(struct hd_strategy *s, struct hd_plan *p)
{
	tell(s, p, "rules");
	RULE;
	return s->h->status(p);
}
static const struct hd_strategy_ops ops = { .size = sizeof(ops), .option_size = sizeof(struct hd_option), .open = s_open,
	.mesh = s_mesh, .rewrite = s_rewrite, .rules = s_rules };
HD_PLUGIN("sees", "1.0", &ops)
EOF
{
	sed '/^\[strategy/,$d' tiny.ini
	printf '[strategy s]\nplugin = ./sees.so\nsize = auto\n'
} >sees.ini

# sees RANKS [-D...] [--set ...]: prints what the plugin and check print.
sees() {
	ranks=$1 flags=
	shift
	for f; do
		case $f in -D*) flags="$flags $f"; shift ;; *) break ;; esac
	done
	# shellcheck disable=SC2086
	${CC:-cc} -std=gnu11 -fPIC -shared -fvisibility=hidden -I"$src/include" $flags -o sees.so sees.c
	heddle check sees.ini --ranks "$ranks" "$@" 2>&1
}
numbers() { printf '%s\n' "$1" | sed -n 's/^heddle: s: [a-z]*: \(batch [0-9]*, rows [0-9]*\),.*/\1/p' | sort | uniq -c | sed 's/^ *//'; }
block() { printf '%s\n' "$1" | sed -n 's/.* rewrite: .*block \(.*\)/\1/p'; }

out=$(sees 4)
is "four slots see the micro-batch of all replicas, and each prints it once" "$(numbers "$out")" "4 batch 8, rows 8"
like "... which is what runs" "$out" '^4 replicas x 1 micro-batch of 2 sequences'
of_four=$(block "$out")
is "a block costs as much as a micro-batch of one replica" "$(block "$(sees 1)")" "$of_four"
[ "$(block "$(sees 1 --set train.micro_batch=1)" | awk '{ print 2 * $1, 2 * $3 }')" = "$(echo "$of_four" | awk '{ print $1, $3 }')" ]
tap_result $? "... and half as much with one sequence instead of two"
sed '/^micro_batch/d' sees.ini >default.ini && mv default.ini sees.ini
is "the slots see a micro-batch that was not given too" "$(numbers "$(sees 2)")" "4 batch 8, rows 8"
is "an axis that shards the rows of a replica does not change the batch" \
	"$(numbers "$(sees 2 -DFLAGS=HD_RULE_INSIDE)")" "4 batch 8, rows 8"
out=$(sees 2 '-DRULE=if(s->h->dim(p,"batch")->n<8)hd_rule(s->h,p,"batch",s->axis,NULL,0)')
like "a rule that depends on the batch is refused" "$out" \
	'rules of a strategy depend on the batch, or differ from one call to the next\. They first gave 2 replicas of 4 sequences, .* 1 of 8'
out=$(sees 2 -DFAIL=1)
is "messages before a failure are printed once" \
	"$(printf '%s\n' "$out" | grep -c '^heddle: s: \(open\|mesh\|rewrite\): batch')" 3
like "... and the failure is printed" "$out" 'strategy s\] plugin: not like this'
done_testing
