/* SPDX-License-Identifier: Apache-2.0
 * Finds this program, its installation, and shared libraries: see library.h.
 */
#include <config.h>
#include <folders.h>
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "engine/base/library.h"
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct library_search {
	const char *soname;
	void *found;
	/* "path: reason; ..." for each file that exists but cannot be opened, or the places searched. */
	char *why;
};

static void add_why(struct library_search *s, const char *place, const char *reason)
{
	char *more =
		hd_format("%s%s%s%s%s", s->why ? s->why : "", s->why ? "; " : "", place, *reason ? ": " : "", reason);

	free(s->why);
	s->why = more;
}

/* Returns dlerror()'s text without the path it begins with, since the caller prints that. */
static const char *reason_of(const char *path)
{
	const char *text = dlerror();
	size_t n = strlen(path);

	if (!text)
		return "";
	return !strncmp(text, path, n) && !strncmp(text + n, ": ", 2) ? text + n + 2 : text;
}

static int try_path(struct library_search *s, const char *path)
{
	s->found = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!s->found)
		add_why(s, path, reason_of(path));
	return s->found != NULL;
}

static int try_in(struct library_search *s, const char *dir)
{
	char *path = hd_format("%s/%s", dir, s->soname);
	int found = !access(path, R_OK) && try_path(s, path);

	free(path);
	return found;
}

static int try_home(struct library_search *s, const char *home)
{
	static const char *const below[] = { "/lib", "/lib64", "" };

	for (size_t i = 0; i < HD_LEN(below) && !s->found; i++) {
		char *dir = hd_format("%s%s", home, below[i]);

		try_in(s, dir);
		free(dir);
	}
	return s->found != NULL;
}

/* NVIDIA's wheels install to site-packages/nvidia/NAME/lib; Debian's Python uses dist-packages. */
static int try_python(struct library_search *s, const char *prefix)
{
	char *pattern = hd_format("%s/lib*/python3*/[sd]i[ts][et]-packages/nvidia/*/lib/%s", prefix, s->soname);
	glob_t g;

	memset(&g, 0, sizeof(g));
	if (!glob(pattern, 0, NULL, &g))
		for (size_t i = 0; i < g.gl_pathc && !s->found; i++)
			try_path(s, g.gl_pathv[i]);
	globfree(&g);
	free(pattern);
	return s->found != NULL;
}

/* Tries each environment whose python3 is in PATH, as a user's shell would find it. */
static int try_path_of_python(struct library_search *s)
{
	const char *at = getenv("PATH");

	while (at && *at && !s->found) {
		size_t n = strcspn(at, ":");
		char *python = hd_format("%.*s/python3", (int)n, at), *up = hd_format("%.*s/..", (int)n, at);

		if (n && !access(python, X_OK))
			try_python(s, up);
		free(python);
		free(up);
		at += n + (at[n] == ':');
	}
	return s->found != NULL;
}

static int try_environments(struct library_search *s)
{
	const char *venv = getenv("VIRTUAL_ENV"), *conda = getenv("CONDA_PREFIX"), *home = getenv("HOME");
	char *local = hd_format("%s/.local", home ? home : "");
	int found = (venv && *venv && try_python(s, venv)) || (conda && *conda && try_python(s, conda)) ||
		    try_path_of_python(s) || (home && try_python(s, local)) || try_python(s, "/usr/local") ||
		    try_python(s, "/usr");

	free(local);
	if (!found)
		add_why(s, "Python's environments", "no such file in site-packages/nvidia/*/lib");
	return found;
}

void *hd_library_open(const char *soname, const char *home_var, const char *dir, struct hd_err *err)
{
	const char *home = home_var ? getenv(home_var) : NULL;
	struct library_search s = { soname, NULL, NULL };

	if (home && *home) {
		if (!try_home(&s, home) && !s.why)
			add_why(&s, home, "no such file there, nor in its lib or lib64");
	} else if (!try_path(&s, soname) && !(dir && try_in(&s, dir))) {
		try_environments(&s);
	}
	if (!s.found)
		hd_err_set(err, HD_ENOTSUP, "%s cannot be opened (%s)", soname, s.why);
	free(s.why);
	return s.found;
}

char *hd_this_program(struct hd_err *err)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (n > 0)
		return hd_format("%.*s", (int)n, path);
	hd_err_set(err, HD_EIO, "/proc/self/exe cannot be read: this program does not know where it is");
	return NULL;
}

const char *hd_within_prefix(const char *folder)
{
	return strncmp(folder, HD_PREFIX "/", sizeof(HD_PREFIX)) ? NULL : folder + sizeof(HD_PREFIX) - 1;
}

/* Returns /opt/x/lib/heddle for PREFIX/lib/heddle if exe is /opt/x/bin/heddle. NULL: it does not exist, exe is not
 * in a bin, or the folder is not below the prefix. exe is cut. */
static char *beside_bin(char *exe, const char *folder)
{
	char *slash, *moved;

	for (int up = 0; up < 2; up++) {
		slash = strrchr(exe, '/');
		if (!slash || (up && strcmp(slash, "/bin")))
			return NULL;
		*slash = 0;
	}
	if (!hd_within_prefix(folder))
		return NULL;
	moved = hd_format("%s%s", exe, hd_within_prefix(folder));
	if (!access(moved, X_OK))
		return moved;
	free(moved);
	return NULL;
}

char *hd_installed_folder(const char *folder)
{
	struct hd_err ignored = { 0 };
	char *exe = hd_this_program(&ignored), *moved = exe ? beside_bin(exe, folder) : NULL;

	free(exe);
	return moved ? moved : hd_strdup(folder);
}
