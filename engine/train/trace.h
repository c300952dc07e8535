/* SPDX-License-Identifier: Apache-2.0
 * engine/train/trace.h - a timeline of some steps that chrome://tracing and Perfetto open: a row per rank.
 */
#ifndef HD_ENGINE_TRACE_H
#define HD_ENGINE_TRACE_H
#include "engine/run/job.h"

void hd_trace_step(struct hd_program *g, const struct hd_section *log, int64_t step, int64_t last);	/* on or off for this step; last: of the run */
int hd_trace_check(const struct hd_section *log, int64_t first, int64_t last, struct hd_err *err);	/* rank 0: can log.trace be written? */
int hd_trace_steps(const struct hd_section *log, int64_t *from, int64_t *to);	/* log.trace_steps, or HD_EINVAL */
int hd_trace_steps_check(struct hd_conf *c, struct hd_section *log, struct hd_err *err);	/* is log.trace_steps what it must be? */
int hd_trace_write(struct hd_job *j, struct hd_program *g, struct hd_err *err);	/* log.trace, by rank 0 */

#endif
