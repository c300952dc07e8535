/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/wait/watchdog.h - which rank is dead or late; the waiting loop asks now and then.
 */
#ifndef HD_ENGINE_COMM_WAIT_WATCHDOG_H
#define HD_ENGINE_COMM_WAIT_WATCHDOG_H
#include "engine/comm/wait/control.h"
#include "engine/comm/world/state.h"

void hd_watchdog_open(void); /* after the control block */
/* Sleeps, but not longer than any other rank of this host lives.  -> 1: one may have ended */
int hd_watchdog_sleep(double seconds);
/* Ends the run if a rank of this host is dead.  sleeping: of those only that hd_watchdog_sleep sees. */
void hd_watchdog_dead(const struct hd_waiting *w, int sleeping);
/* A wait that has been long: the others may know; the run ends when the watchdog's time is over. */
void hd_watchdog_late(struct hd_waiting *w, int late, double waited);
void hd_watchdog_end(const struct hd_waiting *w); /* it waits no longer */

#endif
