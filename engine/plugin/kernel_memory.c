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

#define LINE 64

size_t hd_kernel_lines(size_t bytes)
{
	return (bytes + LINE - 1) / LINE * LINE;
}

static size_t pages(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
}

/* Returns whole pages of zeroes for so many bytes, followed by one page without access rights, or NULL. */
static char *map_guarded(size_t bytes)
{
	char *p = mmap(NULL, pages(bytes) + pages(1), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (!mprotect(p, pages(bytes), PROT_READ | PROT_WRITE))
		return p;
	munmap(p, pages(bytes) + pages(1));
	return NULL;
}

/* -- memory that a launch keeps ------------------------------------------------------------------------------------ */
struct kernel_memory {
	struct kernel_memory *next;
	char *begin;   /* the address to free */
	char *at;      /* what the plugin got */
	size_t bytes;  /* number of bytes that it asked for */
	size_t mapped; /* 0: begin is from calloc; else the bytes to unmap */
};

static int guarding;

void hd_kernel_memory_guard(int on)
{
	guarding = on;
}

/* Sets begin and at. Memory from calloc is zeroed without writing to it, so that a large amount is cheap. */
static void make(struct kernel_memory *m)
{
	if (guarding && (m->begin = map_guarded(m->bytes))) {
		m->mapped = pages(m->bytes) + pages(1);
		m->at = m->begin + pages(m->bytes) - hd_kernel_lines(m->bytes);
		return;
	}
	m->begin = calloc(1, m->bytes + LINE);
	m->at = m->begin ? m->begin + (LINE - (uintptr_t)m->begin % LINE) % LINE : NULL;
}

void *hd_kernel_memory_keep(struct kernel_memory **list, size_t bytes)
{
	struct kernel_memory *m = bytes > PTRDIFF_MAX / 2 ? NULL : calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->bytes = bytes;
	make(m);
	if (!m->at) {
		free(m);
		return NULL;
	}
	m->next = *list;
	*list = m;
	return m->at;
}

int hd_kernel_memory_overrun(const struct kernel_memory *list)
{
	for (const struct kernel_memory *m = list; m; m = m->next)
		for (size_t i = m->bytes; m->mapped && i < hd_kernel_lines(m->bytes); i++)
			if (m->at[i])
				return 1;
	return 0;
}

void hd_kernel_memory_free(struct kernel_memory *list)
{
	while (list) {
		struct kernel_memory *next = list->next;

		if (list->mapped)
			munmap(list->begin, list->mapped);
		else
			free(list->begin);
		free(list);
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

/* Enlarges the block. Its content is lost, since scratch keeps nothing from launch to launch. */
static int grow(size_t bytes)
{
	size_t most = pages(bytes), mapped = most + pages(1);
	char *p;

	if (most <= shared.bytes)
		return 1;
	p = map_guarded(bytes);
	if (!p)
		return 0;
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
	return shared.map + shared.bytes - hd_kernel_lines((size_t)bytes);
}
