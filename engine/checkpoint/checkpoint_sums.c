/* SPDX-License-Identifier: Apache-2.0
 * heddle/sums.json: for each file of a checkpoint the sum of its bytes, as it was saved. Without it, a disk or a copy
 * that changed a file would silently change the model. Each rank adds up what it writes. When a checkpoint is read, each
 * rank adds up a part of every file.
 *
 *   { "version": 2, "files": { "model.safetensors": 32 hexadecimal digits, ... }, "texts": { "config.json": ... } }
 *
 * "texts" has the files that a run does not continue from, and that users edit: the INI, config.json, the tokenizer. A
 * change of one is a warning. They are apart because earlier programs read each file of "files" as tensors.
 *
 * Earlier checkpoints have no texts; still earlier ones are { "model.safetensors": 16 digits, ... }, without headers
 * and state.json.
 */
#include <config.h>
#include "engine/checkpoint/checkpoint_impl.h"
#include "engine/file/file.h"
#include "engine/file/inside.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "heddle/sums.json"
#define STATE "heddle/state.json"
#define SUMS_VERSION 2

/* Returns the sum over all ranks. It is added up in parts of 16 bits, which doubles add without rounding. */
static hd_sum128 of_all(hd_sum128 mine, double (*sum)(double))
{
	hd_sum128 all = 0;

	for (int i = 0; i < 8; i++)
		all += (hd_sum128)(uint64_t)sum((double)(uint64_t)(mine >> 16 * i & 0xffff)) << 16 * i;
	return all;
}

static char *text_of(hd_sum128 sum, int version)
{
	unsigned long long low = (unsigned long long)sum, high = (unsigned long long)(sum >> 64);

	return version == 1 ? hd_format("%016llx", low) : hd_format("%016llx%016llx", high, low);
}

/* Adds up a file that has no header, on one rank. */
static int sum_text(const char *path, hd_sum128 *sum, struct hd_err *err)
{
	size_t n;
	char *text = hd_file_read(path, &n, err);

	if (text)
		*sum += hd_bytes_sum(text, (int64_t)n, 0);
	free(text);
	return err->code;
}

/* -- saving ---------------------------------------------------------------------------------- */
void hd_sums_take(struct hd_saving *s)
{
	s->sums = json_object();
	for (size_t i = 0; i < hd_saving_files(s); i++) {
		char *text = text_of(of_all(hd_tensorfile_sum(hd_saving_file(s, i)), s->sum), SUMS_VERSION),
		     *name = hd_saving_name(s, i);

		json_object_set_new(s->sums, name, json_string(text));
		free(text), free(name);
	}
}

static int add_text(const char *dir, const char *name, json_t *sums, struct hd_err *err)
{
	char *path = hd_format("%s/%s", dir, name), *text;
	hd_sum128 sum = 0;

	if (sum_text(path, &sum, err) >= 0) {
		text = text_of(sum, SUMS_VERSION);
		json_object_set_new(sums, name, json_string(text));
		free(text);
	}
	free(path);
	return err->code;
}

/* Adds up the texts in a folder, except for STATE. The files of tensors have been added up by their writers. */
static int add_texts(const char *dir, const char *folder, json_t *sums, struct hd_err *err)
{
	char *path = hd_format("%s/%s", dir, folder);
	struct dirent *e;
	DIR *d = opendir(path);

	while (d && (e = readdir(d)) && !err->code) {
		const char *dot = strrchr(e->d_name, '.');
		char *name = hd_format("%s%s", folder, e->d_name);

		if (dot && e->d_name[0] != '.' && strcmp(dot, ".safetensors") != 0 && strcmp(name, STATE) != 0)
			add_text(dir, name, sums, err);
		free(name);
	}
	if (d)
		closedir(d);
	free(path);
	return err->code;
}

int hd_sums_write(const struct hd_saving *s, struct hd_err *err)
{
	char *path = hd_format("%s/%s", s->temporary, NAME), *text;
	json_t *texts = json_object(),
	       *o = json_pack("{s:i, s:O, s:O}", "version", SUMS_VERSION, "files", s->sums, "texts", texts);

	add_text(s->temporary, STATE, s->sums, err);
	add_texts(s->temporary, "", texts, err);
	add_texts(s->temporary, "heddle/", texts, err);
	if (!err->code) {
		text = json_dumps(o, JSON_INDENT(2));
		hd_append(&text, "\n");
		hd_file_write(path, text, err);
		free(text);
	}
	json_decref(o), json_decref(texts);
	free(path);
	return err->code;
}

/* -- reading --------------------------------------------------------------------------------- */
struct checking {
	const struct hd_world *w;
	const char *dir;
	int resumes, version;
	json_t *files, *texts; /* name -> sum; NULL: no sums were saved */
};

static void warn_of_changed(const struct checking *c, const char *name)
{
	hd_log(HD_LOG_WARN, "%s/%s: its bytes have changed since they were saved (%s); they are read as they are",
	       c->dir, name, NAME);
}

/* Reports a file that has changed, or that has no sum. A run that continues refuses it, since training from damaged
 * weights costs days. For others it is a warning, since the weights may have been changed on purpose. */
static void report_changed(const struct checking *c, const char *name, const char *found, struct hd_err *err)
{
	const char *saved = json_string_value(json_object_get(c->files, name));

	if (c->resumes && saved)
		hd_err_set(err, HD_EIO,
			   "%s/%s: its bytes have changed since they were saved: their checksum is %s, but %s has %s. "
			   "Remove that file to read them as they are",
			   c->dir, name, found, NAME, saved);
	else if (c->resumes)
		hd_err_set(err, HD_EIO,
			   "%s/%s: has no checksum of %s, so that file may have changed. Remove %s to read it as it is",
			   c->dir, NAME, name, NAME);
	else if (saved)
		warn_of_changed(c, name);
	else
		hd_log(HD_LOG_WARN, "%s/%s: has no checksum of %s, which is read as it is", c->dir, NAME, name);
}

/* Adds up this rank's part of a file. */
static int sum_file(const struct checking *c, const char *name, const char *path, hd_sum128 *mine, struct hd_err *err)
{
	HD_TRY(hd_file_inside(c->dir, name, err));
	if (!strcmp(name, STATE))
		return c->w->rank ? HD_OK : sum_text(path, mine, err);
	if (c->version == 1)
		return hd_tensorfile_sum_part_1(path, c->w->rank, c->w->size, mine, err);
	return hd_tensorfile_sum_part(path, c->w->rank, c->w->size, mine, err);
}

/* Checks the sum of a file. If the file is absent, its reader reports that. */
static int check_file(const struct checking *c, const char *name, struct hd_err *err)
{
	char *path = hd_format("%s/%s", c->dir, name), *found;
	int absent = access(path, F_OK) != 0;
	hd_sum128 mine = 0;

	if (!absent)
		sum_file(c, name, path, &mine, err);
	if (hd_comm_agree(err) >= 0 && hd_comm_max(absent) <= 0) {
		found = text_of(of_all(mine, hd_comm_sum), c->version);
		if (strcmp(found, json_string_value(json_object_get(c->files, name))) != 0)
			report_changed(c, name, found, err);
		free(found);
	}
	free(path);
	return err->code;
}

/* Checks on one rank the sums of the texts. One that is absent has been removed on purpose, or its reader reports
 * it. */
static int check_texts(const struct checking *c, struct hd_err *err)
{
	json_t *saved;
	const char *name;

	json_object_foreach(c->texts, name, saved) {
		char *path = hd_format("%s/%s", c->dir, name), *found = NULL;
		hd_sum128 sum = 0;

		if (!access(path, F_OK) && hd_file_inside(c->dir, name, err) >= 0 && sum_text(path, &sum, err) >= 0)
			found = text_of(sum, c->version);
		if (found && strcmp(found, json_string_value(saved)) != 0)
			warn_of_changed(c, name);
		free(found), free(path);
	}
	return err->code;
}

/* Checks on one rank that no file lacks a sum: then it would be read unchecked, without a word. */
static int check_complete(const struct checking *c, struct hd_err *err)
{
	static const char *const needed[] = { "heddle/optimizer.safetensors", "heddle/gradients.safetensors", STATE };
	json_t *names = hd_weights_names(c->dir), *one;
	size_t i, n = HD_LEN(needed) - (c->version == 1);

	for (i = 0; c->resumes && i < n; i++)
		if (hd_file_has(c->dir, needed[i]))
			json_array_append_new(names, json_string(needed[i]));
	json_array_foreach(names, i, one)
		if (!err->code && !json_object_get(c->files, json_string_value(one)))
			report_changed(c, json_string_value(one), "", err);
	json_decref(names);
	return err->code;
}

/* Finds the sums of either version. Returns 0 if there are none. */
static int parse_list(struct checking *c, json_t *o)
{
	json_t *version = json_object_get(o, "version"), *sum;
	const char *name;
	int good = 1;

	c->version = version ? (int)json_integer_value(version) : 1;
	c->files = json_incref(version ? json_object_get(o, "files") : o);
	c->texts = json_incref(version ? json_object_get(o, "texts") : NULL);
	json_object_foreach(c->files, name, sum)
		good &= json_is_string(sum);
	json_object_foreach(c->texts, name, sum)
		good &= json_is_string(sum);
	return good && json_object_size(c->files) > 0;
}

/* Reads the list of rank 0 for all ranks: a rank with a different list would wait for the others. */
static int read_list(struct checking *c, struct hd_err *err)
{
	char *path = hd_format("%s/%s", c->dir, NAME), *file = NULL, *mine, *text = NULL;
	json_t *o = NULL;
	int listed;

	if (!c->w->rank && hd_file_has(c->dir, NAME))
		file = hd_file_read_inside(c->dir, NAME, err);
	mine = hd_format("%s%s", file ? " " : "", file ? file : ""); /* an empty file differs from none */
	if (hd_comm_agree(err) >= 0)
		text = hd_comm_bcast_text(mine, 0);
	if (text && *text) {
		o = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
		listed = parse_list(c, o);
		if (c->version > SUMS_VERSION)
			hd_err_set(err, HD_ENOTSUP,
				   "%s: is version %d; this program reads version %d. Remove it to read the checkpoint "
				   "unchecked",
				   path, c->version, SUMS_VERSION);
		else if (!listed || c->version < 1)
			hd_err_set(err, HD_EIO,
				   "%s: is not a JSON object of files and checksums. Remove it to read the checkpoint "
				   "unchecked",
				   path);
	}
	json_decref(o);
	free(text), free(mine), free(file), free(path);
	return err->code;
}

int hd_sums_check(const struct hd_world *w, const char *dir, int resumes, struct hd_err *err)
{
	struct checking c = { .w = w, .dir = dir, .resumes = resumes };
	json_t *sum;
	const char *name;

	if (read_list(&c, err) >= 0 && c.files) {
		if (!w->rank && check_complete(&c, err) >= 0)
			check_texts(&c, err);
		hd_comm_agree(err);
		json_object_foreach(c.files, name, sum)
			if (!err->code && (resumes || strncmp(name, "heddle/", 7) != 0))
				check_file(&c, name, err);
	}
	json_decref(c.files), json_decref(c.texts);
	return err->code;
}
