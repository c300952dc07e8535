/* SPDX-License-Identifier: Apache-2.0
 * t/lib/coverage.h - included in front of each file of a build for make coverage: a process that leaves without exit() has its
 * counts written too.  It includes nothing, since what follows may still say what it wants of the system's headers.
 */
#ifndef HD_T_LIB_COVERAGE_H
#define HD_T_LIB_COVERAGE_H

void __gcov_dump(void);
void _Exit(int status) __attribute__((noreturn));
#define _exit hd_coverage_leave
__attribute__((weak, noreturn)) void hd_coverage_leave(int status);
__attribute__((weak, noreturn)) void hd_coverage_leave(int status)
{
	__gcov_dump();
	_Exit(status);
}
#endif
