/* SPDX-License-Identifier: Apache-2.0
 * Finds the cores that the ranks of a host may use: the launcher's mask, control groups' limits, and
 * cores shared by ranks.
 */
#include <config.h>
#include "engine/process/cores.h"
#include "engine/base/err.h"
#include "engine/process/host_limits.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Reads the name and the parent of a process. Returns 0 if the process has ended or is hidden. */
static int look_at(int pid, char name[64], int *parent)
{
	char path[40], line[256], *end;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (!fgets(line, sizeof(line), f))
		line[0] = 0;
	fclose(f);
	end = strrchr(line, ')'); /* "pid (name) state parent ...", and a name may have parentheses */
	if (!end || sscanf(end, ") %*c %d", parent) != 1 || sscanf(line, "%*d (%63[^)]", name) != 1)
		return 0;
	return 1;
}

static int is_launcher(const char *name)
{
	static const char *const names[] = { "mpirun", "mpiexec", "orterun", "orted", "prte", "hydra_", "slurmstepd" };

	for (size_t i = 0; i < HD_LEN(names); i++)
		if (!strncmp(name, names[i], strlen(names[i])))
			return 1;
	return 0;
}

int hd_cores_of_launcher(cpu_set_t *set)
{
	int pid = (int)getppid(), parent = 0;
	char name[64];

	for (; pid > 1 && look_at(pid, name, &parent); pid = parent)
		if (is_launcher(name))
			return !sched_getaffinity(pid, sizeof(*set), set);
	return 0;
}

int hd_cores_quota(void)
{
	double allowed = hd_cores_allowed("");

	if (allowed >= CPU_SETSIZE)
		return 0;
	return allowed < 1 ? 1 : (int)allowed;
}

static int share(const cpu_set_t *a, const cpu_set_t *b)
{
	cpu_set_t both;

	CPU_AND(&both, a, b);
	return CPU_COUNT(&both) > 0;
}

int hd_cores_suffice(const struct hd_core_use *all, int n, int me)
{
	cpu_set_t mask = all[me].mask;
	int before = 0, threads = 0;

	while (CPU_COUNT(&mask) > before) {
		before = CPU_COUNT(&mask);
		for (int i = 0; i < n; i++)
			if (share(&mask, &all[i].mask))
				CPU_OR(&mask, &mask, &all[i].mask);
	}
	for (int i = 0; i < n; i++)
		threads += share(&mask, &all[i].mask) ? all[i].threads : 0;
	return threads <= before && (!all[me].allowed || threads <= all[me].allowed);
}
