/* SPDX-License-Identifier: Apache-2.0
 * engine/config/machine.h - the description of a machine in an INI file, for heddle plan; the machine need not be
 * available. It describes hardware, not how a program uses it.
 */
#ifndef HD_ENGINE_MACHINE_H
#define HD_ENGINE_MACHINE_H
#include <stdint.h>
#include "engine/base/err.h"
#include "engine/config/curve.h"

enum { HD_LINK_NODE, HD_LINK_NETWORK, HD_LINKS }; /* between ranks of a node; between nodes */
struct hd_link {
	double bandwidth, latency; /* bytes per second of a rank within its node, or of a card; seconds of a message */
	struct hd_size_curve efficiency; /* share of the bandwidth, by the bytes that a rank sends at once */
};
struct hd_rates; /* engine/rates/rates.h */
struct hd_machine {
	char name[80];
	int64_t ranks_per_node, cards; /* cards: network cards per node */
	double memory;                 /* bytes of a rank */
	/* slow_rank computes this many times as long; 0: no rank is slow. From plan --slow, not the file. */
	double slow;
	int64_t slow_rank;
	double flops_fp32, flops_bf16;   /* peak FLOPs per second of a rank's matrix products */
	int bf16_is_fp32;                /* 1: the file has no flops_bf16, so it equals flops_fp32 */
	double sustained_clock;          /* share of the peak's clock that is kept while products run */
	struct hd_size_curve efficiency; /* share of the peak that products reach, by their FLOPs */
	struct hd_size_curve extent;     /* share of that, by the smallest of a product's three extents */
	double older_instructions;     /* share of flops_bf16 that is the peak of kernels written for older hardware */
	double memory_bandwidth;       /* bytes per second, of a rank */
	struct hd_size_curve transfer; /* share of it, by the bytes that a kernel moves */
	double kernel_latency;         /* seconds that each kernel costs in addition */
	double overlap_cost;           /* share of the compute units that a running movement takes */
	/* Share of a node's bandwidth that all-reduces over complete nodes reach, by their number. */
	struct hd_size_curve all_reduce;
	double incast; /* share of its bandwidth that a card keeps while several send to it */
	/* bytes per second: between device and host memory, each way; of a rank's kernels on the host */
	double host_link, host_memory_bandwidth;
	/* bytes of a rank's memory in addition to the plan: for the device itself, for each communicator, for
	 * libraries */
	double context_memory, communicator_memory, workspace_memory;
	struct hd_link links[HD_LINKS];
	/* For a machine that was measured (engine/predict/here.h); else NULL, 0. */
	const struct hd_rates *rates;
	int64_t threads;  /* threads of a rank */
	int memory_given; /* memory was given per rank, by --memory: it is not divided among ranks */
	int shared;       /* all other values are already a rank's share (hd_machine_share) */
	/* Ranks of the job if the plan is a part of it that is priced alone; 0: the plan is the complete job. */
	int64_t job;
};
/* Reads a machine. name: a file, or one of conf/machines/ without .ini. */
int hd_machine_read(const char *name, struct hd_machine *m, struct hd_err *err);

#endif
