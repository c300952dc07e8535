/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/transport/sum.h - sums and maxima in member order.
 */
#ifndef HD_ENGINE_COMM_TRANSPORT_SUM_H
#define HD_ENGINE_COMM_TRANSPORT_SUM_H
#include <stdint.h>

int hd_sum_knows(uint32_t dtype);
/* Each of the outs gets the sum (max: the maximum) of the ins in their order.  An out may be one
 * of the ins. */
void hd_sum(char *const *outs, int nout, char *const *ins, int nin, int64_t count, uint32_t dtype, int max);
/* A copy, by all threads where it is large; out may be in. */
void hd_move(void *out, const void *in, int64_t bytes);

#endif
