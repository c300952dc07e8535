/* SPDX-License-Identifier: Apache-2.0
 * The memory arena.  If this broke, two live buffers could share bytes and give wrong numbers silently.  Or a model
 * that fits would be refused for lack of memory, or planning a large one would take minutes.
 */
#include <config.h>
#include <time.h>
#include "engine/base/err.h"
#include "engine/program/pack.h"
#include "t/lib/tap.h"

/* Returns the processor time in seconds, so that other programs do not count. */
static double cpu_seconds(void)
{
	return (double)clock() / CLOCKS_PER_SEC;
}

static uint64_t seed;

static int64_t below(int64_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (int64_t)((seed >> 33) % (uint64_t)n);
}

static int by_offset(const void *a, const void *b)
{
	const struct hd_memory_span *x = a, *y = b;

	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Are all spans aligned and inside the arena, and do no two that live at the same time overlap?  Sorted by address,
 * each span is compared only with those that begin before its end. */
static int sound(const struct hd_memory_span *s, int64_t n, int64_t arena)
{
	struct hd_memory_span *t = hd_alloc((size_t)n * sizeof(*t));
	int good = 1;
	int64_t m = 0;

	for (int64_t i = 0; i < n; i++) {
		good = good && s[i].offset >= 0 && s[i].offset % HD_ALIGN == 0 && s[i].offset + s[i].bytes <= arena;
		if (s[i].bytes > 0)
			t[m++] = s[i];
	}
	qsort(t, (size_t)m, sizeof(*t), by_offset);
	for (int64_t i = 0; i < m; i++)
		for (int64_t k = i + 1; k < m && t[k].offset < t[i].offset + t[i].bytes; k++)
			good = good && (t[k].first > t[i].last || t[k].last < t[i].first);
	free(t);
	return good;
}

static int64_t add(struct hd_memory_span *s, int64_t n, int64_t bytes, int64_t first, int64_t last)
{
	s[n] = (struct hd_memory_span){ .bytes = bytes, .first = first, .last = last, .offset = -1 };
	return n + 1;
}

/* The spans of a training step.  Forward keeps `saved` tensors per layer until the layer's backward, both passes have
 * short-lived ones, and gradients of parameters live from their backward to the end.  With `again`, a layer keeps only
 * its input and recomputes the others. */
static int64_t training(struct hd_memory_span *s, int layers, int saved, int again, int mixed)
{
	int64_t n = 0, w = saved + 3, end = 2 * layers * w;

	for (int l = 0; l < layers; l++) {
		int64_t f = l * w, b = end - (l + 1) * w;

		n = add(s, n, 4 << 20, f, b + w);
		for (int k = 0; k < saved; k++) {
			int64_t bytes = mixed ? (1 + below(64)) << 14 : (k % 4 == 2 ? 16 : 4) << 20;

			n = add(s, n, bytes, f + k, again ? f + k + 2 : b + saved - k);
			if (again)
				n = add(s, n, bytes, b + k / 4, b + saved - k);
			n = add(s, n, bytes, b + saved - k, b + saved - k + 2);
		}
		n = add(s, n, 12345 * (1 + below(100)), f + 1, f + 2);
		n = add(s, n, 3 << 20, b + 2, end);
		n = add(s, n, 4, f + 3, end);
	}
	return n;
}

/* The spans of micro-batches in flight: `depth` of them hold their activations at the same time. */
static int64_t in_flight(struct hd_memory_span *s, int micros, int depth, int layers)
{
	int64_t n = 0;

	for (int m = 0; m < micros; m++) {
		int64_t f = (m < depth ? m : 2 * m - depth) * layers;
		int64_t b = (2 * m + depth) * layers;

		for (int l = 0; l < layers; l++) {
			n = add(s, n, (1 + l % 5) << 16, f + l, b + layers - l);
			n = add(s, n, 1 << 18, f + l, f + l + 1);
			n = add(s, n, 3 << 17, b + l, b + l + 1);
		}
	}
	return n;
}

static int64_t random_spans(struct hd_memory_span *s, int64_t n, int64_t times, int64_t life)
{
	for (int64_t i = 0; i < n; i++) {
		int64_t first = below(times);

		add(s, i, below(10) ? below(1 << below(24)) : 0, first, first + below(life));
	}
	return n;
}

static void check(struct hd_memory_span *s, int64_t n, double ratio, double seconds, const char *name)
{
	int64_t *again = hd_alloc((size_t)n * sizeof(*again)), bound = hd_memory_bound(s, n), arena;
	double t = cpu_seconds();
	int same = 1;

	arena = hd_pack_plan(s, n, 0);
	t = cpu_seconds() - t;
	note("%s: %lld spans, %.4f of the bound, %.1f ms", name, (long long)n, (double)arena / (double)bound, 1e3 * t);
	ok(sound(s, n, arena), "%s: buffers are aligned, inside the arena, and do not overlap", name);
	ok(arena >= bound && (double)arena <= ratio * (double)bound, "%s: the arena is at most %.2f of the lower bound",
	   name, ratio);
	if (!getenv("HD_TEST_COUNTS")) /* objects that count coverage are not optimized */
		ok(t < seconds, "%s: planning took %.0f ms of processor time, less than %.0f", name, 1e3 * t,
		   1e3 * seconds);
	for (int64_t i = 0; i < n; i++)
		again[i] = s[i].offset;
	if (n <= 10000) {
		hd_pack_plan(s, n, 0);
		for (int64_t i = 0; i < n; i++)
			same = same && again[i] == s[i].offset;
		ok(same, "%s: planning again gives the same offsets", name);
	}
	free(again);
}

/* The spans of a stage of an interleaved pipeline.  Accumulators begin within a step and last to its end, other buffers
 * serve a single unit.  Of the inputs of two chunks' layers, those of one chunk wait longer for their backward. */
static int64_t accumulators(struct hd_memory_span *s)
{
	int64_t n = 0, end = 2048, warm = 110;

	n = add(s, n, 3750 << 10, warm + 1, 1985);
	n = add(s, n, 3750 << 10, warm + 129, end - 1);
	n = add(s, n, 3750 << 10, 1985, end);
	n = add(s, n, 3776 << 10, end - 1, end);
	for (int64_t i = 0; i < 1024; i++) {
		int64_t first = i < warm ? i : 2 * i - warm, life = i / 64 % 2 ? 93 : i < 64 ? 239 + i : 349;

		n = add(s, n, 100 << 10, first, first + life < end ? first + life : end - 1);
		n = add(s, n, 250 << 10, first, first);
		n = add(s, n, 25 << 10, first, first + 1);
		if (i >= warm)
			n = add(s, n, 650 << 10, first + 1, first + 1);
	}
	return n;
}

static void check_back(struct hd_memory_span *s, int64_t n)
{
	int64_t bound = hd_memory_bound(s, n), arena = hd_pack_plan(s, n, 200);

	note("accumulators: %lld spans, %.4f of the bound", (long long)n, (double)arena / (double)bound);
	ok(sound(s, n, arena),
	   "accumulators to the end of a step: buffers are aligned, inside the arena, and do not overlap");
	ok(arena <= bound + bound / 200,
	   "accumulators to the end of a step: the arena is as near the lower bound as requested");
}

/* Plans by units of `length` times each.  A buffer that lives in several units counts for all of each. */
static void check_units(struct hd_memory_span *s, int64_t n, int64_t length, double ratio, double seconds,
			const char *name)
{
	int64_t bound = hd_memory_bound(s, n), end = 0, arena;
	int32_t *unit;
	double t;

	for (int64_t i = 0; i < n; i++)
		end = s[i].last > end ? s[i].last : end;
	unit = hd_alloc((size_t)(end + 1) * sizeof(*unit));
	for (int64_t i = 0; i <= end; i++)
		unit[i] = (int32_t)(i / length);
	t = cpu_seconds();
	arena = hd_memory_plan_units(s, n, unit);
	t = cpu_seconds() - t;
	note("%s: %lld spans, %.4f of the bound, %.1f ms", name, (long long)n, (double)arena / (double)bound, 1e3 * t);
	ok(sound(s, n, arena), "%s: buffers are aligned, inside the arena, and do not overlap", name);
	ok(arena >= bound && (double)arena <= ratio * (double)bound, "%s: the arena is at most %.2f of the lower bound",
	   name, ratio);
	if (!getenv("HD_TEST_COUNTS")) /* objects that count coverage are not optimized */
		ok(t < seconds, "%s: planning took %.0f ms of processor time, less than %.0f", name, 1e3 * t,
		   1e3 * seconds);
	free(unit);
}

int main(void)
{
	static const int64_t life[] = { 1, 3, 40, 1000 };
	struct hd_memory_span *s = hd_alloc(220000 * sizeof(*s));
	int slow = getenv("HD_TEST_SLOW") != NULL; /* sanitizers, or other work on the machine */
	double unit = slow ? 20 : 4;               /* multiplies the times that an idle machine needs */
	int bad = 0;

	ok(hd_pack_plan(s, 0, 0) == 0, "a plan without buffers needs no memory");
	for (int k = 0; k < 400; k++) {
		int64_t n = random_spans(s, 1 + below(200), 1 + below(300), life[k % 4]);
		int64_t bound = hd_memory_bound(s, n), arena = hd_pack_plan(s, n, 0);

		bad += arena < bound || !sound(s, n, arena);
	}
	is_int(bad, 0, "400 small random plans: buffers are aligned, inside the arena, and do not overlap");
	check_back(s, accumulators(s));
	check(s, training(s, 12, 8, 0, 0), 1.05, 0.05 * unit, "12 layers");
	check(s, training(s, 96, 14, 0, 0), 1.15, 0.05 * unit, "96 layers");
	check(s, training(s, 96, 14, 0, 1), 1.15, 0.05 * unit, "96 layers, mixed sizes");
	check(s, training(s, 96, 14, 1, 0), 1.15, 0.05 * unit, "96 layers, recomputed");
	check(s, in_flight(s, 32, 8, 12), 1.15, 0.05 * unit, "8 of 32 micro-batches in flight");
	check(s, random_spans(s, 5000, 5000, 500), 1.15, 0.05 * unit, "random, 5000");
	check(s, random_spans(s, 5000, 5000, 10), 1.15, 0.05 * unit, "random and short, 5000");
	check(s, training(s, 3000, 14, 0, 1), 1.15, 5 * unit, "3000 layers, mixed sizes");
	check(s, in_flight(s, 256, 64, 130), 1.15, 5 * unit, "64 of 256 micro-batches in flight");
	check(s, random_spans(s, 100000, 100000, 5000), 1.15, 5 * unit, "random, 100000");
	for (int k = 0; k < 200; k++) {
		int64_t n = random_spans(s, 1 + below(200), 1 + below(300), life[k % 4]), end = 0, arena;
		int32_t unit[1400];

		for (int64_t i = 0; i < 1400; i++)
			unit[i] = (int32_t)(end += i && !below(7));
		arena = hd_memory_plan_units(s, n, unit);
		bad += arena < hd_memory_bound(s, n) || !sound(s, n, arena);
	}
	is_int(bad, 0, "200 small random plans by units: buffers are aligned, inside the arena, and do not overlap");
	check_units(s, in_flight(s, 256, 64, 130), 130, 1.15, 0.5 * unit,
		    "by units, 64 of 256 micro-batches in flight");
	free(s);
	return done();
}
