/* SPDX-License-Identifier: Apache-2.0
 * Orders of units, as data. p stages, m micro-batches, v chunks; r is the stage.
 *
 *   gpipe        all forwards, then all backwards, the last micro-batch first
 *   1f1b         min(p - r - 1, m) forwards ahead, then alternately one forward and one backward
 *   interleaved  the same over chunks in groups of p micro-batches: 2 (p - r - 1) + (v - 1) p ahead; m a multiple of p
 *   zb           ZB-H1 (Qi et al. 2401.10241): 1f1b whose separate weight gradients fill the time that stages wait
 */
#include "pp.h"
#include <stdlib.h>
#include <string.h>

static int gpipe(struct hd_strategy *s, struct hd_plan *p, int64_t m)
{
	for (int64_t r = 0; r < s->pp->n; r++) {
		for (int64_t i = 0; i < m; i++)
			hd_unit(s->h, p, s->pp, r, HD_UNIT_F, 0, i);
		for (int64_t i = m - 1; i >= 0; i--)
			hd_unit(s->h, p, s->pp, r, HD_UNIT_B, 0, i);
	}
	return s->h->status(p);
}

/* Appends the i-th unit of one kind: groups of p micro-batches go through all chunks before the next group. */
static int unit(struct hd_strategy *s, struct hd_plan *p, int64_t r, uint32_t kind, int64_t i)
{
	int64_t P = s->pp->n, v = s->chunks, chunk = v > 1 ? i % (P * v) / P : 0;
	int64_t micro = v > 1 ? i / (P * v) * P + i % P : i;

	return hd_unit(s->h, p, s->pp, r, kind, kind == HD_UNIT_F ? chunk : v - 1 - chunk, micro);
}

static int one_forward_one_backward(struct hd_strategy *s, struct hd_plan *p, int64_t m)
{
	int64_t P = s->pp->n, v = s->chunks, all = m * v;

	if (v > 1 && m % P)
		return s->h->fail(p, HD_EDIVIDE,
				  "schedule: interleaved: the %lld micro-batches of a step are not a multiple of "
				  "the %lld stages",
				  (long long)m, (long long)P);
	for (int64_t r = 0; r < P; r++) {
		int64_t ahead = v > 1 ? (P - r - 1) * 2 + (v - 1) * P : P - r - 1;

		ahead = ahead < all ? ahead : all;
		for (int64_t i = 0; i < ahead; i++)
			unit(s, p, r, HD_UNIT_F, i);
		for (int64_t i = 0; i < all; i++) {
			if (ahead + i < all)
				unit(s, p, r, HD_UNIT_F, ahead + i);
			unit(s, p, r, HD_UNIT_B, i);
		}
	}
	return s->h->status(p);
}

/* -- zb ------------------------------------------------------------------------------------------------------------ */
/* The state of one stage while ZB-H1 is built. */
struct stage {
	int64_t ahead, at, f, b, w; /* at: position in the order of 1f1b; f, b, w: units done */
	int64_t *end_f, *end_b;     /* per micro-batch: the time at which the unit ended; 0: not yet */
};

/* Returns the kind at position `at` of 1f1b, HD_UNIT_F or HD_UNIT_B, and sets *micro. */
static uint32_t alternating(int64_t ahead, int64_t m, int64_t at, int64_t *micro)
{
	int64_t pairs = m - ahead, k = at - ahead;

	if (k < 0)
		return *micro = at, HD_UNIT_F;
	if (k >= 2 * pairs)
		return *micro = k - pairs, HD_UNIT_B;
	*micro = k % 2 ? k / 2 : ahead + k / 2;
	return k % 2 ? HD_UNIT_B : HD_UNIT_F;
}

static int is_ready(const struct stage *all, int64_t P, int64_t r, uint32_t kind, int64_t micro, int64_t now)
{
	const int64_t *from = kind == HD_UNIT_F ? (r ? all[r - 1].end_f : NULL)
			      : r + 1 < P       ? all[r + 1].end_b
						: all[r].end_f;

	return !from || (from[micro] && from[micro] <= now);
}

/* Runs one time unit on one stage. It takes the next unit of 1f1b if its input has arrived and memory has room for it,
 * else a weight gradient, else nothing. */
static int step(struct hd_strategy *s, struct hd_plan *p, struct stage *all, int64_t r, int64_t m, int64_t now)
{
	int64_t P = s->pp->n, room = P < m ? P : m, micro = 0;
	struct stage *x = &all[r];
	uint32_t kind = x->at < 2 * m ? alternating(x->ahead, m, x->at, &micro) : 0;

	if (kind && is_ready(all, P, r, kind, micro, now) && (kind == HD_UNIT_B || x->f - x->w < room)) {
		x->at++;
		*(kind == HD_UNIT_F ? &x->f : &x->b) += 1;
		(kind == HD_UNIT_F ? x->end_f : x->end_b)[micro] = now + 1;
		return hd_unit(s->h, p, s->pp, r, kind, 0, micro);
	}
	return x->w < x->b ? hd_unit(s->h, p, s->pp, r, HD_UNIT_W, 0, x->w++) : HD_OK;
}

/* Builds ZB-H1 with a clock in which F, B and W take one time unit each. It is 1f1b in which stages fill their waiting
 * time with weight gradients. They hold at most min(p, m) micro-batches, like the first stage of 1f1b. It ends (p - 1)
 * units after the work, or (2 p - 1 - m) if m < p; no order with so many in flight ends sooner. */
static int zero_bubble(struct hd_strategy *s, struct hd_plan *p, int64_t m)
{
	int64_t P = s->pp->n, left = P;
	struct stage *all = s->h->alloc(p, (size_t)P * sizeof(*all));
	int64_t *ends = s->h->alloc(p, (size_t)(2 * P * m) * sizeof(*ends));

	if (!all || !ends)
		return HD_ENOMEM;
	for (int64_t r = 0; r < P; r++) {
		all[r].ahead = P - r - 1 < m ? P - r - 1 : m;
		all[r].end_f = ends + 2 * r * m;
		all[r].end_b = all[r].end_f + m;
	}
	for (int64_t now = 0; left && !s->h->status(p); now++) {
		left = 0;
		for (int64_t r = 0; r < P; r++) {
			step(s, p, all, r, m, now);
			left += all[r].w < m;
		}
	}
	return s->h->status(p);
}

/* -- FILE.csv ------------------------------------------------------------------------------------------------------ */
#define LINE_ENDS "\r\n" /* together, or one alone */

static const char *after_blanks(const char *t)
{
	return t + strspn(t, " \t");
}

static const char *after_line(const char *t)
{
	t += strcspn(t, LINE_ENDS);
	return t + (*t == '\r' && t[1] == '\n' ? 2 : *t != 0);
}

/* Reads a number and the separator after it, and returns the text after both; NULL: something else. The last field of a
 * line has no separator and must end its line. */
static const char *number(const char *t, int64_t *v, int is_last)
{
	char *end;

	t = after_blanks(t);
	*v = strtoll(t, &end, 10);
	if (*t < '-' || *t > '9' || end == t) /* no sign except a minus, no words */
		return NULL;
	t = after_blanks(end);
	if (is_last)
		return strcspn(t, LINE_ENDS) ? NULL : t;
	return *t == ',' ? t + 1 : NULL;
}

struct line {
	int64_t rank, chunk, micro;
	uint32_t kind;
};

/* Reads a line "rank,kind,chunk,micro" such as 0,F,0,3. Returns its end, or NULL if it is malformed. */
static const char *fields(const char *t, struct line *x)
{
	t = number(t, &x->rank, 0);
	if (!t)
		return NULL;
	t = after_blanks(t);
	x->kind = *t == 'F' ? HD_UNIT_F : *t == 'B' ? HD_UNIT_B : *t == 'W' ? HD_UNIT_W : 0;
	if (!x->kind)
		return NULL;
	t = after_blanks(t + 1);
	if (*t != ',')
		return NULL;
	t = number(t + 1, &x->chunk, 0);
	return t ? number(t, &x->micro, 1) : NULL;
}

static int check_range(struct hd_strategy *s, struct hd_plan *p, int64_t line, const char *what, int64_t i, int64_t n)
{
	if (i >= 0 && i < n)
		return HD_OK;
	return s->h->fail(p, HD_EINVAL, "schedule: line %lld of %s: %s %lld; there are %lld, counted from 0",
			  (long long)line, s->h->opt_str(p, "schedule"), what, (long long)i, (long long)n);
}

/* Tells whether a line is skipped: an empty line, one that begins with #, or column names before the first unit. */
static int is_comment(const char *t, int64_t units)
{
	t = after_blanks(t);
	return !strcspn(t, LINE_ENDS) || *t == '#' || (!units && !strncmp(t, "rank", 4));
}

static int from_text(struct hd_strategy *s, struct hd_plan *p, const char *t, int64_t m)
{
	const char *path = s->h->opt_str(p, "schedule");
	int64_t units = 0;

	t += strncmp(t, "\xef\xbb\xbf", 3) ? 0 : 3; /* the UTF-8 byte order mark that spreadsheets write */
	for (int64_t line = 1; *t; line++, t = after_line(t)) {
		int shown = (int)strcspn(t, LINE_ENDS);
		struct line x;

		if (is_comment(t, units))
			continue;
		if (!fields(t, &x))
			return s->h->fail(
				p, HD_EINVAL,
				"schedule: line %lld of %s is '%.*s', not rank,kind,chunk,micro with kind F, B or W",
				(long long)line, path, shown < 60 ? shown : 60, t);
		if (check_range(s, p, line, "rank", x.rank, s->pp->n) < 0 ||
		    check_range(s, p, line, "chunk", x.chunk, s->chunks) < 0 ||
		    check_range(s, p, line, "micro-batch", x.micro, m) < 0)
			return s->h->status(p);
		hd_unit(s->h, p, s->pp, x.rank, x.kind, x.chunk, x.micro);
		units++;
	}
	return units ? s->h->status(p) : s->h->fail(p, HD_EINVAL, "schedule: %s contains no unit", path);
}

int pp_schedule(struct hd_strategy *s, struct hd_plan *p, int64_t m)
{
	const char *text;

	if (s->order == PP_INTERLEAVED && s->chunks == 1)
		s->h->log(p, HD_LOG_WARN, __FILE__, __LINE__,
			  "schedule = interleaved does nothing with chunks = 1: it is 1f1b");
	switch (s->order) {
	case PP_GPIPE: return gpipe(s, p, m);
	case PP_1F1B:
	case PP_INTERLEAVED: return one_forward_one_backward(s, p, m);
	case PP_ZB: return zero_bubble(s, p, m);
	default:
		text = s->h->opt_text(p, "schedule");
		if (!text)
			return s->h->fail(p, HD_EIO, "schedule: %s cannot be read", s->h->opt_str(p, "schedule"));
		return from_text(s, p, text, m);
	}
}
