/* SPDX-License-Identifier: Apache-2.0
 * engine/comm/transport/sum.h - sums and maxima in member order.
 */
#ifndef HD_ENGINE_COMM_TRANSPORT_SUM_H
#define HD_ENGINE_COMM_TRANSPORT_SUM_H
#include <stdint.h>

int hd_sum_knows(uint32_t dtype);
/* Computes the sum (max: the maximum) of the ins in their order, and writes it to each of the outs. An out may
 * be one of the ins. */
void hd_sum(char *const *outs, int nout, char *const *ins, int nin, int64_t count, uint32_t dtype, int max);
/* The next four are for sums in a stated order whose messages have 16-bit elements (`wire` in heddle/graph.h). Terms
 * and results are fp32. hd_to_wire converts a term to the dtype in which it is sent. */
void hd_to_wire(void *out, const void *in, int64_t count, uint32_t wire);
/* Computes out = own + what was received; out may be own. */
void hd_add_wire(void *out, const void *own, const void *got, int64_t count, uint32_t wire);
/* Adds the ins in their order, as in a ring: the sum so far is rounded as if it were sent before each addition. */
void hd_sum_ring(void *out, char *const *ins, int nin, int64_t count, uint32_t wire);
/* Adds the ins in their order, as their owner does, to whom all terms but its own are sent. own: the index of its own
 * term, or -1; packed: the others have the wire's dtype already. */
void hd_sum_sent(void *out, char *const *ins, int nin, int own, int packed, int64_t count, uint32_t wire);
/* Copies memory, with all threads if it is large; out may be in. */
void hd_move(void *out, const void *in, int64_t bytes);

#endif
