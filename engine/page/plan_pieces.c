/* SPDX-License-Identifier: Apache-2.0
 * Computes a timeline row in as many pieces as a screen has pixels, and converts it to text and back.
 */
#include <config.h>
#include "engine/base/err.h"
#include "engine/page/plan_page.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PIECES HD_PAGE_PIECES
#define LEAST 1e-6 /* a smaller share of a piece is rounding */

struct piece_shares { /* of each piece, by kind of work */
	double of[PIECES][HD_PAGE_WORKS];
	double from, each; /* times: of the first piece; of a piece */
};

/* Adds the time from a to b to a kind of work, or with sign -1 subtracts it. */
static void add(struct piece_shares *s, enum hd_page_work work, double a, double b, int sign)
{
	a = fmax((a - s->from) / s->each, 0);
	b = fmin((b - s->from) / s->each, PIECES);
	for (int k = a < PIECES ? (int)a : PIECES; k < b; k++)
		s->of[k][work] += sign * (fmin(b, k + 1) - fmax(a, k));
}

/* A planned wait is part of a unit, which the row has before all waits. Only that unit loses the time. In a traced row
 * nothing overlaps. *at: the first unit that may contain the wait; waits are in order. */
static void take_wait(struct piece_shares *s, const struct hd_page_stage *row, size_t wait, size_t *at)
{
	const struct hd_page_span *v = row->spans, *x = &v[wait];

	while (*at < wait && (v[*at].work == HD_PAGE_WAITS || v[*at].to <= x->from))
		++*at;
	for (size_t i = *at; i < wait && v[i].from < x->to; i++)
		if (v[i].work != HD_PAGE_WAITS && v[i].to > x->from)
			add(s, v[i].work, fmax(v[i].from, x->from), fmin(v[i].to, x->to), -1);
}

/* Sets what each piece of time is; -1: nothing. If a piece contains several kinds of work, chooses the one that has
 * been shown too seldom so far. So each kind gets the same share of the row as of the time. */
static void choose(const struct piece_shares *s, signed char out[PIECES])
{
	double owed[HD_PAGE_WORKS] = { 0 };

	for (int k = 0; k < PIECES; k++) {
		int most = -1;

		for (int w = 0; w < HD_PAGE_WORKS; w++) {
			owed[w] += s->of[k][w];
			if (s->of[k][w] > LEAST && (most < 0 || owed[w] > owed[most]))
				most = w;
		}
		if (most >= 0)
			owed[most] -= 1;
		out[k] = (signed char)most;
	}
}

void hd_page_pieces(const struct hd_page_stage *s, double from, double to, signed char out[PIECES])
{
	struct piece_shares *x = hd_alloc(sizeof(*x));
	size_t at = 0;

	x->from = from;
	x->each = (to - from) / PIECES;
	for (size_t i = 0; i < s->nspans; i++) {
		add(x, s->spans[i].work, s->spans[i].from, s->spans[i].to, 1);
		if (s->spans[i].work == HD_PAGE_WAITS)
			take_wait(x, s, i, &at);
	}
	choose(x, out);
	free(x);
}

static const char letters[] = "FBWS-C"; /* by enum hd_page_work */

char *hd_page_pieces_text(const struct hd_page_stage *s, double to)
{
	signed char piece[PIECES];
	char *text = hd_strdup("");

	hd_page_pieces(s, 0, to, piece);
	for (int k = 0, n; k < PIECES; k += n) {
		for (n = 1; k + n < PIECES && piece[k + n] == piece[k]; n++)
			;
		hd_append(&text, "%c%d", piece[k] < 0 ? '.' : letters[piece[k]], n);
	}
	return text;
}

struct hd_page_span *hd_page_pieces_read(const char *text, double to, size_t *n)
{
	struct hd_page_span *v = hd_alloc((PIECES + 1) * sizeof(*v));
	long at = 0;

	for (*n = 0; *text;) {
		const char *letter = strchr(letters, *text);
		char *end;
		long many = strtol(text + 1, &end, 10);

		if ((!letter && *text != '.') || many < 1 || many > PIECES - at) {
			free(v);
			return NULL;
		}
		if (letter)
			v[(*n)++] = (struct hd_page_span){ to / PIECES * (double)at, to / PIECES * (double)(at + many),
							   (enum hd_page_work)(letter - letters) };
		at += many;
		text = end;
	}
	return v;
}
