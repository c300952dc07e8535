/* SPDX-License-Identifier: Apache-2.0
 * engine/device/call.h - one call of a group: what a transport is given, and what can be said about it without making it.
 *
 * A group's calls are made in the same order by all its members.  Buffers are contiguous; the collectives work on
 * whole buffers of `count` elements.  Sums and maxima of floats are made in member order, in fp32 (fp64 for HD_DTYPE_F64).
 *
 *   kind               in                       out
 *   HD_COMM_ALL_REDUCE      count                    count (out may equal in)
 *   HD_COMM_ALL_MAX         count                    count (out may equal in)
 *   HD_COMM_REDUCE_SCATTER  n * count                count: piece `me` of the sum
 *   HD_COMM_ALL_GATHER      count                    n * count, in member order
 *   HD_COMM_ALL_TO_ALL      n * count                n * count: piece j goes to member j
 *   HD_COMM_BROADCAST       count (root only)        count (out of the root may equal in)
 *   HD_COMM_REDUCE          count                    count (root only)
 *   HD_COMM_GATHER          count                    n * count (root only)
 *   HD_COMM_SCATTER         n * count (root only)    count
 *   HD_COMM_SHIFT           count to me + index      count from me - index (cyclic)
 *   HD_COMM_PERMUTE         count to mul * me + index    count from the member whose that is (cyclic; mul is invertible)
 *   HD_COMM_RING_REDUCE_SCATTER, HD_COMM_RING_ALL_GATHER, HD_COMM_ORDERED_REDUCE_SCATTER: as those; heddle/graph.h
 *   HD_COMM_PUSH            of the first `cores` members n' * count, n' the others; index >= 0: count    of the others count: the
 *                           sum of their piece; index >= 0: of that one alone
 *   HD_COMM_PULL            of the others count; index >= 0: of that one alone    of the first n' * count; index >= 0: count
 *   HD_COMM_SEND            count to member index    -
 *   HD_COMM_RECV            -                        count from member index
 *   HD_COMM_ALL_TO_ALL_V rows of all experts      rows of this member's experts, or the other way round: struct hd_rows
 */
#ifndef HD_ENGINE_COMM_CALL_H
#define HD_ENGINE_COMM_CALL_H
#include <heddle/graph.h>
#include "engine/device/ragged.h"

enum { HD_COMM_ALL_TO_ALL_V = 50, HD_COMM_SEND = 100, HD_COMM_RECV };

#define HD_CHANNELS 2

struct hd_call {
	uint32_t kind, dtype;
	int32_t index;    /* root, shift or peer: a member index */
	uint32_t channel; /* of sends and receives, 0 or 1: a pair's messages keep their order within a channel */
	uint32_t wire;    /* of sums in a stated order: dtype of what is sent; 0: as it is */
	uint32_t fixed;   /* 1: sum exactly in member order on every transport (train.reduce = rank_order) */
	int64_t count;
	const void *in;
	void *out;
	const struct hd_rows *rows; /* HD_COMM_ALL_TO_ALL_V; lives as long as the program */
	const char *what; /* for messages: "all-reduce of grad:h.0.mlp.fc.weight"; lives as long as the program */
	int64_t mul;      /* HD_COMM_PERMUTE, 1 to n - 1 (n 1: 0) */
	int32_t cores; /* HD_COMM_PUSH, HD_COMM_PULL: how many members have gradients and read parameters, the first; 0: all */
};

const char *hd_comm_kind_name(uint32_t kind);           /* "all-reduce" */
const char *hd_call_what(const struct hd_call *c);      /* for messages */
int64_t hd_comm_size(uint32_t dtype, int64_t count);    /* bytes */
int64_t hd_call_served(const struct hd_call *c, int n); /* of a push or pull: bytes that each worker puts in, or gets */
int64_t hd_comm_in_bytes(const struct hd_call *c, int n, int me); /* of what this member puts in */
int64_t hd_comm_bytes(uint32_t kind, uint32_t dtype, int64_t count, int n, int me, int index); /* sent by member me */
int64_t hd_call_sent(const struct hd_call *c, int n, int me); /* likewise, of rows too */
/* Of a send, a receive, a shift or a permutation. */
int hd_call_to(const struct hd_call *c, int n, int me);
int hd_call_from(const struct hd_call *c, int n, int me);
/* Each member puts in n pieces, and gets one of their sum. */
static inline int hd_comm_is_split(uint32_t kind)
{
	return kind == HD_COMM_REDUCE_SCATTER || kind == HD_COMM_RING_REDUCE_SCATTER ||
	       kind == HD_COMM_ORDERED_REDUCE_SCATTER;
}

/* Of a push or pull: this member serves in it; and all that its other side has, in bytes. */
static inline int hd_call_serves(const struct hd_call *c, int me)
{
	return me >= c->cores && (c->index < 0 || me == c->index);
}
static inline int hd_comm_is_served(uint32_t kind)
{
	return kind == HD_COMM_PUSH || kind == HD_COMM_PULL;
}

/* Each member puts in one piece, and gets all. */
static inline int hd_comm_is_joined(uint32_t kind)
{
	return kind == HD_COMM_ALL_GATHER || kind == HD_COMM_RING_ALL_GATHER;
}

/* Messages between two members, also as a shift or a permutation: matched in the order they are made. */
static inline int hd_call_is_message(const struct hd_call *c)
{
	return c->kind == HD_COMM_SHIFT || c->kind == HD_COMM_PERMUTE || c->kind >= HD_COMM_SEND;
}

static inline int hd_comm_mod(int64_t a, int n)
{
	int r = (int)(a % n);

	return r < 0 ? r + n : r;
}

/* The number in 0 ... n - 1 by which `mul` gives 1 (mod n); -1: there is none. */
static inline int64_t hd_comm_inverse(int64_t mul, int64_t n)
{
	int64_t a = hd_comm_mod(mul, (int)n), b = n, x = 1, y = 0;

	while (a) { /* Euclid: a = x * mul, b = y * mul (mod n) */
		int64_t q = b / a, r = b - q * a, z = y - q * x;

		b = a, a = r;
		y = x, x = z;
	}
	return b == 1 ? hd_comm_mod(y, (int)n) : -1;
}

#endif
