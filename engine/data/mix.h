/* SPDX-License-Identifier: Apache-2.0
 * engine/data/mix.h - chooses which of several sources a sample is drawn from, as a pure function of its number and
 * the sources' weights.
 *
 * The weights become integers without a common divisor, with sum W. Of any W consecutive samples, source i gets
 * exactly its weight. Of any number of samples it gets its share, with an error below the number of sources.
 */
#ifndef HD_ENGINE_DATA_MIX_H
#define HD_ENGINE_DATA_MIX_H
#include "engine/base/err.h"

struct hd_mix {
	int64_t *weights; /* NULL: one source */
	size_t n;
};
/* Reads n weights such as "0.7, 0.2, 0.1": numbers above 0 with at most 9 decimal places. */
int hd_mix_read(const char *text, size_t n, struct hd_mix *out, struct hd_err *err);
void hd_mix_release(struct hd_mix *m);
/* Returns the source of sample g, from 0. *index is the number of earlier samples from that source. */
size_t hd_mix_at(const struct hd_mix *m, int64_t g, int64_t *index);

/* The names in a comma-separated list of files. */
struct hd_names {
	char **all;
	size_t n, cap;
};
void hd_names_add(struct hd_names *f, const char *name);
void hd_names_split(struct hd_names *f, const char *list);
void hd_names_release(struct hd_names *f);

#endif
