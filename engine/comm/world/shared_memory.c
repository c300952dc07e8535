/* SPDX-License-Identifier: Apache-2.0
 * Memory that all ranks of a host have mapped: the control block, the flags of groups, and the arenas.
 *
 * One rank creates it with memfd_create, and the others open it through /proc/<pid>/fd. Such memory has no name, so a
 * crash leaves nothing in the file system. It is not limited by the size of /dev/shm, which is 64 MB in many
 * containers. So it is available whenever private memory would be, and cannot end a rank by SIGBUS later. For the
 * same reason no space is reserved. Pages are allocated when they are first written, by the rank (and on the memory
 * node) that uses them.
 */
#include <config.h>
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "engine/comm/world/shared_memory.h"
#include "engine/comm/world/mpi.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)

int hd_memfd(size_t bytes, void **map)
{
	int fd = memfd_create("heddle", MFD_CLOEXEC);

	if (fd < 0)
		return -1;
	*map = MAP_FAILED;
	if (ftruncate(fd, (off_t)bytes) == 0)
		*map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (*map == MAP_FAILED) {
		close(fd);
		return -1;
	}
	return fd;
}

void *hd_memfd_peer(int pid, int fd, size_t bytes)
{
	char path[64];
	void *p;
	int f;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	f = open(path, O_RDWR | O_CLOEXEC);
	if (f < 0)
		return NULL;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
	close(f);
	return p == MAP_FAILED ? NULL : p;
}

static void *private_map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

void *hd_shared_map(size_t bytes)
{
	struct {
		int pid, fd;
	} from = { (int)getpid(), -1 };
	int first = hd_here.w.local_rank == 0;
	void *p = NULL;

	if (bytes == 0)
		bytes = 1;
	if (hd_here.w.local_size == 1)
		return private_map(bytes);
	if (first)
		from.fd = hd_memfd(bytes, &p);
	hd_host_bcast(&from, sizeof(from));
	if (!first && from.fd >= 0)
		p = hd_memfd_peer(from.pid, from.fd, bytes);
	if (!hd_host_all(p && from.fd >= 0)) { /* also waits until all have opened it */
		if (p && from.fd >= 0)
			munmap(p, bytes);
		p = NULL;
	}
	if (first && from.fd >= 0)
		close(from.fd);
	if (p)
		madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

void hd_control_open(void)
{
	size_t bytes = sizeof(struct hd_control) + (size_t)hd_here.w.local_size * sizeof(struct hd_control_rank);

	hd_here.control = hd_shared_map(bytes);
	if (!hd_here.control)
		return;
	atomic_store(&hd_here_control()->pid, (int32_t)getpid());
	hd_host_barrier();
}

static void *arena_private(size_t bytes, int warn, struct hd_err *err)
{
	void *p = private_map(bytes ? bytes : 1);

	if (warn && hd_here.w.rank == 0)
		hd_log(HD_LOG_WARN, "the ranks of a host cannot share memory: movement between them "
				    "goes over MPI, slower");
	if (!p)
		hd_err_set(err, HD_ENOMEM, "rank %d: no memory for an arena of %zu bytes", hd_here.w.rank, bytes);
	return p;
}

/* Maps one segment per host. The sizes of ranks may differ, so each rank's part begins where that of the
 * previous rank ends. */
void *hd_arena_map(size_t bytes, struct hd_err *err)
{
	int L = hd_here.w.local_size;
	size_t *all = hd_alloc((size_t)L * sizeof(*all)), total = 0, mine = 0;
	/* For tests only: "private" acts as if the ranks of the host could not share memory. */
	const char *test = getenv("HD_TEST_COMM");

	bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	hd_host_gather(all, &bytes, sizeof(bytes));
	for (int i = 0; i < L; i++) {
		if (i == hd_here.w.local_rank)
			mine = total;
		total += all[i];
	}
	free(all);
	if (L == 1)
		return arena_private(bytes, 0, err);
	if (hd_here.control && !(test && !strcmp(test, "private")))
		hd_here.arena = hd_shared_map(total);
	if (!hd_here.arena) {
		hd_here.private = 1;
		return arena_private(bytes, 1, err);
	}
	hd_here.arena_bytes = total;
	hd_here.mine = hd_here.arena + mine;
	hd_here.mine_bytes = bytes;
	return hd_here.mine;
}

int64_t hd_arena_taken(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), n = hd_here.mine_bytes / page;
	unsigned char *in_memory = hd_alloc(n + 1);
	int64_t taken = 0;

	if (n && mincore(hd_here.mine, hd_here.mine_bytes, in_memory) == 0)
		for (size_t i = 0; i < n; i++)
			taken += in_memory[i] & 1;
	free(in_memory);
	return taken * (int64_t)page;
}
