/* SPDX-License-Identifier: Apache-2.0
 * What a process holds at two of its steps.  Built as a shared object by t6101 and preloaded: every rank reads /proc/self/statm once a
 * step, and of the steps $HD_LIVE_FIRST and $HD_LIVE_LAST it appends to the file $HD_LIVE_BYTES.PID
 *
 *	STEP live BYTES		bytes that malloc has given out and not got back, of all threads
 *	STEP own BYTES		pages of the process' own, and those that it has touched of what ranks share; Open MPI's segment of
 *				messages is left out, of which the library touches more while it runs
 *
 * and to $HD_LIVE_BYTES-STEP.PID the bytes of each mapping.
 *
 * $HD_LIVE_LEAK: bytes that are lost at each step, to see that they are noticed.  Needs glibc.malloc.tcache_count=0: what a thread
 * keeps to give it out again counts as given out.
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

/* to: NULL, or where each mapping's are written */
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
	struct mallinfo2 m = mallinfo2(); /* before this function's own */
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
		if (step == number("HD_LIVE_FIRST") - 1) /* what telling itself takes is there before it counts */
			own_bytes(NULL);
		if (step == number("HD_LIVE_FIRST") || step == number("HD_LIVE_LAST"))
			tell(step);
	}
	return real_fopen(path, mode);
}
#endif
typedef int hd_live_bytes_is_a_shared_object; /* not in the library of the tests */
