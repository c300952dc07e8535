/* SPDX-License-Identifier: Apache-2.0
 * Counts what planning costs: the nodes of sums over n replicas, and the nodes and tensors that the programs of s
 * stages visit. If this broke, the check that every rank of a job of thousands runs at its start would take minutes,
 * or forever.
 */
#include <config.h>
#include "engine/device/device.h"
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"

static struct hd_plan *plan(int replicas, int stages, const char *keys)
{
	char ini[1500];
	struct hd_plan_options o = { .ranks = replicas * stages, .train = 1 };
	struct hd_err why = { 0 };
	struct hd_plan *p = NULL;
	struct hd_conf *c;

	snprintf(
		ini, sizeof(ini),
		"[model]\nlayers = 16\nembed = 16384\nheads = 4\nvocab = 4096\ntie_embeddings = no\n[data]\ntrain = none\n"
		"[train]\nseq = 8\nglobal_batch = %d\nmicro_batch = 1\nsteps = 1\n"
		"[strategy r]\nplugin = " HD_TEST_BUILD "/plugins/dp/.libs/dp.so\nsize = %d\nbucket = 64M\n%s"
		"[strategy s]\nplugin = " HD_TEST_BUILD "/plugins/pp/.libs/pp.so\nsize = %d\nschedule = 1f1b\n",
		replicas * 16, replicas, keys, stages);
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

static int nodes(const struct hd_plan *p)
{
	int n = 0;

	for (const struct node *k = p->first; k; k = k->next)
		n++;
	return n;
}

static void test_replicas(const char *what, const char *keys)
{
	int few = 0;

	for (int n = 4; n <= 4096; n *= 32) {
		struct hd_plan *p = plan(n, 1, keys);

		if (!ok(p != NULL, "%s: %d replicas are planned", what, n))
			return;
		few = few ? few : nodes(p);
		ok(nodes(p) == few, "%s: %d replicas take %d nodes, 4 replicas took %d", what, n, nodes(p), few);
		forget(p);
	}
}

/* Returns how many nodes and tensors the programs of all stages visit. */
static int looked_at(struct hd_plan *p)
{
	int64_t all = 0;

	for (int64_t s = 0; s < p->ncoords; s++) {
		struct hd_program_options o = { .rank = s * p->stages->stride, .device = hd_device_cpu() };
		struct hd_program *g = NULL;
		struct hd_err why = { 0 };

		if (hd_program_build(p, &o, &g, &why) < 0)
			return note("%s", why.text), -1;
		all += (int64_t)(g->nmine + g->ntensors);
		hd_program_destroy(g);
	}
	return (int)all;
}

/* Each stage visits its own layers.  In addition both sides of a boundary list its tensors, and every stage lists each
 * gradient for the norm. */
static void test_stages(void)
{
	int two = 0, gradients = 16 * 16;

	for (int s = 2; s <= 16; s *= 2) {
		struct hd_plan *p = plan(2, s, "");
		int all = p ? looked_at(p) : -1;

		two = two ? two : all;
		if (!ok(all > 0, "%d stages are planned", s))
			return;
		note("%d stages: %d nodes and tensors are visited", s, all);
		ok(all < two + two / 4 + s * gradients, "%d stages together visit hardly more than two", s);
		forget(p);
	}
}

int main(void)
{
	test_replicas("ring", "");
	test_replicas("ring, bf16 on the wire", "wire = bf16\n");
	test_replicas("servers on the workers", "sync = server\n");
	test_replicas("zero = 1", "zero = 1\n");
	test_replicas("zero = 3", "zero = 3\n");
	test_stages();
	return done();
}
