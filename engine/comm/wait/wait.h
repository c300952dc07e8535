/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/wait/wait.h - the waiting loop.
 *
 *	struct hd_backoff p;
 *
 *	hd_backoff_begin(&p, m, "all-reduce of x");
 *	while (!there())
 *		hd_backoff_wait(&p, -1);
 *	hd_backoff_end(&p);
 */
#ifndef HD_ENGINE_COMM_WAIT_WAIT_H
#define HD_ENGINE_COMM_WAIT_WAIT_H
#include "engine/comm/wait/control.h"
#include "engine/comm/world/state.h"

struct hd_backoff {
	struct hd_waiting w;
	double nap, longest; /* naps grow up to it, 1 ms; a wait for what takes a step's time may want less */
	double patience;     /* seconds that it spins first; 0: some microseconds */
	int turns;
};
void hd_backoff_begin(struct hd_backoff *p, const struct hd_communicator *m, const char *what);
/* Where a thread of another rank of this host ends the wait: spins for milliseconds, if each thread of these ranks has a core.
 * (A progress thread of this process would need the core.) */
void hd_backoff_begin_here(struct hd_backoff *p, const struct hd_communicator *m, const char *what);
/* Once around a waiting loop.  late: the member it waits for, -1: not known.  Ends the run if a
 * peer is dead or the watchdog's time is over. */
void hd_backoff_wait(struct hd_backoff *p, int late);
void hd_backoff_end(struct hd_backoff *p);
/* What every waiting loop of this process does beside: receives what has come for others. */
void hd_backoff_progress(void (*progress)(void));

#endif
