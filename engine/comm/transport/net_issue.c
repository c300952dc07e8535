/* SPDX-License-Identifier: Apache-2.0
 * Issues the calls between hosts that MPI executes: as one non-blocking collective, or as one message per piece.
 */
#include <config.h>
#include "engine/comm/transport/net_call.h"
#include "engine/comm/transport/sum.h"
#include <stdlib.h>

#define TAG_ROWS 30000
#define TAG_MESSAGE 20000 /* + channel; sends, receives and shifts are matched in the order of the calls */

static MPI_Datatype type_of(uint32_t dtype)
{
	switch (dtype) {
	case HD_DTYPE_F32: return MPI_FLOAT;
	case HD_DTYPE_F64: return MPI_DOUBLE;
	case HD_DTYPE_I32: return MPI_INT32_T;
	case HD_DTYPE_I64: return MPI_INT64_T;
	case HD_DTYPE_F16:
	case HD_DTYPE_BF16: return MPI_UINT16_T;
	default: return MPI_UINT8_T;
	}
}

int64_t hd_net_elements(const struct hd_call *c)
{
	if (c->rows || hd_call_is_message(c) || hd_net_by_members(c))
		return 0;
	return type_of(c->dtype) == MPI_UINT8_T ? hd_comm_size(c->dtype, c->count) : c->count;
}

static void *in_place(const struct hd_call *c, const char *out)
{
	return c->in == (const void *)out ? MPI_IN_PLACE : (void *)(uintptr_t)c->in;
}

static void issue_sum(const struct hd_communicator *m, const struct hd_call *c, MPI_Request *r)
{
	MPI_Comm comm = m->net.group->comm;
	MPI_Datatype type = type_of(c->dtype);
	int count = (int)c->count;

	if (c->kind == HD_COMM_REDUCE_SCATTER)
		MPI_Ireduce_scatter_block(c->in, c->out, count, type, MPI_SUM, comm, r);
	else if (c->kind == HD_COMM_REDUCE)
		MPI_Ireduce(m->me == c->index ? in_place(c, c->out) : c->in, c->out, count, type, MPI_SUM, c->index,
			    comm, r);
	else
		MPI_Iallreduce(in_place(c, c->out), c->out, count, type, c->kind == HD_COMM_ALL_MAX ? MPI_MAX : MPI_SUM,
			       comm, r);
}

static void issue_move(const struct hd_communicator *m, const struct hd_call *c, MPI_Request *r)
{
	MPI_Comm comm = m->net.group->comm;
	MPI_Datatype type = type_of(c->dtype);
	int n = (int)hd_net_elements(c);
	int64_t mine = m->me * hd_comm_size(c->dtype, c->count);
	int root = m->me == c->index;

	switch (c->kind) {
	case HD_COMM_ALL_GATHER:
		MPI_Iallgather(in_place(c, (char *)c->out + mine), n, type, c->out, n, type, comm, r);
		break;
	case HD_COMM_ALL_TO_ALL: MPI_Ialltoall(c->in, n, type, c->out, n, type, comm, r); break;
	case HD_COMM_BROADCAST:
		if (root)
			hd_move(c->out, c->in, hd_comm_size(c->dtype, c->count));
		MPI_Ibcast(c->out, n, type, c->index, comm, r);
		break;
	case HD_COMM_GATHER:
		MPI_Igather(root ? in_place(c, (char *)c->out + mine) : c->in, n, type, c->out, n, type, c->index, comm,
			    r);
		break;
	case HD_COMM_SCATTER:
		MPI_Iscatter(c->in, n, type, root && (const char *)c->in + mine == c->out ? MPI_IN_PLACE : c->out, n,
			     type, c->index, comm, r);
		break;
	}
}

/* Returns how many bytes one message of MPI has at most. MPI counts in int. */
static int64_t longest_piece(void)
{
	static int64_t most; /* only the progress thread gets here */
	const char *test;

	if (most)
		return most;
	test = getenv("HD_TEST_COMM_PIECE"); /* for tests only: cuts short messages too */
	most = test && atoll(test) > 0 ? atoll(test) : 1 << 30;
	return most;
}

static MPI_Request *next_request(struct inflight *f)
{
	f->req = hd_grow(f->req, (size_t)f->nreq, &f->cap, sizeof(*f->req));
	return &f->req[f->nreq++];
}

/* The pieces of a message have the same tag: MPI keeps their order. */
void hd_net_put(struct inflight *f, int to, const void *p, int64_t bytes, int tag)
{
	for (int64_t at = 0, n; at < bytes; at += n) {
		n = bytes - at < longest_piece() ? bytes - at : longest_piece();
		MPI_Isend((const char *)p + at, (int)n, MPI_BYTE, to, tag, f->t->m->net.group->comm, next_request(f));
	}
}

void hd_net_get(struct inflight *f, int from, void *p, int64_t bytes, int tag)
{
	for (int64_t at = 0, n; at < bytes; at += n) {
		n = bytes - at < longest_piece() ? bytes - at : longest_piece();
		MPI_Irecv((char *)p + at, (int)n, MPI_BYTE, from, tag, f->t->m->net.group->comm, next_request(f));
	}
}

static void issue_message(struct inflight *f)
{
	const struct hd_communicator *m = f->t->m;
	const struct hd_call *c = &f->t->call;
	int64_t bytes = hd_comm_size(c->dtype, c->count);
	int tag = TAG_MESSAGE + (int)c->channel;

	if (c->kind != HD_COMM_SEND)
		hd_net_get(f, hd_call_from(c, m->n, m->me), c->out, bytes, tag);
	if (c->kind != HD_COMM_RECV)
		hd_net_put(f, hd_call_to(c, m->n, m->me), c->in, bytes, tag);
}

/* Issues one message per segment of rows. Both ends know how many rows a segment contains, so an
 * empty one is not sent. */
static void issue_rows(struct inflight *f)
{
	const struct hd_communicator *m = f->t->m;
	const struct hd_call *c = &f->t->call;
	const struct hd_rows *r = c->rows;
	const char *in = c->in;
	char *out = c->out;
	int64_t from, to, rows;

	for (int k = 0; k < m->n; k++) {
		int j = hd_comm_mod(m->me - k, m->n);

		for (int64_t e = 0; e < r->experts; e++) {
			rows = hd_rows_segment(r, r->need, !c->index, m->n, j, e, &to);
			if (k) {
				hd_net_get(f, j, out + to * r->bytes, rows * r->bytes, TAG_ROWS);
				continue;
			}
			hd_rows_segment(r, r->have, c->index, m->n, j, e, &from);
			hd_move(out + to * r->bytes, in + from * r->bytes, rows * r->bytes);
		}
	}
	for (int k = 1; k < m->n; k++) {
		int j = hd_comm_mod(m->me + k, m->n);

		for (int64_t e = 0; e < r->experts; e++) {
			rows = hd_rows_segment(r, r->have, c->index, m->n, j, e, &from);
			hd_net_put(f, j, in + from * r->bytes, rows * r->bytes, TAG_ROWS);
		}
	}
}

void hd_net_issue(struct inflight *f)
{
	const struct hd_call *c = &f->t->call;

	if (hd_call_is_message(c)) {
		issue_message(f);
	} else if (c->rows) {
		issue_rows(f);
	} else {
		f->nreq = 1;
		(hd_net_is_sum(c->kind) ? issue_sum : issue_move)(f->t->m, c, f->req);
	}
}
