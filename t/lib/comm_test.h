/* SPDX-License-Identifier: Apache-2.0
 * t/lib/comm_test.h - tests every kind of movement with every type, on small integers.  Their sums are exact in any
 * order and type, so all transports must give the same bits.  Each rank of a test runs these functions, which print
 * errors on stderr.
 *
 * Ranks place their buffers at different offsets, with canaries around them.
 */
#ifndef HD_COMM_TEST_H
#define HD_COMM_TEST_H
#include "engine/base/half.h"
#include "engine/comm/comm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WRONG(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), wrong++)
#define GUARD 64

static int wrong;
static char *arena;
static int64_t arena_used, arena_size;
static struct hd_world world;
static struct hd_err comm_err;

static const uint32_t dtypes[] = { HD_DTYPE_F32,  HD_DTYPE_F64, HD_DTYPE_I32, HD_DTYPE_I64,
				   HD_DTYPE_BF16, HD_DTYPE_F16, HD_DTYPE_U8 };

static void set_value(void *p, uint32_t dtype, int64_t i, int v) /* v: 0 to 127, exact in all types */
{
	float f = (float)v;
	uint32_t u;

	memcpy(&u, &f, 4);
	switch (dtype) {
	case HD_DTYPE_F32: ((float *)p)[i] = f; break;
	case HD_DTYPE_F64: ((double *)p)[i] = v; break;
	case HD_DTYPE_I32: ((int32_t *)p)[i] = v; break;
	case HD_DTYPE_I64: ((int64_t *)p)[i] = v; break;
	case HD_DTYPE_BF16: ((uint16_t *)p)[i] = (uint16_t)(u >> 16); break;
	case HD_DTYPE_F16: ((uint16_t *)p)[i] = v ? (uint16_t)((u >> 13) - (112 << 10)) : 0; break;
	default: ((uint8_t *)p)[i] = (uint8_t)v;
	}
}

static void *place(int64_t bytes, int where) /* where: 1 means outside the arena */
{
	char *p;

	bytes += 2 * GUARD;
	if (where || arena_used + bytes > arena_size) {
		p = malloc((size_t)bytes);
	} else {
		p = arena + arena_used;
		arena_used += (bytes + 63) / 64 * 64;
	}
	memset(p, 0x5a, (size_t)bytes);
	return p + GUARD;
}

static int guards_hold(const void *buf, int64_t bytes)
{
	const char *p = buf;

	for (int i = 1; i <= GUARD; i++)
		if (p[-i] != 0x5a || p[bytes + i - 1] != 0x5a)
			return 0;
	return 1;
}

static int value_of(int rank, int64_t i) /* the sum over up to 4 ranks is below 2^7 */
{
	return (int)((i * 7 + rank * 5 + i / 13) % 31);
}

/* Returns the expected value of element i of member me's output, or -1 if it is not defined. */
static int wanted(const struct hd_call *c, const int *ranks, int n, int me, int64_t i)
{
	int64_t count = c->count, piece = count ? i / count : 0, in = count ? i % count : 0;
	int sum = 0, max = 0, from = ((me - c->index) % n + n) % n;

	for (int j = 0; j < n; j++) {
		int mine = c->kind == HD_COMM_RING_REDUCE_SCATTER ? (me + 1) % n : me;
		int v = value_of(ranks[j], hd_comm_is_reduce_scatter(c->kind) ? mine * count + i : i);

		sum += v;
		max = v > max ? v : max;
	}
	switch (c->kind) {
	case HD_COMM_ALL_REDUCE: return sum;
	case HD_COMM_ALL_MAX: return max;
	case HD_COMM_REDUCE_SCATTER:
	case HD_COMM_RING_REDUCE_SCATTER:
	case HD_COMM_ORDERED_REDUCE_SCATTER: return sum;
	case HD_COMM_RING_ALL_GATHER: return value_of(ranks[(piece + n - 1) % n], in);
	case HD_COMM_REDUCE: return me == c->index ? sum : -1;
	case HD_COMM_ALL_GATHER: return value_of(ranks[piece], in);
	case HD_COMM_GATHER: return me == c->index ? value_of(ranks[piece], in) : -1;
	case HD_COMM_ALL_TO_ALL: return value_of(ranks[piece], me * count + in);
	case HD_COMM_BROADCAST: return value_of(ranks[c->index], i);
	case HD_COMM_SCATTER: return value_of(ranks[c->index], me * count + i);
	case HD_COMM_SHIFT: return value_of(ranks[from], i);
	case HD_COMM_PERMUTE:
		for (int j = 0; j < n; j++)
			if ((j * (int)c->mul + c->index) % n == me)
				return value_of(ranks[j], i);
		return -1;
	default: return -1;
	}
}

static void run_call(struct hd_communicator *m, const struct hd_call *c)
{
	struct hd_request t;
	int rc = hd_comm_start(m, c, &t);

	if (rc)
		WRONG("start of kind %u dtype %x gives %d", c->kind, c->dtype, rc);
	else if ((rc = hd_comm_wait(&t)))
		WRONG("wait of kind %u gives %d", c->kind, rc);
}

static void check_kind(struct hd_communicator *m, const int *ranks, uint32_t kind, uint32_t dtype, int64_t count,
		       int index, int in_place, int where)
{
	int n = hd_communicator_n(m), me = hd_communicator_me(m), size = HD_BITS(dtype) / 8;
	int wide_in = hd_comm_is_reduce_scatter(kind) || kind == HD_COMM_ALL_TO_ALL || kind == HD_COMM_SCATTER;
	int wide_out = hd_comm_is_all_gather(kind) || kind == HD_COMM_ALL_TO_ALL || kind == HD_COMM_GATHER;
	int64_t nin = wide_in ? n * count : count, nout = wide_out ? n * count : count;
	struct hd_call c = {
		.kind = kind, .dtype = dtype, .index = index, .count = count, .fixed = (uint32_t)(count & 1)
	};

	if (kind == HD_COMM_PERMUTE) /* mul is n - 1, 1 or 2, if that has an inverse: some members keep their part */
		c.mul = n == 1 ? 0 : n % 2 && count % 3 == 0 ? 2 : count % 2 ? n - 1 : 1;
	char *in, *out, *want;

	arena_used = (int64_t)world.rank * 192; /* offsets differ between ranks */
	in = place(nin * size, where == 1);
	out = in_place ? in : place(nout * size, where);
	for (int64_t i = 0; i < nin; i++)
		set_value(in, dtype, i, value_of(world.rank, i));
	c.in = in;
	c.out = out;
	run_call(m, &c);
	want = malloc((size_t)size);
	for (int64_t i = 0; i < nout; i++) {
		int v = wanted(&c, ranks, n, me, i);

		set_value(want, dtype, 0, v < 0 ? 0 : v);
		if (v >= 0 && memcmp(want, out + i * size, (size_t)size)) {
			WRONG("rank %d: kind %u dtype %x count %lld index %d in place %d where %d: "
			      "element %lld is wrong",
			      world.rank, kind, dtype, (long long)count, index, in_place, where, (long long)i);
			break;
		}
	}
	if (!guards_hold(out, nout * size) || (!in_place && !guards_hold(in, nin * size)))
		WRONG("rank %d: kind %u dtype %x count %lld wrote beyond its buffer", world.rank, kind, dtype,
		      (long long)count);
	free(want);
}

/* where: 0 both buffers in the arena, 1 both outside, 2 only the output outside. */
static void check_collectives(struct hd_communicator *m, const int *ranks, int where)
{
	static const int64_t counts[] = { 0, 1, 3, 17, 1000, 1024, 5001, 100003 };
	int n = hd_communicator_n(m);

	for (uint32_t kind = HD_COMM_ALL_REDUCE; kind <= HD_COMM_ORDERED_REDUCE_SCATTER; kind++)
		for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++)
			for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
				int turn = (int)(k + d);
				int index = kind == HD_COMM_SHIFT ? turn % 7 - 3 : turn % n;
				int may = kind == HD_COMM_ALL_REDUCE || kind == HD_COMM_ALL_MAX;

				if (counts[k] > 10000 && (d + kind) % 3)
					continue; /* to save time, large counts with only a third of the types */
				check_kind(m, ranks, kind, dtypes[d], counts[k], index, may && turn % 2, where);
			}
}

/* -- sums in a defined order, compared bit by bit ------------------------------------------------- */
static float term_of(int rank, int64_t i) /* sums of these are not exact */
{
	uint64_t h = ((uint64_t)rank * 1000003 + (uint64_t)i + 1) * 0x9e3779b97f4a7c15u;

	h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
	return ((float)(h >> 40) - 8388608.0f) * (h & 1 ? 0x1p-30f : 0x1p-24f);
}

static float sent_as(float x, uint32_t wire)
{
	return wire == HD_DTYPE_BF16  ? hd_of_bf16(hd_bf16_of(x))
	       : wire == HD_DTYPE_F16 ? hd_of_f16(hd_f16_of(x * 1024)) / 1024
				      : x;
}

static float sum_in_order(const struct hd_call *c, const int *ranks, int n, int me, int64_t i)
{
	int ring = c->kind == HD_COMM_RING_REDUCE_SCATTER, piece = ring ? (me + 1) % n : me;
	float sum = 0;

	for (int k = 0; k < n; k++) {
		int from = ring ? (piece + k) % n : k;
		float x = term_of(ranks[from], piece * c->count + i);

		if (ring)
			sum = k ? x + sent_as(sum, c->wire) : x;
		else if (k)
			sum += from == me ? x : sent_as(x, c->wire);
		else
			sum = from == me ? x : sent_as(x, c->wire);
	}
	return sum;
}

static void check_order(struct hd_communicator *m, const int *ranks, uint32_t kind, uint32_t wire, int64_t count)
{
	int n = hd_communicator_n(m), me = hd_communicator_me(m);
	struct hd_call c = { .kind = kind, .dtype = HD_DTYPE_F32, .wire = wire, .count = count };
	float *in, *out;

	arena_used = (int64_t)world.rank * 192;
	in = place(n * count * 4, 0);
	out = place(count * 4, 0);
	for (int64_t i = 0; i < n * count; i++)
		in[i] = term_of(world.rank, i);
	c.in = in, c.out = out;
	run_call(m, &c);
	for (int64_t i = 0; i < count; i++) {
		float want = sum_in_order(&c, ranks, n, me, i);

		if (!memcmp(&want, &out[i], 4))
			continue;
		WRONG("rank %d: kind %u wire %x of %d members: element %lld of %lld is %a, not %a", world.rank, kind,
		      wire, n, (long long)i, (long long)count, (double)out[i], (double)want);
		return;
	}
}

static void check_orders(struct hd_communicator *m, const int *ranks)
{
	/* the largest first, also on the wire, so that no kept buffer is large enough yet */
	static const uint32_t wires[] = { HD_DTYPE_BF16, HD_DTYPE_F16, 0 };
	static const int64_t counts[] = { 2500, 17, 1 };

	for (int w = 0; w < 3; w++)
		for (int k = 0; k < 3; k++) {
			check_order(m, ranks, HD_COMM_RING_REDUCE_SCATTER, wires[w], counts[k]);
			check_order(m, ranks, HD_COMM_ORDERED_REDUCE_SCATTER, wires[w], counts[k]);
		}
}

/* Several messages under way in both directions, received in the order in which they were sent and waited for in a
 * different one. */
static void check_messages(struct hd_communicator *m, int many, int64_t count, int where)
{
	int n = hd_communicator_n(m), me = hd_communicator_me(m), peer = me ^ 1;
	struct hd_request *s = calloc((size_t)many, sizeof(*s)), *r = calloc((size_t)many, sizeof(*r));
	int32_t *in, *out;

	arena_used = (int64_t)world.rank * 192;
	in = place(many * count * 4, where);
	out = place(many * count * 4, where);
	for (int64_t i = 0; i < many * count; i++)
		in[i] = (int32_t)(i * 3 + me);
	for (int k = 0; k < many && peer < n; k++) {
		struct hd_call c = { .dtype = HD_DTYPE_I32,
				     .index = peer,
				     .count = count,
				     .in = in + k * count,
				     .out = out + k * count };

		c.kind = HD_COMM_RECV;
		hd_comm_start(m, &c, &r[k]);
		c.kind = HD_COMM_SEND;
		hd_comm_start(m, &c, &s[k]);
	}
	for (int k = 0; k < many && peer < n; k++) /* sends first, so that each rank waits for the other's receive */
		hd_comm_wait(&s[k]);
	for (int k = many; k-- > 0 && peer < n;)
		hd_comm_wait(&r[k]);
	for (int64_t i = 0; i < many * count && peer < n; i++)
		if (out[i] != (int32_t)(i * 3 + peer)) {
			WRONG("rank %d: of %d messages of %lld, element %lld is wrong", world.rank, many,
			      (long long)count, (long long)i);
			break;
		}
	free(s);
	free(r);
}

/* -- rows ---------------------------------------------------------------------------------------- */
#define EXPERTS 3 /* per member */
#define SAMPLES 2
#define WIDTH 5
#define MOST 4 /* rows per expert and sample; many have none */

static int rows_of(int rank, int expert, int sample, int turn)
{
	int x = rank * 7 + expert * 5 + sample * 3 + turn;

	return expert % 4 == turn % 4 ? 0 : x * x % (MOST + 1) * (x % 3 != 0);
}

/* Sends rows to the experts and back, and compares them with what each member must receive. */
static void check_rows(struct hd_communicator *m, const int *ranks, int turn, int where)
{
	int n = hd_communicator_n(m), me = hd_communicator_me(m), at = 0, all = n * EXPERTS * SAMPLES;
	int64_t most = all * MOST * WIDTH;
	int32_t *mine, *theirs, *in, *out, *back, *want = calloc((size_t)most, 4);
	struct hd_rows r = { .experts = EXPERTS, .samples = SAMPLES, .bytes = WIDTH * 4 };
	struct hd_call c = {
		.kind = HD_COMM_ALL_TO_ALL_V, .dtype = HD_DTYPE_I32, .index = 1, .count = most, .rows = &r
	};

	arena_used = (int64_t)world.rank * 192;
	in = place(most * 4, where == 1);
	out = place(most * 4, where);
	back = place(most * 4, where);
	mine = place(all * 4, where);
	theirs = place(all * 4, where);
	for (int e = 0; e < n * EXPERTS; e++)
		for (int s = 0; s < SAMPLES; s++) {
			mine[e * SAMPLES + s] = rows_of(world.rank, e, s, turn);
			for (int i = 0; i < mine[e * SAMPLES + s] * WIDTH; i++)
				in[at++] = ((world.rank * 100 + e) * 10 + s) * 100 + i;
		}
	at = 0;
	for (int e = 0; e < EXPERTS; e++)
		for (int j = 0; j < n; j++)
			for (int s = 0; s < SAMPLES; s++) {
				int rows = rows_of(ranks[j], me * EXPERTS + e, s, turn);

				theirs[(e * n + j) * SAMPLES + s] = rows;
				for (int i = 0; i < rows * WIDTH; i++)
					want[at++] = ((ranks[j] * 100 + me * EXPERTS + e) * 10 + s) * 100 + i;
			}
	hd_comm_rows_reserve(m, EXPERTS);
	r.have = mine, r.need = theirs, c.in = in, c.out = out;
	run_call(m, &c);
	if (memcmp(out, want, (size_t)at * 4) || !guards_hold(out, most * 4))
		WRONG("rank %d: rows of turn %d, where %d, are not those of its experts", world.rank, turn, where);
	r.have = theirs, r.need = mine, c.in = out, c.out = back, c.index = 0;
	run_call(m, &c);
	at = 0;
	for (int i = 0; i < all; i++)
		at += mine[i] * WIDTH;
	if (memcmp(back, in, (size_t)at * 4) || !guards_hold(back, most * 4))
		WRONG("rank %d: rows of turn %d, where %d, do not come back", world.rank, turn, where);
	free(want);
}

/* Two members send each other many messages before either receives one, and hundreds of other calls end while a
 * receive is under way. Schedules count on both: they would stop for ever. */
static void check_outstanding(struct hd_communicator *m)
{
	enum { MESSAGES = 70, CALLS = 300 }; /* mailboxes: 64; calls under way, once: 256 */
	struct hd_request *sent = calloc(MESSAGES, sizeof(*sent)), got;
	int me = hd_communicator_me(m), *in, *out, one = 1, sum = 0;
	struct hd_call c = { .dtype = HD_DTYPE_I32, .index = 1 - me, .count = 1 }, all = c;

	arena_used = (int64_t)world.rank * 192;
	in = place(MESSAGES * 4, 0);
	out = place(MESSAGES * 4, 0);
	for (int i = 0; i < MESSAGES && me < 2; i++) {
		in[i] = 1000 * me + i;
		c.kind = HD_COMM_SEND, c.in = &in[i], c.out = NULL;
		hd_comm_start(m, &c, &sent[i]);
	}
	for (int i = 0; i < MESSAGES && me < 2; i++) {
		c.kind = HD_COMM_RECV, c.in = NULL, c.out = &out[i];
		run_call(m, &c);
		if (out[i] != 1000 * (1 - me) + i)
			WRONG("rank %d: message %d of many is %d", world.rank, i, out[i]);
	}
	for (int i = 0; i < MESSAGES && me < 2; i++)
		hd_comm_wait(&sent[i]);
	if (me == 0)
		hd_comm_start(m, &c, &got);
	all.kind = HD_COMM_ALL_REDUCE, all.index = 0, all.in = &one, all.out = &sum;
	for (int i = 0; i < CALLS; i++)
		run_call(m, &all);
	c.kind = HD_COMM_SEND, c.in = &in[7], c.out = NULL;
	if (me == 1)
		run_call(m, &c);
	if (me == 0 && (hd_comm_wait(&got) || out[MESSAGES - 1] != 1007))
		WRONG("a receive that was under way for long got %d", out[MESSAGES - 1]);
	free(sent);
}

static void check_group(struct hd_communicator *m, const int *ranks)
{
	for (int turn = 0; turn < 5 && hd_communicator_n(m) > 1; turn++)
		for (int where = 0; where < 3; where++)
			check_rows(m, ranks, turn, where);

	for (int where = 0; where < 3; where++)
		check_collectives(m, ranks, where);
	check_orders(m, ranks);
	if (hd_communicator_n(m) > 1)
		for (int where = 0; where < 2; where++) {
			check_messages(m, 1, 10, where);
			check_messages(m, 40, 3000, where);
			check_messages(m, 150, 7, where); /* more than the ring buffer holds */
		}
}

static void check_control(void)
{
	char *text, **texts, own[40];
	struct hd_err e = { 0 };
	int x = world.rank == world.size - 1 ? 77 : 0;

	hd_comm_bcast(&x, sizeof(x), world.size - 1);
	if (x != 77)
		WRONG("broadcast gives %d", x);
	text = hd_comm_bcast_text(world.rank == 0 ? "from the first" : "mine", 0);
	if (strcmp(text, "from the first"))
		WRONG("broadcast of text gives %s", text);
	snprintf(own, sizeof(own), "I am %d", world.rank);
	texts = hd_comm_gather_text(own);
	if ((texts != NULL) != (world.rank == 0))
		WRONG("rank %d: gathered texts where they should not be", world.rank);
	for (int i = 0; texts && i < world.size; i++)
		if (atoi(texts[i] + 5) != i)
			WRONG("text %d is %s", i, texts[i]);
	if (hd_comm_max(world.rank) != world.size - 1 || hd_comm_sum(1) != world.size)
		WRONG("maximum or sum of doubles");
	if (hd_comm_agree(&e) != 0)
		WRONG("agreement on no error");
	if (world.rank == world.size - 1)
		hd_err_set(&e, HD_EDIVIDE, "rank %d says so", world.rank);
	if (hd_comm_agree(&e) != HD_EDIVIDE || atoi(e.text + 5) != world.size - 1)
		WRONG("agreement gives %d %s", e.code, e.text);
	hd_comm_barrier();
}

static int open_all(int64_t bytes)
{
	if (hd_comm_open(&world, &comm_err) || !(arena = hd_comm_arena((size_t)bytes, &comm_err))) {
		WRONG("open: %s", comm_err.text);
		return 0;
	}
	arena_size = bytes;
	return 1;
}

/* HD_TEST_COMM disables shared memory, in either of its values; a test of the network that still used it would test
 * nothing. */
static __attribute__((unused)) void check_transport(const struct hd_communicator *m)
{
	const char *want = getenv("HD_TEST_COMM") ? "network" : "shared memory";

	if (hd_communicator_n(m) > 1 && strcmp(hd_communicator_transport(m), want))
		WRONG("group %s moves by %s, not by %s", hd_communicator_name(m), hd_communicator_transport(m), want);
}

/* Tests only sums in a defined order, with more members than check_everything has. */
static __attribute__((unused)) int check_orders_alone(void)
{
	struct hd_communicator *m;
	int all[64];

	if (!open_all(16 << 20))
		return 1;
	for (int i = 0; i < world.size; i++)
		all[i] = i;
	m = hd_communicator_create(all, world.size, "all");
	check_transport(m);
	check_orders(m, all);
	hd_comm_close();
	return wrong != 0;
}

/* Runs a rank's complete test: in the world, and in groups of every other rank. */
static __attribute__((unused)) int check_everything(void)
{
	int all[64], some[64], n = 0;
	struct hd_communicator *m, *half;

	if (!open_all(16 << 20))
		return 1;
	for (int i = 0; i < world.size; i++) {
		all[i] = i;
		if (i % 2 == world.rank % 2)
			some[n++] = i;
	}
	m = hd_communicator_create(all, world.size, "all");
	half = hd_communicator_create(some, n, "half");
	check_transport(m);
	check_transport(half);
	check_control();
	check_group(m, all);
	check_group(half, some);
	check_group(m, all);
	if (world.size > 1)
		check_outstanding(m);
	check_control();
	hd_comm_close();
	return wrong != 0;
}

#endif
