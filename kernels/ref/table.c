/* SPDX-License-Identifier: Apache-2.0
 * All kernels of the ref device.
 */
#include <config.h>
#include "kernels/ref/ref.h"
#include <string.h>

#define KERNEL(name) extern const struct hd_kernel hd_ref_##name;
#include "kernels/list.h"
#undef KERNEL

#define KERNEL(name) &hd_ref_##name,
static const struct hd_kernel *const kernels[] = {
#include "kernels/list.h"
};
#undef KERNEL

static const struct hd_kernel *kernel(const char *name)
{
	for (size_t i = 0; i < HD_LEN(kernels); i++)
		if (!strcmp(kernels[i]->name, name))
			return kernels[i];
	return NULL;
}

static int open_device(int threads, struct hd_err *err)
{
	(void)threads;
	(void)err;
	return 0;
}

static void close_device(void)
{
}

static char *autotune(const char *known, const struct hd_exchange *x)
{
	(void)known;
	(void)x;
	return hd_strdup(""); /* nothing to choose */
}

static double matmul_rate(uint32_t dtype)
{
	(void)dtype;
	return 1e9; /* about one multiply-add every few cycles; nobody plans a run on this device */
}

static const struct hd_device_ops ops = {
	.name = "ref",
	.open = open_device,
	.close = close_device,
	.kernel = kernel,
	.autotune = autotune,
	.matmul_rate = matmul_rate,
};

const struct hd_device_ops *hd_device_ref(void)
{
	return &ops;
}
