/* SPDX-License-Identifier: Apache-2.0
 * Deals samples to several sources in exact proportions. Of the first g samples the first source gets floor(g w / W),
 * where w is its weight and W the sum of all. The others are renumbered, and dealt to the remaining sources in the
 * same way.
 *
 * Example: weights 2, 1 and 1 give the sources 2 0 1 0, repeated. Source 0 gets every second sample; those left over
 * are dealt to 2 and 1 alternately.
 */
#include <config.h>
#include "engine/data/mix.h"
#include "engine/base/parse.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- names ------------------------------------------------------------------------------------- */
void hd_names_add(struct hd_names *f, const char *name)
{
	f->all = hd_grow(f->all, f->n, &f->cap, sizeof(*f->all));
	f->all[f->n++] = hd_strdup(name);
}

void hd_names_split(struct hd_names *f, const char *list)
{
	char *copy = hd_strdup(list), *next = copy, *one;

	while ((one = strsep(&next, ",")))
		hd_names_add(f, hd_parse_trim(one));
	free(copy);
}

void hd_names_release(struct hd_names *f)
{
	for (size_t i = 0; i < f->n; i++)
		free(f->all[i]);
	free(f->all);
	*f = (struct hd_names){ 0 };
}

/* -- weights ----------------------------------------------------------------------------------- */
#define SCALE 1000000000 /* nine decimal places */

static int64_t divisor(int64_t a, int64_t b)
{
	return b ? divisor(b, a % b) : a;
}

static int one_weight(const char *word, int64_t *out, struct hd_err *err)
{
	double x, whole;

	if (hd_word_num(word, &x) || !(x > 0) || x > 1e6)
		return hd_err_set(err, HD_EINVAL, "'%.40s' is not a number above 0 and at most 1000000", word);
	whole = round(x * SCALE);
	if (whole < 1 || fabs(whole - x * SCALE) > 1e-3 * fmax(1, x))
		return hd_err_set(err, HD_EINVAL, "%.40s has more than 9 digits after the point", word);
	*out = (int64_t)whole;
	return HD_OK;
}

int hd_mix_read(const char *text, size_t n, struct hd_mix *out, struct hd_err *err)
{
	struct hd_names words = { 0 };
	int64_t common = 0;

	hd_names_split(&words, text);
	if (words.n != n)
		hd_err_set(err, HD_EINVAL, "%zu number%s, but train has %zu name%s", words.n,
			   hd_plural((int64_t)words.n, "s"), n, hd_plural((int64_t)n, "s"));
	out->weights = hd_alloc(words.n * sizeof(*out->weights));
	out->n = words.n;
	for (size_t i = 0; i < words.n && !err->code; i++)
		if (one_weight(words.all[i], &out->weights[i], err) >= 0)
			common = divisor(out->weights[i], common);
	for (size_t i = 0; i < words.n && !err->code; i++)
		out->weights[i] /= common;
	hd_names_release(&words);
	return err->code;
}

void hd_mix_release(struct hd_mix *m)
{
	free(m->weights);
	*m = (struct hd_mix){ 0 };
}

/* Returns how many of the first g samples a source of weight w gets, where all is the sum of the weights. */
static int64_t dealt(int64_t g, int64_t w, int64_t all)
{
	return (int64_t)((__int128)g * w / all);
}

size_t hd_mix_at(const struct hd_mix *m, int64_t g, int64_t *index)
{
	int64_t all = 0;
	size_t i = 0;

	for (size_t k = 0; k < m->n; k++)
		all += m->weights[k];
	for (; i + 1 < m->n; i++) {
		int64_t before = dealt(g, m->weights[i], all);

		if (dealt(g + 1, m->weights[i], all) > before) {
			*index = before;
			return i;
		}
		g -= before;
		all -= m->weights[i];
	}
	*index = g;
	return i;
}
