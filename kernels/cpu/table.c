/* SPDX-License-Identifier: Apache-2.0
 * All kernels of the cpu device.
 */
#include <config.h>
#include "kernels/cpu/cpu.h"
#include <string.h>

#define KERNEL(name) extern const struct hd_kernel hd_cpu_##name;
#include "kernels/list.h"
#undef KERNEL

#define KERNEL(name) &hd_cpu_##name,
static const struct hd_kernel *const kernels[] = {
#include "kernels/list.h"
};
#undef KERNEL

const struct hd_kernel *hd_cpu_kernel(const char *name)
{
	for (size_t i = 0; i < HD_LEN(kernels); i++)
		if (!strcmp(kernels[i]->name, name))
			return kernels[i];
	return NULL;
}
