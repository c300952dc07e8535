/* SPDX-License-Identifier: Apache-2.0
 * t/lib/kernel_test.h - one kernel, run on cpu (or another device) and on ref from the same data, all outputs compared.
 * Each test of kernels is built twice: as t/NAME.t for cpu, and with KT_CUDA as t/cuda/NAME.t.
 *
 *	struct kt *t = KT_NEW(gelu_d, "");
 *	struct kt_buf *x = kt_in(t, HD_DTYPE_F32, "batch=4,embed=33");
 *	struct kt_buf *dy = kt_in(t, HD_DTYPE_F32, "batch=4,embed=33");
 *	struct kt_buf *dx = kt_out(t, HD_DTYPE_F32, "batch=4,embed=33");
 *
 *	kt_reals(x, -3, 3);
 *	kt_reals(dy, -1, 1);
 *	kt_inplace(dx, dy);
 *	KT_CHECK(t, 1e-6, "gelu backward");
 *	kt_free(t);
 *
 * In a spec "head=2@4/9" is a slice: 2 elements from global index 4 of a dim of 9 (entries beyond
 * the whole extent are padding); "head=2" is a whole dim; "" has no dims.  Equal names in one
 * test are the same dim.  Every buffer is filled as doubles, rounded to its dtype, and handed to
 * ref as HD_DTYPE_F64 where the dtype is a float.  Buffers lie between canaries that kt_compare checks
 * too.  Inputs that no output replaces must come out unchanged.
 */
#ifndef HD_T_LIB_KERNEL_TEST_H
#define HD_T_LIB_KERNEL_TEST_H
#include "engine/device/device.h"

enum { KT_CPU, KT_REF };

struct kt_buf {
	struct kt *test;
	struct hd_view view[2]; /* as cpu and as ref see it */
	int64_t count;
	void *mem[2], *base[2]; /* base: the allocation, with canaries before and behind */
	size_t bytes[2];
	void *before[2];        /* inputs: a copy, taken at the run */
	struct kt_buf *inplace; /* outputs: the input whose memory this is */
	int changes;            /* inputs: the kernel changes it, and what it leaves is compared as an output */
};

struct kt {
	const struct hd_kernel *kernel[2];
	char *attr;
	struct hd_dim dims[16];
	char names[16][32];
	int ndims, nin, nout;
	struct kt_buf *in[HD_MAX_INS], *out[HD_MAX_OUTS];
	struct hd_prep prep[2];
	int prepared[2];
	struct hd_run run; /* step 1, train, all else zero: change at will */
	struct hd_err err; /* of the last prepare */
	/* outputs are compared on a scale of at least this: for results that cancel */
	double least;
	uint64_t seed;
	int leaves;     /* the kernel leaves parts of its outputs as they were */
	int all_orders; /* of kt_compare */
	char why[1200];
};

/* The device whose kernels are compared with ref; NULL: the cpu.  Its memory may be its own. */
extern const struct hd_device_ops *kt_device;
/* Of a simulated device (kernels/cuda/sim/sim_orders.cc).  There kt_compare runs each launch in KT_ORDERS orders of blocks, warps and
 * threads, which must give the same bits: all blocks in the first order, in the others a part of a long launch's.  With
 * HD_TEST_WHOLE_ORDERS=1 all blocks, and launches of kt_run too; with K/N every Nth run from the Kth on, and the others once
 * (make check-orders). */
#define KT_ORDERS 20
extern void (*kt_orders)(int orders, uint64_t most);
void kt_in_orders(int all); /* what is launched next; all: KT_ORDERS */

#ifdef KT_CUDA
/* A kernel of the cuda device: of the module HD_TEST_MODULE, else of the simulation, which runs anywhere.  Where neither
 * is there the whole test is skipped. */
const struct hd_kernel *kt_cuda(const char *name);
#define KT_NEW(name, attr) \
	__extension__({ \
		extern const struct hd_kernel hd_ref_##name; \
		kt_new(kt_cuda(#name), &hd_ref_##name, attr); \
	})
#else
#define KT_NEW(name, attr) \
	__extension__({ \
		extern const struct hd_kernel hd_cpu_##name, hd_ref_##name; \
		kt_new(&hd_cpu_##name, &hd_ref_##name, attr); \
	})
#endif

struct kt *kt_new(const struct hd_kernel *cpu, const struct hd_kernel *ref, const char *attr);
void kt_free(struct kt *t);
struct kt_buf *kt_in(struct kt *t, uint32_t dtype, const char *spec);
struct kt_buf *kt_out(struct kt *t, uint32_t dtype, const char *spec);
void kt_inplace(struct kt_buf *out, struct kt_buf *in);
void kt_changes(struct kt_buf *in);

/* Data: of inputs, or what outputs hold before (for acc).  HD_DTYPE_B1: packed bytes, as integers
 * 0..255. */
void kt_ints(struct kt_buf *b, int64_t lowest, int64_t highest);
void kt_reals(struct kt_buf *b, double low, double high);
void kt_set(struct kt_buf *b, int64_t i, double value);
double kt_get(const struct kt_buf *b, int which, int64_t i);

/* Again after dims or attributes changed.  0 or HD_E..., text in t->err. */
int kt_prepare(struct kt *t, int which);
int kt_run(struct kt *t, int which); /* prepares where that was not done */
/* Runs both and compares.  -> NULL, or what differs.  |cpu - ref| may be tol * max(|ref| of
 * this output, t->least); tol 0: equal. */
const char *kt_compare(struct kt *t, double tol);
/* For sums of `terms` products whose result is kept in dtype */
double kt_tol(uint32_t dtype, int64_t terms);

/* HD_TEST_FEW=N: only the first N checks of each kernel are made, for tools under which all would take hours, and which judge the
 * accesses alone: what a test reads itself of a check that was not made is wrong. */
int kt_enough(const struct kt *t);

#define KT_CHECK(t, tol, ...) \
	do { \
		const char *why_; \
		char name_[200]; \
		if (kt_enough(t)) { \
			skip("HD_TEST_FEW"); \
			break; \
		} \
		why_ = kt_compare(t, tol); \
		snprintf(name_, sizeof(name_), __VA_ARGS__); \
		ok(!why_, "%s%s%s", name_, why_ ? ": " : "", why_ ? why_ : ""); \
	} while (0)

/* From now on products whose implementation is timed use this one, "ab/NAME", without timing. */
void kt_pick(const char *implementation);
/* Of attention's lse, "batch,heads,seq", from q's "batch,seq,heads,head_dim".  Until the next call. */
const char *kt_lse_spec(const char *q);

#endif
