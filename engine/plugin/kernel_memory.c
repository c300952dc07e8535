/* SPDX-License-Identifier: Apache-2.0
 * Memory for the kernels of plugins. Each launch keeps some of its own. Scratch is one block that all launches share,
 * since they run one after another.
 */
#include <config.h>
#include "engine/plugin/kernel.h"
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* -- memory that a launch keeps ------------------------------------------------------------------------------------ */
struct kernel_memory {
	struct kernel_memory *next;
	char *begin; /* the address to free */
};

#define LINE 64

/* Returns zeroed memory without writing to it, so that requesting a large amount is cheap. */
void *hd_kernel_memory_keep(struct kernel_memory **list, size_t bytes)
{
	const size_t head = (sizeof(struct kernel_memory) + LINE - 1) / LINE * LINE;
	char *begin = bytes > PTRDIFF_MAX / 2 ? NULL : calloc(1, head + bytes + LINE), *at;
	struct kernel_memory *m;

	if (!begin)
		return NULL;
	at = begin + (LINE - (uintptr_t)begin % LINE) % LINE;
	m = (void *)at;
	*m = (struct kernel_memory){ *list, begin };
	*list = m;
	return at + head;
}

void hd_kernel_memory_free(struct kernel_memory *list)
{
	while (list) {
		struct kernel_memory *next = list->next;

		free(list->begin);
		list = next;
	}
}

/* -- scratch ------------------------------------------------------------------------------------------------------- */
static struct {
	pthread_mutex_t lock; /* check prepares launches in several threads */
	char *map;            /* whole pages, followed by one page without access rights */
	size_t bytes, mapped; /* bytes: without the last page */
	int users;
} shared = { .lock = PTHREAD_MUTEX_INITIALIZER };

static size_t pages(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
}

/* Enlarges the block. Its content is lost, since scratch keeps nothing from launch to launch. */
static int grow(size_t bytes)
{
	size_t most = pages(bytes), mapped = most + pages(1);
	void *p;

	if (most <= shared.bytes)
		return 1;
	p = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return 0;
	if (mprotect(p, most, PROT_READ | PROT_WRITE)) {
		munmap(p, mapped);
		return 0;
	}
	if (shared.map)
		munmap(shared.map, shared.mapped);
	shared.map = p;
	shared.bytes = most;
	shared.mapped = mapped;
	return 1;
}

int hd_kernel_scratch_hold(int64_t bytes)
{
	int held;

	pthread_mutex_lock(&shared.lock);
	held = grow((size_t)bytes);
	shared.users += held;
	pthread_mutex_unlock(&shared.lock);
	return held;
}

void hd_kernel_scratch_leave(void)
{
	pthread_mutex_lock(&shared.lock);
	if (--shared.users == 0) {
		munmap(shared.map, shared.mapped);
		shared.map = NULL;
		shared.bytes = shared.mapped = 0;
	}
	pthread_mutex_unlock(&shared.lock);
}

/* The result ends where the block ends, so that a kernel that writes beyond its end faults at once. */
void *hd_kernel_scratch_at(int64_t bytes)
{
	return shared.map + shared.bytes - ((size_t)bytes + LINE - 1) / LINE * LINE;
}
