/* SPDX-License-Identifier: Apache-2.0
 * engine/search/queue.h - what a search has yet to look at, what it has found and what it has lost.
 */
#ifndef HD_ENGINE_SEARCH_QUEUE_H
#define HD_ENGINE_SEARCH_QUEUE_H
#include "engine/search/search.h"

/* Kinds.  A family: it was probed, or a relative.  Its layouts with one value of each key.  A layout.  One whose order of units is
 * known. */
enum { QUEUED_FAMILY, QUEUED_VALUES, QUEUED_LAYOUT, QUEUED_ORDERED, QUEUED_KINDS };
struct queued {
	struct space_layout layout;
	double key;           /* seconds that it may take; the smallest first */
	double bound;         /* that it cannot take less than; 0 of families and values */
	double guess, memory; /* of one whose order is known: what it may take, seconds and bytes */
	double likely;        /* the guess corrected, and longer if it is unlikely to fit */
	int64_t layouts, serial;
	int64_t probe;  /* of layouts: its number */
	int keys;       /* hd_layout_keys: of two that take as long the one with fewer is the first */
	int64_t seen;   /* layouts that had been planned whole when the key was made */
	int kind, late; /* late: like one that is looked at before */
	int alone;      /* a family without its relatives, which are queued by themselves */
};

struct known_order { /* of units */
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
	struct space_layout *families; /* that are to be probed */
	int64_t nfamilies, all_families;
	size_t cap_families;
	struct queued *items; /* a heap */
	int64_t nitems, serial;
	size_t cap_items, cap_found;
	struct probe *probes; /* of layouts that are queued */
	int64_t nprobes;
	size_t cap_probes;
	struct known_order *orders;
	int64_t norders, made_orders, batch; /* batch: sequences of a step */
	size_t cap_orders;
	struct space_layout nearest; /* of those the one that is guessed to need least */
	double nearest_memory;       /* the guess, bytes; 0: there is none */
	double slowest;              /* bound of what was lost to the best: the smallest */
};

/* What is unlikely to fit is later: the factor of a key. */
static inline double hd_search_penalty(const struct search_state *s, double memory)
{
	return s->limit > 0 && memory > s->limit ? 1 + 4 * (memory / s->limit - 1) : 1;
}

/* -- families.c */
/* Of a layout's strategies the one whose choices change least, as far as anybody can tell: the outermost that is used.  -1: there is
 * none. */
int hd_search_last_used(const struct space *of, const struct space_layout *l);
/* Alternatives of strategy i that are tried with all sizes. */
int hd_search_choices(const struct search_state *s, int i);
struct probe_shape hd_search_shape(const struct search_state *s, const struct space_layout *l, int64_t micros);
/* Choices of strategies of stages, of which each layout of a family has one. */
int64_t hd_search_staged_choices(const struct search_state *s, const struct space_layout *l);
/* Why strategy i refuses its size and choice by itself, or NULL. */
const char *hd_search_refused(const struct search_state *s, const struct space_layout *l, int i);
void hd_search_add_families(struct search_state *s);
void hd_search_judge_families(struct search_state *s); /* queues those that may be fast, and loses the others */
/* Queues what they and their relatives are with each value of the keys. */
void hd_search_open_families(struct search_state *s, const struct queued *v, int64_t n);

/* -- queue.c */
void hd_search_family(struct search_state *s, const struct space_layout *l);
void hd_search_push(struct search_state *s, const struct queued *it);
int hd_search_by_key(const void *a, const void *b);            /* of struct queued, for qsort */
int hd_search_pop(struct search_state *s, struct queued *out); /* 0: none is left */

int64_t hd_search_probe(struct search_state *s, const struct probe *p); /* keeps it. -> its number */

/* Orders of units, each made once. */
void hd_search_want_order(struct search_state *s, const struct space_layout *l, int64_t micros);
void hd_search_make_orders(struct search_state *s);
const struct order_probe *hd_search_order(struct search_state *s, const struct space_layout *l, int64_t micros);

void hd_search_found(struct search_state *s, const struct queued *it, const struct evaluated *r);
int hd_search_known(const struct search_state *s, const struct space_layout *l); /* it was planned whole */
/* One that small plans cannot tell from it was planned whole. */
int hd_search_has_twin(const struct search_state *s, const struct queued *it);
/* And what they differ in changed nothing between two layouts like them, both planned whole: it is the same in all. */
int hd_search_is_same(const struct search_state *s, const struct queued *it);
void hd_search_same(struct search_state *s, const struct queued *it);
void hd_search_lost(struct search_state *s, const struct space_layout *l, int64_t layouts, const char *why);
/* p: of l.  -> whether there is no room for it, and then it is lost. */
int hd_search_no_room(struct search_state *s, const struct space_layout *l, int64_t layouts, const struct probe *p,
		      const struct probe_shape *shape);
void hd_search_had_no_room(struct search_state *s, int64_t layouts); /* so many were planned nevertheless */
void hd_search_slower(struct search_state *s, const struct queued *it);
void hd_search_end(struct search_state *s); /* sorts what was found and lost, frees the rest */

#endif
