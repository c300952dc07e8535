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
};

/* Hours of training may be in it, and nothing else has these numbers. */
static int keep_old(const char *path, char **old, struct hd_err *err)
{
	struct stat s;
	char *to = NULL;

	if (stat(path, &s) || !S_ISREG(s.st_mode) || !s.st_size)
		return HD_OK;
	for (int i = 1; i < 100000; i++) {
		free(to);
		to = hd_format("%s.%d", path, i);
		if (access(to, F_OK))
			break;
	}
	if (rename(path, to)) {
		hd_err_set(err, HD_EIO, "%s: cannot be renamed to %s: %s", path, to, strerror(errno));
		free(to);
		return err->code;
	}
	*old = to;
	return HD_OK;
}

int hd_metrics_open(const char *path, int append, char **old, struct hd_metrics **out, struct hd_err *err)
{
	FILE *f;

	*old = NULL;
	if (!append)
		HD_TRY(keep_old(path, old, err));
	f = fopen(path, append ? "ae" : "we");
	if (!f)
		return hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	*out = hd_alloc(sizeof(**out));
	(*out)->f = f;
	(*out)->path = hd_strdup(path);
	return 0;
}

int hd_metrics_write(struct hd_metrics *m, json_t *v, struct hd_err *err)
{
	char *line = hd_json_line(v);
	int bad;

	bad = fprintf(m->f, "%s\n", line) < 0;
	bad |= fflush(m->f);
	free(line);
	return bad ? hd_err_set(err, HD_EIO, "%s: %s", m->path, strerror(errno)) : 0;
}

int hd_metrics_close(struct hd_metrics *m, struct hd_err *err)
{
	int rc = 0;

	if (!m)
		return 0;
	if (fclose(m->f))
		rc = hd_err_set(err, HD_EIO, "%s: %s", m->path, strerror(errno));
	free(m->path);
	free(m);
	return rc;
}
