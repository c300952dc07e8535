/* SPDX-License-Identifier: Apache-2.0
 * Gives the host access to tensors: to the memory itself if kernels compute in host memory, else to a copy.
 */
#include <config.h>
#include "engine/run/run.h"
#include <stdlib.h>
#include <string.h>

static int in_host(const struct hd_program *g, const struct tensor *t)
{
	return !g->device || hd_device_in_host(g->device) || hd_program_in_host(g, t);
}

#define STRETCH ((size_t)2 << 20) /* bytes that one thread clears at a time: a huge page */

void hd_clear_pages(void *data, size_t bytes)
{
#pragma omp parallel for schedule(static) if (bytes >= 2 * STRETCH)
	for (size_t at = 0; at < bytes; at += STRETCH)
		memset((char *)data + at, 0, bytes - at < STRETCH ? bytes - at : STRETCH);
}

/* Memory of copies is kept for later copies. Otherwise a walk over a model's weights spends most of its time in page
 * faults. For each copy, the system would hand out cleared pages and take them back. */
#define KEPT 2 /* a master, and the parameter rounded from it */

struct host_copies {
	struct host_copy {
		void *data;
		size_t bytes;
		int mapped;
	} kept[KEPT];
};

struct host_copies *hd_host_copies_create(void)
{
	return hd_alloc(sizeof(struct host_copies));
}

void hd_program_forget_copies(const struct hd_program *g)
{
	for (int i = 0; g->copies && i < KEPT; i++)
		if (!g->copies->kept[i].mapped) {
			free(g->copies->kept[i].data);
			g->copies->kept[i] = (struct host_copy){ 0 };
		}
}

void hd_host_copies_destroy(struct hd_program *g)
{
	hd_program_forget_copies(g);
	free(g->copies);
	g->copies = NULL;
}

/* If one thread touched all pages for the first time, that would take longer than the copy to or from the device. */
static void *pages_touched(size_t bytes)
{
	void *p = NULL;

	if (bytes < 2 * STRETCH || posix_memalign(&p, STRETCH, bytes))
		return hd_alloc(bytes);
	hd_large_pages(p, bytes);
	hd_clear_pages(p, bytes);
	return p;
}

/* Returns the smallest unmapped copy that holds the bytes. If none does, returns the
 * smallest, to be replaced; NULL: all are mapped. */
static struct host_copy *find_copy(const struct hd_program *g, size_t bytes)
{
	struct host_copy *best = NULL;

	for (int i = 0; g->copies && i < KEPT; i++) {
		struct host_copy *c = &g->copies->kept[i];
		int fits = c->bytes >= bytes, best_fits = best && best->bytes >= bytes;

		if (!c->mapped && (!best || fits > best_fits || (fits == best_fits && c->bytes < best->bytes)))
			best = c;
	}
	return best;
}

/* *fresh: whether all its bytes are zero. */
static void *map_copy(const struct hd_program *g, size_t bytes, int *fresh)
{
	struct host_copy *c = find_copy(g, bytes);

	*fresh = !c || c->bytes < bytes;
	if (!c)
		return pages_touched(bytes);
	if (*fresh) {
		free(c->data);
		*c = (struct host_copy){ pages_touched(bytes), bytes, 0 };
	}
	c->mapped = 1;
	return c->data;
}

static void unmap_copy(const struct hd_program *g, void *data)
{
	for (int i = 0; g->copies && i < KEPT; i++)
		if (g->copies->kept[i].data == data) {
			g->copies->kept[i].mapped = 0;
			return;
		}
	free(data);
}

void *hd_program_map(const struct hd_program *g, const struct tensor *t, int64_t micro, int how)
{
	void *at = hd_program_address(g, t, micro), *copy;
	size_t bytes = (size_t)hd_local_bytes(t);
	int fresh;

	if (!at || in_host(g, t))
		return at;
	copy = map_copy(g, bytes, &fresh);
	if (how & HD_MAP_READ)
		g->device->get(copy, at, bytes);
	else if (!fresh)
		hd_clear_pages(copy, bytes);
	return copy;
}

void hd_program_unmap(const struct hd_program *g, const struct tensor *t, int64_t micro, void *data, int how)
{
	if (!data || in_host(g, t))
		return;
	if (how & HD_MAP_WRITE)
		g->device->put(hd_program_address(g, t, micro), data, (size_t)hd_local_bytes(t));
	unmap_copy(g, data);
}

double hd_program_scalar(const struct hd_program *g, const struct tensor *t)
{
	const void *at = hd_program_address(g, t, 0);
	double wide = 0;
	float narrow = 0;
	void *to = t->v.dtype == HD_DTYPE_F64 ? (void *)&wide : (void *)&narrow;
	size_t bytes = t->v.dtype == HD_DTYPE_F64 ? sizeof(wide) : sizeof(narrow);

	if (in_host(g, t))
		memcpy(to, at, bytes);
	else
		g->device->get(to, at, bytes);
	return t->v.dtype == HD_DTYPE_F64 ? wide : narrow;
}
