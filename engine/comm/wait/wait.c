/* SPDX-License-Identifier: Apache-2.0
 * Waiting for other ranks.
 *
 * A waiting loop spins for some microseconds, then gives its core away, then sleeps. The naps cost
 * nothing to the rank that is late (four ranks must work on two cores), and a peer that dies ends
 * them (watchdog.c).
 */
#include <config.h>
#include "engine/comm/wait/wait.h"
#include "engine/comm/wait/watchdog.h"
#include <sched.h>

#define SPINS 400 /* then yields up to YIELDS turns, then naps */
#define YIELDS 600

static void (*progress)(void);

void hd_backoff_progress(void (*f)(void))
{
	progress = f;
}

void hd_backoff_begin(struct hd_backoff *p, const struct hd_communicator *m, const char *what)
{
	p->w = (struct hd_waiting){ .m = m, .what = what };
	p->turns = 0;
	p->nap = 50e-6;
	p->longest = 1e-3;
}

static void nap(struct hd_backoff *p, int late)
{
	double waited = hd_seconds() - p->w.since;

	if (hd_watchdog_sleep(p->nap) || waited > HD_LONG_WAIT)
		hd_watchdog_dead(&p->w, waited <= HD_LONG_WAIT);
	if (waited > 0.01 && p->nap < p->longest)
		p->nap *= 1.5;
	if (waited > HD_LONG_WAIT)
		hd_watchdog_late(&p->w, late, waited);
}

void hd_backoff_wait(struct hd_backoff *p, int late)
{
	p->turns++;
	if (p->turns < SPINS) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#endif
		return;
	}
	if (p->turns == SPINS)
		p->w.since = hd_seconds();
	if (progress)
		progress();
	if (p->turns < YIELDS)
		sched_yield();
	else
		nap(p, late);
}

void hd_backoff_end(struct hd_backoff *p)
{
	hd_watchdog_end(&p->w);
}
