/* SPDX-License-Identifier: Apache-2.0
 * engine/train/trace.h - a timeline of some steps, for chrome://tracing and Perfetto: a row per rank.
 */
#ifndef HD_ENGINE_TRACE_H
#define HD_ENGINE_TRACE_H
#include "engine/run/job.h"

/* Switches tracing on or off for this step; last: the last step of the run. */
void hd_trace_step(struct hd_program *g, const struct hd_log_config *log, int64_t step, int64_t last);
/* On rank 0, checks that log.trace can be written. On all ranks: if the run has none of the traced steps, sets
 * log->trace to "", and the file stays as it is. */
int hd_trace_check(struct hd_log_config *log, int rank, int64_t first, int64_t last, struct hd_err *err);
/* Rank 0 writes log.trace; all ranks call it */
int hd_trace_write(struct hd_job *j, struct hd_program *g, struct hd_err *err);

#endif
