/* SPDX-License-Identifier: Apache-2.0
 * engine/foresight/timeline.h - a step of each stage as a timeline, as planned and as measured.
 */
#ifndef HD_ENGINE_FORESIGHT_TIMELINE_H
#define HD_ENGINE_FORESIGHT_TIMELINE_H
#include "engine/base/json.h"
#include "engine/predict/simulate.h"
#include "engine/page/plan_page.h"
#include "engine/run/job.h"

/* Returns the units and waits of a stage as a page draws them, up to the end of the step; malloc'ed, *n of them. */
struct hd_page_span *hd_planned_spans(const struct hd_prediction *r, int64_t stage, size_t *n);
/* Closes the gaps between the kernels and communication of a rank, which are in order. A kernel is work of its unit,
 * communication is a wait; a gap between two is added to the later one. */
void hd_traced_close_gaps(struct hd_page_span *v, size_t n);

/* Returns a prediction with spans and a measured step of the training program:
 *   {"seconds", "predicted_seconds", "measured_seconds", "stages": [{"rank", "predicted", "measured"}]}
 * e: the n events of that step on this rank.  The rows are texts of hd_page_pieces_text from 0 to "seconds", for the
 * first rank of each stage.  All ranks call it; rank 0 gets the object, the others NULL. */
json_t *hd_timeline_json(struct hd_job *j, const struct hd_prediction *r, const struct trace_event *e, size_t n);

#endif
