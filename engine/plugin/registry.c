/* SPDX-License-Identifier: Apache-2.0
 * Finds plugins by name or path. A file is loaded and checked (accept.c) when it is first requested.
 */
#include <config.h>
#include <folders.h>
#include "engine/plugin/registry.h"
#include "engine/base/library.h"
#include "engine/base/parse.h"
#include "engine/plugin/accept.h"
#include "engine/plugin/loader.h"
#include "engine/plugin/turn.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct known_plugin **all;
static size_t nall, all_cap;

/* Loads the file, or sets k->e.why. */
static void load_file(struct known_plugin *k)
{
	struct hd_module *m = NULL;
	struct hd_err err = { .code = 0 };

	free(k->e.why);
	k->e.why = NULL;
	k->e.version = "";
	if (hd_loader_open(k->e.path, &m, &err) || hd_plugin_accept(m, k, &err)) {
		k->e.why = hd_one_line(hd_strdup(err.text));
		hd_loader_close(m);
		return;
	}
	hd_loader_keep(m);
	k->module = m;
	k->e.ops = &k->table;
}

static void load(struct known_plugin *k)
{
	hd_turn_file(k->e.path);
	load_file(k);
	hd_turn_file(NULL);
}

char *hd_registry_name(const char *path)
{
	const char *base = strrchr(path, '/');
	size_t n;
	char *name;

	base = base ? base + 1 : path;
	base += strncmp(base, "lib", 3) ? 0 : 3;
	base += strncmp(base, "heddle_", 7) ? 0 : 7;
	name = hd_strdup(base);
	n = strlen(name);
	if (n > 3 && !strcmp(name + n - 3, ".so"))
		name[n - 3] = 0;
	return name;
}

/* Returns the entry of a file. The file is checked at the first request. A refused file is checked again at the next
 * one, since it may have been rebuilt. */
static struct hd_plugin_entry *entry_of(const char *path)
{
	struct known_plugin *k = NULL;

	for (size_t i = 0; i < nall && !k; i++)
		k = strcmp(all[i]->e.path, path) ? NULL : all[i];
	if (!k) {
		k = hd_alloc(sizeof(*k));
		k->e.path = hd_strdup(path);
		k->e.name = hd_registry_name(path);
		all = hd_grow(all, nall, &all_cap, sizeof(*all));
		all[nall++] = k;
	}
	if (!k->module)
		load(k);
	return &k->e;
}

/* Returns the plugins/ directory of the build tree, or NULL. It is next to the executable; libtool's real executables
 * are in .libs/. Or it is next to the executable's directory if that is in a configured tree, since tests and tools are
 * built one level down. The search goes to the build tree first, then to the installation. */
static char *build_plugins(void)
{
	struct hd_err ignored = { 0 };
	char *exe = hd_this_program(&ignored), *slash, *dir = NULL, *mark;

	for (int up = 0; exe && up < 2 && !dir && (slash = strrchr(exe, '/')); up++) {
		*slash = 0;
		slash = strrchr(exe, '/');
		if (!up && slash && !strcmp(slash, "/.libs"))
			*slash = 0;
		dir = hd_format("%s/plugins", exe);
		mark = hd_format("%s/config.status", exe);
		if (access(dir, X_OK) || (up && access(mark, F_OK))) {
			free(dir);
			dir = NULL;
		}
		free(mark);
	}
	free(exe);
	return dir;
}

struct files {
	char **path;
	size_t n, cap;
};

static void add_file(const char *path, void *ctx)
{
	struct files *f = ctx;
	char *real = realpath(path, NULL);

	for (size_t i = 0; i < f->n && real; i++) {
		if (!strcmp(f->path[i], real)) {
			free(real);
			real = NULL;
		}
	}
	if (!real)
		return;
	f->path = hd_grow(f->path, f->n, &f->cap, sizeof(*f->path));
	f->path[f->n++] = real;
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds DIR/NAME/.libs/NAME.so for every NAME, where libtool puts modules. */
static void add_built(const char *dir, struct files *f)
{
	struct files subs = { NULL, 0, 0 };
	struct dirent *d;
	DIR *list = opendir(dir);

	while (list && (d = readdir(list))) {
		if (d->d_name[0] == '.')
			continue;
		subs.path = hd_grow(subs.path, subs.n, &subs.cap, sizeof(*subs.path));
		subs.path[subs.n++] = hd_format("%s/%s/.libs", dir, d->d_name);
	}
	if (list)
		closedir(list);
	if (subs.n)
		qsort(subs.path, subs.n, sizeof(*subs.path), compare);
	for (size_t i = 0; i < subs.n; i++) {
		hd_loader_scan(subs.path[i], add_file, f);
		free(subs.path[i]);
	}
	free(subs.path);
}

static void release(struct files *f)
{
	for (size_t i = 0; i < f->n; i++)
		free(f->path[i]);
	free(f->path);
}

/* Lists all files in search order. Returns the places searched, for messages; the caller frees it. */
static char *search(struct files *f)
{
	char *built = build_plugins(), *installed = hd_installed_folder(HD_PLUGIN_DIR), *places;

	if (built)
		add_built(built, f);
	hd_loader_scan(installed, add_file, f);
	places = built ? hd_format("%s, %s", built, installed) : hd_strdup(installed);
	free(built);
	free(installed);
	return places;
}

static int no_such_name(const char *name, const struct files *f, const char *places, struct hd_err *err)
{
	const char *near, **there = hd_alloc((f->n + 1) * sizeof(*there));
	char *names = NULL;

	for (size_t i = 0; i < f->n; i++) {
		there[i] = hd_registry_name(f->path[i]);
		hd_append(&names, "%s%s", i ? ", " : "", there[i]);
	}
	near = hd_suggest_nearest(name, there, (int)f->n);
	hd_err_set(err, HD_EINVAL, "no plugin \"%s\" (%s.so or heddle_%s.so) in %s; there: %s%s%s%s", name, name, name,
		   places, names ? names : "none", near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
	for (size_t i = 0; i < f->n; i++)
		free((char *)(uintptr_t)there[i]);
	free(there);
	free(names);
	return HD_EINVAL;
}

/* Returns the accepted plugin that an earlier search of this process found under that name, so that it is not searched
 * for again. */
static struct known_plugin *found_before(const char *name)
{
	for (size_t i = 0; i < nall; i++)
		if (all[i]->by_name && all[i]->module && !strcmp(all[i]->e.name, name))
			return all[i];
	return NULL;
}

static char *path_of_name(const char *name, struct hd_err *err)
{
	struct files f = { NULL, 0, 0 };
	const struct known_plugin *known = found_before(name);
	char *places, *path = NULL;

	if (known)
		return hd_strdup(known->e.path);
	places = search(&f);
	for (size_t i = 0; i < f.n && !path; i++) {
		char *one = hd_registry_name(f.path[i]);

		path = strcmp(one, name) ? NULL : hd_strdup(f.path[i]);
		free(one);
	}
	if (!path)
		no_such_name(name, &f, places, err);
	release(&f);
	free(places);
	return path;
}

static char *path_of_path(const char *value, const char *dir, struct hd_err *err)
{
	char *joined = value[0] != '/' && dir && *dir ? hd_format("%s/%s", dir, value) : NULL;
	char *path = joined ? realpath(joined, NULL) : NULL;

	if (!path)
		path = realpath(value, NULL);
	if (!path && joined && strcmp(dir, "."))
		hd_err_set(err, HD_EINVAL, "no plugin file %s, nor %s: %s", joined, value, strerror(errno));
	else if (!path)
		hd_err_set(err, HD_EINVAL, "no plugin file %s: %s", value, strerror(errno));
	free(joined);
	return path;
}

static int is_path(const char *value)
{
	size_t n = strlen(value);

	return strchr(value, '/') || (n > 3 && !strcmp(value + n - 3, ".so"));
}

int hd_registry_find(const char *name_or_path, const char *relative_to_dir, struct hd_plugin_entry **out,
		     struct hd_err *err)
{
	struct hd_plugin_entry *e;
	int named = !is_path(name_or_path);
	char *path = named ? path_of_name(name_or_path, err) : path_of_path(name_or_path, relative_to_dir, err);

	if (!path)
		return HD_EINVAL;
	e = entry_of(path);
	((struct known_plugin *)e)->by_name |= named;
	free(path);
	if (e->why)
		return hd_err_set(err, HD_EABI, "plugin %s: %s", e->path, e->why);
	*out = e;
	return 0;
}

int hd_registry_scan(struct hd_plugin_entry ***out)
{
	struct files f = { NULL, 0, 0 };
	struct hd_plugin_entry **e;

	free(search(&f));
	e = hd_alloc(f.n * sizeof(struct hd_plugin_entry *));
	for (size_t i = 0; i < f.n; i++) {
		e[i] = entry_of(f.path[i]);
		e[i]->hidden = 0;
		for (size_t j = 0; j < i && !e[i]->hidden; j++)
			e[i]->hidden = !strcmp(e[j]->name, e[i]->name);
	}
	release(&f);
	*out = e;
	return (int)f.n;
}

const struct hd_kernel_ops *hd_registry_kernel(const struct hd_plugin_entry *e, const char *device, const char *name)
{
	for (size_t i = 0; e->kernels && e->kernels[i]; i++)
		if (!strcmp(e->kernels[i]->name, name) && !strcmp(e->kernels[i]->device, device))
			return e->kernels[i];
	return NULL;
}

int hd_exact_next(const char **at, struct hd_exact_key *k)
{
	k->key = *at + strspn(*at, " ");
	k->nkey = (int)strcspn(k->key, "=");
	if (!*k->key)
		return 0;
	k->value = k->key + k->nkey + 1;
	k->nvalue = (int)strcspn(k->value, " ");
	*at = k->value + k->nvalue;
	return 1;
}
