/* SPDX-License-Identifier: Apache-2.0
 * Finds the late rank among several hosts, whose ranks cannot read each other's memory.
 *
 * A rank that has waited for the watchdog's limit asks all others. A rank that waits too answers with its movement
 * and the rank that it waits for. A rank that works answers through its progress thread. A rank that is stopped or
 * gone does not answer. The rank without an answer is late; if all answer, the rank that works is late. The ranks
 * that wait are victims. If several ranks ask, the lowest one prints the message, on behalf of the rank that waits
 * for the late one itself.
 *
 * A waiting rank also asks when the launcher ends the run. The launcher does so when a process has died; it knows the
 * process id, but not the rank's place in the mesh. If all ranks answer, the run was ended for a different reason,
 * and the step continues.
 */
#include <config.h>
#include "engine/comm/wait/watchdog_net.h"
#include "engine/comm/world/communicator.h"
#include "engine/comm/world/mpi_calls.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GRACE 0.5  /* seconds for answers */
#define MEMBERS 64 /* a notice lists the members of groups up to this size */
#define TAG 7
#define NAMED 4 /* maximum number of late ranks that a message lists */

enum { NONE, WORKS, WAITS, ASKS, REPORTS };
struct notice {
	int32_t kind, from, waits_for; /* from, waits_for: world ranks; waits_for -1: unknown */
	int32_t n, members[MEMBERS];   /* the group in which it waits; n = 0: all ranks */
	double seconds;
	char doing[180];
};

static struct { /* protected by hd_mpi_lock */
	MPI_Comm comm;
	MPI_Request request;
	struct notice incoming, mine, *answers; /* answers: by world rank */
	char *askers;                           /* by world rank: 1 if it has asked */
	double asked, began;                    /* when this rank asked; when its wait began; 0: it did not */
	int reported;                           /* another rank prints the run's message */
} ask = { .comm = MPI_COMM_NULL };

void hd_watchdog_net_open(void)
{
	if (hd_here.w.hosts <= 1)
		return;
	ask.answers = hd_alloc((size_t)hd_here.w.size * sizeof(*ask.answers));
	ask.askers = hd_alloc((size_t)hd_here.w.size);
	MPI_Comm_dup(hd_mpi_world, &ask.comm);
	MPI_Comm_set_errhandler(ask.comm, MPI_ERRORS_RETURN);
	MPI_Irecv(&ask.incoming, (int)sizeof(ask.incoming), MPI_BYTE, MPI_ANY_SOURCE, TAG, ask.comm, &ask.request);
}

void hd_watchdog_net_close(void)
{
	if (ask.comm == MPI_COMM_NULL)
		return;
	MPI_Cancel(&ask.request);
	MPI_Request_free(&ask.request);
	MPI_Comm_free(&ask.comm);
}

/* Sends a notice. Its copy is never freed: the run ends soon, and the receiver may never take it. */
static void send_notice(int to, int kind)
{
	struct notice *n = hd_alloc(sizeof(*n));
	MPI_Request r;

	*n = ask.mine;
	n->kind = kind;
	n->from = hd_here.w.rank;
	n->seconds = ask.began ? hd_seconds() - ask.began : 0;
	MPI_Isend(n, (int)sizeof(*n), MPI_BYTE, to, TAG, ask.comm, &r);
	MPI_Request_free(&r);
}

static void send_notices(int kind)
{
	for (int r = 0; r < hd_here.w.size; r++)
		if (r != hd_here.w.rank)
			send_notice(r, kind);
}

static void poll_answers(void)
{
	for (int done = 1; ask.comm != MPI_COMM_NULL;) {
		MPI_Test(&ask.request, &done, MPI_STATUS_IGNORE);
		if (!done)
			return;
		if (ask.incoming.kind == REPORTS)
			ask.reported = 1;
		ask.answers[ask.incoming.from] = ask.incoming;
		if (ask.incoming.kind == ASKS) {
			ask.askers[ask.incoming.from] = 1;
			send_notice(ask.incoming.from, ask.began ? WAITS : WORKS);
		}
		MPI_Irecv(&ask.incoming, (int)sizeof(ask.incoming), MPI_BYTE, MPI_ANY_SOURCE, TAG, ask.comm,
			  &ask.request);
	}
}

void hd_watchdog_net_poll(void)
{
	HD_MPI(poll_answers());
}

/* Returns 1 if no other host prints the run's message; then tells them that this one does. */
static int report_is_ours(void)
{
	int first;

	if (ask.comm == MPI_COMM_NULL)
		return 1;
	/* If another thread is stuck inside MPI, the other hosts cannot be asked. */
	for (int i = 0; pthread_mutex_trylock(&hd_mpi_lock); i++, usleep(10000))
		if (i > 100)
			return 1;
	poll_answers();
	first = !ask.reported;
	if (first)
		send_notices(REPORTS);
	pthread_mutex_unlock(&hd_mpi_lock);
	return first;
}

int hd_comm_may_report(void)
{
	static _Atomic int32_t alone;

	return atomic_exchange(hd_here.control ? &hd_here.control->reported : &alone, 1) == 0 && report_is_ours();
}

void hd_comm_end_with(const char *text)
{
	if (hd_comm_may_report())
		hd_log(HD_LOG_ERROR, "%s: %s", hd_rank_text(hd_here.w.rank), text);
	hd_comm_abort(1);
}

/* -- this rank waits --------------------------------------------------------------------------- */
static void begin(const struct hd_waiting *w, int late, const char *doing)
{
	ask.began = w->since;
	ask.mine.waits_for = late >= 0 ? w->m->world[late] : -1;
	ask.mine.n = w->m ? w->m->n : 0;
	for (int i = 0; i < ask.mine.n && i < MEMBERS; i++)
		ask.mine.members[i] = w->m->world[i];
	snprintf(ask.mine.doing, sizeof(ask.mine.doing), "%s", doing);
	/* Ranks that have asked before were told that this one works, so they get a new answer. */
	for (int r = 0; r < hd_here.w.size; r++)
		if (ask.askers[r])
			send_notice(r, WAITS);
}

static void end(void)
{
	ask.asked = ask.began = 0;
}

void hd_watchdog_net_waiting(const struct hd_waiting *w, int late, const char *doing)
{
	if (ask.comm != MPI_COMM_NULL)
		HD_MPI(begin(w, late, doing));
}

void hd_watchdog_net_not_waiting(void)
{
	if (ask.comm != MPI_COMM_NULL)
		HD_MPI(end());
}

/* -- who is late ------------------------------------------------------------------------------- */
static int is_member(const struct notice *n, int rank)
{
	if (n->n > MEMBERS)
		return 0;
	for (int i = 0; i < n->n; i++)
		if (n->members[i] == rank)
			return 1;
	return 0;
}

static const struct notice *notice_of(int rank)
{
	return rank == hd_here.w.rank ? &ask.mine : &ask.answers[rank];
}

/* Returns how closely a rank waits for the late one. 3: for that rank itself; 2: for an unknown rank of a group with
 * it; 1: for something else; 0: it does not wait. */
static int how_close(int waiter, int late)
{
	const struct notice *n = notice_of(waiter);

	if (waiter != hd_here.w.rank && n->kind != WAITS && n->kind != ASKS)
		return 0;
	return n->waits_for == late ? 3 : n->waits_for < 0 && is_member(n, late) ? 2 : 1;
}

static int closest(int late)
{
	int best = hd_here.w.rank;

	for (int r = 0; r < hd_here.w.size; r++)
		if (how_close(r, late) > how_close(best, late))
			best = r;
	return best;
}

/* Lists the late ranks, which are those whose last notice is of this kind (NONE: they have not answered). Those for
 * which others wait most closely come first. Returns their number. */
static int find_late(int kind, int *late)
{
	int n = 0;

	for (int close = 3; close > 0; close--)
		for (int r = 0; r < hd_here.w.size; r++)
			if (r != hd_here.w.rank && ask.answers[r].kind == kind && how_close(closest(r), r) == close)
				late[n++] = r;
	return n;
}

static void append(char *text, size_t bytes, const char *before, char *more)
{
	size_t at = strlen(text);

	snprintf(text + at, bytes - at, "%s%s", before, more);
	free(more);
}

static void describe(char *text, size_t bytes, const int *late, int n, int silent)
{
	int waiter = n ? closest(late[0]) : hd_here.w.rank, at = waiter;
	const struct notice *w = notice_of(waiter);
	double seconds = waiter == hd_here.w.rank ? ask.asked - ask.began : w->seconds;

	append(text, bytes, "", hd_rank_text(waiter));
	if (w->waits_for >= 0)
		append(text, bytes, " waits for ", hd_rank_text(w->waits_for));
	append(text, bytes, w->waits_for >= 0 ? " in " : " waits in ",
	       hd_format("%s since %.0f s; late: ", w->doing, seconds));
	for (int i = 0; i < n && i < NAMED; i++)
		append(text, bytes, i ? ", " : "", hd_rank_text(late[i]));
	if (n > NAMED)
		append(text, bytes, " and ", hd_format("%d more", n - NAMED));
	if (n)
		append(text, bytes, "",
		       hd_strdup(!silent ? ""
				 : n > 1 ? ", which do not answer"
					 : ", which does not answer: its process "
					   "is stopped or has ended"));
	else
		append(text, bytes, "", hd_strdup("none, these wait for each other:"));
	for (int i = 0; !n && i < hd_here.w.size && i < NAMED; i++) {
		at = (hd_here.w.rank + i) % hd_here.w.size;
		append(text, bytes, i ? "; " : " ", hd_rank_text(at));
		append(text, bytes, " in ", hd_strdup(notice_of(at)->doing));
	}
}

/* Returns 2 if this rank is to print the text, 1 if another rank reports, or 0 to go on waiting. */
static int verdict(int over, char *text, size_t bytes)
{
	int *late, n, lower = ask.reported, silent = 1;

	for (int r = 0; r < hd_here.w.rank; r++)
		lower |= ask.answers[r].kind == ASKS || (ask.askers[r] && ask.answers[r].kind == WAITS);
	if (lower)
		return over || ask.reported;
	late = hd_alloc((size_t)hd_here.w.size * sizeof(*late));
	n = find_late(NONE, late);
	if (!n && over) {
		silent = 0;
		n = find_late(WORKS, late);
	}
	if (n || over)
		describe(text, bytes, late, n, silent);
	free(late);
	return n || over ? 2 : 0;
}

static void begin_to_ask(void)
{
	for (int r = 0; r < hd_here.w.size; r++)
		ask.answers[r].kind = ask.askers[r] ? ask.answers[r].kind : NONE;
	ask.asked = hd_seconds();
	send_notices(ASKS);
}

void hd_watchdog_net_ask(int over)
{
	char text[1600] = "";
	int what;

	if (ask.comm == MPI_COMM_NULL)
		return;
	pthread_mutex_lock(&hd_mpi_lock);
	poll_answers();
	if (!ask.asked)
		begin_to_ask();
	what = hd_seconds() - ask.asked < GRACE ? 0 : verdict(over, text, sizeof(text));
	if (!what && hd_seconds() - ask.asked > 2 * GRACE)
		ask.asked = 0; /* ask again */
	pthread_mutex_unlock(&hd_mpi_lock);
	if (!what)
		return;
	if (what == 2 && hd_comm_may_report())
		hd_log(HD_LOG_ERROR, "%s", text);
	else
		sleep(2); /* the rank that reports ends the run */
	hd_comm_abort(HD_STATUS_LOST);
}

/* -- a rank of this host that the launcher has ended ------------------------------------------- */
static int describe_silent(char *text, size_t bytes)
{
	int *late = hd_alloc((size_t)hd_here.w.size * sizeof(*late)), n;

	poll_answers();
	for (int i = 0; i < hd_here.w.local_size; i++) /* ranks of this host do not count as silent */
		if (ask.answers[hd_here.world_of[i]].kind == NONE)
			ask.answers[hd_here.world_of[i]].kind = REPORTS;
	n = find_late(NONE, late);
	if (n)
		describe(text, bytes, late, n, 1);
	free(late);
	return n;
}

void hd_watchdog_net_ended(void)
{
	char text[1600] = "";
	double asked;
	int n;

	if (ask.comm == MPI_COMM_NULL || !ask.began)
		return;
	pthread_mutex_lock(&hd_mpi_lock);
	if (!ask.asked)
		begin_to_ask();
	asked = ask.asked;
	pthread_mutex_unlock(&hd_mpi_lock);
	for (; hd_seconds() - asked < GRACE; usleep(10000))
		hd_watchdog_net_poll();
	pthread_mutex_lock(&hd_mpi_lock);
	n = describe_silent(text, sizeof(text));
	pthread_mutex_unlock(&hd_mpi_lock);
	if (!n)
		return;
	if (hd_comm_may_report())
		hd_log(HD_LOG_ERROR, "%s", text);
	hd_comm_abort(HD_STATUS_LOST);
}
