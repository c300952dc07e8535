/* SPDX-License-Identifier: Apache-2.0
 * Pipeline parallelism: the model's blocks are dealt to the coordinates of one axis. The order of units is data, which
 * one executor runs.
 *
 *   split.c      assigns blocks to stages and chunks, balanced by cost or as the user says
 *   schedule.c   gpipe (1811.06965), 1f1b and interleaved (2104.04473), zb: ZB-H1 (2401.10241), or a user's CSV
 *   scatter.c    sends tensors that cross stages in pieces (2104.04473)
 */
#include "pp.h"
#include <string.h>

static const struct hd_option options[] = {
	{ "schedule", HD_OPT_CHOICE, 0, "1f1b", "gpipe|1f1b|interleaved|zb|FILE",
	  "order of the units; FILE: lines rank,kind,chunk,micro" },
	{ "chunks", HD_OPT_INT, 0, "0", "0..64", "pieces of the model per rank (0: 2 for interleaved, else 1)" },
	{ "split", HD_OPT_STR, 0, "balanced", NULL, "balanced by cost, or the layers of each piece, comma separated" },
	{ "scatter_gather", HD_OPT_BOOL, 0, "no", NULL,
	  "activations that other axes replicate cross stages as shards and are gathered there" },
};

static int pp_open(struct hd_plan *p, const struct hd_host *h, struct hd_strategy **self)
{
	static const char *const names[] = { "gpipe", "1f1b", "interleaved", "zb" };
	struct hd_strategy *s = h->alloc(p, sizeof(*s));

	if (!s)
		return HD_ENOMEM;
	s->h = h;
	s->g = h->graph;
	s->order = PP_FILE;
	for (int i = 0; i < PP_FILE; i++)
		if (!strcmp(h->opt_str(p, "schedule"), names[i]))
			s->order = i;
	s->chunks = h->opt_int(p, "chunks");
	if (!s->chunks)
		s->chunks = s->order == PP_INTERLEAVED ? 2 : 1;
	if (s->chunks > 1 && s->order != PP_INTERLEAVED && s->order != PP_FILE)
		return h->fail(p, HD_EINVAL, "chunks: %lld need schedule = interleaved or a file",
			       (long long)s->chunks);
	s->scatter = (int)h->opt_int(p, "scatter_gather");
	*self = s;
	return HD_OK;
}

static int pp_mesh(struct hd_strategy *s, struct hd_plan *p, int64_t size, int64_t left)
{
	s->pp = hd_axis_new(s->h, p, NULL, size ? size : left);
	return s->h->status(p);
}

static const struct hd_strategy_ops ops = {
	.size = sizeof(ops),
	.options = options,
	.noptions = sizeof(options) / sizeof(options[0]),
	.option_size = sizeof(options[0]),
	.open = pp_open,
	.mesh = pp_mesh,
	.rules = pp_rules,
	.lower = pp_lower,
	.schedule = pp_schedule,
};
HD_PLUGIN("pp", "0.1", &ops)
