/* SPDX-License-Identifier: Apache-2.0
 * engine/train/trace.h - a timeline of some steps that chrome://tracing and Perfetto open: a row per rank.
 */
#ifndef HD_ENGINE_TRACE_H
#define HD_ENGINE_TRACE_H
#include "engine/run/job.h"

/* On or off for this step; last: of the run. */
void hd_trace_step(struct hd_program *g, const struct hd_log_config *log, int64_t step, int64_t last);
/* Rank 0: can log.trace be written?  All ranks: where the run has none of the steps, log->trace becomes "", and the file stays. */
int hd_trace_check(struct hd_log_config *log, int rank, int64_t first, int64_t last, struct hd_err *err);
int hd_trace_write(struct hd_job *j, struct hd_program *g, struct hd_err *err); /* log.trace, by rank 0 */

#endif
