/* SPDX-License-Identifier: Apache-2.0
 * Opens shared objects with libltdl, and adds two things that libltdl lacks.
 *
 * libltdl binds functions lazily. An object that calls an undefined function would load, and end the process at the
 * first such call. Also, libltdl reports "file not found" whatever went wrong. Therefore each object is first opened
 * with dlopen(RTLD_NOW), which binds everything or gives the true reason. libltdl then finds the object already loaded.
 *
 * dlopen maps a file that was copied in part, and ends the process at the first page that is missing. So the file's size is
 * checked first.
 */
#include <config.h>
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* for dladdr1 */
#endif
#include "engine/plugin/loader.h"
#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <ltdl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct hd_module {
	lt_dlhandle handle;
	const struct link_map *map; /* this object in the list of all loaded objects */
};

/* Returns the message of dlopen without the path at its beginning, which our caller adds itself. */
static const char *reason(const char *path)
{
	const char *text = dlerror();
	size_t n = strlen(path);

	if (!text)
		return "no reason given";
	return !strncmp(text, path, n) && !strncmp(text + n, ": ", 2) ? text + n + 2 : text;
}

static int start_libltdl(struct hd_err *err)
{
	static int started;

	if (!started && lt_dlinit())
		return hd_err_set(err, HD_ENOTSUP, "libltdl cannot start: %s", lt_dlerror());
	started = 1;
	return 0;
}

/* Opens the object with local symbols, because two plugins may have internal symbols of the same name. */
static lt_dlhandle open_local(const char *path)
{
	lt_dladvise advise;
	lt_dlhandle handle = NULL;

	if (lt_dladvise_init(&advise))
		return NULL;
	if (!lt_dladvise_local(&advise))
		handle = lt_dlopenadvise(path, advise);
	lt_dladvise_destroy(&advise);
	return handle;
}

/* Returns the byte where the file's last segment ends, or 0 if the file is no ELF file of this machine. */
static uint64_t end_of_segments(FILE *f)
{
	ElfW(Ehdr) head;
	ElfW(Phdr) segment;
	uint64_t end;

	if (fread(&head, sizeof(head), 1, f) != 1 || memcmp(head.e_ident, ELFMAG, SELFMAG) ||
	    head.e_phentsize != sizeof(segment))
		return 0;
	end = head.e_phoff + (uint64_t)head.e_phnum * sizeof(segment);
	if (fseek(f, (long)head.e_phoff, SEEK_SET))
		return end;
	for (unsigned i = 0; i < head.e_phnum && fread(&segment, sizeof(segment), 1, f) == 1; i++)
		if (segment.p_type == PT_LOAD && segment.p_offset + segment.p_filesz > end)
			end = segment.p_offset + segment.p_filesz;
	return end;
}

static int check_size(const char *path, struct hd_err *err)
{
	FILE *f = fopen(path, "rb");
	struct stat st;
	uint64_t end = f ? end_of_segments(f) : 0;
	int known = f && !fstat(fileno(f), &st);

	if (f)
		fclose(f);
	if (known && end > (uint64_t)st.st_size)
		return hd_err_set(err, HD_EABI, "is truncated: it has %lld bytes, but its segments end at byte %llu",
				  (long long)st.st_size, (unsigned long long)end);
	return HD_OK;
}

int hd_loader_open(const char *path, struct hd_module **out, struct hd_err *err)
{
	struct hd_module m = { NULL, NULL };
	struct link_map *map = NULL;
	void *probe;

	HD_TRY(start_libltdl(err));
	HD_TRY(check_size(path, err));
	probe = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!probe)
		return hd_err_set(err, HD_EABI, "does not load: %s", reason(path));
	dlinfo(probe, RTLD_DI_LINKMAP, &map);
	m.map = map;
	m.handle = open_local(path);
	dlclose(probe); /* libltdl's handle keeps the object loaded */
	if (!m.handle)
		return hd_err_set(err, HD_EABI, "does not load: libltdl says: %s", lt_dlerror());
	*out = hd_alloc(sizeof(**out));
	**out = m;
	return 0;
}

void *hd_loader_symbol(struct hd_module *m, const char *name, const char **elsewhere)
{
	void *at = lt_dlsym(m->handle, name);
	struct link_map *map = NULL;
	Dl_info info;

	if (elsewhere)
		*elsewhere = NULL;
	if (!at || !dladdr1(at, &info, (void **)&map, RTLD_DL_LINKMAP))
		return NULL;
	if (map == m->map)
		return at;
	if (elsewhere)
		*elsewhere = info.dli_fname;
	return NULL;
}

void hd_loader_keep(struct hd_module *m)
{
	lt_dlmakeresident(m->handle);
}

void hd_loader_close(struct hd_module *m)
{
	if (!m)
		return;
	lt_dlclose(m->handle);
	free(m);
}

static int is_object(const struct dirent *d)
{
	size_t n = strlen(d->d_name);

	return n > 3 && !strcmp(d->d_name + n - 3, ".so");
}

void hd_loader_scan(const char *dir, void (*each)(const char *path, void *ctx), void *ctx)
{
	struct dirent **found;
	int n = scandir(dir, &found, is_object, alphasort);

	for (int i = 0; i < n; i++) {
		char *path = hd_format("%s/%s", dir, found[i]->d_name);

		each(path, ctx);
		free(path);
		free(found[i]);
	}
	if (n >= 0)
		free(found);
}
