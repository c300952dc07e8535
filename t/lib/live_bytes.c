/* SPDX-License-Identifier: Apache-2.0
 * Records the memory of a process at two of its steps.  Built as a shared object by t6101 and preloaded.  Every rank
 * reads
 * /proc/self/statm once per step; at steps $HD_LIVE_FIRST and $HD_LIVE_LAST this appends to the file $HD_LIVE_BYTES.PID
 *
 *	STEP live BYTES		bytes that malloc has allocated and not freed, over all threads
 *	STEP own BYTES		the process' own pages, and the shared pages that it has touched; Open MPI's segment for
 *				messages is excluded, because the library touches more of it as it runs
 *
 * and writes the bytes of each mapping to $HD_LIVE_BYTES-STEP.PID.
 *
 * $HD_LIVE_LEAK: bytes that are leaked at each step, to test that a leak is noticed.  Needs
 * glibc.malloc.tcache_count=0, because blocks in a thread's cache count as allocated.
 */
#ifdef HD_LIVE_BYTES
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *(*real_fopen)(const char *path, const char *mode);

static int number(const char *name)
{
	const char *text = getenv(name);

	return text ? atoi(text) : 0;
}

/* Returns the sum over all mappings.  to: NULL, or a file for the bytes of each mapping. */
static long own_bytes(FILE *to)
{
	FILE *f = real_fopen("/proc/self/smaps", "re");
	char line[4096], what[4096] = "";
	long sum = 0, kilobytes;
	unsigned long begin, end;
	int shared = 0, left_out = 0;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2) {
			shared = strstr(line, " /dev/") || strstr(line, " /memfd") || strstr(line, " /SYSV");
			snprintf(what, sizeof(what), "%s", line);
			left_out = strstr(line, "vader_segment") || strstr(line, "sm_segment");
		} else if (!left_out && sscanf(line, shared ? "Rss: %ld" : "Anonymous: %ld", &kilobytes) == 1) {
			sum += kilobytes * 1024;
			if (to && kilobytes)
				fprintf(to, "%ld KB of %s", kilobytes, what);
		}
	}
	if (f)
		fclose(f);
	return sum;
}

static void tell(int step)
{
	struct mallinfo2 m = mallinfo2(); /* before this function allocates */
	char path[4096];
	FILE *f, *mappings;

	snprintf(path, sizeof(path), "%s-%d.%d", getenv("HD_LIVE_BYTES"), step, (int)getpid());
	mappings = real_fopen(path, "we");
	snprintf(path, sizeof(path), "%s.%d", getenv("HD_LIVE_BYTES"), (int)getpid());
	f = real_fopen(path, "ae");
	if (!f)
		return;
	fprintf(f, "%d live %zu\n", step, m.uordblks + m.hblkhd);
	fprintf(f, "%d own %ld\n", step, own_bytes(mappings));
	fclose(f);
	if (mappings)
		fclose(mappings);
}

FILE *fopen(const char *path, const char *mode)
{
	static int step;
	static void *volatile leak;

	if (!real_fopen)
		real_fopen = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen");
	if (getenv("HD_LIVE_BYTES") && !strcmp(path, "/proc/self/statm")) {
		step++;
		if (number("HD_LIVE_LEAK"))
			leak = malloc((size_t)number("HD_LIVE_LEAK"));
		if (step ==
		    number("HD_LIVE_FIRST") - 1) /* memory for the report itself is allocated before it counts */
			own_bytes(NULL);
		if (step == number("HD_LIVE_FIRST") || step == number("HD_LIVE_LAST"))
			tell(step);
	}
	return real_fopen(path, mode);
}
#endif
typedef int hd_live_bytes_is_a_shared_object; /* not in the library of the tests */
