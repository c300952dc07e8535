/* SPDX-License-Identifier: Apache-2.0
 * Finds the INI files that are installed with the program.
 */
#include <config.h>
#include <folders.h>
#include "engine/file/installed.h"
#include "engine/file/file.h"
#include "engine/base/library.h"
#include "engine/base/parse.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_NAMES 64

/* Returns conf/FOLDER in the program's folder if that is a build folder, else in the installation; the
 * caller frees it. */
static char *folder_of(const char *folder)
{
	struct hd_err ignored = { 0 };
	char *exe = hd_this_program(&ignored), *slash = exe ? strrchr(exe, '/') : NULL;
	char *installed = hd_installed_folder(HD_DATA_DIR), *dir;

	if (slash)
		*slash = 0;
	dir = hd_format("%s/conf/%s", slash && hd_file_has(exe, "config.status") ? exe : installed, folder);
	free(installed);
	free(exe);
	return dir;
}

static int is_ini(const struct dirent *e)
{
	size_t n = strlen(e->d_name);

	return n > 4 && !strcmp(e->d_name + n - 4, ".ini");
}

/* Lists the names without .ini, sorted, and returns how many; the caller frees each. */
static int list(const char *folder, char *names[MOST_NAMES])
{
	char *dir = folder_of(folder);
	struct dirent **all = NULL;
	int n = scandir(dir, &all, is_ini, alphasort), kept = 0;

	for (int i = 0; i < n; i++) {
		if (kept < MOST_NAMES)
			names[kept++] = hd_format("%.*s", (int)strlen(all[i]->d_name) - 4, all[i]->d_name);
		free(all[i]);
	}
	free(all);
	free(dir);
	return kept;
}

char *hd_installed_names(const char *folder)
{
	char *names[MOST_NAMES], *text = hd_strdup("");
	int n = list(folder, names);

	for (int i = 0; i < n; i++) {
		hd_append(&text, "%s%s", i ? ", " : "", names[i]);
		free(names[i]);
	}
	return text;
}

static void refuse(const char *folder, const char *name, struct hd_err *err)
{
	char *names[MOST_NAMES], hint[480];
	int n = list(folder, names);

	hd_suggest(hint, sizeof(hint), name, "those that come with heddle", (const char *const *)names, n);
	hd_err_set(err, HD_EIO, "%s: there is no such file, and no such name; %s", name, hint);
	while (n)
		free(names[--n]);
}

char *hd_installed_find(const char *folder, const char *name, struct hd_err *err)
{
	char *dir, *path;

	if (access(name, F_OK) == 0)
		return hd_strdup(name);
	dir = folder_of(folder);
	path = hd_format("%s/%s.ini", dir, name);
	free(dir);
	if (!strchr(name, '/') && access(path, R_OK) == 0)
		return path;
	free(path);
	refuse(folder, name, err);
	return NULL;
}
