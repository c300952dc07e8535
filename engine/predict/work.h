/* SPDX-License-Identifier: Apache-2.0
 * engine/predict/work.h - what the kernels of a node have to do, by which they are priced (engine/predict/simulate.h) and
 * their rates measured (engine/measure).
 */
#ifndef HD_ENGINE_PREDICT_WORK_H
#define HD_ENGINE_PREDICT_WORK_H
#include "engine/program/program.h"
#include "engine/rates/rates.h"

struct hd_work {
	double flops, other;          /* of products and attention; of other arithmetic */
	double bytes;                 /* read and written */
	int product;                  /* HD_PRODUCT_ (engine/rates/rates.h), or -1 */
	double rows, columns, summed; /* of a product */
	int bf16;                     /* what is read */
};
/* Bytes of a node's operands and results; of one that only names other memory, what is copied. */
double hd_work_bytes(const struct hd_program *g, const struct node *n);
/* Of one launch of a node that moves nothing between ranks.  0: it has nothing to do, because memory is shared. */
int hd_work_of(const struct hd_program *g, const struct node *n, struct hd_work *w);
/* Of x, which is added to an accumulator.  0: who makes it adds it. */
int hd_work_added(const struct tensor *x, struct hd_work *w);

/* By measured rates, of a rank of so many threads; 0: nothing is known of that kernel. */
double hd_work_seconds(const struct hd_rates *r, const struct hd_work *w, const char *kernel, int64_t threads);

enum { HD_WORK_PRODUCTS, HD_WORK_ATTENTION, HD_WORK_ELEMENTWISE, HD_WORK_OPTIMIZER, HD_WORK_KINDS };
int hd_work_kind(const struct node *n); /* elementwise: and norms, sums, lookups, copies */
const char *hd_work_name(int kind);

#endif
