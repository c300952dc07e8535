/* SPDX-License-Identifier: Apache-2.0
 * engine/plugin/turn.h - whose code runs: which slot of which plugin, for the message when it crashes, ends the process or
 * does not return.
 */
#ifndef HD_ENGINE_PLUGIN_TURN_H
#define HD_ENGINE_PLUGIN_TURN_H
#include <stddef.h>
#include <stdint.h>

struct hd_turn {
	char section[80], plugin[64], slot[64]; /* section: "strategy x"; slot "": the engine's own code */
	uint64_t count;                         /* another number: another turn */
};

/* Notes whose turn it is; slot NULL: the engine's.  One thread at a time.  From the first turn on a crash (SIGSEGV, SIGBUS,
 * SIGFPE, SIGILL, SIGABRT) or an exit in a slot is reported with plugin and slot, and ends the process. */
void hd_turn_note(const char *kind, const char *section, const char *plugin,
		  const char *slot); /* kind: strategy, plugin */
/* The kernel of a section that runs; NULL: none.  Both texts stay where they are. */
void hd_turn_kernel(const char *section, const char *name);
/* Notes go there from now on (memory that a parent reads); NULL: to this process' own. */
void hd_turn_share(struct hd_turn *to);
/* " in slot rules of [strategy x]", " in kernel relu of [x]", or "" while the engine's own code runs.  May be called in a signal's handler. */
void hd_turn_where(char *text, size_t size);
/* From another thread: the same text, and a number that is another one with each turn. */
uint64_t hd_turn_now(char *text, size_t size);
/* The caller has handlers of its own for crashes and exits: turns install none.  Before the first turn. */
void hd_turn_handled(void);

/* -- guard.c -------------------------------------------------------------------------------------------------------------- */
/* Runs what(arg) in a child process -> its exit status, 0 to 255; what it prints is printed.  A slot that does not return
 * within so many seconds, or ends the child, is reported with plugin and slot, and the status is 1. */
int hd_guard_run(int (*what)(void *arg), void *arg, int seconds);

#endif
