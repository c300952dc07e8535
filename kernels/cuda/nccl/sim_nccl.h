/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/nccl/sim_nccl.h - the part of NCCL that nccl.cu uses, for the simulated device.
 *
 * The library is one that a test builds (t/lib/fake_nccl.c.in).  It is found and opened like the real one.
 */
#ifndef HD_KERNELS_CUDA_NCCL_SIM_NCCL_H
#define HD_KERNELS_CUDA_NCCL_SIM_NCCL_H
#include <stddef.h>
#include <stdint.h>

typedef struct fake_comm *ncclComm_t;
typedef struct {
	char internal[128];
} ncclUniqueId;
typedef struct {
	int blocking;
} ncclConfig_t;
typedef enum { ncclSuccess, ncclInvalidArgument = 4, ncclInvalidUsage = 5, ncclInProgress = 7 } ncclResult_t;
typedef enum {
	ncclUint8 = 1,
	ncclInt32,
	ncclInt64 = 4,
	ncclFloat16 = 6,
	ncclFloat32,
	ncclFloat64,
	ncclBfloat16
} ncclDataType_t;
typedef enum { ncclSum, ncclMax = 2 } ncclRedOp_t;
#define NCCL_CONFIG_INITIALIZER \
	{ \
		1 \
	}
#define NCCL_VERSION(x, y, z) ((x)*10000 + (y)*100 + (z))
#ifndef HD_NCCL_STREAM /* the fake library is plain C */
#define HD_NCCL_STREAM cudaStream_t
#endif

#ifdef __cplusplus
extern "C" {
#endif
ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
const char *ncclGetErrorString(ncclResult_t r);
const char *ncclGetLastError(ncclComm_t c);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *c, int n, ncclUniqueId id, int rank, ncclConfig_t *how);
ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *to, ncclConfig_t *how);
ncclResult_t ncclCommDestroy(ncclComm_t c);
ncclResult_t ncclCommAbort(ncclComm_t c);
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *r);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
			   HD_NCCL_STREAM s);
ncclResult_t ncclReduceScatter(const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
			       HD_NCCL_STREAM s);
ncclResult_t ncclAllGather(const void *in, void *out, size_t n, ncclDataType_t t, ncclComm_t c, HD_NCCL_STREAM s);
ncclResult_t ncclBroadcast(const void *in, void *out, size_t n, ncclDataType_t t, int root, ncclComm_t c,
			   HD_NCCL_STREAM s);
ncclResult_t ncclReduce(const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t op, int root, ncclComm_t c,
			HD_NCCL_STREAM s);
ncclResult_t ncclSend(const void *in, size_t n, ncclDataType_t t, int to, ncclComm_t c, HD_NCCL_STREAM s);
ncclResult_t ncclRecv(void *out, size_t n, ncclDataType_t t, int from, ncclComm_t c, HD_NCCL_STREAM s);
#ifdef __cplusplus
}
#include "kernels/cuda/base/cuda.h"

static inline cudaError_t cudaDeviceGetStreamPriorityRange(int *low, int *high)
{
	*low = *high = 0;
	return cudaSuccess;
}
static inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int)
{
	return cudaStreamCreateWithFlags(s, flags);
}

/* A movement is work on its communicator's stream; the watch learns what it reads and writes. */
template <class F> struct hd_sim_moves {
	F f;
	ncclResult_t *result;
	const void *in;
	void *out;
	size_t read, written;
};
template <class F> static void hd_sim_moves_run(void *arg)
{
	const hd_sim_moves<F> *m = (const hd_sim_moves<F> *)arg;

	if (m->in && m->read)
		hd_sim_touch(m->in, m->read, HD_SIM_READ);
	if (m->out && m->written)
		hd_sim_touch(m->out, m->written, HD_SIM_WRITE);
	*m->result = m->f();
}
template <class F>
static ncclResult_t hd_sim_movement(cudaStream_t s, const void *in, size_t read, void *out, size_t written, F f)
{
	ncclResult_t result = ncclSuccess;
	hd_sim_moves<F> *m = (hd_sim_moves<F> *)malloc(sizeof(*m));
	hd_sim_work w = { "a movement", NULL, 1, 1, 0, hd_sim_moves_run<F>, m };

	new (m) hd_sim_moves<F>{ f, &result, in, out, read, written };
	hd_sim_enqueue(s, &w);
	return result;
}
#endif

#endif
