/* SPDX-License-Identifier: Apache-2.0
 * The place for new nodes is one value, the cursor: code that moves it to make nodes elsewhere restores it completely.
 * If this broke, the next node of a pass or plugin would silently be put into a different unit or block.
 */
#include <config.h>
#include "engine/passes/passes.h"
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"
#include <string.h>

static int same(const struct cursor *a, const struct cursor *b)
{
	return a->before == b->before && a->phase == b->phase && a->block == b->block && a->queue == b->queue &&
	       a->reason == b->reason;
}

/* A graph of two stages, with an axis that shards the batch. */
static struct hd_plan *two_stages(struct tensor **y)
{
	struct hd_plan *p = gt_plan(1);
	struct tensor *x;

	hd_dim_get(p, "batch", 4);
	hd_dim_get(p, "embed", 8);
	gt_axis(p, "a", 2);
	p->stages = gt_axis(p, "s", 2);
	x = gt_param(p, "x", "batch,embed");
	x->at.on[1] = (struct hd_place){ .kind = HD_PLACE_PINNED };
	*y = hd_map_new(p, &x, 1, "a * 2");
	(*y)->at = x->at;
	p->blocks[hd_block_begin(p, "next")].coord = 1;
	hd_map_new(p, &x, 1, "a * 3");
	return p;
}

/* Sets the cursor to a place that no movement would choose by itself. */
static struct cursor set_cursor(struct hd_plan *p)
{
	struct axis *a = p->axes[0];

	return p->cursor = (struct cursor){ .before = p->last,
					    .phase = HD_UNIT_B,
					    .block = 1,
					    .queue = hd_group_get(p, &a, 1, HD_ROLE_CORE),
					    .reason = hd_plan_text(p, "a test") };
}

static void a_movement(void)
{
	struct tensor *y, *z;
	struct hd_plan *p = two_stages(&y);
	struct cursor was = set_cursor(p);
	struct placement need = y->at;

	need.on[0] = (struct hd_place){ .kind = HD_PLACE_SHARD, .dim = hd_dim_get(p, "batch", 0) };
	need.on[1].index = 1;
	z = hd_reshard_to(p, y, &need, p->last);
	ok(z && z != y && N(z->v.node)->v.phase == HD_UNIT_F, "a tensor is moved for a reader in another unit");
	ok(same(&p->cursor, &was), "... and the cursor is where it was");
	hd_plan_destroy(p);
}

static void a_step_on_another_stage(void)
{
	struct tensor *y, *z;
	struct hd_plan *p = two_stages(&y);
	struct cursor was = set_cursor(p);
	struct hd_place to = { .kind = HD_PLACE_SHARD, .dim = hd_dim_get(p, "batch", 0) };

	z = hd_reshard_step(p, y, p->axes[0], &to);
	ok(z && N(z->v.node)->block == 0, "a step is made on the stage where its operand is");
	is_str(z ? N(z->v.node)->reason : NULL, "a test", "... with the reason of the cursor");
	ok(same(&p->cursor, &was), "... which is where it was");
	hd_plan_destroy(p);
}

static void passes(void)
{
	struct hd_plan *p = gt_plan(1);
	struct tensor *x, *y;
	struct cursor was;

	hd_dim_get(p, "batch", 4);
	hd_dim_get(p, "embed", 8);
	x = gt_param(p, "x", "batch,embed");
	y = gt_loss(p, hd_map_new(p, &x, 1, "a * 2"));
	p->nll = y;
	p->loss = hd_op1(p, "sum", &y, 1, "out=");
	was = p->cursor;
	ok(!hd_plan_run(p, "autodiff", "check") && same(&p->cursor, &was), "passes leave the cursor where it was");
	hd_plan_destroy(p);
}

int main(void)
{
	a_movement();
	a_step_on_another_stage();
	passes();
	return done();
}
