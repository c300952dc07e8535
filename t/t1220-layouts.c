/* SPDX-License-Identifier: Apache-2.0
 * The program itself in many layouts, against one rank: the hash of the initial weights, the losses of 20 steps, and
 * every gradient of the last one.  If this broke, a run moved to another number of machines would train another model.
 *
 * Plain gradient descent without clipping, so that nothing hides a gradient's scale.  A vocabulary and layers that do
 * not divide, dropout, tied and separate heads.
 *
 * Bounds.  Layouts differ in the order of sums alone.  In fp32 (u = 2^-24) a sum of n terms differs by about
 * u sqrt(n) of its terms' size from one order to another; a gradient has passed SUMS sums a layer, forward and backward,
 * of at most TERMS terms each, and their errors add up as squares: NMSE <= 2 u^2 SUMS LAYERS TERMS for a gradient of
 * the same weights.  The weights themselves have moved apart by STEPS such errors at most.  A tensor's error is compared
 * to its own square, or to a thousandth of the mean square of all gradients: a gradient that is zero but for rounding (a
 * bias of the keys) is made of terms of the size of the others'.
 */
#include <config.h>
#include "engine/tensorfile.h"
#include "t/lib/mpi.h"
#include "t/lib/tap.h"
#include <unistd.h>

#define LAYERS 3
#define STEPS 20
#define SUMS 20
#define TERMS 257
#define UNIT 0x1p-24
#define BOUND (2 * UNIT * UNIT * SUMS * LAYERS * TERMS * STEPS)

static char tmp[] = "/tmp/heddle-t1220.XXXXXX";

struct layout {
	const char *name;
	int ranks;
	const char *section; /* %s: the build folder */
};

#define MESH "[strategy m]\nplugin = %s/t/plugins/.libs/mesh3.so\n"
#define RULES "[strategy m]\nplugin = %s/t/plugins/.libs/rules.so\n"
#define TP "[strategy tp]\nplugin = tp\n"
#define PP "[strategy pp]\nplugin = pp\n"
#define REPLICAS "[strategy dp]\nplugin = dp\nsize = 2\n"
#define DP "[strategy dp]\nplugin = %s/plugins/dp/.libs/dp.so\n"

static const struct layout layouts[] = {
	{"two replicas, ring", 2, DP "sync = ring\nbucket = 8K\n"},
	{"four replicas, all-reduce", 4, DP "sync = allreduce\n"},
	{"2 x 2 x 2", 8, MESH},
	{"four ways cut, two stages", 8, MESH "a = 1\nb = 4\nc = 2\n"},
	{"2 x 2 x 2, sequence", 8, MESH "sequence = yes\n"},
	{"2 x 2, sequence", 4, MESH "c = 1\nsequence = yes\n"},
	{"parameters cut by replicas, two stages, weight gradients apart", 4,
	 RULES "axes = a:2 c:2\nrules = batch>a layer>c\nhome = a\norder = split\n"},
	{"heads of attention, sequence elsewhere", 4,
	 RULES "axes = b:2 a:2\nrules = batch>a heads>b@attention kv_heads>b@attention seq>b\n"},
	{"tensor 2 x data 2 x pipeline 2, interleaved", 8,
	 TP "size = 2\n" REPLICAS PP "size = 2\nschedule = interleaved\n"},
	{"tensor 2 x pipeline 2, sequence parallel, zero bubble", 4,
	 TP "size = 2\nsequence_parallel = yes\n" PP "size = 2\nschedule = zb\n"},
	{"pipeline 4, gpipe", 4, PP "size = 4\nschedule = gpipe\n"},
	{"tensor 4 x data 2", 8, TP "size = 4\n" REPLICAS},
	{"tensor 4, sequence parallel", 4, TP "size = 4\nsequence_parallel = yes\n"},
};

struct result {
	double loss[STEPS];
	char hash[32], path[200];
};

/* -- runs -------------------------------------------------------------------------------------- */
static void write_ini(const char *path, const struct layout *l, const char *model)
{
	FILE *f = fopen(path, "w");

	fprintf(f,
		"[model]\nlayers = %d\nembed = 16\nheads = 4\nvocab = 257\ninit_std = 0.1\n%s\n"
		"[data]\ntrain = %s/text\nvalid_fraction = 0\n"
		"[train]\nseq = 16\nglobal_batch = 8\nmicro_batch = 1\nsteps = %d\noptimizer = "
		"sgd\n"
		"lr = 0.1\nschedule = constant\nclip = 0\nweight_decay = 0\nthreads = 1\n"
		"[checkpoint]\ngradients = yes\n",
		LAYERS, model, tmp, STEPS);
	if (l)
		fprintf(f, l->section, HD_TEST_BUILD);
	fclose(f);
}

static void read_losses(const char *path, struct result *r)
{
	char line[1000], *at;
	FILE *f = fopen(path, "r");
	int n = 0;

	for (int i = 0; i < STEPS; i++)
		r->loss[i] = NAN;
	while (f && fgets(line, sizeof(line), f) && n < STEPS)
		if ((at = strstr(line, "\"loss\":")))
			r->loss[n++] = strtod(at + 7, NULL);
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

static int run(const char *name, const struct layout *l, const char *model, struct result *r)
{
	char ini[200], out[200], metrics[200];
	int rc;

	snprintf(ini, sizeof(ini), "%s/%s.ini", tmp, name);
	snprintf(out, sizeof(out), "%s/%s.out", tmp, name);
	snprintf(metrics, sizeof(metrics), "%s/%s.jsonl", tmp, name);
	snprintf(r->path, sizeof(r->path), "%s/%s/step-%08d/heddle/gradients.safetensors", tmp,
		 name, STEPS);
	write_ini(ini, l, model);
	rc = mpi_run(l ? l->ranks : 1, 240,
		     "%s/heddle train %s --set checkpoint.dir=%s/%s --set log.metrics=%s >%s",
		     HD_TEST_BUILD, ini, tmp, name, metrics, out);
	read_losses(metrics, r);
	read_hash(out, r);
	if (rc)
		show(out);
	return rc;
}

/* -- gradients ---------------------------------------------------------------------------------- */
static float *load(struct hd_tensorfile *f, const char *name, int64_t *count)
{
	int64_t shape[HD_MAX_DIMS], off[HD_MAX_DIMS] = {0}, stride[HD_MAX_DIMS];
	struct hd_err err = {0};
	uint32_t dtype;
	int nd = 0;
	float *v;

	*count = 1;
	if (!hd_tensorfile_find(f, name, &dtype, &nd, shape))
		return NULL;
	for (int d = nd - 1; d >= 0; d--) {
		stride[d] = *count;
		*count *= shape[d];
	}
	v = hd_alloc((size_t)*count * sizeof(*v));
	if (hd_tensorfile_load(f, name, HD_F32, v, off, shape, stride, &err) < 0) {
		note("%s", err.text);
		free(v);
		return NULL;
	}
	return v;
}

static double mean_square(struct hd_tensorfile *f)
{
	double sum = 0, all = 0;

	for (int i = 0; i < hd_tensorfile_count(f); i++) {
		int64_t n;
		float *v = load(f, hd_tensorfile_name(f, i), &n);

		for (int64_t k = 0; v && k < n; k++)
			sum += (double)v[k] * (double)v[k];
		all += (double)n;
		free(v);
	}
	return sum / all;
}

/* -> the worst tensor's error over the bound; NaN: a tensor is missing. */
static double compare(const struct result *a, const struct result *b, char *where, size_t size)
{
	struct hd_tensorfile *f = NULL, *g = NULL;
	struct hd_err err = {0};
	double worst = 0, floor;

	if (hd_tensorfile_read(a->path, &f, &err) < 0 ||
	    hd_tensorfile_read(b->path, &g, &err) < 0) {
		snprintf(where, size, "%.250s", err.text);
		hd_tensorfile_close(f);
		return NAN;
	}
	floor = mean_square(f) / 1000;
	for (int i = 0; i < hd_tensorfile_count(f) && worst == worst; i++) {
		const char *name = hd_tensorfile_name(f, i);
		int64_t n, m = 0;
		float *x = load(f, name, &n), *y = load(g, name, &m);
		double diff = x && y && n == m ? 0 : NAN, square = 0, off;

		for (int64_t k = 0; k < n && diff == diff; k++) {
			diff += ((double)x[k] - (double)y[k]) * ((double)x[k] - (double)y[k]);
			square += (double)x[k] * (double)x[k];
		}
		off = diff / fmax(square, floor * (double)n) / BOUND;
		if (!(off <= worst)) {
			worst = off;
			snprintf(where, size, "%s", name);
		}
		free(x);
		free(y);
	}
	hd_tensorfile_close(f);
	hd_tensorfile_close(g);
	return worst;
}

static double worst_loss(const struct result *a, const struct result *b)
{
	double worst = 0;

	for (int i = 0; i < STEPS; i++) {
		double off = fabs(a->loss[i] / b->loss[i] - 1) / sqrt(BOUND);

		if (!(off <= worst))
			worst = off;
	}
	return worst;
}

static void model(char letter, const char *keys, const char *what, const int *which)
{
	struct result one, many;
	char name[20], where[300] = "";

	snprintf(name, sizeof(name), "%c1", letter);
	if (!ok(run(name, NULL, keys, &one) == 0 && one.loss[STEPS - 1] < one.loss[0],
		"one rank, %s", what))
		return;
	for (; *which >= 0; which++) {
		const struct layout *l = &layouts[*which];
		double off, loss;

		snprintf(name, sizeof(name), "%c%d", letter, *which + 2);
		ok(run(name, l, keys, &many) == 0, "%s, %s: %d ranks ran", l->name, what, l->ranks);
		is_str(many.hash, one.hash, "the same initial weights");
		loss = worst_loss(&many, &one);
		off = compare(&one, &many, where, sizeof(where));
		ok(loss <= 1, "its losses");
		ok(off <= 1, "its gradients");
		note("times the bound: loss %.3g, gradients %.3g (%s)", loss, off, where);
	}
}

static void write_text(void)
{
	static const char *const words[] = {"light ", "waters ",   "under ", "heaven\n",
					    "were ",  "gathered ", "unto "};
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

int main(void)
{
	static const int first[] = {0, 1, 2, 3, 4, 6, 8, 9, -1}, second[] = {1, 5, 7, 10, 12, -1};
	static const int third[] = {8, 9, 11, 12, -1};
	char cache[200];

	if (access(HD_TEST_BUILD "/heddle", X_OK) ||
	    access(HD_TEST_BUILD "/t/plugins/.libs/rules.so", R_OK))
		skip_all("heddle is not built");
	if (!mkdtemp(tmp))
		return 1;
	snprintf(cache, sizeof(cache), "%s/cache", tmp);
	setenv("XDG_CACHE_HOME", cache, 1);
	write_text();
	model('a', "dropout = 0.1", "tied, dropout", first);
	model('b', "tie_embeddings = no", "head of its own", second);
	model('c', "family = llama\nkv_heads = 2", "llama", third);
	snprintf(cache, sizeof(cache), "rm -rf %s", tmp);
	if (system(cache))
		note("%s is still there", tmp);
	return done();
}
