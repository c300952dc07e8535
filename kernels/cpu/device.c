/* SPDX-License-Identifier: Apache-2.0
 * The cpu device: OpenMP threads and oneDNN's products.
 */
#include <config.h>
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/base/scratch.h"
#include "kernels/cpu/matmul/matmul.h"
#include <omp.h>

static int open_device(int threads, struct hd_err *err)
{
	if (threads < 1)
		return hd_err_set(err, HD_EINVAL, "cpu: %d threads", threads);
	/* sums must not depend on how many threads the machine happens to provide */
	omp_set_dynamic(0);
	omp_set_num_threads(threads);
	return hd_mm_open(err);
}

static void close_device(void)
{
	/* the kernels' states own the primitives; oneDNN's engine stays for the next open */
}

static const struct hd_device_ops ops = {
	.name = "cpu",
	.open = open_device,
	.close = close_device,
	.kernel = hd_cpu_kernel,
	.fixed = hd_mm_fixed,
	.autotune = hd_mm_autotune,
	.matmul_rate = hd_mm_rate,
	.slow = hd_mm_slow,
	.scratch = hd_scratch_bytes,
};

const struct hd_device_ops *hd_device_cpu(void)
{
	return &ops;
}
