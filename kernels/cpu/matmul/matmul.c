/* SPDX-License-Identifier: Apache-2.0
 * Matrix products by oneDNN, and by our own (own.c) where these are faster.
 *
 * oneDNN offers several implementations of one product and the first is not always the fastest, so every shape is timed once
 * (autotune) and the pick is kept as text: the key of a shape says all that the timing depends on, and a shape can be rebuilt from its key, so that rank 0 can time
 * what only other ranks need.  Where bits must not depend on that, nothing is timed and products
 * are made on tiles or in pieces (matmul_pieces.c), by a rule that knows the shape alone.
 */
#include <config.h>
#include "engine/base/parse.h"
#include "kernels/cpu/base/scratch.h"
#include "kernels/cpu/matmul/matmul_impl.h"
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hd_mm {
	struct hd_mm_shape shape;
	struct hd_mm_primitive made[2]; /* overwrites, adds */
	/* In their place: where nothing may depend on time and threads, or they would be too large; where our own are faster */
	struct hd_mm_pieces *pieces[2];
	struct hd_mm_own own[2];
	int users, needs; /* needs: bit 0 overwriting, bit 1 adding */
	struct hd_mm *next;
};

static struct hd_mm *all;
static int fixed;

/* hd_mm_bytes knew them all, so there is scratch for whatever is made. */
static int create(struct hd_mm_primitive *p, const struct hd_mm_shape *s, int sum, int swap, const char *want)
{
	if (!hd_mm_create(p, s, sum, swap, want))
		return 0;
	if ((int64_t)p->scratch_bytes <= hd_scratch_room())
		return 1;
	hd_mm_drop(p);
	return 0;
}

static int in_pieces(struct hd_mm *mm, int sum, struct hd_mm_pieces *pieces)
{
	if (pieces && hd_mm_pieces_taken(pieces) <= hd_scratch_room()) {
		mm->pieces[sum] = pieces;
		return 1;
	}
	hd_mm_pieces_destroy(pieces);
	return 0;
}

/* ---- products ---------------------------------------------------------------------------------- */

/* What was named, or the first that is any good: whole, or in pieces whose scratchpads are small. */
static int make(struct hd_mm *mm, int sum, int swap, const char *want)
{
	if (want && !strncmp(want, "own:", 4))
		return hd_mm_own_bytes(&mm->shape, want, omp_get_max_threads()) <= hd_scratch_room() &&
		       hd_mm_own_make(&mm->own[sum], &mm->shape, want);
	if (create(&mm->made[sum], &mm->shape, sum, swap, want))
		return 1;
	return !swap && in_pieces(mm, sum, hd_mm_pieces_of_scratch(&mm->shape, sum, want));
}

static int ensure_fixed(struct hd_mm *mm, int sum)
{
	if (hd_mm_in_tiles(&mm->shape) && make(mm, sum, 0, HD_MM_TILES))
		return 1;
	return in_pieces(mm, sum, hd_mm_pieces_create(&mm->shape, sum));
}

static int is_own(const struct hd_mm *mm, int sum)
{
	return mm->own[sum].tiles || mm->own[sum].thin;
}

/* Values: "ab/NAME", "ba/NAME" (operands swapped). */
static int ensure(struct hd_mm *mm, int sum)
{
	char key[HD_MM_KEY];
	struct hd_mm_pick *k;

	if (mm->made[sum].prim || mm->pieces[sum] || is_own(mm, sum))
		return 1;
	if (fixed)
		return ensure_fixed(mm, sum);
	hd_mm_key_of(key, &mm->shape, sum);
	k = hd_mm_pick_find(key, strlen(key));
	if (k && strlen(k->value) > 3 && make(mm, sum, k->value[0] == 'b' && hd_mm_can_swap(&mm->shape), k->value + 3))
		return 1;
	return make(mm, sum, 0, NULL) || create(&mm->made[sum], &mm->shape, sum, 0, HD_MM_PLAIN_LOOPS);
}

/* ---- timing ---------------------------------------------------------------------------------- */

/* Touched memory: untouched pages all read as one page of zeros.  In a step operands come from memory, so runs take sets of
 * operands in turn that together are more than a cache keeps. */
struct arena {
	void *mem[HD_MM_OPERANDS], *scratch;
	size_t bytes[HD_MM_OPERANDS], span[HD_MM_OPERANDS], scratch_bytes;
	int sets, turn;
};
#define COLD ((size_t)16 << 20) /* bytes of all sets together, at least */
#define MAX_SETS 32

static size_t span(const struct hd_mm_shape *s, int o)
{
	int64_t last = 0;

	for (int d = 0; d < s->ndim; d++)
		last += s->stride[o][d] * (s->n[d] - 1);
	return (size_t)(last + 1) * HD_BITS(s->dtype[o]) / 8;
}

static int touch(struct arena *a, const struct hd_mm_shape *s)
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
	struct hd_mm_own own; /* in its place */
	int sum, is_own;
	uint32_t bias_dtype;
	char value[128];
	double best;
};
#define MAX_RIVALS 12 /* of oneDNN */
#define OWN 2

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
	else
		hd_mm_execute(r->p.prim, &r->p.bound, a->scratch, at[HD_MM_C], at[HD_MM_A], at[HD_MM_B],
			      at[HD_MM_BIAS]);
	return hd_seconds() - t;
}

static void leave(struct rival *r, int n)
{
	for (int i = 0; i < n; i++) {
		hd_mm_drop(&r[i].p);
		hd_mm_own_drop(&r[i].own);
	}
}

/* Implementations that were HOPELESS times slower than the best at a large product of a dtype (fp32, bf16), as those without
 * matrix units are beside those with them: timing them at every shape would be most of the start of a run. */
#define HOPELESS 5
static char beaten[2][256]; /* names, each with a space behind */

static int is_beaten(uint32_t dtype, const char *name)
{
	const char *names = beaten[dtype == HD_DTYPE_BF16];
	size_t n = strlen(name);

	for (const char *at = names; (at = strstr(at, name)); at += n)
		if (at[n] == ' ' && (at == names || at[-1] == ' '))
			return 1;
	return 0;
}

static void beat(uint32_t dtype, const char *name)
{
	char *names = beaten[dtype == HD_DTYPE_BF16];
	size_t used = strlen(names);

	if (!is_beaten(dtype, name) && used + strlen(name) + 2 < sizeof(beaten[0]))
		sprintf(names + used, "%s ", name);
}

/* all_names: with those that were beaten */
static int enter(struct rival *r, int n, struct arena *a, const struct hd_mm_shape *s, int sum, int swap, int all_names)
{
	size_t limit = hd_mm_limit(s, sum);
	dnnl_primitive_desc_t pd;
	struct hd_mm_offers o;
	int begun = 0;

	if (!hd_mm_offers_begin(&o, s, sum, swap))
		return n;
	while ((pd = hd_mm_offers_next(&o, &begun))) {
		if (n < MAX_RIVALS && !strstr(hd_mm_name(pd), HD_MM_PLAIN_LOOPS) &&
		    (all_names || !is_beaten(s->dtype[HD_MM_A], hd_mm_name(pd))) && hd_mm_scratch(pd) <= limit &&
		    hd_mm_build(&r[n].p, pd, swap, s->dtype[HD_MM_BIAS] != 0)) {
			snprintf(r[n].value, sizeof(r[n].value), "%s/%s", swap ? "ba" : "ab", hd_mm_name(pd));
			r[n].best = 1e9;
			r[n].own = (struct hd_mm_own){ NULL, NULL };
			r[n].is_own = 0;
			n += hd_mm_touch(&a->scratch, &a->scratch_bytes, r[n].p.scratch_bytes);
		}
		dnnl_primitive_desc_destroy(pd);
	}
	hd_mm_offers_end(&o);
	return n;
}

static int enter_own(struct rival *r, int n, struct arena *a, const struct hd_mm_shape *s, int sum)
{
	static const char *const names[] = { HD_MM_TILES, HD_MM_THIN };

	for (size_t i = 0; i < HD_LEN(names); i++) {
		size_t bytes = (size_t)hd_mm_own_bytes(s, names[i], omp_get_max_threads());

		r[n] = (struct rival){ .sum = sum, .is_own = 1, .bias_dtype = s->dtype[HD_MM_BIAS], .best = 1e9 };
		if (!bytes || !hd_mm_touch(&a->scratch, &a->scratch_bytes, bytes) ||
		    !hd_mm_own_make(&r[n].own, s, names[i]))
			continue;
		snprintf(r[n].value, sizeof(r[n].value), "ab/%s", names[i]);
		n++;
	}
	return n;
}

/* Rounds over all rivals, so that a slow moment of the machine does not hit one alone; those
 * far behind drop out.  Tiles are beaten by a clear MARGIN only: in steps they were as fast as the best of all timings, which
 * differ by that much from one start to the next.  Products of few rows read a model from memory, but in timings from L3, which
 * hides what thin ones are made for: forced, they were a tenth to two fifths faster where timing chose others. */
#define MARGIN 0.87
#define THIN_MARGIN 0.5
static int winner(const struct rival *r, int n)
{
	double best = 1e9;
	int at = 0;

	for (int i = 0; i < n; i++) {
		double t = r[i].best * (r[i].own.tiles ? MARGIN : r[i].own.thin ? THIN_MARGIN : 1);

		if (t < best) {
			best = t;
			at = i;
		}
	}
	return at;
}

static int fastest(struct rival *r, int n, struct arena *a, double budget)
{
	double spent = 0, best = 1e9;

	for (int round = 0; n > 1 && round < 6 && (round < 2 || spent < budget); round++)
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
	return winner(r, n);
}

/* Times r once more.  -> its best rate, FLOP/s */
static double again(struct rival *r, struct arena *a, const struct hd_mm_shape *s)
{
	r->best = fmin(r->best, time_once(r, a));
	return hd_mm_flops(s) / r->best;
}

/* What another process disturbed is slow once or twice, not each time. */
static int is_hopeless(struct rival *r, struct arena *a, const struct hd_mm_shape *s, double best)
{
	double rate = hd_mm_flops(s) / r->best;

	for (int tries = 0; tries < 3 && rate < best / HOPELESS; tries++)
		rate = again(r, a, s);
	return rate < best / HOPELESS;
}

static double rate_of(uint32_t dtype, int64_t size, double best)
{
	struct hd_mm_shape s = { .ndim = 3,
				 .dtype = { dtype, dtype, HD_DTYPE_F32 },
				 .n = { size, size, size },
				 .stride = { { size, 0, 1 }, { 0, 1, size }, { size, 1, 0 } } };
	struct rival r[MAX_RIVALS + OWN];
	struct arena a = { 0 };
	int n;

	if (hd_mm_open(NULL) < 0 || !touch(&a, &s))
		return best;
	n = enter_own(r, enter(r, 0, &a, &s, 0, 0, 0), &a, &s, 0);
	for (int i = 0; i < 2 * n; i++)
		best = fmax(best, again(&r[i / 2], &a, &s));
	for (int i = 0; i < n; i++)
		if (is_hopeless(&r[i], &a, &s, best))
			beat(dtype, r[i].value + 3);
	leave(r, n);
	release(&a);
	return best;
}

/* For the length of timings only */
static double rough_rate(uint32_t dtype)
{
	static double known[2];
	double *rate = &known[dtype == HD_DTYPE_BF16];

	if (!(*rate > 0))
		*rate = rate_of(dtype, 768, 1e9);
	return *rate;
}

static void measure(const char *key, size_t len, struct arena *a)
{
	char text[HD_MM_KEY];
	struct rival r[MAX_RIVALS + OWN];
	struct hd_mm_shape s;
	int n = 0, sum = 0;

	snprintf(text, sizeof(text), "%.*s", (int)len, key);
	if (!hd_mm_key_shape(&s, &sum, text))
		return;
	hd_mm_shrink(&s, 0.008 * rough_rate(s.dtype[HD_MM_A]));
	hd_mm_shrink_scratch(&s, sum, NULL);
	if (!touch(a, &s))
		return;
	for (int all_names = 0; all_names < 2 && !n; all_names++) {
		n = enter(r, n, a, &s, sum, 0, all_names);
		if (hd_mm_can_swap(&s))
			n = enter(r, n, a, &s, sum, 1, all_names);
		n = enter_own(r, n, a, &s, sum);
	}
	if (n) {
		const char *value = r[fastest(r, n, a, 0.05)].value;

		hd_mm_pick_add(key, len, value, strlen(value));
	}
	leave(r, n);
}

/* ---- what the device calls ------------------------------------------------------------------- */

static char *append(char *text, const char *key, const char *value)
{
	char *longer = hd_format(value ? "%s%s %s\n" : "%s%s\n", text, key, value ? value : "");

	free(text);
	return longer;
}

static char *wanted_keys(void)
{
	char *text = hd_strdup("");
	char key[HD_MM_KEY];

	for (struct hd_mm *m = all; m; m = m->next)
		for (int sum = 0; sum < 2; sum++) {
			if (!(m->needs >> sum & 1))
				continue;
			hd_mm_key_of(key, &m->shape, sum);
			text = append(text, key, NULL);
		}
	return text;
}

static char *answer(const char *wanted)
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
			text = append(text, p->key, p->value);
		wanted += len + (wanted[len] == '\n');
	}
	release(&a);
	return text;
}

static void forget(struct hd_mm *m, int sum)
{
	hd_mm_drop(&m->made[sum]);
	hd_mm_pieces_destroy(m->pieces[sum]);
	m->pieces[sum] = NULL;
	hd_mm_own_drop(&m->own[sum]);
}

/* Prepares all that is needed anew: what was made before knew less. */
static void prepare_all(void)
{
	for (struct hd_mm *m = all; m; m = m->next)
		for (int sum = 0; sum < 2; sum++) {
			forget(m, sum);
			if (m->needs >> sum & 1)
				ensure(m, sum);
		}
}

void hd_mm_fixed(int yes)
{
	fixed = yes;
}
int hd_mm_is_fixed(void)
{
	return fixed;
}

char *hd_mm_autotune(const char *known, const struct hd_exchange *x)
{
	char *wanted, *joined = NULL, *mine = NULL, *text;

	if (fixed) {
		prepare_all();
		return hd_strdup("");
	}
	wanted = wanted_keys();
	hd_mm_picks_read(known, 0);
	if (x) {
		joined = x->gather(x->ctx, wanted);
		mine = joined ? answer(joined) : hd_strdup("");
		text = x->bcast(x->ctx, mine);
		hd_mm_picks_read(text, 1);
	} else {
		text = answer(wanted);
	}
	prepare_all();
	free(mine);
	free(joined);
	free(wanted);
	return text;
}

struct hd_mm *hd_mm_get(const struct hd_mm_shape *s, int needs)
{
	int64_t bytes = hd_mm_bytes(s, needs, omp_get_max_threads());
	struct hd_mm *m;

	if (!hd_mm_has(s) || hd_scratch_join(bytes, "matmul", NULL) < 0)
		return NULL;
	for (m = all; m; m = m->next)
		if (!memcmp(&m->shape, s, sizeof(*s))) {
			m->users++;
			m->needs |= needs;
			return m;
		}
	m = hd_alloc(sizeof(*m));
	m->shape = *s;
	m->users = 1;
	m->needs = needs;
	m->next = all;
	all = m;
	return m;
}

void hd_mm_put(struct hd_mm *mm)
{
	struct hd_mm **at = &all;

	if (mm)
		hd_scratch_leave();
	if (!mm || --mm->users)
		return;
	while (*at != mm)
		at = &(*at)->next;
	*at = mm->next;
	forget(mm, 0);
	forget(mm, 1);
	free(mm);
}

const struct hd_mm_shape *hd_mm_shape_of(const struct hd_mm *mm)
{
	return &mm->shape;
}

struct hd_amx *hd_mm_several(struct hd_mm *mm, int sum, int64_t several)
{
	struct hd_amx *x = ensure(mm, sum) && mm->own[sum].tiles ? hd_amx_create(&mm->shape, several) : NULL;

	if (!x || hd_amx_taken(x) <= hd_scratch_room())
		return x;
	hd_amx_destroy(x);
	return NULL;
}

int hd_mm_adds(struct hd_mm *mm)
{
	return ensure(mm, 1) && mm->own[1].tiles;
}

void hd_mm_add(struct hd_mm *mm, const void *from, void *c, const void *a, const void *b, const void *bias)
{
	hd_amx_run(mm->own[1].tiles, hd_scratch(), a, &(struct hd_amx_operands){ c, from, b, bias });
}

int hd_mm_run(struct hd_mm *mm, int sum, void *c, const void *a, const void *b, const void *bias)
{
	struct hd_mm_primitive *p = &mm->made[sum];
	void *const mem[HD_MM_OPERANDS] = {
		[HD_MM_A] = (void *)a, [HD_MM_B] = (void *)b, [HD_MM_C] = c, [HD_MM_BIAS] = (void *)bias
	};

	if (!ensure(mm, sum)) /* never timed: the first implementation offered */
		return HD_ENOTSUP;
	if (is_own(mm, sum)) {
		hd_mm_own_run(&mm->own[sum], hd_scratch(), sum ? c : NULL, mem, mm->shape.dtype[HD_MM_BIAS]);
		return 0;
	}
	if (mm->pieces[sum])
		return hd_mm_pieces_run(mm->pieces[sum], hd_scratch(), c, a, b, bias);
	return hd_mm_execute(p->prim, &p->bound, hd_scratch(), c, a, b, bias);
}

const char *hd_mm_slow(uint32_t dtype)
{
	dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();

	if (dtype != HD_DTYPE_BF16 || (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16)
		return NULL;
	return (isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core
		       ? "this processor has no instructions for bf16: its matmuls are slower than those of fp32"
		       : "this processor has no instructions for bf16: its matmuls use fp32 copies";
}

/* Measured when it is asked for, not before: then all ranks of a machine ask at once, as
 * they will compute at once. */
double hd_mm_rate(uint32_t dtype)
{
	static double known[2];
	double *rate = &known[dtype == HD_DTYPE_BF16];

	if (*rate > 0)
		return *rate;
	*rate = rate_of(dtype, 1024, 1e9);          /* 1e9: about what plain loops do */
	if (dtype == HD_DTYPE_BF16 && *rate <= 1e9) /* oneDNN has none: einsum.c makes them of fp32 copies */
		return *rate = hd_mm_rate(HD_DTYPE_F32);
	if (*rate > 1e11)
		*rate = rate_of(dtype, 1536, *rate);
	return *rate;
}
