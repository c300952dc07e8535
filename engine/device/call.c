/* SPDX-License-Identifier: Apache-2.0
 * Names of calls for messages, their peers, and how many bytes they move.
 */
#include <config.h>
#include "engine/device/call.h"
#include "engine/base/err.h"

const char *hd_comm_kind_name(uint32_t kind)
{
	static const char *const names[] = { "?",
					     "all-reduce",
					     "reduce-scatter",
					     "all-gather",
					     "all-to-all",
					     "broadcast",
					     "reduce",
					     "gather",
					     "scatter",
					     "shift",
					     "all-max",
					     "permute",
					     "ring-reduce-scatter",
					     "ring-all-gather",
					     "ordered-reduce-scatter",
					     "push",
					     "pull" };

	return kind == HD_COMM_ALL_TO_ALL_V ? "all-to-all"
	       : kind == HD_COMM_SEND       ? "send"
	       : kind == HD_COMM_RECV       ? "receive"
					    : names[kind < HD_LEN(names) ? kind : 0];
}

const char *hd_call_what(const struct hd_call *c)
{
	return c->what ? c->what : hd_comm_kind_name(c->kind);
}

int hd_call_to(const struct hd_call *c, int n, int me)
{
	int64_t mul = c->kind == HD_COMM_PERMUTE ? c->mul : 1;

	return c->kind == HD_COMM_SEND ? c->index : hd_comm_mod(mul * me + c->index, n);
}

int hd_call_from(const struct hd_call *c, int n, int me)
{
	int64_t inverse = c->kind == HD_COMM_PERMUTE ? hd_comm_inverse(c->mul, n) : 1;

	return c->kind == HD_COMM_RECV ? c->index : hd_comm_mod(inverse * (me - (int64_t)c->index), n);
}

int64_t hd_comm_size(uint32_t dtype, int64_t count)
{
	return (count * (int64_t)HD_BITS(dtype) + 7) / 8;
}

int64_t hd_call_served(const struct hd_call *c, int n)
{
	return hd_comm_size(c->dtype, c->count) * (c->index < 0 ? n - c->workers : 1);
}

int64_t hd_comm_in_bytes(const struct hd_call *c, int n, int me)
{
	int64_t s = hd_comm_size(c->dtype, c->count);

	if (hd_comm_is_reduce_scatter(c->kind))
		return n * s;
	switch (c->kind) {
	case HD_COMM_PUSH: return me < c->workers ? hd_call_served(c, n) : 0;
	case HD_COMM_PULL: return hd_call_serves(c, me) ? s : 0;
	case HD_COMM_ALL_TO_ALL: return n * s;
	case HD_COMM_SCATTER: return me == c->index ? n * s : 0;
	case HD_COMM_BROADCAST: return me == c->index ? s : 0;
	case HD_COMM_RECV: return 0;
	default: return s;
	}
}

/* Returns the bytes that this member would send if the collective were a ring. A broadcast is a pipeline along the
 * ring, which ends just before the root. */
int64_t hd_comm_bytes(uint32_t kind, uint32_t dtype, int64_t count, int n, int me, int index)
{
	int64_t s = hd_comm_size(dtype, count);

	if (n <= 1)
		return 0;
	if (hd_comm_is_reduce_scatter(kind) || hd_comm_is_all_gather(kind))
		return (n - 1) * s;
	switch (kind) {
	case HD_COMM_ALL_REDUCE:
	case HD_COMM_ALL_MAX: return (2 * (n - 1) * s + n - 1) / n;
	case HD_COMM_ALL_TO_ALL: return (n - 1) * s;
	case HD_COMM_BROADCAST: return me == hd_comm_mod(index - 1, n) ? 0 : s;
	case HD_COMM_REDUCE:
	case HD_COMM_GATHER: return me == index ? 0 : s;
	case HD_COMM_SCATTER: return me == index ? (n - 1) * s : 0;
	case HD_COMM_SHIFT: return hd_comm_mod(index, n) ? s : 0;
	case HD_COMM_SEND: return s;
	default: return 0;
	}
}

int64_t hd_call_sent(const struct hd_call *c, int n, int me)
{
	if (c->kind == HD_COMM_ALL_TO_ALL_V)
		return hd_rows_sent(c->rows, c->index, n, me);
	if (c->kind == HD_COMM_PERMUTE)
		return hd_call_to(c, n, me) == me ? 0 : hd_comm_size(c->dtype, c->count);
	if (c->kind == HD_COMM_PUSH)
		return me < c->workers
			       ? hd_call_served(c, n) * HD_BITS(c->wire ? c->wire : c->dtype) / HD_BITS(c->dtype)
			       : 0;
	if (c->kind == HD_COMM_PULL)
		return hd_call_serves(c, me) ? c->workers * hd_comm_size(c->dtype, c->count) : 0;
	return hd_comm_bytes(c->kind, c->wire ? c->wire : c->dtype, c->count, n, me, c->index);
}
