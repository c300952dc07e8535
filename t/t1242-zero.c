/* SPDX-License-Identifier: Apache-2.0
 * Checks memory and traffic of replicas that shard what they share, by the published formulas (ZeRO, Rajbhandari et
 * al. 2020, 1910.02054).  With n replicas zero = 1 divides the optimizer's states by n, 2 also the gradients, 3 also
 * the parameters. Levels 1 and 2 move as many bytes as a plain sum of gradients, 3 half as many again.  If this broke,
 * a model that should fit would not, or steps would wait for useless bytes.
 */
#include <config.h>
#include <math.h>
#include "engine/device/device.h"
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"

static int members = 4, embed; /* embed 0: a width that the members divide */
static int layers = 3, node;   /* node: ranks per host, 0: unknown */
static const char *beside = "", *optimizer = "adamw", *sync_by = "allreduce", *bucket = "64K", *model = "";

static struct hd_plan *plan(int zero, int micros, int low)
{
	char ini[1500];
	struct hd_plan_options o = { .ranks = members * (*beside ? 2 : 1),
				     .train = 1,
				     .node_size = node,
				     .compute_dtype = low ? HD_DTYPE_BF16 : 0 };
	struct hd_err why = { 0 };
	struct hd_plan *p = NULL;
	struct hd_conf *c;

	snprintf(
		ini, sizeof(ini),
		"[model]\nlayers = %d\nembed = %d\nheads = %d\nvocab = 256\ntie_embeddings = no\n%s[data]\ntrain = none\n"
		"[train]\nseq = 8\nglobal_batch = %d\nmicro_batch = 1\nsteps = 1\noptimizer = %s\n"
		"[strategy r]\nplugin = " HD_TEST_BUILD
		"/plugins/dp/.libs/dp.so\nsize = %d\nsync = %s\nbucket = %s\nzero = %d\n%s",
		layers, embed ? embed : 16 * members, embed ? 4 : members, model, members * micros, optimizer, members,
		sync_by, bucket, zero, beside);
	c = gt_conf(ini);
	if (!c || hd_plan_create(c, &o, &p, &why) < 0) {
		note("%s", why.text);
		hd_conf_destroy(c);
	}
	return p;
}

static void forget(struct hd_plan *p)
{
	struct hd_conf *c = p->conf;

	hd_plan_destroy(p);
	hd_conf_destroy(c);
}

static int is_accumulator(const struct tensor *t)
{
	return t->v.what == HD_TENSOR_GRAD && t->v.node && !strcmp(t->v.node->op->name, "accumulate");
}

/* Returns the bytes of all tensors of a kind on a rank, or with `whole` as if nothing were sharded. */
static int64_t bytes(const struct hd_plan *p, uint32_t what, int whole)
{
	int64_t sum = 0;

	for (size_t i = 0; i < p->ntensors; i++) {
		const struct tensor *t = p->tensors[i];

		if (t->v.what == what && (what == HD_TENSOR_GRAD ? is_accumulator(t) : !t->v.node))
			sum += (whole ? hd_global_count(t) : hd_local_count(t)) * HD_BITS(t->v.dtype) / 8;
	}
	return sum;
}

/* Returns the bytes that a rank sends on the axis in units of these phases, in collectives of one kind (0: all),
 * without scalars. */
static int64_t sent(const struct hd_plan *p, uint32_t phases, uint32_t kind)
{
	int64_t sum = 0;

	for (const struct node *n = p->first; n; n = n->next)
		if (n->comm.kind && n->v.phase & phases && (!kind || n->comm.kind == kind) &&
		    hd_local_count(n->ins[0]) > 4)
			sum += hd_comm_node_bytes(n) *
			       (n->v.phase & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W) ? p->micros : 1);
	return sum;
}

static int64_t peak(struct hd_plan *p)
{
	struct hd_program_options o = { .device = hd_device_cpu() };
	struct hd_err err = { 0 };
	struct hd_program *g = NULL;
	int64_t sum = 0;

	if (hd_program_build(p, &o, &g, &err) == 0)
		sum = g->memory.persistent + g->memory.transient;
	hd_program_destroy(g);
	return sum;
}

/* Returns the bytes of weights that backward multiplies by again: all except lookup tables, norms and biases. */
static int64_t read_again(const struct hd_plan *p)
{
	int64_t sum = 0;

	for (size_t i = 0; i < p->ntensors; i++) {
		const struct tensor *t = p->tensors[i];

		if (!t->v.node && t->v.what == HD_TENSOR_PARAM && t->v.ndim > 1 && !strstr(t->v.name, "wte") &&
		    !strstr(t->v.name, "wpe") && !strstr(t->v.name, "bias"))
			sum += hd_global_count(t) * HD_BITS(t->v.dtype) / 8;
	}
	return sum;
}

static void memory(int low, int micros)
{
	int64_t last = INT64_MAX;

	for (int zero = 0; zero < 4; zero++) {
		struct hd_plan *p = plan(zero, micros, low);
		int64_t now;

		if (!ok(p != NULL, "zero %d, %s, %d micro-batches", zero, low ? "bf16" : "fp32", micros))
			return;
		is_int(bytes(p, HD_TENSOR_STATE, 0), bytes(p, HD_TENSOR_STATE, 1) / (zero >= 1 ? members : 1),
		       "... bytes of states");
		is_int(bytes(p, HD_TENSOR_MASTER, 0), bytes(p, HD_TENSOR_MASTER, 1) / (zero >= 1 ? members : 1),
		       "... bytes of masters");
		is_int(bytes(p, HD_TENSOR_GRAD, 0), bytes(p, HD_TENSOR_GRAD, 1) / (zero >= 2 ? members : 1),
		       "... bytes of gradients");
		is_int(bytes(p, HD_TENSOR_PARAM, 0), bytes(p, HD_TENSOR_PARAM, 1) / (zero >= 3 ? members : 1),
		       "... bytes of parameters");
		now = peak(p);
		ok(now > 0 && now < last, "... the plan takes %lld bytes, less than at the level before",
		   (long long)now);
		last = now;
		forget(p);
	}
}

static void movement(void)
{
	struct hd_plan *p = plan(0, 1, 0);
	int64_t once = p ? bytes(p, HD_TENSOR_PARAM, 1) * (members - 1) / members : 0,
		again = p ? read_again(p) * (members - 1) / members : 0;

	if (!ok(p != NULL && once > again && again > once / 2, "without zero: planned"))
		return;
	is_int(sent(p, ~0u, 0), 2 * once, "... summing gradients moves 2 (n - 1) / n of the parameters");
	forget(p);
	for (int zero = 1; zero < 4; zero++) {
		p = plan(zero, 1, 0);
		if (!ok(p != NULL, "zero %d: planned", zero))
			return;
		is_int(sent(p, ~0u, HD_COMM_REDUCE_SCATTER), once, "... gradients are reduce-scattered once");
		is_int(sent(p, HD_UNIT_U, HD_COMM_ALL_GATHER), zero == 3 ? 0 : once,
		       "... new parameters are gathered at the update (0 for zero 3)");
		is_int(sent(p, HD_UNIT_F, HD_COMM_ALL_GATHER), zero == 3 ? once : 0,
		       "... parameters are gathered in forward (only for zero 3)");
		is_int(sent(p, HD_UNIT_B | HD_UNIT_W, HD_COMM_ALL_GATHER) >= (zero == 3 ? again : 0), 1,
		       "... backward gathers all weights that it reads");
		is_int(sent(p, HD_UNIT_B | HD_UNIT_W, HD_COMM_ALL_GATHER) <= (zero == 3 ? once : 0), 1,
		       "... and at most once");
		is_int(sent(p, ~0u, 0) <= (zero == 3 ? 3 : 2) * once, 1, "... nothing else moves");
		forget(p);
	}
}

/* With servers, pushed gradients are added in the order of the workers. */
static void pushed(void)
{
	sync_by = "server";
	for (int zero = 0; zero < 3; zero++) {
		struct hd_plan *p = plan(zero, 1, 0);
		int64_t once = p ? bytes(p, HD_TENSOR_PARAM, 1) * (members - 1) / members : 0;

		if (!ok(p != NULL, "servers, zero %d: planned", zero))
			break;
		is_int(sent(p, ~0u, HD_COMM_ORDERED_REDUCE_SCATTER), once, "... gradients are pushed in order");
		forget(p);
	}
	sync_by = "allreduce";
}

/* -- members that divide no dim: each has a piece of each tensor, rounded up to whole elements of a dim ------------ */
static int64_t least_piece(const struct tensor *t)
{
	int64_t least = INT64_MAX, all = hd_global_count(t);

	for (uint32_t d = 0; d < t->v.ndim; d++) {
		int64_t n = t->dims[d]->n, piece = (n + members - 1) / members;

		least = all / n * piece < least ? all / n * piece : least;
	}
	return least * HD_BITS(t->v.dtype) / 8;
}

static int64_t least_pieces(const struct hd_plan *p, uint32_t what)
{
	int64_t sum = 0;

	for (size_t i = 0; i < p->ntensors; i++)
		if (p->tensors[i]->v.what == what &&
		    (what == HD_TENSOR_GRAD ? is_accumulator(p->tensors[i]) : !p->tensors[i]->v.node))
			sum += least_piece(p->tensors[i]);
	return sum;
}

static int64_t count(const struct hd_plan *p, uint32_t what)
{
	int64_t n = 0;

	for (size_t i = 0; i < p->ntensors; i++)
		n += p->tensors[i]->v.what == what && !p->tensors[i]->v.node;
	return n;
}

static void padded(int n, int low)
{
	static const uint32_t what[] = { HD_TENSOR_STATE, HD_TENSOR_MASTER, HD_TENSOR_GRAD, HD_TENSOR_PARAM };
	int64_t last = INT64_MAX;

	members = n, embed = 64;
	for (int zero = 0; zero < 4; zero++) {
		struct hd_plan *p = plan(zero, 3, low);
		int64_t now, wire, piece;

		if (!ok(p != NULL, "%d members, zero %d, %s", n, zero, low ? "bf16" : "fp32"))
			return;
		for (int i = 0; i < 4; i++)
			is_int(bytes(p, what[i], 0),
			       zero > (i < 2 ? 0 : i - 1) ? least_pieces(p, what[i]) : bytes(p, what[i], 1),
			       "... each kind of tensor is replicated, or in the smallest possible pieces");
		now = peak(p);
		ok(now > 0 && now < last, "... the plan takes %lld bytes, less than at the level before",
		   (long long)now);
		last = now;
		piece = (n - 1) * least_pieces(p, HD_TENSOR_GRAD);
		wire = sent(p, HD_UNIT_B | HD_UNIT_W | HD_UNIT_S, HD_COMM_REDUCE_SCATTER);
		if (zero == 1)
			ok(wire >= piece && wire <= piece + 64 * (n - 1) * count(p, HD_TENSOR_PARAM),
			   "... sends %lld bytes of gradients for %lld in pieces, padded to whole cache lines",
			   (long long)wire, (long long)piece);
		forget(p);
	}
	embed = 0;
}

/* -- with a second axis: the dim with the least padding, preferably one that the second axis does not shard -------- */
static double excess(const struct tensor *w, uint32_t d)
{
	int64_t n = w->local[d];

	return (double)((n + members - 1) / members * members) / (double)n;
}

/* Returns whether the state is sharded along such a dim. */
static int is_cut_best(const struct tensor *w, const struct tensor *state, int r, int other)
{
	const struct hd_dim *cut = state->at.on[r].dim, *taken = w->at.on[other].dim;
	double least = INFINITY, mine = -1;
	int free_one = 0;

	for (uint32_t d = 0; d < w->v.ndim; d++)
		least = fmin(least, excess(w, d));
	for (uint32_t d = 0; d < w->v.ndim; d++) {
		free_one |= excess(w, d) == least && w->dims[d] != taken;
		mine = w->dims[d] == cut ? excess(w, d) : mine;
	}
	return mine == least && !(free_one && cut == taken);
}

static void chosen_dims(int n, int width)
{
	struct hd_plan *p;
	int states = 0, right = 0, shared = 0, other;

	members = n, embed = width;
	beside = "[strategy t]\nplugin = " HD_TEST_BUILD "/plugins/tp/.libs/tp.so\nsize = 2\n";
	p = plan(1, 1, 0);
	other = p && strcmp(p->axes[0]->v.name, "r") ? 0 : 1;
	for (size_t i = 0; p && i < p->ntensors; i++) {
		const struct tensor *t = p->tensors[i];

		if (t->v.what != HD_TENSOR_STATE || t->v.node || !t->v.of)
			continue;
		states++;
		right += is_cut_best(T(t->v.of), t, 1 - other, other);
		shared += t->at.on[1 - other].dim == T(t->v.of)->at.on[other].dim;
	}
	ok(states > 20 && right == states, "%d members, embed %d: %d of %d states are sharded where it costs least", n,
	   width, right, states);
	ok(shared > 0 && shared < states / 2, "... %d of them along a dim that the other axis shards", shared);
	if (p)
		forget(p);
	beside = "";
	embed = 0;
}

static int is_product(const struct node *n)
{
	struct hd_cost c = { .size = sizeof(c) };

	if (n->v.op->cost && !n->comm.kind)
		n->v.op->cost(NULL, &n->v, &c);
	return c.matmul_flops > 0;
}

/* Returns how many products of the unit lie between the start of a movement and the first product that uses its
 * result. */
static int products_beside(const struct node *c)
{
	const struct tensor *y = c->outs[0];
	int k = 0;

	for (const struct node *n = c->next; n; n = n->next) {
		for (uint32_t i = 0; i < n->v.nin; i++)
			if (n->ins[i] == y) {
				if (is_product(n))
					return k;
				y = n->outs[0];
				break;
			}
		k += n->v.phase == c->v.phase && is_product(n);
	}
	return -1;
}

/* Checks that a parameter that moves alone is under way during the product before its own.  Between hosts it is under
 * way during the complete block before: a layer has six products and attention. */
static void early(int ranks_per_host)
{
	struct hd_plan *p;
	int gathers[2] = { 0 }, beside[2] = { 0 }, block[2] = { 0 };

	node = ranks_per_host;
	p = plan(3, 1, 0);
	note("%d ranks of a host (0: unknown)", node);

	for (const struct node *n = p ? p->first : NULL; n; n = n->next) {
		int k = n->v.phase == HD_UNIT_B;

		if (n->comm.kind != HD_COMM_ALL_GATHER || n->made_by >= 0 || !(n->v.phase & (HD_UNIT_F | HD_UNIT_B)) ||
		    strstr(n->v.ins[0]->name, "wte")) /* looked up */
			continue;
		gathers[k]++;
		beside[k] += products_beside(n) >= 1;
		block[k] += products_beside(n) >= 7;
	}
	is_int(gathers[0], 3 * 6 + 1, "forward: each weight of a product is gathered");
	is_int(beside[0], gathers[0] - 1, "... all but the first during a product");
	is_int(gathers[1], 3 * 6 + 1, "backward: each weight of a product is gathered again");
	is_int(beside[1], gathers[1] - 1, "... all but the first during a product");
	is_int(block[0], node ? 0 : 2 * 6 + 1,
	       "forward: weights of layers 1, 2 and of the head during a layer (0: here)");
	ok(node ? block[1] == 0 : block[1] >= 2 * 6, "backward: %d weights during a layer", block[1]);
	if (p)
		forget(p);
	node = 0;
}

/* -- masters in pieces: parameters are gathered at the start of the next step --------------------------------------- */
static int64_t low_bytes(const struct hd_plan *p) /* of parameters with a master */
{
	int64_t sum = 0;

	for (size_t i = 0; i < p->ntensors; i++)
		if (!p->tensors[i]->v.node && p->tensors[i]->master)
			sum += hd_global_count(p->tensors[i]) * HD_BITS(p->tensors[i]->v.dtype) / 8;
	return sum;
}

static void next_step(int zero, int ranks_per_host, int low)
{
	struct hd_plan *p;
	int64_t once, gathered;

	node = ranks_per_host;
	p = plan(zero, 1, low);
	if (!ok(p != NULL, "zero %d, %s, %d ranks of a host (0: unknown)", zero, low ? "bf16" : "fp32", node))
		return;
	once = node || !low ? 0 : low_bytes(p) * (members - 1) / members;
	is_int(p->pulls, once > 0, "... whether parameters are one step behind");
	gathered = sent(p, HD_UNIT_G, HD_COMM_ALL_GATHER);
	ok(gathered >= once && gathered <= once + (once ? 64 * (members - 1) * count(p, HD_TENSOR_PARAM) : 0),
	   "... gathers %lld bytes before forward for %lld, padded to whole cache lines", (long long)gathered,
	   (long long)once);
	ok(sent(p, HD_UNIT_U, HD_COMM_ALL_GATHER) > 0 && (!once || sent(p, HD_UNIT_U, HD_COMM_ALL_GATHER) < once / 8),
	   "... in the update, others: norms have no master, and fp32 has none at all");
	forget(p);
	node = 0;
}

/* -- how much moves at once ------------------------------------------------------------------------------------------ */
/* By the formula of plugins/dp/bucket.c: sqrt(S n 400 KB), in trees sqrt(S 2 log2(n) 400 KB), if it is above 25 MB. */
static void buckets(int n, int width, const char *sync)
{
	struct hd_plan *p;
	double all, best;
	int sums = 0;

	members = n, embed = width, layers = 12, bucket = "25M", sync_by = sync;
	p = plan(0, 1, 0);
	if (!ok(p != NULL, "%d members, embed %d, %s, buckets of the default size", n, width, sync))
		return;
	for (const struct node *c = p->first; c; c = c->next)
		sums += (c->comm.kind == HD_COMM_ALL_REDUCE || c->comm.kind == HD_COMM_RING_REDUCE_SCATTER) &&
			c->v.phase == HD_UNIT_S && hd_local_count(c->ins[0]) > 4;
	all = (double)bytes(p, HD_TENSOR_PARAM, 1);
	best = fmax(25 << 20, sqrt(all * (strcmp(sync, "ring") ? 2 * log2(n) : n) * 4e5));
	ok(sums >= all / (best + 2 * all / layers) && sums <= all / best + 1, "... %d for %.0f MB, in %.0f MB each",
	   sums, all / 1e6, best / 1e6);
	forget(p);
	members = 4, embed = 0, layers = 3, bucket = "64K", sync_by = "allreduce";
}

/* A bucket of gathered pieces has that many bytes when it is complete. */
static void gathered_buckets(void)
{
	struct hd_plan *p;
	int n = 0, large = 0;

	members = 8, embed = 256, layers = 12, bucket = "16K";
	p = plan(1, 1, 1);
	for (const struct node *c = p ? p->first : NULL; c; c = c->next)
		if (c->comm.kind == HD_COMM_ALL_GATHER && c->v.phase == HD_UNIT_G && c->made_by >= 0) {
			n++;
			large += hd_local_bytes(c->outs[0]) > 16384 + 512;
		}
	ok(n >= 2 && !large, "%d buckets of biases, %d of them larger than a bucket", n, large);
	if (p)
		forget(p);
	members = 4, embed = 0, layers = 3, bucket = "64K";
}

/* -- between nodes, where each message has the latencies of all members ---------------------------------------------- */
/* Returns the number of collectives of a kind in a phase of layer 1. */
static int collectives(const struct hd_plan *p, uint32_t kind, uint32_t phase)
{
	int n = 0;

	for (const struct node *c = p->first; c; c = c->next)
		n += c->comm.kind == kind && c->v.phase & phase && !strcmp(c->v.block, "layer 1");
	return n;
}

/* Norms and biases have at most twice as many elements as the square root of the largest matrix. */
static void small_parameters(int ranks_per_host)
{
	struct hd_plan *p;
	int complete = 0, small = 0, wrong = 0;

	node = ranks_per_host;
	p = plan(3, 1, 0);
	if (!ok(p != NULL, "zero = 3, %d ranks, %d of them on a host", members, node))
		return;
	for (size_t i = 0; i < p->ntensors; i++) {
		const struct tensor *t = p->tensors[i];

		if (t->v.node || t->v.what != HD_TENSOR_PARAM)
			continue;
		complete += hd_local_count(t) == hd_global_count(t);
		small += strstr(t->v.name, "bias") || strstr(t->v.name, "ln_");
		wrong += hd_local_count(t) == hd_global_count(t) && !strstr(t->v.name, "bias") &&
			 !strstr(t->v.name, "ln_");
	}
	ok(small > 20 && complete == (node < members ? small : 0) && !wrong,
	   "... %d parameters are complete of %d norms and biases; %d others", complete, small, wrong);
	is_int(bytes(p, HD_TENSOR_STATE, 0), bytes(p, HD_TENSOR_STATE, 1) / members, "... bytes of states");
	is_int(bytes(p, HD_TENSOR_GRAD, 0), bytes(p, HD_TENSOR_GRAD, 1) / members, "... bytes of gradients");
	ok((sent(p, HD_UNIT_U, HD_COMM_ALL_GATHER) > 0) == (complete > 0), "... whose new values are gathered");
	forget(p);
	node = 0;
}

/* With 4 members a tensor of less than 4 MB moves in a bucket: a block's gradients fill two, and its weights one. Within
 * a host, the 6 matrices are above 1/16 of a bucket and move alone; biases are bf16, and norms fp32. */
static void few_messages(int ranks_per_host)
{
	struct hd_plan *p;

	node = ranks_per_host, embed = 64, bucket = "120K";
	p = plan(3, 1, 1);
	if (!ok(p != NULL, "zero = 3, bf16, %d ranks, %d of them on a host", members, node))
		return;
	is_int(collectives(p, HD_COMM_REDUCE_SCATTER, HD_UNIT_W), node < members ? 2 : 6 + 1,
	       "... reduce-scatters of a block's gradients");
	is_int(collectives(p, HD_COMM_ALL_GATHER, HD_UNIT_F), node < members ? 1 : 6 + 2,
	       "... gathers of a block's weights in forward");
	forget(p);
	node = 0, embed = 0, bucket = "64K";
}

/* The router is fp32, and lies between the bf16 weights of attention and of the experts. */
static void two_dtypes(void)
{
	struct hd_plan *p;

	model = "experts = 32\nmoe_every = 1\ncapacity_factor = 8\n";
	node = 2, bucket = "10M";
	p = plan(3, 1, 1);
	if (ok(p != NULL, "zero = 3, bf16, 32 experts, 4 ranks on 2 hosts")) {
		is_int(collectives(p, HD_COMM_ALL_GATHER, HD_UNIT_F), 2,
		       "... gathers of a block in forward: the router, and all weights of bf16");
		forget(p);
	}
	node = 0, bucket = "64K", model = "";
}

int main(void)
{
	static const int others[] = { 3, 5, 6, 7, 8 };

	early(0);
	early(4);
	for (int zero = 1; zero < 3; zero++) {
		next_step(zero, 0, 1);
		next_step(zero, 4, 1);
		next_step(zero, 0, 0);
	}
	buckets(2, 512, "ring");
	buckets(64, 1024, "ring");
	buckets(64, 1024, "allreduce");
	gathered_buckets();
	small_parameters(4);
	small_parameters(2);
	few_messages(4);
	few_messages(2);
	two_dtypes();
	memory(0, 1);
	memory(0, 3);
	memory(1, 3);
	movement();
	optimizer = "sgd"; /* it has no state to show where the update is */
	movement();
	optimizer = "adamw";
	pushed();
	for (size_t i = 0; i < HD_LEN(others); i++) {
		members = others[i];
		note("%d members", members);
		memory(0, 3);
		movement();
	}
	chosen_dims(4, 64);
	chosen_dims(3, 64);
	padded(3, 0);
	padded(5, 1);
	padded(7, 0);
	padded(48, 1);
	return done();
}
