/* SPDX-License-Identifier: Apache-2.0
 * Sums of sums are merged into nodes with up to HD_MAX_INS terms.  If this broke, a model with many residuals would
 * overwrite the memory after the list of a node's inputs.
 */
#include <config.h>
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"

int main(void)
{
	struct hd_plan *p = gt_plan(1);
	struct tensor *y, *pair[2];
	const char *where = "";
	uint32_t most = 0, adds = 0;
	struct gt_run *r;
	double worst;

	hd_dim_get(p, "row", 3);
	y = gt_param(p, "w0", "row");
	for (int i = 1; i < 40; i++) {
		char name[8];

		snprintf(name, sizeof(name), "w%d", i);
		pair[0] = y, pair[1] = gt_param(p, name, "row");
		y = hd_op1(p, "add", pair, 2, "%s", "");
	}
	ok(!gt_build(p, gt_loss(p, y)), "39 additions are planned");
	for (const struct node *n = p->first; n; n = n->next)
		if (n->is->role == OP_ROLE_ADD && n->v.phase == HD_UNIT_F) {
			adds++;
			most = n->v.nin > most ? n->v.nin : most;
		}
	ok(adds && adds < 10, "... and merged into %u nodes", adds);
	ok(most > 2 && most <= HD_MAX_INS, "... of at most %u terms; a node may have %d", most, HD_MAX_INS);
	r = gt_open(p, NULL);
	worst = r ? gt_differences(r, 3, &where) : NAN;
	if (!ok(worst <= 1, "... and the gradients agree with finite differences"))
		note("%s: %g of the limit; %s", where, worst, gt_why());
	gt_close(r);
	return done();
}
