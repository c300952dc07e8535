/* SPDX-License-Identifier: Apache-2.0
 * A rank's slice of a parameter as rectangles of a stored matrix.
 *
 * The stored matrix merges several dims of the parameter into rows and several into columns. On each side, the
 * innermost dims that are complete on this rank form one run of rows or columns, together with the dim before them. The
 * dims outside of these are stepped through. So a shard of heads in [embed, heads, head_dim] is one rectangle, and a
 * shard of head_dim is one for each head.
 */
#include <config.h>
#include "engine/checkpoint/checkpoint_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hd_extent_of(const struct hd_program *g, const struct tensor *t, struct hd_extent *x)
{
	int64_t step = 1;

	x->ndim = (int)t->v.ndim;
	for (int d = x->ndim - 1; d >= 0; d--) {
		int64_t n = hd_elements_here(g->plan, t, (uint32_t)d, g->rank);

		x->whole[d] = t->dims[d]->n;
		x->n[d] = n;
		x->off[d] = n > 0 ? hd_offset(g->plan, t, (uint32_t)d, g->rank) : 0;
		x->local[d] = t->local[d];
		x->stride[d] = step;
		step *= t->local[d];
	}
}

static int move(const struct hd_movement *m, char *data, const int64_t *off, const int64_t *n, const int64_t *stride,
		struct hd_err *err)
{
	if (m->writing)
		return hd_tensorfile_write(m->file, m->name, m->dtype, data, off, n, stride, err);
	return hd_tensorfile_load(m->file, m->name, m->dtype, data, off, n, stride, err);
}

static int is_empty(const struct hd_extent *x)
{
	for (int d = 0; d < x->ndim; d++)
		if (!x->n[d])
			return 1;
	return 0;
}

int hd_extent_move(const struct hd_movement *m, const struct hd_extent *x, void *data, struct hd_err *err)
{
	return is_empty(x) ? HD_OK : move(m, data, x->off, x->n, x->stride, err);
}

/* -- merged dims ----------------------------------------------------------------------------- */
struct side { /* dims [from, run) are stepped through, [run, to) is one run */
	int from, run, to;
	int64_t at, n, stride; /* of the run when all steps are 0; elements */
};

static int64_t inner(const struct hd_extent *x, const struct side *s, int d)
{
	int64_t n = 1;

	for (int i = d + 1; i < s->to; i++)
		n *= x->whole[i];
	return n;
}

static void split_side(const struct hd_extent *x, int from, int to, struct side *s)
{
	*s = (struct side){ .from = from, .run = to, .to = to, .n = 1, .stride = 1 };
	if (from == to)
		return;
	s->run = to - 1;
	while (s->run > from && x->local[s->run] == x->whole[s->run])
		s->run--;
	s->n = x->n[s->run] * inner(x, s, s->run);
	s->stride = x->stride[to - 1];
	for (int d = from; d <= s->run; d++)
		s->at += x->off[d] * inner(x, s, d);
}

/* Advances to the next step, the last dim fastest. Returns 0 if there is none. */
static int next_step(const struct hd_extent *x, const struct side *s, int nsides, int64_t *i)
{
	for (int k = nsides - 1; k >= 0; k--)
		for (int d = s[k].run - 1; d >= s[k].from; d--) {
			if (++i[d] < x->n[d])
				return 1;
			i[d] = 0;
		}
	return 0;
}

static int rectangle(const struct hd_movement *m, const struct hd_hf_region *r, const struct hd_extent *x,
		     const struct side *s, const int64_t *i, char *data, struct hd_err *err)
{
	int64_t off[2], n[2], stride[2], memory = 0;

	for (int k = 0; k < r->ndim; k++) {
		int place = r->transpose && r->ndim == 2 ? 1 - k : k;

		off[place] = r->at[place] + s[k].at;
		n[place] = s[k].n;
		stride[place] = s[k].stride;
		for (int d = s[k].from; d < s[k].run; d++) {
			off[place] += i[d] * inner(x, &s[k], d);
			memory += i[d] * x->stride[d];
		}
	}
	return move(m, data + memory * (int64_t)HD_BITS(m->dtype) / 8, off, n, stride, err);
}

int hd_region_move(const struct hd_movement *m, const struct hd_hf_region *r, const struct hd_extent *x, void *data,
		   struct hd_err *err)
{
	int64_t i[HD_MAX_DIMS] = { 0 };
	int split = r->ndim == 1 ? x->ndim : r->split;
	struct side s[2];

	if (is_empty(x))
		return HD_OK;
	split_side(x, 0, split, &s[0]);
	split_side(x, split, x->ndim, &s[1]);
	do {
		HD_TRY(rectangle(m, r, x, s, i, data, err));
	} while (next_step(x, s, r->ndim, i));
	return HD_OK;
}

char *hd_shape_text(int ndim, const int64_t *shape)
{
	char text[HD_MAX_DIMS * 24] = "";
	size_t n = 0;

	for (int d = 0; d < ndim; d++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%lld", d ? ", " : "", (long long)shape[d]);
	return hd_format("[%s]", text);
}
