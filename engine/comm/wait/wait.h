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
	double nap, longest; /* seconds of the next nap; naps grow up to `longest`, 1 ms unless the caller sets less */
	double patience;     /* seconds for which it spins first; 0: some microseconds */
	int turns;
};
void hd_backoff_begin(struct hd_backoff *p, const struct hd_communicator *m, const char *what);
/* Begins a wait that a thread of another rank of this host ends. It spins for milliseconds, if each thread of these
 * ranks has a core and all ranks are on one host. (A wait that the progress thread of this process ends must not: that
 * thread would need the core.) */
void hd_backoff_begin_here(struct hd_backoff *p, const struct hd_communicator *m, const char *what);
/* Waits once in a waiting loop. late: the member that it waits for, or -1 if unknown. Ends the run if a peer is dead
 * or the watchdog's limit is exceeded. */
void hd_backoff_wait(struct hd_backoff *p, int late);
void hd_backoff_end(struct hd_backoff *p);
/* Sets a function that every waiting loop of this process calls, to receive messages of other requests. */
void hd_backoff_progress(void (*progress)(void));

#endif
