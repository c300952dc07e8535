/* SPDX-License-Identifier: Apache-2.0
 * Waiting for other ranks.
 *
 * A waiting loop spins for some microseconds, then gives its core away, then sleeps in poll() on
 * the pidfds of the other ranks of the host: the naps cost nothing to the rank that is late (four
 * ranks must work on two cores), and a peer that dies wakes its waiters at once, zombie or not.
 * Where pidfds are missing, a signal 0 asks, from 0.2 s on.
 *
 * The watchdog names who is late.  A rank that has waited for 0.2 s says in the control block for
 * whom, so the one whose time is over follows these links to a rank that does not wait: that one
 * is late, not its victims.  Between hosts it asks (watchdog_net.c).
 */
#include <config.h>
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "engine/comm/state.h"
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPINS 400 /* then yields up to YIELDS turns, then naps */
#define YIELDS 600
#define TELL 0.2 /* seconds after which a wait is shown to others */

static struct pollfd *fds; /* by local rank; fd -1: this rank, or one that cannot be watched */
static char *by_signal; /* local ranks watched by signal 0 */
static double limit;
static char *(*describe)(int rank);
static volatile sig_atomic_t ending;

static int pidfd_of(int pid)
{
#ifdef SYS_pidfd_open
	return (int)syscall(SYS_pidfd_open, pid, 0);
#else
	(void)pid;
	return -1;
#endif
}

void hd_watch_open(void)
{
	int L = hd_here.w.local_size;

	fds = hd_alloc((size_t)L * sizeof(*fds));
	by_signal = hd_alloc((size_t)L);
	for (int i = 0; i < L; i++) {
		int pid = hd_here.control ? atomic_load(&hd_here.control->rank[i].pid) : 0;

		fds[i].fd = -1;
		fds[i].events = POLLIN;
		/* A pid that is unknown already now belongs to another pid namespace. */
		if (i == hd_here.w.local_rank || !pid || L == 1 || kill(pid, 0) != 0)
			continue;
		fds[i].fd = pidfd_of(pid);
		by_signal[i] = fds[i].fd < 0;
	}
}

void hd_comm_watchdog(double seconds, char *(*describe_rank)(int rank))
{
	limit = seconds;
	if (describe_rank)
		describe = describe_rank;
}

void hd_comm_ending(void)
{
	ending = 1;
}

char *hd_rank_text(int rank)
{
	char *d = describe ? describe(rank) : NULL;
	char *s = hd_format(d && *d ? "rank %d %s" : "rank %d%s", rank, d ? d : "");

	free(d);
	return s;
}

/* "all-reduce of x on g" */
static char *doing_text(const struct hd_pause *p)
{
	return hd_format("%s%s%s", p->what, p->m ? " on " : "", p->m ? p->m->name : "");
}

/* -- a dead peer ------------------------------------------------------------------------------- */
static int has_ended(int i, int by_poll_only)
{
	if (fds[i].fd >= 0)
		return fds[i].revents != 0;
	return !by_poll_only && by_signal[i] &&
	       kill(atomic_load(&hd_here.control->rank[i].pid), 0) && errno == ESRCH;
}

static int dead_rank(int by_poll_only)
{
	for (int i = 0; i < hd_here.w.local_size; i++) {
		if (!has_ended(i, by_poll_only))
			continue;
		if (atomic_load(&hd_here.control->rank[i].state) != HD_RANK_LEFT)
			return i;
		fds[i].fd = -1;
		by_signal[i] = 0;
	}
	return -1;
}

static void report_dead(const struct hd_pause *p, int local) __attribute__((noreturn));
static void report_dead(const struct hd_pause *p, int local)
{
	/* One that said that it ends has told why. */
	if (atomic_load(&hd_here.control->rank[local].state) != HD_RANK_RUNS ||
	    !hd_comm_may_speak()) {
		usleep(100000); /* the one who speaks comes first */
	} else {
		char *who = hd_rank_text(hd_here.world_of[local]),
		     *me = hd_rank_text(hd_here.w.rank);
		char *in = doing_text(p);

		hd_log(HD_ERROR, "%s is gone: its process has ended; %s was waiting in %s", who, me,
		       in);
	}
	hd_comm_abort(1);
}

/* -- a late peer ------------------------------------------------------------------------------- */
/* Appends to *text, which it owns. */
static void add(char **text, const char *before, char *more)
{
	char *s = hd_format("%s%s%s", *text, before, more);

	free(*text);
	free(more);
	*text = s;
}

/* -> a local rank that waits for nobody, or -1: all wait. */
static int not_waiting(void)
{
	for (int i = 0; hd_here.control && i < hd_here.w.local_size; i++)
		if (i != hd_here.w.local_rank && !atomic_load(&hd_here.control->rank[i].waits_for))
			return i;
	return -1;
}

/* From a local rank along the ranks that wait for each other.  -> one that waits for nobody, or
 * -1: a circle.  Where the chain ends at one that waits for all others, any that does not. */
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

static void report_late(const struct hd_pause *p, int late) __attribute__((noreturn));
static void report_late(const struct hd_pause *p, int late)
{
	int local = p->m && late >= 0 && hd_here.control ? p->m->local[late] : -1;
	int end = local >= 0 ? last_of_chain(local) : not_waiting();
	char *s;

	if (!hd_comm_may_speak()) {
		sleep(2); /* the one who speaks ends the run: let its message come first */
		hd_comm_abort(1);
	}
	s = hd_rank_text(hd_here.w.rank);
	add(&s, " waits ", late >= 0 ? hd_format("for ") : hd_strdup(""));
	if (late >= 0)
		add(&s, "", hd_format("%s ", hd_rank_text(p->m->world[late])));
	add(&s, "in ", doing_text(p));
	add(&s, " since ", hd_format("%.0f s", hd_seconds() - p->since));
	if (hd_here.control)
		add(&s, "; late: ",
		    end >= 0 ? hd_rank_text(hd_here.world_of[end])
			     : circle_text(local >= 0 ? local : hd_here.w.local_rank));
	hd_log(HD_ERROR, "%s", s);
	hd_comm_abort(1);
}

/* -- the loop ---------------------------------------------------------------------------------- */
void hd_pause_begin(struct hd_pause *p, const struct hd_members *m, const char *what)
{
	p->m = m;
	p->what = what;
	p->turns = p->told = 0;
	p->nap = 50e-6;
	p->since = 0;
}

static void tell(struct hd_pause *p, int late)
{
	struct hd_control_rank *me =
		hd_here.control ? &hd_here.control->rank[hd_here.w.local_rank] : NULL;
	char *in;

	if (!p->told) {
		in = doing_text(p);
		if (me)
			snprintf(me->doing, sizeof(me->doing), "%s", in);
		hd_ask_waiting(p, late, in);
		free(in);
		p->told = 1;
	}
	if (me)
		atomic_store(&me->waits_for,
			     late >= 0 && p->m->local[late] >= 0 ? p->m->local[late] + 1 : -1);
}

/* The watchdog's time is over; or the launcher ends the run, and a wait is not short. */
static void too_long(struct hd_pause *p, int late, double waited)
{
	int over = limit > 0 && waited > limit;

	if (hd_here.w.hosts > 1 && (over || (ending && waited > 2 * TELL)))
		hd_ask(over);
	else if (over)
		report_late(p, late);
}

static void nap(struct hd_pause *p, int late)
{
	struct timespec ts = {0, (long)(p->nap * 1e9)};
	double waited = hd_seconds() - p->since;
	int dead;

	if (ppoll(fds, (nfds_t)hd_here.w.local_size, &ts, NULL) > 0 || waited > TELL) {
		dead = dead_rank(waited <= TELL);
		if (dead >= 0)
			report_dead(p, dead);
	}
	if (waited > 0.01 && p->nap < 1e-3)
		p->nap *= 1.5;
	if (waited <= TELL)
		return;
	tell(p, late);
	too_long(p, late, waited);
}

void hd_pause(struct hd_pause *p, int late)
{
	p->turns++;
	if (p->turns < SPINS) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#endif
		return;
	}
	if (p->turns == SPINS)
		p->since = hd_seconds();
	hd_shm_receive_early();
	if (p->turns < YIELDS)
		sched_yield();
	else
		nap(p, late);
}

void hd_pause_end(struct hd_pause *p)
{
	if (!p->told)
		return;
	if (hd_here.control)
		atomic_store(&hd_here.control->rank[hd_here.w.local_rank].waits_for, 0);
	hd_ask_not_waiting();
}
