/* SPDX-License-Identifier: Apache-2.0
 * Curves: parsing, and interpolation between their points.
 */
#include <config.h>
#include "engine/base/parse.h"
#include "engine/config/curve.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Adds the point "SIZE:VALUE", or a value alone, which holds for any size. Returns what is wrong, or NULL. */
static const char *point_of(char *text, struct hd_size_curve *c, int alone)
{
	char *colon = strchr(text, ':');
	double size = 1, value;

	if (c->n == HD_CURVE_MOST)
		return "has too many points";
	if (!colon && !alone)
		return "is a list, so each point is SIZE:VALUE";
	if (colon) {
		*colon = 0;
		if (hd_word_num(hd_parse_trim(text), &size) < 0 || size <= 0)
			return "has a size that is not a positive number";
	}
	if (hd_word_num(hd_parse_trim(colon ? colon + 1 : text), &value) < 0 || value <= 0 || value > 1)
		return "has a value that is not above 0 and at most 1";
	if (c->n && size <= c->size[c->n - 1])
		return "has sizes that do not increase";
	c->size[c->n] = size;
	c->value[c->n++] = value;
	return NULL;
}

int hd_curve_read(struct hd_conf *c, struct hd_section *s, const char *key, struct hd_size_curve *out,
		  struct hd_err *err)
{
	char *text = hd_strdup(hd_section_str(s, key)), *rest = NULL;
	const char *wrong = NULL;
	int alone = !strchr(text, ',');

	out->n = 0;
	for (char *p = strtok_r(text, ",", &rest); p && !wrong; p = strtok_r(NULL, ",", &rest))
		wrong = point_of(p, out, alone);
	if (!wrong && !out->n)
		wrong = "is empty";
	free(text);
	if (wrong)
		return hd_section_fail(c, s, key, err, HD_EINVAL, "%.60s%s: %s", hd_section_str(s, key),
				       strlen(hd_section_str(s, key)) > 60 ? "..." : "", wrong);
	return HD_OK;
}

double hd_curve_at(const struct hd_size_curve *c, double size)
{
	int i = 0;
	double part;

	while (i < c->n && c->size[i] <= size)
		i++;
	if (!i || i == c->n)
		return c->value[i ? i - 1 : 0];
	part = log(size / c->size[i - 1]) / log(c->size[i] / c->size[i - 1]);
	return c->value[i - 1] + part * (c->value[i] - c->value[i - 1]);
}
