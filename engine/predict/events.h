/* SPDX-License-Identifier: Apache-2.0
 * engine/predict/events.h - the program of a rank as a list of events: what it computes, starts and waits for, each
 * with its price.
 *
 * A node does the same in every micro-batch. So it is priced once for the program, and its events refer to that price.
 */
#ifndef HD_ENGINE_PREDICT_EVENTS_H
#define HD_ENGINE_PREDICT_EVENTS_H
#include "engine/predict/price.h"
#include "engine/predict/simulate.h"

/* MEET: a collective over stages; MARK: a unit begins. */
enum { HD_EVENT_START, HD_EVENT_SEND, HD_EVENT_RECEIVE, HD_EVENT_MEET, HD_EVENT_WAIT, HD_EVENT_MARK, HD_EVENT_END };
struct event {            /* a step has millions of them */
	uint32_t compute; /* index in seconds: the kernels before this event */
	uint32_t key;     /* identifies a message, a meeting or a unit */
	int32_t request;
	signed number : 28; /* index of a movement's price, or -1 */
	unsigned kind : 4;
};
struct event_price {               /* of a movement */
	double seconds;            /* from the moment when all members have arrived */
	double occupied[HD_LINKS]; /* the part of them in which a link carries nothing else */
	/* queue: group id, or a number after those; waits: kernels wait until the movement has ended. */
	int32_t queue, waits;
};
struct events { /* of one rank */
	struct event *v;
	double *seconds; /* times of kernels between events, each value once */
	struct event_price *prices;
	size_t n, cap, nprices, cap_prices, nseconds, cap_seconds;
	int32_t requests; /* number of requests in use at once; a request that has been waited for is used again */
};

struct priced;        /* the price of a node or tensor of the current program */
struct event_source { /* what the events of all ranks of a plan share */
	struct hd_plan *p;
	const struct hd_machine *m;
	int64_t *index;   /* by node id: consecutive numbers of the movements over several stages; -1: other nodes */
	int64_t *members; /* by index: stages that take part */
	int64_t meetings; /* number of these movements */
	int aside;        /* a server's program is priced; it is not replayed with the stages */
	/* Seconds of the update on the servers of the current stage, which its first pull waits for. */
	double serving;
	struct priced *nodes, *added; /* by node id, by tensor id */
	int64_t programs;             /* number of programs that were priced */
};

void hd_event_source_begin(struct event_source *s, struct hd_plan *p, const struct hd_machine *m);
void hd_event_source_end(struct event_source *s);
/* Makes the events of a program, and their sums. spans: records its units, or is NULL. The caller releases `to`. */
void hd_events_make(struct event_source *s, const struct hd_pricing *price, struct events *to,
		    struct hd_stage_price *sum, struct hd_unit_spans *spans);
void hd_events_release(struct events *e);

#endif
