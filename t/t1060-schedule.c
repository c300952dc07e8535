/* SPDX-License-Identifier: Apache-2.0
 * Orders of units in a pipeline.  If this broke, a plugin's schedule that deadlocks would hang the job instead of being
 * refused, or `explain` would promise a bubble and a memory use that the run does not have.
 *
 * The orders here are those of the papers: GPipe (Huang et al. 2019), 1F1B and interleaved 1F1B
 * (Narayanan et al. 2021), and 1F1B with the weight gradients split off (ZB-H1, Qi et al. 2023).
 */
#include <config.h>
#include "engine/schedule/schedule_check.h"
#include "t/lib/tap.h"

#define P 8
#define V 4
#define M 16
#define MANY 900 /* micro-batches whose drawing is too wide */
#define UNITS (3 * MANY)

static struct hd_schedule_unit list[P][UNITS];
static const struct hd_schedule_unit *lists[P];
static int count[P], table[P * V];
static struct hd_schedule s = { .units = lists, .n = count, .part_of = table };
static struct hd_err err;

static void begin(int p, int m, int v)
{
	s = (struct hd_schedule){ .p = p, .v = v, .m = m, .units = lists, .n = count, .part_of = table };
	memset(count, 0, sizeof(count));
	for (int r = 0; r < p; r++) {
		lists[r] = list[r];
		for (int c = 0; c < v; c++)
			table[r * v + c] = c * p + r;
	}
}

static void add(int r, uint32_t kind, int chunk, int micro)
{
	list[r][count[r]++] = (struct hd_schedule_unit){ .kind = kind, .chunk = chunk, .micro = micro };
}

static void gpipe(int p, int m, int v)
{
	begin(p, m, v);
	for (int r = 0; r < p; r++) {
		for (int i = 0; i < m; i++)
			add(r, HD_UNIT_F, 0, i);
		for (int i = m - 1; i >= 0; i--)
			add(r, HD_UNIT_B, 0, i);
	}
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

/* apart: the weight gradients W are units of their own, each delayed by the number of preceding stages */
static void alternating(int p, int m, int apart)
{
	begin(p, m, 1);
	for (int r = 0; r < p; r++) {
		int warm = least(p - r - 1, m), w = 0;

		for (int i = 0; i < warm; i++)
			add(r, HD_UNIT_F, 0, i);
		for (int i = 0; i < m; i++) {
			if (warm + i < m)
				add(r, HD_UNIT_F, 0, warm + i);
			add(r, HD_UNIT_B, 0, i);
			if (apart && (i >= r || warm + i >= m))
				add(r, HD_UNIT_W, 0, w++);
		}
		while (apart && w < m)
			add(r, HD_UNIT_W, 0, w++);
	}
}

/* Micro-batches in groups of p; each group passes through all chunks.  m is a multiple of p. */
static void interleaved(int p, int m, int v)
{
	begin(p, m, v);
	for (int r = 0; r < p; r++) {
		int all = m * v, warm = least((p - r - 1) * 2 + (v - 1) * p, all);

		for (int k = 0; k < all + warm; k++) {
			int b = k - warm;

			if (k < all)
				add(r, HD_UNIT_F, k / p % v, k / (p * v) * p + k % p);
			if (b >= 0)
				add(r, HD_UNIT_B, v - 1 - b / p % v, b / (p * v) * p + b % p);
		}
	}
}

static void one_f_one_b(int p, int m, int v)
{
	(void)v;
	alternating(p, m, 0);
}

static void split(int p, int m, int v)
{
	(void)v;
	alternating(p, m, 1);
}

/* Returns a description of the first error, or NULL. */
static char *judge(double bubble, int (*in_flight)(int r))
{
	struct hd_schedule_report rep = { 0 };
	char *why = NULL;

	err = (struct hd_err){ 0 };
	if (hd_schedule_check(&s, &rep, &err) < 0)
		return hd_strdup(err.text);
	for (int r = 0; r < s.p && !why; r++)
		if (rep.in_flight[r] != in_flight(r))
			why = hd_format("p %d m %d v %d: stage %d has %d in flight, not %d", s.p, s.m, s.v, r,
					rep.in_flight[r], in_flight(r));
	if (!why && fabs(rep.bubble - bubble) > 1e-9)
		why = hd_format("p %d m %d v %d: bubble %.4f, not %.4f", s.p, s.m, s.v, rep.bubble, bubble);
	hd_schedule_report_release(&rep);
	return why;
}

static int all_micros(int r)
{
	(void)r;
	return s.m;
}

static int as_far_as_the_end(int r)
{
	return least(s.p - r, s.m);
}

static int as_many_as_stages(int r)
{
	(void)r;
	return least(s.p, s.m);
}

static int warm_up_and_one(int r)
{
	return least((s.p - r - 1) * 2 + (s.v - 1) * s.p + 1, s.m * s.v);
}

static void check_family(const char *name, void (*make)(int p, int m, int v), int v, int slack, double part,
			 int (*in_flight)(int r))
{
	char *why = NULL;
	int made = 0;

	for (int p = 1; p <= P; p++)
		for (int m = 1; m <= M && !why; m++) {
			if (m < slack * p || (v > 1 && m % p))
				continue;
			make(p, m, v);
			why = judge((p - 1.0) / (part * m), in_flight);
			made++;
		}
	ok(!why && made > 8, "%s, v %d: %d orders have the bubble (p-1)/%gm%s%s", name, v, made, part, why ? ": " : "",
	   why ? why : "");
	free(why);
}

static void check_families(void)
{
	char *why;

	check_family("GPipe", gpipe, 1, 0, 1, all_micros);
	check_family("1F1B", one_f_one_b, 1, 0, 1, as_far_as_the_end);
	check_family("ZB-H1", split, 1, 2, 3, as_many_as_stages);
	for (int v = 1; v <= V; v++)
		check_family("interleaved 1F1B", interleaved, v, v == 1, v, warm_up_and_one);
	gpipe(4, 8, 1);
	why = judge(0.3, all_micros);
	is_str(why, "p 4 m 8 v 1: bubble 0.3750, not 0.3000", "a wrong bubble is noticed");
	free(why);
	gpipe(4, 8, 1);
	why = judge(0.375, as_far_as_the_end);
	is_str(why, "p 4 m 8 v 1: stage 0 has 8 in flight, not 4",
	       "a wrong number of micro-batches in flight is noticed");
	free(why);
}

/* -- refusals ---------------------------------------------------------------------------------- */

static void refused(const char *want)
{
	err = (struct hd_err){ 0 };
	ok(hd_schedule_check(&s, NULL, &err) == HD_EINVAL && !strcmp(err.text, want), "%s", want);
	if (strcmp(err.text, want))
		note("got %s", err.text);
}

static void swap(int r, int i, int k)
{
	struct hd_schedule_unit u = list[r][i];

	list[r][i] = list[r][k];
	list[r][k] = u;
}

static void check_missing(void)
{
	gpipe(2, 3, 1);
	count[1]--;
	refused("schedule: stage 1 has no B0");
	gpipe(2, 3, 1);
	list[0][2].micro = 1;
	refused("schedule: stage 0 has F1 twice, as units 1 and 2");
	interleaved(2, 2, 2);
	list[1][0].chunk = 1;
	refused("schedule: stage 1 has F0 (chunk 1) twice, as units 0 and 2");
	split(2, 3, 1);
	count[1]--;
	refused("schedule: stage 1 has no W2, though other units have a W of their own");
	gpipe(2, 3, 1);
	list[1][5].micro = 3;
	refused("schedule: stage 1 has a unit B3, but there are 3 micro-batches");
	gpipe(2, 3, 1);
	list[1][5].chunk = 1;
	refused("schedule: stage 1 has a unit B0 of chunk 1, which it does not hold");
	gpipe(2, 3, 1);
	list[1][5].chunk = -1;
	refused("schedule: stage 1 has a unit B0 of chunk -1, which it does not hold");
	gpipe(2, 3, 1);
	list[1][5].micro = -1;
	refused("schedule: stage 1 has a unit B-1, but there are 3 micro-batches");
	gpipe(2, 3, 1);
	list[1][5].kind = HD_UNIT_U;
	refused("schedule: stage 1 has a unit of kind 8, but only F, B and W are ordered");
	gpipe(2, 3, 1);
	table[1] = 0;
	refused("schedule: chunk 0 of stage 1 holds part 0 of the model, which is held twice");
	table[1] = 2;
	refused("schedule: chunk 0 of stage 1 holds part 2 of the model, which is beyond the last");
}

static void check_wrong_order(void)
{
	gpipe(2, 3, 1);
	swap(1, 2, 3);
	refused("schedule: stage 1 has B2 before its F2");
	split(2, 3, 1);
	for (int i = 1; i < count[1]; i++) /* stage 1: F0 B0 F1 B1 W0 ... */
		if (list[1][i].kind == HD_UNIT_W && list[1][i].micro == 0)
			swap(1, i, 1);
	refused("schedule: stage 1 has W0 before its B0");
	gpipe(2, 3, 1);
	swap(1, 0, 1);
	refused("schedule: stage 1 runs F1 before F0, but stage 0 sends for F0 first");
	gpipe(2, 3, 1);
	swap(0, 4, 5);
	refused("schedule: stage 0 runs B0 before B1, but stage 1 sends for B1 first");
	interleaved(2, 2, 2);
	swap(0, 2, 3);
	refused("schedule: stage 0 runs F1 (chunk 1) before F0 (chunk 1), but stage 1 sends for F0 "
		"(chunk 1) first");
}

static void put(int r, const char *text) /* "F0 F1 B0" or "F0.1": chunk 1 */
{
	for (count[r] = 0; *text; text += strcspn(text, " "), text += *text == ' ') {
		int micro = 0, chunk = 0;

		sscanf(text + 1, "%d.%d", &micro, &chunk);
		add(r, *text == 'F' ? HD_UNIT_F : *text == 'B' ? HD_UNIT_B : HD_UNIT_W, chunk, micro);
	}
}

static void check_deadlock(void)
{
	begin(2, 2, 1);
	put(0, "F0 B0 F1 B1");
	put(1, "F0 F1 B0 B1");
	refused("schedule: deadlock: stage 1 waits at F1 for stage 0, which waits at B0 for stage "
		"1");
	begin(3, 2, 1); /* 2 waits for 1, but is in no cycle with it */
	put(0, "F0 B0 F1 B1");
	put(1, "F0 F1 B0 B1");
	put(2, "F0 F1 B0 B1");
	refused("schedule: deadlock: stage 1 waits at F1 for stage 0, which waits at B0 for stage "
		"1");
	begin(3, 2, 1);
	put(0, "F0 B0 F1 B1");
	put(1, "F0 B0 F1 B1");
	put(2, "F0 F1 B0 B1");
	refused("schedule: deadlock: stage 2 waits at F1 for stage 1, which waits at B0 for stage "
		"2");
	begin(2, 2, 2);
	put(0, "F0.0 F0.1 B0.1 F1.0 F1.1 B1.1 B0.0 B1.0");
	put(1, "F0.0 F0.1 F1.0 F1.1 B0.1 B1.1 B0.0 B1.0");
	refused("schedule: deadlock: stage 1 waits at F1 (chunk 0) for stage 0, which waits at B0 "
		"(chunk 1) for stage 1");
	begin(1, 1, 2);
	put(0, "F0.1 F0.0 B0.1 B0.0");
	refused("schedule: deadlock: stage 0 waits at F0 (chunk 1) for its own F0 (chunk 0), which "
		"comes later");
}

/* -- time and drawing -------------------------------------------------------------------------- */

static char *draw(void)
{
	struct hd_schedule_report rep = { 0 };
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);

	err = (struct hd_err){ 0 };
	if (hd_schedule_check(&s, &rep, &err) == 0)
		hd_schedule_draw(f, &s, &rep);
	hd_schedule_report_release(&rep);
	fclose(f);
	return text;
}

static void drawn(const char *want, const char *name)
{
	char *text = draw();

	is_str(text, want, name);
	free(text);
}

/* Returns the column of a text in the drawing of a stage; -1: it does not occur there. */
static int column(const char *drawing, int stage, const char *text)
{
	const char *line = drawing, *at;

	for (; stage; stage--)
		line = strchr(line, '\n') + 1;
	line = strchr(line, '|') + 1;
	at = strstr(line, text);
	return at && at <= strchr(line, '\n') ? (int)(at - line) : -1;
}

static void check_drawing(void)
{
	static const double tf[] = { 1, 2, 1 }, tb[] = { 1, 2, 1 };

	gpipe(2, 2, 1);
	drawn("stage 0   |F0 F1          B1--- B0---\n"
	      "stage 1   |   F0 F1 B1--- B0---\n",
	      "two stages are drawn, with B twice as long as F");
	split(2, 2, 1);
	drawn("stage 0   |F0 F1    B0 W0 B1 W1\n"
	      "stage 1   |   F0 B0 F1 B1 W0 W1\n",
	      "W units are drawn in the gaps");
	begin(2, 1, 2);
	table[3] = -1;
	put(0, "F0.0 F0.1 B0.1 B0.0");
	put(1, "F0.0 B0.0");
	s.tf = tf;
	s.tb = tb;
	drawn("stage 0   |F0.0           F0.1 B0.1           B0.0\n"
	      "stage 1   |     F0.0-----           B0.0-----\n",
	      "three parts on two stages are drawn with their own times");
}

/* A drawing that would be too wide keeps its axis of time: without its middle if there are many units, and without the
 * names of short units if these differ much. */
static void check_wide_drawing(void)
{
	static const double tf[] = { 1, 1000 };
	const int b = 10, wide = 4000 + 4; /* columns of B0, and of the drawing with its mark */
	char *text;

	gpipe(2, MANY, 1);
	text = draw();
	ok(column(text, 0, "F1-- F2--") == 5 && column(text, 1, "F0-- F1--") == 5,
	   "many micro-batches: the first are drawn as usual");
	ok(column(text, 0, "... ") == 2000 && column(text, 1, "... ") == 2000, "... the middle is left out");
	is_int(column(text, 0, "F500 "), -1, "... with its units");
	is_int(column(text, 0, "B0-"), wide - b, "... the last backward ends at the right edge");
	is_int(column(text, 1, "B0-"), wide - 2 * b, "... and the one that it waits for one backward before");
	free(text);
	gpipe(2, 4, 1);
	s.tf = tf;
	text = draw();
	ok(column(text, 0, "F") == -1 && column(text, 0, "---- ") == 0 && column(text, 0, "... ") == -1,
	   "units too short for their names have none");
	ok(column(text, 1, "F0-") == 1 && abs(column(text, 1, "F1-") - 1000) < 10 && column(text, 1, "\n") < 4000,
	   "... and the others are where they begin");
	free(text);
}

/* -- random changes ---------------------------------------------------------------------------- */

static uint64_t seed = 1;

static int below(int n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (int)((seed >> 33) % (uint64_t)n);
}

static double end_of(const struct hd_schedule_report *rep, uint32_t kind, int stage, int micro)
{
	int r = stage % s.p, c = stage / s.p;

	for (int i = 0; i < count[r]; i++)
		if (list[r][i].kind == kind && list[r][i].micro == micro && list[r][i].chunk == c)
			return rep->end[r][i];
	return INFINITY;
}

/* Does each unit start as soon as its inputs are there and its predecessor has ended? */
static int timely(const struct hd_schedule_report *rep)
{
	for (int r = 0; r < s.p; r++)
		for (int i = 0; i < count[r]; i++) {
			const struct hd_schedule_unit *u = &list[r][i];
			int g = u->chunk * s.p + r, last = s.p * s.v - 1;
			double need = i ? rep->end[r][i - 1] : 0;

			if (u->kind == HD_UNIT_F && g)
				need = fmax(need, end_of(rep, HD_UNIT_F, g - 1, u->micro));
			if (u->kind == HD_UNIT_B)
				need = fmax(need, end_of(rep, g < last ? HD_UNIT_B : HD_UNIT_F, g < last ? g + 1 : g,
							 u->micro));
			if (rep->start[r][i] != need)
				return 0;
		}
	return 1;
}

static void check_random(void)
{
	int accepted = 0, stuck = 0, untimely = 0, silent = 0;

	for (int k = 0; k < 4000; k++) {
		struct hd_schedule_report rep = { 0 };
		int p = 1 + below(4);

		interleaved(p, p * (1 + below(3)), 1 + below(3));
		for (int n = below(4); n > 0; n--) {
			int r = below(p), i = below(count[r]);

			swap(r, i, below(3) ? (i ? i - 1 : i) : below(count[r]));
		}
		err = (struct hd_err){ 0 };
		if (hd_schedule_check(&s, &rep, &err) == 0) {
			accepted++;
			untimely += !timely(&rep);
			hd_schedule_report_release(&rep);
		} else {
			stuck += strstr(err.text, "deadlock") != NULL;
			silent += !err.text[0];
		}
	}
	is_int(untimely, 0, "every unit of an accepted order starts when its inputs are there");
	is_int(silent, 0, "every refusal has a message");
	ok(accepted > 500 && stuck > 50, "%d of 4000 changed orders accepted, %d deadlocks", accepted, stuck);
}

int main(void)
{
	check_families();
	check_missing();
	check_wrong_order();
	check_deadlock();
	check_drawing();
	check_wide_drawing();
	check_random();
	return done();
}
