/* SPDX-License-Identifier: Apache-2.0
 * The memory that is left and the processor time that is allowed, read from files of several systems.  With too much
 * memory, a run would be killed by the kernel in the middle of the night; with too little, one that fits would be
 * refused.  With more threads than the control group has time for, all of them would stand still for a part of each 100
 * ms.
 */
#include <config.h>
#include "t/lib/tap.h"
#include "engine/base/err.h"
#include "engine/human/human.h"
#include "engine/process/host_limits.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[64];

static void put(const char *name, const char *text)
{
	char *path = hd_format("%s/%s", root, name);
	FILE *f;

	for (char *s = strchr(path + 1, '/'); s; s = strchr(s + 1, '/')) {
		*s = 0;
		mkdir(path, 0777);
		*s = '/';
	}
	f = fopen(path, "w");
	if (!f)
		skip_all("no files can be written in /tmp");
	fputs(text, f);
	fclose(f);
	free(path);
}

static void is_left(double bytes, const char *who, const char *name)
{
	struct hd_memory_room l = hd_memory_left(root);

	ok(l.bytes == bytes && !strcmp(l.who, who), name);
	if (l.bytes != bytes || strcmp(l.who, who))
		note("%.0f of %s, not %.0f of %s", l.bytes, l.who, bytes, who);
}

static void allows(double cores, const char *name)
{
	double is = hd_cores_allowed(root);

	ok(is == cores, name);
	if (is != cores)
		note("%g cores, not %g", is, cores);
}

static void cores(void)
{
	put("proc/self/cgroup", "0::/pod/container\n");
	allows(INFINITY, "no control group limits the processor time");
	put("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
	allows(INFINITY, "... nor does one with cpu.max at max");
	put("sys/fs/cgroup/pod/cpu.max", "250000 100000\n");
	allows(2.5, "the quota of a parent group counts");
	put("sys/fs/cgroup/pod/container/cpu.max", "100000 100000\n");
	allows(1, "the smallest quota of all groups counts");
	put("proc/self/cgroup", "0::/of/the/host/only\n");
	put("sys/fs/cgroup/cpu.max", "400000 50000\n");
	allows(8, "the quota of a container, whose group is the mount, counts");

	put("proc/self/cgroup", "3:cpuset:/x\n2:cpu,cpuacct:/job\n");
	put("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
	put("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
	allows(INFINITY, "version 1 without a limit");
	put("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "150000\n");
	allows(1.5, "version 1 with the quota of a group of two controllers");
}

#define GROUP "the control group of this process"

int main(void)
{
	snprintf(root, sizeof(root), "/tmp/heddle-memory.XXXXXX");
	if (!mkdtemp(root))
		skip_all("no directory in /tmp");
	ok(hd_memory_left("").bytes > 0 && isfinite(hd_memory_left("").bytes),
	   "this system tells how much memory is left");
	is_left(INFINITY, "this host", "a system without these files has no limit");
	put("proc/meminfo",
	    "MemTotal:       16000 kB\nMemFree:         100 kB\nMemAvailable:    9000 kB\nSwapFree:  1000 kB\n");
	is_left(10000 * 1024, "this host", "available memory and free swap are added");

	put("proc/self/cgroup", "0::/job/step\n");
	put("sys/fs/cgroup/job/step/memory.max", "max\n");
	put("sys/fs/cgroup/job/step/memory.current", "700000\n");
	is_left(10000 * 1024, "this host", "a group without a limit does not count");
	put("sys/fs/cgroup/job/memory.max", "5000000\n");
	put("sys/fs/cgroup/job/memory.current", "3000000\n");
	is_left(2000000, GROUP, "the limit of a parent group counts");
	put("sys/fs/cgroup/job/memory.stat", "anon 2500000\nfile 400000\nactive_file 100000\ninactive_file 300000\n");
	is_left(2400000, GROUP, "memory of inactive cached files counts as free");
	put("sys/fs/cgroup/job/step/memory.max", "900000\n");
	is_left(200000, GROUP, "the smallest room of all groups counts");
	put("sys/fs/cgroup/job/step/memory.current", "950000\n");
	is_left(0, GROUP, "a group above its limit has no room left");
	put("proc/self/cgroup", "0::/of/the/host/only\n");
	put("sys/fs/cgroup/memory.max", "6000000\n");
	put("sys/fs/cgroup/memory.current", "1000000\n");
	is_left(5000000, GROUP, "the limit of a container, whose group is the mount, counts");

	put("proc/self/cgroup", "12:cpu:/x\n4:memory:/slurm/job\n");
	put("sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes", "3000000\n");
	put("sys/fs/cgroup/memory/slurm/job/memory.usage_in_bytes", "2000000\n");
	put("sys/fs/cgroup/memory/slurm/job/memory.stat", "cache 5\ntotal_inactive_file 250000\n");
	is_left(1250000, GROUP, "the limit of a control group of version 1 counts");

	cores();
	is_str(hd_human_bytes(44531575900000.0).text, "44.5 TB", "bytes are printed as terabytes");
	is_str(hd_human_bytes(999960000.0).text, "1.0 GB",
	       "bytes are printed with at most three digits before the point");
	is_str(hd_human_bytes(640).text, "640 bytes", "a few bytes are printed as bytes");
	is_str(hd_human_bytes(-1563535.0).text, "-1.6 MB", "a negative number of bytes keeps its sign");
	is_str(hd_human_seconds(6.9706).text, "7.0 s", "a time is printed in seconds");
	is_str(hd_human_seconds(0.0123456).text, "12.3 ms", "a time is printed in milliseconds");
	is_str(hd_human_step(1.0654).text, "1.07 s", "a step's time is printed in seconds");
	is_str(hd_human_step(0.99951).text, "1.00 s", "... and rounded up to the next unit");
	is_str(hd_human_step(0.0899).text, "89.9 ms", "... in milliseconds");
	is_str(hd_human_step(238.4).text, "238 s", "... with no more than three digits");
	is_str(hd_human_count(8300000).text, "8.3 M", "a count is printed in millions");
	is_str(hd_human_count(640).text, "640", "a small count is printed as it is");
	is_str(hd_human_rate(4.416e9).text, "4.4 GFLOP/s", "the rate of a small machine is printed in GFLOP/s");
	is_str(hd_human_rate(502e15).text, "502.0 PFLOP/s", "the rate of a large machine is printed in PFLOP/s");
	is_str(hd_human_time(200.4).text, "3m20s", "a duration is printed in minutes and seconds");
	is_str(hd_human_time(3600 * 5 + 7 * 60).text, "5h07m", "a duration is printed in hours and minutes");
	is_str(hd_human_time(86400 * 2.2).text, "2d04h", "a duration is printed in days and hours");
	is_str(hd_human_time(INFINITY).text, "?", "an infinite duration is printed as ?");
	return done();
}
