/* SPDX-License-Identifier: Apache-2.0
 * engine/tensorfile/bytes_sum.h - a sum over a file's bytes that detects changed ones. It can be added up from pieces
 * in any order.
 */
#ifndef HD_ENGINE_TENSORFILE_BYTES_SUM_H
#define HD_ENGINE_TENSORFILE_BYTES_SUM_H
#include <stdint.h>

typedef unsigned __int128 hd_sum128;

/* Returns the sum of n bytes at place `at` of a file. Each 8 bytes of the file, as a little-endian number, are
 * multiplied by a number that is computed from their place, modulo 2^128. A piece may begin and end anywhere: if it
 * contains a part of a word, the rest counts as 0. So the sums of the pieces of a file add up to the file's, whoever
 * wrote them. One word that has changed always changes the sum, and so does the same bit of two words. */
hd_sum128 hd_bytes_sum(const char *bytes, int64_t n, int64_t at);
/* Returns the sum of earlier checkpoints, modulo 2^64. Two words whose highest bits have changed do not change it. */
uint64_t hd_bytes_sum_1(const char *bytes, int64_t n, int64_t at);

#endif
