/* SPDX-License-Identifier: Apache-2.0
 * t/lib/coverage.h - included in front of each file of a build for make coverage: a process that leaves without exit() has its
 * counts written too.
 */
#ifndef HD_T_LIB_COVERAGE_H
#define HD_T_LIB_COVERAGE_H
#include <unistd.h>

void __gcov_dump(void);
static inline __attribute__((noreturn, unused)) void hd_coverage_leave(int status)
{
	__gcov_dump();
	_exit(status);
}
#define _exit hd_coverage_leave
#endif
