/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/wait/watchdog_net.h - which rank is late, between hosts.  Where there is one host nothing happens.
 */
#ifndef HD_ENGINE_COMM_WAIT_WATCHDOG_NET_H
#define HD_ENGINE_COMM_WAIT_WATCHDOG_NET_H
#include "engine/comm/wait/control.h"
#include "engine/comm/world/state.h"

void hd_watchdog_net_open(void); /* collective over the world */
void hd_watchdog_net_close(void);
/* Once, when it has waited for long. */
void hd_watchdog_net_waiting(const struct hd_waiting *w, int late, const char *doing);
void hd_watchdog_net_not_waiting(void);
void hd_watchdog_net_poll(void); /* answers */
/* Asks, or looks whether all have answered.  over: this rank's time is over, which ends the run; else only a rank that does
 * not answer does. */
void hd_watchdog_net_ask(int over);
/* A rank of this host is gone while the launcher ends the run, so it is the launcher that has ended it.  Names a rank of another host
 * that does not answer, if there is one, and ends the run. */
void hd_watchdog_net_ended(void);

#endif
