/* SPDX-License-Identifier: Apache-2.0
 * engine/plugin/turn.h - records whose code is running: which slot of which plugin, or which file is being loaded.
 * Messages use it if that code crashes, ends the process or does not return.
 */
#ifndef HD_ENGINE_PLUGIN_TURN_H
#define HD_ENGINE_PLUGIN_TURN_H
#include <stddef.h>
#include <stdint.h>

struct hd_turn {
	char section[80], plugin[64], slot[64]; /* section: "strategy x"; slot "": the engine's own code */
	char file[512];                         /* the plugin's file that is being loaded; "": none */
	uint64_t count;                         /* changes with each turn */
};

/* Records whose turn it is; slot NULL: the engine's. Only one thread at a time may call it. From the first turn on, a
 * crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) or an exit in a slot is reported with plugin and slot. It also ends
 * the process. */
void hd_turn_note(const char *kind, const char *section, const char *plugin,
		  /* kind: strategy or plugin */
		  const char *slot);
/* Records that this plugin's file is being loaded, which runs its constructors and its entry; NULL: none. Crashes and
 * exits are reported as in a slot. */
void hd_turn_file(const char *path);
/* Records the running kernel of a section; NULL: none. Both texts must stay valid. */
void hd_turn_kernel(const char *section, const char *name);
/* Makes all further records go to `to` (memory that a parent reads); NULL: to this process's own. */
void hd_turn_share(struct hd_turn *to);
/* Writes " in slot rules of [strategy x]", " in kernel relu of [x]", " while FILE is loaded", or "" while the engine's own
 * code runs. Crash handlers call it too. */
void hd_turn_where(char *text, size_t size);
/* To be called from another thread: writes the same text, and returns a number that changes with each turn. */
uint64_t hd_turn_now(char *text, size_t size);
/* To be called before the first turn, if the caller has its own handlers for crashes and exits: turns then install
 * none. */
void hd_turn_handled(void);

/* -- guard.c ------------------------------------------------------------------------------------------------------- */
/* Runs what(arg) in a child process and returns its exit status, 0 to 255. The child's output is printed. If a slot
 * does not return within `seconds`, or ends the child, plugin and slot are reported and the status is 1. */
int hd_guard_run(int (*what)(void *arg), void *arg, int seconds);

#endif
