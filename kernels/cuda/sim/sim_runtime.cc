/* SPDX-License-Identifier: Apache-2.0
 * The runtime of the simulated device: memory, streams, events, captures.
 *
 * Work is done when it is enqueued, in the host's order, which is one of the orders that the streams allow.  Clocks
 * show that other orders would give the same result.  Each stream counts its work, and knows which work of every
 * other stream precedes it.  A stream that waits for an event learns what the recording stream knew.  When the host
 * waits, all work enqueued later learns it.  sim_watch.cc asks here whether the last access to a word precedes the
 * present one.
 *
 * During a capture, a stream's work is kept instead.  The runtime refuses what CUDA refuses then (CUDA C++
 * Programming Guide, "Prohibited and Unhandled Operations"): the call fails, and with it the capture.
 */
#include "kernels/cuda/sim/sim_inside.h"
#include <stdio.h>
#include <sys/mman.h>

#define PAGE ((size_t)4096)
#define STREAMS 64

struct clock_of {
	uint32_t at[STREAMS];
};
struct hd_sim_graph {
	struct hd_sim_work *work;
	size_t n;
	int users;
};
struct hd_sim_stream {
	int number;
	struct clock_of clock;
	struct hd_sim_graph *kept; /* the work of the capture in progress, or NULL */
	cudaError_t broken;        /* the error of a capture that has failed */
};
struct hd_sim_event {
	struct clock_of clock;
	struct hd_sim_graph *in;
	double ms;
}; /* in: the capture in which it was recorded */

double hd_sim_ms;

static struct clock_of host;
static struct hd_sim_stream *streams[STREAMS];
static int ncaptures;
int sim_streams;
static struct op {
	uint32_t first;
	int stream;
	uint32_t tick;
} * ops;
static size_t nops, room_ops;
static cudaStream_t current;
static cudaError_t last_error;

/* -- order --------------------------------------------------------------------------------------------------------- */
static void follow(struct clock_of *c, const struct clock_of *other)
{
	for (int i = 0; i < sim_streams; i++)
		c->at[i] = other->at[i] > c->at[i] ? other->at[i] : c->at[i];
}

void sim_begin_work(cudaStream_t s)
{
	follow(&s->clock, &host);
	s->clock.at[s->number]++;
	if (nops == room_ops) {
		room_ops = 2 * room_ops + 1024;
		ops = (struct op *)realloc(ops, room_ops * sizeof(*ops));
	}
	current = s;
	sim_who.first = ++sim_who.run;
	sim_who.thread = sim_who.barriers = sim_who.syncs = 0;
	ops[nops++] = op{ sim_who.first, s->number, s->clock.at[s->number] };
}

static const struct op *op_of(uint32_t run)
{
	size_t low = 0, high = nops;

	while (high - low > 1) {
		size_t mid = (low + high) / 2;

		if (ops[mid].first <= run)
			low = mid;
		else
			high = mid;
	}
	return &ops[low];
}

int sim_before(uint32_t run)
{
	const struct op *o;

	if (sim_streams < 2)
		return 1;
	o = op_of(run);
	return current->clock.at[o->stream] >= o->tick;
}

const char *sim_stream_of(uint32_t run)
{
	static char text[40];

	snprintf(text, sizeof(text), "stream %d", op_of(run)->stream);
	return text;
}

/* -- memory -------------------------------------------------------------------------------------------------------- */
static struct sim_piece {
	char *p, *pages;
	size_t bytes, mapped;
} pieces[4096]; /* number 0: no piece */
static uint32_t piece_at[SIM_WINDOW / PAGE];
static size_t used = SIM_SHARED_ROOM + PAGE;
static int open_depth;

static void protect(int how) /* all pieces at once; sim_watch.cc checks the gaps between them */
{
	if (used > SIM_SHARED_ROOM + PAGE)
		mprotect(sim_window + SIM_SHARED_ROOM, used - SIM_SHARED_ROOM, how);
}

void hd_sim_open_memory(void)
{
	if (!open_depth++)
		protect(PROT_READ | PROT_WRITE);
}

void hd_sim_close_memory(void)
{
	if (!--open_depth)
		protect(PROT_NONE);
}

size_t sim_room(const void *p, char **begin)
{
	const struct sim_piece *at = &pieces[piece_at[sim_offset(p) / PAGE]];

	*begin = at->p;
	return at->p && (const char *)p >= at->p ? at->bytes : 0;
}

static void mark(const struct sim_piece *p, uint32_t number)
{
	for (size_t i = 0; i < p->mapped / PAGE; i++)
		piece_at[sim_offset(p->pages) / PAGE + i] = number;
}

static cudaError_t refused_in_capture(const char *call);

cudaError_t cudaMalloc(void **p, size_t bytes)
{
	size_t rounded = (bytes + 255) / 256 * 256, mapped = (rounded + PAGE - 1) / PAGE * PAGE, i = 1;

	if (ncaptures)
		return refused_in_capture("cudaMalloc");
	sim_reserve();
	while (i < sizeof(pieces) / sizeof(pieces[0]) && pieces[i].p)
		i++;
	if (i == sizeof(pieces) / sizeof(pieces[0]) || !bytes || used + mapped + PAGE > SIM_WINDOW)
		return cudaErrorMemoryAllocation;
	pieces[i].pages = sim_window + used;
	pieces[i].mapped = mapped;
	/* Many tensors begin at an odd multiple of 256 bytes. */
	pieces[i].p = pieces[i].pages + mapped - rounded;
	pieces[i].bytes = bytes;
	used += mapped + PAGE; /* addresses are never reused */
	mark(&pieces[i], (uint32_t)i);
	if (open_depth)
		protect(PROT_READ | PROT_WRITE);
	*p = pieces[i].p;
	return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
	if (!p)
		return cudaSuccess;
	if (ncaptures)
		return refused_in_capture("cudaFree");
	for (size_t i = 1; i < sizeof(pieces) / sizeof(pieces[0]); i++)
		if (pieces[i].p == (char *)p) {
			mark(&pieces[i], 0);
			madvise(pieces[i].pages, pieces[i].mapped, MADV_DONTNEED);
			sim_forget_words(pieces[i].pages, pieces[i].mapped);
			pieces[i].p = NULL;
			return cudaSuccess;
		}
	return cudaErrorInvalidValue;
}

/* -- work ---------------------------------------------------------------------------------------------------------- */
static void carry_out(cudaStream_t s, const struct hd_sim_work *w)
{
	sim_begin_work(s);
	sim_who.kernel = w->name;
	if (w->kernel) {
		sim_launch(s, w);
	} else {
		hd_sim_open_memory();
		w->fn(w->arg);
		hd_sim_close_memory();
	}
	sim_who.kernel = NULL;
}

/* HD_TEST_SIM_COUNTS=NAME: at the end, prints how often work of this name was enqueued. */
static long enqueued;

__attribute__((destructor)) static void say_counts(void)
{
	if (getenv("HD_TEST_SIM_COUNTS"))
		fprintf(stderr, "simulation: %ld times %s\n", enqueued, getenv("HD_TEST_SIM_COUNTS"));
}

void hd_sim_enqueue(cudaStream_t s, const struct hd_sim_work *w)
{
	const char *counts = getenv("HD_TEST_SIM_COUNTS");

	enqueued += counts && !strcmp(counts, w->name);
	if (!s) {
		sim_who.kernel = w->name;
		sim_fail("on no stream");
	}
	if (!s->kept) {
		carry_out(s, w);
		free(w->arg);
		return;
	}
	if (getenv("HD_TEST_CAPTURE_FAILS")) /* as if a launch were impossible within a capture */
		s->broken = last_error = cudaErrorStreamCaptureUnsupported;
	s->kept->work = (struct hd_sim_work *)realloc(s->kept->work, (s->kept->n + 1) * sizeof(*w));
	s->kept->work[s->kept->n++] = *w;
}

struct sim_transfer {
	void *to;
	const void *from;
	size_t bytes;
	int value;
};

static void transfer(void *arg)
{
	const struct sim_transfer *t = (const struct sim_transfer *)arg;

	hd_sim_touch(t->to, t->bytes, HD_SIM_WRITE);
	if (!t->from) {
		memset(t->to, t->value, t->bytes);
		return;
	}
	hd_sim_touch(t->from, t->bytes, HD_SIM_READ);
	memcpy(t->to, t->from, t->bytes);
}

static cudaError_t enqueue_transfer(const char *what, const struct sim_transfer *x, cudaStream_t s)
{
	struct sim_transfer *t = (struct sim_transfer *)malloc(sizeof(*t));
	struct hd_sim_work w = { what, NULL, 1, 1, 0, transfer, t };

	*t = *x;
	hd_sim_enqueue(s, &w);
	return cudaSuccess;
}

static int on_device(const void *p)
{
	return sim_window && sim_offset(p) < SIM_WINDOW;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind, cudaStream_t s)
{
	struct sim_transfer t = { to, from, n, 0 };

	if (n &&
	    (on_device(to) != (kind != cudaMemcpyDeviceToHost) || on_device(from) != (kind != cudaMemcpyHostToDevice)))
		return cudaErrorInvalidValue;
	return n ? enqueue_transfer("cudaMemcpyAsync", &t, s) : cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t n, cudaStream_t s)
{
	struct sim_transfer t = { to, NULL, n, value };

	if (n && !on_device(to))
		return cudaErrorInvalidValue;
	return n ? enqueue_transfer("cudaMemsetAsync", &t, s) : cudaSuccess;
}

/* -- streams and events -------------------------------------------------------------------------------------------- */
const char *cudaGetErrorString(cudaError_t e)
{
	switch (e) {
	case cudaSuccess: return "no error";
	case cudaErrorInvalidValue: return "invalid argument";
	case cudaErrorMemoryAllocation: return "out of memory";
	case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
	case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
	case cudaErrorStreamCaptureIsolation: return "dependency created on uncaptured work in another stream";
	default: return "an error of the simulated device";
	}
}

cudaError_t cudaPeekAtLastError(void)
{
	return last_error;
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t e = last_error;

	last_error = cudaSuccess;
	return e;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
	int i = 0;

	while (i < STREAMS && streams[i])
		i++;
	if (i == STREAMS)
		return cudaErrorMemoryAllocation;
	*s = streams[i] = (cudaStream_t)calloc(1, sizeof(**s));
	(*s)->number = i;
	(*s)->clock.at[i] = host.at[i]; /* an earlier stream of this number has been waited for */
	sim_streams = i >= sim_streams ? i + 1 : sim_streams;
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	host.at[s->number] = s->clock.at[s->number];
	streams[s->number] = NULL;
	free(s);
	return cudaSuccess;
}

static cudaError_t wait_of_host(cudaStream_t s, const char *call)
{
	if (s->kept)
		return refused_in_capture(call);
	follow(&host, &s->clock);
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
	return wait_of_host(s, "cudaStreamSynchronize");
}
cudaError_t cudaStreamQuery(cudaStream_t s)
{
	return wait_of_host(s, "cudaStreamQuery");
}

cudaError_t cudaEventCreate(cudaEvent_t *e)
{
	*e = (cudaEvent_t)calloc(1, sizeof(**e));
	return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
	return cudaEventCreate(e);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
	free(e);
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
	e->in = s->kept;
	e->ms = hd_sim_ms;
	if (!s->kept)
		e->clock = s->clock;
	return cudaSuccess;
}

static void record_event(void *arg)
{
	(*(cudaEvent_t *)arg)->ms = hd_sim_ms;
}

/* In a capture, an event recorded for use outside the graph is work, like a launch. */
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags)
{
	struct hd_sim_work w = { "an event", NULL, 1, 1, 0, record_event, NULL };

	if (flags != cudaEventRecordExternal)
		return cudaEventRecord(e, s);
	if (!s->kept)
		return cudaErrorInvalidValue;
	w.arg = malloc(sizeof(e));
	*(cudaEvent_t *)w.arg = e;
	hd_sim_enqueue(s, &w);
	return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
	if (s->kept && e->in != s->kept) {
		s->broken = cudaErrorStreamCaptureIsolation;
		return refused_in_capture("cudaStreamWaitEvent of an event of another stream");
	}
	if (e->in && !s->kept)
		sim_fail("a capture that goes on to a second stream is not simulated");
	follow(&s->clock, &e->clock);
	return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
	if (e->in)
		return refused_in_capture("cudaEventSynchronize");
	follow(&host, &e->clock);
	return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
	*ms = to->ms > from->ms ? (float)(to->ms - from->ms) : 1;
	return cudaSuccess;
}

/* -- captures ------------------------------------------------------------------------------------------------------ */
static cudaError_t refused_in_capture(const char *call)
{
	cudaError_t e = cudaErrorStreamCaptureUnsupported;

	for (int i = 0; i < sim_streams; i++)
		if (streams[i] && streams[i]->kept) {
			e = streams[i]->broken == cudaErrorStreamCaptureIsolation ? streams[i]->broken : e;
			streams[i]->broken = e;
		}
	fprintf(stderr, "simulation: %s is refused while a stream is captured: %s\n", call, cudaGetErrorString(e));
	return last_error = e;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, int)
{
	if (s->kept)
		return cudaErrorInvalidValue;
	s->kept = (struct hd_sim_graph *)calloc(1, sizeof(*s->kept));
	s->kept->users = 1;
	s->broken = cudaSuccess;
	ncaptures++;
	return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *status)
{
	*status = s->kept ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
	return cudaSuccess;
}

static void release(struct hd_sim_graph *g)
{
	if (--g->users)
		return;
	for (size_t i = 0; i < g->n; i++)
		free(g->work[i].arg);
	free(g->work);
	free(g);
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
	*g = s->kept;
	s->kept = NULL;
	ncaptures -= *g != NULL;
	if (!*g)
		return cudaErrorInvalidValue;
	if (s->broken == cudaSuccess)
		return cudaSuccess;
	release(*g);
	*g = NULL;
	return last_error = cudaErrorStreamCaptureInvalidated;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long)
{
	g->users++;
	*x = g;
	return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
	for (size_t i = 0; i < x->n; i++)
		carry_out(s, &x->work[i]);
	return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
	release(g);
	return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x)
{
	return cudaGraphDestroy(x);
}

/* -- shared memory that a kernel is allowed ------------------------------------------------------------------------ */
static struct {
	const void *kernel;
	size_t bytes;
} allowed[256];
static size_t nallowed;

size_t sim_allowed(const void *kernel)
{
	for (size_t i = 0; i < nallowed; i++)
		if (allowed[i].kernel == kernel)
			return allowed[i].bytes;
	return SIM_SHARED_UNASKED;
}

cudaError_t hd_sim_allow_shared(const void *kernel, size_t bytes)
{
	size_t i = 0;

	if (bytes > SIM_SHARED)
		return last_error = cudaErrorInvalidValue;
	while (i < nallowed && allowed[i].kernel != kernel)
		i++;
	if (i == sizeof(allowed) / sizeof(allowed[0]))
		return last_error = cudaErrorMemoryAllocation;
	nallowed += i == nallowed;
	allowed[i].kernel = kernel;
	allowed[i].bytes = bytes > sim_allowed(kernel) ? bytes : sim_allowed(kernel);
	return cudaSuccess;
}
