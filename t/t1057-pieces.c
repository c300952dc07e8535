/* SPDX-License-Identifier: Apache-2.0
 * A timeline row as it is drawn.  If units shorter than a pixel were drawn longer or shorter than they are, people would
 * look for the lost time at the wrong kind of work.
 */
#include <config.h>
#include "engine/page/plan_page.h"
#include "t/lib/tap.h"
#include <stdlib.h>
#include <string.h>

enum { MICROS = 100, MOST = 8 * MICROS };

static struct hd_page_span v[MOST];
static size_t n;

static double add(double from, double lasts, enum hd_page_work work)
{
	v[n++] = (struct hd_page_span){ from, from + lasts, work };
	return from + lasts;
}

/* Returns the largest difference between a kind's drawn time and its time in `want`, in pieces. */
static double off(double from, double to, const double *want)
{
	struct hd_page_stage s = { .spans = v, .nspans = n };
	signed char out[HD_PAGE_PIECES];
	double drawn[HD_PAGE_WORKS] = { 0 }, most = 0;

	hd_page_pieces(&s, from, to, out);
	for (int k = 0; k < HD_PAGE_PIECES; k++)
		if (out[k] >= 0)
			drawn[out[k]]++;
	for (int w = 0; w < HD_PAGE_WORKS; w++) {
		most = fmax(most, fabs(drawn[w] - want[w] / (to - from) * HD_PAGE_PIECES));
		if (fabs(drawn[w] - want[w] / (to - from) * HD_PAGE_PIECES) > 2)
			note("kind %d: %g pieces instead of %g", w, drawn[w], want[w] / (to - from) * HD_PAGE_PIECES);
	}
	return most;
}

/* Each micro-batch: forward, backward with a wait at its end, weight gradients. The waits follow the units. */
static void planned(double scale)
{
	double want[HD_PAGE_WORKS] = { 0 }, at = 0, wait = 0.3, step;

	n = 0;
	for (int i = 0; i < MICROS; i++) {
		at = add(at, scale * 0.7, HD_PAGE_FORWARD);
		at = add(at, scale * (1.1 + wait), HD_PAGE_BACKWARD);
		at = add(at, scale * 0.2, HD_PAGE_WEIGHTS);
	}
	step = at = add(at, scale * 9, HD_PAGE_STEP);
	for (int i = 0; i < MICROS; i++)
		add(scale * (2.3 * i + 0.7 + 1.1), scale * wait, HD_PAGE_WAITS);
	at = add(at, scale * 11, HD_PAGE_WAITS);
	want[HD_PAGE_FORWARD] = scale * MICROS * 0.7;
	want[HD_PAGE_BACKWARD] = scale * MICROS * 1.1;
	want[HD_PAGE_WEIGHTS] = scale * MICROS * 0.2;
	want[HD_PAGE_STEP] = scale * 9;
	want[HD_PAGE_WAITS] = scale * (MICROS * wait + 11);
	ok(off(0, at, want) <= 2, "scale %g: each kind of a planned row is as long as in the data", scale);
	memset(want, 0, sizeof(want));
	want[HD_PAGE_WAITS] = scale * 11;
	ok(off(step, at, want) <= 2, "... and so is a part of the row");
}

/* Kernels and communication follow each other, so a wait takes no time from the work before it. */
static void traced(void)
{
	double want[HD_PAGE_WORKS] = { 0 }, at = 0;

	n = 0;
	for (int i = 0; i < MICROS; i++) {
		at = add(at, 0.6, HD_PAGE_FORWARD);
		at = add(at, 0.1, HD_PAGE_WAITS);
		at = add(at, 0.9, HD_PAGE_BACKWARD);
		at = add(at, 0.2, HD_PAGE_WAITS);
		at = add(at, 0.013, HD_PAGE_STEP);
	}
	want[HD_PAGE_FORWARD] = MICROS * 0.6;
	want[HD_PAGE_BACKWARD] = MICROS * 0.9;
	want[HD_PAGE_STEP] = MICROS * 0.013;
	want[HD_PAGE_WAITS] = MICROS * 0.3;
	ok(off(0, at, want) <= 2, "each kind of a traced row is as long as in the data");
}

/* The row is stored as pieces, and drawn on a longer axis than that of the pieces. */
static void stored(void)
{
	struct hd_page_stage s = { .spans = v, .nspans = n };
	double want[HD_PAGE_WORKS] = { 0 };
	char *text = hd_page_pieces_text(&s, 181.3);
	struct hd_page_span *read = hd_page_pieces_read(text, 181.3, &n);

	memcpy(v, read, n * sizeof(*v));
	for (size_t i = 0; i < n; i++)
		want[v[i].work] += v[i].to - v[i].from;
	ok(off(0, 250, want) <= 2, "a stored row is as long on another axis");
	free(text), free(read);
}

static void far(void)
{
	double want[HD_PAGE_WORKS] = { 0 };

	n = 0;
	add(0, 1, HD_PAGE_FORWARD);
	add(1e300, 1e300, HD_PAGE_BACKWARD);
	add(-1e300, 1, HD_PAGE_BACKWARD);
	want[HD_PAGE_FORWARD] = 1;
	ok(off(0, 1, want) <= 0, "times far beyond the axis are not drawn");
}

int main(void)
{
	planned(1);
	planned(0.02);
	traced();
	stored();
	far();
	return done();
}
