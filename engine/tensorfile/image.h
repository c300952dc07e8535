/* SPDX-License-Identifier: Apache-2.0
 * engine/tensorfile/image.h - what this process writes into a file, in memory: it is written there at once, and to the
 * file later.
 *
 * A first round of all writes counts, hd_image_open lays out the image, and each later round of the same writes fills
 * it.
 */
#ifndef HD_ENGINE_TENSORFILE_IMAGE_H
#define HD_ENGINE_TENSORFILE_IMAGE_H
#include <stddef.h>
#include "engine/base/err.h"

#define HD_BLOCK 4096                   /* bytes: the largest block of a disk */
#define HD_PAST_CACHE_LEAST (256 << 10) /* writes of at least so many bytes go past the page cache */

struct hd_image_range {
	int64_t at, n;  /* bytes: place in the file, length */
	int64_t memory; /* its place in the image */
};
struct hd_image {
	struct hd_image_range *range; /* by place */
	size_t n, cap, last;
	char *memory; /* NULL: it only counts */
	int64_t bytes;
};
void hd_image_add(struct hd_image *m, int64_t at, int64_t n);
int hd_image_open(struct hd_image *m, struct hd_err *err);
/* Returns HD_EBUG if the range was not counted. */
int hd_image_take(struct hd_image *m, const char *bytes, int64_t n, int64_t at);
void hd_image_close(struct hd_image *m);

#endif
