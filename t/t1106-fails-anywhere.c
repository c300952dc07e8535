/* SPDX-License-Identifier: Apache-2.0
 * Planning fails at each of its nodes in turn: the code that makes the node gets NULL and goes on, and the plan ends
 * with the message of that failure.  If this broke, a mistake in an INI or a plugin that is found in the middle of a
 * pass would crash, or its message be hidden by that of a consequence.
 *
 * The linker redirects calls of two functions to the __wrap_ functions here (Makefile.am).  Each layout is planned
 * once, which notes the kinds of nodes, and once more for each kind.  A kind is an op, the op that makes its first
 * input, and the slot or pass.
 */
#include <config.h>
#include "engine/base/hash.h"
#include "engine/base/rng.h"
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"

#define SECTION(name) "[strategy " name "]\nplugin = " HD_TEST_BUILD "/plugins/" name "/.libs/" name ".so\n"
#define GPT2 "family = gpt2\n"
#define LLAMA "family = llama\nkv_heads = 2\n"
#define MIXTRAL "family = mixtral\nkv_heads = 2\nexperts = 4\n"
#define SGD "optimizer = sgd\n"

static const struct layout {
	const char *model, *train, *sections;
	int ranks, bf16;
	int64_t past; /* positions kept by a plan that generates; -1: it keeps none; 0: the plan trains */
} layouts[] = {
	{ GPT2 "dropout = 0.1\n", "clip = 1\nrecompute = full\n", "", 1, 1, 0 },
	{ GPT2 "experts = 4\nmoe_every = 2\nrouter = topk\ncapacity_factor = 0\n", "recompute = selective\n",
	  SECTION("ep") "size = 2\n" SECTION("tp") "size = 2\n", 4, 0, 0 },
	{ GPT2, "", SECTION("tp") "size = 2\nsequence_parallel = yes\n", 2, 1, 0 },
	{ GPT2, SGD, SECTION("tp") "size = 4\nform = 2d\n", 4, 0, 0 },
	{ LLAMA, "", SECTION("tp") "size = 8\nform = 2.5d\ndepth = 2\n", 8, 1, 0 },
	{ LLAMA, "", SECTION("tp") "size = 8\nform = 3d\n", 8, 0, 0 },
	{ LLAMA, SGD, SECTION("cp") "size = 2\nform = ring\n" SECTION("dp") "size = 2\n", 4, 0, 0 },
	{ GPT2, "", SECTION("cp") "size = 2\nform = ring\nbalance = none\n", 2, 1, 0 },
	{ LLAMA "window = 3\nattention_softcap = 2\nlogit_softcap = 3\n", "",
	  SECTION("cp") "size = 2\nform = ulysses\n", 2, 0, 0 },
	{ "family = gemma2\nkv_heads = 2\n", "",
	  SECTION("pp") "size = 2\nschedule = zb\nscatter_gather = yes\n" SECTION("tp") "size = 2\n", 4, 0, 0 },
	{ GPT2, "micro_batch = 1\n", SECTION("dp") "size = 2\nzero = 3\n", 2, 1, 0 },
	{ GPT2, "", SECTION("dp") "size = 4\nzero = 2\nzero_size = 2\nbucket = 1K\n", 4, 0, 0 },
	{ GPT2, "reduce = rank_order\n", SECTION("dp") "size = 2\nsync = allreduce\noverlap = no\n", 2, 0, 0 },
	{ GPT2, "", SECTION("dp") "size = 4\nsync = hierarchical\nnode_size = 2\nwire = bf16\n", 4, 0, 0 },
	{ GPT2, "", SECTION("dp") "size = 2\nsync = ring\nwire = fp16\n", 2, 0, 0 },
	{ GPT2, "", SECTION("dp") "size = 2\nsync = server\n", 2, 0, 0 },
	{ GPT2, "", SECTION("dp") "size = 2\nsync = server\nservers = 2\n", 4, 0, 0 },
	{ GPT2, "", SECTION("dp") "size = 2\nzero = 1\noffload = states\n", 2, 0, 0 },
	{ MIXTRAL "z_loss = 0.001\n", "reduce = rank_order\n", SECTION("ep") "size = 2\n", 2, 0, 0 },
	{ MIXTRAL "router = sigmoid\nrouter_bias_rate = 0.1\nshared_experts = 1\ncapacity_factor = 0\n", "",
	  SECTION("ep") "size = 2\n" SECTION("dp") "size = 2\n", 4, 1, 0 },
	{ LLAMA, "", "", 1, 0, 4 },
	{ "family = gemma2\nkv_heads = 2\n", "", SECTION("tp") "size = 2\n", 2, 0, -1 },
};

/* -- kinds of nodes ------------------------------------------------------------------------------------------- */
#define MOST_KINDS 4096

static uint64_t kinds[MOST_KINDS]; /* of the present layout, in order of first appearance */
static size_t nkinds;
static long fails_at; /* the kind whose first node is refused; -1: kinds are only noted */
static char refusal[100];

static uint64_t kind_of(const struct hd_plan *p, const struct hd_op *op, struct tensor *const *ins, uint32_t nin,
			int again)
{
	uint64_t h = hd_hash64((uint64_t)again + 2 * (uint64_t)(p->slot.inst + 1) + 64 * (uint64_t)p->cursor.phase);
	const struct hd_tensor *x = nin && ins[0] ? &ins[0]->v : NULL;

	h = hd_hash_add_text(h, op->name);
	h = hd_hash_add_text(h, p->slot.name ? p->slot.name : "");
	h = hd_hash_add_text(h, x && x->node ? x->node->op->name : "");
	return hd_hash64(h + (uint64_t)(x ? x->what : 9) + 16 * (uint64_t)nin +
			 1024 * (uint64_t)(p->cursor.block >= 0));
}

static int refuses(struct hd_plan *p, const struct hd_op *op, struct tensor *const *ins, uint32_t nin, int again)
{
	uint64_t kind;
	size_t i = 0;

	for (uint32_t k = 0; k < nin; k++)
		if (!ins[k])
			return 0;
	if (p->err->code)
		return 0;
	kind = kind_of(p, op, ins, nin, again);
	while (i < nkinds && kinds[i] != kind)
		i++;
	if (i == nkinds && nkinds < MOST_KINDS)
		kinds[nkinds++] = kind;
	if (fails_at < 0 || i != (size_t)fails_at)
		return 0;
	snprintf(refusal, sizeof(refusal), "this test refuses %s, the first of kind %ld", op->name, fails_at);
	hd_plan_fail(p, HD_EINVAL, "%s", refusal);
	return 1;
}

struct node *__real_hd_node_new(struct hd_plan *p, const struct hd_op *op, const struct op_traits *is,
				struct tensor *const *ins, uint32_t nin, const char *attr);
struct node *__wrap_hd_node_new(struct hd_plan *p, const struct hd_op *op, const struct op_traits *is,
				struct tensor *const *ins, uint32_t nin, const char *attr);
struct node *__wrap_hd_node_new(struct hd_plan *p, const struct hd_op *op, const struct op_traits *is,
				struct tensor *const *ins, uint32_t nin, const char *attr)
{
	return refuses(p, op, ins, nin, 0) ? NULL : __real_hd_node_new(p, op, is, ins, nin, attr);
}

struct node *__real_hd_node_again(struct hd_plan *p, const struct node *n, struct tensor *const *ins);
struct node *__wrap_hd_node_again(struct hd_plan *p, const struct node *n, struct tensor *const *ins);
struct node *__wrap_hd_node_again(struct hd_plan *p, const struct node *n, struct tensor *const *ins)
{
	return refuses(p, n->v.op, ins, n->v.nin, 1) ? NULL : __real_hd_node_again(p, n, ins);
}

/* -- plans -------------------------------------------------------------------------------------------------------------------- */
static struct hd_plan *plan(struct hd_conf *c, const struct layout *l, struct hd_err *err)
{
	struct hd_plan_options o = { .ranks = l->ranks,
				     .train = !l->past,
				     .generate = l->past != 0,
				     .past = l->past > 0 ? l->past : 0,
				     .tokens = l->past > 0,
				     .rows = l->past > 0,
				     .master_dtype = HD_DTYPE_F32,
				     .compute_dtype = l->bf16 ? HD_DTYPE_BF16 : 0,
				     .own_memory = 1,
				     .gelu = l->bf16 };
	struct hd_plan *p = NULL;

	memset(err, 0, sizeof(*err));
	return hd_plan_create(c, &o, &p, err) < 0 ? NULL : p;
}

/* Plans once per kind of node, refusing its first node.  Returns how many plans do not end with that refusal. */
static int fails_everywhere(struct hd_conf *c, const struct layout *l)
{
	struct hd_err err;
	int wrong = 0;

	for (fails_at = 0; fails_at < (long)nkinds; fails_at++) {
		struct hd_plan *p = plan(c, l, &err);

		if (p || err.code != HD_EINVAL || !strstr(err.text, refusal)) {
			note("kind %ld: %s; said: %s", fails_at, refusal, p ? "a plan" : err.text);
			wrong++;
		}
		if (p)
			hd_plan_destroy(p);
	}
	return wrong;
}

static void check(const struct layout *l, size_t i)
{
	struct hd_err err;
	struct hd_conf *c;
	struct hd_plan *p;
	char ini[2000];
	int wrong;

	snprintf(ini, sizeof(ini),
		 "[model]\nlayers = 2\nheads = 4\nembed = 16\nmlp = 16\nvocab = 16\n%s[data]\ntrain = none\n"
		 "[train]\nseq = 8\nglobal_batch = 16\nsteps = 1\n%s%s",
		 l->model, l->train, l->sections);
	c = gt_conf(ini);
	nkinds = 0;
	fails_at = -1;
	p = c ? plan(c, l, &err) : NULL;
	if (!ok(p && nkinds > 15 && nkinds < MOST_KINDS, "layout %zu is planned, with nodes of %zu kinds", i, nkinds)) {
		note("%s", c ? err.text : gt_why());
		return;
	}
	hd_plan_destroy(p);
	wrong = fails_everywhere(c, l);
	is_int(wrong, 0, "a plan that fails at the first node of any kind ends with that failure");
	hd_conf_destroy(c);
}

int main(void)
{
	for (size_t i = 0; i < HD_LEN(layouts); i++)
		check(&layouts[i], i);
	return done();
}
