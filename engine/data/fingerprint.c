/* SPDX-License-Identifier: Apache-2.0
 * A fingerprint, which tells data sets apart without reading all of them.
 */
#include <config.h>
#include "engine/base/hash.h"
#include "engine/data/data.h"
#include <stdlib.h>

#define SAMPLES 16 /* with order = random they are spread over the data as the seed determines */

uint64_t hd_data_fingerprint(const struct hd_data *d)
{
	int64_t seq = hd_data_seq(d);
	int32_t *ids = hd_alloc((size_t)(seq + 1) * sizeof(*ids));
	struct hd_err ignored = { 0 };
	uint64_t h = hd_hash_add(HD_HASH_START, (uint64_t)hd_data_tokens(d, 0));

	for (int64_t i = 0; i < SAMPLES; i++)
		for (int64_t k = 0; hd_data_sample(d, 0, i, ids, &ignored) >= 0 && k <= seq; k++)
			h = hd_hash_add(h, (uint64_t)ids[k]);
	free(ids);
	return h;
}
