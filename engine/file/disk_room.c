/* SPDX-License-Identifier: Apache-2.0
 * The free space of the file system that contains a path, or the nearest directory above it that exists.
 */
#include <config.h>
#include "engine/file/disk_room.h"
#include "engine/base/err.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

double hd_disk_left(const char *path)
{
	char *at = hd_format("%s", *path ? path : ".");
	struct statvfs st;
	int there;

	while ((there = !statvfs(at, &st)) == 0 && strcmp(at, ".") && strcmp(at, "/")) {
		char *slash = strrchr(at, '/');

		if (slash)
			slash[slash == at] = 0;
		else
			strcpy(at, ".");
	}
	free(at);
	return there ? (double)st.f_bavail * (double)st.f_frsize : INFINITY;
}
