/* SPDX-License-Identifier: Apache-2.0
 * engine/run/job.h - one run of this process among all: world, device, programs, memory; what train, bench, eval and generate
 * share.
 */
#ifndef HD_ENGINE_JOB_H
#define HD_ENGINE_JOB_H
#include "engine/run/run.h"
#include "engine/config/output_config.h"
#include "engine/data/data.h"

/* PROMPT, NEXT: generation with a cache (passes/cache.c), of several tokens and of one; they share the caches, and need
 * job.cache. */
enum hd_role { HD_JOB_TRAIN, HD_JOB_EVAL, HD_JOB_GENERATE, HD_JOB_PROMPT, HD_JOB_NEXT, HD_JOB_ROLES };
struct hd_cache_sizes {
	int64_t past, tokens, rows; /* positions that are kept; of a prompt at once; sequences at once, at least */
};

/* A run that was asked to end, and whether a checkpoint has all that it has done. */
enum { HD_RUNS, HD_STOPPED, HD_STOPPED_SAVED };

struct hd_job {
	struct hd_conf *conf;
	struct hd_train_config train; /* [train], [checkpoint], [log] */
	struct hd_checkpoint_config checkpoint;
	struct hd_log_config log;
	struct hd_world world;
	const struct hd_device_ops *device;
	uint32_t compute_dtype; /* HD_DTYPE_BF16: of hd_plan_options */
	int threads;
	struct hd_data *data; /* may be NULL */
	int64_t text_vocab;   /* then: of the data that a run would have; 0: of bytes */
	struct hd_cache_sizes cache;
	struct hd_plan *plan[HD_JOB_ROLES];
	struct hd_program *program[HD_JOB_ROLES];
	char *arena;
	char *host; /* of host_bytes: states that are updated in host memory, and what goes there and back */
	int64_t host_bytes;
	char *staging; /* host memory for movements, where arena is a device's own */
	int nccl;      /* the device moves between its own memories */
	/* persistent: what stays in it from step to step; transient: what one step may use */
	int64_t arena_bytes, persistent_bytes, transient_bytes;
	/* Of kernels, on a device that computes in the host's memory. The device's share scratch and tables; plugins' share theirs, and
	 * keep some for each program. */
	int64_t scratch_bytes, scratch, kept, plugin_scratch, plugin_kept[HD_JOB_ROLES];
	int64_t snapshot_bytes; /* of the host's memory: for a copy of what is being saved (checkpoint.async) */
	char *tuned;            /* what timing chose: kept in checkpoints and the cache */
	double started, rate;   /* FLOP/s of this rank's threads on a large product */
	double flops_per_token;
	int64_t needs;        /* the ranks of the layout, where the world has others; else 0 */
	int64_t save_seconds; /* enough for a checkpoint; with needs */
	int stopped;          /* HD_STOPPED...: by a signal */
};

/* conf is given away.  roles: bit per hd_role; a device that cannot keep a cache opens GENERATE in place of PROMPT and NEXT.  All ranks; on error every rank has the same text.  known_picks: of a
 * checkpoint, or NULL. */
int hd_job_open(struct hd_job *j, struct hd_conf *conf, unsigned roles, const char *known_picks, struct hd_err *err);
void hd_job_close(struct hd_job *j);
static inline uint32_t hd_job_dtype(const struct hd_job *j)
{
	return j->compute_dtype ? j->compute_dtype : HD_DTYPE_F32;
} /* of products */
const struct hd_plan *hd_job_any_plan(const struct hd_job *j);
const struct hd_program *hd_job_owner(const struct hd_job *j); /* the program whose leaves all share */

/* init.c: initial weights of this rank's slices, and the hash of all of them (the same for every layout). */
void hd_init_state(const struct hd_program *g, const struct tensor *t,
		   int64_t seed);                              /* of a plugin, that begins with other than 0 */
void hd_init_states(const struct hd_program *g, int64_t seed); /* of all that do not begin at zero */
/* *part, unless part is NULL: this rank's part of the hash, as hd_weights_part says, but without another look at the weights. */
void hd_init_weights(const struct hd_program *g, int64_t seed, uint64_t *part);
uint64_t hd_weights_part(const struct hd_program *g);
uint64_t hd_weights_hash(const struct hd_program *g, uint64_t part); /* all ranks: the sum of their parts */
/* Runs of consecutive elements of a leaf's slice that are not padding: fn(ctx, global index of the first, local index of
 * the first, count). */
typedef void (*hd_run_fn)(void *ctx, int64_t global, int64_t local, int64_t count);
void hd_slice_runs(const struct hd_program *g, const struct tensor *t, hd_run_fn fn, void *ctx);

/* fit.c: whether the bytes of each rank of this host fit into what it has left; all ranks. */
int64_t hd_job_planned(const struct hd_job *j); /* bytes of this rank, in the memory that its device computes in */
int hd_job_fits(struct hd_job *j, double bytes, struct hd_err *err);
/* The text names the keys that would lower a rank's memory and are not set so yet; malloc'ed. */
char *hd_memory_advice(const struct hd_plan *p);

char *hd_layout_text(const struct hd_plan *p); /* "NAME 2, NAME 4"; malloc'ed */
int64_t hd_plan_parameters(const struct hd_plan *p);
/* FLOPs of the matrix products in one step that all ranks compute: with what train.recompute and the layout repeat.  Those of the
 * model are hd_plan.model_flops. */
double hd_plan_flops(const struct hd_plan *p);

/* The training program for another global batch, one of the ramp's: between steps, on all ranks. */
int hd_job_resize(struct hd_job *j, int64_t global_batch, struct hd_err *err);

#endif
