/* SPDX-License-Identifier: Apache-2.0
 * copy and select: pieces of raw elements of any dtype, copied in the widest units that all addresses allow.
 */
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/elementwise.h"
#include "kernels/prepare/select.h"
}

HD_CUDA_PREPARE(prepare, "copy", hd_prepare_copy(c, p))

struct pieces {
	int64_t count, run, src_step, dst_step;
}; /* run and steps are in bytes, then in units */

template <class T> struct move_runs {
	T *y;
	const T *x;
	pieces s;
	const struct hd_cuda_step *position; /* for select: x advances by `position` runs */

	template <int N> HD_DEV void at(int64_t i) const
	{
		int64_t from = position ? position->position * s.run : 0;

		for (int k = 0; k < N; k++) {
			int64_t piece = (i + k) / s.run, rest = (i + k) % s.run;

			y[piece * s.dst_step + rest] = x[from + piece * s.src_step + rest];
		}
	}
};

template <class T>
static void launch(void *y, const void *x, pieces s, const struct hd_cuda_step *position, const struct hd_run *r)
{
	s.run /= (int64_t)sizeof(T);
	s.src_step /= (int64_t)sizeof(T);
	s.dst_step /= (int64_t)sizeof(T);
	hd_each<1>(r, s.count * s.run, 1, move_runs<T>{ (T *)y, (const T *)x, s, position });
}

static void pieces_of(void *y, const void *x, pieces s, const struct hd_cuda_step *position, const struct hd_run *r)
{
	uintptr_t all = (uintptr_t)y | (uintptr_t)x | (uintptr_t)s.run | (uintptr_t)s.src_step | (uintptr_t)s.dst_step;

	if (s.count < 1 || s.run < 1)
		return;
	if (!(all & 15))
		launch<uint4>(y, x, s, position, r);
	else if (!(all & 3))
		launch<uint32_t>(y, x, s, position, r);
	else
		launch<uint8_t>(y, x, s, position, r);
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const char *x = (const char *)in[0] + p->n[HD_COPY_SRC];
	char *y = (char *)out[0] + p->n[HD_COPY_DST];
	pieces s = { p->n[HD_COPY_RUNS], p->n[HD_COPY_RUN], p->n[HD_COPY_SRC_STEP], p->n[HD_COPY_DST_STEP] };

	if (s.count == 1)
		hd_cuda_move(r, y, x, (size_t)s.run);
	else
		pieces_of(y, x, s, NULL, r);
}

static void run_select(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	pieces s = { p->n[0], p->n[2], p->n[1] * p->n[2], p->n[2] };

	pieces_of(out[0], in[0], s, hd_cuda_step_of(r), r);
}

HD_CUDA_KERNEL(copy, "copy", 0, prepare, run);
HD_CUDA_KERNEL(select, "select", 0, hd_prepare_select, run_select);
