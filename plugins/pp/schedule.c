/* SPDX-License-Identifier: Apache-2.0
 * Orders of units, as data.  p stages, m micro-batches, v chunks; r is the stage.
 *
 *   gpipe        all forwards, then all backwards, last first
 *   1f1b         min(p - r - 1, m) forwards ahead, then one forward, one backward
 *   interleaved  the same over chunks in groups of p micro-batches: 2 (p - r - 1) + (v - 1) p ahead; m a multiple of p
 *   zb           ZB-H1: 1f1b whose weight gradients wait until the pipeline would idle
 */
#include "pp.h"
#include <stdlib.h>

static int gpipe(struct hd_strategy *s, struct hd_plan *p, int64_t m)
{
	for (int64_t r = 0; r < s->pp->n; r++) {
		for (int64_t i = 0; i < m; i++)
			s->h->unit(p, s->pp, r, HD_F, 0, i);
		for (int64_t i = m - 1; i >= 0; i--)
			s->h->unit(p, s->pp, r, HD_B, 0, i);
	}
	return s->h->status(p);
}

/* The i-th chunk-unit of a direction: groups of p micro-batches go through all chunks before the next group. */
static int unit(struct hd_strategy *s, struct hd_plan *p, int64_t r, uint32_t kind, int64_t i)
{
	int64_t P = s->pp->n, v = s->chunks, chunk = v > 1 ? i % (P * v) / P : 0;
	int64_t micro = v > 1 ? i / (P * v) * P + i % P : i;

	return s->h->unit(p, s->pp, r, kind, kind == HD_F ? chunk : v - 1 - chunk, micro);
}

static int one_forward_one_backward(struct hd_strategy *s, struct hd_plan *p, int64_t m)
{
	int64_t P = s->pp->n, v = s->chunks, all = m * v;

	if (v > 1 && m % P)
		return s->h->fail(p, HD_EDIVIDE, "schedule: interleaved needs micro-batches that divide by the stages: %lld, %lld",
				  (long long)m, (long long)P);
	for (int64_t r = 0; r < P; r++) {
		int64_t ahead = v > 1 ? (P - r - 1) * 2 + (v - 1) * P : P - r - 1;

		ahead = ahead < all ? ahead : all;
		for (int64_t i = 0; i < ahead; i++)
			unit(s, p, r, HD_F, i);
		for (int64_t i = 0; i < all; i++) {
			if (ahead + i < all)
				unit(s, p, r, HD_F, ahead + i);
			unit(s, p, r, HD_B, i);
		}
	}
	return s->h->status(p);
}

/* Stage r is r micro-batches behind with its weight gradients, which then fill the end: bubble (p - 1) / (3 m). */
static int zero_bubble(struct hd_strategy *s, struct hd_plan *p, int64_t m)
{
	int64_t P = s->pp->n;

	for (int64_t r = 0; r < P; r++) {
		int64_t ahead = P - r - 1 < m ? P - r - 1 : m, w = 0;

		for (int64_t i = 0; i < ahead; i++)
			s->h->unit(p, s->pp, r, HD_F, 0, i);
		for (int64_t i = 0; i < m; i++) {
			if (ahead + i < m)
				s->h->unit(p, s->pp, r, HD_F, 0, ahead + i);
			s->h->unit(p, s->pp, r, HD_B, 0, i);
			if (i >= r)
				s->h->unit(p, s->pp, r, HD_W, 0, w++);
		}
		while (w < m)
			s->h->unit(p, s->pp, r, HD_W, 0, w++);
	}
	return s->h->status(p);
}

/* Lines "rank,kind,chunk,micro": 0,F,0,3 */
static int from_text(struct hd_strategy *s, struct hd_plan *p, const char *t)
{
	for (int64_t line = 1; *t; line++) {
		long long v[4] = { 0 };
		char *end = (char *)(uintptr_t)t;
		char kind = 0;

		v[0] = strtoll(t, &end, 10);
		if (*end == ',')
			kind = *++end, end++;
		for (int i = 2; i < 4 && *end == ','; i++)
			v[i] = strtoll(end + 1, &end, 10);
		if (end == t || (kind != 'F' && kind != 'B' && kind != 'W') || (*end && *end != '\n' && *end != '\r'))
			return s->h->fail(p, HD_EINVAL, "schedule: line %lld is not rank,kind,chunk,micro with kind F, B or W",
					  (long long)line);
		s->h->unit(p, s->pp, v[0], kind == 'F' ? HD_F : kind == 'B' ? HD_B : HD_W, v[2], v[3]);
		while (*end == '\r' || *end == '\n')
			end++;
		t = end;
	}
	return s->h->status(p);
}

int pp_schedule(struct hd_strategy *s, struct hd_plan *p, int64_t m)
{
	const char *text;

	switch (s->order) {
	case PP_GPIPE:
		return gpipe(s, p, m);
	case PP_1F1B:
	case PP_INTERLEAVED:
		return one_forward_one_backward(s, p, m);
	case PP_ZB:
		return zero_bubble(s, p, m);
	default:
		text = s->h->opt_text(p, "schedule");
		if (!text)
			return s->h->fail(p, HD_EIO, "schedule: %s cannot be read", s->h->opt_str(p, "schedule"));
		return from_text(s, p, text);
	}
}
