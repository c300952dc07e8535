/* SPDX-License-Identifier: Apache-2.0
 * Libraries that only some runs need are found wherever machines keep them: in the folder that a variable names,
 * packed with the program, or in Python's environments.  If this broke, GPU runs would fail on every machine but the
 * one of the build.
 */
#include <config.h>
#include "engine/base/library.h"
#include "t/lib/tap.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char top[64] = "/tmp/heddle-library.XXXXXX";

/* Creates top/dir/NAME as a library. */
static void put(const char *dir, const char *name)
{
	char *cmd = hd_format("PATH=/usr/bin:/bin; mkdir -p '%s/%s' && cp '%s/plugins/dp/.libs/dp.so' '%s/%s/%s'", top,
			      dir, HD_TEST_BUILD, top, dir, name);

	if (system(cmd))
		printf("# %s\n", cmd);
	free(cmd);
}

static void text(const char *dir, const char *name)
{
	char *cmd = hd_format("PATH=/usr/bin:/bin; mkdir -p '%s/%s' && echo text >'%s/%s/%s' && chmod +x '%s/%s/%s'",
			      top, dir, top, dir, name, top, dir, name);

	if (system(cmd))
		printf("# %s\n", cmd);
	free(cmd);
}

static void set(const char *var, const char *dir)
{
	char *path = hd_format("%s/%s", top, dir);

	setenv(var, path, 1);
	free(path);
}

/* Returns where a library was found, below top, or "". */
static const char *found(const char *name, const char *dir, struct hd_err *err)
{
	static char at[4096];
	char *full = dir ? hd_format("%s/%s", top, dir) : NULL;
	void *lib = hd_library_open(name, "TEST_HOME", full, err);
	Dl_info info = { 0 };

	at[0] = 0;
	if (lib && dladdr(dlsym(lib, "heddle_plugin_v1"), &info))
		snprintf(at, sizeof(at), "%s", info.dli_fname);
	free(full);
	return strncmp(at, top, strlen(top)) ? at : at + strlen(top);
}

static int ends(const char *s, const char *with)
{
	size_t n = strlen(s), m = strlen(with);

	return n >= m && !strcmp(s + n - m, with);
}

#define FOUND(at, name, dir) \
	do { \
		struct hd_err e_ = { 0 }; \
		const char *f_ = found(name, dir, &e_); \
		ok(ends(f_, at), "%s is found as %s (%s)", name, at, *f_ ? f_ : e_.text); \
	} while (0)

static void says(const char *name, const char *got, const char *part)
{
	ok(strstr(got, part), "%s: %s", name, got);
}

static void nowhere(void)
{
	struct hd_err err = { 0 };

	setenv("PATH", "/nowhere", 1);
	ok(!hd_library_open("libnone.so.7", "TEST_HOME", NULL, &err), "a missing library is not found");
	says("... the message names the library", err.text, "libnone.so.7 cannot be opened (libnone.so.7: cannot open");
	says("... and where it was searched for", err.text,
	     "Python's environments: no such file in site-packages/nvidia");
	memset(&err, 0, sizeof(err));
	text("bad/lib", "libbad.so.7");
	set("TEST_HOME", "bad");
	ok(!hd_library_open("libbad.so.7", "TEST_HOME", NULL, &err), "a file that is no library is not opened");
	says("... the message names it with the reason", err.text, "bad/lib/libbad.so.7: ");
	memset(&err, 0, sizeof(err));
	put("beside", "liba.so.7");
	ok(!*found("liba.so.7", "beside", &err), "a place that the user names is the only one searched");
	says("... the message names it", err.text, "bad: no such file there");
	unsetenv("TEST_HOME");
}

int main(void)
{
	if (!mkdtemp(top))
		return 1;
	nowhere();
	FOUND("/beside/liba.so.7", "liba.so.7", "beside");
	put("home/lib64", "libb.so.7");
	put("beside", "libb.so.7");
	set("TEST_HOME", "home");
	FOUND("/home/lib64/libb.so.7", "libb.so.7", "beside");
	put("plain", "libc7.so.7");
	set("TEST_HOME", "plain");
	FOUND("/plain/libc7.so.7", "libc7.so.7", NULL);
	unsetenv("TEST_HOME");
	put("venv/lib/python3.12/site-packages/nvidia/nccl/lib", "libd.so.7");
	set("VIRTUAL_ENV", "venv");
	FOUND("/venv/lib/python3.12/site-packages/nvidia/nccl/lib/libd.so.7", "libd.so.7", NULL);
	unsetenv("VIRTUAL_ENV");
	put("opt/lib/python3.11/site-packages/nvidia/cu13/lib", "libe.so.7");
	text("opt/bin", "python3");
	{
		char *path = hd_format("%s/none:%s/opt/bin", top, top);

		setenv("PATH", path, 1);
		free(path);
	}
	FOUND("/lib/python3.11/site-packages/nvidia/cu13/lib/libe.so.7", "libe.so.7", NULL);
	put("user/.local/lib/python3.9/site-packages/nvidia/nccl/lib", "libf.so.7");
	set("HOME", "user");
	FOUND("/user/.local/lib/python3.9/site-packages/nvidia/nccl/lib/libf.so.7", "libf.so.7", NULL);
	setenv("PATH", "/bin:/usr/bin", 1);
	{
		char *cmd = hd_format("rm -rf '%s'", top);

		is_int(system(cmd), 0, "the folder is removed");
		free(cmd);
	}
	return done();
}
