/* SPDX-License-Identifier: Apache-2.0
 * plugins/cp/ring.h - which queries of a member see which keys of a turn.
 */
#ifndef HD_PLUGIN_CP_RING_H
#define HD_PLUGIN_CP_RING_H
#include "cp.h"

struct cp_walk { /* one node, while it is lowered */
	struct hd_strategy *s;
	struct hd_plan *p;
	struct hd_node *n;
	int64_t members, turns; /* turns: in which keys are seen */
	int causal;
	double scale; /* 0: the engine's default */
	double softcap;
	int64_t window; /* tokens that a query sees, its own included; 0: all before it */
	int64_t tokens; /* of a member */
};

enum { CP_WHOLE, CP_FIRST, CP_SECOND }; /* what of a member's tokens: all, or a half of them */
#define CP_SHARES 2
struct cp_share {
	int32_t from, to; /* the members whose share it is */
	int queries, keys;
};

/* Turns in which somebody sees a key: all, or so many as a window reaches. */
int64_t cp_turns(const struct cp_walk *w);
/* Of a turn from 1 on, at most CP_SHARES; a member has one of them, or none.  -> their number */
int cp_shares(const struct cp_walk *w, int64_t turn, struct cp_share *shares);
/* Nodes between the two run on the members of the share. */
void cp_begin_share(const struct cp_walk *w, const struct cp_share *x);
void cp_end_share(const struct cp_walk *w);
/* yes on the members of the share, no on the others. */
struct hd_tensor *cp_choose(const struct cp_walk *w, const struct cp_share *x, struct hd_tensor *yes,
			    struct hd_tensor *no);
struct hd_tensor *cp_take(const struct cp_walk *w, struct hd_tensor *x, int which);
struct hd_tensor *cp_put(const struct cp_walk *w, struct hd_tensor *old, int which, struct hd_tensor *with);

#endif
