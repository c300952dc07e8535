/* SPDX-License-Identifier: Apache-2.0
 * engine/command/picture.h - heddle plan --html: writes a prediction as a page.
 */
#ifndef HD_ENGINE_COMMAND_PICTURE_H
#define HD_ENGINE_COMMAND_PICTURE_H
#include "engine/predict/simulate.h"
#include "engine/page/plan_page.h"

struct hd_picture {
	const char *title; /* the INI's name */
	const struct hd_plan *plan;
	const struct hd_machine *machine;
	const struct hd_prediction *prediction; /* with spans */
	const struct hd_page_results *search;   /* results of a search, or NULL */
	const char *trace;                      /* trace of a run of the layout (log.trace), or NULL */
	const char *style;                      /* --style, or NULL */
	double alike;                           /* seconds of a step without the slow rank, if there is one */
};
/* Frees `n` stages and their contents. */
void hd_page_stages_release(struct hd_page_stage *v, int64_t n);
/* traced.c: reads the last step of a trace, by stage. *out: `n` stages, to be released by the above; *seconds: the time
 * of the step. */
int hd_traced_read(const char *path, const struct hd_plan *p, int64_t n, struct hd_page_stage **out, double *seconds,
		   struct hd_err *err);

/* Returns a warning, which the caller frees, if groups along an axis span nodes and that of the priced rank does not. A
 * group on several nodes is slower. NULL: there are none. */
char *hd_groups_note(const struct hd_plan *p, const struct hd_machine *m, const struct hd_prediction *r);

int hd_picture_write(const struct hd_picture *x, const char *path, struct hd_err *err);

#endif
