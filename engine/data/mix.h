/* SPDX-License-Identifier: Apache-2.0
 * engine/data/mix.h - which of several sources a sample is of, as a pure function of its number and of the sources' weights.
 *
 * Weights become whole numbers without a common divisor, of sum W.  Of any W samples in a row, wherever they begin, source i
 * has exactly its weight; of any number of samples its share, to less than the number of sources.
 */
#ifndef HD_ENGINE_DATA_MIX_H
#define HD_ENGINE_DATA_MIX_H
#include "engine/base/err.h"

struct hd_mix {
	int64_t *weights; /* NULL: one source */
	size_t n;
};
/* "0.7, 0.2, 0.1": n numbers above 0, of at most 9 digits behind the point. */
int hd_mix_read(const char *text, size_t n, struct hd_mix *out, struct hd_err *err);
void hd_mix_release(struct hd_mix *m);
/* The source of sample g, from 0; *index: how many samples before it are of that source. */
size_t hd_mix_at(const struct hd_mix *m, int64_t g, int64_t *index);

/* Names of files, comma separated. */
struct hd_names {
	char **all;
	size_t n, cap;
};
void hd_names_add(struct hd_names *f, const char *name);
void hd_names_split(struct hd_names *f, const char *list);
void hd_names_release(struct hd_names *f);

#endif
