/* SPDX-License-Identifier: Apache-2.0
 * Finds the rows that each pair of members exchanges when rows move to their experts and back (struct hd_rows).
 */
#include <config.h>
#include "engine/device/ragged.h"

/* A segment is the rows of one expert and one member's samples. In memory with all experts (many), the segments of
 * member j are adjacent. In memory with all samples, they are not. */
int64_t hd_rows_segment(const struct hd_rows *r, const int32_t *numbers, int many, int n, int j, int64_t expert,
			int64_t *at)
{
	int64_t e = many ? j * r->experts + expert : expert, samples = many ? r->samples : n * r->samples;
	int64_t from = many ? 0 : j * r->samples, count = 0;

	*at = 0;
	for (int64_t i = 0; i < e * samples + from; i++)
		*at += numbers[i];
	for (int64_t i = 0; i < r->samples; i++)
		count += numbers[e * samples + from + i];
	return count;
}

int64_t hd_rows_sent(const struct hd_rows *r, int to_experts, int n, int me)
{
	int64_t sum = 0, at;

	for (int j = 0; j < n; j++)
		for (int64_t e = 0; e < r->experts && j != me; e++)
			sum += hd_rows_segment(r, r->have, to_experts, n, j, e, &at);
	return sum * r->bytes;
}
