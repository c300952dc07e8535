/* SPDX-License-Identifier: Apache-2.0
 * engine/foresight/timeline.h - a step of each stage in time: as planned, and as it was.
 */
#ifndef HD_ENGINE_FORESIGHT_TIMELINE_H
#define HD_ENGINE_FORESIGHT_TIMELINE_H
#include "engine/base/json.h"
#include "engine/predict/simulate.h"
#include "engine/report/plan_page.h"
#include "engine/run/job.h"

/* Units and waits of a stage as a page draws them, up to the end of the step, malloc'ed; *n of them. */
struct hd_page_span *hd_planned_spans(const struct hd_prediction *r, int64_t stage, size_t *n);
/* Kernels and communication of a rank, in their order.  A kernel is work of its unit, communication is a wait; what lies between
 * two becomes part of the later. */
void hd_traced_close_gaps(struct hd_page_span *v, size_t n);

/* A prediction with spans beside a step of the training program, of which this rank has the events, `n` of them.
 * -> {"seconds", "predicted_seconds", "measured_seconds", "stages": [{"rank", "predicted", "measured"}]}.
 * The rows are texts of hd_page_pieces_text from 0 to "seconds", of the first rank of each stage.  All ranks call it; rank 0 gets it,
 * the others NULL. */
json_t *hd_timeline_json(struct hd_job *j, const struct hd_prediction *r, const struct trace_event *e, size_t n);

#endif
