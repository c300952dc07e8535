/* SPDX-License-Identifier: Apache-2.0
 * t/lib/layout_run.h - runs the program in several layouts, and compares two runs.
 *
 * Bounds.  Layouts differ only in the order of sums.  In fp32 (u = 2^-24) an addition is rounded by at most u / sqrt(3)
 * of the partial sum on average, and the partial sum of k of n terms has k / n of the total's square.  So the squared
 * error of a sum of n terms is u^2 n / 6 of its square, and two orders differ by u^2 n / 3.  A gradient passes through
 * the sums of all layers, forward and backward, of the head and of its own tokens.  Their errors add up as squares, and
 * TERMS is the sum of their lengths.  Per layer, products and norms in both directions are 16 sums of EMBED terms and 2
 * of MLP; attention has 6 of SEQ and 2 of HEAD; and 30 elementwise operations have 2 terms each.
 *
 * After i steps the weights have moved apart.  Descent that does not diverge has a rate of at most 2 / curvature, so
 * the error of one step's gradient adds at most twice itself to each later gradient: 1 + 4 i such squares.
 *
 * A tensor's error is compared with its own square, or with a thousandth of the mean square of all gradients.  The
 * reason is that a gradient of mere rounding (a bias of the keys) is a sum of terms as large as those of other
 * gradients.
 *
 * The test that includes this defines LAYERS, STEPS, EMBED, HEAD, MLP, SEQ, VOCAB and TOKENS (of a batch).
 * Alternatively it defines BOUND and LOSS_BOUND, the squares of the relative errors allowed in any step.
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

/* -- results of a run -------------------------------------------------------------------------- */
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
/* Returns the worst tensor's error divided by the bound of the last step, or NaN if a tensor is missing.  where: the
 * name of the worst tensor.  If any is over the bound, it is the first of them in the order of backward: files have the
 * order of the model, and an error spreads from the last layers to the first. */
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

/* Returns the worst error of losses and gradient norms, divided by the bound. */
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
		note("%s could not be removed", tmp);
}

#endif
