/* SPDX-License-Identifier: Apache-2.0
 * engine/tensorfile/bytes_sum.h - a sum over a file's bytes by which a changed one is noticed, added up from pieces in any order.
 */
#ifndef HD_ENGINE_TENSORFILE_BYTES_SUM_H
#define HD_ENGINE_TENSORFILE_BYTES_SUM_H
#include <stdint.h>

/* Each 8 bytes of the file, as a little-endian number, times an odd number that is made of their place, modulo 2^64. A piece
 * begins and ends anywhere: of a word that it has in part, the rest counts as 0.  So the sums of pieces that make up a file add up
 * to the file's, whoever wrote them, and one word that has changed always changes it. */
uint64_t hd_bytes_sum(const char *bytes, int64_t n, int64_t at);

#endif
