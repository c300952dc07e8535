/* SPDX-License-Identifier: Apache-2.0
 * engine/program/program.h - the program of one rank. It is the plan cut for it, in the order of its units, with every buffer's
 * place in memory known before the first step.
 *
 *   hd_program_build   plan_index.c: which nodes run here
 *                      timeline.c: in which order, once per micro-batch or once per step
 *                      alias.c:    which tensors can share bytes (in place, views, pieces of a bucket, accumulators)
 *                      program.c:  lifetimes -> offsets (pack.c)                      no device: also for check and plan
 *
 * engine/run/run.h binds it to memory and runs it.
 */
#ifndef HD_ENGINE_PROGRAM_H
#define HD_ENGINE_PROGRAM_H
#include "engine/plan/plan.h"
#include "engine/device/device.h"
#include "engine/comm/comm.h"

#define HD_STEP (-1) /* "micro" of what exists once a step */

enum { HD_ENTRY_NODE, HD_ENTRY_LOAD, HD_ENTRY_ACC };
/* One line of the timeline. */
struct entry {
	int32_t type, micro; /* micro: or HD_STEP */
	struct node *node;   /* ACC: the accumulate node, and which of its inputs is added */
	struct tensor *data; /* LOAD */
	uint32_t input;
	struct hd_schedule_unit unit; /* the unit it belongs to; kind HD_UNIT_G, HD_UNIT_S, HD_UNIT_U: once a step */
	int64_t wait;                 /* communication: entry before which it must be finished; = n: the end */
};

struct storage { /* what a tensor's bytes are: a range of the root's */
	struct tensor *root;
	int64_t offset;                /* bytes within the root */
	int32_t here, slot;            /* here: the tensor exists on this rank; slot: roots only, index in offsets */
	int64_t first_read, last_read; /* positions of the readers in program order */
};

struct launch { /* one kernel of a node */
	const struct hd_kernel *kernel;
	struct hd_prep prep;
	struct tensor **in, **out;
	uint32_t nin, nout;
	int32_t acc;           /* 0, 1, or -1: by the accumulator's state */
	uint32_t never;        /* as its kernel was told: HD_NEVER_ADDS, HD_NEVER_OVERWRITES */
	struct tensor *target; /* accumulator that its outputs are added to, or NULL */
	struct tensor *rows;   /* numbers of the rows that its operands have, or NULL */
};
struct launches {
	struct launch *v;
	size_t n, cap;
};

struct program_memory {
	int64_t persistent, transient, peak_bound;
	int64_t host_persistent, host_transient; /* of the host's memory, where the device has its own */
	int64_t snapshot; /* a copy of what this rank writes into a checkpoint; 0: none is made */
	/* Of the host's memory, as hd_program_scratch finds it. Kernels of the device share scratch, and keep tables. Those of plugins
	 * share theirs, and each keeps its own. */
	int64_t scratch, kept, plugin_scratch, plugin_kept;
};
static inline int64_t hd_program_kernel_bytes(const struct program_memory *m)
{
	return m->scratch + m->kept + m->plugin_scratch + m->plugin_kept;
}

/* Of a plan, for the programs of all its ranks (plan_index.c). */
struct stage_index {
	struct node **nodes;     /* in program order: those of all members */
	struct tensor **tensors; /* by id: those that are there, or that its nodes name */
	size_t nnodes, ntensors;
	const struct tensor *last; /* while it is made */
};
struct plan_index {
	struct node ***readers; /* by tensor id: NULL-terminated */
	int64_t *position;      /* by node id: place in program order */
	struct stage_index *stages;
	int64_t nstages; /* 1 without stages */
};

struct command;
struct hd_program {
	struct hd_plan *plan;
	int64_t rank, coord; /* coord: on the stage axis */
	struct entry *entries;
	size_t n, cap;
	struct storage *at;            /* by tensor id; of what is in `tensors`, else empty */
	struct tensor *const *tensors; /* that are here, or that nodes here name */
	size_t ntensors;
	struct tensor **members_of, **next; /* by tensor id: the tensors merged into it, as a list */
	const struct hd_device_ops *device;
	uint64_t recorded;  /* hash of the kernels that were recorded, with their attributes and operands */
	int keep_gradients; /* gradients stay readable after the step */
	char *here;         /* by node id: runs on this rank */
	struct node **mine;
	size_t nmine; /* those that do, in program order */
	struct node *
		*walked; /* and those that only others run, where some ranks hold no model: the order of all is one */
	size_t nwalked;
	const int64_t *position; /* by node id: place in program order */
	struct node ***readers;  /* by tensor id: NULL-terminated */
	int64_t *offsets;        /* by slot x (micros): offset in the transient arena; leaves: in the persistent one */
	int64_t slots;
	struct program_memory memory;
	/* bound */
	void (*release)(struct hd_program *g); /* what binding made; NULL: not bound */
	struct launches *launches;             /* by node id */
	uint32_t asked_axes;                   /* bit per axis: a plugin's record has asked for an index there */
	char *persistent, *transient, *host_persistent, *host_transient;
	struct command *commands;
	size_t ncommands, cap_commands;
	struct hd_communicator **members; /* by group id */
	struct hd_request *requests;
	struct unstage *unstages;   /* by request: where what was received goes, from the staging memory */
	char *host;                 /* alloc_host: what data leaves are filled in */
	struct host_copies *copies; /* of a device's tensors, for the host */
	struct recording *recordings;
	size_t nrecordings; /* runs of kernels, kept by the device */
	struct joined *joined;
	size_t njoined, cap_joined; /* runs of one kernel, in their order */
	int64_t runs;               /* of the commands, so far */
	struct hd_err why;          /* of the device, within a step */
	size_t update_at;           /* the first command that changes a leaf */
	int fixed_order;            /* train.reduce = rank_order */
	double compute_seconds;
	struct trace_event *trace;
	size_t ntrace, cap_trace;
	int32_t tracing; /* the step that is traced, or 0 */
};

struct hd_memory_use {             /* bytes at an entry */
	double parameters, states; /* from step to step */
	double gradients;          /* and what else there is once a step */
	double kept;               /* from unit to unit: mostly what backward reads of forward */
	double working;            /* within a unit */
};
struct hd_program_options {
	int64_t rank;
	const struct hd_device_ops *device; /* asked what its kernels can do, nothing is run */
	int keep_gradients;
	int snapshot; /* checkpoints are copied before they are written */
};
int hd_program_build(struct hd_plan *p, const struct hd_program_options *o, struct hd_program **out,
		     struct hd_err *err);
void hd_program_destroy(struct hd_program *g);
int hd_timeline(struct hd_program *g);
int hd_alias(struct hd_program *g);
void hd_index_program(struct hd_program *g);
int hd_crosses_stages(const struct hd_plan *p, const struct node *n);
int64_t hd_member_index(const struct hd_plan *p, const struct group *gr, int64_t rank);
int64_t hd_piece_index(const struct hd_program *g, const struct node *n, int64_t j); /* of chunk, join, pick */
struct hd_memory_use *hd_program_memory_use(const struct hd_program *g);             /* by entry, malloc'ed */
double hd_memory_use_sum(const struct hd_memory_use *u);
int64_t hd_program_parameters(const struct hd_program *g); /* elements of parameters on this rank */
int hd_tensor_here(const struct hd_program *g, const struct tensor *t);
int hd_entry_reads(const struct entry *e, uint32_t i);
int64_t hd_first_update(const struct hd_program *g); /* the entry; the number of all where there is none */
int hd_node_here(const struct hd_program *g, const struct node *n);

/* differ.c: of each node of the plan HD_NODE_HASH digits, in program order; node i in words.  malloc'ed. */
#define HD_NODE_HASH 16
char *hd_plan_node_hashes(struct hd_plan *p);
char *hd_plan_node_text(const struct hd_plan *p, int64_t i);

/* written.c: this rank speaks for this slice: one does, per slice. */
int hd_owns(const struct hd_program *g, const struct tensor *t);
int hd_is_gradient(const struct tensor *t); /* of a parameter, as it is after all sums */
/* What this rank writes into a checkpoint of a parameter, a state or a gradient: the tensor itself, or its master; NULL:
 * nothing. */
const struct tensor *hd_written(const struct hd_program *g, const struct tensor *t);
int64_t hd_snapshot_bytes(const struct hd_program *g, int gradients); /* of a copy of all that */

/* The tensor's bytes are in the host's memory though the device has its own. */
int hd_program_in_host(const struct hd_program *g, const struct tensor *t);
/* NULL: not on this rank. */
void *hd_program_address(const struct hd_program *g, const struct tensor *t, int64_t micro);
/* Persistent leaves are found by name in the n others, so that programs of one run (train, eval, generate) share them; those
 * that none of these has (the caches of generation) are put behind the first `bytes`.  -> the bytes that all need then. */
int64_t hd_program_share(struct hd_program *g, struct hd_program *const *others, int n, int64_t bytes);

/* explain --kept: the buffers of forward that backward reads, on stdout. */
void hd_saved_print(const struct hd_program *g, int json);
enum { HD_TRACE_KERNEL, HD_TRACE_GROUP, HD_TRACE_MESSAGE }; /* computes; a collective; sends or receives */
struct trace_event {
	double begin, end;       /* of this rank's compute thread in it */
	double from, to;         /* a wait: when the movement was started and done; else 0 */
	const char *name, *what; /* what: of movements, "all-reduce of grad:..."; else NULL */
	struct hd_schedule_unit unit;
	int32_t kind, step; /* step: as in the metrics */
};

#endif
