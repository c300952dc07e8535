/* SPDX-License-Identifier: Apache-2.0
 * Finds the plugins that were installed with the program.
 */
#include <config.h>
#include "engine/plugin/places.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef HD_PREFIX
#define HD_PREFIX "/usr/local"
#endif
#ifndef HD_PLUGIN_DIR
#define HD_PLUGIN_DIR HD_PREFIX "/lib/heddle"
#endif

/* PREFIX/lib/heddle for the program /opt/x/bin/heddle: /opt/x/lib/heddle.  NULL: the program or the folder is elsewhere. */
static char *beside(const char *folder)
{
	char exe[PATH_MAX], *bin, *moved;
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	exe[n > 0 ? n : 0] = 0;
	for (int up = 0; up < 2; up++) {
		bin = strrchr(exe, '/');
		if (!bin || (up && strcmp(bin, "/bin")))
			return NULL;
		*bin = 0;
	}
	if (strncmp(folder, HD_PREFIX "/", sizeof(HD_PREFIX)))
		return NULL;
	moved = hd_format("%s%s", exe, folder + sizeof(HD_PREFIX) - 1);
	if (!access(moved, X_OK))
		return moved;
	free(moved);
	return NULL;
}

char *hd_plugin_folder(void)
{
	char *moved = beside(HD_PLUGIN_DIR);

	return moved ? moved : hd_strdup(HD_PLUGIN_DIR);
}
