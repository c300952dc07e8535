/* SPDX-License-Identifier: Apache-2.0
 * The ids of tokenized texts stay in the cache as long as runs use them. Each use updates their time. A run that adds
 * ids removes those that nobody has used for HD_KEPT_DAYS days. A run that has removed files mapped can still read
 * them; their disk space is freed when it ends.
 */
#include <config.h>
#include "engine/data/tokens.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int is_kept_file(const char *name)
{
	return !strncmp(name, "tokens-", 7) && strlen(name) > 7 + 16 && strspn(name + 7, "0123456789abcdef") == 16 &&
	       name[7 + 16] == '.';
}

/* Returns the newest time of a set's files: that of .idx, which is its last use, or of a file that a stopped run
 * left. */
static time_t last_use(const char *dir, const char *name)
{
	static const char *const ends[] = { "idx",      "bin",      "notes",     "lock",
					    "part.bin", "part.idx", "part.json", "part.lengths" };
	time_t last = 0;

	for (size_t i = 0; i < HD_LEN(ends); i++) {
		char *path = hd_format("%s/%.23s.%s", dir, name, ends[i]);
		struct stat st;

		if (!stat(path, &st) && st.st_mtime > last)
			last = st.st_mtime;
		free(path);
	}
	return last;
}

void hd_kept_ids_used(const char *idx)
{
	const struct timespec now[2] = { { .tv_nsec = UTIME_NOW }, { .tv_nsec = UTIME_NOW } };

	(void)!utimensat(AT_FDCWD, idx, now, 0); /* fails for a file of another user, whose uses count then */
}

void hd_kept_ids_prune(const char *dir)
{
	time_t before = time(NULL) - (time_t)HD_KEPT_DAYS * 24 * 3600;
	DIR *d = opendir(dir);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		char *path = hd_format("%s/%s", dir, e->d_name);
		struct stat st;

		if (is_kept_file(e->d_name) && !stat(path, &st) && st.st_mtime < before &&
		    last_use(dir, e->d_name) < before)
			unlink(path);
		free(path);
	}
	if (d)
		closedir(d);
}
