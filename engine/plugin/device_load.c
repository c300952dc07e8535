/* SPDX-License-Identifier: Apache-2.0
 * Loads the cuda device, which is a module, when it is requested, because this program also runs without a GPU.
 */
#include <config.h>
#include <folders.h>
#include "engine/plugin/device_load.h"
#include "engine/base/library.h"
#include "engine/plugin/loader.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "heddle-cuda.so"

/* Returns the module's path: in a build tree next to the executable, otherwise where it is installed. The caller frees
 * it. */
static char *module_path(void)
{
	const char *test = getenv("HD_TEST_CUDA_MODULE"); /* used by tests: the simulated device */
	struct hd_err ignored = { 0 };
	char *exe, *slash, *path = NULL, *dir;

	if (test)
		return hd_strdup(test);
	exe = hd_this_program(&ignored);
	while (!path && exe && (slash = strrchr(exe, '/'))) {
		*slash = 0;
		path = hd_format("%s/" FILE_NAME, exe);
		if (access(path, R_OK))
			free(path), path = NULL;
		if (strcmp(slash + 1, "heddle") && strcmp(slash + 1, "lt-heddle"))
			break;
	}
	free(exe);
	if (path)
		return path;
	dir = hd_installed_folder(HD_PLUGIN_DIR);
	path = hd_format("%s/devices/" FILE_NAME, dir);
	free(dir);
	return path;
}

int hd_device_gpu_there(void)
{
	return getenv("HD_TEST_CUDA_MODULE") || !access("/dev/nvidiactl", F_OK) || !access("/dev/dxg", F_OK);
}

static int accept(const struct hd_device_module *(*entry)(void), const char *path, const struct hd_device_ops **out,
		  struct hd_err *err)
{
	const struct hd_device_module *m = entry ? entry() : NULL;

	if (!m)
		return hd_err_set(err, HD_EABI, "%s is not a heddle device", path);
	if (m->version != HD_DEVICE_VERSION)
		return hd_err_set(err, HD_EABI,
				  "%s has device version %u, this engine %u: build and install both together", path,
				  m->version, HD_DEVICE_VERSION);
	if (m->ops_size != sizeof(struct hd_device_ops) || m->run_size != sizeof(struct hd_run))
		return hd_err_set(
			err, HD_EABI,
			"%s has tables of %u and %u bytes, this engine of %zu and %zu: build and install both "
			"together",
			path, m->ops_size, m->run_size, sizeof(struct hd_device_ops), sizeof(struct hd_run));
	*out = m->ops;
	return HD_OK;
}

/* Opens a library that the loader has not found, as in "libcublasLt.so.13: cannot open shared object file". The library
 * may come with a Python wheel. Returns 1 if it is now open; then the module finds it by its name. */
static int supply(const char *why)
{
	const char *end = strstr(why, ": cannot open shared object file"), *begin = end;
	struct hd_err none = { 0 };
	char *name;
	int found;

	while (begin && begin > why && begin[-1] != ' ')
		begin--;
	if (!begin || strncmp(begin, "lib", 3))
		return 0;
	name = hd_format("%.*s", (int)(end - begin), begin);
	found = hd_library_open(name, "CUDA_HOME", NULL, &none) || hd_library_open(name, NULL, NULL, &none);
	free(name);
	return found;
}

static int open_module(const char *path, struct hd_module **m, struct hd_err *err)
{
	struct hd_err why = { 0 };
	int rc = hd_loader_open(path, m, &why);

	for (int tries = 0; rc < 0 && tries < 4 && supply(why.text); tries++) {
		memset(&why, 0, sizeof(why));
		rc = hd_loader_open(path, m, &why);
	}
	return rc < 0 ? hd_err_set(err, HD_ENOTSUP, "%s %s", path, why.text) : rc;
}

int hd_device_cuda(const struct hd_device_ops **out, struct hd_err *err)
{
	const struct hd_device_module *(*entry)(void) = NULL;
	struct hd_module *m = NULL;
	char *path = module_path();
	int rc = HD_OK;

	if (access(path, R_OK))
		rc = hd_err_set(err, HD_ENOTSUP, "there is no %s: this installation was built without the CUDA toolkit",
				path);
	else
		rc = open_module(path, &m, err);
	if (rc >= 0) {
		*(void **)&entry = hd_loader_symbol(m, HD_DEVICE_SYMBOL, NULL);
		rc = accept(entry, path, out, err);
		hd_loader_keep(m);
	}
	free(path);
	return rc;
}
