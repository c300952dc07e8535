/* SPDX-License-Identifier: Apache-2.0
 * engine/trace.h - a timeline of some steps that chrome://tracing and Perfetto open: a row per rank.
 */
#ifndef HD_ENGINE_TRACE_H
#define HD_ENGINE_TRACE_H
#include "engine/job.h"

void hd_trace_step(struct hd_program *g, struct hd_section *log, int64_t step);	/* on or off for this step */
int hd_trace_check(struct hd_section *log, struct hd_err *err);	/* rank 0: can log.trace be written? */
int hd_trace_write(struct hd_job *j, struct hd_program *g, struct hd_err *err);	/* log.trace, by rank 0 */

#endif
