/* SPDX-License-Identifier: Apache-2.0
 * Whether this process may use AMX.
 */
#include <config.h>
#include "kernels/cpu/base/amx.h"
#include "kernels/cpu/base/pairs.h"
#if HD_AMX
#include <cpuid.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Constants of arch_prctl(2); headers before Linux 5.16 lack them. */
#define GET_PERMISSION 0x1022
#define ASK_PERMISSION 0x1023
#define TILE_DATA 18 /* number of the state component */

static int allowed;

/* Checks for tiles, bf16 instructions for them, and the palette 1 that is used here: eight tiles of 16 rows of 64
 * bytes. */
static int has_tiles(void)
{
	unsigned a, b, c, d, bf16 = 1U << 22, tile = 1U << 24;

	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (bf16 | tile)) != (bf16 | tile))
		return 0;
	if (!__get_cpuid_count(0x1d, 1, &a, &b, &c, &d))
		return 0;
	return (b & 0xffff) >= 64 && b >> 16 >= 8 && (c & 0xffff) >= 16;
}

/* The kernel saves the tiles only of processes that asked. The permission holds for the whole process. */
static int ask(void)
{
	uint64_t has = 0;

	if (syscall(SYS_arch_prctl, ASK_PERMISSION, TILE_DATA))
		return 0;
	return !syscall(SYS_arch_prctl, GET_PERMISSION, &has) && has >> TILE_DATA & 1;
}

static void look(void)
{
	allowed = hd_pairs_here() && has_tiles() && ask();
}

int hd_amx_allowed(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, look);
	return allowed;
}
#else
int hd_amx_allowed(void)
{
	return 0;
}
#endif
