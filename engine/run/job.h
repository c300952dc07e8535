/* SPDX-License-Identifier: Apache-2.0
 * engine/run/job.h - one run of this process as part of the job: world, device, programs and memory. Train, bench,
 * eval and generate share it.
 */
#ifndef HD_ENGINE_JOB_H
#define HD_ENGINE_JOB_H
#include "engine/run/run.h"
#include "engine/config/output_config.h"
#include "engine/data/data.h"

/* PROMPT, NEXT: generation with a cache (passes/cache.c), of several tokens and of
 * one. They share the caches, and need job.cache. */
enum hd_role { HD_JOB_TRAIN, HD_JOB_EVAL, HD_JOB_GENERATE, HD_JOB_PROMPT, HD_JOB_NEXT, HD_JOB_ROLES };
struct hd_cache_sizes {
	/* Positions kept; tokens of a prompt at once; minimum number of sequences at once */
	int64_t past, tokens, rows;
};

/* Whether a run was asked to end, and whether a checkpoint contains everything that it has done. */
enum { HD_RUNS, HD_STOPPED, HD_STOPPED_SAVED };

struct hd_job {
	struct hd_conf *conf;
	struct hd_train_config train; /* these three: the sections [train], [checkpoint] and [log] */
	struct hd_checkpoint_config checkpoint;
	struct hd_log_config log;
	struct hd_world world;
	const struct hd_device_ops *device;
	uint32_t compute_dtype; /* as in hd_plan_options: HD_DTYPE_BF16 or 0 */
	int threads;
	struct hd_data *data; /* may be NULL */
	int64_t text_vocab;   /* without data: vocabulary of the data that a run would have; 0: bytes */
	struct hd_cache_sizes cache;
	struct hd_plan *plan[HD_JOB_ROLES];
	struct hd_program *program[HD_JOB_ROLES];
	char *arena;
	char *host; /* host_bytes of host memory: states that are updated there, and copies to and from the device */
	int64_t host_bytes;
	char *staging; /* host memory for movements, if arena is in device memory */
	int nccl;      /* NCCL moves data directly between device memories */
	/* persistent: bytes that live from step to step; transient: bytes that one step may use */
	int64_t arena_bytes, persistent_bytes, transient_bytes;
	/* Memory of kernels, on a device that computes in host memory. The device's kernels share scratch and tables.
	 * Plugins' kernels share other scratch, and keep memory for each program. */
	int64_t scratch_bytes, scratch, kept, plugin_scratch, plugin_kept[HD_JOB_ROLES];
	int64_t snapshot_bytes; /* host memory for a copy of what is being saved (checkpoint.async) */
	char *tuned;            /* choices of timing, which checkpoints and the cache store */
	double started, rate;   /* FLOP/s of this rank's threads on a large product */
	double flops_per_token;
	int64_t needs;        /* number of ranks that the layout needs, if the world has a different number; else 0 */
	int64_t save_seconds; /* enough time for a checkpoint; set with `needs` */
	int stopped;          /* HD_STOPPED...: a signal asked it to end */
};

/* Opens the job; all ranks call it. On error every rank has the same text. Takes ownership of conf.
 * roles: one bit per hd_role. If the device or the model cannot generate with a cache, GENERATE is opened in place of
 * PROMPT and NEXT. known_picks: those of a checkpoint, or NULL. */
int hd_job_open(struct hd_job *j, struct hd_conf *conf, unsigned roles, const char *known_picks, struct hd_err *err);
void hd_job_close(struct hd_job *j);
/* Returns the dtype of products. */
static inline uint32_t hd_job_dtype(const struct hd_job *j)
{
	return j->compute_dtype ? j->compute_dtype : HD_DTYPE_F32;
}
const struct hd_plan *hd_job_any_plan(const struct hd_job *j);
/* Returns the program that places the leaves that all share. */
const struct hd_program *hd_job_first_program(const struct hd_job *j);

/* init.c: computes initial weights of this rank's slices, and the hash of all weights (the same for every layout). */
/* For a plugin's state that does not begin as 0; hd_init_states does this for all of them. */
void hd_init_state(const struct hd_program *g, const struct tensor *t, int64_t seed);
void hd_init_states(const struct hd_program *g, int64_t seed);
/* Fills the weights. If part is not NULL, *part becomes what hd_weights_part would
 * return, without another pass over the weights. */
void hd_init_weights(const struct hd_program *g, int64_t seed, uint64_t *part);
uint64_t hd_weights_part(const struct hd_program *g);
uint64_t hd_weights_hash(const struct hd_program *g, uint64_t part); /* call on all ranks: the sum of their parts */
/* Calls fn for runs of consecutive elements of a leaf's slice, without padding: fn(ctx, global index of the first,
 * local index of the first, count). */
typedef void (*hd_run_fn)(void *ctx, int64_t global, int64_t local, int64_t count);
void hd_slice_runs(const struct hd_program *g, const struct tensor *t, hd_run_fn fn, void *ctx);

/* fit.c: checks that the bytes of all ranks of a host fit into its free memory. All ranks call it. */
int64_t hd_job_planned(const struct hd_job *j); /* bytes of this rank, in the memory in which its device computes */
int hd_job_fits(struct hd_job *j, double bytes, struct hd_err *err);
/* Returns a text that names the keys that would lower a rank's memory and are not yet set so. The caller frees it. */
char *hd_memory_advice(const struct hd_plan *p);

/* Replaces the training program by that for another global batch of the ramp. All ranks call it, between steps. */
int hd_job_resize(struct hd_job *j, int64_t global_batch, struct hd_err *err);

#endif
