/* SPDX-License-Identifier: Apache-2.0
 * The cuda device for tests of kernels, as described in kernel_test.h.
 */
#include <config.h>
#include "t/lib/kernel_test.h"
#include "t/lib/tap.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

const struct hd_kernel *kt_cuda(const char *name);

static void open_module(void)
{
	const char *path = getenv("HD_TEST_MODULE");
	const struct hd_device_module *(*entry)(void) = NULL;
	struct hd_err err = { 0 };
	void *handle;

	if (!path && access(HD_TEST_BUILD "/heddle-cuda-sim.so", R_OK))
		skip_all("no C++ compiler was there, so there is no simulated cuda device");
	handle = dlopen(path ? path : HD_TEST_BUILD "/heddle-cuda-sim.so", RTLD_NOW | RTLD_LOCAL);
	if (handle)
		*(void **)&entry = dlsym(handle, HD_DEVICE_SYMBOL);
	if (!entry || entry()->ops_size != sizeof(struct hd_device_ops) || entry()->run_size != sizeof(struct hd_run)) {
		printf("Bail out! %s\n", entry ? "the module was built from another source" : dlerror());
		exit(1);
	}
	kt_device = entry()->ops;
	*(void **)&kt_orders = dlsym(handle, "hd_sim_orders");
	if (kt_device->open(1, &err) < 0) {
		printf("Bail out! %s\n", err.text);
		exit(1);
	}
}

const struct hd_kernel *kt_cuda(const char *name)
{
	const struct hd_kernel *k;

	if (!kt_device)
		open_module();
	k = kt_device->kernel(name);
	if (!k)
		skip_all("the cuda device has no kernel %s yet", name);
	return k;
}
