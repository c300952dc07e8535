/* SPDX-License-Identifier: Apache-2.0
 * What is left of a host's memory.  The kernel promises more than there is and ends a process when pages are touched, so a
 * program that plans its memory has to ask before it touches any.
 */
#include <config.h>
#include "engine/process/host_memory.h"
#include "engine/base/err.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* The sum of "KEY: number" or "KEY number" of these keys, as the file has it; NAN: it has none of them. */
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

static double number_in(const char *dir, const char *name)
{
	char *path = hd_format("%s/%s", dir, name);
	FILE *f = fopen(path, "re");
	double value = NAN; /* also where the file says "max" */

	if (f && fscanf(f, "%lf", &value) != 1)
		value = NAN;
	if (f)
		fclose(f);
	free(path);
	return value;
}

struct cgroup_files {
	const char *controller; /* in /proc/self/cgroup */
	const char *mount, *limit, *used;
	const char *reclaimable[3]; /* of memory.stat: cached files, which give way */
};
static const struct cgroup_files versions[] = {
	{ "", "sys/fs/cgroup", "memory.max", "memory.current", { "active_file", "inactive_file", "slab_reclaimable" } },
	{ "memory",
	  "sys/fs/cgroup/memory",
	  "memory.limit_in_bytes",
	  "memory.usage_in_bytes",
	  { "total_active_file", "total_inactive_file", "slab_reclaimable" } },
};

static double left_in(const struct cgroup_files *v, const char *dir)
{
	double limit = number_in(dir, v->limit), used = number_in(dir, v->used);
	char *stat = hd_format("%s/memory.stat", dir);
	double files = sum_of(stat, v->reclaimable, (int)HD_LEN(v->reclaimable));

	free(stat);
	if (isnan(limit) || isnan(used))
		return INFINITY;
	return limit - used + (isnan(files) ? 0 : files);
}

/* The group and all above it, up to the mount.  In a container the path may be that of the host and not be here: then the mount
 * itself is the container's group. */
static double left_above(const char *root, const struct cgroup_files *v, const char *path)
{
	char *mount = hd_format("%s/%s", root, v->mount), *dir = hd_format("%s%s", mount, path);
	double least = INFINITY;

	while (strlen(dir) >= strlen(mount)) {
		double left = left_in(v, dir);

		least = left < least ? left : least;
		if (!strrchr(dir, '/') || strlen(dir) == strlen(mount))
			break;
		*strrchr(dir, '/') = 0;
	}
	free(mount);
	free(dir);
	return least;
}

static double left_of_cgroup(const char *root)
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
		for (size_t i = 0; i < HD_LEN(versions); i++)
			if (!strcmp(controllers + 1, versions[i].controller)) {
				double left = left_above(root, &versions[i], strcmp(path, "/") ? path : "");

				least = left < least ? left : least;
			}
	}
	if (f)
		fclose(f);
	free(file);
	return least;
}

static double left_of_host(const char *root)
{
	static const char *const keys[] = { "MemAvailable", "SwapFree" };
	char *file = hd_format("%s/proc/meminfo", root);
	double kilobytes = sum_of(file, keys, 2);

	free(file);
	return isnan(kilobytes) ? INFINITY : 1024 * kilobytes;
}

static double left_of_address_space(const char *root)
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
		{ left_of_host(root), "this host" },
		{ left_of_cgroup(root), "the control group of this process" },
		{ left_of_address_space(root), "the limit of its address space (ulimit -v)" },
	};
	struct hd_memory_room least = all[0];

	for (size_t i = 1; i < HD_LEN(all); i++)
		if (all[i].bytes < least.bytes)
			least = all[i];
	least.bytes = least.bytes < 0 ? 0 : least.bytes;
	return least;
}
