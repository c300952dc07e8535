/* SPDX-License-Identifier: Apache-2.0
 * Ranks may be dedicated servers.  Loss, gradient norm, every gradient and every parameter of two steps are those of
 * one rank, with any number of workers and servers, inside and outside other strategies.  If this broke, a server
 * would miss a gradient, or a worker would go on with the previous step's weights.
 *
 * All ranks in this process, in double on the reference device.
 */
#include <config.h>
#include "engine/inprocess/inprocess.h"
#include "engine/graph/mesh.h"
#include "engine/graph/op.h"
#include "t/lib/tap.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLUGIN(name) "[strategy " name "]\nplugin = " HD_TEST_BUILD "/plugins/" name "/.libs/" name ".so\n"
#define DP PLUGIN("dp") "sync = server\n"

struct layout {
	const char *name, *sections, *train;
	int workers, servers; /* of dp */
};

static struct hd_inprocess *open_layout(const struct layout *l, int serves)
{
	struct hd_inprocess *r = NULL;
	struct hd_err err = { 0 };
	char ini[3000];
	int planned;

	snprintf(
		ini, sizeof(ini),
		"[model]\nlayers = 4\nheads = 2\nembed = 12\nmlp = 20\nvocab = 19\ninit_std = 0.1\n[data]\ntrain = none\n"
		"[train]\nseq = 6\nglobal_batch = 24\nmicro_batch = 1\nsteps = 2\n%s",
		l->train);
	if (serves)
		snprintf(ini + strlen(ini), sizeof(ini) - strlen(ini), "%ssize = %d\nservers = %d\n", l->sections,
			 l->workers, l->servers);
	if (hd_inprocess_open(ini, serves ? 0 : 1, &r, &planned, &err) < 0)
		note("%s: %s", l->name, err.text);
	return r;
}

/* Returns the largest difference of parameters (or their gradients), relative to the largest entry of all. */
static double far_off(const struct hd_inprocess *one, const struct hd_inprocess *r, int gradients, const char **where)
{
	double worst = 0, scale = 0;

	for (size_t i = 0; i < one->plan->ntensors; i++) {
		struct tensor *t = one->plan->tensors[i], *u = hd_inprocess_param(r, t->v.name);
		double *a, *b, apart = 0;

		if (t->v.node || t->v.what != HD_TENSOR_PARAM)
			continue;
		t = gradients ? hd_inprocess_gradient(one, t) : t;
		u = u && gradients ? hd_inprocess_gradient(r, u) : u;
		if (!t)
			continue;
		a = hd_inprocess_assemble(one, t, NULL, NULL);
		b = u ? hd_inprocess_assemble(r, u, NULL, &apart) : NULL;
		for (int64_t k = 0; k < hd_global_count(t); k++) {
			double off = a && b ? fabs(a[k] - b[k]) + apart : NAN;

			*where = off <= worst ? *where : t->v.name;
			worst = off <= worst ? worst : off;
			scale = a ? fmax(scale, fabs(a[k])) : scale;
		}
		free(a), free(b);
	}
	return worst / scale;
}

static double values(const struct hd_inprocess *one, const struct hd_inprocess *r)
{
	double worst = 0;

	for (int k = 0; k < r->n; k++) {
		double loss = hd_inprocess_scalar(r, r->plan->loss, k) / hd_inprocess_scalar(one, one->plan->loss, 0),
		       norm = hd_inprocess_scalar(r, r->plan->norm, k) / hd_inprocess_scalar(one, one->plan->norm, 0),
		       off = fmax(fabs(loss - 1), fabs(norm - 1));

		worst = loss == loss && norm == norm ? fmax(worst, off) : NAN;
	}
	return worst;
}

/* Checks that a server runs nothing of a micro-batch and has no parameter, and that a worker has no state and no
 * master. */
static int holds_its_own(const struct hd_inprocess *r)
{
	for (int k = 0; k < r->n; k++) {
		const struct hd_program *g = r->program[k];
		int serves = !hd_is_worker(r->plan, k);

		for (size_t e = 0; e < g->n; e++)
			if (serves && g->entries[e].unit.kind & (HD_UNIT_F | HD_UNIT_B | HD_UNIT_W))
				return note("rank %d runs a unit", k), 0;
		for (size_t i = 0; i < r->plan->ntensors; i++) {
			const struct tensor *t = r->plan->tensors[i];
			int of_server = t->v.what == HD_TENSOR_STATE || t->v.what == HD_TENSOR_MASTER;

			if (!t->v.node && t->v.what != HD_TENSOR_DATA && hd_tensor_here(g, t) && of_server != serves)
				return note("rank %d has %s", k, t->v.name), 0;
		}
	}
	return 1;
}

static int reads(const struct entry *e, const struct tensor *t)
{
	for (uint32_t i = 0; e->type == HD_ENTRY_NODE && i < e->node->v.nin; i++)
		if (e->node->ins[i] == t)
			return 1;
	return 0;
}

/* Checks that all pulls of a worker's step start before its first unit, and that each parameter is taken immediately
 * before its first reader. */
static int pulls_late(const struct hd_inprocess *r)
{
	const struct hd_program *g = r->program[0];
	size_t units = 0, taken = 0, within = 0;

	for (size_t e = 0; e < g->n; e++) {
		const struct entry *x = &g->entries[e];
		size_t reader = e + 1;

		units += x->unit.kind == HD_UNIT_F;
		if (x->type == HD_ENTRY_NODE && x->node->comm.kind == HD_COMM_PULL && units)
			return note("a pull starts in a unit"), 0;
		if (x->type != HD_ENTRY_NODE || x->node->is->role != OP_ROLE_PULLED)
			continue;
		while (reader < g->n &&
		       (g->entries[reader].unit.kind == HD_UNIT_G || g->entries[reader].type == HD_ENTRY_LOAD))
			reader++;
		if (reader == g->n || !reads(&g->entries[reader], T(x->node->outs[0]->v.of)))
			return note("%s is taken where nobody needs it", x->node->outs[0]->v.of->name), 0;
		taken++;
		within += units > 0;
	}
	return taken > 1 && within >= taken / 2 ? 1 : (note("%zu taken, %zu within units", taken, within), 0);
}

static void try(const struct layout *l)
{
	struct hd_inprocess *one = open_layout(l, 0), *r = open_layout(l, 1);
	struct hd_err err = { 0 };
	double g = 0, v = 0, w = 0;
	const char *where = "";

	for (int step = 0; step < 2 && one && r && !err.code; step++) {
		one->run.lr = r->run.lr = 0.01;
		one->run.step = r->run.step = step + 1;
		if (hd_inprocess_step(one, &err) < 0 || hd_inprocess_step(r, &err) < 0)
			break;
		g = fmax(g, far_off(one, r, 1, &where));
		v = fmax(v, values(one, r));
		if (hd_inprocess_update(one, &err) >= 0 && hd_inprocess_update(r, &err) >= 0)
			w = fmax(w, far_off(one, r, 0, &where));
	}
	if (!ok(one && r && !err.code && g < 1e-11 && v < 1e-11 && w < 1e-11,
		"%s: %d workers, %d servers: results are one rank's", l->name, l->workers, l->servers))
		note("%s; gradients differ by %g, loss and norm by %g, parameters by %g (%s)", err.text, g, v, w,
		     where);
	ok(r && r->n % (l->workers + l->servers) == 0 && holds_its_own(r),
	   "... servers hold only states and masters, workers only parameters");
	ok(r && pulls_late(r), "... and pulls overlap with forward");
	hd_inprocess_close(one);
	hd_inprocess_close(r);
}

#define SGD "optimizer = sgd\nclip = 0\n"
#define CLIP "optimizer = sgd\nclip = 0.01\n"
#define ADAMW "optimizer = adamw\neps = 0.01\nclip = 0.01\n"
/* Replicas along a second axis, inside those of dp: a tensor may be summed along this axis first or last. */
#define TWO "[strategy two]\nplugin = " HD_TEST_BUILD "/plugins/dp/.libs/dp.so\nsize = 2\n"
/* Runs a layout without dedicated servers: workers add in rank order or in a ring. */
static void among_workers(const struct layout *l)
{
	struct hd_inprocess *one = open_layout(l, 0), *r = open_layout(l, 1);
	struct hd_err err = { 0 };
	const char *where = "";

	if (one && r && hd_inprocess_step(one, &err) >= 0)
		hd_inprocess_step(r, &err);
	ok(one && r && !err.code && far_off(one, r, 1, &where) < 1e-11 && values(one, r) < 1e-11,
	   "%s: %d workers: results are one rank's%s", l->name, l->workers, err.text);
	hd_inprocess_close(one);
	hd_inprocess_close(r);
}

int main(void)
{
	static const struct layout among[] = {
		{ "in order", DP, SGD, 3, 0 },
		{ "in a ring", PLUGIN("dp") "sync = ring\n", SGD, 3, 0 },
		{ "combined with servers", TWO "sync = server\nservers = 2\n" PLUGIN("dp") "zero = 1\n", SGD, 2, 0 },
		{ "sharded over 2, tp 2 and 3", TWO "zero = 3\n" PLUGIN("tp") "size = 2\n" PLUGIN("dp") "zero = 2\n",
		  SGD, 3, 0 },
		{ "parameters sharded over 3", TWO "zero = 2\n" PLUGIN("tp") "size = 2\n" PLUGIN("dp") "zero = 3\n",
		  SGD, 3, 0 }
	};
	static const struct layout layouts[] = {
		{ "sgd", DP, SGD, 1, 1 },
		{ "sgd", DP, SGD, 2, 1 },
		{ "sgd, small buckets", DP "bucket = 512\n", SGD, 3, 1 },
		{ "clipped", DP, CLIP, 2, 2 },
		{ "clipped, small buckets", DP "bucket = 512\n", CLIP, 8, 4 },
		{ "clipped", DP, CLIP, 3, 7 },
		{ "adamw", DP "bucket = 512\n", ADAMW, 3, 2 },
		{ "adamw, late", DP "bucket = 512\noverlap = no\n", ADAMW, 3, 2 },
		{ "tp inside", PLUGIN("tp") "size = 2\n" DP, ADAMW, 2, 1 },
		{ "tp inside, sequence sharded", PLUGIN("tp") "size = 2\nsequence_parallel = yes\n" DP "bucket = 512\n",
		  ADAMW, 2, 2 },
		{ "pp inside", PLUGIN("pp") "size = 2\n" DP "bucket = 512\n", ADAMW, 3, 2 },
		{ "pp inside, zero bubble", PLUGIN("pp") "size = 2\nschedule = zb\n" DP, ADAMW, 2, 1 },
		{ "pp inside, interleaved", PLUGIN("pp") "size = 2\nschedule = interleaved\n" DP, CLIP, 2, 2 },
		{ "tp and pp inside", PLUGIN("tp") "size = 2\n" PLUGIN("pp") "size = 2\n" DP, ADAMW, 2, 2 },
		{ "cp inside, ring", PLUGIN("cp") "size = 2\nform = ring\nbalance = none\n" DP "bucket = 512\n", ADAMW,
		  2, 1 },
		{ "recomputed", DP, ADAMW "recompute = full\n", 2, 1 },
	};

	for (size_t i = 0; i < HD_LEN(layouts); i++)
		try(&layouts[i]);
	for (size_t i = 0; i < HD_LEN(among); i++)
		among_workers(&among[i]);
	return done();
}
