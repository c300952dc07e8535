/* SPDX-License-Identifier: Apache-2.0
 * What a process writes into a file, gathered in memory first: ranges of the file, of which adjacent ones are joined.
 * The layout is found once, by a first round of the same writes that only counts. A long range has the same alignment
 * in memory as in the file's blocks, so it goes to the disk without another copy.
 */
#include <config.h>
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* MADV_HUGEPAGE */
#endif
#include "engine/tensorfile/image.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PIECE (1 << 20) /* bytes that one thread copies at a time */

void hd_image_add(struct hd_image *m, int64_t at, int64_t n)
{
	struct hd_image_range *last = m->n ? &m->range[m->n - 1] : NULL;

	if (last && last->at + last->n == at) {
		last->n += n;
		return;
	}
	m->range = hd_grow(m->range, m->n, &m->cap, sizeof(*m->range));
	m->range[m->n++] = (struct hd_image_range){ .at = at, .n = n };
}

static int by_place(const void *a, const void *b)
{
	const struct hd_image_range *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

static void join(struct hd_image *m)
{
	size_t n = 0;

	qsort(m->range, m->n, sizeof(*m->range), by_place);
	for (size_t i = 1; i < m->n; i++)
		if (m->range[n].at + m->range[n].n == m->range[i].at)
			m->range[n].n += m->range[i].n;
		else
			m->range[++n] = m->range[i];
	m->n = m->n ? n + 1 : 0;
	m->cap = m->n;
	m->range = realloc(m->range, (m->n + 1) * sizeof(*m->range));
	if (!m->range)
		abort();
}

/* Joins the ranges and allocates their memory. All pages are touched now, so gathering costs no more than
 * reading and writing. */
int hd_image_open(struct hd_image *m, struct hd_err *err)
{
	void *p;

	join(m);
	for (size_t i = 0; i < m->n; i++) {
		struct hd_image_range *r = &m->range[i];

		if (r->n >= HD_PAST_CACHE_LEAST)
			m->bytes += ((r->at - m->bytes) % HD_BLOCK + HD_BLOCK) % HD_BLOCK;
		r->memory = m->bytes;
		m->bytes += r->n;
	}
	if (!m->bytes)
		return HD_OK;
	p = mmap(NULL, (size_t)m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return hd_err_set(err, HD_ENOMEM, "%lld bytes for a copy of what is saved: %s", (long long)m->bytes,
				  strerror(errno));
	m->memory = p;
	madvise(p, (size_t)m->bytes, MADV_HUGEPAGE);
	for (int64_t i = 0; i < m->bytes; i += HD_BLOCK)
		m->memory[i] = 0;
	return HD_OK;
}

void hd_image_close(struct hd_image *m)
{
	if (m->memory)
		munmap(m->memory, (size_t)m->bytes);
	free(m->range);
	*m = (struct hd_image){ .n = 0 };
}

/* Returns the range that contains `at`, if one does. Most often it is the last range that was found, or the next. */
static const struct hd_image_range *range_of(struct hd_image *m, int64_t at)
{
	size_t low = 0, high = m->n;

	for (size_t i = m->last; i < m->n && i < m->last + 2; i++)
		if (m->range[i].at <= at && at < m->range[i].at + m->range[i].n)
			return &m->range[m->last = i];
	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (m->range[middle].at <= at)
			low = middle;
		else
			high = middle;
	}
	return &m->range[m->last = low];
}

int hd_image_take(struct hd_image *m, const char *bytes, int64_t n, int64_t at)
{
	const struct hd_image_range *r = m->n ? range_of(m, at) : NULL;
	char *to;

	if (!r || at < r->at || at + n > r->at + r->n)
		return HD_EBUG;
	to = m->memory + r->memory + (at - r->at);
#pragma omp parallel for schedule(static) if (n > PIECE)
	for (int64_t i = 0; i < n; i += PIECE)
		memcpy(to + i, bytes + i, (size_t)(n - i < PIECE ? n - i : PIECE));
	return HD_OK;
}
