/* SPDX-License-Identifier: Apache-2.0
 * mpirun binds a rank to one core by default.  If this broke, all threads of a rank would share one
 * core, and the run would be slow for a reason that is hard to find.
 */
#include <config.h>
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "engine/process/affinity.h"
#include "engine/process/cores.h"
#include "engine/comm/comm.h"
#include "engine/comm/world/state.h"
#include "lib/tap.h"
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* Checks one rank; its exit status tells what is wrong. */
static int rank_main(int argc, char **argv)
{
	int wanted = atoi(argv[1]), want = atoi(argv[2]), note = atoi(argv[3]);
	int threads = hd_affinity_setup(argc, argv, wanted);
	struct hd_world w;
	struct hd_err e = { 0 };
	cpu_set_t set;

	sched_getaffinity(0, sizeof(set), &set);
	if (threads != want)
		return 10 + threads;
	if (CPU_COUNT(&set) < threads)
		return 3;
#ifdef _OPENMP
	if (omp_get_max_threads() != threads)
		return 4;
#endif
	if ((hd_affinity_note() != NULL) != note)
		return 5;
	if (hd_comm_open(&w, &e))
		return 6;
	if (getenv("EXPECT_PML") && (!getenv("OMPI_MCA_pml") || strcmp(getenv("OMPI_MCA_pml"), getenv("EXPECT_PML"))))
		return 7;
	if (getenv("EXPECT_FAMILY") && (!getenv("OMPI_MCA_btl_tcp_disable_family") ||
					strcmp(getenv("OMPI_MCA_btl_tcp_disable_family"), getenv("EXPECT_FAMILY"))))
		return 9;
	if (getenv("EXPECT_FITS") && hd_here.fits != atoi(getenv("EXPECT_FITS")))
		return 8;
	hd_comm_barrier(); /* the launcher's connection survives the second start */
	hd_comm_close();
	return 0;
}

static int run(const char *launch, const char *self, int wanted, int want, int note)
{
	char line[2000];
	FILE *f;
	int status;

	snprintf(line, sizeof(line), "timeout -k 5 15 %s %s %d %d %d 2>&1 </dev/null", launch, self, wanted, want,
		 note);
	f = popen(line, "r");
	while (fgets(line, sizeof(line), f))
		printf("# %s", line);
	status = pclose(f);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* Returns whether cores suffice for ranks of { first core, last core, threads }. */
static int suffice_of(const int (*ranks)[3], int n, int me, int allowed)
{
	struct hd_core_use all[8];

	for (int i = 0; i < n; i++) {
		all[i].threads = ranks[i][2];
		all[i].allowed = allowed;
		CPU_ZERO(&all[i].mask);
		for (int k = ranks[i][0]; k <= ranks[i][1]; k++)
			CPU_SET((size_t)k, &all[i].mask);
	}
	return hd_cores_suffice(all, n, me);
}

static int suffice(const int (*ranks)[3], int n, int me)
{
	return suffice_of(ranks, n, me, 0);
}

static void masks(void)
{
	static const int own[][3] = { { 0, 3, 4 }, { 4, 7, 4 } }, same[][3] = { { 0, 3, 2 }, { 0, 3, 2 } };
	static const int crowd[][3] = { { 0, 3, 4 }, { 0, 3, 1 }, { 8, 8, 1 } };
	static const int chain[][3] = { { 0, 1, 2 }, { 1, 2, 1 }, { 2, 3, 1 }, { 3, 3, 1 } };

	is_int(suffice(own, 2, 0), 1, "ranks with their own cores suffice");
	is_int(suffice(same, 2, 1), 1, "shared cores suffice if there are enough");
	is_int(suffice(crowd, 3, 1), 0, "shared cores do not suffice if there are too few");
	is_int(suffice(crowd, 3, 2), 1, "... which does not affect a rank with other cores");
	is_int(suffice(chain, 4, 0), 0, "a chain of overlapping masks: four cores do not suffice for five threads");
	is_int(suffice(chain, 3, 0), 1, "... but do for four");
	is_int(suffice_of(same, 2, 0, 4), 1, "a control group with time for all threads suffices");
	is_int(suffice_of(same, 2, 0, 3), 0, "... and one with less does not");
}

/* Checks a control group (of either version) with the time of one core, if this process may create one. */
static void quota(const char *self)
{
	static const struct {
		const char *dir, *make;
	} versions[] = {
		{ "/sys/fs/cgroup/cpu", "echo 100000 >cpu.cfs_period_us && echo 100000 >cpu.cfs_quota_us" },
		{ "/sys/fs/cgroup", "echo 100000 100000 >cpu.max" },
	};
	char line[400], launch[300];

	for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++) {
		char *group = hd_format("%s/heddle-test-%d", versions[i].dir, (int)getpid());
		int made;

		snprintf(line, sizeof(line), "(mkdir %s && cd %s && %s) 2>/dev/null", group, group, versions[i].make);
		made = !system(line);
		snprintf(launch, sizeof(launch), "sh -c 'echo $$ >%s/cgroup.procs && exec \"$@\"' -", group);
		if (made) {
			is_int(run(launch, self, 0, 1, 0), 0,
			       "a control group with the time of one core gets one thread");
			is_int(run(launch, self, 2, 2, 1), 0, "... or two if the user asks for two, with a note");
		}
		rmdir(group);
		free(group);
		if (made)
			return;
	}
	skip("no control group can be created here");
}

int main(int argc, char **argv)
{
	cpu_set_t set;
	int cores;

	if (argc > 1)
		return rank_main(argc, argv);
	sched_getaffinity(0, sizeof(set), &set);
	cores = CPU_COUNT(&set);
	if (cores < 2 || cores != sysconf(_SC_NPROCESSORS_ONLN) || (hd_cores_quota() && hd_cores_quota() < cores))
		skip_all("a binding can be undone only with two cores or more");
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	unsetenv("OMP_NUM_THREADS");
	masks();
	is_int(run("", argv[0], 0, cores, 0), 0, "a single rank gets all cores");
	is_int(run("", argv[0], 1, 1, 0), 0, "a single rank gets as many threads as asked for");
	quota(argv[0]);
	is_int(run("taskset -c 0", argv[0], 0, 1, 0), 0, "a mask that the user chose is kept");
	is_int(run("mpirun -np 1 --bind-to core", argv[0], 0, cores, 1), 0, "one rank bound to a core gets all");
	is_int(run("mpirun -np 2 --oversubscribe --bind-to core:overload-allowed", argv[0], 0, cores / 2,
		   cores / 2 > 1),
	       0, "two ranks bound to a core each get half of the cores");
	is_int(run("mpirun -np 2 --oversubscribe --bind-to none", argv[0], 0, cores / 2, 0), 0,
	       "two ranks share the cores");
	is_int(run("mpirun -np 2 --oversubscribe --bind-to core:overload-allowed", argv[0], 2, 2, 1), 0,
	       "two ranks bound to a core get two threads each if asked for");
	/* As in a container: the launcher itself has fewer cores than the machine. */
	setenv("EXPECT_FITS", "0", 1);
	is_int(run("taskset -c 0 mpirun -np 2 --oversubscribe --bind-to none", argv[0], 0, 1, 0), 0,
	       "two ranks of a launcher with one core share it");
	is_int(run("mpirun -np 2 --oversubscribe --bind-to none taskset -c 0", argv[0], 0, 1, 0), 0,
	       "two ranks given the same core share it");
	setenv("EXPECT_FITS", "1", 1);
	is_int(run("mpirun -np 2 --oversubscribe --bind-to none sh -c 'exec taskset -c $OMPI_COMM_WORLD_RANK \"$@\"' -",
		   argv[0], 0, 1, 0),
	       0, "two ranks given one core each do not share");
	unsetenv("EXPECT_FITS");
	setenv("OMP_NUM_THREADS", "1", 1);
	is_int(run("", argv[0], 0, 1, 0), 0, "OMP_NUM_THREADS sets the number of threads");
	is_int(run("", argv[0], 2, 2, 0), 0, "... unless train.threads asks for a number");
	setenv("OMP_NUM_THREADS", "2,1", 1);
	is_int(run("mpirun -np 2 --oversubscribe --bind-to none", argv[0], 0, 2, 0), 0,
	       "... of each rank; the first of a list counts");
	setenv("OMP_NUM_THREADS", "", 1);
	is_int(run("", argv[0], 0, cores, 0), 0, "... and an empty one is ignored");
	/* libgomp binds the first thread before main(), which is not a mask of one core */
	is_int(run("env OMP_PROC_BIND=true", argv[0], 0, cores, 0), 0, "with OMP_PROC_BIND a rank gets all cores");
	is_int(run("env OMP_PLACES=cores", argv[0], 0, cores, 0), 0, "OMP_PLACES=cores gives all cores");
	is_int(run("env OMP_PLACES={1}", argv[0], 0, 1, 0), 0, "OMP_PLACES that names one core gives one");
	is_int(run("taskset -c 1 env OMP_PROC_BIND=close", argv[0], 0, 1, 0), 0,
	       "with a user's mask OMP_PROC_BIND gives no more than the mask");
	is_int(run("mpirun -np 2 --oversubscribe --bind-to none -x OMP_PROC_BIND=spread", argv[0], 0, cores / 2, 0), 0,
	       "two ranks with OMP_PROC_BIND share the cores");
	is_int(run("mpirun -np 2 --oversubscribe --bind-to none -x EXPECT_PML=ob1", argv[0], 0, cores / 2, 0), 0,
	       "ranks of one host keep Open MPI from searching for networks");
	is_int(run("mpirun -np 2 --oversubscribe --bind-to none --mca pml ^cm -x EXPECT_PML=^cm", argv[0], 0, cores / 2,
		   0),
	       0, "... unless the user has chosen a pml");
	is_int(run("mpirun -np 2 --oversubscribe --bind-to none -x EXPECT_FAMILY=6", argv[0], 0, cores / 2, 0), 0,
	       "... and from pairing their own addresses, of which Open MPI 5 finds no pair");
	is_int(run("mpirun -np 2 --oversubscribe --bind-to none --mca btl_tcp_disable_family 4 -x EXPECT_FAMILY=4",
		   argv[0], 0, cores / 2, 0),
	       0, "... unless the user has chosen an address family");
	return done();
}
