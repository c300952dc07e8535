/* SPDX-License-Identifier: Apache-2.0
 * engine/report/report.h - a page with the curves of several runs next to each other.
 */
#ifndef HD_ENGINE_REPORT_REPORT_H
#define HD_ENGINE_REPORT_REPORT_H
#include <stdio.h>
#include "engine/report/series.h"

#define HD_MOST_RUNS 16

struct hd_report {
	struct hd_curves run[HD_MOST_RUNS];
	int n;
};
void hd_report_page(FILE *f, const struct hd_report *r); /* writes HTML that needs nothing else */

#endif
