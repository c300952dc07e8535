/* SPDX-License-Identifier: Apache-2.0
 * engine/program/program.h - the program of one rank: the rank's part of the plan, in the order of its units. Every
 * buffer's place in memory is known before the first step.
 *
 *   hd_program_build   plan_index.c: which nodes run here
 *                      timeline.c: in which order, once per micro-batch or once per step
 *                      alias.c:    which tensors can share bytes (in place, views, pieces of a bucket, accumulators)
 *                      program.c:  lifetimes -> offsets (pack.c)             needs no device: also for check and plan
 *
 * engine/run/run.h binds it to memory and runs it.
 */
#ifndef HD_ENGINE_PROGRAM_H
#define HD_ENGINE_PROGRAM_H
#include "engine/plan/plan.h"
#include "engine/device/device.h"
#include "engine/comm/comm.h"

#define HD_STEP (-1) /* "micro" of what exists or runs once a step */

enum { HD_ENTRY_NODE, HD_ENTRY_LOAD, HD_ENTRY_ACC };
/* An entry of the timeline. */
struct entry {
	int32_t type, micro; /* micro: micro-batch, or HD_STEP */
	struct node *node;   /* ACC: the accumulate node; `input` says which of its inputs is added */
	struct tensor *data; /* LOAD: the data leaf */
	uint32_t input;
	struct hd_schedule_unit unit; /* the unit it belongs to; kinds HD_UNIT_G, HD_UNIT_S, HD_UNIT_U: once a step */
	int64_t wait; /* communication: entry before which it must be finished; n: the end of the step */
};

struct storage { /* where a tensor's bytes are: a range of its root */
	struct tensor *root;
	int64_t offset;      /* bytes within the root */
	int32_t here, slot;  /* here: whether the tensor exists on this rank; slot: index in offsets, for roots only */
	int read_after_step; /* the run reads the tensor after the step, or the next run reads it */
};

struct launch { /* one kernel of a node */
	const struct hd_kernel *kernel;
	struct hd_prep prep;
	struct tensor **in, **out;
	uint32_t nin, nout;
	int32_t acc;           /* 0: overwrites; 1: adds; -1: adds if the accumulator has been written */
	uint32_t never;        /* flags that the kernel was given: HD_NEVER_ADDS, HD_NEVER_OVERWRITES */
	struct tensor *target; /* accumulator that its outputs are added to, or NULL */
	struct tensor *rows;   /* how many rows its operands have, or NULL */
};
struct launches {
	struct launch *v;
	size_t n, cap;
};

struct program_memory {
	int64_t persistent, transient, peak_bound;
	int64_t host_persistent, host_transient; /* in host memory, if the device has its own */
	int64_t snapshot;                        /* for a copy of what this rank writes into a checkpoint; 0: no copy */
	/* Host memory of kernels, as hd_program_scratch computes it. The device's kernels share their scratch and
	 * tables. Plugins' kernels share other scratch, and each keeps tables of its own. */
	int64_t scratch, kept, plugin_scratch, plugin_kept;
};
static inline int64_t hd_program_kernel_bytes(const struct program_memory *m)
{
	return m->scratch + m->kept + m->plugin_scratch + m->plugin_kept;
}

/* What the programs of all ranks of a plan share (plan_index.c). */
struct stage_index {
	struct node **nodes;     /* of all members, in program order */
	struct tensor **tensors; /* by id: those that exist there, or that its nodes name */
	size_t nnodes, ntensors;
	const struct tensor *last; /* used while the index is built */
};
struct plan_index {
	struct node ***readers; /* by tensor id: NULL-terminated */
	int64_t *position;      /* by node id: position in program order */
	struct stage_index *stages;
	int64_t nstages; /* 1 if the plan has no stages */
};

struct command;
struct hd_program {
	struct hd_plan *plan;
	int64_t rank, coord; /* coord: coordinate on the stage axis */
	struct entry *entries;
	size_t n, cap;
	struct storage *at;            /* by tensor id; set for those in `tensors`, else empty */
	struct tensor *const *tensors; /* those that exist here, or that nodes here name */
	size_t ntensors;
	struct tensor **members_of, **next; /* by tensor id: list of the tensors merged into it */
	const struct hd_device_ops *device;
	uint64_t recorded;  /* hash of the recorded kernels, with their attributes and operands */
	int keep_gradients; /* gradients stay readable after the step */
	char *here;         /* by node id: whether it runs on this rank */
	struct node **mine;
	size_t nmine; /* the nodes that run here, in program order */
	/* `mine` and, where some ranks hold no model, nodes that only others run: all use one order */
	struct node **walked;
	size_t nwalked;
	const int64_t *position; /* by node id: position in program order */
	struct node ***readers;  /* by tensor id: NULL-terminated */
	int64_t *offsets; /* by slot (+ micro-batch): offset in the transient arena; leaves: in the persistent one */
	int64_t slots;
	struct program_memory memory;
	/* Set by binding: */
	void (*release)(struct hd_program *g); /* releases what binding created; NULL: not bound */
	struct launches *launches;             /* by node id */
	uint32_t asked_axes; /* bit per axis: a plugin's record function has asked for this rank's index there */
	char *persistent, *transient, *host_persistent, *host_transient;
	struct command *commands;
	size_t ncommands, cap_commands;
	struct hd_communicator **members; /* by group id */
	struct hd_request *requests;
	struct staged_result *staged_results; /* by request: where to copy received data from staging memory */
	char *host;                           /* from alloc_host: where data leaves are filled in */
	struct host_copies *copies;           /* host copies of a device's tensors */
	struct recording *recordings;
	size_t nrecordings; /* runs of kernels that the device has recorded */
	struct joined *joined;
	size_t njoined, cap_joined; /* runs of launches that one kernel does as one, in order */
	struct hd_err why;          /* error of the device within a step */
	size_t update_at;           /* index of the first command that changes a leaf */
	int fixed_order;            /* train.reduce = rank_order */
	double compute_seconds;
	struct trace_event *trace;
	size_t ntrace, cap_trace;
	int32_t tracing; /* the step that is traced, or 0 */
};

struct hd_memory_use {             /* bytes in use at an entry */
	double parameters, states; /* live from step to step */
	double gradients;          /* and other buffers that exist once a step */
	double kept;               /* live from unit to unit: mostly saved activations */
	double working;            /* live within a unit */
};
struct hd_program_options {
	int64_t rank;
	const struct hd_device_ops *device; /* is asked what its kernels can do, but runs nothing */
	int keep_gradients;
	int snapshot; /* checkpoints are copied before they are written */
};
int hd_program_build(struct hd_plan *p, const struct hd_program_options *o, struct hd_program **out,
		     struct hd_err *err);
void hd_program_destroy(struct hd_program *g);
int hd_timeline(struct hd_program *g);
/* turns.c. hd_turns returns the order of a unit's n nodes for two micro-batches at a time; the caller frees it. */
struct unit_part {
	int which; /* 0, 1: of which of the two micro-batches */
	size_t from, to;
};
struct unit_part *hd_turns(const struct hd_program *g, struct node *const *v, size_t n, size_t *count);
int hd_alias(struct hd_program *g);
void hd_index_program(struct hd_program *g);
int hd_crosses_stages(const struct hd_plan *p, const struct node *n);
int64_t hd_member_index(const struct hd_plan *p, const struct group *gr, int64_t rank);
/* Returns the index of input j's piece, for chunk, join and pick. */
int64_t hd_piece_index(const struct hd_program *g, const struct node *n, int64_t j);
struct hd_memory_use *hd_program_memory_use(const struct hd_program *g); /* by entry, malloc'ed */
double hd_memory_use_sum(const struct hd_memory_use *u);
int64_t hd_program_parameters(const struct hd_program *g); /* elements of parameters on this rank */
int hd_tensor_here(const struct hd_program *g, const struct tensor *t);
int hd_entry_reads(const struct entry *e, uint32_t i);
int64_t hd_first_update(const struct hd_program *g); /* index of an entry, or n if there is none */
/* Returns whether the next run of a forward program may read t, a result of unit G, without computing it again. */
int hd_stays_gathered(const struct hd_program *g, const struct tensor *t);
int hd_node_here(const struct hd_program *g, const struct node *n);

/* written.c. Returns whether this rank owns its slice of t: exactly one rank owns each slice. */
int hd_owns(const struct hd_program *g, const struct tensor *t);
int hd_is_gradient(const struct tensor *t); /* whether t is a parameter's gradient after all sums */
/* Returns what this rank writes into a checkpoint for a parameter, a state or a gradient. That is
 * the tensor itself or its master; NULL: nothing. */
const struct tensor *hd_written(const struct hd_program *g, const struct tensor *t);
int64_t hd_snapshot_bytes(const struct hd_program *g, int gradients); /* memory for a copy of all that */

/* Returns whether the tensor is in host memory although the device has its own. */
int hd_program_in_host(const struct hd_program *g, const struct tensor *t);
/* Returns NULL if the tensor is not on this rank. */
void *hd_program_address(const struct hd_program *g, const struct tensor *t, int64_t micro);
/* Gives persistent leaves the offsets of the leaves with the same names in the n other programs. So the programs of
 * one run (train, eval, generate) share them. Leaves that none of these has (the caches of generation) follow the
 * first `bytes`. Returns the bytes that all of them need. */
int64_t hd_program_share(struct hd_program *g, struct hd_program *const *others, int n, int64_t bytes);

/* explain --saved: prints the forward buffers that backward reads, on stdout. */
void hd_saved_print(const struct hd_program *g, int json);
enum { HD_TRACE_KERNEL, HD_TRACE_GROUP, HD_TRACE_MESSAGE }; /* a computation; a collective; a send or receive */
struct trace_event {
	double begin, end;       /* of the event on this rank's compute thread, in seconds */
	double from, to;         /* for a wait: when the movement started and finished; else 0 */
	const char *name, *what; /* what: for movements, "all-reduce of grad:..."; else NULL */
	struct hd_schedule_unit unit;
	int32_t kind, step; /* step: number of the step, as in the metrics */
};

#endif
