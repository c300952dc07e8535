/* SPDX-License-Identifier: Apache-2.0
 * Writes the metrics file. Each line is written in one piece. So a program that follows the file sees no half lines,
 * and a job that dies leaves all steps that it has finished. The file is locked while a run writes, since a second run
 * would move the lines of the first away.
 */
#include <config.h>
#include "engine/file/atomic_file.h"
#include "engine/file/log_file.h"
#include "engine/file/same_file.h"
#include "engine/train/train_impl.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENDING 5.0 /* seconds for which a new run waits until an earlier one that writes the same file has ended */

struct hd_metrics {
	struct hd_log_file file;
	int64_t step; /* step that the run resumes from; 0: it is a new run */
	int fresh;    /* nothing has been written yet, and lines in the file may be from a different run */
};

/* Renames an existing file. It may contain the numbers of hours of training, which are nowhere else. */
static int keep_old(const char *path, struct hd_err *err)
{
	struct stat s;
	char *to = NULL;
	int rc = HD_OK;

	if (stat(path, &s) || !S_ISREG(s.st_mode) || !s.st_size)
		return HD_OK;
	for (int i = 1; i < 100000; i++) {
		free(to);
		to = hd_format("%s.%d", path, i);
		if (access(to, F_OK))
			break;
	}
	if (rename(path, to))
		rc = hd_err_set(err, HD_EIO, "%s: cannot be renamed to %s: %s", path, to, strerror(errno));
	else
		hd_log(HD_LOG_INFO, "log.metrics: %s contained another run, which was renamed to %s", path, to);
	free(to);
	return rc;
}

/* -- lines in the file ----------------------------------------------------------------------- */
/* Returns the step of a line, or -1 if it is not a line of metrics. */
static int64_t step_of(const char *line)
{
	long long step;

	return sscanf(line, " { \"step\" : %lld", &step) == 1 ? step : -1;
}

/* Reads the file without zeros, which a power cut may leave and which would end the text. */
static char *read_text(const char *path, struct hd_err *err)
{
	size_t n, to = 0;
	char *text = hd_file_read(path, &n, err);

	for (size_t i = 0; text && i < n; i++)
		if (text[i])
			text[to++] = text[i];
	if (text)
		text[to] = 0;
	return text;
}

/* Removes a line from *text and returns it. NULL: no line is left. */
static char *next_line(char **text)
{
	char *line = *text, *end = line + strcspn(line, "\n");

	if (!*line)
		return NULL;
	*text = *end ? end + 1 : end;
	*end = 0;
	return line;
}

/* Copies the lines into kept and later, each of which has room for the
 * complete text. Returns the number of later lines. */
static int64_t split(char *text, int64_t step, char *kept, char *later)
{
	int64_t n = 0;

	*kept = *later = 0;
	for (char *line; (line = next_line(&text));) {
		int is_later = step_of(line) > step;
		char **to = is_later ? &later : &kept;

		*to = stpcpy(stpcpy(*to, line), "\n");
		n += is_later;
	}
	return n;
}

/* Writes the later lines to their new file first, so that a kill between the two writes loses none. If the second
 * write fails, they are taken back, since the next step tries both again. */
static int move_later(const struct hd_metrics *m, const char *kept, const char *later, struct hd_err *err)
{
	char *to = hd_format("%s.replaced", m->file.path);
	struct hd_err ignored = { 0 };
	struct hd_log_file f;
	int rc = hd_log_file_open(to, &f, err);

	free(to);
	HD_TRY(rc);
	rc = hd_log_file_add(&f, later, strlen(later), err);
	if (rc >= 0) {
		rc = hd_file_write(m->file.path, kept, err);
		if (rc < 0 && hd_file_has_name(m->file.path, m->file.fd)) /* the file was not replaced */
			hd_log_file_take_back(&f, strlen(later), &ignored);
	}
	hd_log_file_close(&f, rc < 0 ? &ignored : err);
	return rc < 0 ? rc : err->code;
}

/* Moves the lines of later steps away. A run that died may have logged steps that are in no checkpoint. This run
 * trains them again, and each step has one line. */
static int set_aside_later(const struct hd_metrics *m, struct hd_err *err)
{
	const char *path = m->file.path;
	struct stat s;
	char *text, *kept, *later;
	int64_t n;
	int rc = HD_OK;

	if (stat(path, &s) || !S_ISREG(s.st_mode))
		return HD_OK;
	text = read_text(path, err);
	if (!text)
		return err->code;
	kept = hd_alloc(strlen(text) + 2);
	later = hd_alloc(strlen(text) + 2);
	n = split(text, m->step, kept, later);
	if (n)
		rc = move_later(m, kept, later, err);
	if (n && rc >= 0)
		hd_log(HD_LOG_INFO, "log.metrics: %lld line%s of steps after %lld moved from %s to %s.replaced",
		       (long long)n, hd_plural(n, "s"), (long long)m->step, path, path);
	free(text);
	free(kept);
	free(later);
	return rc;
}

static int has_key(const char *line, const char *key)
{
	char *quoted = hd_format("\"%s\":", key);
	int has = strstr(line, quoted) != NULL;

	free(quoted);
	return has;
}

int hd_metrics_has(const char *path, int64_t step, const char *key)
{
	struct hd_err none = { 0 };
	struct stat s;
	char *text = stat(path, &s) || !S_ISREG(s.st_mode) ? NULL : read_text(path, &none), *at = text;
	int has = 0;

	for (char *line; at && !has && (line = next_line(&at));)
		has = step_of(line) == step && has_key(line, key);
	free(text);
	return has;
}

/* -- writing --------------------------------------------------------------------------------- */
int hd_metrics_open(const char *path, int64_t step, struct hd_metrics **out, struct hd_err *err)
{
	struct hd_log_file f;

	HD_TRY(hd_log_file_open_locked(path, ENDING, &f, err));
	if (step && hd_log_file_end_line(&f))
		hd_log(HD_LOG_WARN, "log.metrics: %s ended in the middle of a line, which was removed", path);
	*out = hd_alloc(sizeof(**out));
	**out = (struct hd_metrics){ .file = f, .step = step, .fresh = 1 };
	return HD_OK;
}

/* Moves old lines away when the first line is written, so that a run that ends
 * earlier leaves the previous run's file as it was. */
static int begin(struct hd_metrics *m, struct hd_err *err)
{
	struct hd_log_file f;

	HD_TRY(m->step ? set_aside_later(m, err) : keep_old(m->file.path, err));
	if (!hd_file_has_name(m->file.path, m->file.fd)) { /* else this run has the lock already */
		HD_TRY(hd_log_file_open_locked(m->file.path, 0, &f, err));
		hd_log_file_close(&m->file, err);
		m->file = f;
	}
	m->fresh = 0;
	return HD_OK;
}

int hd_metrics_write(struct hd_metrics *m, json_t *v, struct hd_err *err)
{
	char *line = hd_json_line(v);
	size_t n = strlen(line);
	int rc = m->fresh ? begin(m, err) : HD_OK;

	line[n] = '\n'; /* replaces the terminating 0 */
	if (rc >= 0)
		rc = hd_log_file_add(&m->file, line, n + 1, err);
	free(line);
	return rc;
}

int hd_metrics_close(struct hd_metrics *m, struct hd_err *err)
{
	int rc = m ? hd_log_file_close(&m->file, err) : HD_OK;

	free(m);
	return rc;
}

json_t *hd_train_about(const struct train_loop *l)
{
	const struct hd_model *m = &l->p->model;
	char *layout = hd_layout_text(l->p);
	json_t *o =
		json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:s, s:s}", "family", m->family->name,
			  "parameters", (json_int_t)hd_plan_parameters(l->p), "layers", (json_int_t)m->layers, "embed",
			  (json_int_t)m->embed, "heads", (json_int_t)m->heads, "vocab", (json_int_t)m->vocab, "layout",
			  layout, "ranks", (json_int_t)l->p->ranks, "threads", (json_int_t)l->j->threads, "precision",
			  l->j->compute_dtype ? "bf16" : "fp32", "conf", hd_conf_path(l->j->conf));

	json_object_set_new(o, "seq", json_integer((json_int_t)m->seq));
	json_object_set_new(o, "global_batch", json_integer((json_int_t)l->j->train.batch.full));
	json_object_set_new(o, "steps", json_integer((json_int_t)l->steps));
	free(layout);
	return o;
}
