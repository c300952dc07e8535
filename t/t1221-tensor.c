/* SPDX-License-Identifier: Apache-2.0
 * Runs plugins/tp on 1, 2, 4 and 8 ranks: GPT-2, and Llama with as many key heads as query heads or with fewer than
 * ranks, with and without sequence parallelism.  If this broke, training on eight ranks would yield a different model
 * than on one.
 *
 *   - loss, gradient norm and every reassembled gradient are one rank's (in double, all ranks in this process);
 *   - where sums are exact they agree bit for bit: a network of products with integers for weights;
 *   - a layer's collectives are the published ones, with their bytes (Shoeybi et al. 2019, Korthikanti et al. 2022);
 *   - gradients of tensors that all ranks of a sharded sequence read are summed, though no rule names them.
 */
#include <config.h>
#include "t/lib/one_rank.h"
#include "t/lib/integers.h"

#define LAYERS 2
#define SEQ 8
#define EMBED 32
#define MICRO 2
#define BSH (MICRO * SEQ * EMBED) /* elements of an activation */

static struct hd_plan *plan(uint32_t real, const char *model, int size, int sequence)
{
	char ini[1500];

	snprintf(ini, sizeof(ini),
		 "[model]\nlayers = %d\nembed = %d\nheads = 8\n%s[data]\ntrain = none\n[train]\nseq = %d\n"
		 "global_batch = 4\nmicro_batch = %d\nsteps = 1\noptimizer = sgd\nclip = 0\n",
		 LAYERS, EMBED, model, SEQ, MICRO);
	if (size)
		snprintf(ini + strlen(ini), sizeof(ini) - strlen(ini),
			 "[strategy tp]\nplugin = %s/plugins/tp/.libs/tp.so\nsequence_parallel = %s\nsize = %d\n",
			 HD_TEST_BUILD, sequence ? "yes" : "no", size);
	return gt_plan_of(ini, size ? size : 1, real);
}

/* -- numbers ------------------------------------------------------------------------------------------------------- */
static void sizes(const char *model, const char *what)
{
	one = gt_open(plan(HD_DTYPE_F64, model, 0, 0), NULL);
	if (!ok(one && gt_compute(one) > 0, "one rank, %s", what)) {
		note("%s", gt_why());
		return;
	}
	for (int size = 1; size <= 8; size *= 2)
		for (int sequence = 0; sequence < 2; sequence++) {
			struct hd_plan *p = plan(HD_DTYPE_F64, model, size, sequence);
			struct gt_run *r = p ? gt_open(p, sim_members) : NULL;
			char name[60];

			snprintf(name, sizeof(name), "size %d%s", size, sequence ? ", sequence sharded" : "");
			like_one_rank(r, name, what);
			sim_close(r);
		}
	gt_close(one);
}

/* -- exact --------------------------------------------------------------------------------------------------------- */
static void rule(struct hd_plan *p, const char *dim, struct axis *a, uint32_t flags)
{
	struct rule r = { .dim = hd_dim_get(p, dim, 0), .axis = a, .flags = flags };

	p->rules = hd_grow(p->rules, p->nrules, &p->cap_rules, sizeof(*p->rules));
	p->rules[p->nrules++] = r;
}

/* Builds two layers x + (x A + a) B + b, with A sharded by column and B by row, and an embedding table sharded by
 * rows. */
static struct gt_run *products(int size, int sequence)
{
	struct hd_plan *p = gt_plan(2);
	struct axis *a = size > 1 ? gt_axis(p, "t", size) : NULL;
	struct tensor *ids, *x, *h, *in[3];

	hd_dim_get(p, "batch", 2);
	hd_dim_get(p, "seq", 8);
	hd_dim_get(p, "embed", 6);
	hd_dim_get(p, "mlp", 16);
	hd_dim_get(p, "vocab", 24);
	if (a) {
		rule(p, "vocab", a, HD_RULE_PAD);
		rule(p, "mlp", a, 0);
		if (sequence)
			rule(p, "seq", a, 0);
	}
	hd_block_begin(p, "embed");
	ids = hd_leaf(p, "ids", HD_TENSOR_DATA, HD_DTYPE_I32, "batch,seq");
	in[0] = ids, in[1] = gt_param(p, "table", "vocab,embed");
	x = hd_op1(p, "embedding", in, 2, "%s", "");
	for (int l = 0; l < 2; l++) {
		hd_block_begin(p, hd_plan_text(p, "layer %d", l));
		in[0] = hd_einsum(p, x, gt_param(p, hd_plan_text(p, "%d.A", l), "embed,mlp"), "batch,seq,mlp");
		in[1] = gt_param(p, hd_plan_text(p, "%d.a", l), "mlp");
		h = hd_op1(p, "add", in, 2, "%s", "");
		in[0] = x;
		in[1] = hd_einsum(p, h, gt_param(p, hd_plan_text(p, "%d.B", l), "mlp,embed"), "batch,seq,embed");
		in[2] = gt_param(p, hd_plan_text(p, "%d.b", l), "embed");
		x = hd_op1(p, "add", in, 3, "%s", "");
	}
	gt_build(p, gt_loss(p, x));
	return gt_open(p, size > 1 ? sim_members : NULL);
}

static void exact(void)
{
	one = products(1, 0);
	if (!ok(one != NULL, "a plan with products of integers")) {
		note("%s", gt_why());
		return;
	}
	integers(one);
	ok(gt_compute(one) != 0, "one rank has a loss");
	for (int size = 2; size <= 8; size *= 2)
		for (int sequence = 0; sequence < 2; sequence++) {
			struct gt_run *r = products(size, sequence);
			const char *where = "", *why = gt_why();
			double off = NAN;

			if (r) {
				integers(r);
				why = sim_compute(r);
				off = why ? NAN
					  : all_gradients(r, &where) + fabs(*gt_address(r, r->plan->loss, 0) -
									    *gt_address(one, one->plan->loss, 0));
			}
			if (!ok(off == 0, "size %d%s: loss and every gradient are exact", size,
				sequence ? ", sequence sharded" : ""))
				note("%s: differ by %g (%s)", why ? why : "it ran", off, where);
			sim_close(r);
		}
	gt_close(one);
}

/* u = h B and v = h C are partial sums where the rows of B and C are sharded.  u v is not the sum of the ranks'
 * products. The result is smaller than its operands, so one operand alone may stay partial. */
static struct gt_run *product_of_sums(int size)
{
	struct hd_plan *p = gt_plan(2);
	struct axis *a = size > 1 ? gt_axis(p, "t", size) : NULL;
	struct tensor *x, *h, *u, *v;

	hd_dim_get(p, "batch", 2);
	hd_dim_get(p, "seq", 3);
	hd_dim_get(p, "embed", 5);
	hd_dim_get(p, "mlp", 24);
	if (a)
		rule(p, "mlp", a, 0);
	x = gt_param(p, "x", "batch,seq,embed");
	h = hd_einsum(p, x, gt_param(p, "A", "embed,mlp"), "batch,seq,mlp");
	u = hd_einsum(p, h, gt_param(p, "B", "mlp,embed"), "batch,seq,embed");
	v = hd_einsum(p, h, gt_param(p, "C", "mlp,embed"), "batch,seq,embed");
	gt_build(p, gt_loss(p, hd_einsum(p, u, v, "batch,seq")));
	return gt_open(p, size > 1 ? sim_members : NULL);
}

static void two_partial_operands(void)
{
	static const int sizes[] = { 2, 3, 4, 6, 8 };

	one = product_of_sums(1);
	if (!ok(one && gt_compute(one) != 0, "one rank computes a product of two sums")) {
		note("%s", gt_why());
		return;
	}
	for (size_t i = 0; i < HD_LEN(sizes); i++) {
		struct gt_run *r = product_of_sums(sizes[i]);
		const char *why = r ? sim_compute(r) : gt_why(), *where = "";
		double off = why ? NAN : all_gradients(r, &where);
		double loss = why ? NAN : worst_value(r, r->plan->loss, one->plan->loss);

		if (!ok(off < 1e-12 && loss < 1e-12, "size %d: both sums are completed before they are multiplied",
			sizes[i]))
			note("%s: loss differs by %g, gradients by %g (%s)", why ? why : "it ran", loss, off, where);
		sim_close(r);
	}
	gt_close(one);
}

/* -- collectives of a layer ---------------------------------------------------------------------------------------- */
static int count(struct hd_plan *p, uint32_t phases, const char *kind, int64_t *bytes)
{
	int n = 0;

	for (const struct node *k = p->first; k; k = k->next)
		if (k->comm.kind && k->v.phase & phases && !strcmp(k->v.block, "layer 1") &&
		    !strcmp(hd_comm_kind_name(k->comm.kind), kind))
			n++, *bytes += hd_comm_node_bytes(k);
	return n;
}

static void collectives(const char *model, const char *what, int t, int sequence)
{
	struct hd_plan *p = plan(HD_DTYPE_F32, model, t, sequence);
	int64_t bytes = 0, ignored = 0;

	if (!ok(p != NULL, "collectives of a layer of %s, size %d%s: planned", what, t,
		sequence ? ", sequence sharded" : "")) {
		note("%s", gt_why());
		return;
	}
	if (sequence) {
		is_int(count(p, HD_UNIT_F, "all-gather", &bytes), 2, "... all-gathers forward");
		is_int(count(p, HD_UNIT_F, "reduce-scatter", &bytes), 2, "... reduce-scatters forward");
		is_int(count(p, HD_UNIT_B | HD_UNIT_W, "all-gather", &bytes), 4, "... all-gathers backward");
		is_int(count(p, HD_UNIT_B | HD_UNIT_W, "reduce-scatter", &bytes), 2, "... reduce-scatters backward");
		is_int(count(p, HD_UNIT_F | HD_UNIT_B | HD_UNIT_W, "all-reduce", &ignored), 0, "... no all-reduce");
		is_int(bytes, 10 * BSH * (t - 1) / t * 4, "... 10 b s h (t - 1) / t elements in all");
	} else {
		is_int(count(p, HD_UNIT_F, "all-reduce", &bytes), 2, "... all-reduces forward");
		is_int(count(p, HD_UNIT_B | HD_UNIT_W, "all-reduce", &bytes), 2, "... all-reduces backward");
		is_int(count(p, HD_UNIT_F | HD_UNIT_B | HD_UNIT_W, "all-gather", &ignored) +
			       count(p, HD_UNIT_F | HD_UNIT_B | HD_UNIT_W, "reduce-scatter", &ignored),
		       0, "... no all-gather or reduce-scatter");
		is_int(bytes, 8 * BSH * (t - 1) / t * 4, "... 8 b s h (t - 1) / t elements in all");
	}
	gt_plan_destroy(p);
}

/* Checks which gradients are summed over the axis: if the sequence is sharded, those of replicated tensors that every
 * token reads. */
static void sums(void)
{
	for (int sequence = 0; sequence < 2; sequence++) {
		struct hd_plan *p = plan(HD_DTYPE_F32, "vocab = 32\n", 4, sequence);
		int norms = 0, biases = 0, others = 0;

		for (const struct node *k = p->first; k; k = k->next) {
			const struct hd_tensor *of = k->comm.kind && k->v.phase & HD_UNIT_S ? k->ins[0]->v.of : NULL;

			if (of && strstr(of->name, "ln_"))
				norms++;
			else if (of && strstr(of->name, "proj.bias"))
				biases++;
			else if (of && strcmp(of->name, "wpe.weight"))
				others++;
		}
		is_int(norms, sequence ? 2 * (2 * LAYERS + 1) : 0,
		       sequence ? "sequence sharded: gradients of norms are summed"
				: "not sharded: no gradient of a norm is summed");
		is_int(biases, sequence ? 2 * LAYERS : 0,
		       "... likewise those of biases that are added to the residual stream");
		is_int(others, 0, "... and no others");
		gt_plan_destroy(p);
	}
}

/* If several ranks read a key head, the gradients of its weights are summed once per step, over those ranks alone. */
static void shared_keys(void)
{
	struct hd_plan *p = plan(HD_DTYPE_F32, "family = llama\nvocab = 32\nmlp = 24\nkv_heads = 2\n", 8, 0);
	int keys = 0, others = 0;

	for (const struct node *k = p->first; k; k = k->next) {
		const struct hd_tensor *of = k->comm.kind && k->v.phase & HD_UNIT_S ? k->ins[0]->v.of : NULL;

		if (of && (strstr(of->name, "k_proj") || strstr(of->name, "v_proj")) && k->comm.group->v.n == 4)
			keys++;
		else if (of)
			others++;
	}
	is_int(keys, 2 * LAYERS,
	       "8 ranks, 2 key heads: gradients of k and v weights are summed over four ranks once per step");
	is_int(others, 0, "... and no other gradients");
	gt_plan_destroy(p);
}

int main(void)
{
	sizes("vocab = 19\ndropout = 0.2\n", "GPT-2, an indivisible vocabulary, dropout");
	sizes("vocab = 32\ntie_embeddings = no\n", "GPT-2, untied head");
	sizes("family = llama\nvocab = 19\nmlp = 24\n", "Llama");
	sizes("family = llama\nvocab = 19\nmlp = 24\nkv_heads = 4\n", "Llama, 4 key heads");
	sizes("family = llama\nvocab = 32\nmlp = 40\nkv_heads = 2\ntie_embeddings = yes\n", "Llama, 2 key heads, tied");
	sizes("family = llama\nvocab = 32\nmlp = 24\nkv_heads = 1\n", "Llama, 1 key head");
	exact();
	two_partial_operands();
	for (int t = 2; t <= 8; t *= 2)
		for (int sequence = 0; sequence < 2; sequence++) {
			collectives("vocab = 32\n", "GPT-2", t, sequence);
			collectives("family = llama\nvocab = 32\nmlp = 24\n", "Llama", t, sequence);
			collectives("family = llama\nvocab = 32\nmlp = 24\nkv_heads = 2\n", "Llama, 2 key heads", t,
				    sequence);
		}
	shared_keys();
	sums();
	return done();
}
