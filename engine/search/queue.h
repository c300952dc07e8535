/* SPDX-License-Identifier: Apache-2.0
 * engine/search/queue.h - the state of a search: what it has yet to look at, what it has found and what it has dropped.
 */
#ifndef HD_ENGINE_SEARCH_QUEUE_H
#define HD_ENGINE_SEARCH_QUEUE_H
#include "engine/search/search.h"

/* Kinds of entries. A family was probed, or a relative of it was. Values are a family's layouts with one value of each
 * key. A layout is ordered once its order of units is known. */
enum { QUEUED_FAMILY, QUEUED_VALUES, QUEUED_LAYOUT, QUEUED_ORDERED, QUEUED_KINDS };
struct queued {
	struct space_layout layout;
	double key;           /* seconds that it may take; the smallest key is taken first */
	double bound;         /* lower bound of its step, in seconds; 0 for families and values */
	double guess, memory; /* once its order is known: the guessed step in seconds and memory in bytes */
	double likely;        /* the guess after correction, longer if it is unlikely to fit */
	int64_t layouts, serial;
	int64_t probe;         /* of a layout: the index of its probe */
	int keys;              /* hd_layout_keys: if two have the same `key`, the one with fewer keys is first */
	int64_t seen;          /* number of layouts planned whole when `key` was computed */
	int kind, deferred;    /* deferred: it is like a layout that is taken before it */
	int without_relatives; /* a family without its relatives, which are queued separately */
};

struct known_order { /* an order of units */
	struct space_layout layout;
	int64_t micros;
	struct order_probe probe;
};

struct search_state {
	const struct search_options *o;
	struct search_result *out;
	struct evaluator e;
	double limit, best;
	int all_orders;
	int own_apart;                 /* the INI's own layout fits, but no point of the space is the same */
	struct space_layout *families; /* yet to be probed */
	int64_t nfamilies, all_families;
	size_t cap_families;
	struct queued *items; /* a heap, the smallest key first */
	int64_t nitems, serial;
	size_t cap_items, cap_found;
	struct probe *probes; /* of the queued layouts */
	int64_t nprobes;
	size_t cap_probes;
	struct known_order *orders;
	int64_t norders, made_orders, batch; /* made_orders: how many are computed; batch: sequences of a step */
	size_t cap_orders;
	struct space_layout nearest; /* of the layouts without room, the one guessed to need the least memory */
	double nearest_memory;       /* that guess, in bytes; 0: there is no such layout */
	double slowest;              /* smallest bound of the layouts that were dropped as slower than the best */
};

/* Returns whether the search may leave out layouts that are merely unlikely to be the best. */
static inline int hd_search_is_limited(const struct search_state *s)
{
	return s->o->tries && !s->o->unbounded;
}

/* Returns the factor that makes a layout's key larger if it is unlikely to fit, so that it is taken later. */
static inline double hd_search_penalty(const struct search_state *s, double memory)
{
	return s->limit > 0 && memory > s->limit ? 1 + 4 * (memory / s->limit - 1) : 1;
}

/* -- families.c */
/* Returns the last strategy that the layout uses, in the order of the space, other than strategies of stages. It is the
 * outermost, and its choices are likely to change the least. Returns -1 if there is none. */
int hd_search_last_used(const struct space *of, const struct space_layout *l);
/* Returns how many alternatives of strategy i are tried with all sizes. */
int hd_search_choices(const struct search_state *s, int i);
/* Returns how many values of key i are tried with all layouts. */
int hd_search_values(const struct search_state *s, int i);
struct probe_shape hd_search_shape(const struct search_state *s, const struct space_layout *l, int64_t micros);
/* Returns how many combinations the choices of the strategies of stages have. Each layout of a family has
 * one of them. */
int64_t hd_search_staged_choices(const struct search_state *s, const struct space_layout *l);
/* Returns why strategy i, used alone, refuses its size and choice, or NULL. */
const char *hd_search_refused(const struct search_state *s, const struct space_layout *l, int i);
void hd_search_add_families(struct search_state *s);
/* Queues those that are possible and may fit, and drops the others. */
void hd_search_probe_families(struct search_state *s);
/* Queues the n families and their relatives with each value of the keys. */
void hd_search_open_families(struct search_state *s, const struct queued *v, int64_t n);

/* -- queue.c */
void hd_search_add_family(struct search_state *s, const struct space_layout *l);
void hd_search_push(struct search_state *s, const struct queued *it);
int hd_search_by_key(const void *a, const void *b);            /* compares two struct queued, for qsort */
int hd_search_pop(struct search_state *s, struct queued *out); /* returns 0 if the heap is empty */

/* Stores a copy of the probe, and returns its index. */
int64_t hd_search_add_probe(struct search_state *s, const struct probe *p);

/* Orders of units. Each is computed once. */
void hd_search_want_order(struct search_state *s, const struct space_layout *l, int64_t micros);
void hd_search_make_orders(struct search_state *s);
const struct order_probe *hd_search_order(struct search_state *s, const struct space_layout *l, int64_t micros);

void hd_search_add_found(struct search_state *s, const struct queued *it, const struct evaluated *r);
/* Adds the INI's own layout as it stands, if it is no point of the space and at least as fast as the best. */
void hd_search_add_own(struct search_state *s);
/* Counts l in the result if it is none of the layouts that are counted at the beginning. */
void hd_search_count(struct search_state *s, const struct space_layout *l);
/* Returns whether l was planned whole. */
int hd_search_is_planned(const struct search_state *s, const struct space_layout *l);
/* Returns whether a twin of the layout was planned whole: one that small plans cannot tell from it. */
int hd_search_has_twin(const struct search_state *s, const struct queued *it);
/* Returns whether the layout is the same as its twin in all. That is assumed if their difference changed nothing
 * between two similar layouts that were planned whole. */
int hd_search_is_same(const struct search_state *s, const struct queued *it);
void hd_search_drop_same(struct search_state *s, const struct queued *it);
void hd_search_drop_refused(struct search_state *s, const struct space_layout *l, int64_t layouts, const char *why);
/* Returns whether l, whose probe is p, has no room in memory. If so, it is dropped and counts as `layouts` layouts. */
int hd_search_drop_if_no_room(struct search_state *s, const struct space_layout *l, int64_t layouts,
			      const struct probe *p, const struct probe_shape *shape);
/* Uncounts layouts that were dropped for lack of room but planned after all. */
void hd_search_uncount_no_room(struct search_state *s, int64_t layouts);
void hd_search_drop_slower(struct search_state *s, const struct queued *it);
void hd_search_end(struct search_state *s); /* sorts the layouts found and dropped, and frees the rest */

#endif
