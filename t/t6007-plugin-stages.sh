#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A plugin may cast what one stage sends to the next.  At the wrong cursor, the cast and the send would be in the
# receiver's program, and every rank would wait for ever.  Such a plan must be refused; at the right cursor it is
# accepted and trains.
#
# A plugin may also number the chunks of its stages in any order, and leave the order of units to the engine.  Evaluation
# must then still run each chunk after the one before it, or its loss would be that of another model.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

cat >wire.c <<'END'
#include <heddle/strategy.h>
static int lower(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_host *h = hd_basic_of(self)->h;
	const struct hd_graph_api *g = h->graph;
	const struct hd_match moves = { .size = sizeof(moves), .kind = "reshard" };
	struct hd_node *n, *next;

	for (n = g->node_next(p, NULL, &moves); n; n = next) {
		struct hd_tensor *x = n->ins[0];

		next = g->node_next(p, n, &moves);
		if (n->reshard->have.kind != HD_PLACE_PINNED || n->reshard->need.kind != HD_PLACE_PINNED || !x->node)
			continue;
#ifdef WRONG
		hd_cursor(g, p, n, NULL);
#else
		hd_cursor(g, p, x->node, NULL);
#endif
		x = g->cast(p, x, HD_DTYPE_BF16);
		hd_cursor(g, p, n, NULL);
		x = g->reshard(p, x, n->reshard->axis, &n->reshard->need);
		g->replace(p, n->outs[0], g->cast(p, x, HD_DTYPE_F32));
	}
	return h->status(p);
}
static const struct hd_strategy_ops ops = { .size = sizeof(ops), .option_size = sizeof(struct hd_option), .lower = lower };
HD_PLUGIN("wire", "1.0", &ops)
END
{
	sed '/^\[strategy/,$d' tiny.ini
	printf '[strategy p]\nplugin = pp\nsize = 2\n[strategy w]\nplugin = ./wire.so\nsize = 1\n'
} >wire.ini
compile() { ${CC:-cc} -std=gnu11 -fPIC -shared -fvisibility=hidden -I"$src/include" "$@" -o wire.so wire.c; }

compile -DWRONG
out=$(heddle check wire.ini --ranks 2 2>&1)
is "a cast on the wrong stage: refused" $? 1
like "a cast on the wrong stage: the message names both stages" \
	"$out" '\[strategy w\]: cast of .* runs on stage [01], but its operand \(.*\) is on stage [01]'
compile
ok "a cast on the right stage: accepted" heddle check wire.ini --ranks 2
ok "a cast on the right stage: the run trains" heddle_mpi 2 train wire.ini

# -- the layout is a list of stage.chunk, one for each part of the model
cat >map.c <<'END'
#include <heddle/strategy.h>
#include <string.h>
struct hd_strategy {
	const struct hd_host *h;
	const struct hd_axis *stages;
	const char *map;
};
static const struct hd_option options[] = { { "map", HD_OPT_STR, 0, "0.0 1.0", "", "" } };
static int open_plan(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	struct hd_strategy *s = *self = h->alloc(p, sizeof(*s));

	s->h = h;
	s->map = h->opt_str(p, "map");
	return 0;
}
static int mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	s->stages = hd_axis_new(s->h, p, NULL, size ? size : left);
	return s->h->status(p);
}
static int rules(struct hd_strategy *s, struct hd_plan *p)
{
	long parts = ((long)strlen(s->map) + 1) / 4, blocks = 0, i = 0;
	const struct hd_block *b = NULL;

	while ((b = s->h->block_next(p, b)))
		blocks++;
	while ((b = s->h->block_next(p, b))) {
		const char *at = s->map + 4 * (i++ * parts / blocks);

		hd_stage(s->h, p, b, s->stages, at[0] - '0', at[2] - '0');
	}
	return s->h->status(p);
}
static const struct hd_strategy_ops ops = { .size = sizeof(ops), .options = options, .noptions = 1,
	.option_size = sizeof(options[0]), .open = open_plan, .mesh = mesh, .rules = rules };
HD_PLUGIN("map", "1.0", &ops)
END
${CC:-cc} -std=gnu11 -fPIC -shared -fvisibility=hidden -I"$src/include" -o map.so map.c
sed -e '/^\[strategy/,$d' -e 's/^layers = .*/layers = 4/' -e 's/^heads = .*/&\nvocab = 256/' tiny.ini >one.ini
{ cat one.ini; printf '[strategy p]\nplugin = ./map.so\nsize = 2\n'; } >map.ini
valid() { # RANKS CONF OPTIONS...: prints the loss of the evaluation
	rm -f m.jsonl
	heddle_mpi "$@" --set log.metrics=m.jsonl >out 2>&1 || tail -3 out | tap_comment
	json "$(grep valid_loss m.jsonl | tail -1)" valid_loss
}
want=$(valid 1 train one.ini --set checkpoint.dir=one)
for map in '0.1 1.1 1.0 0.0' '0.0 1.1 0.1 1.0' '1.0 0.0' '0.0 1.0 0.1'; do
	near "parts on $map: evaluation gives the loss of one rank" \
		"$(valid 2 train map.ini --set "p.map=$map" --set checkpoint.dir=many)" "$want" 1e-5
	is "... and generation its text" "$(heddle_mpi 2 generate many --set p.plugin=./map.so --prompt 'and god' --tokens 8 --temperature 0 2>/dev/null)" \
		"$(heddle generate one --prompt 'and god' --tokens 8 --temperature 0 2>/dev/null)"
	rm -rf many
done

# -- times of units, by the part that a stage holds
made() { # STAGE.CHUNK[.PART]:MS...: prints a trace in which F takes so long, and B twice as long
	python3 -c 'import json, sys
events = []
for unit in sys.argv[1:]:
    at, ms = unit.split(":")
    args = dict(zip(("stage", "chunk", "part"), map(int, at.split("."))), micro=0)
    events += [{"name": k + "0", "ph": "X", "args": dict(args, kind=k, busy=1000 * float(ms) * n)} for k, n in (("F", 1), ("B", 2))]
print(json.dumps({"traceEvents": events}))' "$@"
}
busy() { heddle explain map.ini --ranks 2 --schedule --times "$@" 2>&1 | tail -1; }
if command -v python3 >/dev/null; then
	made 0.0:3 1.0:1 >made.json
	like "a stage has its own times where the first part is on the last stage" "$(busy made.json --set 'p.map=1.0 0.0')" \
		'stage 0 is busy for 0\.036000 s'
	made 0.0:1 1.0:1 0.1:4 >made.json
	like "a stage may have fewer chunks than another" "$(busy made.json --set 'p.map=0.0 1.0 0.1')" \
		'stage 0 is busy for 0\.060000 s'
	made 0.0.0:1 1.0.1:1 0.1.3:5 1.1.2:1 >made.json
	like "a trace may be of another layout with as many parts" "$(busy made.json --set 'p.map=0.0 1.0 0.1 1.1')" \
		'stage 1 is busy for 0\.072000 s'
	made 0.0:1 >made.json
	is "a trace of fewer parts is refused" "$(busy made.json)" \
		"heddle: made.json has units of 1 part of the model (stages x chunks); here it has 2"
	heddle_mpi 2 train map.ini --set 'p.map=0.1 1.1 1.0 0.0' --set log.trace=v.json >/dev/null 2>&1
	is "a run writes which part a unit belongs to" "$(python3 -c 'import json
args = [e["args"] for e in json.load(open("v.json"))["traceEvents"] if "busy" in e.get("args", {})]
print(*sorted({"%d.%d=%d" % (a["stage"], a["chunk"], a["part"]) for a in args}))')" "0.0=3 0.1=0 1.0=2 1.1=1"
else
	skip "no python3"
fi
done_testing
