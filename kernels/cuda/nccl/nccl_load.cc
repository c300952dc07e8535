/* SPDX-License-Identifier: Apache-2.0
 * Opens NCCL: see nccl_calls.h.
 */
#include "kernels/cuda/nccl/nccl_calls.h"
extern "C" {
#include "engine/base/library.h"
}
#include <dlfcn.h>

#ifdef HD_SIM
#define SONAME "libheddle-fake-nccl.so.2" /* never a library of this machine */
#else
#define SONAME "libnccl.so.2"
#endif
#define OLDEST NCCL_VERSION(2, 18, 0) /* the first with ncclCommSplit */
#define SHARES NCCL_VERSION(2, 30, 0) /* the first that lets ranks share a GPU */

static struct hd_nccl_calls calls;

static int bind_calls(void *library, struct hd_err *err)
{
#define X(name) \
	*(void **)&calls.name = dlsym(library, "nccl" #name); \
	if (!calls.name) \
		return hd_err_set(err, HD_ENOTSUP, "nccl: " SONAME " has no nccl" #name);
	HD_NCCL_CALLS(X)
#undef X
	return HD_OK;
}

/* Returns the folder nccl/ next to the module, where a bundle has NCCL, or NULL. The caller frees it. */
static char *beside_module(void)
{
	Dl_info info;
	const char *slash = dladdr((void *)&calls, &info) && info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;

	return slash ? hd_format("%.*s/nccl", (int)(slash - info.dli_fname), info.dli_fname) : NULL;
}

static int check_version(int shared, struct hd_err *err)
{
	int v = 0;

	calls.GetVersion(&v);
	if (v < OLDEST)
		return hd_err_set(err, HD_ENOTSUP, "nccl: " SONAME " is NCCL %d.%d, at least 2.18 is needed", v / 10000,
				  v / 100 % 100);
	if (shared && v < SHARES)
		return hd_err_set(err, HD_ENOTSUP,
				  "nccl: ranks share GPU %d, which NCCL %d.%d does not allow (2.30 does): "
				  "train.comm = mpi",
				  hd_cuda_gpu(), v / 10000, v / 100 % 100);
	calls.version = v;
	return HD_OK;
}

const struct hd_nccl_calls *hd_nccl_load(int shared, struct hd_err *err)
{
	struct hd_err why = {};
	char *beside = beside_module();
	void *library;

	if (shared) /* NCCL reads this once, at the first call */
		setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
	library = hd_library_open(SONAME, "NCCL_HOME", beside, &why);
	free(beside);
	if (!library) {
		hd_err_set(err, HD_ENOTSUP, "nccl: %s: set NCCL_HOME to where it is, or train.comm = mpi", why.text);
		return NULL;
	}
	if (bind_calls(library, err) < 0 || check_version(shared, err) < 0)
		return NULL;
	return &calls;
}
