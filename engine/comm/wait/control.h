/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/wait/control.h - the control channel (start-up, agreement on errors) and the watchdog's switches.
 */
#ifndef HD_ENGINE_COMM_WAIT_CONTROL_H
#define HD_ENGINE_COMM_WAIT_CONTROL_H
#include "engine/base/err.h"

/* The exit status of a run in which a rank or a host is gone or does not answer. The remaining ranks could go on. */
#define HD_STATUS_LOST 3

/* -- control: blocking, all ranks ---------------------------------------------------------------------------------- */
void hd_comm_barrier(void);
void hd_comm_bcast(void *buf, size_t bytes, int root);
char *hd_comm_bcast_text(const char *text, int root); /* returns a copy on each rank; the caller frees it */
char **hd_comm_gather_text(const char *text); /* returns on rank 0 one malloc'ed text per rank; on others NULL */
double hd_comm_max(double x);
double hd_comm_sum(double x);
/* All ranks pass their err. If any of them failed, the code and text of the lowest such rank end up in every
 * err. Returns the code. */
int hd_comm_agree(struct hd_err *err);
/* The same between one thread of each rank, while the other threads compute and communicate. All ranks must call
 * hd_comm_side_open first, while nothing else runs. */
void hd_comm_side_open(void);
int hd_comm_side_agree(struct hd_err *err);
double hd_comm_side_sum(double x);
/* Returns 1 for the first caller, who then prints the run's only message, and 0 for all later ones, on any rank. */
int hd_comm_may_report(void);
/* Prints the error, unless a rank has printed one, and ends all ranks. For an error of which the other ranks do not know:
 * they wait for this one. */
void hd_comm_end_with(const char *text) __attribute__((noreturn));

/* Sets after how many seconds without progress a waiting rank reports what it waits for and for which
 * rank, and ends the run. */
void hd_comm_watchdog(double seconds);
/* Reports that this rank has been in a plugin's slot or kernel for so long (where: " in kernel x of [y]"),
 * and ends all ranks. */
void hd_comm_stuck(const char *where, double seconds) __attribute__((noreturn));
/* Returns 1 if a rank has reported an error, or a rank of this host has ended or is about to. Any thread may call it. */
int hd_comm_failed(void);
void hd_comm_ending(void); /* says that the launcher ends the run; any thread may call it */

#endif
