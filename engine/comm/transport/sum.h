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
/* Of sums in a stated order whose messages are 16 bits (heddle/graph.h: wire); terms and results are fp32.  A term as it is
 * after it was sent: */
void hd_to_wire(void *out, const void *in, int64_t count, uint32_t wire);
/* out = own + what was received; out may be own. */
void hd_add_wire(void *out, const void *own, const void *got, int64_t count, uint32_t wire);
/* The ins in their order, added up: by a ring, where the sum so far is sent before each is added; */
void hd_sum_ring(void *out, char *const *ins, int nin, int64_t count, uint32_t wire);
/* by their owner, to whom all but its own are sent.  packed: those are of the wire's dtype already. */
void hd_sum_sent(void *out, char *const *ins, int nin, int own, int packed, int64_t count, uint32_t wire);
/* A copy, by all threads where it is large; out may be in. */
void hd_move(void *out, const void *in, int64_t bytes);

#endif
