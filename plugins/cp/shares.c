/* SPDX-License-Identifier: Apache-2.0
 * Which queries of a member see which keys of a turn, if attention is causal. In turn t member i has the keys of member
 * i - t (cyclically). If i < t, these come from a member further on in the sequence, whose tokens are later, so none of
 * them is visible.
 *
 * In zigzag order each member has an early half and a late half. Of two members, the one with the smaller number has
 * the earlier early half and the later late half. So all queries see the early half of the keys of a smaller number.
 * The late half of the queries sees all keys of a larger number. That is half of the pairs, on every member, in every
 * turn.
 */
#include "ring.h"

/* In turn t the nearest key is (t - 1) * tokens + 1 tokens before a query. With a window, tokens are in the order of
 * members. */
int64_t cp_turns(const struct cp_walk *w)
{
	int64_t reached = w->window > 1 ? 2 + (w->window - 2) / w->tokens : 1;

	return w->window && reached < w->members ? reached : w->members;
}

int cp_shares(const struct cp_walk *w, int64_t turn, struct cp_share *shares)
{
	if (w->causal && w->s->zigzag) {
		shares[0] = (struct cp_share){ (int32_t)turn, (int32_t)w->members, CP_WHOLE, CP_FIRST };
		shares[1] = (struct cp_share){ 0, (int32_t)turn, CP_SECOND, CP_WHOLE };
		return 2;
	}
	shares[0] = (struct cp_share){ w->causal ? (int32_t)turn : 0, (int32_t)w->members, CP_WHOLE, CP_WHOLE };
	return 1;
}

static int is_for_all(const struct cp_walk *w, const struct cp_share *x)
{
	return x->from == 0 && x->to == w->members;
}

void cp_begin_share(const struct cp_walk *w, const struct cp_share *x)
{
	const struct hd_members who = { .group = w->s->members, .from = x->from, .to = x->to };

	if (!is_for_all(w, x))
		w->s->g->only(w->p, &who);
}

void cp_end_share(const struct cp_walk *w)
{
	w->s->g->only(w->p, NULL);
}

struct hd_tensor *cp_choose(const struct cp_walk *w, const struct cp_share *x, struct hd_tensor *yes,
			    struct hd_tensor *no)
{
	const struct hd_members who = { .group = w->s->members, .from = x->from, .to = x->to };

	return is_for_all(w, x) ? yes : w->s->g->either(w->p, &who, yes, no);
}

static struct hd_tensor *half(const struct cp_walk *w, struct hd_tensor *x, int which)
{
	const struct hd_pos at = { .add = which == CP_SECOND };

	return w->s->g->chunk(w->p, x, w->s->seq, 2, &at);
}

struct hd_tensor *cp_take(const struct cp_walk *w, struct hd_tensor *x, int which)
{
	return which == CP_WHOLE ? x : half(w, x, which);
}

struct hd_tensor *cp_put(const struct cp_walk *w, struct hd_tensor *old, int which, struct hd_tensor *with)
{
	struct hd_tensor *both[2];

	if (which == CP_WHOLE)
		return with;
	both[0] = which == CP_FIRST ? with : half(w, old, CP_FIRST);
	both[1] = which == CP_SECOND ? with : half(w, old, CP_SECOND);
	return w->s->g->join(w->p, both, 2, w->s->seq, NULL);
}
