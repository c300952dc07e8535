/* SPDX-License-Identifier: Apache-2.0
 * The metrics file.  If it were wrong, so would be the plots and comparisons of runs that are drawn from it.
 */
#include <config.h>
#include "engine/train/metrics.h"
#include "t/lib/tap.h"
#include <sys/stat.h>
#include <unistd.h>

static char *slurp(const char *path)
{
	static char text[500];
	FILE *f = fopen(path, "r");

	memset(text, 0, sizeof(text));
	if (!f || !fread(text, 1, sizeof(text) - 1, f))
		return NULL;
	fclose(f);
	return text;
}

static json_t *step(int n, double loss)
{
	return json_pack("{s:i, s:o}", "step", n, "loss", hd_json_number(loss));
}

/* A run that resumes from a step before the last line of its file. */
static void goes_back(const char *path)
{
	static const char text[] = "no step\n{\"step\": 1, \"loss\": 1.0}\n{ \"step\" : 2, \"valid_loss\": 2.0}\n"
				   "\0\0{\"step\": 3, \"loss\": 3.0}\n{\"step\": 1, \"save_seconds\": 1.0}\n{\"ste";
	char *replaced = hd_format("%s.replaced", path);
	FILE *f = fopen(path, "w");
	struct hd_metrics *m;
	struct hd_err err = { 0 };

	fwrite(text, 1, sizeof(text) - 1, f);
	fclose(f);
	hd_metrics_open(path, 2, &m, &err);
	ok(access(replaced, F_OK), "no line is moved before the run writes its first one");
	ok(hd_metrics_has(path, 2, "valid_loss") && !hd_metrics_has(path, 2, "loss"),
	   "hd_metrics_has tells which keys a step has");
	hd_metrics_write(m, step(3, 30), &err);
	hd_metrics_close(m, &err);
	is_str(slurp(path),
	       "no step\n{\"step\": 1, \"loss\": 1.0}\n{ \"step\" : 2, \"valid_loss\": 2.0}\n"
	       "{\"step\": 1, \"save_seconds\": 1.0}\n{\"step\": 3, \"loss\": 30.0}\n",
	       "lines of later steps are removed, as are zero bytes and half a line");
	is_str(slurp(replaced), "{\"step\": 3, \"loss\": 3.0}\n", "the removed lines are in PATH.replaced");
	hd_metrics_open(path, 1, &m, &err);
	hd_metrics_write(m, step(2, 20), &err);
	hd_metrics_close(m, &err);
	is_str(slurp(replaced),
	       "{\"step\": 3, \"loss\": 3.0}\n{ \"step\" : 2, \"valid_loss\": 2.0}\n{\"step\": 3, \"loss\": 30.0}\n",
	       "lines that are removed later are appended there");
	unlink(replaced);
	free(replaced);
}

/* A run that resumes while its file cannot be replaced: a directory has the name of the temporary file. */
static void fails_twice(const char *path)
{
	char *replaced = hd_format("%s.replaced", path), *temporary = hd_format("/tmp/.written-%s", path + 5);
	FILE *f = fopen(path, "w");
	struct hd_metrics *m;
	struct hd_err err = { 0 };

	fprintf(f, "{\"step\": 1}\n{\"step\": 2}\n");
	fclose(f);
	mkdir(temporary, 0777);
	hd_metrics_open(path, 1, &m, &err);
	for (int i = 2; i < 4; i++)
		is_int(hd_metrics_write(m, step(i, 1), &err), HD_EIO, "lines that cannot be removed are an error");
	rmdir(temporary);
	memset(&err, 0, sizeof(err));
	ok(!hd_metrics_write(m, step(4, 1), &err), "the next step can be written");
	is_str(slurp(replaced), "{\"step\": 2}\n", "... and a removed line is in PATH.replaced once");
	hd_metrics_close(m, &err);
	unlink(replaced);
	free(temporary);
	free(replaced);
}

/* A second run with the same file.  The lock belongs to the open file, so one process can be both runs. */
static void only_one_writes(const char *path)
{
	struct hd_metrics *m, *other;
	struct hd_err err = { 0 }, why = { 0 };
	char *want = hd_format("%s: another process is writing it; give this run another file", path);
	char *replaced = hd_format("%s.replaced", path);

	hd_metrics_open(path, 3, &m, &err);
	hd_metrics_write(m, step(4, 1), &err);
	is_int(hd_metrics_open(path, 1, &other, &why), HD_EINVAL, "a file that another run writes is refused");
	is_str(why.text, want, "... and the message names it");
	hd_metrics_close(m, &err);
	ok(!hd_metrics_open(path, 1, &m, &err), "a run that has ended no longer has the lock");
	hd_metrics_write(m, step(2, 1), &err);
	memset(&why, 0, sizeof(why));
	is_int(hd_metrics_open(path, 1, &other, &why), HD_EINVAL, "... and a file that was replaced is locked again");
	hd_metrics_close(m, &err);
	unlink(replaced);
	free(replaced);
	free(want);
}

int main(void)
{
	char path[] = "/tmp/heddle-metrics-XXXXXX";
	struct hd_metrics *m = NULL;
	char *old;
	struct hd_err err = { 0 };
	int fd = mkstemp(path);

	if (fd < 0)
		skip_all("no place for files");
	close(fd);
	ok(!hd_metrics_open(path, 0, &m, &err), "a new file is opened");
	ok(!hd_metrics_write(m, step(1, 10.0 / 3), &err), "a line is written");
	is_str(slurp(path), "{\"step\": 1, \"loss\": 3.33333333333333}\n", "the line is in the file at once");
	hd_metrics_write(m, step(2, NAN), &err);
	ok(!hd_metrics_close(m, &err), "the file is closed");
	hd_metrics_open(path, 2, &m, &err);
	hd_metrics_write(m, step(3, 0.1), &err);
	hd_metrics_close(m, &err);
	is_str(slurp(path),
	       "{\"step\": 1, \"loss\": 3.33333333333333}\n{\"step\": 2, \"loss\": null}\n"
	       "{\"step\": 3, \"loss\": 0.1}\n",
	       "a run that continues appends, and a NaN is written as null");
	old = hd_format("%s.1", path);
	hd_metrics_open(path, 0, &m, &err);
	hd_metrics_close(m, &err);
	ok(access(old, F_OK), "a run that writes nothing leaves the old file in its place");
	hd_metrics_open(path, 0, &m, &err);
	hd_metrics_write(m, step(1, 1), &err);
	hd_metrics_close(m, &err);
	is_str(slurp(path), "{\"step\": 1, \"loss\": 1.0}\n", "a run that starts over begins a new file");
	is_str(slurp(old),
	       "{\"step\": 1, \"loss\": 3.33333333333333}\n{\"step\": 2, \"loss\": null}\n{\"step\": 3, \"loss\": 0.1}\n",
	       "the old file is PATH.1, with all its lines");
	unlink(old);
	free(old);
	goes_back(path);
	fails_twice(path);
	only_one_writes(path);
	unlink(path);
	is_int(hd_metrics_open("/no/such/m.jsonl", 0, &m, &err), HD_EIO, "a missing directory is an I/O error");
	is_str(err.text, "/no/such/m.jsonl: No such file or directory", "... and the message names the file");
	memset(&err, 0, sizeof(err));
	if (!hd_metrics_open("/dev/full", 1, &m, &err)) {
		hd_metrics_write(m, step(1, 1), &err);
		is_str(err.text, "/dev/full: No space left on device", "a full disk is reported");
		hd_metrics_close(m, NULL);
	} else {
		skip("no /dev/full");
	}
	ok(!hd_metrics_close(NULL, NULL), "closing NULL is allowed");
	return done();
}
