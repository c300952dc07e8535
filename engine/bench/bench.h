/* SPDX-License-Identifier: Apache-2.0
 * engine/bench/bench.h - what heddle bench says of a step: where its time goes, and how far each part is from what the machine
 * could do.
 */
#ifndef HD_ENGINE_BENCH_H
#define HD_ENGINE_BENCH_H
#include <stdio.h>
#include "engine/run/job.h"

/* Ids of synthetic text: pure functions of the place, Zipf-distributed. */
struct hd_bench_ids;
struct hd_bench_ids *hd_bench_ids_new(int64_t vocab);
void hd_bench_ids_free(struct hd_bench_ids *ids);
int32_t hd_bench_id(const struct hd_bench_ids *ids, int64_t place);
/* A hd_fill_fn; ctx: the ids.  They depend on the place in the rank's batch alone. */
int hd_bench_fill(void *ctx, const struct hd_program *g, const struct tensor *t, int64_t micro, int32_t *out);

struct hd_bench_step { /* seconds of one step, of the rank with most of each; communication waited for, and beside computation */
	double seconds, exposed, hidden;
};
/* The step of median time, or the mean of the two in the middle.  steps: n >= 1, put in order of time. */
struct hd_bench_step hd_bench_middle(struct hd_bench_step *steps, int n);

/* Least seconds of all matrix products of this rank's step, each by the best implementation known, hot, measured by all ranks
 * at once, with operands as they lie or packed; any: in any layout.  0: not known for this device. */
double hd_bench_bound(struct hd_job *j, int any);

/* Bytes a second that this process moves between memory and processor with all its threads, beyond the caches. It computes a =
 * b + s c on arrays of `bytes` each. Two are read and one is written, and so many bytes are counted. */
double hd_bench_memory_rate(int64_t bytes);

/* Seconds in which a core hands a cache line to another, in the mean of the cores that the first rank of a host may use.  All ranks;
 * on the worst host.  0: a GPU, or one core.  Takes a tenth of a second at most for each of eight pairs of cores. */
double hd_bench_exchange(const struct hd_job *j);
/* Of two such times, 0 where one is not known: whether the cores exchange through something else now. */
int hd_bench_cores_moved(double then, double now);

struct hd_bench_kind { /* all launches of one kind of kernel in a step of this rank */
	const char *name;
	double seconds;
	double bytes, flops; /* of operands, each read or written once; of products and attention */
	double bound; /* seconds: the longest of bytes over memory's rate, FLOPs over the products' and, if asked, the best known */
	int calls;
};
struct hd_bench_profile {
	struct hd_bench_kind v[64];
	size_t n;
	double seconds;                  /* of all */
	double memory_rate, matmul_rate; /* that the bounds are made of; memory_rate 0: not known, and no bounds */
};
/* Of a device with memory of its own that has run a step: each launch as steps have it, in their order.  What it
 * computes is of no use afterwards. */
int hd_bench_launches(struct hd_program *g, struct hd_run *run, void (*each)(void *ctx, const struct launch_time *t),
		      void *ctx);

/* Steps with the time of each command: on the cpu the median of a few, on a GPU by its own clock (hd_bench_launches).  products: bounds
 * of products are the best known (hd_bench_bound), not their FLOPs at the rate of large ones.  Longest first. */
int hd_bench_profile_take(struct hd_job *j, struct hd_bench_ids *ids, int products, struct hd_bench_profile *out);
void hd_bench_profile_print(const struct hd_bench_profile *p, FILE *to);

#endif
