/* SPDX-License-Identifier: Apache-2.0
 * engine/device/device.h - what the engine asks of a device: kernels by name, memory, queues and events.
 *
 * A kernel is prepared once for the shapes of a launch (nothing is allocated after that) and then run every step
 * with new addresses. Tensors are dense and row-major in the order of their dims. All arithmetic on bf16 operands is
 * done in fp32 or better.
 */
#ifndef HD_ENGINE_DEVICE_H
#define HD_ENGINE_DEVICE_H
#include <heddle/graph.h>
#include "engine/base/err.h"

struct hd_view { /* one operand: a rank's part of a tensor */
	uint32_t dtype, ndim;
	const struct hd_dim *dims[HD_MAX_DIMS]; /* equal pointers are the same dim */
	int64_t n[HD_MAX_DIMS];                 /* local extents */
	int64_t off[HD_MAX_DIMS];               /* global index of the slice's first element, per dim */
	/* Where a rank has two pieces of a dim, the second one begins at local index `fold`, `skip` elements after the
	 * first one ends. */
	int64_t fold[HD_MAX_DIMS], skip[HD_MAX_DIMS];
	/* The logical extent of dim i is dims[i]->n: entries whose global index (off[i] + ...) is not
	 * below it are padding. */
};

enum {
	HD_NEVER_ADDS = 1,       /* hd_run.acc of this launch is never 1 */
	HD_NEVER_OVERWRITES = 2, /* hd_run.acc of this launch is never 0 */
};

struct hd_kernel_desc {
	const char *attr; /* "key=value key=value"; for kernel map, the expression itself */
	uint32_t nin, nout;
	const struct hd_view *in, *out;
	uint32_t never; /* HD_NEVER_ADDS, HD_NEVER_OVERWRITES, or 0 if hd_run.acc may be either */
};

struct hd_prep { /* what prepare stores for run */
	int64_t n[16];
	double f[8];
	void *state;                  /* owned by the kernel */
	void (*release)(void *state); /* NULL: state need not be released */
};

struct hd_run { /* values that change from launch to launch */
	uint64_t seed;
	int64_t step;     /* 1-based */
	int64_t sample0;  /* global index (in the step's global batch) of index 0 of dim `batch` of this micro-batch */
	int32_t acc;      /* 1: add to the outputs (kernels with HD_K_ACC or HD_K_ACC_REST); 0: overwrite them */
	int32_t train;    /* 0: evaluation, dropout is the identity */
	int64_t position; /* kernel select: the position whose row is taken */
	/* For ragged operands of kernels with HD_K_ROWS: they have rows_most rows, of which the first `rows` are in
	 * use. rows_most 0: no operand is ragged. */
	int64_t rows, rows_most;
	/* Of a program that is forward only, the first so many micro-batches run; 0: all. The same on all ranks. */
	int64_t micros;
	/* Of a program that is forward only: since its last run, no parameter has changed and no other program has run.
	 * So what was moved to where it is used (unit G) is still there, and is not moved again. */
	int32_t again;
	/* On a device with memory of its own, `rows` is not set: it is the sum of these counts, which
	 * are in that memory. */
	const int32_t *row_counts;
	int64_t nrow_counts;
	double lr;
	double loss_scale;          /* 1 / (tokens of the global batch): the seed of backward */
	void *queue;                /* for a device with memory of its own: set by begin */
	const void *step_constants; /* likewise: the device's copy of values that change from step to step */
};

enum {
	HD_K_ACC = 1,      /* can add to its outputs (hd_run.acc) */
	HD_K_ROWS = 2,     /* elementwise; uses hd_run.rows */
	HD_K_ACC_REST = 4, /* can add to all its outputs but the first */
};

struct hd_joint { /* one of the launches that are joined */
	const struct hd_prep *prep;
	void *const *out, *const *in;
	int32_t acc;
};
/* The memory of an operand. Joined launches run in any order, so none may write what another reads or writes. */
struct hd_range {
	const char *from, *to;
};
static inline int hd_ranges_overlap(struct hd_range a, struct hd_range b)
{
	return a.from < b.to && b.from < a.to;
}

struct hd_kernel {
	const char *name;
	uint32_t flags;
	/* Checks shapes and dtypes, and fills in p. Returns 0, or HD_E... with a message in err. */
	int (*prepare)(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err);
	void (*run)(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r);
	/* Run consecutive launches of this kernel as one; NULL if it cannot. join prepares n launches before the first
	 * step, each with addresses that never change. It returns NULL if it cannot join these. */
	void *(*join)(const struct hd_joint *l, size_t n);
	void (*run_joined)(void *joined, const struct hd_run *r);
	void (*unjoin)(void *joined);
	/* Returns the bytes of host memory that a launch needs for temporary values, without preparing it. All
	 * launches of a device share this memory. NULL: no such memory, or it is the device's. */
	int64_t (*scratch)(const struct hd_kernel_desc *d, int threads);
	/* Returns a lower bound of the seconds that a launch takes on this machine, measured now if necessary, or 0 if
	 * unknown. any: for operands in any layout. NULL: unknown. */
	double (*bound)(const struct hd_prep *p, int any);
	/* Returns the bytes of host memory for a table that lives as long as the launches that use it, without
	 * preparing one. Launches with the same number in *same share a table. NULL: no table worth counting. */
	int64_t (*kept)(const struct hd_kernel_desc *d, uint64_t *same);
};

/* Exchanges measured choices between ranks: rank 0 measures the union of what is missing while the others wait, and
 * all ranks get the same answer. `wanted` has one key per line, and the result "key value" lines; the caller frees the
 * result. A NULL exchange means that one process decides alone. */
struct hd_exchange {
	void *ctx;
	char *(*gather)(void *ctx, const char *wanted); /* returns all texts joined on rank 0, NULL on the others */
	char *(*bcast)(void *ctx, const char *text);    /* returns the text of rank 0 on all ranks */
};

struct hd_device_ops {
	const char *name;
	int (*open)(int threads, struct hd_err *err);
	void (*close)(void);
	const struct hd_kernel *(*kernel)(const char *name); /* returns NULL if the device has no such kernel */
	/* Called before the first prepare. yes: no result of a kernel may depend on timing or on the number of
	 * threads. NULL: no result ever does. */
	void (*fixed)(int yes);
	/* Called after all prepares, before the first run. Makes the choices that timing decides, such as the
	 * implementation of a product. `known`: "key value" lines from a cache or a checkpoint, or "". Returns a text
	 * of all choices in force; the caller frees it. */
	char *(*autotune)(const char *known, const struct hd_exchange *x);
	/* Returns the FLOP/s of a large product on all threads of this process, measured once. */
	double (*matmul_rate)(uint32_t dtype);
	double (*peak)(uint32_t dtype); /* returns the FLOP/s that the manufacturer states; NULL: unknown */
	/* Returns a sentence to warn with if dtype is slow on this device, else NULL. The slot may be NULL. */
	const char *(*slow)(uint32_t dtype);
	/* Called after all prepares. Returns the bytes that the kernels' slots `scratch` and `kept` account for.
	 * NULL: none. */
	int64_t (*scratch)(void);

	/* Called after a step. Returns a new message for the user, which the caller frees, or NULL. The
	 * slot may be NULL. */
	char *(*warning)(void);

	/* The following slots are for a device with memory of its own. There `run` only enqueues. All its work runs in
	 * the order in which it is enqueued, and the slots wait only where they say so. If all are NULL, kernels
	 * compute in host memory, and `run` returns when it is done. */
	/* Returns a number that stands for the set of devices that this process may use; equal sets have equal numbers. */
	uint64_t (*visible)(void);
	/* Called before open; chooses one of the host's devices. rank, size: among the host's ranks that may use the
	 * same devices. */
	void (*among)(int rank, int size);
	int64_t (*memory)(int64_t *left); /* returns the bytes of device memory; *left: of these, the free ones */
	char *(*describe)(void);          /* returns a text for the start of a run; the caller frees it */
	void *(*alloc)(size_t bytes, struct hd_err *err); /* returns zeroed memory, 256-byte aligned */
	void (*free)(void *p);
	/* Returns zeroed host memory, from which and to which copies are fastest. */
	void *(*alloc_host)(size_t bytes, struct hd_err *err);
	void (*free_host)(void *p);
	/* Makes existing host memory as fast to copy, if possible, until close. */
	void (*pin)(void *host, size_t bytes);
	void (*put)(void *device, const void *host, size_t bytes); /* enqueues; `host` may be changed on return */
	/* Enqueues a copy; `host` (from alloc_host) must not change until the copy is done. */
	void (*load)(void *device, const void *host, size_t bytes);
	void (*get)(void *host, const void *device, size_t bytes); /* waits */
	/* move starts a copy that runs concurrently with kernels, once all work enqueued before it is done. moved
	 * waits for it: on the host if the copy is to the host; otherwise only work that is enqueued later waits.
	 * request: a number from 0, used by one copy at a time. */
	void (*move)(void *to, const void *from, size_t bytes, int to_host, int64_t request);
	void (*moved)(int64_t request);
	void (*begin)(struct hd_run *r); /* takes a step's numbers, before kernels run with them */
	int (*ready)(void);              /* returns 1 if all enqueued work is done */
	/* Waits for all enqueued work, and reports errors since the last call, naming the kernel. */
	int (*finish)(struct hd_err *err);
	/* Launches between record and recorded are stored instead of run. recorded returns NULL if that is impossible;
	 * then nothing was run. replay enqueues the stored launches. */
	int (*record)(void);
	void *(*recorded)(void);
	int (*replay)(void *recording);
	void (*forget)(void *recording);
	/* mark (numbered from 0) notes, by the device's own clock, when the launch that is enqueued next begins.
	 * Between record and recorded, that happens at each replay. between returns the seconds from one mark to a
	 * later one, when all work is done. */
	void (*mark)(int64_t mark);
	double (*between)(int64_t from, int64_t to);
	const struct hd_device_comm *comm; /* NULL: none */
};
/* Returns whether kernels compute in host memory. */
static inline int hd_device_in_host(const struct hd_device_ops *d)
{
	return !d->alloc;
}

/* Communication directly between devices, in the order of their queues. engine/device/call.h defines the types. */
struct hd_call;
struct hd_device_comm {
	const char *name; /* nccl */
	size_t id_bytes;
	int (*load)(struct hd_err *err);         /* called first: loads the library, or err says what is missing */
	int (*id)(void *id, struct hd_err *err); /* one rank creates the id, and all ranks open with it */
	int (*open)(const void *id, int rank, int size, struct hd_err *err);
	/* Returns a group's communicator; collective over all ranks. */
	void *(*split)(int color, int key, struct hd_err *err);
	/* Connects this member with those to which it will send and from which it will receive. Until a pair is connected,
	 * the host may wait in `start` until the other end starts its first message too. Collective over the group. */
	int (*connect)(void *group, const int *to, int nto, const int *from, int nfrom, struct hd_err *err);
	int (*start)(void *group, const struct hd_call *c, int n, int me, int64_t request);
	int (*wait)(int64_t request); /* makes work that is enqueued later wait for the request */
	/* Checks for asynchronous errors. Returns 0, or HD_EIO with a message. */
	int (*poll)(struct hd_err *err);
	void (*abort)(void);
	void (*close)(void);
};

/* The symbol that a device module (heddle-cuda.so) exports. A module must have been built with the
 * engine that loads it. */
#define HD_DEVICE_SYMBOL "heddle_device"
#define HD_DEVICE_VERSION 12
struct hd_device_module {
	uint32_t version, ops_size, run_size;
	const struct hd_device_ops *ops;
};
const struct hd_device_ops *hd_device_cpu(void);

/* Find a key in attributes such as "eps=1e-5 rms=1 out=a,b"; a value ends at the next blank. The first returns the
 * beginning of the value, or NULL. The others read it as a number, or as an exact integer. */
const char *hd_attr_text(const char *attr, const char *key);
double hd_attr_num(const char *attr, const char *key, double otherwise);
int64_t hd_attr_int(const char *attr, const char *key, int64_t otherwise);
int hd_dtype_bytes(uint32_t dtype);
const char *hd_dtype_name(uint32_t dtype);
/* Returns how many of an operand's n elements are in use. */
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
