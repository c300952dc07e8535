/* SPDX-License-Identifier: Apache-2.0
 * engine/predict/simulate.h - predicts how long a step takes on a machine that need not be at hand.
 */
#ifndef HD_ENGINE_SIMULATE_H
#define HD_ENGINE_SIMULATE_H
#include "engine/config/machine.h"
#include "engine/predict/style.h"
#include "engine/predict/work.h"
#include "engine/program/program.h"

struct hd_stage_price { /* of one rank of a stage, in seconds of a step */
	int64_t rank, parameters;
	double memory;               /* bytes, as planned */
	double state;                /* the part of it that is kept from step to step */
	double host_memory;          /* bytes of host memory, if the device has memory of its own */
	double moved[2];             /* bytes to the device, to the host */
	double compute;              /* kernels */
	double kinds[HD_WORK_KINDS]; /* the same, by kind of work */
	double exposed;              /* waits for collectives and sends under way */
	double idle;                 /* waits for other stages */
	int between_nodes;           /* forward or backward has collectives between nodes */
	double collective;           /* collectives' own time, exposed or not */
	double more_flops;           /* FLOPs of products that the style computes in addition to the plan */
	double sent[HD_LINKS];       /* bytes on each class of links */
};
/* A unit on a stage, as one rank runs it. Kind 0: a wait. */
struct hd_unit_span {
	struct hd_schedule_unit unit;
	double from, to;
	struct hd_memory_use use; /* at its peak; 0 for waits */
};
struct hd_unit_spans { /* of a stage: units in their order, and waits within them */
	struct hd_unit_span *units, *waits;
	size_t nunits, nwaits, cap_units, cap_waits;
};
struct hd_server_price { /* of the parameter servers: the maximum of each value */
	/* n: their number, which may exceed that of the programs priced; rank: the one with most memory. */
	int64_t n, rank;
	double memory, compute, link; /* link: seconds of pushes and pulls over its own link */
	double sent[HD_LINKS];
};
struct hd_prediction {
	double step;  /* seconds of the step */
	double ended; /* when the units of all stages have ended */
	double host;  /* the part of step in which a host begins a GPU's step and waits for its end */
	/* The part of step that ranks which share cores need beyond the order of their units (hd_machine_busy). */
	double sharing;
	/* Threads of the job's ranks for each core of a host; 1: at most one, or there are no cores to share. */
	double crowd;
	struct hd_stage_price *stages;
	int64_t nstages;
	int want_spans;                 /* set by the caller to get spans, too */
	struct hd_unit_spans *spans;    /* by stage, or NULL */
	struct hd_server_price servers; /* n 0: there are none */
};
/* Builds the program of one rank per stage and simulates all of them together. Release out in either case. */
int hd_simulate(struct hd_plan *p, const struct hd_machine *m, const struct hd_style *style, struct hd_prediction *out,
		struct hd_err *err);
void hd_prediction_release(struct hd_prediction *r);
/* Returns the memory of the rank that needs most, in bytes: a worker or a server. */
double hd_prediction_memory(const struct hd_prediction *r);
double hd_plan_tokens(const struct hd_plan *p);                           /* of a step */
double hd_plan_peak(const struct hd_plan *p, const struct hd_machine *m); /* FLOP/s of all workers */

#endif
