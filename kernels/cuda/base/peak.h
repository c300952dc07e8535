/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/base/peak.h - a GPU's peak FLOP/s from its vendor's data sheet: dense, at the boost clock.
 *
 * The figures are for bf16 on tensor cores and for plain fp32.  Boards with the same chip differ by name: in clocks
 * and power, more than in their number of multiprocessors.
 */
#ifndef HD_KERNELS_CUDA_BASE_PEAK_H
#define HD_KERNELS_CUDA_BASE_PEAK_H
#include <string.h>

struct hd_cuda_peak {
	const char *name;
	int sms;
	double bf16, fp32;
};

/* Returns the peak of the first entry whose name begins the GPU's name, or 0 if the GPU is unknown.  Part of a GPU
 * (MIG) gets a share by multiprocessors. */
static inline double hd_cuda_peak_of(const char *name, int sms, int bf16)
{
	static const struct hd_cuda_peak known[] = {
		{ "NVIDIA A100", 108, 312e12, 19.5e12 },    { "NVIDIA A800", 108, 312e12, 19.5e12 },
		{ "NVIDIA H100 PCIe", 114, 756e12, 51e12 }, { "NVIDIA H100 NVL", 132, 835e12, 60e12 },
		{ "NVIDIA H100", 132, 989e12, 67e12 },      { "NVIDIA H800 PCIe", 114, 756e12, 51e12 },
		{ "NVIDIA H800", 132, 989e12, 67e12 },      { "NVIDIA H200 NVL", 132, 835e12, 60e12 },
		{ "NVIDIA H200", 132, 989e12, 67e12 },      { "NVIDIA GH200", 132, 989e12, 67e12 },
		{ "NVIDIA H20", 78, 148e12, 44e12 },        { "NVIDIA B200", 148, 2250e12, 80e12 },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strncmp(name, known[i].name, strlen(known[i].name)))
			return (bf16 ? known[i].bf16 : known[i].fp32) *
			       (sms < known[i].sms ? (double)sms / known[i].sms : 1);
	return 0;
}

#endif
