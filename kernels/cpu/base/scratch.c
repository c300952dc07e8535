/* SPDX-License-Identifier: Apache-2.0
 * The memory of scratch.h.
 */
#include <config.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/cpu/base/scratch.h"

static struct {
	void *mem;
	int64_t bytes, users;
} pool;

int hd_scratch_join(int64_t bytes, const char *kernel, struct hd_err *err)
{
	void *mem;

	if (bytes > pool.bytes) {
		if (posix_memalign(&mem, HD_SCRATCH_ALIGN, (size_t)bytes))
			return hd_err_set(err, HD_ENOMEM, "%s: no memory for %lld bytes of scratch", kernel,
					  (long long)bytes);
		free(pool.mem);
		pool.mem = mem;
		pool.bytes = bytes;
	}
	pool.users++;
	return HD_OK;
}

void hd_scratch_leave(void)
{
	if (--pool.users)
		return;
	free(pool.mem);
	memset(&pool, 0, sizeof(pool));
}

void *hd_scratch(void)
{
	return pool.mem;
}

static _Atomic int64_t tables;

void hd_scratch_table(int64_t bytes)
{
	tables += bytes;
}

int64_t hd_scratch_room(void)
{
	return pool.bytes;
}

int64_t hd_scratch_bytes(void)
{
	return pool.bytes + tables;
}

static void release(void *state)
{
	free(state);
	hd_scratch_leave();
}

int hd_scratch_take(struct hd_prep *p, int64_t bytes, const char *kernel, struct hd_err *err)
{
	if (hd_scratch_join(bytes, kernel, err) < 0) {
		free(p->state);
		p->state = NULL;
		return err->code;
	}
	p->release = release;
	return HD_OK;
}

int64_t hd_scratch_of_shape(const struct hd_kernel_desc *d,
			    int (*prepare)(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err),
			    int64_t (*bytes_of)(const struct hd_prep *p))
{
	struct hd_err ignored = { 0 };
	struct hd_prep p = { .state = NULL };

	return prepare(d, &p, &ignored) < 0 ? 0 : bytes_of(&p);
}
