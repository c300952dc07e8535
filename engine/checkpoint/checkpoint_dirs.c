/* SPDX-License-Identifier: Apache-2.0
 * The directory of checkpoints: DIR/step-00000500, DIR/latest, and what else is in DIR. A step's directory gets its
 * name when it is complete. A name that begins with a dot is being written, or was when a process was stopped.
 */
#include <config.h>
#include "engine/checkpoint/checkpoint_impl.h"
#include "engine/file/file.h"
#include "engine/file/same_file.h"
#include "engine/base/parse.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *hd_step_path(const char *dir, int64_t step)
{
	return hd_format("%s/step-%08lld", dir, (long long)step);
}
char *hd_step_temporary(const char *dir, int64_t step)
{
	return hd_format("%s/.step-%08lld.tmp", dir, (long long)step);
}

/* -- the steps of a directory -- */
int64_t hd_step_of_name(const char *name)
{
	const char *digits = name + 5;

	if (strncmp(name, "step-", 5) || strspn(digits, "0123456789") < 8 || strlen(digits) > 18 ||
	    digits[strspn(digits, "0123456789")])
		return -1;
	return strtoll(digits, NULL, 10);
}

static int descending(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x < y) - (x > y);
}

/* Returns whether d has a directory of this name. A link to one counts with `linked`. */
static int is_folder_in(DIR *d, const char *name, int linked)
{
	struct stat st;

	return !fstatat(dirfd(d), name, &st, linked ? 0 : AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode);
}

/* Returns the steps in a directory, newest first; malloc'ed. */
static int64_t *steps_in(const char *dir, size_t *n)
{
	int64_t *steps = NULL;
	size_t cap = 0;
	struct dirent *e;
	DIR *d = opendir(dir);

	*n = 0;
	while (d && (e = readdir(d))) {
		if (hd_step_of_name(e->d_name) < 0 || !is_folder_in(d, e->d_name, 1))
			continue;
		steps = hd_grow(steps, *n, &cap, sizeof(*steps));
		steps[(*n)++] = hd_step_of_name(e->d_name);
	}
	if (d)
		closedir(d);
	if (*n)
		qsort(steps, *n, sizeof(*steps), descending);
	return steps;
}

int64_t hd_steps_count(const char *dir)
{
	size_t n;

	free(steps_in(dir, &n));
	return (int64_t)n;
}

int hd_steps_free(const char *dir, int64_t from, struct hd_err *err)
{
	struct dirent *e;
	DIR *d = opendir(dir);

	while (d && (e = readdir(d)))
		if (hd_step_of_name(e->d_name) >= from && !is_folder_in(d, e->d_name, 0))
			hd_err_set(err, HD_EIO,
				   "%s/%s: has the name of a step that this run may save, but is not a directory. "
				   "Remove it, or give another dir",
				   dir, e->d_name);
	if (d)
		closedir(d);
	return err->code;
}

int hd_step_is_in(const char *step, const char *dir)
{
	char *text = hd_strdup(step), *parent = hd_file_real(dirname(text)), *own = hd_file_real(dir);
	int is = parent && own && !strcmp(parent, own);

	free(text), free(parent), free(own);
	return is;
}

/* Returns whether a name was left by a process that was stopped. .step-00000500.tmp is half written, and
 * .removed-step-00000500 is half removed. Either may follow more than one .removed-. */
static int is_left_over(const char *name)
{
	static const char removed[] = ".removed-";
	size_t n = strlen(removed);
	const char *of = name;

	while (!strncmp(of, removed, n))
		of += n;
	return !strncmp(of, ".step-", 6) || (of > name && !strncmp(of, "step-", 5));
}

void hd_steps_tidy(const char *dir, struct hd_err *stays)
{
	struct dirent *e;
	DIR *d = opendir(dir);

	while (d && (e = readdir(d))) {
		char *path;

		if (!is_left_over(e->d_name))
			continue;
		path = hd_format("%s/%s", dir, e->d_name);
		hd_dir_remove(path, stays);
		free(path);
	}
	if (d)
		closedir(d);
}

void hd_steps_prune(const char *dir, int64_t step, int64_t keep)
{
	size_t n;
	int64_t *steps = steps_in(dir, &n), kept = 0;

	for (size_t i = 0; i < n; i++) {
		struct hd_err err = { 0 };
		char *path;

		if (steps[i] > step || kept++ < keep)
			continue;
		path = hd_step_path(dir, steps[i]);
		if (hd_dir_remove(path, &err) < 0)
			hd_log(HD_LOG_WARN, "%s", err.text);
		free(path);
	}
	free(steps);
}

/* -- which one is meant ---------------------------------------------------------------------- */
/* Returns the step that `latest` names, else the newest one: a save may have been interrupted before it wrote `latest`.
 * Returns NULL if there is none, or, with err set, if `latest` exists and cannot be read. */
static char *newest(const char *dir, struct hd_err *err)
{
	struct hd_err why = { 0 };
	char *file = hd_format("%s/latest", dir), *name = hd_file_read(file, NULL, &why), *path = NULL;
	int unread = !name && !access(file, F_OK);
	size_t n;
	int64_t *steps;

	free(file);
	if (unread) {
		hd_err_set(err, HD_EIO,
			   "%s; it names the newest checkpoint; if you remove it, the last step-... there is used",
			   why.text);
		return NULL;
	}
	if (name) {
		name[strcspn(name, "\r\n")] = 0;
		if (hd_step_of_name(name) >= 0 && hd_file_has(dir, name))
			path = hd_format("%s/%s", dir, name);
		free(name);
	}
	if (path)
		return path;
	steps = steps_in(dir, &n);
	path = n ? hd_step_path(dir, steps[0]) : NULL;
	free(steps);
	return path;
}

static int is_folder(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* Returns whether path looks like a model's name on the Hub: "org/name". None of these is named like a step. */
static int is_hub_name(const char *path)
{
	const char *slash = strchr(path, '/');

	return slash && slash > path && slash[1] && !strchr(slash + 1, '/') && *path != '.' &&
	       strncmp(slash + 1, "step-", 5) != 0;
}

/* Returns "parent has step-00000010, step-00000012", malloc'ed, for a path in a directory of checkpoints; else NULL. */
static char *steps_beside(const char *path)
{
	char *a = hd_strdup(path), *b = hd_strdup(path), *text = NULL;
	const char *parent = dirname(a), *name = basename(b);
	size_t n;
	int64_t *steps = steps_in(parent, &n);

	if (n && !strncmp(name, "step-", 5))
		text = hd_format("%s has %s", parent, n > 8 ? "..., " : "");
	for (size_t i = n < 8 ? n : 8; i > 0 && text; i--)
		hd_append(&text, "step-%08lld%s", (long long)steps[i - 1], i > 1 ? ", " : "");
	free(steps);
	free(a), free(b);
	return text;
}

static int no_directory(const char *path, struct hd_err *err)
{
	char *beside = steps_beside(path);

	if (beside)
		hd_err_set(err, HD_EIO, "%s: no such directory; %s", path, beside);
	else if (is_hub_name(path))
		hd_err_set(err, HD_EIO,
			   "%s: no such directory; a model of the Hub is downloaded first: huggingface-cli download %s "
			   "--local-dir DIR",
			   path, path);
	else
		hd_err_set(err, HD_EIO, "%s: no such directory", path);
	free(beside);
	return err->code;
}

/* Sets the error that tells why path is no checkpoint. */
static int not_found(const char *path, struct hd_err *err)
{
	if (access(path, F_OK) && errno == ENOENT)
		return no_directory(path, err);
	if (is_folder(path) && access(path, R_OK | X_OK) && errno == EACCES)
		return hd_err_set(err, HD_EIO, "%s: cannot be read: %s", path, strerror(errno));
	if (hd_file_has(path, "adapter_config.json"))
		return hd_err_set(
			err, HD_ENOTSUP,
			"%s: is a LoRA adapter (adapter_config.json), which is not read; in Python, "
			"merge_and_unload() of peft merges it into its model, and save_pretrained(DIR) writes that",
			path);
	return hd_err_set(err, HD_EIO,
			  "%s: is not a checkpoint (it has no config.json), nor a directory of checkpoints "
			  "(it has no step-... and no latest)",
			  path);
}

char *hd_checkpoint_find(const char *path, struct hd_err *err)
{
	struct hd_err why = { 0 };
	char *found;

	if (hd_file_has(path, "config.json"))
		return hd_strdup(path);
	found = newest(path, &why);
	if (why.code)
		hd_err_set(err, why.code, "%s", why.text);
	else if (!found)
		not_found(path, err);
	return found;
}

/* -- what resume means ----------------------------------------------------------------------- */
/* Refuses a directory that has steps of another run: this run would overwrite or remove them. from: the checkpoint that
 * this run continues from; NULL: it begins at step 0. */
static int refuse_others(struct hd_conf *c, const struct hd_checkpoint_config *k, const char *from, struct hd_err *err)
{
	size_t n;
	int64_t *steps = steps_in(k->dir, &n), last = n ? steps[0] : -1;

	free(steps);
	if (last < 0 || (from && hd_step_is_in(from, k->dir)))
		return HD_OK;
	if (from)
		return hd_section_fail(
			c, k->section, "dir", err, HD_EINVAL,
			"%s already contains step %lld, which this run from %s would replace; give another dir, or "
			"remove it. --set checkpoint.resume=auto continues the run in it",
			k->dir, (long long)last, from);
	return hd_section_fail(
		c, k->section, "dir", err, HD_EINVAL,
		"%s already contains step %lld, but this run would begin at step 0; continue it with --set "
		"checkpoint.resume=auto, or give another dir",
		k->dir, (long long)last);
}

int hd_checkpoint_choose(struct hd_conf *c, char **path, struct hd_err *err)
{
	struct hd_checkpoint_config k;
	struct hd_err why = { 0 };
	int64_t yes;

	*path = NULL;
	HD_TRY(hd_checkpoint_config_read(c, &k, err));
	if (!strcmp(k.resume, "no"))
		return *k.dir ? refuse_others(c, &k, NULL, err) : HD_OK;
	if (!strcmp(k.resume, "auto")) {
		if (!*k.dir)
			return hd_section_fail(c, k.section, "resume", err, HD_EINVAL,
					       "auto: checkpoint.dir is not given");
		*path = newest(k.dir, &why);
		return why.code ? hd_section_fail(c, k.section, "dir", err, why.code, "%s", why.text) : HD_OK;
	}
	if (!hd_word_bool(k.resume, &yes))
		return hd_section_fail(
			c, k.section, "resume", err, HD_EINVAL,
			"%s: write auto to resume from the newest checkpoint in dir, no, or the path of a checkpoint",
			k.resume);
	*path = hd_checkpoint_find(k.resume, &why);
	if (!*path)
		return hd_section_fail(c, k.section, "resume", err, why.code, "%s", why.text);
	if (!*k.dir || refuse_others(c, &k, *path, err) >= 0)
		return HD_OK;
	free(*path);
	*path = NULL;
	return err->code;
}
