/* SPDX-License-Identifier: Apache-2.0
 * engine/search/bound.h - what follows from probes: what a layout cannot be better than, and what it may be.
 */
#ifndef HD_ENGINE_SEARCH_BOUND_H
#define HD_ENGINE_SEARCH_BOUND_H
#include "engine/search/evaluate.h"

struct probe_shape { /* of a layout, what its probe does not have */
	int64_t stages, layers, period, micros;
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

#endif
