/* SPDX-License-Identifier: Apache-2.0
 * Directories that are either complete or absent.  If half of a checkpoint could be seen under its name, or an old one
 * vanished before the new one was in place, a crash at the wrong moment would cost the run.
 */
#include <config.h>
#include "t/lib/tap.h"
#include "engine/checkpoint/checkpoint_impl.h"
#include "engine/file/atomic_file.h"
#include "engine/file/disk_room.h"
#include "engine/file/inside.h"
#include "engine/file/installed.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
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

/* Root may write everywhere, so the test becomes another user for a while. */
static void test_forbidden(void)
{
	const uid_t nobody = 65534, me = geteuid();
	struct hd_err err = { .code = 0 };

	chmod(tmp, 0755);
	chmod(at("fresh"), 0777);
	if (!me && seteuid(nobody)) {
		skip("this root may not become another user");
		return;
	}
	ok(!hd_dir_writable(at("fresh"), &err), "a directory that everybody may write to is writable: %s", err.text);
	if (!me)
		ok(!seteuid(me), "the process is root again");
	chmod(at("fresh"), 0555);
	if (!me)
		ok(!seteuid(nobody), "the process is another user again");
	ok(hd_dir_writable(at("fresh"), &err) == HD_EIO && strstr(err.text, "cannot be written to"), "%s", err.text);
	if (!me)
		ok(!seteuid(me), "the process is root at the end");
}

static void test_directories(void)
{
	struct hd_err err = { .code = 0 };
	size_t n = 0;
	char *text;

	ok(!hd_dir_make(at("a/b/c/"), &err) && !hd_dir_make(at("a/b/c"), &err),
	   "a directory is made with its parents, and may exist already");
	put(at("a/b/file"), "one");
	put(at("a/b/file"), "two\n");
	text = hd_file_read(at("a/b/file"), &n, &err);
	ok(n == 4 && !strcmp(text, "two\n"), "a file is replaced");
	free(text);
	ok(hd_dir_make(at("a/b/file/d"), &err) == HD_EIO && strstr(err.text, "cannot be a directory"), "%s", err.text);
	err.code = 0;
	ok(!hd_file_read(at("nothing"), &n, &err) && strstr(err.text, "/nothing: cannot be read: No such file"), "%s",
	   err.text);
	err.code = 0;
	ok(!hd_dir_commit(at("a/b"), at("step-1"), &err) && access(at("a/b"), F_OK) && !access(at("step-1/file"), F_OK),
	   "a directory is committed under its final name");
	hd_dir_make(at("a/new"), &err);
	put(at("a/new/fresh"), "x");
	ok(!hd_dir_commit(at("a/new"), at("step-1"), &err) && access(at("a/new"), F_OK) &&
		   !access(at("step-1/fresh"), F_OK) && access(at("step-1/file"), F_OK),
	   "committing replaces an older directory of that name");
	ok(!symlink(tmp, at("step-1/link")) && !hd_dir_remove(at("step-1"), &err) && access(at("step-1"), F_OK) &&
		   !access(tmp, F_OK) && !hd_dir_remove(at("step-1"), &err),
	   "a directory is removed without following links");
	ok(!hd_dir_writable(at("fresh/dir"), &err) && !rmdir(at("fresh/dir")),
	   "testing whether a directory is writable leaves nothing in it");
	test_forbidden();
}

/* A file that a stranger's folder names must be inside that folder, or where a cache of models keeps its files. */
static void test_inside(void)
{
	static const char *const inside[] = { "file", "folder", "own", "nothing" };
	struct hd_err err = { .code = 0 };

	hd_dir_make(at("home/folder"), &err);
	hd_dir_make(at("homes"), &err);
	hd_dir_make(at("model/snapshots/r1"), &err);
	hd_dir_make(at("model/blobs"), &err);
	put(at("home/file"), "x");
	put(at("homes/other"), "x");
	put(at("model/blobs/b1"), "x");
	ok(!symlink("file", at("home/own")) && !symlink("../homes/other", at("home/out")) &&
		   !symlink("../../blobs/b1", at("model/snapshots/r1/blob")) && !mkfifo(at("home/pipe"), 0600),
	   "links and a pipe are made");
	for (size_t i = 0; i < HD_LEN(inside); i++)
		ok(!hd_file_inside(at("home"), inside[i], &err),
		   "a path inside the folder, or of a missing file, is accepted: %s %s", inside[i], err.text);
	ok(!hd_file_inside(at("model/snapshots/r1"), "blob", &err), "a link to a blob of the cache is accepted %s",
	   err.text);
	ok(hd_file_inside(at("home"), "out", &err) == HD_EIO && strstr(err.text, "which is outside"), "%s", err.text);
	err.code = 0;
	ok(hd_file_inside(at("home"), "pipe", &err) == HD_EIO && strstr(err.text, "is not a regular file"), "%s",
	   err.text);
}

static void test_room(void)
{
	struct rlimit limit, whole;
	struct hd_err err = { .code = 0 };
	struct statvfs st;
	char *text = hd_format("%0100d", 7);

	ok(!hd_path_writable(at("later.txt"), 0, &err) && !hd_path_writable(at("later/dir"), 1, &err),
	   "a file and a folder that can be made are writable");
	ok(hd_path_writable(at("later/file.txt"), 0, &err) == HD_EIO, "a file in a missing folder is not writable: %s",
	   err.text);
	err.code = 0;
	ok(!hd_installed_find("machines", "no-such-machine", &err) && strstr(err.text, "and no such name"), "%s",
	   err.text);
	err.code = 0;
	/* Other programs write at the same time, but not as much as half of the free room. */
	ok(!statvfs(tmp, &st) &&
		   fabs(hd_disk_left(at("later/dir")) / ((double)st.f_bavail * (double)st.f_frsize) - 1) < 0.5,
	   "the free room of the disk is found for a path that does not exist");
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &whole);
	limit = whole;
	limit.rlim_cur = 50;
	setrlimit(RLIMIT_FSIZE, &limit);
	hd_file_write(at("cut"), text, &err);
	setrlimit(RLIMIT_FSIZE, &whole);
	ok(err.code == HD_EIO && access(at("cut"), F_OK), "a file that cannot be written completely is removed: %s",
	   err.text);
	free(text);
}

static const char *newest_is(const char *latest)
{
	static char name[64];
	struct hd_err err = { .code = 0 };
	char *path;

	put(at("run/latest"), latest);
	path = hd_checkpoint_find(at("run"), &err);
	snprintf(name, sizeof(name), "%s", path ? strrchr(path, '/') + 1 : err.text);
	free(path);
	return name;
}

static void test_steps(void)
{
	struct hd_err err = { .code = 0 };
	char kept[6] = "";

	for (int k = 1; k <= 5; k++) {
		char *path = hd_step_path(at("run"), k);

		hd_dir_make(path, &err);
		free(path);
	}
	hd_dir_make(at("run/notes"), &err);
	hd_steps_prune(at("run"), 4, 2);
	for (int k = 1; k <= 5; k++) {
		char *path = hd_step_path(at("run"), k);

		snprintf(kept + strlen(kept), 2, "%d", access(path, F_OK) ? 0 : k);
		free(path);
	}
	is_str(kept, "00345", "pruning at step 4 keeps two of step 4 and older, and all newer ones");
	is_str(newest_is("step-00000004\n"), "step-00000004", "the newest checkpoint is the one that latest names");
	is_str(newest_is("step-00000002\n"), "step-00000005", "... unless that does not exist");
	is_str(newest_is("notes\n"), "step-00000005", "... or is not a step");
}

int main(void)
{
	if (!mkdtemp(tmp))
		skip_all("no temporary directory");
	test_directories();
	test_inside();
	test_room();
	test_steps();
	chmod(at("fresh"), 0700);
	ok(!hd_dir_remove(tmp, &(struct hd_err){ .code = 0 }), "the temporary files are removed");
	return done();
}
