/* SPDX-License-Identifier: Apache-2.0
 * engine/tensorfile/image.h - what this process writes into a file, in memory: written there at once, and to the file later.
 *
 * A first round of all writes counts, hd_image_open lays it out, and each later round of the same writes fills it.
 */
#ifndef HD_ENGINE_TENSORFILE_IMAGE_H
#define HD_ENGINE_TENSORFILE_IMAGE_H
#include <stddef.h>
#include "engine/base/err.h"

#define HD_BLOCK 4096                   /* bytes: of a disk, at most */
#define HD_PAST_CACHE_LEAST (256 << 10) /* bytes from which on a write goes past the page cache */

struct hd_image_range {
	int64_t at, n;  /* bytes: place in the file, length */
	int64_t memory; /* its place in the image */
};
struct hd_image {
	struct hd_image_range *range; /* by place */
	size_t n, cap, last;
	char *memory; /* NULL: it counts */
	int64_t bytes;
};
void hd_image_add(struct hd_image *m, int64_t at, int64_t n);
int hd_image_open(struct hd_image *m, struct hd_err *err);
int hd_image_take(struct hd_image *m, const char *bytes, int64_t n, int64_t at); /* HD_EBUG: it was not counted */
void hd_image_close(struct hd_image *m);

#endif
