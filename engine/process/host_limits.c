/* SPDX-License-Identifier: Apache-2.0
 * Finds out how much memory and processor time this process may use. The kernel promises more memory than the
 * host has, and kills a process when it touches pages. So a program that plans its memory has to ask first. A
 * process sees all cores even where it may use only part of their time. Once that is used up, all its threads
 * stop for the rest of each 100 ms.
 */
#include <config.h>
#include "engine/process/host_limits.h"
#include "engine/base/err.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Returns the sum of the numbers that a file gives for these keys, in the file's unit, or NAN if it contains none of
 * them. Lines are "KEY: number" or "KEY number". */
static double sum_of(const char *path, const char *const *keys, int n)
{
	char line[512], word[128];
	double value, sum = NAN;
	FILE *f = fopen(path, "re");

	while (f && fgets(line, sizeof(line), f))
		for (int i = 0; i < n && sscanf(line, "%127[^: \t]%*[: \t]%lf", word, &value) == 2; i++)
			if (!strcmp(word, keys[i]))
				sum = (isnan(sum) ? 0 : sum) + value;
	if (f)
		fclose(f);
	return sum;
}

/* Reads the first two numbers of a file. A number that is missing, or is "max", becomes NAN. */
static void numbers_in(const char *dir, const char *name, double to[2])
{
	char *path = hd_format("%s/%s", dir, name);
	FILE *f = fopen(path, "re");
	int n = f ? fscanf(f, "%lf %lf", &to[0], &to[1]) : 0;

	for (int i = n < 0 ? 0 : n; i < 2; i++)
		to[i] = NAN;
	if (f)
		fclose(f);
	free(path);
}

static double number_in(const char *dir, const char *name)
{
	double value[2];

	numbers_in(dir, name, value);
	return value[0];
}

struct cgroup_files {
	const char *controller; /* in /proc/self/cgroup */
	const char *mount;
	double (*of)(const struct cgroup_files *v,
		     const char *dir); /* what one group leaves; INFINITY: it has no limit */
	const char *limit, *used;
	const char *reclaimable[3]; /* keys of memory.stat: file caches, which the kernel drops on demand */
};

static double free_in(const struct cgroup_files *v, const char *dir)
{
	double limit = number_in(dir, v->limit), used = number_in(dir, v->used);
	char *stat = hd_format("%s/memory.stat", dir);
	double files = sum_of(stat, v->reclaimable, (int)HD_LEN(v->reclaimable));

	free(stat);
	if (isnan(limit) || isnan(used))
		return INFINITY;
	return limit - used + (isnan(files) ? 0 : files);
}

/* Returns the cores that one group allows. Version 2 has quota and period in one file; in version 1, quota
 * -1 means no limit. */
static double cores_in(const struct cgroup_files *v, const char *dir)
{
	double quota[2];

	numbers_in(dir, v->limit, quota);
	if (v->used)
		quota[1] = number_in(dir, v->used);
	return quota[0] > 0 && quota[1] > 0 ? quota[0] / quota[1] : INFINITY;
}

static const struct cgroup_files of_memory[] = {
	{ "",
	  "sys/fs/cgroup",
	  free_in,
	  "memory.max",
	  "memory.current",
	  { "active_file", "inactive_file", "slab_reclaimable" } },
	{ "memory",
	  "sys/fs/cgroup/memory",
	  free_in,
	  "memory.limit_in_bytes",
	  "memory.usage_in_bytes",
	  { "total_active_file", "total_inactive_file", "slab_reclaimable" } },
	{ 0 },
};
static const struct cgroup_files of_cores[] = {
	{ "", "sys/fs/cgroup", cores_in, "cpu.max", NULL, { NULL } },
	{ "cpu", "sys/fs/cgroup/cpu", cores_in, "cpu.cfs_quota_us", "cpu.cfs_period_us", { NULL } },
	{ 0 },
};

/* Returns the minimum of v->of over the group and all groups above it, up to the mount. In a container the path may be
 * that of the host and not exist here; then the mount itself is the container's group. */
static double least_above(const char *root, const struct cgroup_files *v, const char *path)
{
	char *mount = hd_format("%s/%s", root, v->mount), *dir = hd_format("%s%s", mount, path);
	double least = INFINITY;

	while (strlen(dir) >= strlen(mount)) {
		double left = v->of(v, dir);

		least = left < least ? left : least;
		if (!strrchr(dir, '/') || strlen(dir) == strlen(mount))
			break;
		*strrchr(dir, '/') = 0;
	}
	free(mount);
	free(dir);
	return least;
}

/* Returns whether `name` is in a list of controllers. Version 1 mounts several controllers together: "cpu,cpuacct". */
static int lists(const char *controllers, const char *name)
{
	size_t length = strlen(name);

	for (const char *at = controllers; at; at = strchr(at, ','), at += at != NULL)
		if (!strncmp(at, name, length) && (!at[length] || at[length] == ','))
			return 1;
	return 0;
}

static double least_of_cgroups(const char *root, const struct cgroup_files *versions)
{
	char *file = hd_format("%s/proc/self/cgroup", root), line[4096];
	FILE *f = fopen(file, "re");
	double least = INFINITY;

	while (f && fgets(line, sizeof(line), f)) {
		char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;

		line[strcspn(line, "\n")] = 0;
		if (!path)
			continue;
		*path++ = 0;
		for (const struct cgroup_files *v = versions; v->controller; v++)
			if (lists(controllers + 1, v->controller)) {
				double left = least_above(root, v, strcmp(path, "/") ? path : "");

				least = left < least ? left : least;
			}
	}
	if (f)
		fclose(f);
	free(file);
	return least;
}

static double free_on_host(const char *root)
{
	static const char *const keys[] = { "MemAvailable", "SwapFree" };
	char *file = hd_format("%s/proc/meminfo", root);
	double kilobytes = sum_of(file, keys, 2);

	free(file);
	return isnan(kilobytes) ? INFINITY : 1024 * kilobytes;
}

static double free_address_space(const char *root)
{
	static const char *const key[] = { "VmSize" };
	char *file = hd_format("%s/proc/self/status", root);
	double used = sum_of(file, key, 1);
	struct rlimit r;

	free(file);
	if (getrlimit(RLIMIT_AS, &r) || r.rlim_cur == RLIM_INFINITY)
		return INFINITY;
	return (double)r.rlim_cur - (isnan(used) ? 0 : 1024 * used);
}

struct hd_memory_room hd_memory_left(const char *root)
{
	const struct hd_memory_room all[] = {
		{ free_on_host(root), "this host" },
		{ least_of_cgroups(root, of_memory), "the control group of this process" },
		{ free_address_space(root), "the limit of its address space (ulimit -v)" },
	};
	struct hd_memory_room least = all[0];

	for (size_t i = 1; i < HD_LEN(all); i++)
		if (all[i].bytes < least.bytes)
			least = all[i];
	least.bytes = least.bytes < 0 ? 0 : least.bytes;
	return least;
}

double hd_cores_allowed(const char *root)
{
	return least_of_cgroups(root, of_cores);
}
