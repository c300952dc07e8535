/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/nccl/nccl_calls.h - the calls of NCCL, bound when it is first needed.
 *
 * One GPU needs no NCCL.  Where it is installed differs from machine to machine (the toolkit, a distribution's
 * package, a Python wheel).
 */
#ifndef HD_KERNELS_CUDA_NCCL_NCCL_CALLS_H
#define HD_KERNELS_CUDA_NCCL_NCCL_CALLS_H
#include "kernels/cuda/base/cuda.h"
#ifdef HD_SIM
#include "kernels/cuda/nccl/sim_nccl.h"
#else
#include <nccl.h>
#endif

/* clang-format off */
#define HD_NCCL_CALLS(X) \
	X(GetVersion) X(GetUniqueId) X(GetErrorString) X(GetLastError) X(CommInitRankConfig) X(CommSplit) X(CommDestroy) \
	X(CommAbort) X(CommGetAsyncError) X(GroupStart) X(GroupEnd) X(AllReduce) X(ReduceScatter) X(AllGather) \
	X(Broadcast) X(Reduce) X(Send) X(Recv)
/* clang-format on */

struct hd_nccl_calls {
#define X(name) decltype(&nccl##name) name;
	HD_NCCL_CALLS(X)
#undef X
	int version;
};

/* Returns NULL if NCCL is missing or too old; err says where it was searched for.  shared: ranks share a GPU. */
const struct hd_nccl_calls *hd_nccl_load(int shared, struct hd_err *err);

#endif
