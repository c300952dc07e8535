/* SPDX-License-Identifier: Apache-2.0
 * engine/process/asked.h - a run that is asked to end: SIGTERM, SIGINT, or SIGUSR1, which batch systems send some time before
 * they kill.
 *
 * From hd_asked_open on such a signal is remembered, and the run saves and ends where it can.  One that comes early and is not
 * seen by hd_asked_ready within two seconds (text may take an hour to become ids) ends the process. It says that nothing is
 * saved, and leaves with status 1.  So does one that a plugin's slot or kernel keeps from looking for a minute, or that is asked
 * again after a few seconds in the same one.
 */
#ifndef HD_ENGINE_ASKED_H
#define HD_ENGINE_ASKED_H
#include <stddef.h>
#include <stdint.h>

/* The first call of a run, also where the process has started itself again (affinity.h). */
void hd_asked_open(void);
/* From here on the run looks.  ending: called, also by the thread that waits for signals, where the launcher itself sends the signal,
 * which then ends the run; or NULL. */
void hd_asked_ready(void (*ending)(void));
/* A line that rank 0 writes to the launcher's stderr as soon as SIGTERM or SIGINT comes, or has come; once.  text stays the caller's.
 * After hd_launch_listen. */
void hd_asked_hurry(const char *text);
/* Tells the slot or kernel of a plugin that runs ("": none does), and a number that is another one for each. */
void hd_asked_watch(uint64_t (*turn)(char *text, size_t size));
/* Call hd_asked_watch first.  The thread that waits for signals calls over if a slot or kernel runs for longer than that. */
void hd_asked_watchdog(double seconds, void (*over)(const char *where, double seconds));
int hd_asked(void);             /* the signal's number; 0: not asked */
int hd_asked_by_launcher(void); /* it waits for this process no longer than its own limit */
/* Before an execv: what was asked, and what comes, waits for the program that follows.  -> 1: hd_asked_open is to be called again if
 * the execv fails */
int hd_asked_pass_on(void);

#endif
