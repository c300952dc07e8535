/* SPDX-License-Identifier: Apache-2.0
 * engine/search/evaluate.h - the plans that a search makes in child processes. They are plans of whole layouts, and of
 * small ones from which the time and memory of larger ones are derived.
 */
#ifndef HD_ENGINE_SEARCH_EVALUATE_H
#define HD_ENGINE_SEARCH_EVALUATE_H
#include "engine/predict/simulate.h"
#include "engine/search/space.h"

static inline double larger_of(double a, double b)
{
	return a > b ? a : b;
}

struct plan_verdict { /* whether a plan was possible */
	int code;     /* 0, or an error code */
	char why[200];
};

/* A probe is up to four small plans of a layout, which show what a layer, a micro-batch and a step cost. They leave out
 * the strategies of stages. They have the layers that do not repeat, then one or two periods of the others, and one or
 * two micro-batches. Index: (periods - 1) + 2 * (micro-batches - 1). If the layout computes two micro-batches at a
 * time, such a pair counts as one micro-batch in all of this. */
#define HD_PROBES 4
struct probe {
	struct plan_verdict verdict;
	int64_t micros; /* of a step of the whole layout */
	double step[HD_PROBES], compute[HD_PROBES], collective[HD_PROBES];
	double units[HD_PROBES]; /* the part of step in units of micro-batches; the rest occurs once a step */
	/* kept: the part of memory that is kept from forward to backward of a micro-batch */
	double memory[HD_PROBES], kept[HD_PROBES];
	double crowd; /* threads for each core in the whole layout, at least 1 */
	int queues;   /* groups that communicate, each at the same time as the others */
	int whole;    /* all four plans were made; 0: only the two with one micro-batch */
};

/* What is known of the order of units that the strategies of stages choose. */
struct order_probe {
	struct plan_verdict verdict;
	double bubble, bubble_of; /* bubble: idle over busy time, with bubble_of micro-batches */
	/* The most chunks of micro-batches that any stage keeps at once: in_flight with in_flight_of micro-batches a
	 * step, in_flight_more with in_flight_more_of. */
	double in_flight, in_flight_more, in_flight_of, in_flight_more_of;
	double chunks;
};

struct evaluated { /* the prediction for a whole layout */
	struct plan_verdict verdict;
	double step, memory; /* memory: of the rank that needs most */
	int64_t micro_batch; /* sequences of a replica's micro-batch */
};

struct evaluator {
	const struct space *space;
	const struct hd_machine *machine;
	const struct hd_style *style;
	struct hd_plan_options options; /* of the whole layout */
	int64_t dense;                  /* layers at the beginning that differ from the others: they have no experts */
	int64_t period;                 /* layers after which the pattern of the others repeats */
	int all_windows;                /* in probes all layers have the model's window */
};

/* Evaluates n layouts in child processes, several at once; out[i] is the result of layout i. */
void hd_search_evaluate(const struct evaluator *e, const struct space_layout *l, int64_t n, struct evaluated *out);
void hd_search_evaluate_probes(const struct evaluator *e, const struct space_layout *l, int64_t n, int whole,
			       struct probe *out);
struct order_wanted {
	struct space_layout layout; /* only its strategies of stages matter */
	const int64_t *micros;      /* micro-batches of a step, n values */
	int64_t n, first;           /* first: its results begin at out[first] */
};
void hd_search_evaluate_orders(const struct evaluator *e, const struct order_wanted *w, int64_t n,
			       struct order_probe *out);
/* Evaluates the layout of an INI as it stands. */
void hd_search_evaluate_own(const struct evaluator *e, struct hd_conf *c, struct evaluated *out);
/* Records in the space which sizes and choices strategy i refuses when it is used alone. Also records whether it is a
 * strategy of stages, that is, whether blocks are distributed along its axis. */
void hd_search_evaluate_alone(const struct evaluator *e, struct space *s, int i);
unsigned hd_search_evaluate_staged(const struct space *s); /* returns a bit for each strategy of stages */

/* -- bound.c: lower bounds and guesses for a whole layout, from its probe */
struct probe_shape { /* sizes of a layout that its probe does not have */
	int64_t stages, layers, micros;
	int64_t dense, period; /* as in the evaluator */
};

/* Returns a lower bound of the layout's step, in seconds: what kernels or collectives take on the busiest stage. Needs
 * all four plans of the probe. */
double hd_bound_step(const struct probe *p, const struct probe_shape *s);
/* Returns a lower bound of the memory, in bytes, of the rank that needs most. Needs the plans with one micro-batch. */
double hd_bound_memory(const struct probe *p, const struct probe_shape *s);

/* Guesses, not bounds: they decide what to look at first. hd_guess_quick needs only the plans with one micro-batch. */
double hd_guess_step(const struct probe *p, const struct probe_shape *s, const struct order_probe *o);
double hd_guess_memory(const struct probe *p, const struct probe_shape *s, const struct order_probe *o);
double hd_guess_quick(const struct probe *p, const struct probe_shape *s);
/* Guesses memory with one micro-batch in flight for each stage. states: the share of parameters, gradients and
 * states that counts. */
double hd_guess_quick_memory(const struct probe *p, const struct probe_shape *s, double states);

#endif
