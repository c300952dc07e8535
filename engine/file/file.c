/* SPDX-License-Identifier: Apache-2.0
 * Reads a file as text without asking for its length: pipes and files in /proc do not report one.
 */
#include <config.h>
#include "engine/file/file.h"
#include "engine/base/err.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int is_device(FILE *f)
{
	struct stat st;

	return !fstat(fileno(f), &st) && S_ISCHR(st.st_mode);
}

/* Reads the whole file, or a device up to its first zero byte, since /dev/zero never ends. Readers of text refuse
 * that byte. */
char *hd_file_slurp(const char *path, size_t *bytes)
{
	FILE *f = fopen(path, "rbe");
	size_t n = 0, room = 0, k;
	int device = f && is_device(f);
	char *text = NULL;
	int why;

	if (!f)
		return NULL;
	do {
		text = hd_grow(text, n + 1, &room, 1); /* one byte stays free for the NUL */
		k = fread(text + n, 1, room - n - 1, f);
		n += k;
	} while (k && !(device && memchr(text + n - k, 0, k)));
	why = ferror(f) ? errno : 0;
	fclose(f);
	if (why) {
		free(text);
		errno = why;
		return NULL;
	}
	text[n] = 0;
	if (bytes)
		*bytes = n;
	return text;
}

json_t *hd_file_json(const char *path, struct hd_err *err)
{
	json_error_t at;
	size_t n;
	char *text = hd_file_slurp(path, &n);
	json_t *o = text ? json_loadb(text, n, 0, &at) : NULL;

	if (!text)
		hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	else if (!o)
		hd_err_set(err, HD_EINVAL, "%s:%d: %s", path, at.line, at.text);
	free(text);
	return o;
}

ssize_t hd_file_line(FILE *f, const char *path, char **line, size_t *room, struct hd_err *err)
{
	size_t n = 0;
	int c = 0;

	while (c != '\n' && (c = getc_unlocked(f)) != EOF) {
		if (!c && is_device(f))
			return hd_err_set(err, HD_EINVAL, "%s: byte 0x00: this is not a text file", path), -1;
		*line = hd_grow(*line, n + 1, room, 1);
		(*line)[n++] = (char)c;
	}
	if (ferror(f))
		hd_err_set(err, HD_EIO, "%s: %s", path, strerror(errno));
	if (err->code || !n)
		return -1;
	*line = hd_grow(*line, n + 1, room, 1);
	(*line)[n] = 0;
	return (ssize_t)n;
}

int hd_file_has(const char *dir, const char *name)
{
	char *path = hd_format("%s/%s", dir, name);
	int there = !access(path, F_OK);

	free(path);
	return there;
}

char *hd_file_temporary(const char *name)
{
	const char *dir = getenv("TMPDIR");

	return hd_format("%s/%s.XXXXXX", dir && *dir ? dir : "/tmp", name);
}
