/* SPDX-License-Identifier: Apache-2.0
 * plugins/tp/summa.h - products of matrices that are cut in q x q blocks.
 */
#ifndef TP_SUMMA_H
#define TP_SUMMA_H
#include "tp.h"

enum { TP_COL, TP_ROW, TP_DEPTH }; /* axes of forms 2d and 2.5d, innermost first */

/* Replaces products of an activation and a parameter by SUMMA's op ab; autodiff derives the other two forms. */
int tp_summa_rewrite(struct hd_strategy *s, struct hd_plan *p);
/* Replaces these ops by broadcasts, products of blocks, and sums. */
int tp_summa_lower(struct hd_strategy *s, struct hd_plan *p);

#endif
