/* SPDX-License-Identifier: Apache-2.0
 * engine/predict/work.h - the work of a node's kernels, by which they are priced (engine/predict/simulate.h) and their
 * rates measured (engine/measure).
 */
#ifndef HD_ENGINE_PREDICT_WORK_H
#define HD_ENGINE_PREDICT_WORK_H
#include "engine/program/program.h"
#include "engine/rates/rates.h"

struct hd_work {
	double flops, other;          /* FLOPs: of products and attention; of other arithmetic */
	double bytes;                 /* read and written */
	int product;                  /* HD_PRODUCT_ (engine/rates/rates.h), or -1 */
	double rows, columns, summed; /* of a product */
	int bf16;                     /* the operands are bf16 */
};
/* Returns the bytes of a node's operands and results. If the node only names other memory, returns the bytes copied. */
double hd_work_bytes(const struct hd_program *g, const struct node *n);
/* Sets the work of one launch of a node that moves nothing between ranks. Returns 0 if it has nothing to do, because
 * its memory is that of its operands. */
int hd_work_of(const struct hd_program *g, const struct node *n, struct hd_work *w);
/* Sets the work of adding x to an accumulator. Returns 0 if the kernel that computes x adds it. */
int hd_work_added(const struct tensor *x, struct hd_work *w);

/* Returns the seconds by measured rates on a rank with that many threads, or 0 if the kernel was not measured. */
double hd_work_seconds(const struct hd_rates *r, const struct hd_work *w, const char *kernel, int64_t threads);

enum { HD_WORK_PRODUCTS, HD_WORK_ATTENTION, HD_WORK_ELEMENTWISE, HD_WORK_OPTIMIZER, HD_WORK_KINDS };
int hd_work_kind(const struct node *n); /* elementwise includes norms, sums, lookups and copies */
const char *hd_work_name(int kind);

#endif
