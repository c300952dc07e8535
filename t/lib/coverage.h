/* SPDX-License-Identifier: Apache-2.0
 * t/lib/coverage.h - included before each file of a build for make coverage, so that a process that leaves without
 * exit() also writes its counts.  It includes nothing, since the file may still define macros that select parts of the
 * system's headers.
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
