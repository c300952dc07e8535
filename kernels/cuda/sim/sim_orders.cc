/* SPDX-License-Identifier: Apache-2.0
 * A launch once more in other orders: each has a seed and begins with the memory that the launch found.  Every word that it writes
 * must get the bits of the first order, and no order may write a word that the first does not.
 *
 * Blocks follow nothing of each other (sim_watch.cc), so a part of them can run alone.  Where a launch is long, an order after the
 * first takes as many blocks as `most` switches of fibers allow, at least one, drawn by its seed.
 */
#include "kernels/cuda/sim/sim_inside.h"
#include <stdio.h>

struct noted {
	size_t word;
	uint32_t was, is;        /* before the launch; after its first order */
	uint8_t written, atomic; /* bytes, in the order that runs */
};
static struct noted *noted;
static size_t nnoted, room_noted;
static int orders = 1, now;
static uint64_t most = UINT64_MAX;
int sim_noting;

extern "C" __attribute__((visibility("default"))) void hd_sim_orders(int n, uint64_t switches);
extern "C" void hd_sim_orders(int n, uint64_t switches)
{
	orders = n;
	most = switches;
}

static uint32_t *memory_of(size_t word)
{
	return (uint32_t *)(void *)(sim_window + word * 4);
}

void sim_note(size_t word, uint32_t *place, uint8_t bytes, int atomic)
{
	if (*place >= nnoted || noted[*place].word != word) {
		if (now)
			sim_fail("order %d writes %p, and order 0 does not", now, (void *)memory_of(word));
		if (nnoted == room_noted) {
			room_noted = 2 * room_noted + 1024;
			noted = (struct noted *)realloc(noted, room_noted * sizeof(*noted));
		}
		*place = (uint32_t)nnoted;
		noted[nnoted++] = { word, *memory_of(word), 0, 0, 0 };
	}
	noted[*place].written |= bytes;
	noted[*place].atomic |= (uint8_t)atomic;
}

static uint32_t mask_of(uint8_t bytes)
{
	uint32_t mask = 0;

	for (int i = 0; i < 4; i++)
		mask |= bytes >> i & 1 ? 255u << 8 * i : 0;
	return mask;
}

/* whole: all blocks have run; else a counter that several of them add to has no number of its own. */
static void compare(int whole)
{
	for (size_t i = 0; i < nnoted; i++) {
		const struct noted *n = &noted[i];
		uint32_t mask = n->atomic && !whole ? 0 : mask_of(n->written), is = *memory_of(n->word);

		if ((is ^ n->is) & mask)
			sim_fail("%p is %08x in order %d and %08x in order 0", (void *)memory_of(n->word), is, now,
				 n->is);
	}
}

static void one_more(const struct hd_sim_work *w, uint64_t blocks, uint64_t all)
{
	for (size_t i = 0; i < nnoted; i++) {
		*memory_of(noted[i].word) = noted[i].was;
		noted[i].written = noted[i].atomic = 0;
	}
	sim_blocks(w, blocks);
	compare(blocks == all);
}

void sim_launch(cudaStream_t s, const struct hd_sim_work *w)
{
	uint64_t all = (uint64_t)w->blocks.x * w->blocks.y * w->blocks.z, effort = sim_effort, after, part = all;

	sim_noting = orders > 1;
	nnoted = 0;
	now = 0;
	hd_sim_open_memory();
	sim_blocks(w, all);
	effort = sim_effort - effort;
	if (effort > most)
		part = (uint64_t)((double)all * (double)most / (double)effort);
	for (size_t i = 0; i < nnoted; i++)
		noted[i].is = *memory_of(noted[i].word);
	after = sim_order;
	for (now = 1; now < orders; now++) {
		sim_begin_work(s);
		sim_seed((uint64_t)now);
		one_more(w, part ? part : 1, all);
	}
	for (size_t i = 0; i < nnoted && orders > 1; i++)
		*memory_of(noted[i].word) = noted[i].is;
	sim_order = after;
	hd_sim_close_memory();
	sim_noting = now = 0;
}
