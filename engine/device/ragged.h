/* SPDX-License-Identifier: Apache-2.0
 * engine/device/ragged.h - rows that go to where their experts are, and back: which of them are whose.
 */
#ifndef HD_ENGINE_COMM_RAGGED_H
#define HD_ENGINE_COMM_RAGGED_H
#include <stdint.h>

/* Rows whose numbers are known at run time, by expert, then by sample.  index 1: `in` has all experts' rows of this
 * member's samples and `out` gets this member's experts' rows of all members' samples; index 0: the other way round. */
struct hd_rows {
	const int32_t *have, *need; /* numbers of the rows of `in` and of `out`, (expert, sample) */
	int64_t experts, samples;   /* of one member */
	int64_t bytes;              /* of a row */
};

/* Rows of `expert` of member j (of those of one member) and what begins where in memory: numbers as in struct hd_rows; many:
 * this is memory with all experts.  -> their number; *at: rows in front of them. */
int64_t hd_rows_segment(const struct hd_rows *r, const int32_t *numbers, int many, int n, int j, int64_t expert,
			int64_t *at);
int64_t hd_rows_sent(const struct hd_rows *r, int to_experts, int n, int me); /* bytes */

#endif
