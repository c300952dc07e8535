/* SPDX-License-Identifier: Apache-2.0
 * Compares random layouts with one rank: the strategies, their order, sizes and keys, and the model are drawn. 
 * Initial weights, batches, losses, gradient norms and every gradient must be those of one rank.  So must be texts that
 * some layouts generate.  If this broke, each strategy would work alone, but their combination would train a different
 * model.
 *
 *	t1240-hybrids.t [N [SEED [FIRST]]]	layouts FIRST.. FIRST+N-1 of the sequence SEED; 60, 30 in tier ci, 12 in tier check
 *
 * A layout depends on SEED and its number alone, so one that fails can be rerun alone.  `make check-layouts N=500
 * SEED=1` is the long sweep.  Only layouts that divide evenly are drawn; those that are refused nevertheless are
 * counted.
 */
#include <config.h>
#define LAYERS 4
#define STEPS 3
#define EMBED 16
#define HEAD 4
#define MLP 64
#define SEQ 16
#define VOCAB 257
#define BATCH 24
#define TOKENS (BATCH * SEQ)
#include "t/lib/layout_run.h"
#include "engine/base/parse.h"
#include "engine/base/rng.h"
#include <string.h>

#define MOST_RANKS 16
#define MOST_LAYOUTS 1000000000

/* -- drawing ------------------------------------------------------------------------------------ */
enum { TP, DP, PP, EP, CP, STRATEGIES };
static const char *const names[] = { "tp", "dp", "pp", "ep", "cp" };

struct draw {
	int model, tie, dropout;
	const char *recompute, *schedule, *sync;
	int micro_batch, size[STRATEGIES], order[STRATEGIES], ranks;
	int sequence_parallel, chunks, scatter_gather, zero, overlap, node, form; /* node: the ranks of a node */
	int zero_size, loss_parts, pairs;
	int hosts, texts; /* hosts: each rank is on a host of its own; texts: the layout generates too */
	int ring, zigzag;
	int64_t bucket;
};

/* Forms of tensor parallelism: their ranks, and how many ways the rows of a micro-batch are sharded. */
static const struct {
	const char *name, *keys;
	int ranks, rows;
} forms[] = {
	{ "1d", "form = 1d", 0, 1 },
	{ "2d", "form = 2d", 4, 2 },
	{ "2.5d", "form = 2.5d\ndepth = 2", 8, 4 },
	{ "3d", "form = 3d", 8, 4 },
};

static const struct {
	const char *name, *keys;
	int experts;
} models[] = {
	{ "gpt2", "family = gpt2", 0 },
	{ "llama", "family = llama\nkv_heads = 2", 0 },
	{ "mixtral", "family = mixtral\nkv_heads = 2\nexperts = 4\nz_loss = 0.001", 1 },
	{ "gpt2 + experts", "family = gpt2\nexperts = 4\nmoe_every = 2", 1 },
};
static const char *const recomputes[] = { "none", "none", "selective", "full" };
static const char *const schedules[] = { "gpipe", "1f1b", "interleaved", "zb" };
static const char *const syncs[] = { "ring", "allreduce", "hierarchical", "server" };

static uint64_t state;

static int below(int n)
{
	uint64_t z = state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (int)((z ^ z >> 31) % (uint64_t)n);
}

static int divides(const struct draw *d)
{
	int replicas = d->size[DP] * d->size[EP], m = BATCH / (replicas * d->micro_batch), p = d->size[PP];

	if (d->ranks > MOST_RANKS || d->ranks < 2 || BATCH % (replicas * d->micro_batch))
		return 0;
	if (d->size[EP] > 1 && !models[d->model].experts)
		return 0;
	if (!strcmp(forms[d->form].name, "3d") && !strcmp(models[d->model].name, "mixtral"))
		return 0; /* experts without a capacity limit */
	return strcmp(d->schedule, "interleaved") || (m % p == 0 && LAYERS % (p * d->chunks) == 0);
}

/* Avoids keys that dp refuses: zero_size without sharding, with servers or with an odd size, and late sums of sharded
 * gradients. */
static void settle(struct draw *d)
{
	if (!d->zero || d->size[DP] % 2 || !strcmp(d->sync, "server"))
		d->zero_size = 0;
	if (d->zero > 1)
		d->overlap = 1;
	d->node = 2;
	for (int s = 0; d->order[s] != DP; s++)
		d->node *= d->size[d->order[s]];
}

/* May replace the ranks drawn for tp by a grid. */
static void draw_form(struct draw *d)
{
	int form = below(2 * (int)HD_LEN(forms));

	if (d->size[TP] == 1 || form >= (int)HD_LEN(forms) || !form)
		return;
	d->form = form;
	d->ranks = d->ranks / d->size[TP] * forms[form].ranks;
	d->size[TP] = forms[form].ranks;
	d->micro_batch = forms[form].rows;
	d->sequence_parallel = 0;
}

/* One layout in three may also shard the sequence; cp stands anywhere in the order.  Ulysses needs enough heads. */
static void draw_context(struct draw *d)
{
	int at = below(STRATEGIES), heads = strstr(models[d->model].keys, "kv_heads") ? 2 : EMBED / HEAD;

	d->size[CP] = below(3) ? 1 : 2;
	d->ring = below(2);
	d->zigzag = below(2);
	if (d->form || d->ranks * d->size[CP] > MOST_RANKS || (!d->ring && heads % (d->size[TP] * d->size[CP])))
		d->size[CP] = 1;
	d->ranks *= d->size[CP];
	for (int s = STRATEGIES - 1; s > at; s--)
		d->order[s] = d->order[s - 1];
	d->order[at] = CP;
}

/* Returns whether two micro-batches can be computed at a time.  An interleaved schedule orders pairs by stages. */
static int fits_pairs(const struct draw *d)
{
	int micros = BATCH / (d->micro_batch * d->size[DP] * d->size[EP]);

	return micros % 2 == 0 && (strcmp(d->schedule, "interleaved") || micros / 2 % d->size[PP] == 0);
}

static struct draw draw(uint64_t seed, int number)
{
	static const int sizes[] = { 1, 1, 2, 2, 3, 4 };
	struct draw d;

	state = seed * 1000003u + (uint64_t)number;
	do {
		d = (struct draw){ .model = below((int)HD_LEN(models)),
				   .tie = below(2),
				   .dropout = below(2),
				   .micro_batch = 1 + below(3),
				   .ranks = 1,
				   .sequence_parallel = below(2),
				   .chunks = 1,
				   .scatter_gather = below(2),
				   .bucket = 1 << (9 + below(8)) };
		d.dropout = d.dropout && strstr(models[d.model].keys, "gpt2"); /* the other families have none */
		d.recompute = recomputes[below((int)HD_LEN(recomputes))];
		d.schedule = schedules[below((int)HD_LEN(schedules))];
		d.sync = syncs[below((int)HD_LEN(syncs))];
		d.zero = below(4);
		d.overlap = below(4);
		d.zero_size = 2 * (number % 2); /* not drawn, so that earlier layouts stay the same */
		d.chunks = strcmp(d.schedule, "interleaved") ? 1 : 2;
		for (int s = 0; s < CP; s++) {
			do
				d.size[s] = sizes[below((int)HD_LEN(sizes))];
			while ((s == TP || s == EP) && d.size[s] == 3);
			d.ranks *= d.size[s];
			d.order[s] = s;
		}
		for (int s = CP - 1; s > 0; s--) {
			int k = below(s + 1), was = d.order[s];

			d.order[s] = d.order[k];
			d.order[k] = was;
		}
		draw_form(&d);
		draw_context(&d);
		settle(&d);
		d.loss_parts = d.form || number % 3 ? 0 : d.micro_batch * (1 + number % 2); /* not drawn either */
		d.pairs = number % 2 && fits_pairs(&d);
		d.hosts = number % 4 == 3;
		d.texts = number % 3 == 0;
	} while (!divides(&d));
	return d;
}

/* -- as an INI ---------------------------------------------------------------------------------- */
static int three_nodes(const struct draw *d)
{
	return d->size[DP] % 2;
}

static void write_strategy(FILE *f, const struct draw *d, int s)
{
	if (d->size[s] == 1)
		return;
	fprintf(f, "[strategy %s]\nplugin = %s\nsize = %d\n", names[s], names[s], d->size[s]);
	if (s == TP)
		fprintf(f, "%s\nsequence_parallel = %s\n", forms[d->form].keys, d->sequence_parallel ? "yes" : "no");
	if (s == DP)
		fprintf(f, "sync = %s\nbucket = %lld\nzero = %d\nzero_size = %d\noverlap = %s\nnode_size = %d\n",
			d->sync, (long long)d->bucket, d->zero, d->zero_size, d->overlap ? "yes" : "no",
			three_nodes(d) ? 0 : d->node);
	if (s == CP)
		fprintf(f, "form = %s\nbalance = %s\n", d->ring ? "ring" : "ulysses", d->zigzag ? "zigzag" : "none");
	if (s == PP)
		fprintf(f, "schedule = %s\nchunks = %d\nscatter_gather = %s\n", d->schedule, d->chunks,
			d->scatter_gather ? "yes" : "no");
}

static void write_ini(const char *name, const struct draw *d, int layout)
{
	char path[200];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s.ini", tmp, name);
	f = fopen(path, "w");
	fprintf(f,
		"[model]\n%s\nlayers = %d\nembed = %d\nheads = %d\nmlp = %d\nvocab = %d\ninit_std = 0.1\n"
		"tie_embeddings = %s\ndropout = %s\n[data]\ntrain = %s/text\ntokenizer = byte\nvalid_fraction = 0\n[train]\nseq = %d\n"
		"global_batch = %d\nmicro_batch = %d\nsteps = %d\noptimizer = sgd\nlr = 0.1\nschedule = constant\n"
		"clip = 0\nweight_decay = 0\nthreads = 1\nrecompute = %s\nloss_parts = %d\noverlap_micro_batches = %s\n[checkpoint]\ngradients = yes\n",
		models[d->model].keys, LAYERS, EMBED, EMBED / HEAD, MLP, VOCAB, d->tie ? "yes" : "no",
		d->dropout ? "0.1" : "0", tmp, SEQ, BATCH, layout ? d->micro_batch : 4, STEPS,
		layout ? d->recompute : "none", layout ? d->loss_parts : 0, layout && d->pairs ? "yes" : "no");
	for (int s = 0; layout && s < STRATEGIES; s++)
		write_strategy(f, d, d->order[s]);
	fclose(f);
}

static const char *summary(const struct draw *d)
{
	static char text[300];
	int n = snprintf(text, sizeof(text), "%s%s%s, micro-batch %d%s, %d parts, recompute %s:", models[d->model].name,
			 d->tie ? ", tied" : "", d->dropout ? ", dropout" : "", d->micro_batch,
			 d->pairs ? " in pairs" : "", d->loss_parts, d->recompute);

	for (int s = 0; s < STRATEGIES; s++)
		if (d->size[d->order[s]] > 1) {
			n += snprintf(text + n, sizeof(text) - (size_t)n, " %s %d%s%s%s%s%s", names[d->order[s]],
				      d->size[d->order[s]], d->order[s] == TP && d->sequence_parallel ? " seq" : "",
				      d->order[s] == TP && d->form ? " " : "",
				      d->order[s] == TP && d->form ? forms[d->form].name : "",
				      d->order[s] == PP ? " " : "", d->order[s] == PP ? d->schedule : "");
			if (d->order[s] == CP)
				n += snprintf(text + n, sizeof(text) - (size_t)n, " %s%s", d->ring ? "ring" : "ulysses",
					      d->zigzag ? " zigzag" : "");
			if (d->order[s] == DP)
				n += snprintf(text + n, sizeof(text) - (size_t)n, " %s zero %d%s%s", d->sync, d->zero,
					      d->zero_size ? " in twos" : "", d->overlap ? "" : " late");
		}
	return text;
}

/* -- comparing ---------------------------------------------------------------------------------- */
static struct {
	int ran;
	struct result r;
} ones[HD_LEN(models) * 4]; /* one rank, by model */

static int same_batches(const char *a, const char *b)
{
	char command[900];

	snprintf(command, sizeof(command),
		 "%s/heddle data %s/%s.ini --step 2 >%s/a; %s/heddle data %s/%s.ini --step 2 >%s/b; "
		 "test -s %s/a && cmp -s %s/a %s/b",
		 HD_TEST_BUILD, tmp, a, tmp, HD_TEST_BUILD, tmp, b, tmp, tmp, tmp, tmp);
	return system(command) == 0;
}

static const struct result *one_rank(const struct draw *d, const char *name)
{
	int i = d->model * 4 + d->tie * 2 + d->dropout;

	if (!ones[i].ran) {
		write_ini(name, d, 0);
		ones[i].ran = run_ini(name, 1, &ones[i].r) == 0 ? 1 : -1;
	}
	return ones[i].ran > 0 ? &ones[i].r : NULL;
}

/* Trains the layout. */
static int train(const char *name, const struct draw *d, struct result *r)
{
	int rc;

	if (d->hosts)
		setenv("HD_TEST_COMM", "mpi", 1);
	rc = run_ini(name, d->ranks, r);
	unsetenv("HD_TEST_COMM");
	return rc;
}

/* Generates from the layout's checkpoint, in the layout with caches and on one rank without them.  Returns whether both
 * texts are the same. */
static int same_texts(const char *name, const struct draw *d)
{
	static const char args[] = "--ids --prompt '9 250 77 31 8' --tokens 8 --temperature 0 --ignore-eos";
	static const char keys[] = "/^\\[/ { s = /^\\[strategy/ ? substr($0, 11, length($0) - 11) : \"\" }"
				   "s != \"\" && NF == 2 { print \"--set \" s \".\" $1 \"=\" $2 }";
	char one[600];

	snprintf(
		one, sizeof(one),
		"%s/heddle generate %s/%s/step-%08d %s --no-cache >%s/want 2>%s/why; grep -v '^heddle: ' %s/got | cmp %s/want -",
		HD_TEST_BUILD, tmp, name, STEPS, args, tmp, tmp, tmp, tmp);
	return mpi_run(d->ranks, 240, "%s/heddle generate %s/%s/step-%08d %s $(awk -F ' = ' '%s' %s/%s.ini) >%s/got",
		       HD_TEST_BUILD, tmp, name, STEPS, args, keys, tmp, name, tmp) == 0 &&
	       system(one) == 0;
}

/* Prints the layout, and the nodes of a gradient in it and on one rank, from the first rank that has it. */
static void report(const char *one, const char *many, const struct draw *d, const char *where)
{
	char command[1000], ini[220];

	snprintf(ini, sizeof(ini), "%s/%s.ini", tmp, many);
	show(ini);
	for (int k = 0; k < 2 && *where; k++) {
		snprintf(
			command, sizeof(command),
			"for r in $(seq 0 %d); do %s/heddle explain %s/%s.ini --ranks %d --rank $r --nodes | "
			"grep -F -e 'accumulate' -e 'sync ' | grep -F 'grad:%s(' >%s/where && { echo rank $r >>%s/where; break; }; done",
			k ? d->ranks - 1 : 0, HD_TEST_BUILD, tmp, k ? many : one, k ? d->ranks : 1, where, tmp, tmp);
		note("%s, %s:", where, k ? "here" : "one rank");
		snprintf(ini, sizeof(ini), "%s/where", tmp);
		if (system(command) == 0)
			show(ini);
	}
}

static int refused(const char *name, const struct draw *d)
{
	char command[600];

	snprintf(command, sizeof(command), "%s/heddle check %s/%s.ini --ranks %d >%s/check 2>&1", HD_TEST_BUILD, tmp,
		 name, d->ranks, tmp);
	return system(command) != 0;
}

/* Compares one layout with one rank.  Returns 1 if it is refused. */
static int try(uint64_t seed, int number)
{
	struct draw d = draw(seed, number);
	char one[40], many[40], where[300] = "";
	const struct result *r;
	struct result m;
	double loss, off;
	int hash, data;

	snprintf(one, sizeof(one), "one-%d-%d-%d", d.model, d.tie, d.dropout);
	snprintf(many, sizeof(many), "%d", number);
	r = one_rank(&d, one);
	if (!ok(r != NULL, "%d: one rank runs, %s", number, models[d.model].name))
		return 0;
	write_ini(many, &d, 1);
	if (train(many, &d, &m)) {
		int no = refused(many, &d);

		ok(no, "%d: %s: runs, or the check refuses it", number, summary(&d));
		if (!no)
			report(one, many, &d, "");
		return no;
	}
	hash = !strcmp(m.hash, r->hash);
	data = same_batches(one, many);
	loss = worst_loss(&m, r);
	off = compare(r, &m, where, sizeof(where));
	if (!ok(hash && data && loss <= 1 && off <= 1, "%d: %s", number, summary(&d))) {
		note("initial weights %s, of one rank %s; batches %s", m.hash, r->hash, data ? "equal" : "differ");
		report(one, many, &d, where);
	}
	note("times the bound: loss and norm %.3g, gradients %.3g (%s)", loss, off, where);
	if (d.texts && !ok(same_texts(many, &d), "%d: generates as one rank does", number)) {
		report(one, many, &d, "");
		snprintf(where, sizeof(where), "%s/got", tmp);
		show(where);
	}
	return 0;
}

/* Replaces *value by an argument. A word that is not a number must not pass as a sweep of 0 layouts. */
static int read_argument(const char *word, int64_t least, int64_t most, int64_t *value)
{
	if (!word)
		return 0;
	if (!hd_word_int(word, value) && *value >= least && *value <= most)
		return 0;
	printf("Bail out! '%s' is not a number from %lld to %lld\n", word, (long long)least, (long long)most);
	return 1;
}

int main(int argc, char **argv)
{
	int64_t count = whole_sweep() ? 60 : 10, seed = 1, from = 0;
	double begin = hd_seconds();
	int n, first, no = 0;

	if (read_argument(argc > 1 ? argv[1] : NULL, 1, MOST_LAYOUTS, &count) ||
	    read_argument(argc > 2 ? argv[2] : NULL, 0, INT64_MAX, &seed) ||
	    read_argument(argc > 3 ? argv[3] : NULL, 0, MOST_LAYOUTS, &from))
		return 1;
	n = (int)count;
	first = (int)from;

	if (access(HD_TEST_BUILD "/heddle", X_OK))
		skip_all("heddle is not built");
	if (layouts_begin() < 0)
		return 1;
	for (int i = first; i < first + n; i++)
		no += try((uint64_t)seed, i);
	ok(no * 20 <= n, "%d of %d layouts are refused, at most 5 of 100", no, n);
	note("seed %lld, layouts %d to %d: %.0f s", (long long)seed, first, first + n - 1, hd_seconds() - begin);
	layouts_end();
	return done();
}
