/* SPDX-License-Identifier: Apache-2.0
 * heddle/sums.json: for each file of tensors the sum of its bytes, as it was saved. Without it, a disk or a copy that
 * changed a file would silently change the model. Each rank adds up what it writes. When a checkpoint is read, each
 * rank adds up a part of every file.
 */
#include <config.h>
#include "engine/checkpoint/checkpoint_impl.h"
#include "engine/file/inside.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "heddle/sums.json"

/* Returns the sum over all ranks. It is added up in four parts of 16 bits, which doubles add without rounding. */
static uint64_t of_all(uint64_t mine, double (*sum)(double))
{
	uint64_t all = 0;

	for (int i = 0; i < 4; i++)
		all += (uint64_t)sum((double)(mine >> 16 * i & 0xffff)) << 16 * i;
	return all;
}

static char *text_of(uint64_t sum)
{
	return hd_format("%016llx", (unsigned long long)sum);
}

/* -- saving ---------------------------------------------------------------------------------- */
void hd_sums_take(struct hd_saving *s)
{
	s->sums = json_object();
	for (size_t i = 0; i < hd_saving_files(s); i++) {
		char *text = text_of(of_all(hd_tensorfile_sum(hd_saving_file(s, i)), s->sum)),
		     *name = hd_saving_name(s, i);

		json_object_set_new(s->sums, name, json_string(text));
		free(text), free(name);
	}
}

int hd_sums_write(const struct hd_saving *s, struct hd_err *err)
{
	char *path = hd_format("%s/%s", s->temporary, NAME);
	char *text = json_dumps(s->sums, JSON_INDENT(2)), *all = hd_format("%s\n", text);
	int rc = hd_file_write(path, all, err);

	free(path), free(text), free(all);
	return rc;
}

/* -- reading --------------------------------------------------------------------------------- */
/* Reports a file that has changed. A run that continues refuses it, since training from damaged weights costs days. For
 * others it is a warning, since the weights may have been changed on purpose. */
static void report_changed(const char *path, const char *found, const char *saved, int resumes, struct hd_err *err)
{
	if (resumes)
		hd_err_set(err, HD_EIO,
			   "%s: its bytes have changed since they were saved: their checksum is %s, but %s has %s. "
			   "Remove that file to read them as they are",
			   path, found, NAME, saved ? saved : "none");
	else
		hd_log(HD_LOG_WARN, "%s: its bytes have changed since they were saved (%s); they are read as they are",
		       path, NAME);
}

/* Checks the sum of a file. If the file is absent, its reader reports that. */
static int check_file(const struct hd_world *w, const char *dir, const char *name, const char *saved, int resumes,
		      struct hd_err *err)
{
	char *path = hd_format("%s/%s", dir, name), *found;
	int absent = access(path, F_OK) != 0;
	uint64_t mine = 0;

	if (!absent && hd_file_inside(dir, name, err) >= 0)
		hd_tensorfile_sum_part(path, w->rank, w->size, &mine, err);
	if (hd_comm_agree(err) >= 0 && hd_comm_max(absent) <= 0) {
		found = text_of(of_all(mine, hd_comm_sum));
		if (!saved || strcmp(found, saved) != 0)
			report_changed(path, found, saved, resumes, err);
		free(found);
	}
	free(path);
	return err->code;
}

/* Reads the list of rank 0 for all ranks: a rank with a different list would wait for the others. */
static json_t *read_list(const struct hd_world *w, const char *dir, struct hd_err *err)
{
	char *path = hd_format("%s/%s", dir, NAME), *mine = NULL, *text;
	json_t *o = NULL;

	if (!w->rank && !access(path, F_OK))
		mine = hd_file_read_inside(dir, NAME, err);
	if (hd_comm_agree(err) >= 0) {
		text = hd_comm_bcast_text(mine ? mine : "", 0);
		o = *text ? json_loads(text, 0, NULL) : NULL;
		if (*text && !json_is_object(o))
			hd_err_set(err, HD_EIO, "%s: is not a JSON object of files and checksums", path);
		free(text);
	}
	free(mine), free(path);
	return o;
}

int hd_sums_check(const struct hd_world *w, const char *dir, int resumes, struct hd_err *err)
{
	json_t *o = read_list(w, dir, err), *sum;
	const char *name;

	if (!err->code && o)
		json_object_foreach(o, name, sum)
			if (!err->code && (resumes || strncmp(name, "heddle/", 7) != 0))
				check_file(w, dir, name, json_string_value(sum), resumes, err);
	json_decref(o);
	return err->code;
}
