/* SPDX-License-Identifier: Apache-2.0
 * t/lib/kernel_test.h - runs one kernel on cpu (or another device) and on ref from the same data, and compares all
 * outputs. Each test of kernels is built twice: as t/NAME.t for cpu, and with KT_CUDA as t/cuda/NAME.t.
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
 * In a spec "head=2@4/9" is a slice: 2 elements from global index 4 of a dim of 9 (entries beyond its extent are
 * padding).
 * "head=2" is a complete dim, and "" has no dims.  Equal names in one test are the same dim.  Every buffer is filled
 * with doubles rounded to its dtype, and given to ref as HD_DTYPE_F64 if the dtype is a float.  Buffers lie between
 * canaries, which kt_compare checks too.  Inputs that no output replaces must stay unchanged.
 */
#ifndef HD_T_LIB_KERNEL_TEST_H
#define HD_T_LIB_KERNEL_TEST_H
#include "engine/device/device.h"

enum { KT_CPU, KT_REF };

struct kt_buf {
	struct kt *test;
	struct hd_view view[2]; /* for cpu, and for ref */
	int64_t count;
	void *mem[2], *base[2]; /* base: the allocation, with canaries before and after mem */
	size_t bytes[2];
	void *before[2];        /* inputs: a copy made before the run */
	struct kt_buf *inplace; /* outputs: the input whose memory it shares */
	int changes;            /* inputs: the kernel changes it, and it is compared as an output */
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
	struct hd_run run; /* step 1, train, everything else zero; a test may change it */
	struct hd_err err; /* of the last prepare */
	/* the minimum of the scale for comparing outputs, for results that cancel */
	double least;
	uint64_t seed;
	int leaves;     /* the kernel leaves parts of its outputs as they were */
	int all_orders; /* set by kt_compare */
	char why[1200];
};

/* The device whose kernels are compared with ref, or NULL for the cpu.  It may have its own memory. */
extern const struct hd_device_ops *kt_device;
/* Set for a simulated device (kernels/cuda/sim/sim_orders.cc).  There kt_compare runs each launch in KT_ORDERS orders
 * of blocks, warps and threads, which must give the same bits.  The first order has all blocks, the others only a part
 * of a long launch. With HD_TEST_WHOLE_ORDERS=1 all orders have all blocks, also in launches of kt_run.  With K/N this
 * holds for every Nth run from the Kth on, and the other runs have one order (make check-orders). */
#define KT_ORDERS 20
extern void (*kt_orders)(int orders, uint64_t most);
void kt_in_orders(int all); /* sets the orders of the next launches; all: KT_ORDERS of them */

#ifdef KT_CUDA
/* Returns a kernel of the cuda device: from the module HD_TEST_MODULE, else from the simulation, which runs anywhere.
 * If neither exists, the test is skipped. */
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

/* Fill a buffer: an input, or an output's previous contents (for acc).  HD_DTYPE_B1: packed bytes, as integers
 * 0..255. */
void kt_ints(struct kt_buf *b, int64_t lowest, int64_t highest);
void kt_reals(struct kt_buf *b, double low, double high);
void kt_set(struct kt_buf *b, int64_t i, double value);
double kt_get(const struct kt_buf *b, int which, int64_t i);

/* Prepares, also again after dims or attributes changed.  Returns 0 or HD_E..., with the text in t->err. */
int kt_prepare(struct kt *t, int which);
int kt_run(struct kt *t, int which); /* prepares first if that was not done */
/* Runs both and compares.  Returns NULL, or a text about the first difference.  |cpu - ref| may be up to
 * tol * max(|ref| of this output, t->least); tol 0 demands equality. */
const char *kt_compare(struct kt *t, double tol);
/* Returns the tolerance for sums of `terms` products whose result is stored in dtype. */
double kt_tol(uint32_t dtype, int64_t terms);

/* With HD_TEST_FEW=N only the first N checks of each kernel are made, for tools under which all would take hours.  Such
 * tools check only memory accesses: values that a test reads after a check that was not made are wrong. */
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

/* From now on, products whose implementation is usually chosen by timing use this one, "ab/NAME". */
void kt_pick(const char *implementation);
/* Returns the spec of attention's lse, "batch,heads,seq", from q's "batch,seq,heads,head_dim"; valid until the next
 * call. */
const char *kt_lse_spec(const char *q);

#endif
