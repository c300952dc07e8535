/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/wait/watchdog_net.h - finds out which rank is late, between hosts. On a single host these
 * functions do nothing.
 */
#ifndef HD_ENGINE_COMM_WAIT_WATCHDOG_NET_H
#define HD_ENGINE_COMM_WAIT_WATCHDOG_NET_H
#include "engine/comm/wait/control.h"
#include "engine/comm/world/state.h"

void hd_watchdog_net_open(void); /* collective over the world */
void hd_watchdog_net_close(void);
/* Says, once per wait, that this rank has waited for long. */
void hd_watchdog_net_waiting(const struct hd_waiting *w, int late, const char *doing);
void hd_watchdog_net_not_waiting(void);
void hd_watchdog_net_poll(void); /* answers ranks that ask */
/* Asks the other ranks, or checks whether all have answered. over: the watchdog's limit is exceeded, which ends the
 * run; otherwise only a rank that does not answer ends it. */
void hd_watchdog_net_ask(int over);
/* Handles the end of a rank of this host while the launcher ends the run, and so has ended that rank. If a rank of
 * another host does not answer, names it and ends the run. */
void hd_watchdog_net_ended(void);

#endif
