/* SPDX-License-Identifier: Apache-2.0
 * Gradients are summed during the rest of backward, or after it with overlap = no.  If the first broke,
 * sums would no longer be hidden; if the second broke, comparing the two would be meaningless.
 */
#include <config.h>
#include "engine/device/device.h"
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"

/* Counts the sums that begin before the last entry of backward, and all sums, on the first rank of each stage. */
static void sums(const char *keys, const char *stages, int ranks, int *early, int *all)
{
	char ini[1500];
	struct hd_plan *p;

	*early = *all = 0;
	snprintf(ini, sizeof(ini),
		 "[model]\nlayers = 4\nembed = 16\nheads = 2\nvocab = 64\n[data]\ntrain = none\n"
		 "[train]\nseq = 16\nglobal_batch = 8\nmicro_batch = 1\nsteps = 1\n"
		 "[strategy r]\nplugin = " HD_TEST_BUILD "/plugins/dp/.libs/dp.so\nsize = 2\nbucket = 4K\n%s%s",
		 keys, stages);
	p = gt_plan_of(ini, ranks, HD_DTYPE_F32);
	for (int rank = 0; p && rank < ranks; rank += 2) {
		struct hd_program_options o = { .rank = rank, .device = hd_device_cpu() };
		struct hd_err err = { 0 };
		struct hd_program *g = NULL;
		size_t last = 0;

		if (hd_program_build(p, &o, &g, &err) < 0)
			break;
		for (size_t e = 0; e < g->n; e++)
			last = g->entries[e].unit.kind & (HD_UNIT_B | HD_UNIT_W) ? e : last;
		for (size_t e = 0; e < g->n; e++)
			if (g->entries[e].type == HD_ENTRY_NODE && g->entries[e].node->comm.kind &&
			    g->entries[e].node->v.phase & HD_UNIT_S && hd_local_count(g->entries[e].node->ins[0]) > 4)
				*all += 1, *early += e < last;
		hd_program_destroy(g);
	}
	if (p) {
		struct hd_conf *c = p->conf;

		hd_plan_destroy(p);
		hd_conf_destroy(c);
	}
}

int main(void)
{
	static const char *const keys[] = { "sync = ring\n", "sync = allreduce\n", "sync = server\n", "zero = 1\n" };
	static const char stages[] =
		"[strategy s]\nplugin = " HD_TEST_BUILD "/plugins/pp/.libs/pp.so\nsize = 2\nschedule = zb\n";

	for (size_t i = 0; i < HD_LEN(keys); i++)
		for (int two = 0; two < 2; two++) {
			char late[100];
			int early, all;

			sums(keys[i], two ? stages : "", two ? 4 : 2, &early, &all);
			ok(early > 0 && early < all, "%.*s, %d stages: %d of %d sums begin during backward",
			   (int)strlen(keys[i]) - 1, keys[i], two + 1, early, all);
			snprintf(late, sizeof(late), "%soverlap = no\n", keys[i]);
			sums(late, two ? stages : "", two ? 4 : 2, &early, &all);
			ok(!early && all > 4, "... and with overlap = no %d of %d", early, all);
		}
	return done();
}
