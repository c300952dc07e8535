/* SPDX-License-Identifier: Apache-2.0
 * The metrics file.  Lines are written whole and at once, so that what reads along sees no half
 * of one, and a job that dies leaves all steps that it has finished.
 */
#include <config.h>
#include "engine/file/log_file.h"
#include "engine/train/metrics.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct hd_metrics {
	struct hd_log_file file;
	int fresh; /* nothing is written yet, and lines that are there are another run's */
};

/* Hours of training may be in it, and nothing else has these numbers. */
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
		hd_log(HD_LOG_INFO, "log.metrics: %s held another run, which is %s now", path, to);
	free(to);
	return rc;
}

int hd_metrics_open(const char *path, int append, struct hd_metrics **out, struct hd_err *err)
{
	struct hd_log_file f;

	HD_TRY(hd_log_file_open(path, &f, err));
	if (append && hd_log_file_end_line(&f))
		hd_log(HD_LOG_WARN, "log.metrics: %s ended within a line, which is taken off", path);
	*out = hd_alloc(sizeof(**out));
	**out = (struct hd_metrics){ .file = f, .fresh = !append };
	return HD_OK;
}

/* A run that ends before its first line leaves the file of the one before where it was. */
static int begin(struct hd_metrics *m, struct hd_err *err)
{
	struct hd_log_file f;

	HD_TRY(keep_old(m->file.path, err));
	HD_TRY(hd_log_file_open(m->file.path, &f, err));
	hd_log_file_close(&m->file, err);
	m->file = f;
	m->fresh = 0;
	return HD_OK;
}

int hd_metrics_write(struct hd_metrics *m, json_t *v, struct hd_err *err)
{
	char *line = hd_json_line(v);
	size_t n = strlen(line);
	int rc = m->fresh ? begin(m, err) : HD_OK;

	line[n] = '\n'; /* in the place of the 0 */
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
