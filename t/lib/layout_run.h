/* SPDX-License-Identifier: Apache-2.0
 * t/lib/layout_run.h - runs of the program in several layouts, and how far apart two of them are.
 *
 * Bounds.  Layouts differ in the order of sums alone.  In fp32 (u = 2^-24) an addition is rounded by u / sqrt(3) of
 * the partial sum in the mean at most, and the partial sum of k of n terms has k / n of the square of all: a sum
 * of n terms is off by u^2 n / 6 of its square, and two orders differ by u^2 n / 3.  A gradient has passed the sums
 * of all layers, forward and backward, of the head and of its own tokens, whose errors add up as squares; TERMS is
 * the sum of their lengths.  In a layer that is, of products and norms in both directions, 16 of EMBED terms and 2
 * of MLP; of attention 6 of SEQ and 2 of HEAD; and 30 operations on elements, of 2.
 *
 * After i steps the weights have moved apart.  Descent that does not diverge has a rate of at most 2 / curvature,
 * so the error of one step's gradient makes at most twice itself of each later one: 1 + 4 i such squares.
 *
 * A tensor's error is compared to its own square, or to a thousandth of the mean square of all gradients: a
 * gradient that is zero but for rounding (a bias of the keys) is made of terms of the size of the others'.
 *
 * The test that includes this defines LAYERS, STEPS, EMBED, HEAD, MLP, SEQ, VOCAB and TOKENS (of a batch); or
 * BOUND and LOSS_BOUND, the squares of what may be off in any step.
 */
#ifndef HD_TEST_LAYOUT_RUN_H
#define HD_TEST_LAYOUT_RUN_H
#include "t/lib/mpi.h"
#include "t/lib/tensors.h"
#include <unistd.h>

#define UNIT 0x1p-24
#ifdef BOUND
#define BOUND_OF(step) BOUND
#define LOSS_BOUND_OF(step) LOSS_BOUND
#else
#define TERMS (LAYERS * (16 * EMBED + 2 * MLP + 6 * SEQ + 2 * HEAD + 30 * 2) + 2 * VOCAB + TOKENS)
#define BOUND_OF(step) (UNIT * UNIT * TERMS / 3 * (1 + 4 * (step)))
#define LOSS_BOUND_OF(step) BOUND_OF(step)
#endif

static char tmp[] = "/tmp/heddle-test.XXXXXX";

struct result {
	double loss[STEPS], norm[STEPS];
	char hash[32], path[200];
};

/* -- what a run leaves ------------------------------------------------------------------------- */
static void read_losses(const char *path, struct result *r)
{
	char line[1000], *at;
	FILE *f = fopen(path, "r");
	int n = 0;

	for (int i = 0; i < STEPS; i++)
		r->loss[i] = r->norm[i] = NAN;
	while (f && fgets(line, sizeof(line), f) && n < STEPS)
		if ((at = strstr(line, "\"loss\":"))) {
			r->loss[n] = strtod(at + 7, NULL);
			at = strstr(line, "\"grad_norm\":");
			r->norm[n++] = at ? strtod(at + 12, NULL) : NAN;
		}
	if (f)
		fclose(f);
}

static void read_hash(const char *path, struct result *r)
{
	char line[1000], *at;
	FILE *f = fopen(path, "r");

	snprintf(r->hash, sizeof(r->hash), "none");
	while (f && fgets(line, sizeof(line), f))
		if ((at = strstr(line, "initial weights ")))
			snprintf(r->hash, sizeof(r->hash), "%.16s", at + 16);
	if (f)
		fclose(f);
}

static void show(const char *path)
{
	char line[1000];
	FILE *f = fopen(path, "r");

	while (f && fgets(line, sizeof(line), f))
		printf("# %s", line);
	if (f)
		fclose(f);
}

/* Trains tmp/NAME.ini. */
static int run_ini(const char *name, int ranks, struct result *r)
{
	char ini[200], out[200], metrics[200];
	int rc;

	snprintf(ini, sizeof(ini), "%s/%s.ini", tmp, name);
	snprintf(out, sizeof(out), "%s/%s.out", tmp, name);
	snprintf(metrics, sizeof(metrics), "%s/%s.jsonl", tmp, name);
	snprintf(r->path, sizeof(r->path), "%s/%s/step-%08d/heddle/gradients.safetensors", tmp, name, STEPS);
	rc = mpi_run(ranks, 240, "%s/heddle train %s --set checkpoint.dir=%s/%s --set log.metrics=%s >%s",
		     HD_TEST_BUILD, ini, tmp, name, metrics, out);
	read_losses(metrics, r);
	read_hash(out, r);
	if (rc)
		show(out);
	return rc;
}

/* -- gradients --------------------------------------------------------------------------------- */
/* -> the worst tensor's error over the bound of the last step; NaN: a tensor is missing.  where: the worst, or if any
 * is over the bound, the first one that backward makes: files have the model's order, and what is wrong there spreads
 * from the last layer on. */
static double compare(const struct result *a, const struct result *b, char *where, size_t size)
{
	struct hd_tensorfile *f = NULL, *g = NULL;
	struct hd_err err = { 0 };
	double worst = 0, floor;

	if (hd_tensorfile_read(a->path, &f, &err) < 0 || hd_tensorfile_read(b->path, &g, &err) < 0) {
		snprintf(where, size, "%.250s", err.text);
		hd_tensorfile_close(f);
		return NAN;
	}
	floor = mean_square(f) / 1000;
	for (int i = hd_tensorfile_count(f) - 1; i >= 0 && worst == worst; i--) {
		const char *name = hd_tensorfile_name(f, i);
		int64_t n, m = 0;
		float *x = load(f, name, &n), *y = load(g, name, &m);
		double diff = x && y && n == m ? 0 : NAN, square = 0, off;

		for (int64_t k = 0; k < n && diff == diff; k++) {
			diff += ((double)x[k] - (double)y[k]) * ((double)x[k] - (double)y[k]);
			square += (double)x[k] * (double)x[k];
		}
		off = sqrt(diff / fmax(square, floor * (double)n) / BOUND_OF(STEPS - 1));
		if (!(off <= worst)) {
			if (worst <= 1)
				snprintf(where, size, "%s", name);
			worst = off;
		}
		free(x);
		free(y);
	}
	hd_tensorfile_close(f);
	hd_tensorfile_close(g);
	return worst;
}

/* Of losses and gradient norms, over the bound. */
static double worst_loss(const struct result *a, const struct result *b)
{
	double worst = 0;

	for (int i = 0; i < STEPS; i++) {
		double off = fabs(a->loss[i] / b->loss[i] - 1) / sqrt(LOSS_BOUND_OF(i));

		if (!(off <= worst))
			worst = off;
		off = fabs(a->norm[i] / b->norm[i] - 1) / sqrt(BOUND_OF(i));
		if (!(off <= worst))
			worst = off;
	}
	return worst;
}

static void write_text(void)
{
	static const char *const words[] = { "light ", "waters ", "under ", "heaven\n", "were ", "gathered ", "unto " };
	char path[200];
	unsigned x = 1;
	FILE *f;

	snprintf(path, sizeof(path), "%s/text", tmp);
	f = fopen(path, "w");
	for (int i = 0; i < 3000; i++) {
		x = x * 1103515245u + 12345u;
		fputs(words[(x >> 16) % 7], f);
	}
	fclose(f);
}

static int layouts_begin(void)
{
	char cache[200];

	if (!mkdtemp(tmp))
		return -1;
	snprintf(cache, sizeof(cache), "%s/cache", tmp);
	setenv("XDG_CACHE_HOME", cache, 1);
	write_text();
	return 0;
}

static void layouts_end(void)
{
	char command[200];

	snprintf(command, sizeof(command), "rm -rf %s", tmp);
	if (system(command))
		note("%s is still there", tmp);
}

#endif
