/* SPDX-License-Identifier: Apache-2.0
 * Moves a slice of a row-major tensor between a file and strided memory.
 *
 * Dims that are complete in the file and dense in memory are joined first. What is left is walked as planes of the last
 * two dims. A plane that is dense in memory moves directly. Any other goes through a buffer of bounded size, gathered
 * or scattered in tiles. So a transposed matrix costs one cache line for many elements and one system call for many
 * rows.
 */
#include <config.h>
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* O_DIRECT */
#endif
#include "engine/tensorfile/tensorslice.h"
#include "engine/base/half.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER (1 << 20)  /* bytes */
#define DIRECT (1 << 16)  /* bytes of a row, from which on a copy would cost more than a system call */
#define TILE 32           /* elements */
#define AT_ONCE (4 << 20) /* most bytes of one write past the page cache if it needs a copy */
/* Most bytes of one that needs no copy. Between two writes the disk rests until this thread gets a core, and the
 * training steps use all cores. */
#define AT_MOST (32 << 20)
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian");

enum how { COPY1, COPY2, COPY4, COPY8, F32_BF16, BF16_F32, F16_F32, HOWS };

struct slice_move {
	const struct hd_slice *s;
	struct hd_slice_fault *fault;
	int writing;
	enum how how;
	int64_t size, mem_size; /* bytes of an element in the file and in memory */
	char *buffer;
	int64_t room; /* elements of the buffer */
};

static enum how how(uint32_t stored, uint32_t memory, int writing)
{
	if (stored == memory)
		switch (HD_BITS(stored)) {
		case 8: return COPY1;
		case 16: return COPY2;
		case 32: return COPY4;
		case 64: return COPY8;
		default: return HOWS;
		}
	if (memory == HD_DTYPE_F32 && stored == HD_DTYPE_BF16)
		return writing ? F32_BF16 : BF16_F32;
	return memory == HD_DTYPE_F32 && stored == HD_DTYPE_F16 && !writing ? F16_F32 : HOWS;
}

int hd_slice_allowed(uint32_t stored, uint32_t memory, int writing)
{
	return how(stored, memory, writing) != HOWS;
}

/* For all (r, c) of a plane, in tiles: *b is the element in the dense buffer, *m that in memory. */
#define EACH(type_b, type_m, statement) \
	for (int64_t r0 = 0; r0 < rows; r0 += TILE) \
		for (int64_t c0 = 0; c0 < cols; c0 += wide) \
			for (int64_t r = r0; r < rows && r < r0 + TILE; r++) \
				for (int64_t c = c0; c < cols && c < c0 + wide; c++) { \
					type_b *b = (type_b *)(void *)buffer + r * cols + c; \
					type_m *m = (type_m *)mem + r * sr + c * sc; \
					statement; \
				}
#define COPY(type) \
	do { \
		if (v->writing) \
			EACH(type, type, *b = *m) \
		else \
			EACH(type, type, *m = *b) \
	} while (0)

static void convert(const struct slice_move *v, void *mem, int64_t rows, int64_t cols, int64_t sr, int64_t sc)
{
	int64_t wide = sc == 1 ? cols : TILE;
	char *buffer = v->buffer;

	switch (v->how) {
	case COPY1: COPY(uint8_t); break;
	case COPY2: COPY(uint16_t); break;
	case COPY4: COPY(uint32_t); break;
	case COPY8: COPY(uint64_t); break;
	case F32_BF16: EACH(uint16_t, float, *b = hd_bf16_of(*m)) break;
	case BF16_F32: EACH(uint16_t, float, *m = hd_of_bf16(*b)) break;
	case F16_F32: EACH(uint16_t, float, *m = hd_of_f16(*b)) break;
	case HOWS: break;
	}
}

void hd_past_cache_open(struct hd_past_cache *c, const char *path)
{
	c->fd = open(path, O_WRONLY | O_DIRECT | O_CLOEXEC);
}

void hd_past_cache_close(struct hd_past_cache *c)
{
	if (c->fd >= 0)
		close(c->fd);
	free(c->buffer);
	*c = (struct hd_past_cache){ .fd = -1 };
}

/* Returns memory that the disk can read directly: the bytes themselves, or a copy of as many as fit. Sets *n to the
 * bytes of this write. Returns NULL if there is no memory for a copy. */
static const char *aligned(struct hd_past_cache *c, const char *bytes, int64_t *n)
{
	int as_is = (uintptr_t)bytes % HD_BLOCK == 0;

	if (*n > (as_is ? AT_MOST : AT_ONCE))
		*n = as_is ? AT_MOST : AT_ONCE;
	if (as_is)
		return bytes;
	if (!c->buffer && posix_memalign((void **)&c->buffer, HD_BLOCK, AT_ONCE))
		c->buffer = NULL;
	return c->buffer ? memcpy(c->buffer, bytes, (size_t)*n) : NULL;
}

/* Writes complete blocks at a multiple of their size. Returns the bytes written. The rest goes through the page cache,
 * which reports any error. */
static int64_t write_blocks(struct hd_past_cache *c, const char *bytes, int64_t count, int64_t at)
{
	int64_t done = 0;

	while (done < count) {
		int64_t n = count - done;
		const char *from = aligned(c, bytes + done, &n);

		if (!from || pwrite(c->fd, from, (size_t)n, at + done) != n)
			break;
		done += n;
	}
	return done;
}

static int through_cache(const struct slice_move *v, char *bytes, int64_t count, int64_t at);

static int to_image(const struct slice_move *v, const char *bytes, int64_t count, int64_t at)
{
	if (v->s->image->memory)
		return hd_image_take(v->s->image, bytes, count, at);
	hd_image_add(v->s->image, at, count);
	return 0;
}

static int transfer(const struct slice_move *v, char *bytes, int64_t count, int64_t at)
{
	struct hd_past_cache *c = v->writing ? v->s->past_cache : NULL;
	int64_t head = (HD_BLOCK - at % HD_BLOCK) % HD_BLOCK, done;

	if (v->s->image)
		return to_image(v, bytes, count, at);
	if (v->writing && v->s->sum)
		*v->s->sum += hd_bytes_sum(bytes, count, at);
	if (!c || c->fd < 0 || count < HD_PAST_CACHE_LEAST)
		return through_cache(v, bytes, count, at);
	HD_TRY(through_cache(v, bytes, head, at));
	done = head + write_blocks(c, bytes + head, (count - head) / HD_BLOCK * HD_BLOCK, at + head);
	return through_cache(v, bytes + done, count - done, at + done);
}

static int through_cache(const struct slice_move *v, char *bytes, int64_t count, int64_t at)
{
	int64_t done = 0;
	ssize_t n;

	while (done < count) {
		if (v->writing)
			n = pwrite(v->s->fd, bytes + done, (size_t)(count - done), at + done);
		else
			n = pread(v->s->fd, bytes + done, (size_t)(count - done), at + done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			*v->fault = (struct hd_slice_fault){ n < 0 ? errno : 0, at, count, done };
			return HD_EIO;
		}
		done += n;
	}
	return 0;
}

/* Moves rows x cols elements. Row r is at element at + r * pitch in the file, and at element r *
 * bytes_pitch in memory. */
static int rows_at(const struct slice_move *v, char *bytes, int64_t rows, int64_t cols, int64_t pitch, int64_t at,
		   int64_t bytes_pitch)
{
	if (pitch == cols && bytes_pitch == cols)
		return transfer(v, bytes, rows * cols * v->size, v->s->base + at * v->size);
	for (int64_t r = 0; r < rows; r++)
		HD_TRY(transfer(v, bytes + r * bytes_pitch * v->size, cols * v->size,
				v->s->base + (at + r * pitch) * v->size));
	return 0;
}

struct plane {
	int64_t rows, cols, pitch; /* pitch: elements of a complete row in the file */
	int64_t sr, sc;            /* strides of rows and columns in memory */
};

/* Returns whether an image is being laid out, so that only the places of the bytes matter. */
static int counts(const struct slice_move *v)
{
	return v->s->image && !v->s->image->memory;
}

static int staged(const struct slice_move *v, const struct plane *p, char *mem, int64_t at)
{
	int64_t wide = p->cols < v->room ? p->cols : v->room, high = v->room / wide;

	for (int64_t r = 0; r < p->rows; r += high) {
		for (int64_t c = 0; c < p->cols; c += wide) {
			int64_t rows = p->rows - r < high ? p->rows - r : high;
			int64_t cols = p->cols - c < wide ? p->cols - c : wide;
			char *from = mem + (r * p->sr + c * p->sc) * v->mem_size;

			if (v->writing && !counts(v))
				convert(v, from, rows, cols, p->sr, p->sc);
			HD_TRY(rows_at(v, v->buffer, rows, cols, p->pitch, at + r * p->pitch + c, cols));
			if (!v->writing)
				convert(v, from, rows, cols, p->sr, p->sc);
		}
	}
	return 0;
}

static int move_plane(const struct slice_move *v, const struct plane *p, char *mem, int64_t at)
{
	int dense = v->how <= COPY8 && (p->sc == 1 || p->cols == 1);
	int whole = p->pitch == p->cols && (p->sr == p->cols || p->rows == 1);

	/* A row that is not followed by the next one in the file needs its own call anyway. */
	if (dense && (whole || p->pitch != p->cols || p->cols * v->size >= DIRECT))
		return rows_at(v, mem, p->rows, p->cols, p->pitch, at, whole ? p->cols : p->sr);
	return staged(v, p, mem, at);
}

/* Joins a dim with the next inner one if that is complete and memory is evenly strided over both. */
static void join_dims(struct hd_slice *s)
{
	int d = 0;

	for (int i = 1; i < s->ndim; i++) {
		int even = s->n[d] == 1 || s->stride[d] == s->stride[i] * s->n[i];

		if (s->n[i] == s->shape[i] && even) {
			s->shape[d] *= s->shape[i];
			s->off[d] *= s->shape[i];
			s->n[d] *= s->n[i];
			s->stride[d] = s->stride[i];
		} else {
			d++;
			s->shape[d] = s->shape[i];
			s->off[d] = s->off[i];
			s->n[d] = s->n[i];
			s->stride[d] = s->stride[i];
		}
	}
	s->ndim = s->ndim ? d + 1 : 0;
}

/* Moves all planes: an odometer over the outer dims. */
static int move_planes(const struct slice_move *v, char *mem)
{
	const struct hd_slice *s = v->s;
	int d = s->ndim, outer = d > 2 ? d - 2 : 0;
	struct plane p = { d > 1 ? s->n[d - 2] : 1, d ? s->n[d - 1] : 1, d ? s->shape[d - 1] : 1,
			   d > 1 ? s->stride[d - 2] : 0, d ? s->stride[d - 1] : 1 };
	int64_t at[HD_MAX_DIMS] = { 0 };

	for (;;) {
		int64_t in_file = 0, in_mem = 0;
		int i = outer - 1;

		for (int k = 0; k < d; k++)
			in_file = in_file * s->shape[k] + s->off[k] + at[k];
		for (int k = 0; k < outer; k++)
			in_mem += at[k] * s->stride[k];
		HD_TRY(move_plane(v, &p, mem + in_mem * v->mem_size, in_file));
		while (i >= 0 && ++at[i] == s->n[i])
			at[i--] = 0;
		if (i < 0)
			return 0;
	}
}

static int move(const struct hd_slice *given, char *mem, int writing, struct hd_slice_fault *fault)
{
	struct hd_slice s = *given;
	struct slice_move v = { .s = &s,
				.fault = fault,
				.writing = writing,
				.size = HD_BITS(s.stored) / 8,
				.mem_size = HD_BITS(s.memory) / 8,
				.how = how(s.stored, s.memory, writing) };
	int64_t count = 1;
	int rc;

	for (int i = 0; i < s.ndim; i++)
		count *= s.n[i];
	if (!count)
		return 0;
	join_dims(&s);
	v.room = BUFFER / v.size < count ? BUFFER / v.size : count;
	v.buffer = hd_alloc((size_t)(v.room * v.size));
	rc = move_planes(&v, mem);
	free(v.buffer);
	return rc;
}

int hd_slice_write(const struct hd_slice *s, const void *data, struct hd_slice_fault *fault)
{
	return move(s, (char *)(uintptr_t)data, 1, fault); /* only read when writing */
}

int hd_range_write(const struct hd_slice *s, char *bytes, int64_t count, int64_t at, struct hd_slice_fault *fault)
{
	const struct slice_move v = { .s = s, .fault = fault, .writing = 1 };

	return transfer(&v, bytes, count, at);
}

int hd_slice_read(const struct hd_slice *s, void *data, struct hd_slice_fault *fault)
{
	return move(s, data, 0, fault);
}
