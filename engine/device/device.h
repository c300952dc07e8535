/* SPDX-License-Identifier: Apache-2.0
 * engine/device/device.h - what the engine asks of a device: kernels by name, memory, queues and events.
 *
 * A kernel is prepared once for the shapes of a launch (nothing is allocated after that) and then run every step with
 * new addresses.  Tensors are dense and row-major in the order of their dims.  All arithmetic on bf16 operands is made
 * in fp32 or better.
 */
#ifndef HD_ENGINE_DEVICE_H
#define HD_ENGINE_DEVICE_H
#include <heddle/graph.h>
#include "engine/base/err.h"

struct hd_view { /* one operand, as one rank holds it */
	uint32_t dtype, ndim;
	const struct hd_dim *dims[HD_MAX_DIMS]; /* equal pointers are the same dim */
	int64_t n[HD_MAX_DIMS];                 /* local extents */
	int64_t off[HD_MAX_DIMS];               /* global index of the slice's first element, per dim */
	/* Where a rank has two pieces of a dim, the second begins at local index `fold`, and `skip` elements are between them. */
	int64_t fold[HD_MAX_DIMS], skip[HD_MAX_DIMS];
	/* Logical extent of the whole dim is dims[i]->n: entries whose global index (off + i) is not below it are padding. */
};

enum {
	HD_NEVER_ADDS = 1,       /* hd_run.acc of this launch is never 1 */
	HD_NEVER_OVERWRITES = 2, /* nor 0 */
};

struct hd_kernel_desc {
	const char *attr; /* "key=value key=value"; of map: the expression itself */
	uint32_t nin, nout;
	const struct hd_view *in, *out;
	uint32_t never; /* HD_NEVER_ADDS, HD_NEVER_OVERWRITES, or 0: both may be asked for */
};

struct hd_prep { /* what prepare leaves for run */
	int64_t n[16];
	double f[8];
	void *state;                  /* owned by the kernel */
	void (*release)(void *state); /* NULL: state needs none */
};

struct hd_run { /* what changes from launch to launch */
	uint64_t seed;
	int64_t step;    /* 1-based */
	int64_t sample0; /* global index (within the step's global batch) of index 0 of dim `batch` of this micro-batch */
	int32_t acc;     /* 1: outputs are added to (kernels with HD_K_ACC or HD_K_ACC_REST); 0: overwritten */
	int32_t train;   /* 0: evaluation, dropout is the identity */
	int64_t position; /* kernel select: the position whose row is taken */
	/* Of kernels with HD_K_ROWS whose operands have rows that are counted: the first so many of each rows_most are in
	 * use. rows_most 0: all are. */
	int64_t rows, rows_most;
	/* Of a device with memory of its own, in it: numbers whose sum is `rows`, which is not set then. */
	const int32_t *row_counts;
	int64_t nrow_counts;
	double lr;
	double loss_scale;          /* 1 / (tokens of the global batch): the seed of backward */
	void *queue;                /* of a device with memory of its own: set by begin */
	const void *step_constants; /* likewise: its copy of what changes from step to step */
};

enum {
	HD_K_ACC = 1,      /* outputs can be added to (hd_run.acc) */
	HD_K_ROWS = 2,     /* elementwise: looks at hd_run.rows */
	HD_K_ACC_REST = 4, /* outputs can be added to, all but the first */
};

struct hd_joint {
	const struct hd_prep *prep;
	void *const *out, *const *in;
	int32_t acc;
}; /* a launch among several */

struct hd_kernel {
	const char *name;
	uint32_t flags;
	/* Checks shapes and dtypes, fills p.  0 or HD_E..., text in err. */
	int (*prepare)(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err);
	void (*run)(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r);
	/* Launches of this kernel that follow each other, as one; NULL: it has no way to.  join: n of them, before the first step,
	 * each with the addresses it always has; NULL: not these. */
	void *(*join)(const struct hd_joint *l, size_t n);
	void (*run_joined)(void *joined, const struct hd_run *r);
	void (*unjoin)(void *joined);
	/* Bytes of the host's memory that a launch takes for values of its own, which the launches of a device share; without
	 * preparing it.  NULL: none, or they are the device's. */
	int64_t (*scratch)(const struct hd_kernel_desc *d, int threads);
	/* The least seconds that a launch is known to take on this machine, measured now if it has to be; any: with operands in
	 * whatever layout.  0, or the slot NULL: not known. */
	double (*bound)(const struct hd_prep *p, int any);
	/* Bytes of the host's memory for a table that lives as long as launches of it, without preparing one.  Launches with the same
	 * number in *same have one table.  NULL: none that is worth counting. */
	int64_t (*kept)(const struct hd_kernel_desc *d, uint64_t *same);
};

/* Exchanges measured choices between ranks: rank 0 measures the union of what is missing while the others wait, and all
 * ranks get the same answer.  `wanted` and the result are texts, one key per line / "key value" per line; the result is
 * malloc'ed.  NULL exchange: one process decides alone. */
struct hd_exchange {
	void *ctx;
	char *(*gather)(void *ctx, const char *wanted); /* rank 0: all texts joined; else: NULL */
	char *(*bcast)(void *ctx, const char *text);    /* of rank 0, to all */
};

struct hd_device_ops {
	const char *name;
	int (*open)(int threads, struct hd_err *err);
	void (*close)(void);
	const struct hd_kernel *(*kernel)(const char *name); /* NULL: has none */
	/* Before the first prepare; yes: nothing that kernels compute may depend on timing or on the number of threads.  NULL: it
	 * never does. */
	void (*fixed)(int yes);
	/* After all prepares, before the first run: choices that timing decides (which implementation of a product).
	 * `known`: "key value" lines from a cache or a checkpoint, or "".  -> malloc'ed text of all choices in force. */
	char *(*autotune)(const char *known, const struct hd_exchange *x);
	/* FLOP/s of a large product on all threads of this process, measured once. */
	double (*matmul_rate)(uint32_t dtype);
	double (*peak)(uint32_t dtype); /* FLOP/s by the maker's word; NULL: not known */
	/* A sentence to warn of, if dtype is slow here; it or the slot NULL: nothing. */
	const char *(*slow)(uint32_t dtype);
	/* After all prepares: what slots `scratch` and `kept` of the kernels say is taken; NULL: none. */
	int64_t (*scratch)(void);

	/* After a step: what its user should know, malloc'ed; it or the slot NULL: nothing new. */
	char *(*warning)(void);

	/* A device with memory of its own; all NULL: kernels compute in the host's, and `run` returns when it is done.  Else
	 * `run` only enqueues, all in one order, and these wait where they say so. */
	void (*among)(int local_rank, int local_size);    /* before open: which of the devices of this host */
	int64_t (*memory)(int64_t *left);                 /* bytes of the device's, and how many of them are free */
	char *(*describe)(void);                          /* for the start of a run, malloc'ed */
	void *(*alloc)(size_t bytes, struct hd_err *err); /* zeroed, 256-byte aligned */
	void (*free)(void *p);
	void *(*alloc_host)(size_t bytes, struct hd_err *err); /* host memory that copies run fastest from; zeroed */
	void (*free_host)(void *p);
	/* Memory of the host's that is there already becomes as fast, if it can; until close. */
	void (*pin)(void *host, size_t bytes);
	void (*put)(void *device, const void *host, size_t bytes); /* in order; `host` can be changed on return */
	/* In order; `host` (of alloc_host) stays as it is until it is done. */
	void (*load)(void *device, const void *host, size_t bytes);
	void (*get)(void *host, const void *device, size_t bytes); /* waits */
	/* A copy that runs beside kernels: it begins when what was enqueued before it is done, and `moved` waits for it: on the
	 * host for one to the host, else what is enqueued afterwards does.  request: from 0, each once at a time. */
	void (*move)(void *to, const void *from, size_t bytes, int to_host, int64_t request);
	void (*moved)(int64_t request);
	void (*begin)(struct hd_run *r);   /* a step's numbers: before kernels run with them */
	int (*ready)(void);                /* 1: all that was enqueued is done */
	int (*finish)(struct hd_err *err); /* waits for all; what went wrong since the last time, naming the kernel */
	/* Launches between record and recorded are kept instead of run; NULL: not possible, and nothing was run.  replay
	 * enqueues them again. */
	int (*record)(void);
	void *(*recorded)(void);
	int (*replay)(void *recording);
	void (*forget)(void *recording);
	/* The time when a launch that is enqueued next begins, by the device's own clock, each time that it does; also between record
	 * and recorded.  mark: from 0.  between: seconds from one mark to a later one, when all is done. */
	void (*mark)(int64_t mark);
	double (*between)(int64_t from, int64_t to);
	const struct hd_device_comm *comm; /* NULL: has none */
};
/* The memory that kernels reach is the host's. */
static inline int hd_device_in_host(const struct hd_device_ops *d)
{
	return !d->alloc;
}

/* Communication that devices make among themselves, in the order of their queues.  Types of engine/device/call.h. */
struct hd_call;
struct hd_device_comm {
	const char *name; /* nccl */
	size_t id_bytes;
	int (*load)(struct hd_err *err); /* first of all: the library behind it is found, or err says what is missing */
	int (*id)(void *id, struct hd_err *err); /* one rank makes it, all open with it */
	int (*open)(const void *id, int rank, int size, struct hd_err *err);
	void *(*split)(int color, int key, struct hd_err *err); /* collective over all; a group's communicator */
	int (*start)(void *group, const struct hd_call *c, int n, int me, int64_t request);
	int (*wait)(int64_t request); /* what is enqueued afterwards begins when it is done */
	/* Errors that arrive late.  0, or HD_EIO with the text. */
	int (*poll)(struct hd_err *err);
	void (*abort)(void);
	void (*close)(void);
};

/* A device module (heddle-cuda.so) has this symbol, and was built with the engine that loads it. */
#define HD_DEVICE_SYMBOL "heddle_device"
#define HD_DEVICE_VERSION 11
struct hd_device_module {
	uint32_t version, ops_size, run_size;
	const struct hd_device_ops *ops;
};
const struct hd_device_ops *hd_device_cpu(void);

/* Of "eps=1e-5 rms=1 out=a,b": what follows "KEY=" up to the next blank, or NULL; as a number; as a whole number, exactly. */
const char *hd_attr_text(const char *attr, const char *key);
double hd_attr_num(const char *attr, const char *key, double otherwise);
int64_t hd_attr_int(const char *attr, const char *key, int64_t otherwise);
int hd_dtype_bytes(uint32_t dtype);
const char *hd_dtype_name(uint32_t dtype);
/* Of n elements those that are in use. */
static inline int64_t hd_used(const struct hd_run *r, int64_t n)
{
	return r->rows_most ? n / r->rows_most * r->rows : n;
}

static inline int64_t hd_view_count(const struct hd_view *v)
{
	int64_t n = 1;

	for (uint32_t i = 0; i < v->ndim; i++)
		n *= v->n[i];
	return n;
}

#endif
