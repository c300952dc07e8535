/* SPDX-License-Identifier: Apache-2.0
 * Tensors as the host sees them: the memory itself where kernels compute in the host's, else a copy.
 */
#include <config.h>
#include "engine/run/run.h"
#include <stdlib.h>
#include <string.h>

static int in_host(const struct hd_program *g, const struct tensor *t)
{
	return !g->device || hd_device_in_host(g->device) || hd_program_in_host(g, t);
}

void *hd_program_map(const struct hd_program *g, const struct tensor *t, int64_t micro, int how)
{
	void *at = hd_program_address(g, t, micro), *copy;
	size_t bytes = (size_t)hd_local_bytes(t);

	if (!at || in_host(g, t))
		return at;
	copy = hd_alloc(bytes);
	if (how & HD_MAP_READ)
		g->device->get(copy, at, bytes);
	return copy;
}

void hd_program_unmap(const struct hd_program *g, const struct tensor *t, int64_t micro, void *data, int how)
{
	if (!data || in_host(g, t))
		return;
	if (how & HD_MAP_WRITE)
		g->device->put(hd_program_address(g, t, micro), data, (size_t)hd_local_bytes(t));
	free(data);
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
