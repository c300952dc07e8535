/* SPDX-License-Identifier: Apache-2.0
 * engine/graph/traffic.h - bytes that a node of communication sends, and of what.
 */
#ifndef HD_ENGINE_TRAFFIC_H
#define HD_ENGINE_TRAFFIC_H
#include "engine/graph/types.h"

int64_t hd_comm_node_count(const struct node *n); /* elements, as struct hd_call counts them */
int64_t hd_comm_node_bytes(const struct node *n); /* sent by the busiest member, once; of rows: if choices are equal */
int64_t hd_comm_node_sent(const struct hd_plan *p, const struct node *n, int64_t rank); /* the same, by this rank */
int64_t hd_comm_node_largest(const struct node *n);                                     /* by the busiest, at most */
/* What a movement moves: its operand, as the model made it. */
const struct tensor *hd_comm_node_subject(const struct node *n);
const char *hd_comm_node_subject_name(const struct node *n); /* or that of the op which made it */

/* Of a send or a receive: the sender's unit says which way the message goes.  1: backward */
int hd_message_channel(const struct node *n);
int32_t hd_comm_cores(const struct node *n); /* of a push or pull: the members that hold the model; else 0 */

#endif
