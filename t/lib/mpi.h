/* SPDX-License-Identifier: Apache-2.0
 * t/lib/mpi.h - tests of several ranks: the test starts mpirun itself, with a time limit, and alone prints TAP.
 *
 *	int main(int argc, char **argv)
 *	{
 *		if (argc > 1)
 *			return rank_main(argv[1]);		// 0: this rank is content; it prints nothing on stdout
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

/* Runs the command on n ranks for at most `seconds`; gives its exit status, 124 if it was stopped.  What the ranks
 * print becomes comments. */
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
	setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1);		/* more ranks than cores: give way */
	if (!getenv("OMP_NUM_THREADS"))
		setenv("OMP_NUM_THREADS", "1", 1);
	fflush(stdout);
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
