/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/wait/watchdog.h - finds out which rank is dead or late, when the waiting loop asks.
 */
#ifndef HD_ENGINE_COMM_WAIT_WATCHDOG_H
#define HD_ENGINE_COMM_WAIT_WATCHDOG_H
#include "engine/comm/wait/control.h"
#include "engine/comm/world/state.h"

void hd_watchdog_open(void); /* call it when the control block is set up */
/* Sleeps until the time is over or another rank of this host ends. Returns 1 if one may have ended. */
int hd_watchdog_sleep(double seconds);
/* Ends the run if a rank of this host is dead. sleeping: checks only the ranks that hd_watchdog_sleep watches. */
void hd_watchdog_dead(const struct hd_waiting *w, int sleeping);
/* Tells other ranks about a wait that has been long, and ends the run when the watchdog's limit is exceeded. */
void hd_watchdog_late(struct hd_waiting *w, int late, double waited);
void hd_watchdog_end(const struct hd_waiting *w); /* says that the wait is over */

#endif
