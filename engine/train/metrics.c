/* SPDX-License-Identifier: Apache-2.0
 * The metrics file.  Lines are written whole and at once, so that what reads along sees no half
 * of one, and a job that dies leaves all steps that it has finished.
 */
#include <config.h>
#include "engine/train/metrics.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct hd_metrics {
	FILE *f;
	char *path;
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
	FILE *f = fopen(path, "ae");

	if (!f)
		return hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	*out = hd_alloc(sizeof(**out));
	(*out)->f = f;
	(*out)->path = hd_strdup(path);
	(*out)->fresh = !append;
	return HD_OK;
}

/* A run that ends before its first line leaves the file of the one before where it was. */
static int begin(struct hd_metrics *m, struct hd_err *err)
{
	m->fresh = 0;
	HD_TRY(keep_old(m->path, err));
	if (!freopen(m->path, "ae", m->f)) {
		m->f = NULL;
		return hd_err_set(err, HD_EIO, "%s: %s", m->path, strerror(errno));
	}
	return HD_OK;
}

int hd_metrics_write(struct hd_metrics *m, json_t *v, struct hd_err *err)
{
	char *line = hd_json_line(v);
	int bad = m->fresh && begin(m, err) < 0;

	if (!bad && m->f && (fprintf(m->f, "%s\n", line) < 0 || fflush(m->f)))
		bad = hd_err_set(err, HD_EIO, "%s: %s", m->path, strerror(errno));
	free(line);
	return bad ? err->code : HD_OK;
}

int hd_metrics_close(struct hd_metrics *m, struct hd_err *err)
{
	int rc = 0;

	if (!m)
		return 0;
	if (m->f && fclose(m->f))
		rc = hd_err_set(err, HD_EIO, "%s: %s", m->path, strerror(errno));
	free(m->path);
	free(m);
	return rc;
}
