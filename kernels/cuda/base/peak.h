/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/base/peak.h - FLOP/s of a GPU by its maker's data sheet: dense, at the boost clock, bf16 on tensor cores and plain
 * fp32.  Boards of one chip differ by name, in clocks and power, more than by their multiprocessors.
 */
#ifndef HD_KERNELS_CUDA_BASE_PEAK_H
#define HD_KERNELS_CUDA_BASE_PEAK_H
#include <string.h>

struct hd_cuda_peak {
	const char *name;
	int sms;
	double bf16, fp32;
};

/* The first that begins the GPU's name; a part of a GPU (MIG) has its share by multiprocessors.  0: not known. */
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
