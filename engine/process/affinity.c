/* SPDX-License-Identifier: Apache-2.0
 * Chooses this process's cores and OpenMP settings.
 *
 * By default mpirun binds each rank to one core, or to one socket if there are more than two ranks. All threads of the
 * rank then share that. libgomp reads the affinity mask and its variables before main(). So the mask is widened, the
 * variables are set, and the program is started again in the same process. The launcher sees no difference, as MPI has
 * not begun. A mark in the environment, which contains the process id, stops this after one round. A child process
 * that inherits the mark ignores it, because the id differs.
 *
 * While ranks x threads fit the cores, spinning threads are best: an empty parallel region takes 0.5 us, against 51 us
 * with passive ones. Beyond that they are seven times slower than passive ones. So the wait policy is passive only
 * where they do not fit.
 */
#include <config.h>
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "engine/process/affinity.h"
#include "engine/process/asked.h"
#include "engine/process/launch.h"
#include "engine/base/library.h"
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARK "HEDDLE_AFFINITY" /* "pid threads cores-before cores-after user's-OMP_NUM_THREADS" */

static char note[160];
static int threads_here; /* 0: hd_affinity_setup has not run */

static int mask_cores(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
}

/* Returns how many of `cores` the control group allows to be used in full. More threads would not help: once the
 * group's time is used up, all its threads stall. */
static int allowed_of(int cores)
{
	int allowed = hd_cores_quota();

	return allowed && allowed < cores ? allowed : cores;
}

/* Returns the number of cores for all ranks of this host together. *set becomes the widest mask that a rank may have:
 * the launcher's, or all bits if there is no launcher. Whatever is asked for, the kernel keeps to the cores that the
 * container or the batch system allows. */
static int all_cores(cpu_set_t *set)
{
	if (hd_cores_of_launcher(set))
		return CPU_COUNT(set);
	CPU_ZERO(set);
	for (int i = 0; i < CPU_SETSIZE; i++)
		CPU_SET(i, set);
	return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* Undoes libgomp's binding of this thread; returns whether there was one. If OMP_PROC_BIND, OMP_PLACES or
 * GOMP_CPU_AFFINITY asks for it, libgomp binds the thread to its first place before main(). The mask becomes all
 * places again: the mask that libgomp found, or what the user chose of it. */
static int mask_of_places(void)
{
	int places = omp_get_num_places();
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int i = 0; i < places; i++) {
		int n = omp_get_place_num_procs(i), *ids = hd_alloc(((size_t)n + 1) * sizeof(*ids));

		omp_get_place_proc_ids(i, ids);
		for (int k = 0; k < n; k++)
			if (ids[k] >= 0 && ids[k] < CPU_SETSIZE)
				CPU_SET(ids[k], &set);
		free(ids);
	}
	return CPU_COUNT(&set) > 0 && !sched_setaffinity(0, sizeof(set), &set);
}

static int local_ranks(void)
{
	static const char *const names[] = { "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE",
					     "SLURM_STEP_TASKS_PER_NODE" };

	for (size_t i = 0; i < HD_LEN(names); i++)
		if (getenv(names[i]) && atoi(getenv(names[i])) > 0)
			return atoi(getenv(names[i]));
	return 1;
}

/* Returns whether the launcher has bound this process. Open MPI 4 tells, in a variable. Open MPI 5 only tells which
 * command it started: if that is this program, no other command in between has chosen the mask. */
static int bound_by_launcher(const char *program)
{
	const char *bound = getenv("OMPI_MCA_orte_bound_at_launch"), *started = getenv("OMPI_COMMAND");

	if (!hd_launch_prrte() || !started)
		return bound && atoi(bound);
	return !strcmp(basename(started), basename(program));
}

/* Returns whether the mask should be widened. A mask that the launcher did not set (taskset, a batch system) is
 * intended. It is too narrow only if the user asks for more threads than it has cores. */
static int too_narrow(int cores, int all, int wanted, int ranks, int bound)
{
	if (wanted)
		return cores < wanted && cores < all;
	return bound && cores < all / ranks;
}

static int set(const char *name, const char *value)
{
	const char *now = getenv(name);

	if (now && !strcmp(now, value))
		return 0;
	setenv(name, value, 1);
	return 1;
}

/* Threads spin between regions because going to sleep costs 50 us each time, but not for the milliseconds of
 * libgomp's default. If another process takes a core, a spinning thread holds back the very thread that it waits for
 * (seen: 5 times slower). */
#define SPINS "20000"

/* Sets libgomp's variables. Returns whether libgomp, which read them before main(), has to read them again. */
static int set_openmp(int threads, int cores, int crowded, int widened, int bound)
{
	char text[16];
	int changed = widened;

	snprintf(text, sizeof(text), "%d", threads);
	if (getenv("OMP_NUM_THREADS") || widened || threads != cores)
		changed |= set("OMP_NUM_THREADS", text);
	if (crowded)
		changed |= set("OMP_WAIT_POLICY", "passive");
	else if (threads > 1 && !getenv("OMP_WAIT_POLICY") && !getenv("GOMP_SPINCOUNT"))
		changed |= set("GOMP_SPINCOUNT", SPINS);
	if (bound || getenv("OMP_PROC_BIND"))
		changed |= set("OMP_PROC_BIND", "false");
	return changed;
}

static void start_again(char **argv)
{
	struct hd_err ignored = { 0 };
	char *path = hd_this_program(&ignored);
	int open = hd_end_request_pass_on();

	if (path)
		execv(path, argv); /* by its path, so that ps shows its name */
	free(path);
	execv("/proc/self/exe", argv);
	if (open) /* reached only if execv fails: the program goes on with the settings that libgomp has read */
		hd_end_request_open();
}

/* Returns the number of threads that the user asks for in OMP_NUM_THREADS, or 0. A program started by this one
 * inherits the variable as it was set here; then the mark tells the user's own value. */
static int asked_of_openmp(void)
{
	const char *mark = getenv(MARK), *text = getenv("OMP_NUM_THREADS");
	int pid = 0, threads = 0, from = 0, to = 0, own = 0;

	if (mark && sscanf(mark, "%d %d %d %d %d", &pid, &threads, &from, &to, &own) == 5)
		return own;
	own = text ? atoi(text) : 0;
	return own > 0 ? own : 0;
}

static int back_again(int *threads)
{
	const char *mark = getenv(MARK);
	int pid = 0, from = 0, to = 0;

	if (!mark || sscanf(mark, "%d %d %d %d", &pid, threads, &from, &to) != 4 || pid != (int)getpid())
		return 0;
	if (to > from)
		snprintf(note, sizeof(note),
			 "the launcher bound this rank to %d core%s; it may now use %d, with %d thread%s", from,
			 hd_plural(from, "s"), to, *threads, hd_plural(*threads, "s"));
	else if (*threads > to)
		snprintf(note, sizeof(note),
			 "this rank has %d threads but may use only %d core%s: they wait for each other", *threads, to,
			 hd_plural(to, "s"));
	return 1;
}

struct hd_core_use hd_affinity_use(void)
{
	struct hd_core_use use = { .threads = threads_here, .allowed = hd_cores_quota() };

	if (sched_getaffinity(0, sizeof(use.mask), &use.mask))
		CPU_SET(0, &use.mask);
	return use;
}

int hd_affinity_threads(int threads_wanted, int64_t ranks)
{
	int asked = asked_of_openmp(), cores = allowed_of(mask_cores());

	if (threads_wanted || asked)
		return threads_wanted ? threads_wanted : asked;
	return ranks < cores ? (int)(cores / ranks) : 1;
}

/* Returns the number of threads of a rank: one for each of its cores, but no more than its part of all cores. mpirun
 * binds more than two ranks to sockets, so several ranks have the same cores. */
static int threads_of(int cores, int all, int ranks)
{
	int part = all / ranks < 1 ? 1 : all / ranks;

	return cores < part ? cores : part;
}

int hd_affinity_setup(int argc, char **argv, int threads_wanted)
{
	int threads, before, cores, all, bound, asked, ranks = local_ranks();
	cpu_set_t widest;
	char mark[80];

	if (back_again(&threads))
		return threads_here = threads;
	asked = asked_of_openmp();
	threads_wanted = threads_wanted ? threads_wanted : asked;
	bound = mask_of_places();
	before = mask_cores();
	all = allowed_of(all_cores(&widest));
	if (too_narrow(before, all, threads_wanted, ranks, argc > 0 && bound_by_launcher(argv[0])))
		sched_setaffinity(0, sizeof(widest), &widest);
	cores = mask_cores();
	threads_here = threads = threads_wanted ? threads_wanted : threads_of(cores, all, ranks);
	snprintf(mark, sizeof(mark), "%d %d %d %d %d", (int)getpid(), threads, before, allowed_of(cores), asked);
	setenv(MARK, mark, 1);
	if (set_openmp(threads, cores, threads > cores || threads * ranks > all, cores > before, bound))
		start_again(argv);
	return threads;
}

const char *hd_affinity_note(void)
{
	return note[0] ? note : NULL;
}
