/* SPDX-License-Identifier: Apache-2.0
 * engine/process/asked.h - signals that ask a run to end: SIGTERM, SIGINT, SIGHUP and SIGUSR1. A closed terminal sends
 * SIGHUP. Batch systems send SIGUSR1 some time before they kill.
 *
 * From hd_end_request_open on, such a signal is remembered, and the run saves and ends as soon as it can. In two cases
 * the process ends instead, with status 1 and a message that nothing is saved. First, a signal came early, and the run
 * does not reach hd_end_request_ready within two seconds; turning text into ids may take an hour. Second, a slot or
 * kernel of a plugin does not return. It is given a minute, or two seconds if a second signal comes.
 */
#ifndef HD_ENGINE_ASKED_H
#define HD_ENGINE_ASKED_H
#include <stddef.h>
#include <stdint.h>

/* Starts to wait for the signals. A run calls it first, also when the process has started itself
 * again (affinity.h). */
void hd_end_request_open(void);
/* Returns whether SIGHUP ends this process; nohup has it ignored. An ignored signal that is blocked would be waited for
 * all the same. */
int hd_hangup_ends(void);
/* Says that from here on the run checks hd_end_requested. If the launcher itself sends SIGTERM or SIGINT, and so ends
 * the run, `ending` is called, perhaps on the thread that waits for signals. It may be NULL. */
void hd_end_request_ready(void (*ending)(void));
/* Sets a line that rank 0 writes to the launcher's stderr, once, as soon as SIGTERM or SIGINT comes, or now if it has
 * come. It is not written if failed returns 1: then the launcher ends a job that has failed, and nobody has asked.
 * The function is also called on the thread that waits for signals. The text must stay valid. Call hd_launch_open_stderr
 * first. */
void hd_end_request_notice(const char *text, int (*failed)(void));
/* Sets a function that tells what plugins do. It writes which slot or kernel is running ("" if none is), and returns a
 * number that changes with each call of one. */
void hd_end_request_watch(uint64_t (*turn)(char *text, size_t size));
/* Calls `over`, on the thread that waits for signals, if one slot or kernel runs for longer than so many seconds. Call
 * hd_end_request_watch first. */
void hd_end_request_watchdog(double seconds, void (*over)(const char *where, double seconds));
int hd_end_requested(void); /* returns the signal's number, or 0 if the run was not asked to end */
/* Returns 1 if the launcher asked. It kills this process after its own time limit. */
int hd_end_requested_by_launcher(void);
/* Prepares an execv: signals that have come, and those that come now, stay pending for the new program. Returns 1 if
 * hd_end_request_open must be called again should the execv fail. */
int hd_end_request_pass_on(void);

#endif
