/* SPDX-License-Identifier: Apache-2.0
 * Communication of the cuda device by NCCL: one communicator per group, split from one of all ranks, each with its
 * own stream.
 *
 * A movement begins when the work enqueued before it is done (an event of the kernels' stream).  Kernels enqueued
 * after its wait begin when it is done.  Nothing here waits on the host.  Where NCCL has no single call, a group of
 * sends and receives does the work.
 */
#include "kernels/cuda/nccl/nccl_calls.h"
extern "C" {
#include "engine/device/call.h"
}

struct nccl_group {
	ncclComm_t comm;
	cudaStream_t queue;
	struct nccl_group *next;
};

struct nccl_movement {
	cudaEvent_t done;
	int64_t request;
};

static const struct hd_nccl_calls *nccl; /* of the opened library */

static struct {
	ncclComm_t world;
	cudaStream_t kernels;
	struct nccl_group *groups;
	cudaEvent_t before;
	struct nccl_movement *moves; /* the first nmoves are in progress; the others have events for later ones */
	int nmoves, cap_moves, nevents;
	ncclResult_t failed;
} here;

static int failed(ncclResult_t s, const char *what, struct hd_err *err)
{
	if (s == ncclSuccess)
		return HD_OK;
	return hd_err_set(err, HD_EIO, "nccl: %s: %s", what, nccl->GetErrorString(s));
}

static int load(struct hd_err *err)
{
	nccl = hd_nccl_load(hd_cuda_ranks_per_gpu() > 1, err);
	return nccl ? HD_OK : HD_ENOTSUP;
}

static int make_id(void *id, struct hd_err *err)
{
	return failed(nccl->GetUniqueId((ncclUniqueId *)id), "no id", err);
}

static int open_comm(const void *id, int rank, int size, struct hd_err *err)
{
	ncclConfig_t how = NCCL_CONFIG_INITIALIZER;

	here.kernels = (cudaStream_t)hd_cuda_queue();
	how.blocking = 1;
	HD_TRY(failed(nccl->CommInitRankConfig(&here.world, size, *(const ncclUniqueId *)id, rank, &how),
		      "the ranks cannot connect", err));
	if (cudaEventCreateWithFlags(&here.before, cudaEventDisableTiming) != cudaSuccess)
		return hd_err_set(err, HD_EIO, "nccl: cannot create an event");
	return HD_OK;
}

static void *split(int color, int key, struct hd_err *err)
{
	struct nccl_group *g = (struct nccl_group *)hd_alloc(sizeof(*g));
	int low, high;

	if (failed(nccl->CommSplit(here.world, color, key, &g->comm, NULL), "cannot create a communicator for a group",
		   err) < 0) {
		free(g);
		return NULL;
	}
	cudaDeviceGetStreamPriorityRange(&low, &high);
	if (cudaStreamCreateWithPriority(&g->queue, cudaStreamNonBlocking, high) != cudaSuccess) {
		hd_err_set(err, HD_EIO, "nccl: cannot create a stream for a group");
		nccl->CommDestroy(g->comm);
		free(g);
		return NULL;
	}
	g->next = here.groups;
	return here.groups = g;
}

/* Sends a byte to each member of `to`, and receives one from each of `from`. */
static ncclResult_t greet(struct nccl_group *g, char *bytes, const int *to, int nto, const int *from, int nfrom)
{
	ncclResult_t s = nccl->GroupStart(), t;

	for (int i = 0; i < nto && s == ncclSuccess; i++)
		s = nccl->Send(bytes + i, 1, ncclUint8, to[i], g->comm, g->queue);
	for (int i = 0; i < nfrom && s == ncclSuccess; i++)
		s = nccl->Recv(bytes + nto + i, 1, ncclUint8, from[i], g->comm, g->queue);
	t = nccl->GroupEnd();
	return s == ncclSuccess ? t : s;
}

/* NCCL connects two members when both have started their first message, and the host waits for that inside the call.
 * Within a step, a stage could wait so for one whose host waits for it.  So here the first messages are one group. */
static int connect_members(void *group, const int *to, int nto, const int *from, int nfrom, struct hd_err *err)
{
	struct nccl_group *g = (struct nccl_group *)group;
	char *bytes = NULL;
	ncclResult_t s;

	if (cudaMalloc((void **)&bytes, (size_t)(nto + nfrom)) != cudaSuccess)
		return hd_err_set(err, HD_ENOMEM, "nccl: no memory to connect the members of a group");
#ifdef HD_SIM
	s = hd_sim_movement(g->queue, bytes, (size_t)nto, bytes + nto, (size_t)nfrom,
			    [=]() { return greet(g, bytes, to, nto, from, nfrom); });
#else
	s = greet(g, bytes, to, nto, from, nfrom);
#endif
	cudaStreamSynchronize(g->queue);
	cudaFree(bytes);
	return failed(s, "two members cannot connect", err);
}

static ncclDataType_t type_of(uint32_t dtype)
{
	switch (dtype) {
	case HD_DTYPE_F64: return ncclFloat64;
	case HD_DTYPE_F32: return ncclFloat32;
	case HD_DTYPE_F16: return ncclFloat16;
	case HD_DTYPE_BF16: return ncclBfloat16;
	case HD_DTYPE_I64: return ncclInt64;
	case HD_DTYPE_I32: return ncclInt32;
	default: return ncclUint8;
	}
}

/* Sends and receives pieces of `bytes` bytes.  `from` and `to` return the addresses for a peer, or NULL for no
 * message. */
static ncclResult_t exchange(struct nccl_group *g, int n,
			     const char *(*from)(const struct hd_call *c, int peer, int n, int me),
			     char *(*to)(const struct hd_call *c, int peer, int n, int me), const struct hd_call *c,
			     int me)
{
	size_t bytes = (size_t)(c->count * (int64_t)HD_BITS(c->dtype) / 8);
	ncclResult_t s = nccl->GroupStart(), t;

	for (int p = 0; p < n && s == ncclSuccess; p++) {
		const char *out = from(c, p, n, me);
		char *in = to(c, p, n, me);

		if (out)
			s = nccl->Send(out, bytes, ncclUint8, p, g->comm, g->queue);
		if (in && s == ncclSuccess)
			s = nccl->Recv(in, bytes, ncclUint8, p, g->comm, g->queue);
	}
	t = nccl->GroupEnd();
	return s == ncclSuccess ? t : s;
}

static size_t piece(const struct hd_call *c)
{
	return (size_t)(c->count * (int64_t)HD_BITS(c->dtype) / 8);
}
static const char *all_from(const struct hd_call *c, int p, int, int)
{
	return (const char *)c->in + (size_t)p * piece(c);
}
static char *all_to(const struct hd_call *c, int p, int, int)
{
	return (char *)c->out + (size_t)p * piece(c);
}
static const char *gather_from(const struct hd_call *c, int p, int, int)
{
	return p == c->index ? (const char *)c->in : NULL;
}
static char *gather_to(const struct hd_call *c, int p, int, int me)
{
	return me == c->index ? all_to(c, p, 0, 0) : NULL;
}
static const char *scatter_from(const struct hd_call *c, int p, int, int me)
{
	return me == c->index ? all_from(c, p, 0, 0) : NULL;
}
static char *scatter_to(const struct hd_call *c, int p, int, int)
{
	return p == c->index ? (char *)c->out : NULL;
}
static int mod(int64_t a, int n)
{
	return (int)((a % n + n) % n);
}
static const char *shift_from(const struct hd_call *c, int p, int n, int me)
{
	return p == mod((int64_t)me + c->index, n) ? (const char *)c->in : NULL;
}
static char *shift_to(const struct hd_call *c, int p, int n, int me)
{
	return p == mod((int64_t)me - c->index, n) ? (char *)c->out : NULL;
}

static const char *permute_from(const struct hd_call *c, int p, int n, int me)
{
	return p == mod(c->mul * me + c->index, n) ? (const char *)c->in : NULL;
}
static char *permute_to(const struct hd_call *c, int p, int n, int me)
{
	return mod(c->mul * p + c->index, n) == me ? (char *)c->out : NULL;
}

/* Exchanges counted rows.  Both ends know how many rows a segment has, so an empty one takes no message. */
static ncclResult_t exchange_rows(struct nccl_group *g, const struct hd_call *c, int n, int me)
{
	const struct hd_rows *r = c->rows;
	ncclResult_t s = nccl->GroupStart(), t;

	for (int p = 0; p < n; p++)
		for (int64_t e = 0; e < r->experts && s == ncclSuccess; e++) {
			int64_t from, to, out = hd_rows_segment(r, r->have, c->index, n, p, e, &from);
			int64_t in = hd_rows_segment(r, r->need, !c->index, n, p, e, &to);

			if (out)
				s = nccl->Send((const char *)c->in + from * r->bytes, (size_t)(out * r->bytes),
					       ncclUint8, p, g->comm, g->queue);
			if (in && s == ncclSuccess)
				s = nccl->Recv((char *)c->out + to * r->bytes, (size_t)(in * r->bytes), ncclUint8, p,
					       g->comm, g->queue);
		}
	(void)me;
	t = nccl->GroupEnd();
	return s == ncclSuccess ? t : s;
}

static ncclResult_t call(struct nccl_group *g, const struct hd_call *c, int n, int me)
{
	ncclDataType_t type = type_of(c->dtype);
	size_t count = (size_t)c->count;

	switch (c->kind) {
	case HD_COMM_ALL_REDUCE: return nccl->AllReduce(c->in, c->out, count, type, ncclSum, g->comm, g->queue);
	case HD_COMM_ALL_MAX: return nccl->AllReduce(c->in, c->out, count, type, ncclMax, g->comm, g->queue);
	case HD_COMM_REDUCE_SCATTER: return nccl->ReduceScatter(c->in, c->out, count, type, ncclSum, g->comm, g->queue);
	case HD_COMM_ALL_GATHER: return nccl->AllGather(c->in, c->out, count, type, g->comm, g->queue);
	case HD_COMM_BROADCAST: return nccl->Broadcast(c->in, c->out, count, type, c->index, g->comm, g->queue);
	case HD_COMM_REDUCE: return nccl->Reduce(c->in, c->out, count, type, ncclSum, c->index, g->comm, g->queue);
	case HD_COMM_ALL_TO_ALL: return exchange(g, n, all_from, all_to, c, me);
	case HD_COMM_GATHER: return exchange(g, n, gather_from, gather_to, c, me);
	case HD_COMM_SCATTER: return exchange(g, n, scatter_from, scatter_to, c, me);
	case HD_COMM_SHIFT: return exchange(g, n, shift_from, shift_to, c, me);
	case HD_COMM_PERMUTE: return exchange(g, n, permute_from, permute_to, c, me);
	case HD_COMM_ALL_TO_ALL_V: return exchange_rows(g, c, n, me);
	case HD_COMM_SEND: return nccl->Send(c->in, count, type, c->index, g->comm, g->queue);
	case HD_COMM_RECV: return nccl->Recv(c->out, count, type, c->index, g->comm, g->queue);
	default: return ncclInvalidArgument;
	}
}

#ifdef HD_SIM
/* Tells the simulation how much of its operands a movement reads and writes: one piece, or one for each member. */
static ncclResult_t move(struct nccl_group *g, const struct hd_call *c, int n, int me)
{
	int k = c->kind, rows = k == HD_COMM_ALL_TO_ALL_V;
	int many_in =
		k == HD_COMM_REDUCE_SCATTER || k == HD_COMM_ALL_TO_ALL || (k == HD_COMM_SCATTER && me == c->index);
	int many_out = k == HD_COMM_ALL_GATHER || k == HD_COMM_ALL_TO_ALL || (k == HD_COMM_GATHER && me == c->index);

	return hd_sim_movement(g->queue, k == HD_COMM_RECV || (k == HD_COMM_SCATTER && !many_in) ? NULL : c->in,
			       rows ? 0 : piece(c) * (many_in ? n : 1),
			       k == HD_COMM_SEND || ((k == HD_COMM_GATHER || k == HD_COMM_REDUCE) && me != c->index)
				       ? NULL
				       : c->out,
			       rows ? 0 : piece(c) * (many_out ? n : 1), [=]() { return call(g, c, n, me); });
}
#else
static ncclResult_t move(struct nccl_group *g, const struct hd_call *c, int n, int me)
{
	return call(g, c, n, me);
}
#endif

/* Adds a movement to those in progress.  Returns NULL if its event cannot be created. */
static struct nccl_movement *begin_movement(int64_t request)
{
	struct nccl_movement *m;

	if (here.nmoves == here.cap_moves) {
		here.cap_moves = 2 * here.cap_moves + 64;
		here.moves = (struct nccl_movement *)realloc(here.moves, (size_t)here.cap_moves * sizeof(*here.moves));
	}
	m = &here.moves[here.nmoves];
	if (here.nmoves == here.nevents) {
		if (cudaEventCreateWithFlags(&m->done, cudaEventDisableTiming) != cudaSuccess)
			return NULL;
		here.nevents++;
	}
	here.nmoves++;
	m->request = request;
	return m;
}

static int start(void *group, const struct hd_call *c, int n, int me, int64_t request)
{
	struct nccl_group *g = (struct nccl_group *)group;
	struct nccl_movement *m = begin_movement(request);
	ncclResult_t s;

	if (!m)
		return HD_EIO;
	cudaEventRecord(here.before, here.kernels);
	cudaStreamWaitEvent(g->queue, here.before, 0);
	s = move(g, c, n, me);
	cudaEventRecord(m->done, g->queue);
	if (s != ncclSuccess && here.failed == ncclSuccess)
		here.failed = s;
	return s == ncclSuccess ? HD_OK : HD_EIO;
}

static int wait_for(int64_t request)
{
	int i = 0, rc;
	struct nccl_movement was;

	while (i < here.nmoves && here.moves[i].request != request)
		i++;
	if (i == here.nmoves)
		return HD_EIO;
	was = here.moves[i];
	rc = cudaStreamWaitEvent(here.kernels, was.done, 0) == cudaSuccess ? HD_OK : HD_EIO;
	here.moves[i] = here.moves[--here.nmoves];
	here.moves[here.nmoves] = was; /* its event may be recorded again: the wait has been enqueued */
	return rc;
}

static int poll(struct hd_err *err)
{
	ncclResult_t s = here.failed;

	if (s == ncclSuccess && here.world)
		nccl->CommGetAsyncError(here.world, &s);
	for (struct nccl_group *g = here.groups; g && s == ncclSuccess; g = g->next)
		nccl->CommGetAsyncError(g->comm, &s);
	if (s == ncclSuccess || s == ncclInProgress)
		return HD_OK;
	return hd_err_set(err, HD_EIO, "nccl: %s: %s", nccl->GetErrorString(s),
			  here.world ? nccl->GetLastError(here.world) : "");
}

static void abort_comm(void) /* ends kernels that wait for a peer that is gone */
{
	for (struct nccl_group *g = here.groups; g; g = g->next)
		nccl->CommAbort(g->comm);
	if (here.world)
		nccl->CommAbort(here.world);
	here.groups = NULL;
	here.world = NULL;
}

static void close_comm(void)
{
	while (here.groups) {
		struct nccl_group *g = here.groups;

		here.groups = g->next;
		cudaStreamSynchronize(g->queue);
		nccl->CommDestroy(g->comm);
		cudaStreamDestroy(g->queue);
		free(g);
	}
	if (here.world)
		nccl->CommDestroy(here.world);
	here.world = NULL;
}

extern "C" const struct hd_device_comm *hd_cuda_comm(void);
extern "C" const struct hd_device_comm *hd_cuda_comm(void)
{
	static const struct hd_device_comm table = {
		"nccl", sizeof(ncclUniqueId), load,      make_id, open_comm, split, connect_members, start, wait_for,
		poll,   abort_comm,           close_comm
	};

	return &table;
}
