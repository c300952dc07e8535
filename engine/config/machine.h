/* SPDX-License-Identifier: Apache-2.0
 * engine/config/machine.h - a machine that need not be at hand, as an INI file describes it, for heddle plan. It is hardware,
 * and nothing of how a program uses it.
 */
#ifndef HD_ENGINE_MACHINE_H
#define HD_ENGINE_MACHINE_H
#include <stdint.h>
#include "engine/base/err.h"
#include "engine/config/curve.h"

enum { HD_LINK_NODE, HD_LINK_NETWORK, HD_LINKS }; /* between ranks of one node; between nodes */
struct hd_link {
	double bandwidth, latency; /* bytes per second: of a rank within its node, of a card; seconds of a message */
	struct hd_size_curve efficiency; /* share of the bandwidth, by bytes that a rank sends at once */
};
struct hd_rates; /* engine/rates/rates.h */
struct hd_machine {
	char name[80];
	int64_t ranks_per_node, cards; /* cards: to the network, of a node */
	double memory;                 /* bytes of a rank */
	double slow; /* this many times as long slow_rank computes; 0: no rank is slow.  Of plan --slow, not of the file */
	int64_t slow_rank;
	double flops_fp32, flops_bf16;   /* peak of products, of a rank, per second */
	int bf16_is_fp32;                /* the file has no flops_bf16, so it is flops_fp32 */
	double sustained_clock;          /* share of the peak's clock that it keeps while products run */
	struct hd_size_curve efficiency; /* of the peak that products reach, by their FLOPs */
	struct hd_size_curve extent;     /* share of that, by the smallest of a product's three extents */
	double older_instructions;       /* share of flops_bf16 that is the peak of older kernels */
	double memory_bandwidth;         /* bytes per second, of a rank */
	struct hd_size_curve transfer;   /* share of it, by the bytes that a kernel moves */
	double kernel_latency;           /* seconds that each kernel costs besides */
	double overlap_cost;             /* share of the compute units that a movement under way takes */
	struct hd_size_curve all_reduce; /* of a node's bandwidth that sums over whole nodes reach, by their number */
	double incast;                   /* share of its bandwidth that a card keeps while several send to it */
	double host_link,
		host_memory_bandwidth; /* bytes per second: device to host and back, each way; of its kernels there */
	/* bytes of a rank besides what is planned: the device's own, of each communicator, of libraries */
	double context_memory, communicator_memory, workspace_memory;
	struct hd_link links[HD_LINKS];
	/* Of a machine that was measured (engine/predict/here.h); else NULL, 0. */
	const struct hd_rates *rates;
	int64_t threads;  /* of a rank */
	int memory_given; /* of a rank, by --memory: not shared out */
	int shared;       /* all else is what a rank of the layout has (hd_machine_share) */
	int64_t job;      /* ranks of the job of which the plan is a part, alone to be priced; 0: it is the whole */
};
/* name: of a file, or of one of conf/machines/ without .ini */
int hd_machine_read(const char *name, struct hd_machine *m, struct hd_err *err);

#endif
