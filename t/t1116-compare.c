/* SPDX-License-Identifier: Apache-2.0
 * check --against-one-rank judges two runs by a bound: at the bound they are alike, beyond it they are not.  If this were
 * stricter or laxer, a right layout would be refused, or a wrong one taken.
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

/* A run of one step, with a model of one weight. */
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

/* -> whether runs are alike whose losses differ by so much of themselves */
static int is_alike(const struct hd_comparison *c, double apart)
{
	struct hd_err err = { 0 };
	FILE *out = fopen("/dev/null", "w");

	make_run("one", 1);
	make_run("many", 1 + apart);
	hd_compare(c, dir, out, &err);
	fclose(out);
	if (err.code)
		note("%s", err.text);
	return !err.code;
}

int main(void)
{
	/* two orders of a sum of three terms: u^2 3 / 3 of its square */
	struct hd_comparison c = { .steps = 1, .layers = 1, .terms = 3, .tokens = 1 };
	struct hd_err err = { 0 };

	if (!mkdtemp(dir))
		return 1;
	is_int(hd_comparison_bound(&c, 0) == 0x1p-24, 1, "the bound of three terms is u");
	ok(is_alike(&c, 0), "runs that are equal");
	ok(is_alike(&c, 0x1p-24), "a loss at the bound");
	ok(!is_alike(&c, 0x1.1p-24), "a loss beyond it");
	hd_dir_remove(dir, &err);
	return done();
}
