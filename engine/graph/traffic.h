/* SPDX-License-Identifier: Apache-2.0
 * engine/graph/traffic.h - how many bytes a communication node sends, and of which tensor.
 */
#ifndef HD_ENGINE_TRAFFIC_H
#define HD_ENGINE_TRAFFIC_H
#include "engine/graph/types.h"

int64_t hd_comm_node_count(const struct node *n); /* in elements, as struct hd_call counts them */
/* Bytes that the busiest member sends per run; for ragged tensors, if the tokens choose experts equally. */
int64_t hd_comm_node_bytes(const struct node *n);
int64_t hd_comm_node_sent(const struct hd_plan *p, const struct node *n, int64_t rank); /* the same for this rank */
/* An upper bound for the busiest member. */
int64_t hd_comm_node_largest(const struct node *n);
/* The tensor that a movement moves, as the model computed it. */
const struct tensor *hd_comm_node_subject(const struct node *n);
const char *hd_comm_node_subject_name(const struct node *n); /* its name, or that of its op */

/* Returns the channel of a send or receive: 1 for backward messages, by the sender's unit. */
int hd_message_channel(const struct node *n);
/* For a push or pull, returns the number of members that hold the model; else 0. */
int32_t hd_comm_workers(const struct node *n);

#endif
