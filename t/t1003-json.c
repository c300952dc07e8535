/* SPDX-License-Identifier: Apache-2.0
 * The metrics file: what plots and comparisons of runs are made from.
 */
#include <config.h>
#include "engine/train/metrics.h"
#include "t/lib/tap.h"
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

/* A run that goes on from an earlier step than its lines. */
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
	ok(access(replaced, F_OK), "nothing is moved before the first line");
	ok(hd_metrics_has(path, 2, "valid_loss") && !hd_metrics_has(path, 2, "loss"), "what a step has");
	hd_metrics_write(m, step(3, 30), &err);
	hd_metrics_close(m, &err);
	is_str(slurp(path),
	       "no step\n{\"step\": 1, \"loss\": 1.0}\n{ \"step\" : 2, \"valid_loss\": 2.0}\n"
	       "{\"step\": 1, \"save_seconds\": 1.0}\n{\"step\": 3, \"loss\": 30.0}\n",
	       "lines of later steps are gone, and zeros, and half a line");
	is_str(slurp(replaced), "{\"step\": 3, \"loss\": 3.0}\n", "they are in PATH.replaced");
	hd_metrics_open(path, 1, &m, &err);
	hd_metrics_write(m, step(2, 20), &err);
	hd_metrics_close(m, &err);
	is_str(slurp(replaced),
	       "{\"step\": 3, \"loss\": 3.0}\n{ \"step\" : 2, \"valid_loss\": 2.0}\n{\"step\": 3, \"loss\": 30.0}\n",
	       "behind which the next ones go");
	unlink(replaced);
	free(replaced);
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
	ok(!hd_metrics_open(path, 0, &m, &err), "open");
	ok(!hd_metrics_write(m, step(1, 10.0 / 3), &err), "write");
	is_str(slurp(path), "{\"step\": 1, \"loss\": 3.33333333333333}\n", "the line is there at once");
	hd_metrics_write(m, step(2, NAN), &err);
	ok(!hd_metrics_close(m, &err), "close");
	hd_metrics_open(path, 2, &m, &err);
	hd_metrics_write(m, step(3, 0.1), &err);
	hd_metrics_close(m, &err);
	is_str(slurp(path),
	       "{\"step\": 1, \"loss\": 3.33333333333333}\n{\"step\": 2, \"loss\": null}\n"
	       "{\"step\": 3, \"loss\": 0.1}\n",
	       "appended; a NaN is null");
	old = hd_format("%s.1", path);
	hd_metrics_open(path, 0, &m, &err);
	hd_metrics_close(m, &err);
	ok(access(old, F_OK), "a run that writes nothing leaves the old one in its place");
	hd_metrics_open(path, 0, &m, &err);
	hd_metrics_write(m, step(1, 1), &err);
	hd_metrics_close(m, &err);
	is_str(slurp(path), "{\"step\": 1, \"loss\": 1.0}\n", "begun anew");
	is_str(slurp(old),
	       "{\"step\": 1, \"loss\": 3.33333333333333}\n{\"step\": 2, \"loss\": null}\n{\"step\": 3, \"loss\": 0.1}\n",
	       "the old one is PATH.1, with all that it had");
	unlink(old);
	free(old);
	goes_back(path);
	unlink(path);
	is_int(hd_metrics_open("/no/such/m.jsonl", 0, &m, &err), HD_EIO, "no such directory");
	is_str(err.text, "/no/such/m.jsonl: No such file or directory", "is named");
	memset(&err, 0, sizeof(err));
	if (!hd_metrics_open("/dev/full", 1, &m, &err)) {
		hd_metrics_write(m, step(1, 1), &err);
		is_str(err.text, "/dev/full: No space left on device", "a full disk");
		hd_metrics_close(m, NULL);
	} else {
		skip("no /dev/full");
	}
	ok(!hd_metrics_close(NULL, NULL), "closing nothing");
	return done();
}
