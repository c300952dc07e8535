/* SPDX-License-Identifier: Apache-2.0
 * Sends gradients in 16 bits.  If this broke, a scale or a term would be missing, or sums would be computed in 16
 * bits, and small gradients would be lost.
 *
 * Let u be the rounding unit of the type.  Rounding a tensor x errs by at most u |x| in norm.  No tensor that travels
 * is larger than the sum of the norms of the members' gradients, which one rank measures from their samples one by
 * one.  k roundings err by k u of that.  (An element of bf16 is off by up to 2^-8, but many of them by 0.41 of that in
 * the root mean square, so u is 2^-9.)
 */
#include <config.h>
#define LAYERS 2
#define STEPS 4
#define EMBED 16
#define HEAD 4
#define MLP 64
#define SEQ 16
#define VOCAB 257
#define N 4 /* members, each of one sample */
#define TOKENS (N * SEQ)
#include "t/lib/layout_run.h"

struct layout {
	const char *name, *keys;
	int roundings;
};

/* The roundings of each way: each term once, plus the partial sums of a ring, or the complete sum. */
static const struct layout layouts[] = {
	{ "ring", "sync = ring\nbucket = 8K\n", N },
	{ "all-reduce", "sync = allreduce\n", 2 },
	{ "two levels", "sync = hierarchical\nnode_size = 2\n", 3 },
	{ "server", "sync = server\nbucket = 64K\n", 1 },
	{ "pieces of states", "zero = 1\nbucket = 32K\n", 2 },
	{ "pieces of gradients", "zero = 2\n", 2 },
	{ "pieces of parameters", "zero = 3\n", 2 },
};

static void write_ini(const char *name, int batch, int steps, const char *keys, const char *wire)
{
	char path[200];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s.ini", tmp, name);
	f = fopen(path, "w");
	fprintf(f,
		"[model]\nlayers = %d\nembed = %d\nheads = %d\nmlp = %d\nvocab = %d\ninit_std = 0.1\n[data]\ntrain = %s/text\ntokenizer = byte\n"
		"valid_fraction = 0\norder = sequential\n[train]\nseq = %d\nglobal_batch = %d\nmicro_batch = 1\nsteps = %d\n"
		"optimizer = sgd\nlr = 0\nmin_lr = 0\nschedule = constant\nclip = 0\nweight_decay = 0\nthreads = 1\n"
		"[checkpoint]\ngradients = yes\n",
		LAYERS, EMBED, EMBED / HEAD, MLP, VOCAB, tmp, SEQ, batch, steps);
	if (keys)
		fprintf(f, "[strategy dp]\nplugin = dp\nsize = %d\n%swire = %s\n", N, keys, wire);
	fclose(f);
}

/* Runs one step. */
static int gradient(const char *name, int ranks, const char *keys, const char *wire, struct result *r)
{
	write_ini(name, N, 1, keys, wire);
	if (run_ini(name, ranks, r))
		return -1;
	snprintf(r->path, sizeof(r->path), "%s/%s/step-00000001/heddle/gradients.safetensors", tmp, name);
	return 0;
}

/* Returns the norm of the difference of all gradients, or NaN if the tensors differ; also the norm of a and the number
 * of elements. */
static double distance(const struct result *a, const struct result *b, double *norm, double *count)
{
	struct hd_tensorfile *f = NULL, *g = NULL;
	struct hd_err err = { 0 };
	double diff = NAN, square = 0;

	*count = 0;
	if (hd_tensorfile_read(a->path, &f, &err) == 0 && hd_tensorfile_read(b->path, &g, &err) == 0)
		diff = 0;
	for (int i = 0; diff == diff && i < hd_tensorfile_count(f); i++) {
		int64_t n, m = 0;
		float *x = load(f, hd_tensorfile_name(f, i), &n), *y = load(g, hd_tensorfile_name(f, i), &m);

		diff = x && y && n == m ? diff : NAN;
		for (int64_t k = 0; diff == diff && k < n; k++) {
			diff += ((double)x[k] - (double)y[k]) * ((double)x[k] - (double)y[k]);
			square += (double)x[k] * (double)x[k];
		}
		*count += (double)n;
		free(x);
		free(y);
	}
	hd_tensorfile_close(f);
	hd_tensorfile_close(g);
	*norm = sqrt(square);
	return sqrt(diff);
}

static void try(const struct layout *l, const char *wire, double unit, double least, const struct result *one,
		double members)
{
	struct result r;
	double norm, count, off, bound;
	char name[40];

	snprintf(name, sizeof(name), "%ld-%s", (long)(l - layouts), wire);
	if (!ok(gradient(name, N, l->keys, wire, &r) == 0, "%s, %s: runs", l->name, wire))
		return;
	off = distance(one, &r, &norm, &count);
	bound = l->roundings * (unit * (1 + 4 * unit) * members + least * sqrt(count)) + sqrt(BOUND_OF(0)) * members;
	ok(off <= bound, "... off by no more than %d roundings", l->roundings);
	ok(off > unit * norm / 16, "... and indeed rounded");
	note("off by %.3g of the bound, %.3g of the norm", off / bound, off / norm);
}

int main(void)
{
	struct result one, samples;
	double members = 0;

	if (access(HD_TEST_BUILD "/heddle", X_OK))
		skip_all("heddle is not built");
	if (layouts_begin() < 0)
		return 1;
	write_ini("samples", 1, N, NULL, NULL); /* the loss is a mean, so each is N times a member's */
	ok(run_ini("samples", 1, &samples) == 0, "one rank, sample by sample");
	for (int i = 0; i < N; i++)
		members += samples.norm[i] / N;
	ok(gradient("one", 1, NULL, NULL, &one) == 0, "one rank, all samples");
	ok(members >= one.norm[0] && members < N * one.norm[0],
	   "the members' norms sum to %.3g, at least the norm of the total, %.3g", members, one.norm[0]);
	for (size_t i = 0; i < HD_LEN(layouts); i++) {
		try(&layouts[i], "bf16", 0x1p-9, 0, &one, members);
		try(&layouts[i], "fp16", 0x1p-11, 0x1p-35, &one, members);
	}
	layouts_end();
	return done();
}
