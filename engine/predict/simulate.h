/* SPDX-License-Identifier: Apache-2.0
 * engine/predict/simulate.h - how long a step takes on a machine that need not be at hand.
 */
#ifndef HD_ENGINE_PRICE_H
#define HD_ENGINE_PRICE_H
#include "engine/config/machine.h"
#include "engine/predict/style.h"
#include "engine/predict/work.h"
#include "engine/program/program.h"

struct hd_stage_price { /* of one rank of each stage, seconds of a step */
	int64_t rank, parameters;
	double memory;               /* bytes, as planned */
	double state;                /* of these, what is kept from step to step */
	double host_memory;          /* bytes there, where the device has memory of its own */
	double moved[2];             /* bytes to the device, to the host */
	double compute;              /* kernels */
	double kinds[HD_WORK_KINDS]; /* of them, by kind of work */
	double exposed;              /* waits for collectives and sends under way */
	double idle;                 /* waits for other stages */
	int between_nodes;           /* forward or backward has collectives between nodes */
	double collective;           /* collectives' own time, exposed or not */
	double more_flops;           /* of products: what the style computes besides the plan */
	double sent[HD_LINKS];       /* bytes on each class of links */
};
/* A unit on a stage, as one rank runs it; kind 0: it waits. */
struct hd_unit_span {
	struct hd_schedule_unit unit;
	double from, to;
	struct hd_memory_use use; /* at its fullest; of waits nothing */
};
struct hd_unit_spans { /* of a stage: units in their order, and waits within them */
	struct hd_unit_span *units, *waits;
	size_t nunits, nwaits, cap_units, cap_waits;
};
struct hd_server_price { /* of the ranks that hold no model, of each number the most */
	int64_t n, rank; /* how many, with ranks that do alike on other axes as one; the one of most memory */
	double memory, compute, link; /* link: seconds of pushes and pulls on its own */
	double sent[HD_LINKS];
};
struct hd_prediction {
	double step;  /* seconds: all stages have ended */
	double ended; /* the units of all stages */
	double host;  /* of the step, in which a host begins a GPU's step and waits for its end */
	double sharing; /* likewise, which ranks that share cores take beside the order of their units (hd_machine_busy) */
	double crowd; /* threads of the job's ranks for each core of a host; 1: no more than one, or no cores to share */
	struct hd_stage_price *stages;
	int64_t nstages;
	int want_spans;                 /* set before: spans, too */
	struct hd_unit_spans *spans;    /* by stage, or NULL */
	struct hd_server_price servers; /* n 0: there are none */
};
/* Builds the program of one rank per stage and runs all of them on paper.  Release out in either case. */
int hd_simulate(struct hd_plan *p, const struct hd_machine *m, const struct hd_style *style, struct hd_prediction *out,
		struct hd_err *err);
void hd_price_release(struct hd_prediction *r);

#endif
