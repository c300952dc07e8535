/* SPDX-License-Identifier: Apache-2.0
 * Runs the command that heddle run starts. Signals, including the end of the child, are not handled but waited for, so
 * that none comes at a wrong moment. A request to end is passed on as SIGUSR1. mpirun passes that on to its ranks, and
 * waits for them as long as they need to save. After SIGTERM it would kill them within a second.
 */
#include <config.h>
#include "engine/elastic/elastic.h"
#include "engine/process/asked.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EARLY 1.0 /* seconds until mpirun handles signals; an earlier one would kill it */

static sigset_t waited_for;

void hd_child_listen(void)
{
	static const int all[] = { SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGCHLD };

	sigemptyset(&waited_for);
	for (size_t i = 0; i < HD_LEN(all); i++)
		sigaddset(&waited_for, all[i]);
	if (hd_hangup_ends())
		sigaddset(&waited_for, SIGHUP);
	sigprocmask(SIG_BLOCK, &waited_for, NULL);
}

static void note(int sig, struct hd_child_asked *asked)
{
	asked->more |= sig == SIGUSR2;
	asked->end |= sig != SIGUSR2 && sig != SIGCHLD;
}

void hd_child_pending(struct hd_child_asked *asked)
{
	const struct timespec now = { 0, 0 };
	int sig;

	while ((sig = sigtimedwait(&waited_for, NULL, &now)) > 0)
		note(sig, asked);
}

/* Becomes the command, in a process group of its own: a signal from a terminal then reaches only heddle run, which
 * passes it on once. */
static void start(const char *command) __attribute__((noreturn));
static void start(const char *command)
{
	int null = open("/dev/null", O_RDONLY);

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGTERM); /* without heddle run, nobody would restart it */
	if (null >= 0)
		dup2(null, 0);
	sigprocmask(SIG_UNBLOCK, &waited_for, NULL);
	execl("/bin/sh", "sh", "-c", command, (char *)NULL);
	_exit(127);
}

int hd_child_run(const char *command, int grows, struct hd_child_asked *asked, struct hd_err *err)
{
	const struct timespec tick = { 0, 200000000 };
	double begun = hd_seconds();
	pid_t pid = fork();
	int status, told = 0;

	if (pid < 0) {
		hd_err_set(err, HD_EIO, "run: cannot start a process: %s", strerror(errno));
		return -1;
	}
	if (!pid)
		start(command);
	while (waitpid(pid, &status, WNOHANG) != pid) {
		int sig = sigtimedwait(&waited_for, NULL, &tick);

		if (sig > 0)
			note(sig, asked);
		if (!told && (asked->end || (asked->more && grows)) && hd_seconds() - begun > EARLY)
			told = !kill(pid, SIGUSR1);
	}
	return status;
}
