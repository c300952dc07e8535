/* SPDX-License-Identifier: Apache-2.0
 * A file as text, of whatever length: pipes and files of /proc have none that could be asked for.
 */
#include <config.h>
#include "engine/file/file.h"
#include "engine/base/err.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

char *hd_file_slurp(const char *path, size_t *bytes)
{
	FILE *f = fopen(path, "rbe");
	size_t n = 0, room = 0, k;
	char *text = NULL;
	int why;

	if (!f)
		return NULL;
	do {
		text = hd_grow(text, n + 1, &room, 1); /* one byte stays free for the 0 */
		k = fread(text + n, 1, room - n - 1, f);
		n += k;
	} while (k);
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

char *hd_file_temporary(const char *name)
{
	const char *dir = getenv("TMPDIR");

	return hd_format("%s/%s.XXXXXX", dir && *dir ? dir : "/tmp", name);
}
