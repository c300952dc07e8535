/* SPDX-License-Identifier: Apache-2.0
 * engine/report/series.h - the numbers of a metrics file, one curve per key.
 */
#ifndef HD_ENGINE_REPORT_SERIES_H
#define HD_ENGINE_REPORT_SERIES_H
#include <stddef.h>
#include "engine/base/err.h"
#include "engine/page/plan_page.h"

struct hd_curve {
	char *name;    /* "loss"; "load.2": the third of an array */
	double *x, *y; /* step and value; all finite, in the order of the file */
	size_t n, cap_x, cap_y;
};
struct hd_curves { /* the curves of one metrics file, one per key */
	const char *path;
	struct hd_curve *all;
	size_t n, cap;
	char *foresight;           /* predictions next to measurements, as rows of a table; NULL: none */
	char *model, *layout;      /* description of the run in the file, with all its layouts; NULL: none */
	char *last_layout;         /* for reading */
	char *failed;              /* the error of the last step, with which the run ended; NULL: none */
	double began, ended;       /* seconds since 1970; 0: unknown */
	struct hd_page_both *step; /* a step as predicted and as run; NULL: none */
};
int hd_curves_read(const char *path, struct hd_curves *c, struct hd_err *err);
void hd_curves_free(struct hd_curves *c);
const struct hd_curve *hd_curve_find(const struct hd_curves *c, const char *name); /* NULL: it does not exist */

#endif
