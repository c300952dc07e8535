/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/wait/control.h - the control channel (start-up, agreement on errors) and the watchdog's switches.
 */
#ifndef HD_ENGINE_COMM_WAIT_CONTROL_H
#define HD_ENGINE_COMM_WAIT_CONTROL_H
#include "engine/base/err.h"

/* Exit status of a run of which a rank or a host is gone, or does not answer: those that are left could go on. */
#define HD_STATUS_LOST 3

/* -- control: blocking, all ranks ------------------------------------------------------------------------------------ */
void hd_comm_barrier(void);
void hd_comm_bcast(void *buf, size_t bytes, int root);
char *hd_comm_bcast_text(const char *text, int root); /* malloc'ed on all */
char **hd_comm_gather_text(const char *text);         /* rank 0: one malloc'ed text a rank; else NULL */
double hd_comm_max(double x);
double hd_comm_sum(double x);
/* All ranks pass their err; if any failed, the lowest failing rank's code and text end up in every err.  -> code */
int hd_comm_agree(struct hd_err *err);
/* The same between one thread of each rank, while the others compute and communicate.  open: all ranks, nothing else runs. */
void hd_comm_beside_open(void);
int hd_comm_beside_agree(struct hd_err *err);
double hd_comm_beside_sum(double x);
/* One message of a run whatever the number of ranks: 1 for the first local caller, 0 for all others. */
int hd_comm_may_speak(void);

/* Seconds without progress after which a waiting rank says what it waits for and for which rank, and ends the run. */
void hd_comm_watchdog(double seconds);
/* This rank has been in a plugin's slot or kernel for so long (where: " in kernel x of [y]"): ends all ranks, and tells. */
void hd_comm_stuck(const char *where, double seconds) __attribute__((noreturn));
void hd_comm_ending(void); /* the launcher ends the run; any thread may call it */

#endif
