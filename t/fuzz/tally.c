/* SPDX-License-Identifier: Apache-2.0
 * What is kept from run to run (t/fuzz/fuzz.h): a line for each run of a kind in DIR/executions.log, and inputs in DIR/NAME.
 */
#include <config.h>
#include "t/fuzz/fuzz.h"
#include "engine/file/atomic_file.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char *path_of(const char *name)
{
	const char *dir = getenv("HD_FUZZ_KEPT");

	return dir && *dir ? hd_format("%s/%s", dir, name) : NULL;
}

int64_t hd_fuzz_wanted(void)
{
	const char *n = getenv("HD_FUZZ_WANTED");

	return n ? strtoll(n, NULL, 10) : 0;
}

int64_t hd_fuzz_tally(const char *name)
{
	char line[300], of[60], *path = path_of("executions.log");
	FILE *f = path ? fopen(path, "re") : NULL;
	long long n, all = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%59s %lld executions", of, &n) == 2 && !strcmp(of, name))
			all += n;
	if (f)
		fclose(f);
	free(path);
	return all;
}

void hd_fuzz_count(const char *name, int64_t runs, double seconds, uint64_t seed, int crashed)
{
	const char *commit = getenv("HD_FUZZ_COMMIT");
	char when[30], *path = path_of("executions.log");
	time_t now = time(NULL);
	struct tm utc;
	FILE *f = path ? fopen(path, "ae") : NULL;

	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
	if (f) {
		fprintf(f, "%s %lld executions in %.0f s, seed %" PRIu64 ", commit %s, %s%s\n", name, (long long)runs,
			seconds, seed, commit ? commit : "unknown", when, crashed ? ", crashed" : "");
		fclose(f);
	}
	free(path);
}

char *hd_fuzz_corpus(const char *name)
{
	char *dir = path_of(name);
	struct hd_err err = { 0 };

	if (dir && hd_dir_make(dir, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		exit(2);
	}
	return dir;
}

void hd_fuzz_keep(const char *dir, const uint8_t *data, size_t n)
{
	uint64_t hash = 0xcbf29ce484222325;
	char *path;
	FILE *f;

	for (size_t i = 0; i < n; i++)
		hash = (hash ^ data[i]) * 0x100000001b3;
	path = hd_format("%s/%016" PRIx64, dir, hash);
	f = fopen(path, "wbe");
	if (f) {
		fwrite(data, 1, n, f);
		fclose(f);
	}
	free(path);
}
