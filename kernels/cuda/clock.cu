/* SPDX-License-Identifier: Apache-2.0
 * Times measured by the GPU's clock: an event is recorded before each launch that is timed.
 */
#include "kernels/cuda/clock.h"
#include "kernels/cuda/base/cuda.h"

static struct {
	cudaEvent_t *marks;
	int64_t n, room;
} here;

static cudaEvent_t event_of(int64_t mark)
{
	if (mark >= here.room) {
		here.room = 2 * mark + 64;
		here.marks = (cudaEvent_t *)realloc(here.marks, (size_t)here.room * sizeof(*here.marks));
	}
	for (; here.n <= mark; here.n++)
		hd_cuda_note_error(cudaEventCreate(&here.marks[here.n]), "an event");
	return here.marks[mark];
}

/* Within a capture, an event belongs to the graph unless it is recorded as external, to be read from outside. */
void hd_cuda_mark(int64_t mark)
{
	cudaStream_t queue = (cudaStream_t)hd_cuda_queue();
	cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
	unsigned how;

	hd_cuda_note_error(cudaStreamIsCapturing(queue, &status), "an event");
	how = status == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault;
	hd_cuda_note_error(cudaEventRecordWithFlags(event_of(mark), queue, how), "an event");
}

double hd_cuda_between(int64_t from, int64_t to)
{
	float ms = 0;

	hd_cuda_note_error(cudaEventElapsedTime(&ms, event_of(from), event_of(to)), "the time between two events");
	return 1e-3 * (double)ms;
}

void hd_cuda_marks_forget(void)
{
	while (here.n)
		cudaEventDestroy(here.marks[--here.n]);
	free(here.marks);
	here.marks = NULL;
	here.room = 0;
}
