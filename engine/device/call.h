/* SPDX-License-Identifier: Apache-2.0
 * engine/device/call.h - one call of a group: the arguments of a transport, and what follows from them
 * without executing it.
 *
 * All members of a group issue its calls in the same order. Buffers are contiguous, and collectives use all of their
 * `count` elements. Sums and maxima of floats are computed in member order, in fp32 (fp64 for HD_DTYPE_F64).
 *
 *   kind                    in                           out
 *   HD_COMM_ALL_REDUCE      count                        count (out may equal in)
 *   HD_COMM_ALL_MAX         count                        count (out may equal in)
 *   HD_COMM_REDUCE_SCATTER  n * count                    count: piece `me` of the sum
 *   HD_COMM_ALL_GATHER      count                        n * count, in member order
 *   HD_COMM_ALL_TO_ALL      n * count                    n * count: piece j goes to member j
 *   HD_COMM_BROADCAST       count (root only)            count (out of the root may equal in)
 *   HD_COMM_REDUCE          count                        count (root only)
 *   HD_COMM_GATHER          count                        n * count (root only)
 *   HD_COMM_SCATTER         n * count (root only)        count
 *   HD_COMM_SHIFT           count to me + index          count from me - index (cyclic)
 *   HD_COMM_PERMUTE         count to mul * me + index    count from its sender (cyclic; mul is invertible)
 *   HD_COMM_SEND            count to member index        -
 *   HD_COMM_RECV            -                            count from member index
 *   HD_COMM_ALL_TO_ALL_V    rows of all experts          rows of this member's experts; or the reverse: struct hd_rows
 *   HD_COMM_RING_REDUCE_SCATTER, HD_COMM_RING_ALL_GATHER, HD_COMM_ORDERED_REDUCE_SCATTER: like those without RING or
 *                           ORDERED, with the pieces and the order of heddle/graph.h
 *
 * Workers are the first `workers` members, and servers the n' others; with index >= 0, the only
 * server is member `index`:
 *   HD_COMM_PUSH            workers: n' * count          servers: count, the sum of their piece
 *       index >= 0          workers: count               the server: count, the sum
 *   HD_COMM_PULL            servers: count, their piece  workers: n' * count
 *       index >= 0          the server: count            workers: count
 */
#ifndef HD_ENGINE_DEVICE_CALL_H
#define HD_ENGINE_DEVICE_CALL_H
#include <heddle/graph.h>
#include "engine/device/ragged.h"

enum { HD_COMM_ALL_TO_ALL_V = 50, HD_COMM_SEND = 100, HD_COMM_RECV };

#define HD_CHANNELS 2

struct hd_call {
	uint32_t kind, dtype;
	int32_t index;    /* root, shift or peer: a member index */
	uint32_t channel; /* for sends and receives, 0 or 1: messages of a pair keep their order within a channel */
	uint32_t wire;    /* for sums in a stated order: the dtype in which terms are sent; 0: unchanged */
	uint32_t fixed;   /* 1: sum exactly in member order on every transport (train.reduce = rank_order) */
	int64_t count;
	const void *in;
	void *out;
	const struct hd_rows *rows; /* HD_COMM_ALL_TO_ALL_V; lives as long as the program */
	const char *what; /* for messages: "all-reduce of grad:h.0.mlp.fc.weight"; lives as long as the program */
	int64_t mul;      /* HD_COMM_PERMUTE, 1 to n - 1 (n 1: 0) */
	int32_t workers;  /* HD_COMM_PUSH, HD_COMM_PULL: the first so many members are workers; 0: all members are */
};

const char *hd_comm_kind_name(uint32_t kind);           /* "all-reduce" */
const char *hd_call_what(const struct hd_call *c);      /* for messages */
int64_t hd_comm_size(uint32_t dtype, int64_t count);    /* bytes */
int64_t hd_call_served(const struct hd_call *c, int n); /* bytes that each worker sends in a push, or gets in a pull */
int64_t hd_comm_in_bytes(const struct hd_call *c, int n, int me); /* bytes of this member's input */
int64_t hd_comm_bytes(uint32_t kind, uint32_t dtype, int64_t count, int n, int me, int index); /* sent by member me */
int64_t hd_call_sent(const struct hd_call *c, int n, int me); /* the same, for all kinds of calls */
/* Return the member that gets this member's data, and the one whose data it gets, in a send, receive,
 * shift or permutation. */
int hd_call_to(const struct hd_call *c, int n, int me);
int hd_call_from(const struct hd_call *c, int n, int me);
/* Returns whether each member's input is n pieces, and its output one piece of their sum. */
static inline int hd_comm_is_reduce_scatter(uint32_t kind)
{
	return kind == HD_COMM_REDUCE_SCATTER || kind == HD_COMM_RING_REDUCE_SCATTER ||
	       kind == HD_COMM_ORDERED_REDUCE_SCATTER;
}

/* Returns whether this member is a server of a push or pull. */
static inline int hd_call_serves(const struct hd_call *c, int me)
{
	return me >= c->workers && (c->index < 0 || me == c->index);
}
static inline int hd_comm_is_push_or_pull(uint32_t kind)
{
	return kind == HD_COMM_PUSH || kind == HD_COMM_PULL;
}

/* Returns whether each member's input is one piece, and its output all pieces. */
static inline int hd_comm_is_all_gather(uint32_t kind)
{
	return kind == HD_COMM_ALL_GATHER || kind == HD_COMM_RING_ALL_GATHER;
}

/* Returns whether a call consists of messages between two members each, which are matched in the
 * order of the calls. */
static inline int hd_call_is_message(const struct hd_call *c)
{
	return c->kind == HD_COMM_SHIFT || c->kind == HD_COMM_PERMUTE || c->kind >= HD_COMM_SEND;
}

static inline int hd_comm_mod(int64_t a, int n)
{
	int r = (int)(a % n);

	return r < 0 ? r + n : r;
}

/* Returns the inverse of mul modulo n, in 0 ... n - 1, or -1 if there is none. */
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
