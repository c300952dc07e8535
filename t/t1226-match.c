/* SPDX-License-Identifier: Apache-2.0
 * The programs of all ranks are matched against each other (engine/program/match.c).  If this broke, ranks that
 * disagree would hang in a run instead of being refused.
 *
 * Programs of two stages are damaged in one way each: a missing or reordered message, a different length, dtype or
 * micro-batch, two exchanged collectives.  Each damage is found, and the message names both ranks; undamaged programs
 * match.
 */
#include <config.h>
#include "engine/program/match.h"
#include "kernels/ref/ref.h"
#include "t/lib/one_rank.h"

#define PP "[strategy p]\nplugin = " HD_TEST_BUILD "/plugins/pp/.libs/pp.so\nsize = 2\n"

static struct hd_plan *plan(void)
{
	return gt_plan_of("[model]\nlayers = 2\nheads = 2\nembed = 8\nmlp = 8\nvocab = 19\n[data]\ntrain = none\n"
			  "[train]\nseq = 4\nglobal_batch = 6\nmicro_batch = 2\nsteps = 1\n" PP,
			  2, HD_DTYPE_F32);
}

/* Returns entry number k of this kind of communication, or the last one if k is -1; kind 0 means collectives. */
static struct entry *find(struct hd_program *g, uint32_t kind, int k)
{
	struct entry *last = NULL;

	for (size_t i = 0; i < g->n; i++) {
		struct entry *e = &g->entries[i];
		int is = e->type == HD_ENTRY_NODE && e->node->comm.kind &&
			 (kind ? e->node->comm.kind == kind : e->node->comm.kind < HD_COMM_SEND);

		if (is)
			last = e;
		if (is && k-- == 0)
			break;
	}
	return last;
}

static void exchange(struct entry *a, struct entry *b)
{
	struct entry was = *a;

	*a = *b, *b = was;
}

static void nothing(struct hd_program *g)
{
	(void)g;
}

static void no_receive(struct hd_program *g)
{
	struct entry *e = find(g, HD_COMM_RECV, -1);

	e->type = HD_ENTRY_LOAD, e->wait = -1;
}

static void other_order(struct hd_program *g)
{
	exchange(find(g, HD_COMM_RECV, 0), find(g, HD_COMM_RECV, 1));
}

static void other_length(struct hd_program *g)
{
	find(g, HD_COMM_RECV, 0)->node->outs[0]->local[0]++;
}

static void other_type(struct hd_program *g)
{
	find(g, HD_COMM_RECV, 0)->node->outs[0]->v.dtype = HD_DTYPE_BF16;
}

static void other_micro(struct hd_program *g)
{
	find(g, HD_COMM_RECV, 0)->micro++;
}

static void other_period(struct hd_program *g)
{
	find(g, HD_COMM_RECV, 0)->node->period = 2;
}

static void other_collective(struct hd_program *g)
{
	exchange(find(g, 0, 0), find(g, 0, 1));
}

static void no_collective(struct hd_program *g)
{
	struct entry *e = find(g, 0, -1);

	e->type = HD_ENTRY_LOAD, e->wait = -1;
}

static void damaged(void (*damage)(struct hd_program *), const char *name, const char *want)
{
	struct hd_plan *p = plan();
	struct hd_classes c;
	struct hd_match_run *m;
	struct hd_err err = { 0 };

	hd_classes_find(p, &c);
	m = hd_match_create(p, &c);
	for (int64_t k = 0; k < c.n; k++) {
		struct hd_program_options o = { .rank = c.ranks[c.first[k]], .device = hd_device_ref() };
		struct hd_program *g;

		hd_program_build(p, &o, &g, &err);
		if (k == 1)
			damage(g);
		hd_match_add(m, k, g);
		hd_program_destroy(g);
	}
	hd_match_all(m, &err);
	ok(*want ? strstr(err.text, want) && strstr(err.text, "rank 0 ") && strstr(err.text, "rank 1") : !err.code,
	   "%s: %s", name, *err.text ? err.text : "the programs match");
	hd_match_destroy(m);
	hd_classes_release(&c);
	gt_plan_destroy(p);
}

int main(void)
{
	static const char order[] = "a send and the receive in its place are not the same";

	damaged(nothing, "undamaged", "");
	damaged(no_receive, "a receive is missing", "which never gets there");
	damaged(other_order, "two receives exchanged", order);
	damaged(other_length, "a longer receive", order);
	damaged(other_type, "a receive of a different type", order);
	damaged(other_micro, "a receive of a different micro-batch", order);
	damaged(other_period, "a receive in every second step", "every 2 steps");
	damaged(other_collective, "two collectives exchanged", "two members of a communicator differ");
	damaged(no_collective, "a collective is missing", "which never gets there");
	return done();
}
