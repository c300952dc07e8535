/* SPDX-License-Identifier: Apache-2.0
 * Waiting for other ranks.
 *
 * A waiting loop spins for some microseconds, then yields its core, then naps. Naps take no time from the rank
 * that is late (four ranks must work on two cores), and a peer that dies ends them (watchdog.c). Where ranks
 * share a core, the late one may need this core, so the loop hardly spins. With four ranks on each core, that
 * saved a twentieth of a step.
 *
 * A nap ends late: by 0.1 ms on an idle machine, by milliseconds if another process took the core. Ranks that
 * meet hundreds of times per step pay that each time. So a loop that shares its core with no other rank spins
 * longer first (`patience`).
 */
#include <config.h>
#include "engine/comm/wait/wait.h"
#include "engine/comm/wait/watchdog.h"
#include <sched.h>

#define SPINS 400    /* followed by YIELDS yields, then naps */
#define FEW_SPINS 20 /* the same where ranks share cores */
#define YIELDS 200
#define LONG_YIELDS 0.05 /* seconds */
#define PATIENCE 2e-3    /* seconds: a nap's usual delay is then a twentieth of what was waited for */
#define PAUSES 16        /* between two reads of the clock */

static void (*progress)(void);

void hd_backoff_progress(void (*f)(void))
{
	progress = f;
}

void hd_backoff_begin(struct hd_backoff *p, const struct hd_communicator *m, const char *what)
{
	p->w = (struct hd_waiting){ .m = m, .what = what };
	p->turns = 0;
	p->patience = 0;
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

void hd_backoff_begin_here(struct hd_backoff *p, const struct hd_communicator *m, const char *what)
{
	hd_backoff_begin(p, m, what);
	if (hd_here.fits && hd_here.w.hosts == 1)
		p->patience = PATIENCE;
}

static void pause_core(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/* Yields the core, and checks for dead peers if that takes long. On a busy machine one yield takes milliseconds. All
 * together would take longer than a launcher gives the ranks to report one that has died. */
static void give_way(const struct hd_backoff *p)
{
	sched_yield();
	if (hd_seconds() - p->w.since > LONG_YIELDS && hd_watchdog_sleep(0))
		hd_watchdog_dead(&p->w, 1);
}

/* Spins a little and returns 1, or returns 0 if the loop has waited for longer than its patience. */
static int is_patient(const struct hd_backoff *p)
{
	if (!(p->patience > 0) || hd_seconds() - p->w.since > p->patience)
		return 0;
	for (int i = 0; i < PAUSES; i++)
		pause_core();
	return 1;
}

void hd_backoff_wait(struct hd_backoff *p, int late)
{
	int spins = hd_here.fits ? SPINS : FEW_SPINS;

	p->turns++;
	if (p->turns < spins) {
		pause_core();
		return;
	}
	if (p->turns == spins)
		p->w.since = hd_seconds();
	if (progress)
		progress();
	if (is_patient(p))
		p->turns = spins + 1;
	else if (p->turns < spins + YIELDS)
		give_way(p);
	else
		nap(p, late);
}

void hd_backoff_end(struct hd_backoff *p)
{
	hd_watchdog_end(&p->w);
}
