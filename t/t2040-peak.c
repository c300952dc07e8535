/* SPDX-License-Identifier: Apache-2.0
 * A GPU's utilisation is measured against its own peak.  Boards of one chip with the same multiprocessors reach 835
 * and 989 TFLOP/s, and one whose name begins another's (H20, H200) a seventh of that.  If this broke, the printed
 * share of the peak would be wrong.
 */
#include <config.h>
#include "kernels/cuda/base/peak.h"
#include "t/lib/tap.h"

int main(void)
{
	near(hd_cuda_peak_of("NVIDIA H100 80GB HBM3", 132, 1), 989e12, 1, "H100 SXM");
	near(hd_cuda_peak_of("NVIDIA H100 PCIe", 114, 1), 756e12, 1, "H100 PCIe");
	near(hd_cuda_peak_of("NVIDIA H100 NVL", 132, 1), 835e12, 1, "H100 NVL");
	near(hd_cuda_peak_of("NVIDIA H200", 132, 1), 989e12, 1, "H200 SXM");
	near(hd_cuda_peak_of("NVIDIA H200 NVL", 132, 1), 835e12, 1, "H200 NVL");
	near(hd_cuda_peak_of("NVIDIA H20", 78, 1), 148e12, 1, "H20");
	near(hd_cuda_peak_of("NVIDIA A100-SXM4-80GB", 108, 1), 312e12, 1, "A100");
	near(hd_cuda_peak_of("NVIDIA H100 80GB HBM3", 132, 0), 67e12, 1, "fp32");
	near(hd_cuda_peak_of("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 16, 1), 989e12 * 16 / 132, 1,
	     "a MIG part has its share of the peak");
	near(hd_cuda_peak_of("NVIDIA GeForce RTX 4090", 128, 1), 0, 0,
	     "unknown GPUs have no listed peak and are measured");
	return done();
}
