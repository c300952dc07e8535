/* SPDX-License-Identifier: Apache-2.0
 * heddle report: writes metrics files as one page for any browser.
 */
#include <config.h>
#include "engine/cli/verbs.h"
#include "engine/file/atomic_file.h"
#include "engine/file/same_file.h"
#include "engine/report/report.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads files whose names are separated by commas. If a file with the complete name exists, it is the only one. */
static int read_all(struct hd_report *r, char *paths, struct hd_err *err)
{
	char *rest = NULL;

	if (strchr(paths, ',') && !access(paths, F_OK))
		return hd_curves_read(paths, &r->run[r->n++], err);
	for (char *p = strtok_r(paths, ",", &rest); p; p = strtok_r(NULL, ",", &rest)) {
		if (r->n == HD_MOST_RUNS)
			return hd_err_set(err, HD_EINVAL, "report: at most %d files", HD_MOST_RUNS);
		HD_TRY(hd_curves_read(p, &r->run[r->n++], err));
	}
	return r->n ? HD_OK : hd_err_set(err, HD_EINVAL, "report: which metrics file (log.metrics)?");
}

static int check_out(const struct hd_report *r, const char *path, struct hd_err *err)
{
	for (int i = 0; path && i < r->n; i++)
		if (hd_file_same(r->run[i].path, path))
			return hd_err_set(err, HD_EINVAL, "report: --out: %s is read as metrics too; give another file",
					  path);
	return HD_OK;
}

/* Writes the page at once, so that an older one stays until this one is complete. */
static int write_page(const struct hd_report *r, const char *path, struct hd_err *err)
{
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);

	if (!f)
		return hd_err_set(err, HD_ENOMEM, "report: %s", strerror(errno));
	hd_report_page(f, r);
	fclose(f);
	if (path)
		hd_file_write(path, text, err);
	else if (fwrite(text, 1, n, stdout) != n || fflush(stdout))
		hd_err_set(err, HD_EIO, "stdout: %s", strerror(errno));
	free(text);
	return err->code;
}

int hd_verb_report(struct hd_cli *c)
{
	const char *out = hd_cli_str(c, "out", NULL);
	char *paths = hd_strdup(c->positional ? c->positional : "");
	struct hd_report *r = hd_alloc(sizeof(*r));
	struct hd_err err = { 0 };

	if (read_all(r, paths, &err) >= 0 && check_out(r, out, &err) >= 0)
		write_page(r, out, &err);
	if (err.code)
		hd_log(HD_LOG_ERROR, "%s", err.text);
	for (int i = 0; i < r->n; i++)
		hd_curves_free(&r->run[i]);
	free(r);
	free(paths);
	return err.code ? 1 : 0;
}
