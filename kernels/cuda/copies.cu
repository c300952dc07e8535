/* SPDX-License-Identifier: Apache-2.0
 * Copies between host and device memory that overlap with kernels; each direction has its own stream.
 */
#include "kernels/cuda/copies.h"
#include "kernels/cuda/base/cuda.h"

struct cuda_move { /* a copy that overlaps with kernels */
	cudaEvent_t done;
	int made, to_host;
};

static struct {
	cudaStream_t copies[2]; /* to the device, to the host */
	cudaEvent_t before;
	struct cuda_move *moves; /* indexed by request */
	int64_t nmoves;
} here;

static struct cuda_move *move_of(int64_t request)
{
	struct cuda_move *m;
	int64_t n = here.nmoves;

	if (request >= n) {
		here.nmoves = 2 * request + 64;
		here.moves = (struct cuda_move *)realloc(here.moves, (size_t)here.nmoves * sizeof(*here.moves));
		memset(here.moves + n, 0, (size_t)(here.nmoves - n) * sizeof(*here.moves));
	}
	m = &here.moves[request];
	if (!m->made) {
		hd_cuda_note_error(cudaEventCreateWithFlags(&m->done, cudaEventDisableTiming), "an event");
		m->made = 1;
	}
	return m;
}

void hd_cuda_copy(void *to, const void *from, size_t bytes, int to_host, int64_t request)
{
	struct cuda_move *m = move_of(request);
	cudaStream_t *s = &here.copies[to_host != 0];

	if (!*s)
		hd_cuda_note_error(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking), "a stream for copies");
	if (!here.before)
		hd_cuda_note_error(cudaEventCreateWithFlags(&here.before, cudaEventDisableTiming), "an event");
	m->to_host = to_host;
	hd_cuda_note_error(cudaEventRecord(here.before, (cudaStream_t)hd_cuda_queue()), "an event");
	hd_cuda_note_error(cudaStreamWaitEvent(*s, here.before, 0), "an event");
	hd_cuda_note_error(cudaMemcpyAsync(to, from, bytes, to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
					   *s),
			   to_host ? "a gradient's copy to the host" : "a parameter's copy to the device");
	hd_cuda_note_error(cudaEventRecord(m->done, *s), "an event");
}

void hd_cuda_copied(int64_t request)
{
	struct cuda_move *m = move_of(request);

	if (m->to_host)
		hd_cuda_note_error(cudaEventSynchronize(m->done), "a gradient's copy to the host");
	else
		hd_cuda_note_error(cudaStreamWaitEvent((cudaStream_t)hd_cuda_queue(), m->done, 0),
				   "a parameter's copy to the device");
}

void hd_cuda_copies_forget(void)
{
	for (int64_t i = 0; i < here.nmoves; i++)
		if (here.moves[i].made)
			cudaEventDestroy(here.moves[i].done);
	free(here.moves);
	here.moves = NULL;
	here.nmoves = 0;
	for (int i = 0; i < 2; i++) {
		if (here.copies[i])
			cudaStreamDestroy(here.copies[i]);
		here.copies[i] = NULL;
	}
	if (here.before)
		cudaEventDestroy(here.before);
	here.before = NULL;
}
