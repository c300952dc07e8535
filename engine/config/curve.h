/* SPDX-License-Identifier: Apache-2.0
 * engine/config/curve.h - a number that depends on a size, written in an INI as a list of points: "1e8:0.3, 1e10:0.6".
 *
 * Between two points the value is linear in the logarithm of the size; before the first and after the last point it is
 * constant. A number alone is the same for all sizes.
 */
#ifndef HD_ENGINE_CURVE_H
#define HD_ENGINE_CURVE_H
#include "engine/config/conf.h"

enum { HD_CURVE_MOST = 24 };
struct hd_size_curve {
	int n;
	double size[HD_CURVE_MOST], value[HD_CURVE_MOST];
};
/* Reads the curve of a text key: sizes increase, values are above 0 and at most 1. HD_EINVAL: the message names the key
 * and what is wrong with it. */
int hd_curve_read(struct hd_conf *c, struct hd_section *s, const char *key, struct hd_size_curve *out,
		  struct hd_err *err);
double hd_curve_at(const struct hd_size_curve *c, double size);

#endif
