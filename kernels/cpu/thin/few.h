/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/thin/few.h - what products of at most HD_THIN_ROWS rows share: how they prefetch b, and one function for
 * each number of rows. Part of stream.h and pairs.c, which define INLINE and stream. Prefetches go to L2, because L1
 * allows too few at a time.
 */
#define DEPTH 4 /* most rows of b for which y is read and written once */

/* Returns the distance in bytes from the data in use to the data to prefetch, `ahead` bytes later in order of use. b's
 * lines of `n` elements are contiguous, or b_step apart. */
INLINE int64_t ahead_of(const struct hd_thin_job *j, int64_t n, int64_t ahead, const int low)
{
	int64_t bytes = low ? 2 : 4;

	return n == j->b_step ? ahead : hd_parts(ahead, n * bytes) * j->b_step * bytes;
}

/* Prefetches the bytes of `n` elements, at most 256 bytes, from `ahead` bytes after element `at` on. If j->next is
 * set, prefetches lines of it instead. */
INLINE void fetch(const struct hd_thin_job *j, int64_t at, int64_t ahead, const int n, const int low)
{
	const int64_t bytes = low ? 2 : 4;

	if (j->next) {
		hd_fetch_lines(j->next, (n * bytes + 63) / 64);
		return;
	}
#pragma GCC unroll 4
	for (int64_t i = 0; i < 256; i += 64)
		if (i < n * bytes)
			__builtin_prefetch((const char *)j->b + at * bytes + ahead + i, 0, 2);
}

/* Prefetches n elements of each of `depth` rows, `ahead` bytes after `at`, in order of use. After the end of a row,
 * which has `all` elements, the next rows follow. */
INLINE void fetch_deep(const struct hd_thin_job *j, int64_t b, int64_t at, int64_t all, int64_t ahead, const int n,
		       const int depth, const int low)
{
	int64_t bytes = low ? 2 : 4;

	if (at + ahead / bytes >= all)
		ahead += (depth * j->b_step - all) * bytes;
#pragma GCC unroll 4
	for (int d = 0; d < depth; d++)
		fetch(j, b + d * j->b_step + at, ahead, n, low);
}

/* Computes y of `rows` rows, a constant at each call. */
INLINE void stream(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n, const int rows);

_Static_assert(HD_THIN_ROWS == 4, "a case for each number of rows");
INLINE void stream_few(const struct hd_thin_job *j, float *y, int64_t y_step, int64_t from, int64_t n)
{
	switch (j->m) {
	case 1: stream(j, y, y_step, from, n, 1); break;
	case 2: stream(j, y, y_step, from, n, 2); break;
	case 3: stream(j, y, y_step, from, n, 3); break;
	default: stream(j, y, y_step, from, n, 4);
	}
}
