/* SPDX-License-Identifier: Apache-2.0
 * engine/predict/events.h - the program of a rank as what it computes, starts and waits for, each with its price.
 *
 * A node does the same in every micro-batch, so it is priced once for the program, and its events name that price.
 */
#ifndef HD_ENGINE_PREDICT_EVENTS_H
#define HD_ENGINE_PREDICT_EVENTS_H
#include "engine/predict/price.h"
#include "engine/predict/simulate.h"

/* MEET: a collective over stages; MARK: a unit begins. */
enum { HD_EVENT_START, HD_EVENT_SEND, HD_EVENT_RECEIVE, HD_EVENT_MEET, HD_EVENT_WAIT, HD_EVENT_MARK, HD_EVENT_END };
struct event {            /* a step has millions of them */
	uint32_t compute; /* of seconds: the kernels before it */
	uint32_t key;     /* of a message, a meeting or a unit: which */
	int32_t request;
	signed number : 28; /* of its price, of what moves */
	unsigned kind : 4;
};
struct event_price {               /* of a movement */
	double seconds;            /* from the moment that all have come */
	double occupied[HD_LINKS]; /* of them, in which a link carries nothing else */
	int32_t queue, waits;      /* queue: group id, or behind those; waits: kernels wait until it has ended */
};
struct events { /* of one rank */
	struct event *v;
	double *seconds; /* of kernels, each length once */
	struct event_price *prices;
	size_t n, cap, nprices, cap_prices, nseconds, cap_seconds;
	int32_t requests; /* numbers of movements; what has been waited for gives its number to another */
};

struct priced;        /* a node or tensor of the program at hand */
struct event_source { /* what the events of all ranks of a plan have in common */
	struct hd_plan *p;
	const struct hd_machine *m;
	int64_t *index;   /* by node id: of those that more than one stage takes part in, dense; -1: others */
	int64_t *members; /* by index: stages that take part */
	int64_t meetings; /* of them: how many */
	int aside;        /* a server's program is priced: it is not replayed among the stages */
	double serving;   /* seconds that the servers of the stage at hand update, which its first pull waits for */
	struct priced *nodes, *added; /* by node id, by tensor id */
	int64_t programs;             /* that were priced */
};

void hd_event_source_begin(struct event_source *s, struct hd_plan *p, const struct hd_machine *m);
void hd_event_source_end(struct event_source *s);
/* The events of a program, and what they sum up to; spans: its units are noted there, unless NULL.  Release `to`. */
void hd_events_make(struct event_source *s, const struct hd_pricing *price, struct events *to,
		    struct hd_stage_price *sum, struct hd_unit_spans *spans);
void hd_events_release(struct events *e);

#endif
