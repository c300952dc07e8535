#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A plugin that replaces the gates of experts leaves the router's auxiliary losses, which still have a gradient.  Such a
# plugin may need keys of [model], so conform takes those of routers from the INI.  Otherwise it would test no experts.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

cat >even.c <<'END'
#include <heddle/strategy.h>
/* All experts of a token count the same. */
static int rewrite(struct hd_strategy *self, struct hd_plan *p)
{
	const struct hd_host *h = hd_basic_of(self)->h;
	const struct hd_graph_api *g = h->graph;
	const struct hd_match routers = { .size = sizeof(routers), .kind = "route" };
	const struct hd_dim *of_token = h->dim(p, "topk");
	struct hd_node *n = NULL;

	if (of_token && of_token->n != EACH)
		return h->fail(p, HD_ENOTSUP, "%lld experts of a token", (long long)of_token->n);
	while ((n = g->node_next(p, n, &routers))) {
		hd_cursor(g, p, n, NULL);
		g->replace(p, n->outs[0], g->constant(p, n->outs[0]->dims, n->outs[0]->ndim, 1.0 / EACH));
	}
	return h->status(p);
}
static const struct hd_strategy_ops ops = { .size = sizeof(ops), .rewrite = rewrite };
HD_PLUGIN("even", "1.0", &ops)
END
build_for() {	# EXPERTS OF A TOKEN
	"${CC:-cc}" -std=gnu11 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -Wl,-z,defs "-DEACH=$1" \
		-I "$src/include" -o even.so even.c
}
ok 'the plugin builds' build_for 2
ok 'without gates, the gradients of a router are those of its auxiliary losses' \
	heddle conform ./even.so --only 'slopes of the loss, mixtral'
like '... and they were compared' "$(cat "$tmp/.ok")" '^ok 1 - gradients are slopes of the loss, mixtral: even$'

build_for 4
heddle conform ./even.so --only 'equals one rank, mixtral: even' >out 2>&1
like 'a plugin that needs keys of [model] is refused without them' "$(cat out)" 'SKIP refused: .*2 experts of a token'
printf '[model]\nfamily = mixtral\nexperts = 4\nexperts_per_token = 4\nz_loss = 0.01\nembed = 1024\n[plugin x]\nfile = ./even.so\n' >even.ini
ok 'with an INI, its keys of routers are used' \
	heddle conform ./even.so even.ini --only 'one rank, mixtral: even, dp 2'
like '... and its sizes are not' "$(cat "$tmp/.ok")" '^ok 1 - equals one rank, mixtral: even, dp 2$'
ok '... and with experts on several ranks' heddle conform ./even.so even.ini --only 'one rank, mixtral: even, ep 2'
like '... the layout is compared' "$(cat "$tmp/.ok")" '^ok 1 - equals one rank, mixtral: even, ep 2$'
ok 'families without experts do not get them' heddle conform ./even.so even.ini --only 'one rank, gpt2: even'
done_testing
