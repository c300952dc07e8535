/* SPDX-License-Identifier: Apache-2.0
 * Event files, byte by byte.  TensorBoard silently drops a record with a wrong checksum, and everything after it.
 */
#include <config.h>
#include "engine/report/events.h"
#include "t/lib/tap.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned char *file;
static size_t bytes, at;

/* Returns the path of the only file in the directory. */
static char *only(const char *dir)
{
	DIR *d = opendir(dir);
	char *path = NULL;
	int n = 0;

	for (struct dirent *e; d && (e = readdir(d));)
		if (e->d_name[0] != '.') {
			free(path);
			path = hd_format("%s/%s", dir, e->d_name);
			n++;
		}
	if (d)
		closedir(d);
	is_int(n, 1, "the directory has one file");
	return path;
}

static void read_all(const char *path)
{
	FILE *f = fopen(path, "rb");

	file = hd_alloc(4096);
	bytes = f ? fread(file, 1, 4096, f) : 0;
	if (f)
		fclose(f);
}

static uint64_t little(size_t from, int n)
{
	uint64_t v = 0;

	for (int i = n - 1; i >= 0; i--)
		v = v << 8 | file[from + (size_t)i];
	return v;
}

static uint32_t mask(uint32_t crc)
{
	return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

/* Checks the frame of the next record.  Returns where its bytes begin, and their number in *n. */
static size_t record(size_t *n)
{
	size_t from = at + 12;

	*n = (size_t)little(at, 8);
	is_int((long long)little(at + 8, 4), mask(hd_crc32c(file + at, 8)), "the record's length has its checksum");
	is_int((long long)little(from + *n, 4), mask(hd_crc32c(file + from, *n)),
	       "the record's bytes have their checksum");
	at = from + *n + 4;
	return from;
}

static double real(size_t from)
{
	uint64_t bits = little(from, 8);
	double v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

/* Checks a value { tag, simple_value } at `from`.  Returns the position after it. */
static size_t scalar(size_t from, const char *tag, float want)
{
	size_t n = strlen(tag);
	uint32_t bits;
	float v;

	is_int(file[from], 1 << 3 | 2, "the field is Summary.value");
	is_int(file[from + 1], (long long)n + 2 + 5, "the value has its length");
	is_int(file[from + 2], 1 << 3 | 2, "the field is Value.tag");
	ok(file[from + 3] == n && !memcmp(file + from + 4, tag, n), "the tag is %s", tag);
	is_int(file[from + 4 + n], 2 << 3 | 5, "the field is Value.simple_value");
	bits = (uint32_t)little(from + 5 + n, 4);
	memcpy(&v, &bits, sizeof(v));
	ok(v == want, "the value of %s is %g", tag, (double)want);
	return from + 9 + n;
}

int main(void)
{
	char dir[] = "/tmp/heddle-events-XXXXXX", *path, *sub;
	struct hd_events *e = NULL;
	struct hd_err err = { 0 };
	size_t n, from;

	if (!mkdtemp(dir))
		skip_all("no place for files");
	is_int(hd_crc32c("123456789", 9), 0xe3069283, "CRC-32C of 123456789 has its known value");
	is_int(hd_crc32c("", 0), 0, "... and so does that of no bytes");
	sub = hd_format("%s/tb", dir);
	ok(!hd_events_open(sub, &e, &err), "opening makes the directory");
	ok(!hd_events_write(e,
			    json_pack("{s:i, s:f, s:f, s:[f, f], s:{s:s}}", "step", 300, "time", 1.5e9, "loss", 3.25,
				      "load", 1.5, 2.0, "run", "family", "gpt2"),
			    &err),
	   "a line is written");
	path = only(sub);
	ok(strstr(path, "/events.out.tfevents.") != NULL, "the file has the name that TensorBoard looks for");
	read_all(path);
	from = record(&n);
	is_int((long long)n, 9 + 2 + 13, "the first record has its length");
	is_int(file[from], 1 << 3 | 1, "its first field is Event.wall_time");
	ok(real(from + 1) > 1.7e9, "... with the present time");
	ok(!memcmp(file + from + 9,
		   "\x1a\x0d"
		   "brain.Event:2",
		   15),
	   "its second field is Event.file_version");
	from = record(&n);
	ok(real(from + 1) == 1.5e9, "the second record has the time of the line");
	ok(!memcmp(file + from + 9, "\x10\xac\x02", 3), "... and Event.step, 300 as a varint");
	is_int(file[from + 12], 5 << 3 | 2, "... and Event.summary");
	is_int(file[from + 13], (long long)n - 14, "... of the right length");
	from = scalar(from + 14, "loss", 3.25f);
	from = scalar(from, "load/0", 1.5f);
	from = scalar(from, "load/1", 2.0f);
	is_int((long long)from, (long long)at - 4, "step, time and texts are not written as values");
	is_int((long long)at, (long long)bytes, "the file has both records while it is still open");
	ok(!hd_events_close(e, &err) && !hd_events_close(NULL, &err),
	   "the file is closed, and closing NULL is allowed");
	is_int(hd_events_open("/proc/no/tb", &e, &err), HD_EIO, "a directory that cannot be made is an I/O error");
	ok(strstr(err.text, "/proc/no") != NULL, "... and the message names it");
	unlink(path), rmdir(sub), rmdir(dir);
	free(path), free(sub), free(file);
	return done();
}
