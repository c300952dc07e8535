/* SPDX-License-Identifier: Apache-2.0
 * Builds the forward graph of a model in named dims: the family's blocks and the loss after them. Also computes the
 * costs of the blocks.
 */
#include <config.h>
#include "engine/graph/mesh.h"
#include "engine/models/decoder/experts.h"
#include "engine/models/model.h"

static int make_dims(struct hd_plan *p)
{
	const struct hd_model *m = &p->model;

	hd_dim_get(p, "batch", p->batch);
	hd_dim_get(p, "seq", m->step_seq);
	hd_dim_get(p, "position", m->max_seq);
	hd_dim_get(p, "embed", m->embed);
	hd_dim_get(p, "heads", m->heads);
	hd_dim_get(p, "kv_heads", m->kv_heads);
	hd_dim_get(p, "head_dim", m->head_dim);
	hd_dim_get(p, "mlp", m->mlp);
	hd_dim_get(p, "vocab", m->vocab);
	hd_experts_dims(p);
	return p->err->code;
}

static int build(struct hd_plan *p, int generate)
{
	struct tensor *h, *stats[2], *ins[5];
	struct node *x;

	p->ids = hd_leaf(p, "ids", HD_TENSOR_DATA, HD_DTYPE_I32, "batch,seq");
	h = p->model.family->hidden(p, p->ids);
	if (generate) {
		h = hd_op1(p, "select", &h, 1, "%s", "");
		p->logits = p->model.family->logits(p, h);
		return p->err->code;
	}
	h = p->model.family->logits(p, h);
	p->targets = hd_leaf(p, "targets", HD_TENSOR_DATA, HD_DTYPE_I32, "batch,seq");
	stats[0] = h, stats[1] = p->targets;
	x = hd_node_make(p, "xent", stats, 2, "%s", "");
	if (!x)
		return p->err->code;
	ins[0] = x->outs[0], ins[1] = x->outs[0], ins[2] = x->outs[1];
	ins[1] = hd_op1(p, "xent_combine", ins, 3, "%s", "");
	ins[2] = x->outs[2], ins[3] = h, ins[4] = p->targets;
	p->nll = hd_op1(p, "nll", ins, 5, "%s", "");
	p->loss = p->nll ? hd_op1(p, "sum", &p->nll, 1, "out=") : NULL;
	return p->err->code;
}

int hd_model_graph(struct hd_plan *p, int generate)
{
	if (generate) /* generation has no groups: every token gets the experts that it chose */
		p->model.capacity_factor = 0, p->model.group_tokens = p->model.step_seq;
	HD_TRY(make_dims(p));
	return build(p, generate);
}

/* Counts the cost of a node in generation with a cache, which is that of reading its weights. The programs for a
 * prompt and for one token share leaves, so their blocks must be on the same stages. Hence the cost does not depend on
 * how many tokens a program computes at once. */
static void count_read(struct hd_block *b, const struct node *n, const struct hd_cost *c)
{
	for (uint32_t i = 0; i < n->v.nin && c->matmul_flops > 0; i++)
		if (n->ins[i]->v.what == HD_TENSOR_PARAM)
			b->flops += (double)hd_local_count(n->ins[i]);
	b->boundary_bytes = 1;
}

/* The costs are those of one micro-batch of one replica. */
void hd_model_count_blocks(struct hd_plan *p)
{
	for (struct node *n = p->first; n; n = n->next) {
		struct hd_cost c = { .size = sizeof(c) };
		struct hd_block *b;

		if (n->block < 0)
			continue;
		b = &p->blocks[n->block].v;
		hd_node_cost(n, &c);
		if (p->past) {
			count_read(b, n, &c);
		} else {
			b->flops += (c.matmul_flops + c.other_flops) / (double)p->replicas;
			b->boundary_bytes = hd_local_bytes(n->outs[0]) / p->replicas;
		}
		for (uint32_t i = 0; i < n->v.nin; i++)
			if (n->ins[i]->v.what == HD_TENSOR_PARAM && !n->ins[i]->placed) {
				b->param_bytes += hd_local_bytes(n->ins[i]);
				n->ins[i]->placed = 1; /* counted; placement comes later */
			}
	}
	for (size_t i = 0; i < p->ntensors; i++)
		p->tensors[i]->placed = 0;
}
