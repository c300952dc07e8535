/* SPDX-License-Identifier: Apache-2.0
 * engine/tensorfile/bytes_sum.h - a sum over a file's bytes that detects changed ones. It can be added up from pieces
 * in any order.
 */
#ifndef HD_ENGINE_TENSORFILE_BYTES_SUM_H
#define HD_ENGINE_TENSORFILE_BYTES_SUM_H
#include <stdint.h>

/* Returns the sum of n bytes at place `at` of a file. Each 8 bytes of the file, as a little-endian number, are
 * multiplied by an odd number that is computed from their place, modulo 2^64. A piece may begin and end anywhere: if it
 * contains a part of a word, the rest counts as 0. So the sums of the pieces of a file add up to the file's, whoever
 * wrote them. One word that has changed always changes the sum. */
uint64_t hd_bytes_sum(const char *bytes, int64_t n, int64_t at);

#endif
