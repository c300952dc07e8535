/* SPDX-License-Identifier: Apache-2.0
 * Runs commands and waits for them, and handles signals that ask this process to end meanwhile.
 *
 * A handler takes the signals. Blocking them would not do: a signal that only this thread blocks would go to other
 * threads that exist already. The command is a process group of its own, so a signal that a terminal sends to its
 * foreground group reaches it once, from here.
 */
#include <config.h>
#include "engine/process/launch.h"
#include "engine/base/err.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
static struct sigaction before[HD_LEN(signals)];
static int held;
static volatile sig_atomic_t first_signal; /* the first signal that came, or 0 */
static volatile pid_t target; /* the argument of kill(), or 0 if there is no process to pass the signal on to */

/* Passes on only the first signal: mpirun takes a second one as the order to abandon its ranks. */
static void pass_on(int sig)
{
	int error = errno;

	if (!first_signal) {
		first_signal = sig;
		if (target)
			kill(target, sig);
	}
	errno = error;
}

void hd_launch_hold_signals(void)
{
	const struct sigaction act = { .sa_handler = pass_on, .sa_flags = SA_ONSTACK | SA_RESTART };

	for (size_t i = 0; i < HD_LEN(signals) && !held; i++) {
		sigaction(signals[i], NULL, &before[i]);
		if (before[i].sa_handler != SIG_IGN) /* an ignored signal stays so: nohup ignores SIGHUP */
			sigaction(signals[i], &act, NULL);
	}
	held = 1;
}

static void restore_handlers(void)
{
	for (size_t i = 0; i < HD_LEN(signals) && held; i++)
		sigaction(signals[i], &before[i], NULL);
	held = 0;
}

/* If a signal came before there was a process to pass it on to, it is passed on now. */
void hd_launch_pass_on(pid_t to)
{
	target = to;
	if (to && first_signal)
		kill(to, first_signal);
}

void hd_launch_release_signals(void)
{
	restore_handlers();
	if (first_signal)
		raise(first_signal);
}

void hd_launch_die_with_parent(void)
{
	prctl(PR_SET_PDEATHSIG, SIGTERM);
}

static void start(const char *command, char **environment, const sigset_t *mask) __attribute__((noreturn));
static void start(const char *command, char **environment, const sigset_t *mask)
{
	if (held)
		setpgid(0, 0);
	restore_handlers();
	hd_launch_die_with_parent();
	sigprocmask(SIG_SETMASK, mask, NULL);
	execle("/bin/sh", "sh", "-c", command, (char *)NULL, environment);
	_exit(127);
}

/* Starts the command. All signals are blocked around the fork, after which the child still has
 * the parent's handler. */
static pid_t begin(const char *command)
{
	char **environment = hd_launch_environ();
	sigset_t all, mask;
	pid_t pid;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &mask);
	pid = fork();
	if (!pid)
		start(command, environment, &mask);
	if (pid > 0 && held) {
		setpgid(pid, pid); /* the child does the same: whichever comes first */
		hd_launch_pass_on(-pid);
	}
	sigprocmask(SIG_SETMASK, &mask, NULL);
	free(environment);
	return pid;
}

int hd_launch_run(int64_t ranks, int64_t seconds, int argc, char **argv, const char *output)
{
	char *command = hd_launch_command_to(ranks, seconds, argc, argv, output);
	int status = -1;
	pid_t pid = first_signal ? -1 : begin(command);

	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	hd_launch_pass_on(0);
	free(command);
	return status;
}
