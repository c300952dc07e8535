/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/base/isa.h - compiles a file for x86-64 processors with AVX2 or AVX-512, although the program as a whole
 * runs on all of them.
 *
 *	#if HD_X86
 *	HD_TARGET_AVX2		after all includes of headers that others share
 *	...
 *	HD_TARGET_END
 *	#endif
 */
#ifndef HD_KERNELS_CPU_BASE_ISA_H
#define HD_KERNELS_CPU_BASE_ISA_H

#if defined(__x86_64__) && defined(__GNUC__)
#define HD_X86 1 /* else only the code for any processor is compiled */

#ifdef __clang__
#define HD_TARGET_AVX2 _Pragma("clang attribute push(__attribute__((target(\"avx2,fma\"))), apply_to = function)")
#define HD_TARGET_AVX512 /* these include the others */ \
	_Pragma("clang attribute push(__attribute__((target(\"avx512dq,avx512vl,avx512bw\"))), apply_to = function)")
#define HD_TARGET_END _Pragma("clang attribute pop")
#else
#define HD_TARGET_AVX2 _Pragma("GCC target(\"avx2,fma\")")
#define HD_TARGET_AVX512 _Pragma("GCC target(\"avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,prefer-vector-width=512\")")
#define HD_TARGET_END
#endif

/* Returns whether the processor has what HD_TARGET_AVX2 needs. */
static inline int hd_has_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

/* Returns whether the processor has what HD_TARGET_AVX512 needs. */
static inline int hd_has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
}
#else
#define HD_X86 0
#endif

#endif
