/* SPDX-License-Identifier: Apache-2.0
 * Which implementation of a product is the fastest here. Those that oneDNN offers and our own are rivals, which are
 * timed alternately on operands that come from memory, as in a step.
 */
#include <config.h>
#include "engine/base/parse.h"
#include "kernels/cpu/matmul/matmul_impl.h"
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Memory for timings, all of it written, since untouched pages all read as one page of zeros. In a step operands come
 * from memory. So runs use several sets of operands in turn, which together do not fit in a cache. */
struct arena {
	void *mem[HD_MM_OPERANDS], *scratch;
	size_t bytes[HD_MM_OPERANDS], span[HD_MM_OPERANDS], scratch_bytes;
	int sets, turn;
};
#define COLD ((size_t)16 << 20) /* minimum bytes of all sets together */
#define MAX_SETS 32

static size_t span(const struct hd_mm_shape *s, int o)
{
	int64_t last = 0;

	for (int d = 0; d < s->ndim; d++)
		last += s->stride[o][d] * (s->n[d] - 1);
	return (size_t)(last + 1) * HD_BITS(s->dtype[o]) / 8;
}

static int allocate_sets(struct arena *a, const struct hd_mm_shape *s)
{
	size_t set = 1;
	int ok = 1;

	for (int o = 0; o < HD_MM_OPERANDS; o++) {
		a->span[o] = s->dtype[o] ? (span(s, o) / 64 + 1) * 64 : 0;
		set += a->span[o];
	}
	a->sets = COLD / set < MAX_SETS ? (int)(COLD / set) + 1 : MAX_SETS;
	for (int o = 0; o < HD_MM_OPERANDS && ok; o++)
		ok = hd_mm_touch(&a->mem[o], &a->bytes[o], a->span[o] * (size_t)a->sets);
	return ok;
}

static void release(struct arena *a)
{
	for (int o = 0; o < HD_MM_OPERANDS; o++)
		free(a->mem[o]);
	free(a->scratch);
}

struct rival {
	struct hd_mm_primitive p;
	struct hd_mm_own own; /* used instead of p */
	int sum, is_own;
	uint32_t bias_dtype;
	char value[128];
	double best;
};
#define NOT_RUN 1e9   /* seconds of a rival that fails: it is slower than all others */
#define MAX_RIVALS 12 /* most rivals of oneDNN */

/* Returns the seconds of one run, or NOT_RUN. */
static double time_once(struct rival *r, struct arena *a)
{
	size_t set = (size_t)(a->turn++ % a->sets);
	char *at[HD_MM_OPERANDS];
	double t;

	for (int o = 0; o < HD_MM_OPERANDS; o++)
		at[o] = a->span[o] ? (char *)a->mem[o] + set * a->span[o] : NULL;
	t = hd_seconds();
	if (r->is_own)
		hd_mm_own_run(&r->own, a->scratch, r->sum ? at[HD_MM_C] : NULL, (void *const *)at, r->bias_dtype);
	else if (hd_mm_execute(r->p.prim, &r->p.bound, a->scratch, at[HD_MM_C], at[HD_MM_A], at[HD_MM_B],
			       at[HD_MM_BIAS]) < 0)
		return NOT_RUN;
	return hd_seconds() - t;
}

static void drop_rivals(struct rival *r, int n)
{
	for (int i = 0; i < n; i++) {
		hd_mm_drop(&r[i].p);
		hd_mm_own_drop(&r[i].own);
	}
}

/* Names of implementations that were HOPELESS times slower than the best, at a large product of a dtype (fp32, bf16).
 * An example are those without matrix units next to those with them. Timing them at every shape would take most of the
 * start of a run. */
#define HOPELESS 5
static char beaten[2][256]; /* names, each followed by a space */

static int is_beaten(uint32_t dtype, const char *name)
{
	const char *names = beaten[dtype == HD_DTYPE_BF16];
	size_t n = strlen(name);

	for (const char *at = names; (at = strstr(at, name)); at += n)
		if (at[n] == ' ' && (at == names || at[-1] == ' '))
			return 1;
	return 0;
}

static void mark_beaten(uint32_t dtype, const char *name)
{
	char *names = beaten[dtype == HD_DTYPE_BF16];
	size_t used = strlen(names);

	if (!is_beaten(dtype, name) && used + strlen(name) + 2 < sizeof(beaten[0]))
		sprintf(names + used, "%s ", name);
}

/* oneDNN first offers what it finds in its cache, and later offers it again in the regular order. */
static int is_added(const struct rival *r, int n, const char *value)
{
	while (n > 0 && strcmp(r[n - 1].value, value))
		n--;
	return n > 0;
}

/* Returns whether an implementation is worth timing. all_names: even if it was beaten. */
static int is_worthy(uint32_t dtype, const_dnnl_primitive_desc_t pd, size_t limit, int all_names)
{
	const char *name = hd_mm_name(pd);

	return !strstr(name, HD_MM_PLAIN_LOOPS) && (all_names || !is_beaten(dtype, name)) && hd_mm_scratch(pd) <= limit;
}

static int add_rivals(struct rival *r, int n, struct arena *a, const struct hd_mm_shape *s, int sum, int swap,
		      int all_names)
{
	size_t limit = hd_mm_limit(s, sum);
	dnnl_primitive_desc_t pd;
	char value[sizeof(r->value)];
	struct hd_mm_offers o;
	int begun = 0;

	if (!hd_mm_offers_begin(&o, s, sum, swap))
		return n;
	while ((pd = hd_mm_offers_next(&o, &begun))) {
		snprintf(value, sizeof(value), "%s/%s", swap ? "ba" : "ab", hd_mm_name(pd));
		if (n < MAX_RIVALS && is_worthy(s->dtype[HD_MM_A], pd, limit, all_names) && !is_added(r, n, value) &&
		    hd_mm_build(&r[n].p, pd, swap, s->dtype[HD_MM_BIAS] != 0)) {
			strcpy(r[n].value, value);
			r[n].best = 1e9;
			r[n].own = (struct hd_mm_own){ NULL, NULL, NULL };
			r[n].is_own = 0;
			n += hd_mm_touch(&a->scratch, &a->scratch_bytes, r[n].p.scratch_bytes);
		}
		dnnl_primitive_desc_destroy(pd);
	}
	hd_mm_offers_end(&o);
	return n;
}

static int add_own_rivals(struct rival *r, int n, struct arena *a, const struct hd_mm_shape *s, int sum)
{
	for (size_t i = 0; i < HD_MM_OWN; i++) {
		const char *name = hd_mm_own_names[i];
		size_t bytes = (size_t)hd_mm_own_bytes(s, name, omp_get_max_threads());

		r[n] = (struct rival){ .sum = sum, .is_own = 1, .bias_dtype = s->dtype[HD_MM_BIAS], .best = 1e9 };
		if (!bytes || !hd_mm_touch(&a->scratch, &a->scratch_bytes, bytes) ||
		    !hd_mm_own_make(&r[n].own, s, name))
			continue;
		snprintf(r[n].value, sizeof(r[n].value), "ab/%s", name);
		n++;
	}
	return n;
}

/* Tiles are beaten only by a clear MARGIN. In steps they were as fast as the best timings, which differ by that
 * much from start to start. Products of few rows read a model from memory in a step, but from L3 in timings, which
 * hides the advantage of thin ones. Where timing chose others, thin products were a tenth to two fifths faster
 * when forced. */
#define MARGIN 0.87
#define THIN_MARGIN 0.5
static double weighed(const struct rival *r)
{
	return r->best * (r->own.tiles ? MARGIN : r->own.thin ? THIN_MARGIN : 1);
}

/* Returns the best rival. *lead: how many times longer the next best takes. */
static int winner(const struct rival *r, int n, double *lead)
{
	double best = 1e9, next = 1e9;
	int at = 0;

	for (int i = 0; i < n; i++) {
		double t = weighed(&r[i]);

		next = fmin(next, fmax(t, best));
		if (t < best) {
			best = t;
			at = i;
		}
	}
	*lead = next / best;
	return at;
}

/* Times all rivals in rounds, so that a slow moment of the machine does not hit a single one. Those that are far
 * slower drop out, and a CLEAR lead needs no further round. Of two rivals for a long product, each runs once: they
 * differ by a few hundredths, or by far more than noise. */
#define CLEAR 1.08
static int fastest(struct rival *r, int n, struct arena *a, double budget)
{
	double spent = 0, best = 1e9, lead = 1;
	int at = 0, least = 2;

	for (int round = 0; n > 1 && round < 6 && (round < least || (spent < budget && lead < CLEAR)); round++) {
		for (int i = 0; i < n; i++) {
			double t;

			if (round > 0 && r[i].best > 1.5 * best)
				continue;
			t = time_once(&r[i], a);
			spent += t;
			if (t < r[i].best)
				r[i].best = t;
			best = fmin(best, r[i].best);
		}
		at = winner(r, n, &lead);
		least = n == 2 && spent >= budget / 4 ? 1 : 2;
	}
	return at;
}

/* Times r once more. Returns its best rate in FLOP/s. */
static double time_again(struct rival *r, struct arena *a, const struct hd_mm_shape *s)
{
	r->best = fmin(r->best, time_once(r, a));
	return hd_mm_flops(s) / r->best;
}

/* A rival that another process disturbed is slow once or twice, but not each time. */
static int is_hopeless(struct rival *r, struct arena *a, const struct hd_mm_shape *s, double best)
{
	double rate = hd_mm_flops(s) / r->best;

	for (int tries = 0; tries < 3 && rate < best / HOPELESS; tries++)
		rate = time_again(r, a, s);
	return rate < best / HOPELESS;
}

/* Where one product takes seconds (an emulated processor), the first few timings suffice. A process that is stopped
 * meanwhile spends none of these seconds, so it times as many rivals as it would otherwise. */
#define PATIENT 4.0 /* seconds of this thread on a processor */

static double own_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double rate_of(uint32_t dtype, int64_t size, double best)
{
	struct hd_mm_shape s = { .ndim = 3,
				 .dtype = { dtype, dtype, HD_DTYPE_F32 },
				 .n = { size, size, size },
				 .stride = { { size, 0, 1 }, { 0, 1, size }, { size, 1, 0 } } };
	struct rival r[MAX_RIVALS + HD_MM_OWN];
	struct arena a = { 0 };
	double begun = own_seconds();
	int n, timed = 0;

	if (hd_mm_open(NULL) < 0 || !allocate_sets(&a, &s))
		return best;
	n = add_own_rivals(r, add_rivals(r, 0, &a, &s, 0, 0, 0), &a, &s, 0);
	for (; timed < 2 * n && own_seconds() - begun < PATIENT; timed++)
		best = fmax(best, time_again(&r[timed / 2], &a, &s));
	for (int i = 0; i < timed / 2; i++)
		if (is_hopeless(&r[i], &a, &s, best))
			mark_beaten(dtype, r[i].value + 3);
	drop_rivals(r, n);
	release(&a);
	return best;
}

/* Returns a rough rate, which only limits the length of timings. */
static double rough_rate(uint32_t dtype)
{
	static double known[2];
	double *rate = &known[dtype == HD_DTYPE_BF16];

	if (!(*rate > 0))
		*rate = rate_of(dtype, 768, 1e9);
	return *rate;
}

/* Longest product, in seconds, that is timed as it is; a longer one is cut. Parts of 8 ms led to wrong choices.
 * Implementations differ in how they write a large result: by up to a tenth of the time for one of 12 MB. */
#define LONGEST 0.025

static void measure(const char *key, size_t len, struct arena *a)
{
	char text[HD_MM_KEY];
	struct rival r[MAX_RIVALS + HD_MM_OWN];
	struct hd_mm_shape s;
	int n = 0, sum = 0;

	snprintf(text, sizeof(text), "%.*s", (int)len, key);
	if (!hd_mm_key_shape(&s, &sum, text))
		return;
	hd_mm_shrink(&s, LONGEST * rough_rate(s.dtype[HD_MM_A]));
	hd_mm_shrink_scratch(&s, sum, NULL);
	if (!allocate_sets(a, &s))
		return;
	for (int all_names = 0; all_names < 2 && !n; all_names++) {
		n = add_rivals(r, n, a, &s, sum, 0, all_names);
		if (hd_mm_can_swap(&s))
			n = add_rivals(r, n, a, &s, sum, 1, all_names);
	}
	n = add_own_rivals(r, n, a, &s, sum);
	if (n) {
		const char *value = r[fastest(r, n, a, 0.05)].value;

		hd_mm_pick_add(key, len, value, strlen(value));
	}
	drop_rivals(r, n);
}

char *hd_mm_time(const char *wanted)
{
	char *text = hd_strdup("");
	struct arena a = { 0 };

	while (*wanted) {
		size_t len = strcspn(wanted, "\n");
		struct hd_mm_pick *p;

		if (len && !hd_mm_pick_find(wanted, len))
			measure(wanted, len, &a);
		p = hd_mm_pick_find(wanted, len);
		if (p && !strstr(text, p->key))
			text = hd_mm_key_append(text, p->key, p->value);
		wanted += len + (wanted[len] == '\n');
	}
	release(&a);
	return text;
}

/* Measures the rate at the first call and not before: then all ranks of a machine call at once, as they will compute
 * at once. */
double hd_mm_rate(uint32_t dtype)
{
	static double known[2];
	double *rate = &known[dtype == HD_DTYPE_BF16];

	if (*rate > 0)
		return *rate;
	if (dtype == HD_DTYPE_BF16 && hd_mm_in_fp32())
		return *rate = hd_mm_rate(HD_DTYPE_F32);
	*rate = rate_of(dtype, 1024, 1e9); /* 1e9: about the rate of plain loops */
	if (*rate > 2e11)                  /* where 1,024 cubed takes under 11 ms */
		*rate = rate_of(dtype, 1536, *rate);
	return *rate;
}
