/* SPDX-License-Identifier: Apache-2.0
 * Measures movements between ranks: each kind by itself, all ranks at once. Bytes are those that a rank sends, as the
 * plan counts them, so the rates of small movements include the latency.
 *
 * In a step a rank moves what it has just computed, which is in its own cache, to memory that was last used long ago.
 * So each time is that of writing and moving, minus that of writing alone, and each movement uses the next part of the
 * memory. Gathers do not write first: they mostly move parameters, which were written a step ago.
 */
#include <config.h>
#include "engine/measure/measure.h"
#include <stdlib.h>
#include <string.h>

#define LARGEST ((int64_t)16 << 20) /* bytes of the largest movement */
#define EACH 0.06                   /* seconds that each size is measured for, about */

static const uint32_t kinds[] = { HD_COMM_ALL_REDUCE, HD_COMM_REDUCE_SCATTER, HD_COMM_ALL_GATHER, HD_COMM_ALL_TO_ALL,
				  HD_COMM_SHIFT };

/* Returns the seconds of one movement, or 0 if it failed. */
static double timed(struct hd_communicator *c, const struct hd_call *call, int64_t bytes, int times, int only_write)
{
	int64_t parts = LARGEST / bytes, written;
	struct hd_request t;
	double begin;

	written = call->kind == HD_COMM_ALL_GATHER
			  ? 0
			  : hd_comm_in_bytes(call, hd_communicator_n(c), hd_communicator_me(c));
	hd_comm_barrier();
	begin = hd_seconds();
	for (int k = 0; k < times; k++) {
		int64_t at = k % parts * (bytes / 4);
		struct hd_call part = *call;

		part.in = (const float *)call->in + at;
		part.out = (float *)call->out + at;
		memset((void *)(uintptr_t)part.in, k & 1, (size_t)written);
		if (!only_write && (hd_comm_start(c, &part, &t) < 0 || hd_comm_wait(&t) < 0))
			return 0;
	}
	return hd_comm_max((hd_seconds() - begin) / times);
}

static double moved(struct hd_communicator *c, const struct hd_call *call, int64_t bytes, int times)
{
	double both = timed(c, call, bytes, times, 0), writing = timed(c, call, bytes, times, 1);

	return both > writing ? both - writing : 0;
}

/* Returns a call whose larger side has so many bytes. */
static struct hd_call call_of(uint32_t kind, int64_t bytes, int n, float *memory)
{
	struct hd_call c = { .kind = kind, .dtype = HD_DTYPE_F32, .count = bytes / 4, .in = memory };

	if (hd_comm_is_reduce_scatter(kind) || hd_comm_is_all_gather(kind) || kind == HD_COMM_ALL_TO_ALL)
		c.count /= n;
	c.index = kind == HD_COMM_SHIFT;
	c.out = kind == HD_COMM_ALL_REDUCE ? memory : memory + LARGEST / 4;
	c.what = "a movement to be measured";
	return c;
}

static void measure(struct hd_communicator *c, uint32_t kind, float *memory, int64_t largest,
		    struct hd_rate_points *out)
{
	int n = hd_communicator_n(c), me = hd_communicator_me(c);

	for (int64_t bytes = 1024; bytes <= largest; bytes *= 4) {
		struct hd_call call = call_of(kind, bytes, n, memory);
		double sent = hd_comm_max((double)hd_call_sent(&call, n, me)), once = timed(c, &call, bytes, 3, 0),
		       seconds;
		int times = once > 0 ? (int)(EACH / once) : 0;

		times = times < 5 ? 5 : times > 500 ? 500 : times;
		seconds = moved(c, &call, bytes, times);
		if (sent > 0 && seconds > 0)
			hd_rates_add(out, (struct hd_rate_point){ .at = sent, .rate = sent / seconds });
	}
}

static int *ranks_of(const struct hd_world *w, int between_hosts, int *n)
{
	int each = w->size / w->hosts, *ranks = hd_alloc((size_t)w->size * sizeof(*ranks));

	*n = between_hosts ? w->hosts : each;
	for (int i = 0; i < *n; i++)
		ranks[i] = between_hosts ? w->rank % each + i * each : w->rank / each * each + i;
	return ranks;
}

static struct hd_communicator *group_of(const struct hd_world *w, int between_hosts)
{
	int n, *ranks = ranks_of(w, between_hosts, &n);
	struct hd_communicator *c = hd_communicator_create(ranks, n, between_hosts ? "hosts" : "host");

	hd_communicator_messages(c, NULL, 0);
	free(ranks);
	return c;
}

int hd_measure_links(struct hd_measuring *m, struct hd_rate_points *network, struct hd_err *err)
{
	const struct hd_world *w = &m->j->world;
	int64_t largest = m->quick ? 65536 : LARGEST;
	struct hd_communicator *c;
	float *memory;

	if (w->size == 1 || w->size % w->hosts) {
		if (w->size > 1)
			hd_log(HD_LOG_WARN, "links are not measured: %d ranks are not evenly spread over %d hosts",
			       w->size, w->hosts);
		return HD_OK;
	}
	memory = hd_comm_arena((size_t)(2 * LARGEST), err);
	HD_TRY(hd_comm_agree(err));
	memset(memory, 0, (size_t)(2 * LARGEST));
	if (w->size > w->hosts) {
		c = group_of(w, 0);
		for (size_t i = 0; i < HD_LEN(kinds); i++)
			measure(c, kinds[i], memory, largest,
				&hd_rates_movement(m->rates, hd_comm_kind_name(kinds[i]))->of[HD_RATE_FP32]);
	}
	if (w->hosts > 1)
		measure(group_of(w, 1), HD_COMM_ALL_REDUCE, memory, largest, network);
	return hd_comm_agree(err);
}
