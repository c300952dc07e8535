/* SPDX-License-Identifier: Apache-2.0
 * t/lib/mpi.h - for tests of several ranks: the test starts mpirun itself, with a time limit, and only the test prints
 * TAP.
 *
 *	int main(int argc, char **argv)
 *	{
 *		if (argc > 1)
 *			return rank_main(argv[1]);		// 0: this rank passed; it prints nothing on stdout
 *		is_int(mpi_run(4, 60, "%s ring", argv[0]), 0, "ring of 4");
 *		return done();
 *	}
 */
#ifndef HD_TEST_MPI_H
#define HD_TEST_MPI_H
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

/* Returns the factor, 1 or more, by which other programs slow this one down at the moment: the elapsed time of a
 * computation that uses 50 ms of a processor, over its processor time.  Time limits are multiplied by it, so that a
 * busy machine fails no test. */
static __attribute__((unused)) double patience(void)
{
	struct timespec wall[2], cpu[2];
	volatile double x = 1;
	double took, used;

	clock_gettime(CLOCK_MONOTONIC, &wall[0]);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu[0]);
	do {
		for (int i = 0; i < 10000; i++)
			x = x * 1.0000001;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu[1]);
		used = (double)(cpu[1].tv_sec - cpu[0].tv_sec) + (double)(cpu[1].tv_nsec - cpu[0].tv_nsec) * 1e-9;
	} while (used < 0.05);
	clock_gettime(CLOCK_MONOTONIC, &wall[1]);
	took = (double)(wall[1].tv_sec - wall[0].tv_sec) + (double)(wall[1].tv_nsec - wall[0].tv_nsec) * 1e-9;
	return took > used ? took / used : 1;
}

/* Runs the command on n ranks for at most twice `seconds`, or longer on a busy machine.  Returns its exit status, which
 * is 124 if it was stopped.  The output of the ranks is printed as comments. */
static __attribute__((format(printf, 3, 4), unused)) int mpi_run(int n, int seconds, const char *fmt, ...)
{
	char command[2000], line[2400];
	FILE *out;
	va_list v;
	int status;

	va_start(v, fmt);
	vsnprintf(command, sizeof(command), fmt, v);
	va_end(v);
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
	setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1); /* more ranks than cores: give way */
	if (!getenv("OMP_NUM_THREADS"))
		setenv("OMP_NUM_THREADS", "1", 1);
	fflush(stdout);
	seconds =
		(int)(seconds * (1 + patience()) * (getenv("TSAN_OPTIONS") ? 5 : 1)); /* the thread sanitizer is slow */
	snprintf(line, sizeof(line), "timeout -k 5 %d mpirun -np %d --oversubscribe --bind-to none %s 2>&1 </dev/null",
		 seconds, n, command);
	out = popen(line, "r");
	if (!out)
		return -1;
	while (fgets(line, sizeof(line), out))
		printf("# %s", line);
	status = pclose(out);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
