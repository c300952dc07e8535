/* SPDX-License-Identifier: Apache-2.0
 * The memory of columns.h.
 */
#include <config.h>
#include "kernels/cpu/base/columns.h"
#include <stdlib.h>

struct hd_column_parts hd_column_parts;

struct hd_column_sums *hd_column_sums_new(int64_t rows, int64_t cols)
{
	int64_t block = rows > 8192 ? 256 : 64, blocks = (rows + block - 1) / block;
	struct hd_column_sums *c = hd_alloc(sizeof(*c));
	size_t n = (size_t)(blocks * cols);

	if (n > hd_column_parts.n) {
		free(hd_column_parts.part);
		hd_column_parts.part = hd_alloc(n * sizeof(float));
		hd_column_parts.n = n;
	}
	c->rows = rows;
	c->cols = cols;
	c->block = block;
	return c;
}
