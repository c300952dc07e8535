/* SPDX-License-Identifier: Apache-2.0
 * engine/bench/bench.h - what heddle bench reports about a step: where its time is spent, and how far each part is from
 * what the machine could do.
 */
#ifndef HD_ENGINE_BENCH_H
#define HD_ENGINE_BENCH_H
#include <stdio.h>
#include "engine/run/job.h"

/* Token ids of synthetic text: pure functions of the position, Zipf-distributed. */
struct hd_bench_ids;
struct hd_bench_ids *hd_bench_ids_new(int64_t vocab);
void hd_bench_ids_free(struct hd_bench_ids *ids);
int32_t hd_bench_id(const struct hd_bench_ids *ids, int64_t place);
/* A hd_fill_fn; ctx: the ids. They depend only on the position in the rank's batch. */
int hd_bench_fill(void *ctx, const struct hd_program *g, const struct tensor *t, int64_t micro, int32_t *out);

/* Seconds of one step, each from the rank with most of it; communication waited for, and overlapped with
 * computation. */
struct hd_bench_step {
	double seconds, exposed, hidden;
};
/* Returns the step of median time, or the mean of the two in the middle. Sorts the n >= 1 steps by time. */
struct hd_bench_step hd_bench_middle(struct hd_bench_step *steps, int n);

/* Returns the least seconds that all matrix products of this rank's step take, each with the best known implementation
 * on warm data. All ranks measure at once. Operands are in their own layout or packed; with `any`, in any layout. 0:
 * the device does not know the time of one of them, *unknown. */
double hd_bench_bound(struct hd_job *j, int any, const struct hd_node **unknown);

/* Returns the bytes per second that this process moves between memory and its cores with all threads, beyond the
 * caches. It computes a = b + s c on arrays of `bytes` each; two arrays read and one written are counted. */
double hd_bench_memory_rate(int64_t bytes);

/* Returns the seconds in which a core hands a cache line to another, on the worst host. On each host it is the mean
 * over pairs of cores that its first rank may use. Collective over all ranks. 0: a GPU, or one core. It takes at most a
 * tenth of a second for each of eight pairs. */
double hd_bench_exchange(const struct hd_job *j);
/* Compares two such times. Returns 1 if they differ so much that the cores now exchange through something else; 0 also
 * if one is not known. */
int hd_bench_cores_moved(double then, double now);

struct hd_bench_kind { /* all launches of one kind of kernel in a step of this rank */
	const char *name;
	double seconds;
	double bytes, flops; /* of operands, each read or written once; of products and attention */
	/* seconds: per launch the longer of bytes over the memory rate and FLOPs over the matmul rate, or the best
	 * known if asked for. */
	double bound;
	int calls;
};
struct hd_bench_profile {
	struct hd_bench_kind v[64];
	size_t n;
	double seconds;                  /* of all kinds */
	double memory_rate, matmul_rate; /* rates that the bounds use; memory_rate 0: not known, and no bounds */
};
/* Calls each() for every launch of a step with its time under the conditions of a step: first the launches of
 * recordings, then the others. Both are in the order of the step. For a device with its own memory, after it has run a
 * step. The computed values are useless afterwards. */
int hd_bench_launches(struct hd_program *g, struct hd_run *run, void (*each)(void *ctx, const struct launch_time *t),
		      void *ctx);

/* Runs steps and takes the time of each command: on the CPU the median of a few, on a GPU by its own clock
 * (hd_bench_launches). products: bounds of matrix products are the best times known (hd_bench_bound) instead of their
 * FLOPs at the rate of large products. The longest kind is first. */
int hd_bench_profile_take(struct hd_job *j, struct hd_bench_ids *ids, int products, struct hd_bench_profile *out);
void hd_bench_profile_print(const struct hd_bench_profile *p, FILE *to);

#endif
