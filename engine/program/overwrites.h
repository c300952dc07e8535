/* SPDX-License-Identifier: Apache-2.0
 * engine/program/overwrites.h - what overwrites what, among tensors that exist once a step.
 */
#ifndef HD_ENGINE_OVERWRITES_H
#define HD_ENGINE_OVERWRITES_H
#include "engine/program/program.h"

struct overwriter {
	struct node *node;
	int64_t entry; /* 0 before there is a timeline */
};
struct overwriters { /* of one root, in their order */
	struct overwriter *v;
	size_t n, cap;
};
struct node_list {
	struct node **v;
	size_t n, cap;
};

/* by_node, by node id: to each node of sync is added what overwrites an input of it, of sync that is later in the program. */
void hd_later_overwriters(const struct hd_program *g, struct node_list *by_node);
void hd_wait_for_overwrites(struct hd_program *g); /* a movement of sync is done before what it sends is overwritten */

#endif
