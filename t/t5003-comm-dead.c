/* SPDX-License-Identifier: Apache-2.0
 * A rank may die or stop responding.  If this broke, a job would hang for hours, and nothing would tell
 * which rank is to blame.
 */
#include <config.h>
#include "lib/comm_test.h"
#include "lib/mpi.h"
#include "lib/tap.h"
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

/* Replaces the library's function: once busy is set, it takes as long as on a machine shared with other programs. */
static atomic_int busy;
int sched_yield(void)
{
	return busy ? usleep(20000) : 0;
}

static char *coordinates(const void *unused, int rank)
{
	(void)unused;
	return hd_format("(x %d, y %d)", rank % 2, rank / 2);
}

static void sum(struct hd_communicator *m)
{
	struct hd_call c = { .kind = HD_COMM_ALL_REDUCE,
			     .dtype = HD_DTYPE_F32,
			     .count = 5000,
			     .in = arena,
			     .out = arena,
			     .what = "all-reduce of w" };

	run_call(m, &c);
}

/* Rank 0 waits for four others, which are busy. */
static int five_main(void)
{
	int all[5] = { 0, 1, 2, 3, 4 };
	struct hd_communicator *m;

	if (!open_all(1 << 20))
		return 1;
	m = hd_communicator_create(all, 5, "everybody");
	hd_comm_describe(coordinates, NULL);
	hd_comm_watchdog(1.0);
	sum(m);
	if (world.rank)
		sleep(600);
	sum(m);
	hd_comm_close();
	return 0;
}

static int dies(const char *how)
{
	return !strncmp(how, "dies", 4);
}

static void stop(int signal)
{
	(void)signal;
	raise(SIGSTOP);
}

/* Rank 3 is stopped while it waits for rank 2, which then waits for rank 3. */
static void stop_while_waiting(struct hd_communicator *two)
{
	signal(SIGALRM, stop);
	if (world.rank == 3)
		ualarm(500000, 0);
	if (world.rank < 2)
		sleep(600); /* the run ends earlier */
	if (world.rank == 2)
		usleep(800000);
	sum(two);
}

/* Rank 0 and 1 are pair a, 2 and 3 pair b; then all four meet. */
static int rank_main(const char *how)
{
	int all[4] = { 0, 1, 2, 3 }, pair[2];
	struct hd_communicator *m, *two;

	if (!open_all(1 << 20))
		return 1;
	pair[0] = world.rank / 2 * 2;
	pair[1] = pair[0] + 1;
	two = hd_communicator_create(pair, 2, "pair");
	m = hd_communicator_create(all, 4, "everybody");
	hd_comm_describe(coordinates, NULL);
	hd_comm_watchdog(dies(how) ? 30 : 1.0);
	sum(m);
	hd_comm_barrier();
	busy = !strcmp(how, "dies-busy");
	if (world.rank == 3 && dies(how))
		raise(SIGKILL);
	if (world.rank == 3 && !strcmp(how, "stands"))
		raise(SIGSTOP);
	if (world.rank == 3 && !strcmp(how, "works"))
		sleep(600); /* the others do not wait that long */
	if (world.rank == 3 && !strcmp(how, "differs")) {
		struct hd_call c = { .kind = HD_COMM_ALL_GATHER,
				     .dtype = HD_DTYPE_F32,
				     .count = 5000,
				     .in = arena,
				     .out = arena + 100000,
				     .what = "all-gather of v" };

		run_call(two, &c);
	}
	if (!strcmp(how, "stops"))
		stop_while_waiting(two);
	if (strcmp(how, "circle")) {
		sum(two);
		sum(m);
	} else if (world.rank == 1) { /* rank 1 waits for 2 in everybody, rank 0 for 1 in pair */
		sum(m);
	} else {
		sum(two);
		sum(m);
	}
	hd_comm_close();
	return 0;
}

/* The output of all ranks and of mpirun; run() returns the status. */
static char text[20000];
static int run(const char *self, const char *how)
{
	char command[1000];
	size_t n;
	FILE *f;
	int status;

	snprintf(command, sizeof(command),
		 "timeout -k 5 %d mpirun -np %d --oversubscribe --bind-to none %s %s 2>&1 </dev/null",
		 (int)(15 * (1 + patience())), strcmp(how, "five") ? 4 : 5, self, how);
	f = popen(command, "r");
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = 0;
	for (size_t i = 0; i < n; i++) /* Open MPI 5 prints a zero byte after its abort banner */
		text[i] = text[i] ? text[i] : '\n';
	status = pclose(f);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int count(const char *what)
{
	int n = 0;

	for (const char *s = text; (s = strstr(s, what)); s++)
		n++;
	return n;
}

/* Returns whether the text contains the message, whose N stands for a number of 1 or more: a watchdog may be late, not
 * early. */
static int says(const char *message)
{
	const char *number = strstr(message, " N "), *at = text;
	size_t before = number ? (size_t)(number - message) + 1 : strlen(message);

	for (; (at = strstr(at, "since ")) || !number; at++) {
		char *end;

		if (!number)
			return strstr(text, message) != NULL;
		if (strncmp(at, message, before) || strtol(at + before, &end, 10) < 1)
			continue;
		if (!strncmp(end, number + 2, strlen(number + 2)))
			return 1;
	}
	return 0;
}

static void check(const char *self, const char *how, const char *message)
{
	int status = run(self, how);

	ok(status != 0 && status != 124, "%s: the run ends with an error (%d)", how, status);
	ok(count("heddle: ") == 1, "%s: exactly one message is printed, here %d", how, count("heddle: "));
	if (!ok(says(message), "%s: the message says '%s'", how, message))
		for (char *s = strtok(text, "\n"); s; s = strtok(NULL, "\n"))
			printf("# %s\n", s);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return strcmp(argv[1], "five") ? rank_main(argv[1]) : five_main();
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	check(argv[0], "dies", "rank 3 (x 1, y 1) is gone");
	check(argv[0], "dies-busy", "rank 3 (x 1, y 1) is gone"); /* must be printed before mpirun ends the others */
	check(argv[0], "stands", "late: rank 3 (x 1, y 1)");
	check(argv[0], "stops", "late: rank 3 (x 1, y 1)\n");
	check(argv[0], "differs", "do not issue the same call");
	check(argv[0], "circle", "since N s; late: none, these wait for each other: rank ");
	check(argv[0], "works", "late: rank 3 (x 1, y 1)\n");
	setenv("HD_TEST_COMM", "mpi", 1); /* they have only messages */
	check(argv[0], "stands", "late: rank 3 (x 1, y 1), which does not answer");
	check(argv[0], "works", "late: rank 3 (x 1, y 1)\n");
	check(argv[0], "circle", "since N s; late: none, these wait for each other: rank ");
	check(argv[0], "five", "late: rank 1 (x 1, y 0), rank 2 (x 0, y 1), rank 3 (x 1, y 1), rank 4 (x 0, y 2)\n");
	return done();
}
