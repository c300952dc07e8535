/* SPDX-License-Identifier: Apache-2.0
 * engine/plugin/turn.h - whose code runs: which slot of which plugin, for the message when it crashes, ends the process or
 * does not come back.
 */
#ifndef HD_ENGINE_PLUGIN_TURN_H
#define HD_ENGINE_PLUGIN_TURN_H
#include <stdint.h>

struct hd_turn {
	char section[64], plugin[64], slot[64]; /* slot "": the engine's own code */
	uint64_t count;                         /* another number: another turn */
};

/* Notes whose turn it is; slot NULL: the engine's.  One thread at a time. */
void hd_turn_note(const char *section, const char *plugin, const char *slot);
/* Notes go there from now on (memory that a parent reads); NULL: to this process' own. */
void hd_turn_share(struct hd_turn *to);
/* "slot lower of plugin NAME ([strategy AXIS])" for a turn, or "" for the engine's. */
int hd_turn_text(const struct hd_turn *t, char *text, unsigned long room);
/* A crash in a slot (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) or an exit from one is said with plugin and slot. */
void hd_turn_watch(void);

#endif
