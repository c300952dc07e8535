/* SPDX-License-Identifier: Apache-2.0
 * t/lib/kept.h - compares runs of the program with the numbers of another implementation, which are kept in t/data.
 *
 * Bounds.  The kept numbers have double precision, so the difference is rounding in fp32 (u = 2^-24).  A gradient has
 * passed SUMS sums per layer of at most TERMS terms each, whose errors add up as squares.  So its root-mean-square
 * error is at most R = u sqrt(2 SUMS LAYERS TERMS) of its size, or of a thirtieth of all gradients' size if that is
 * more (a thousandth of their square).  From that follow the errors of
 *
 *	a weight	u sqrt(steps) of its size, because each step rounds it, and R of the distance it moved: a step
 *			of AdamW moves it by lr, one of sgd at most by lr times the norm over the root of the tensor's
 *			elements
 *	the norm	R of its size
 *	the loss	R of its size for one token, divided by sqrt(n) for a mean over n tokens; plus the effect of the
 *			weights' errors: the derivative, which is the norm, times R of the distance they moved
 *	the learning rate has double precision here too: 16 of its roundings
 */
#ifndef HD_TEST_KEPT_H
#define HD_TEST_KEPT_H
#include "t/lib/mpi.h"
#include "t/lib/tensors.h"
#include <unistd.h>

#define SUMS 20
#define LAYERS 3
#define TERMS 257
#define TOKENS (6 * 13) /* per step, in all INI files of t/data */
#define LONGEST 16      /* steps */
#define RATE_ROUNDING 0x1p-48

static char tmp[] = "/tmp/heddle-test.XXXXXX";

struct curve {
	int n, sgd;
	double loss[LONGEST], norm[LONGEST], lr[LONGEST], aux[LONGEST], dropped[LONGEST];
};

static double rounding(void)
{
	return 0x1p-24 * sqrt(2. * SUMS * LAYERS * TERMS);
}

/* -- a run --------------------------------------------------------------------------------------- */
/* Makes a copy of t/data to run in, because paths in the INI files are relative. */
static int kept_begin(void)
{
	char command[1000];

	if (access(HD_TEST_BUILD "/heddle", X_OK))
		skip_all("heddle is not built");
	if (!mkdtemp(tmp))
		return -1;
	snprintf(command, sizeof(command), "cp -R %s/t/data/. %s && chmod -R u+w %s", HD_TEST_SRC, tmp, tmp);
	setenv("XDG_CACHE_HOME", tmp, 1);
	return system(command) || chdir(tmp) ? -1 : 0;
}

static void kept_end(void)
{
	char command[200];

	snprintf(command, sizeof(command), "rm -rf %s", tmp);
	if (chdir("/") || system(command))
		note("%s could not be removed", tmp);
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

/* Trains an INI with the strategy sections and settings of a layout, and leaves new.jsonl and the checkpoint new/. */
static int kept_run(const char *ini, int ranks, const char *sections, const char *sets)
{
	char command[1000];
	FILE *f;
	int rc;

	snprintf(command, sizeof(command), "rm -rf new new.jsonl && cp %s new.ini", ini);
	if (system(command))
		return -1;
	f = fopen("new.ini", "a");
	fprintf(f, "\n%s", sections);
	fclose(f);
	rc = mpi_run(ranks, 120,
		     "%s/heddle train new.ini --set checkpoint.dir=new --set log.metrics=new.jsonl %s >new.out",
		     HD_TEST_BUILD, sets);
	if (rc)
		show("new.out");
	return rc;
}

/* -- numbers ------------------------------------------------------------------------------------- */
/* Reads "key": NUMBER, or "key": [NUMBER, ...] and returns the sum of the list; NaN if the key is missing. */
static double number(const char *line, const char *key)
{
	char quoted[40], *end;
	double sum = 0;
	const char *at;

	snprintf(quoted, sizeof(quoted), "\"%s\": ", key);
	at = strstr(line, quoted);
	if (!at)
		return NAN;
	at += strlen(quoted);
	if (*at != '[')
		return strtod(at, NULL);
	for (at++; *at != ']'; at = end + strspn(end, ", ")) {
		sum += strtod(at, &end);
		if (end == at)
			return NAN;
	}
	return sum;
}

static void read_curve(const char *path, struct curve *c)
{
	FILE *f = fopen(path, "r");
	char line[1000];

	c->n = 0;
	while (f && fgets(line, sizeof(line), f) && c->n < LONGEST) {
		if (isnan(number(line, "loss")))
			continue;
		c->loss[c->n] = number(line, "loss");
		c->norm[c->n] = number(line, "grad_norm");
		c->lr[c->n] = number(line, "lr");
		c->aux[c->n] = number(line, "aux_loss");
		c->dropped[c->n++] = number(line, "dropped");
	}
	if (f)
		fclose(f);
}

/* Returns the distance moved in steps 0 .. n - 1: by each weight with AdamW, by all together (a norm) with sgd. */
static double way(const struct curve *c, int n)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += c->lr[i] * (c->sgd ? c->norm[i] : 1);
	return sum;
}

static double over(double a, double b, double bound)
{
	double off = a == b ? 0 : fabs(a - b) / bound;

	return isnan(off) && !(isnan(a) && isnan(b)) ? INFINITY : isnan(off) ? 0 : off;
}

/* Checks the numbers of a run against kept ones; each check prints the error of the worst step divided by its bound. */
static void kept_numbers(const char *name, const struct curve *want)
{
	struct curve got = { 0 };
	double R = rounding(), worst[5] = { 0 };
	static const char *const what[] = { "loss", "gradient norm", "learning rate", "aux_loss", "dropped" };

	read_curve("new.jsonl", &got);
	is_int(got.n, want->n, "the run has the kept number of steps");
	for (int i = 0; i < want->n && i < got.n; i++) {
		double drift = want->norm[i] * R * way(want, i);

		worst[0] = fmax(worst[0], over(got.loss[i], want->loss[i], R * want->loss[i] / sqrt(TOKENS) + drift));
		worst[1] = fmax(worst[1], over(got.norm[i], want->norm[i], R * want->norm[i]));
		worst[2] = fmax(worst[2], over(got.lr[i], want->lr[i], RATE_ROUNDING * want->lr[i]));
		worst[3] = fmax(worst[3], over(got.aux[i], want->aux[i], R * want->aux[i]));
		worst[4] = fmax(worst[4], over(got.dropped[i], want->dropped[i], 1e-9));
	}
	for (int i = 0; i < (isnan(want->aux[0]) ? 3 : 5); i++)
		ok(got.n == want->n && worst[i] <= 1, "%s: the %s is that of the kept run (%.2g of the bound)", name,
		   what[i], worst[i]);
}

/* -- tensors ------------------------------------------------------------------------------------- */
/* Returns the bound of the error of a tensor of n elements; square, all: mean squares of its kept elements and of all
 * tensors. */
typedef double tensor_bound(const struct curve *c, double square, double all, int64_t n);

static double weight_bound(const struct curve *c, double square, double all, int64_t n)
{
	(void)all;
	return 0x1p-24 * sqrt((double)c->n * square) + rounding() * way(c, c->n) / (c->sgd ? sqrt((double)n) : 1);
}

static double gradient_bound(const struct curve *c, double square, double all, int64_t n)
{
	(void)c;
	(void)n;
	return rounding() * sqrt(fmax(square, all / 1000));
}

/* Returns the root mean square of ((a - b) * scale - want) divided by the bound, or INFINITY if shapes differ.  b may
 * be NULL. */
static double tensor_off(const char *name, struct hd_tensorfile *want, struct hd_tensorfile *a, struct hd_tensorfile *b,
			 double scale, tensor_bound *bound, const struct curve *c, double all)
{
	int64_t n, na = 0, nb = 0;
	float *w = load(want, name, &n), *x = load(a, name, &na), *y = b ? load(b, name, &nb) : NULL;
	double diff = 0, square = 0, off = INFINITY;

	if (w && x && na == n && (!b || (y && nb == n))) {
		for (int64_t i = 0; i < n; i++) {
			double d = ((double)x[i] - (y ? (double)y[i] : 0)) * scale - (double)w[i];

			diff += d * d;
			square += (double)w[i] * (double)w[i];
		}
		off = sqrt(diff / (double)n) / bound(c, square / (double)n, all, n);
	}
	free(w);
	free(x);
	free(y);
	return off <= INFINITY ? off : INFINITY;
}

static struct hd_tensorfile *open_tensors(const char *path)
{
	struct hd_tensorfile *f = NULL;
	struct hd_err err = { 0 };

	if (hd_tensorfile_read(path, &f, &err) < 0)
		note("%s", err.text);
	return f;
}

/* Checks that (a - b) * scale equals want, tensor by tensor within its bound, and that the numbers of tensors are
 * equal. */
static void kept_tensors(const char *name, const char *want_path, const char *a_path, const char *b_path, double scale,
			 tensor_bound *bound, const struct curve *c)
{
	struct hd_tensorfile *want = open_tensors(want_path), *a = open_tensors(a_path);
	struct hd_tensorfile *b = b_path ? open_tensors(b_path) : NULL;
	double worst = INFINITY, all;
	char where[200] = "";

	if (want && a && (b || !b_path)) {
		all = mean_square(want);
		worst = 0;
		for (int i = 0; i < hd_tensorfile_count(want); i++) {
			double off = tensor_off(hd_tensorfile_name(want, i), want, a, b, scale, bound, c, all);

			if (off > worst)
				snprintf(where, sizeof(where), "%s", hd_tensorfile_name(want, i));
			worst = fmax(worst, off);
		}
		is_int(hd_tensorfile_count(a), hd_tensorfile_count(want), "the file has the kept number of tensors");
	}
	ok(worst <= 1, "%s (%.2g of the bound of %s)", name, worst, where);
	hd_tensorfile_close(want);
	hd_tensorfile_close(a);
	hd_tensorfile_close(b);
}

#endif
