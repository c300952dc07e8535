/* SPDX-License-Identifier: Apache-2.0
 * Finds the rank that is dead or late, on behalf of a rank that waits.
 *
 * The waiting rank sleeps in poll() on the pidfds of the other ranks of the host. A peer that dies wakes its
 * waiters at once, even as a zombie. Without pidfds, the waiting rank sends signal 0 to its peers, once it has
 * waited for HD_LONG_WAIT.
 *
 * The watchdog names the rank that is late. A rank that has waited for HD_LONG_WAIT writes into the control block
 * which rank it waits for. A rank that has waited for the watchdog's limit follows these links to a rank that does not
 * wait. That rank is late; the others are its victims. Between hosts the ranks ask each other (watchdog_net.c).
 */
#include <config.h>
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "engine/comm/wait/watchdog.h"
#include "engine/comm/world/communicator.h"
#include "engine/comm/wait/watchdog_net.h"
#include "engine/process/launch.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct {
	struct pollfd *fds; /* by local rank; fd -1: this rank, or one that cannot be watched */
	char *by_signal;    /* by local rank: 1 if it is watched by signal 0 */
	double limit;       /* seconds; 0: no limit */
	atomic_int ending;
} watch;

static int pidfd_of(int pid)
{
#ifdef SYS_pidfd_open
	return (int)syscall(SYS_pidfd_open, pid, 0);
#else
	(void)pid;
	return -1;
#endif
}

void hd_watchdog_open(void)
{
	int L = hd_here.w.local_size;

	watch.fds = hd_alloc((size_t)L * sizeof(*watch.fds));
	watch.by_signal = hd_alloc((size_t)L);
	for (int i = 0; i < L; i++) {
		int pid = hd_here.control ? atomic_load(&hd_here.control->rank[i].pid) : 0;

		watch.fds[i].fd = -1;
		watch.fds[i].events = POLLIN;
		/* A pid that is unknown even now belongs to a different pid namespace. */
		if (i == hd_here.w.local_rank || !pid || L == 1 || kill(pid, 0) != 0)
			continue;
		watch.fds[i].fd = pidfd_of(pid);
		watch.by_signal[i] = watch.fds[i].fd < 0;
	}
}

void hd_comm_watchdog(double seconds)
{
	watch.limit = seconds;
}

void hd_comm_ending(void)
{
	watch.ending = 1;
}

int hd_watchdog_sleep(double seconds)
{
	struct timespec ts = { 0, (long)(seconds * 1e9) };

	return ppoll(watch.fds, (nfds_t)hd_here.w.local_size, &ts, NULL) > 0;
}

/* -- a dead peer ------------------------------------------------------------------------------- */
static int has_ended(int i, int sleeping)
{
	if (watch.fds[i].fd >= 0)
		return watch.fds[i].revents != 0;
	return !sleeping && watch.by_signal[i] && kill(atomic_load(&hd_here.control->rank[i].pid), 0) && errno == ESRCH;
}

static int dead_rank(int sleeping)
{
	for (int i = 0; i < hd_here.w.local_size; i++) {
		if (!has_ended(i, sleeping))
			continue;
		if (atomic_load(&hd_here.control->rank[i].state) != HD_RANK_LEFT)
			return i;
		watch.fds[i].fd = -1;
		watch.by_signal[i] = 0;
	}
	return -1;
}

int hd_comm_failed(void)
{
	for (int i = 0; hd_here.control && i < hd_here.w.local_size; i++) {
		const struct hd_control_rank *r = &hd_here.control->rank[i];
		struct pollfd fd = watch.fds[i]; /* the thread that waits uses revents */
		int gone = fd.fd >= 0 ? poll(&fd, 1, 0) > 0
				      : watch.by_signal[i] && kill(atomic_load(&r->pid), 0) && errno == ESRCH;

		if (gone || atomic_load(&r->state) != HD_RANK_RUNS)
			return 1;
	}
	return hd_here.control && atomic_load(&hd_here.control->reported);
}

static void report_dead(const struct hd_waiting *w, int local) __attribute__((noreturn));
static void report_dead(const struct hd_waiting *w, int local)
{
	if (watch.ending && hd_here.w.hosts > 1)
		hd_watchdog_net_ended();
	/* A rank that is marked as ending has reported why. */
	if (atomic_load(&hd_here.control->rank[local].state) != HD_RANK_RUNS || !hd_comm_may_report()) {
		usleep(100000); /* lets the message of the rank that reports come first */
	} else {
		char *who = hd_rank_text(hd_here.world_of[local]), *me = hd_rank_text(hd_here.w.rank);
		char *in = hd_waiting_text(w);

		hd_launch_rank_died();
		hd_log(HD_LOG_ERROR, "%s is gone: its process has ended; %s was waiting in %s", who, me, in);
	}
	hd_comm_abort(HD_STATUS_LOST);
}

/* -- a late peer ------------------------------------------------------------------------------- */
/* Appends `before` and `more` to *text, and frees `more`. */
static void add(char **text, const char *before, char *more)
{
	char *s = hd_format("%s%s%s", *text, before, more);

	free(*text);
	free(more);
	*text = s;
}

/* Returns a local rank that waits for no other, or -1 if all wait. */
static int not_waiting(void)
{
	for (int i = 0; hd_here.control && i < hd_here.w.local_size; i++)
		if (i != hd_here.w.local_rank && !atomic_load(&hd_here.control->rank[i].waits_for))
			return i;
	return -1;
}

/* Follows the chain of waiting ranks from a local rank. Returns the rank at its end, which waits for no other, or
 * -1 if the chain is a circle. If the chain ends at a rank that waits for an unknown one, returns any rank that
 * does not wait, or -1. */
static int last_of_chain(int local)
{
	for (int hops = 0; hops <= hd_here.w.local_size; hops++) {
		int next = atomic_load(&hd_here.control->rank[local].waits_for);

		if (!next)
			return local;
		if (next < 0)
			return not_waiting();
		local = next - 1;
	}
	return -1;
}

/* Waits for a rank that reports, which ends the run. Meanwhile this rank must not look as if it were stopped. */
static void stand_by(void)
{
	struct hd_control_rank *me = hd_here_control();

	for (int i = 0; i < 200; i++) {
		if (me)
			me->naps++;
		usleep(10000);
	}
	hd_comm_abort(HD_STATUS_LOST);
}

/* Follows the circle of waiting ranks from a local rank. Returns a rank of it that does not run, for example since
 * SIGSTOP, or -1 if all run. A rank that waits moves its counter every few milliseconds. */
static int stopped_in_circle(int local)
{
	int n = hd_here.w.local_size, at = local, stopped = -1;
	uint32_t *naps = hd_alloc((size_t)n * sizeof(*naps));

	for (int i = 0; i < n; i++)
		naps[i] = atomic_load(&hd_here.control->rank[i].naps);
	usleep(500000);
	for (int hops = 0; hops < n && at >= 0 && stopped < 0; hops++) {
		if (at != hd_here.w.local_rank && atomic_load(&hd_here.control->rank[at].naps) == naps[at])
			stopped = at;
		at = atomic_load(&hd_here.control->rank[at].waits_for) - 1;
	}
	free(naps);
	return stopped;
}

static char *circle_text(int local)
{
	char *s = hd_strdup("none, these wait for each other:");

	for (int hops = 0, at = local; hops < hd_here.w.local_size; hops++) {
		add(&s, hops ? "; " : " ", hd_rank_text(hd_here.world_of[at]));
		add(&s, " in ", hd_format("%.179s", hd_here.control->rank[at].doing));
		at = atomic_load(&hd_here.control->rank[at].waits_for) - 1;
		if (at < 0 || at == local)
			break;
	}
	return s;
}

static void report_late(const struct hd_waiting *w, int late) __attribute__((noreturn));
static void report_late(const struct hd_waiting *w, int late)
{
	int local = w->m && late >= 0 && hd_here.control ? w->m->local[late] : -1;
	int end = local >= 0 ? last_of_chain(local) : not_waiting();
	char *s;

	if (!hd_comm_may_report())
		stand_by();
	if (end < 0 && hd_here.control)
		end = stopped_in_circle(local >= 0 ? local : hd_here.w.local_rank);
	s = hd_rank_text(hd_here.w.rank);
	add(&s, " waits ", late >= 0 ? hd_format("for ") : hd_strdup(""));
	if (late >= 0)
		add(&s, "", hd_format("%s ", hd_rank_text(w->m->world[late])));
	add(&s, "in ", hd_waiting_text(w));
	add(&s, " since ", hd_format("%.0f s", hd_seconds() - w->since));
	if (hd_here.control)
		add(&s, "; late: ",
		    end >= 0 ? hd_rank_text(hd_here.world_of[end])
			     : circle_text(local >= 0 ? local : hd_here.w.local_rank));
	hd_log(HD_LOG_ERROR, "%s", s);
	hd_comm_abort(HD_STATUS_LOST);
}

void hd_comm_stuck(const char *where, double seconds)
{
	if (!hd_comm_may_report())
		sleep(2); /* the rank that reports ends the run: let its message come first */
	else
		hd_log(HD_LOG_ERROR, "%s is still%s after %.0f s (train.watchdog = %.0f)", hd_rank_text(hd_here.w.rank),
		       where, seconds, watch.limit);
	hd_comm_abort(HD_STATUS_LOST);
}

/* -- called by the waiting loop ---------------------------------------------------------------- */
void hd_watchdog_dead(const struct hd_waiting *w, int sleeping)
{
	int dead = dead_rank(sleeping);

	if (dead >= 0)
		report_dead(w, dead);
}

static void announce(struct hd_waiting *w, int late)
{
	struct hd_control_rank *me = hd_here_control();
	char *in;

	if (!w->announced) {
		in = hd_waiting_text(w);
		if (me)
			snprintf(me->doing, sizeof(me->doing), "%s", in);
		hd_watchdog_net_waiting(w, late, in);
		free(in);
		w->announced = 1;
	}
	if (!me)
		return;
	me->naps++;
	atomic_store(&me->waits_for, late >= 0 && w->m->local[late] >= 0 ? w->m->local[late] + 1 : -1);
}

/* Ends the run if the watchdog's limit is exceeded. Between hosts it also asks other ranks if the launcher ends the
 * run and the wait is not short. */
void hd_watchdog_late(struct hd_waiting *w, int late, double waited)
{
	int over = watch.limit > 0 && waited > watch.limit;

	announce(w, late);
	if (hd_here.w.hosts > 1 && (over || (watch.ending && waited > 2 * HD_LONG_WAIT)))
		hd_watchdog_net_ask(over);
	else if (over)
		report_late(w, late);
}

void hd_watchdog_end(const struct hd_waiting *w)
{
	if (!w->announced)
		return;
	if (hd_here.control)
		atomic_store(&hd_here_control()->waits_for, 0);
	hd_watchdog_net_not_waiting();
}
