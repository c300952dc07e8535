/* SPDX-License-Identifier: Apache-2.0
 * How the plugin pp distributes blocks over stages.  If the heaviest stage were heavier than necessary, the pipeline
 * would be as slow as that stage.  Its split is compared with all possible ones, for random costs; some blocks cost
 * nothing (an embedding), and one outweighs all others (a head).
 */
#include <config.h>
#include "plugins/pp/split.c" /* with a host of its own, below */
#include "t/lib/tap.h"
#include <stdlib.h>

#define N 10

static struct hd_block blocks[N];
static int nblocks, at[N];
static void *heap[8];
static int nheap;

static const struct hd_block *next(struct hd_plan *p, const struct hd_block *b)
{
	(void)p;
	if (!b)
		return blocks;
	return b + 1 < blocks + nblocks ? b + 1 : NULL;
}

static int stage(struct hd_plan *p, const struct hd_stage_args *x)
{
	(void)p;
	at[x->block - blocks] = (int)(x->chunk * x->axis->n + x->coord);
	return HD_OK;
}

static int status(struct hd_plan *p)
{
	(void)p;
	return HD_OK;
}

static void *room(struct hd_plan *p, size_t bytes)
{
	(void)p;
	return heap[nheap++] = calloc(1, bytes);
}

static const char *asked = "balanced";

static const char *text(struct hd_plan *p, const char *key)
{
	(void)p, (void)key;
	return asked;
}

static int fail(struct hd_plan *p, int32_t code, const char *fmt, ...)
{
	(void)p, (void)fmt;
	return code;
}

static const struct hd_host host = { .size = sizeof(host),
				     .block_next = next,
				     .stage = stage,
				     .status = status,
				     .alloc = room,
				     .opt_str = text,
				     .fail = fail };

/* Returns the heaviest piece of a split, and its sum of squares; bit i of `begins` tells whether a piece begins at
 * block i. */
static double heaviest(unsigned begins, double *squares)
{
	double top = 0, sum = 0;

	*squares = 0;
	for (int i = 0; i <= nblocks; i++) {
		if (i == nblocks || (i && begins >> i & 1)) {
			top = sum > top ? sum : top;
			*squares += sum * sum;
			sum = 0;
		}
		if (i < nblocks)
			sum += blocks[i].flops;
	}
	return top;
}

static int count_bits(unsigned x)
{
	int n = 0;

	for (; x; x &= x - 1)
		n++;
	return n;
}

/* Returns 1 if the pieces are contiguous, none is empty, and no split is better. */
static int is_best(int pieces)
{
	double best = INFINITY, best_squares = INFINITY, squares, top;
	unsigned begins = 0;

	for (int i = 0; i < nblocks; i++) {
		if (at[i] != (i ? at[i - 1] : 0) && at[i] != at[i ? i - 1 : 0] + 1)
			return 0;
		begins |= (unsigned)(i && at[i] != at[i - 1]) << i;
	}
	if (at[0] != 0 || at[nblocks - 1] != pieces - 1)
		return 0;
	for (unsigned b = 0; b < 1u << nblocks; b += 2)
		if (count_bits(b) == pieces - 1) {
			top = heaviest(b, &squares);
			if (top < best || (top == best && squares < best_squares))
				best = top, best_squares = squares;
		}
	return heaviest(begins, &squares) == best && squares == best_squares;
}

/* Distributes an embedding, four layers and a head by the list: the embedding belongs to the first piece, the head to
 * the last. Returns the pieces of all six blocks, or "refused". */
static const char *listed(const char *list, int pieces)
{
	static const char *const names[] = { "embed", "layer", "layer", "layer", "layer", "head" };
	static char got[20];
	struct hd_axis axis = { .size = sizeof(axis), .n = pieces };
	struct hd_strategy s = { .h = &host, .pp = &axis, .chunks = 1 };
	int rc;

	nblocks = (int)(sizeof(names) / sizeof(*names));
	for (int i = 0; i < nblocks; i++)
		blocks[i] = (struct hd_block){ .size = sizeof(blocks[i]), .name = names[i] };
	asked = list;
	rc = pp_rules(&s, NULL);
	asked = "balanced";
	while (nheap)
		free(heap[--nheap]);
	for (int i = 0; i < nblocks; i++)
		got[i] = (char)('0' + at[i]);
	got[nblocks] = 0;
	return rc < 0 ? "refused" : got;
}

static void lists(void)
{
	is_str(listed("1,2,1", 3), "001122",
	       "1,2,1 puts the embedding before the first layer and the head after the last");
	is_str(listed("0,3,1", 3), "011122", "a first piece without a layer holds only the embedding");
	is_str(listed("1,3,0", 3), "001112", "a last piece without a layer holds only the head");
	is_str(listed("1,2,2", 3), "refused", "a list with a layer too many is refused");
	is_str(listed("1,1,1", 3), "refused", "a list with a layer too few is refused");
	is_str(listed("9,0", 2), "refused", "a list with more layers in a piece than the model has is refused");
	is_str(listed("2,2", 3), "refused", "a list with a piece too few is refused");
	is_str(listed("2,0,2", 3), "refused", "an empty piece between others is refused");
}

int main(void)
{
	int tried = 0, wrong = 0;
	unsigned x = 1;

	for (int k = 0; k < 3000; k++) {
		struct hd_axis axis = { .size = sizeof(axis) };
		struct hd_strategy s = { .h = &host, .pp = &axis, .chunks = 1 };

		nblocks = 2 + (int)((x = x * 1103515245u + 12345u) >> 16) % (N - 1);
		s.chunks = 1 + (int)(x >> 20) % 2;
		axis.n = 1 + (int)(x >> 24) % 5;
		for (int i = 0; i < nblocks; i++) {
			x = x * 1103515245u + 12345u;
			blocks[i] =
				(struct hd_block){ .size = sizeof(blocks[i]), .name = "layer", .flops = (x >> 16) % 7 };
		}
		if (x >> 28 & 1)
			blocks[nblocks - 1].flops = 50;
		if (nblocks < axis.n * s.chunks)
			continue;
		pp_rules(&s, NULL);
		tried++;
		if (!is_best((int)(axis.n * s.chunks))) {
			if (!wrong++)
				for (int i = 0; i < nblocks; i++)
					note("block of %g in piece %d", blocks[i].flops, at[i]);
		}
		while (nheap)
			free(heap[--nheap]);
	}
	ok(tried > 1500 && !wrong, "%d models are split as evenly as possible (%d are not)", tried, wrong);
	lists();
	return done();
}
