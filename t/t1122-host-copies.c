/* SPDX-License-Identifier: Apache-2.0
 * The host's copies of a device's tensors, whose memory is reused.  The device here uses this process' memory, so
 * results by way of copies are compared with results in place.  If this broke, weights on a GPU would begin, or be
 * saved, with other values.
 */
#include <config.h>
#include "engine/base/rng.h"
#include "engine/run/job.h"
#include "engine/run/run.h"
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"
#include <stdlib.h>
#include <string.h>

static int fetched, sent;

static void *refuse(size_t bytes, struct hd_err *err)
{
	(void)bytes, (void)err;
	return NULL;
}
static void put(void *device, const void *host, size_t bytes)
{
	sent++;
	memcpy(device, host, bytes);
}
static void get(void *host, const void *device, size_t bytes)
{
	fetched++;
	memcpy(host, device, bytes);
}

struct model {
	struct hd_plan *plan;
	struct hd_program *g;
	char *mem;
};

/* Opens a model without binding it, since nothing but the filling of its leaves runs. */
static int open_model(struct model *m, const struct hd_device_ops *d, uint32_t compute)
{
	struct hd_plan_options o = { .ranks = 1, .train = 1, .master_dtype = HD_DTYPE_F32, .compute_dtype = compute };
	struct hd_program_options po = { .device = hd_device_cpu() };
	struct hd_err err = { 0 };
	struct hd_conf *c = gt_conf("[model]\nlayers = 2\nheads = 4\nembed = 64\nvocab = 40001\n[data]\ntrain = none\n"
				    "[train]\nseq = 8\nglobal_batch = 1\nsteps = 1\n");

	if (!ok(c && hd_plan_create(c, &o, &m->plan, &err) >= 0, "the model is planned: %s", err.text) ||
	    !ok(hd_program_build(m->plan, &po, &m->g, &err) >= 0, "its program is built: %s", err.text))
		return 0;
	m->mem = aligned_alloc(4096, (size_t)(m->g->memory.persistent + 4095) / 4096 * 4096);
	memset(m->mem, 1, (size_t)m->g->memory.persistent);
	m->g->persistent = m->mem;
	m->g->device = d;
	m->g->copies = hd_host_copies_create();
	return 1;
}

static void close_model(struct model *m)
{
	hd_host_copies_destroy(m->g);
	hd_program_destroy(m->g);
	gt_plan_destroy(m->plan);
	free(m->mem);
}

/* Finds the largest and the smallest parameter. */
static void find(const struct hd_plan *p, const struct tensor **large, const struct tensor **small)
{
	*large = *small = NULL;
	for (size_t i = 0; i < p->ntensors; i++) {
		const struct tensor *t = p->tensors[i];

		if (t->v.node || t->v.what != HD_TENSOR_PARAM)
			continue;
		*large = !*large || hd_local_bytes(t) > hd_local_bytes(*large) ? t : *large;
		*small = !*small || hd_local_bytes(t) < hd_local_bytes(*small) ? t : *small;
	}
}

static int64_t not_zero(const char *data, int64_t n)
{
	int64_t count = 0;

	for (int64_t i = 0; i < n; i++)
		count += data[i] != 0;
	return count;
}

static void used_again(const struct hd_program *g)
{
	const struct tensor *large, *small;
	char *a, *b, *c, *again;

	find(g->plan, &large, &small);
	a = hd_program_map(g, large, HD_STEP, HD_MAP_READ);
	ok(a != hd_program_address(g, large, 0) &&
		   !memcmp(a, hd_program_address(g, large, 0), (size_t)hd_local_bytes(large)),
	   "%s", "a tensor mapped for reading is a copy");
	b = hd_program_map(g, small, HD_STEP, HD_MAP_READ);
	c = hd_program_map(g, small, HD_STEP, HD_MAP_READ);
	ok(a != b && b != c && a != c, "%s", "three tensors mapped at the same time have their own memory");
	hd_program_unmap(g, small, HD_STEP, c, HD_MAP_READ);
	hd_program_unmap(g, small, HD_STEP, b, HD_MAP_READ);
	hd_program_unmap(g, large, HD_STEP, a, HD_MAP_READ);
	again = hd_program_map(g, large, HD_STEP, HD_MAP_WRITE);
	ok(again == a, "%s", "a large tensor gets the free memory that is large enough");
	is_int(not_zero(again, hd_local_bytes(large)), 0,
	       "a tensor mapped for writing has no bytes of the previous one");
	memset(again, 7, (size_t)hd_local_bytes(large));
	hd_program_unmap(g, large, HD_STEP, again, HD_MAP_WRITE);
	is_int(((char *)hd_program_address(g, large, 0))[1], 7, "the written bytes are the tensor's after unmapping");
	hd_program_forget_copies(g);
	a = hd_program_map(g, large, HD_STEP, HD_MAP_WRITE);
	hd_program_forget_copies(g);
	memset(a, 9, (size_t)hd_local_bytes(large)); /* a mapped copy is not freed */
	hd_program_unmap(g, large, HD_STEP, a, HD_MAP_WRITE);
	is_int(((char *)hd_program_address(g, large, 0))[0], 9, "a mapped copy survives hd_program_forget_copies");
}

static void compare(uint32_t compute)
{
	struct hd_device_ops d = *hd_device_cpu();
	struct model here = { 0 }, there = { 0 };
	uint64_t part = 1, of_copies = 2;

	d.alloc = refuse, d.put = put, d.get = get;
	if (!open_model(&here, hd_device_cpu(), compute) || !open_model(&there, &d, compute))
		return;
	fetched = sent = 0;
	hd_init_weights(here.g, 3, &part);
	is_int(sent, 0, "no copies are sent if kernels compute in the host's memory");
	hd_init_weights(there.g, 3, &of_copies);
	ok(part == of_copies, "weights that are sent have the same hash as weights made in place: %016llx, %016llx",
	   (unsigned long long)of_copies, (unsigned long long)part);
	is_int(fetched, 0, "no weights are fetched to hash or round them");
	ok(hd_weights_part(there.g) == part, "%s", "the weights on the device have that hash");
	is_int(memcmp(here.mem, there.mem, (size_t)here.g->memory.persistent), 0,
	       "the memory of both models is the same");
	used_again(there.g);
	close_model(&here);
	close_model(&there);
}

int main(void)
{
	compare(0);
	compare(HD_DTYPE_BF16);
	return done();
}
