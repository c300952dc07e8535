/* SPDX-License-Identifier: Apache-2.0
 * plugins/tp/summa.h - products of matrices that are cut in q x q blocks.
 */
#ifndef TP_SUMMA_H
#define TP_SUMMA_H
#include "tp.h"

enum { TP_COL, TP_ROW, TP_DEPTH }; /* axes of forms 2d and 2.5d, innermost first */

/* Products of an activation and a parameter become SUMMA's; autodiff makes the other two forms of them. */
int tp_summa_rewrite(struct hd_strategy *s, struct hd_plan *p);
/* And those are broadcasts, products of blocks, and sums. */
int tp_summa_lower(struct hd_strategy *s, struct hd_plan *p);

#endif
