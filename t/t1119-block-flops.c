/* SPDX-License-Identifier: Apache-2.0
 * The FLOPs of a block, by which plugins cut a model into stages: its matrix products and everything else.  If they
 * were wrong, one stage would have far more work than the others.
 */
#include <config.h>
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"

enum { EMBED = 64, SEQ = 2, BATCH = 3, VOCAB = 19 };

int main(void)
{
	char ini[400];
	struct hd_plan *p;
	/* A token in a layer of GPT-2 is multiplied with 12 embed^2 weights; attention has 2 products over at most
	 * SEQ. */
	double least = 24.0 * EMBED * EMBED * SEQ * BATCH, attention = 4.0 * SEQ * EMBED * SEQ * BATCH;
	double head = 2.0 * EMBED * VOCAB * SEQ * BATCH;

	snprintf(ini, sizeof(ini),
		 "[model]\nfamily = gpt2\nlayers = 2\nheads = 2\nembed = %d\nvocab = %d\n[data]\ntrain = none\n"
		 "[train]\nseq = %d\nglobal_batch = %d\nmicro_batch = %d\nsteps = 1\n",
		 EMBED, VOCAB, SEQ, BATCH, BATCH);
	p = gt_plan_of(ini, 1, HD_DTYPE_F32);
	if (!ok(p != NULL, "the model is planned"))
		return note("%s", gt_why()), done();
	for (size_t b = 0; b < p->nblocks; b++) {
		const struct hd_block *k = &p->blocks[b].v;
		int layer = !strncmp(k->name, "layer", 5);
		double products = layer ? least : !strcmp(k->name, "head") ? head : 0;

		ok(layer ? k->flops > products + attention && k->flops < 1.3 * (products + attention)
			 : k->flops >= products && k->flops < products + 1e5,
		   "%s has %g FLOPs, of which %g are products", k->name, k->flops, products);
	}
	gt_plan_destroy(p);
	return done();
}
