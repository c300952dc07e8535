/* SPDX-License-Identifier: Apache-2.0
 * Side effects of a kernel: memory that stays allocated, and text on the standard output.
 */
#include <config.h>
#include "engine/conform/parts/habits.h"
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int64_t hd_heap_bytes(void)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
	struct mallinfo2 m = mallinfo2();

	return (int64_t)(m.uordblks + m.hblkhd);
#else
	return 0; /* the check then finds nothing */
#endif
}

void hd_output_keep(struct hd_output *k)
{
	fflush(stdout);
	k->was = dup(1);
	k->file = memfd_create("heddle-conform", MFD_CLOEXEC);
	if (k->was >= 0 && k->file >= 0)
		dup2(k->file, 1);
}

int hd_output_printed(const struct hd_output *k, char *text, size_t room)
{
	ssize_t n = 0;
	struct stat s = { .st_size = 0 };

	fflush(stdout);
	if (k->file < 0 || fstat(k->file, &s) || !s.st_size)
		return 0;
	n = pread(k->file, text, room - 1, 0);
	text[n > 0 ? n : 0] = 0;
	text[strcspn(text, "\n")] = 0;
	return 1;
}

void hd_output_return(struct hd_output *k)
{
	fflush(stdout);
	if (k->was >= 0) {
		dup2(k->was, 1);
		close(k->was);
	}
	if (k->file >= 0)
		close(k->file);
}
