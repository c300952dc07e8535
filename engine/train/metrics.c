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

struct hd_metrics {
	FILE *f;
	char *path;
};

int hd_metrics_open(const char *path, int append, struct hd_metrics **out, struct hd_err *err)
{
	FILE *f = fopen(path, append ? "ae" : "we");

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
