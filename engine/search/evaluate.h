/* SPDX-License-Identifier: Apache-2.0
 * engine/search/evaluate.h - what is planned for a search, in child processes: whole layouts, and small ones from which the
 * time and memory of larger ones follow.
 */
#ifndef HD_ENGINE_SEARCH_EVALUATE_H
#define HD_ENGINE_SEARCH_EVALUATE_H
#include "engine/predict/simulate.h"
#include "engine/search/space.h"

static inline double larger_of(double a, double b)
{
	return a > b ? a : b;
}

struct judged {   /* whether a plan was possible */
	int code; /* 0, or an error's */
	char why[200];
};

/* A layout without the strategy of stages, with one period of layers or two behind those that do not repeat, and one micro-batch
 * or two: what a layer, a micro-batch and a step cost.  Index: layers + 2 * micro-batches. */
#define HD_PROBES 4
struct probe {
	struct judged judged;
	int64_t micros; /* of the whole layout */
	double step[HD_PROBES], compute[HD_PROBES], collective[HD_PROBES];
	double units[HD_PROBES]; /* of step: in units of micro-batches; the rest is once a step */
	double memory[HD_PROBES],
		kept[HD_PROBES]; /* kept: of memory, what backward of a micro-batch reads of forward */
	double crowd;            /* ranks of the whole layout that share a core, or 1 */
	int queues;              /* groups that communicate: each beside the others */
	int whole;               /* all four; else those of one micro-batch */
};

/* The order of units that the strategy of stages makes, in units of time. */
struct order_probe {
	struct judged judged;
	double bubble, bubble_of; /* of so many micro-batches */
	double in_flight, in_flight_more, in_flight_of,
		in_flight_more_of; /* chunks of micro-batches, at most of all stages */
	double chunks;
};

struct evaluated { /* of a whole layout */
	struct judged judged;
	double step, memory; /* of the stage that needs most */
};

struct evaluator {
	const struct space *space;
	const struct hd_machine *machine;
	const struct hd_style *style;
	struct hd_plan_options options; /* of the whole layout */
	int64_t dense;                  /* layers at the beginning that are unlike the others: without experts */
	int64_t period;                 /* layers after which the others repeat */
	int all_windows;                /* probes have the model's window in all layers */
};

/* Each beside the others; of layout i into out[i]. */
void hd_search_evaluate(const struct evaluator *e, const struct space_layout *l, int64_t n, struct evaluated *out);
void hd_search_evaluate_probes(const struct evaluator *e, const struct space_layout *l, int64_t n, int whole,
			       struct probe *out);
struct order_wanted {
	struct space_layout layout; /* its strategies of stages count */
	const int64_t *micros;      /* of a step; n numbers of them */
	int64_t n, first;           /* first: the results are out[first], ... */
};
void hd_search_evaluate_orders(const struct evaluator *e, const struct order_wanted *w, int64_t n,
			       struct order_probe *out);
void hd_search_evaluate_given(const struct evaluator *e, struct hd_conf *c,
			      struct evaluated *out); /* of an INI as it is */
/* Notes in the space which sizes and choices strategy i refuses by itself, and whether blocks are dealt to its axis. */
void hd_search_evaluate_alone(const struct evaluator *e, struct space *s, int i);
unsigned hd_search_evaluate_staged(const struct space *s); /* a bit for each of those */

/* -- bound.c: what follows from probes, what a layout cannot be better than and what it may be */
struct probe_shape { /* of a layout, what its probe does not have */
	int64_t stages, layers, micros;
	int64_t dense, period; /* as of the evaluator */
};

/* No stage of the layout computes for less than this, nor do its collectives take less; seconds of a step.  From all four
 * probes. */
double hd_bound_step(const struct probe *p, const struct probe_shape *s);
/* No layout needs less memory: bytes of the rank that needs most.  From the probes of one micro-batch. */
double hd_bound_memory(const struct probe *p, const struct probe_shape *s);

/* Not bounds: what to look at first.  quick: the probe is of one micro-batch alone. */
double hd_guess_step(const struct probe *p, const struct probe_shape *s, const struct order_probe *o);
double hd_guess_memory(const struct probe *p, const struct probe_shape *s, const struct order_probe *o);
double hd_guess_quick(const struct probe *p, const struct probe_shape *s);
/* As many micro-batches in flight as there are stages; states: the part of parameters, gradients and states that counts. */
double hd_guess_quick_memory(const struct probe *p, const struct probe_shape *s, double states);

#endif
