/* SPDX-License-Identifier: Apache-2.0
 * Directories that are complete or absent. If half of a checkpoint could be seen under its name, or
 * an old one vanished before the new one stood, a crash at the wrong moment would cost the run.
 */
#include <config.h>
#include "t/lib/tap.h"
#include "engine/file/atomic_file.h"
#include <sys/stat.h>
#include <unistd.h>

static char tmp[] = "/tmp/heddle-t1031.XXXXXX";

static const char *at(const char *name)
{
	static char path[4][256];
	static int turn;

	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof(path[turn]), "%s/%s", tmp, name);
	return path[turn];
}

static void put(const char *path, const char *text)
{
	struct hd_err err = { .code = 0 };

	if (hd_file_write(path, text, &err))
		note("%s", err.text);
}

static void test_directories(void)
{
	struct hd_err err = { .code = 0 };
	size_t n = 0;
	char *text;

	ok(!hd_dir_make(at("a/b/c/"), &err) && !hd_dir_make(at("a/b/c"), &err), "directories with parents, twice");
	put(at("a/b/file"), "one");
	put(at("a/b/file"), "two\n");
	text = hd_file_read(at("a/b/file"), &n, &err);
	ok(n == 4 && !strcmp(text, "two\n"), "a file replaced");
	free(text);
	ok(hd_dir_make(at("a/b/file/d"), &err) == HD_EIO && strstr(err.text, "cannot be a directory"), "%s", err.text);
	err.code = 0;
	ok(!hd_file_read(at("nothing"), &n, &err) && strstr(err.text, "/nothing: cannot be read: No such file"), "%s",
	   err.text);
	err.code = 0;
	ok(!hd_dir_commit(at("a/b"), at("step-1"), &err) && access(at("a/b"), F_OK) && !access(at("step-1/file"), F_OK),
	   "committed");
	hd_dir_make(at("a/new"), &err);
	put(at("a/new/fresh"), "x");
	ok(!hd_dir_commit(at("a/new"), at("step-1"), &err) && access(at("a/new"), F_OK) &&
		   !access(at("step-1/fresh"), F_OK) && access(at("step-1/file"), F_OK),
	   "an older one is replaced");
	ok(!symlink(tmp, at("step-1/link")) && !hd_dir_remove(at("step-1"), &err) && access(at("step-1"), F_OK) &&
		   !access(tmp, F_OK) && !hd_dir_remove(at("step-1"), &err),
	   "removed, without following links");
	ok(!hd_dir_writable(at("fresh/dir"), &err) && !rmdir(at("fresh/dir")), "a writable directory stays empty");
	if (!geteuid()) {
		skip("nothing is forbidden to root");
		return;
	}
	chmod(at("fresh"), 0500);
	ok(hd_dir_writable(at("fresh"), &err) == HD_EIO && strstr(err.text, "cannot be written to"), "%s", err.text);
}

int main(void)
{
	if (!mkdtemp(tmp))
		skip_all("no temporary directory");
	test_directories();
	chmod(at("fresh"), 0700);
	ok(!hd_dir_remove(tmp, &(struct hd_err){ .code = 0 }), "all is removed");
	return done();
}
