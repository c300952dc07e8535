/* SPDX-License-Identifier: Apache-2.0
 * check --against-one-rank compares two runs by a bound: at the bound they agree, beyond it they do not.  If it were
 * stricter or laxer, a right layout would be refused, or a wrong one accepted.
 */
#include <config.h>
#include "engine/against/compare.h"
#include "engine/file/atomic_file.h"
#include "t/lib/tap.h"
#include <stdlib.h>
#include <sys/stat.h>

static char dir[] = "/tmp/heddle-test-compare.XXXXXX";

static FILE *open_in(const char *name, const char *path)
{
	char *whole = hd_format("%s/%s%s", dir, name, path);
	FILE *f = fopen(whole, "w");

	free(whole);
	return f;
}

static void make_folder(const char *name, const char *path)
{
	char *whole = hd_format("%s/%s%s", dir, name, path);

	mkdir(whole, 0700);
	free(whole);
}

/* Writes a run of one step, with a model of one weight. */
static void make_run(const char *name, double loss)
{
	static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
	uint64_t length = sizeof(header) - 1;
	float gradient = 1;
	FILE *f = open_in(name, ".jsonl");

	fprintf(f, "{\"step\": 1, \"loss\": %.17g, \"grad_norm\": 1.0}\n", loss);
	fclose(f);
	make_folder(name, "");
	make_folder(name, "/step-00000001");
	make_folder(name, "/step-00000001/heddle");
	f = open_in(name, "/step-00000001/heddle/gradients.safetensors");
	fwrite(&length, sizeof(length), 1, f);
	fwrite(header, 1, length, f);
	fwrite(&gradient, sizeof(gradient), 1, f);
	fclose(f);
}

/* Returns whether the written runs agree. */
static int agree(const struct hd_comparison *c)
{
	struct hd_err err = { 0 };
	FILE *out = fopen("/dev/null", "w");

	hd_compare(c, dir, out, &err);
	fclose(out);
	if (err.code)
		note("%s", err.text);
	return !err.code;
}

/* Returns whether runs agree whose losses differ by the relative error `apart`. */
static int is_alike(const struct hd_comparison *c, double apart)
{
	make_run("one", 1);
	make_run("many", 1 + apart);
	return agree(c);
}

/* -- runs that failed, or whose files lack something -------------------------------------------------------------------------- */
static void write_text(const char *name, const char *path, const char *text)
{
	FILE *f = open_in(name, path);

	fputs(text, f);
	fclose(f);
}

static void says(const struct hd_comparison *c, const char *want, const char *what)
{
	struct hd_err err = { 0 };
	FILE *out = fopen("/dev/null", "w");

	hd_compare(c, dir, out, &err);
	fclose(out);
	if (!ok(err.code && strstr(err.text, want), "%s", what))
		note("said: %s", err.text);
}

static void write_gradients(const char *name, const char *header, const void *data, size_t n)
{
	uint64_t length = strlen(header);
	FILE *f = open_in(name, "/step-00000001/heddle/gradients.safetensors");

	fwrite(&length, sizeof(length), 1, f);
	fwrite(header, 1, length, f);
	fwrite(data, 1, n, f);
	fclose(f);
}

static void failures(const struct hd_comparison *c)
{
	static const char step[] = "{\"step\": 1, \"loss\": 1, \"grad_norm\": 1}\n";
	const float one[] = { 1, 1 }, nan[] = { NAN };
	struct hd_err err = { 0 };
	struct hd_losses x;
	FILE *f;

	make_run("one", 1), make_run("many", 1);
	f = open_in("many", ".jsonl");
	for (int i = 0; i < HD_MOST_STEPS + 3; i++)
		fputs(step, f);
	fclose(f);
	is_int(hd_losses_read(dir, "many", &x, &err), HD_OK, "a run of more steps than are compared is read");
	is_int(x.n, HD_MOST_STEPS, "... up to the largest number that is compared");
	says(c, "one rank took 1 steps, but the layout took 16", "runs of different lengths are not compared");
	write_text("many", ".jsonl", "{\"step\": 1}\n{\"loss\": null}\nno JSON\n");
	says(c, "/many.jsonl: no step was written", "a run without a loss is reported");
	make_run("one", 1), make_run("many", 1);
	write_text("one", ".jsonl", "{\"step\": 1, \"loss\": 0, \"grad_norm\": 0}\n");
	write_text("many", ".jsonl", "{\"step\": 1, \"loss\": 0, \"grad_norm\": 0}\n");
	ok(agree(c), "zero in both runs agrees");
	write_text("many", ".jsonl", "{\"step\": 1, \"loss\": 0, \"grad_norm\": 1e-9}\n");
	says(c, "gradient norm of step 1 differs by inf", "zero in only one run does not agree");
	make_run("one", 1), make_run("many", 1);
	write_gradients("many", "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", nan, 4);
	says(c, "gradient of w differs by nan", "a gradient that is NaN does not agree");
	write_gradients("many", "{\"v\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", one, 4);
	says(c, "gradient of w differs by nan", "a gradient that the layout did not write does not agree");
	write_gradients("many", "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", one, 8);
	says(c, "gradient of w differs by nan", "a gradient of a different size does not agree");
	write_gradients("many", "{\"w\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]}}", one, 8);
	says(c, "w", "a gradient of a different type does not agree");
	write_text("many", "/step-00000001/heddle/gradients.safetensors", "");
	says(c, "gradients.safetensors", "an empty file of gradients is reported");
	write_text("many", ".jsonl", "");
	says(c, "/many.jsonl: no step was written", "a run that wrote no line is reported");
	write_text("many", ".out", "heddle: initial weights 1\nbanner\nheddle: the first\nheddle: the last\nbanner\n");
	err.code = 0;
	hd_compare_run_error(dir, "many", &err);
	is_str(err.text, "the layout did not train: the last", "the last message of a failed run is reported");
	err.code = 0;
	hd_compare_run_error(dir, "one", &err);
	is_str(err.text, "one rank did not train: it printed no message", "... or that there was none");
	write_text(
		"many", ".out",
		"heddle: initial weights 1\n-----\nThere are not enough slots for the 1000\nthat were requested:\n\n  true\n\n"
		"Either request fewer or\nlaunch.\n-----\n");
	err.code = 0;
	hd_compare_run_error(dir, "many", &err);
	is_str(err.text,
	       "the layout did not train: it printed no message; its launcher said: There are not enough slots for the 1000 that "
	       "were requested:",
	       "... or the launcher's message, which is in a frame");
	write_text("many", ".out", "a banner\nsh: mpirun: not found\n\n");
	err.code = 0;
	hd_compare_run_error(dir, "many", &err);
	is_str(err.text, "the layout did not train: it printed no message; its launcher said: sh: mpirun: not found",
	       "... or the launcher's last line");
	err.code = 0;
	hd_losses_read(dir, "nowhere", &x, &err);
	ok(strstr(err.text, "/nowhere.jsonl: no step was written") != NULL, "a run without files is reported");
}

/* With a second run of one rank, whose difference is rounding: up to eight times that difference is allowed. */
static void again(struct hd_comparison c)
{
	static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
	static const float seen[] = { 1 + 0x1p-20 }, at[] = { 1 + 0x1p-17 }, beyond[] = { 1 + 0x1.1p-17 };

	c.again = 1;
	make_run("again", 1 + 0x1p-20);
	ok(is_alike(&c, 0x1p-17), "a loss eight times as far off as the second run agrees");
	ok(!is_alike(&c, 0x1.1p-17), "... and a loss further off does not");
	make_run("again", 2);
	ok(is_alike(&c, 0.09), "if rounding moves the model far, a tenth is allowed");
	ok(!is_alike(&c, 0.11), "... and no more");
	make_run("again", 1);
	ok(is_alike(&c, 0x1p-24), "if rounding moves nothing, a loss at the bound agrees");
	ok(!is_alike(&c, 0x1.1p-24), "... and a loss beyond the bound does not");
	make_run("one", 1), make_run("many", 1);
	write_gradients("again", header, seen, 4);
	write_gradients("many", header, at, 4);
	ok(agree(&c), "a gradient eight times as far off as the second run's agrees");
	write_gradients("many", header, beyond, 4);
	ok(!agree(&c), "... and a gradient further off does not");
	write_text("again", ".jsonl", "");
	ok(!agree(&c), "without the second run nothing agrees");
}

int main(void)
{
	/* two orders of a sum of three terms differ by u^2 3 / 3 of its square */
	struct hd_comparison c = { .steps = 1, .layers = 1, .terms = 3, .tokens = 1 };
	struct hd_err err = { 0 };

	if (!mkdtemp(dir))
		return 1;
	is_int(hd_comparison_bound(&c, 0) == 0x1p-24, 1, "the bound of three terms is u");
	ok(is_alike(&c, 0), "equal runs agree");
	ok(is_alike(&c, 0x1p-24), "a loss at the bound agrees");
	ok(!is_alike(&c, 0x1.1p-24), "a loss beyond the bound does not agree");
	failures(&c);
	again(c);
	hd_dir_remove(dir, &err);
	return done();
}
