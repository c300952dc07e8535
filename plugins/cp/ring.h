/* SPDX-License-Identifier: Apache-2.0
 * plugins/cp/ring.h - which queries of a member see which keys of a turn.
 */
#ifndef HD_PLUGIN_CP_RING_H
#define HD_PLUGIN_CP_RING_H
#include "cp.h"

struct cp_walk { /* one node while it is lowered */
	struct hd_strategy *s;
	struct hd_plan *p;
	struct hd_node *n;
	int64_t members, turns; /* turns: how many turns have keys that a query sees */
	int causal;
	double scale; /* 0: the engine's default */
	double softcap;
	int64_t window; /* tokens that a query sees, including its own; 0: all before it */
	int64_t tokens; /* tokens per member */
};

enum { CP_WHOLE, CP_FIRST, CP_SECOND }; /* a member's tokens: all, or one half of them */
#define CP_SHARES 2
struct cp_share {
	int32_t from, to; /* members whose share this is: from <= index < to */
	int queries, keys;
};

/* Returns the number of turns in which any query sees a key: all turns, or those that the window reaches. */
int64_t cp_turns(const struct cp_walk *w);
/* Fills in the shares of a turn from 1 on, at most CP_SHARES, and returns their number. Each member has at most one. */
int cp_shares(const struct cp_walk *w, int64_t turn, struct cp_share *shares);
/* Nodes built between these two calls run only on the members of the share. */
void cp_begin_share(const struct cp_walk *w, const struct cp_share *x);
void cp_end_share(const struct cp_walk *w);
/* Returns yes on the members of the share, no on the others. */
struct hd_tensor *cp_choose(const struct cp_walk *w, const struct cp_share *x, struct hd_tensor *yes,
			    struct hd_tensor *no);
/* cp_take returns a half of x along seq, or all of x; cp_put returns `old` with that half replaced. */
struct hd_tensor *cp_take(const struct cp_walk *w, struct hd_tensor *x, int which);
struct hd_tensor *cp_put(const struct cp_walk *w, struct hd_tensor *old, int which, struct hd_tensor *with);

#endif
