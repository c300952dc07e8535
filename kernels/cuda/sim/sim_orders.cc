/* SPDX-License-Identifier: Apache-2.0
 * Repeats a launch in other orders.  Each order has a seed and begins with the memory that the launch found.
 *
 * Every word that an order writes must get the same bits as in the first order.  No order may write a word that the
 * first does not.
 *
 * Blocks of one launch are not ordered (sim_watch.cc), so some of them can run without the others.  If a launch is
 * long, later orders run only as many blocks as `most` switches of fibers allow.  They run at least one, and the
 * seed selects them.
 */
#include "kernels/cuda/sim/sim_inside.h"
#include <stdio.h>

struct noted {
	size_t word;
	uint32_t was, is;        /* before the launch; after the first order */
	uint8_t written, atomic; /* bytes that the present order has written; whether atomics did */
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

/* whole: all blocks have run.  Otherwise a counter to which several blocks add has no definite value. */
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
