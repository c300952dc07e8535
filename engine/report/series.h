/* SPDX-License-Identifier: Apache-2.0
 * engine/report/series.h - the numbers of a metrics file, one curve per key.
 */
#ifndef HD_ENGINE_REPORT_SERIES_H
#define HD_ENGINE_REPORT_SERIES_H
#include <stddef.h>
#include "engine/base/err.h"
#include "engine/report/plan_page.h"

struct hd_curve {
	char *name;    /* "loss"; "load.2": of an array the third */
	double *x, *y; /* step, value; finite, in the order of the file */
	size_t n, cap_x, cap_y;
};
struct hd_curves { /* of one metrics file, one per key */
	const char *path;
	struct hd_curve *all;
	size_t n, cap;
	char *foresight;           /* predicted beside measured, as rows of a table; NULL: nothing */
	char *model, *layout;      /* what the file says of the run; NULL: nothing */
	char *failed;              /* the error of the last step, with which the run ended; NULL: nothing */
	double began, ended;       /* seconds since 1970; 0: it does not say */
	struct hd_page_both *step; /* a step that was predicted and run; NULL: nothing */
};
int hd_curves_read(const char *path, struct hd_curves *c, struct hd_err *err);
void hd_curves_free(struct hd_curves *c);
const struct hd_curve *hd_curve_find(const struct hd_curves *c, const char *name); /* NULL: there is none */

#endif
