/* SPDX-License-Identifier: Apache-2.0
 * Runs plugins in a child process, so that the parent survives and reports what a slot did to its process.
 */
#include <config.h>
#include "engine/base/err.h"
#include "engine/plugin/turn.h"
#include "engine/process/launch.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int run_child(int (*what)(void *), void *arg, struct hd_turn *turn, const int *pipe)
{
	hd_launch_die_with_parent();
	close(pipe[0]);
	hd_turn_share(turn);
	exit(what(arg)); /* the exit closes this end of the pipe */
}

/* Waits until the child ends. Returns 1 if a slot took too long; the child has then been killed. */
static int watch(pid_t child, int end, const volatile struct hd_turn *turn, int seconds)
{
	struct pollfd p = { .fd = end, .events = POLLIN };
	uint64_t seen = 0;
	double since = hd_seconds();

	while (poll(&p, 1, 100) <= 0) {
		if (!(turn->slot[0] || turn->file[0]) || turn->count != seen) {
			seen = turn->count;
			since = hd_seconds();
		} else if (hd_seconds() - since > seconds) {
			kill(child, SIGKILL);
			return 1;
		}
	}
	return 0;
}

/* Reports a file that ended the child, or that was not loaded in time. */
static void report_file(int status, int late, const struct hd_turn *t, int seconds)
{
	if (late)
		hd_log(HD_LOG_ERROR, "plugin %s: it was not loaded within %d s", t->file, seconds);
	else if (WIFEXITED(status))
		hd_log(HD_LOG_ERROR, "plugin %s: ended the process with status %d while it was loaded", t->file,
		       WEXITSTATUS(status));
	else
		hd_log(HD_LOG_ERROR, "plugin %s: crashed while it was loaded (signal %d)", t->file, WTERMSIG(status));
}

static int report_end(int status, int late, const struct hd_turn *t, int seconds)
{
	if (t->file[0] && !t->slot[0])
		report_file(status, late, t, seconds);
	else if (late)
		hd_log(HD_LOG_ERROR, "[%s]: slot %s of plugin %s did not return within %d s", t->section, t->slot,
		       t->plugin, seconds);
	else if (t->slot[0] && WIFEXITED(status))
		hd_log(HD_LOG_ERROR, "[%s]: slot %s of plugin %s ended the process with status %d", t->section, t->slot,
		       t->plugin, WEXITSTATUS(status));
	else if (t->slot[0])
		hd_log(HD_LOG_ERROR, "[%s]: slot %s of plugin %s was ended by signal %d", t->section, t->slot,
		       t->plugin, WTERMSIG(status));
	else if (WIFEXITED(status))
		return WEXITSTATUS(status);
	return 1;
}

int hd_guard_run(int (*what)(void *arg), void *arg, int seconds)
{
	struct hd_turn *turn = mmap(NULL, sizeof(*turn), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int ends[2], status = 0, late;
	pid_t child;

	if (turn == MAP_FAILED || pipe(ends))
		return what(arg);
	fflush(NULL);
	child = fork();
	if (child < 0)
		return what(arg);
	if (!child)
		return run_child(what, arg, turn, ends);
	hd_launch_hold_signals(); /* the child itself ends the processes that it has started */
	hd_launch_pass_on(child);
	close(ends[1]);
	late = watch(child, ends[0], turn, seconds);
	close(ends[0]);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	hd_launch_pass_on(0);
	hd_launch_release_signals();
	status = report_end(status, late, turn, seconds);
	munmap(turn, sizeof(*turn));
	return status;
}
