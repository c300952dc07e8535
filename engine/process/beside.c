/* SPDX-License-Identifier: Apache-2.0
 * Runs jobs in child processes. A child takes the next job when it has finished one. So the order of jobs differs from
 * run to run, but not their results.
 */
#include <config.h>
#include "engine/base/err.h"
#include "engine/process/beside.h"
#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_CHILDREN 64

struct shared_jobs {  /* in memory shared with the children */
	int64_t next; /* the first job that no child has taken */
	char done[];
};

void *hd_shared_create(size_t bytes)
{
	void *p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		hd_log(HD_LOG_ERROR, "out of memory: %zu bytes shared with child processes", bytes);
		exit(1);
	}
	return p;
}

void hd_shared_destroy(void *p, size_t bytes)
{
	if (p)
		munmap(p, bytes ? bytes : 1);
}

static int processors(void)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

	return n > MOST_CHILDREN ? MOST_CHILDREN : n;
}

/* Ends this child after so many seconds of its own processor time. Thus other work on the machine does not decide
 * which jobs are lost. A child that only sleeps ends after ten times as many seconds of real time. */
static void end_after(int seconds)
{
	struct itimerval t = { .it_value = { .tv_sec = seconds } };

	setitimer(ITIMER_PROF, &t, NULL);
	alarm(10 * (unsigned)seconds);
}

static void be_child(struct shared_jobs *b, int64_t n, void (*job)(void *, int64_t), void *ctx, int seconds)
{
	int null = open("/dev/null", O_WRONLY);

	omp_set_num_threads(1); /* each processor has its own child, and the parent's threads do not survive a fork */
	dup2(null, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
	for (;;) {
		int64_t i = __atomic_fetch_add(&b->next, 1, __ATOMIC_SEQ_CST);

		if (i >= n)
			_exit(0);
		end_after(seconds);
		job(ctx, i);
		b->done[i] = 1;
	}
}

static void wait_all(const pid_t *children, int n)
{
	for (int i = 0; i < n; i++)
		while (waitpid(children[i], NULL, 0) < 0 && errno == EINTR)
			;
}

void hd_side_jobs_run(int64_t n, void (*job)(void *ctx, int64_t i), void *ctx, int seconds, char *lost)
{
	struct shared_jobs *b = hd_shared_create(sizeof(*b) + (size_t)n);
	int width = n < processors() ? (int)n : processors();

	fflush(NULL);
	while (b->next < n) { /* repeats if all children died in their jobs */
		pid_t children[MOST_CHILDREN];
		int born = 0;

		while (born < width && (children[born] = fork()) >= 0) {
			if (!children[born])
				be_child(b, n, job, ctx, seconds);
			born++;
		}
		if (!born) { /* no process could be started */
			hd_log(HD_LOG_ERROR, "no child process can be started: %s", strerror(errno));
			exit(1);
		}
		wait_all(children, born);
	}
	for (int64_t i = 0; lost && i < n; i++)
		lost[i] = !b->done[i];
	hd_shared_destroy(b, sizeof(*b) + (size_t)n);
}
