/* SPDX-License-Identifier: Apache-2.0
 * engine/program/overwrites.h - finds which nodes overwrite what other nodes read, among tensors that exist once a
 * step.
 */
#ifndef HD_ENGINE_OVERWRITES_H
#define HD_ENGINE_OVERWRITES_H
#include "engine/program/program.h"

struct overwriter {
	struct node *node;
	int64_t entry; /* 0 if there is no timeline yet */
};
struct overwriters { /* overwriters of one root, in their order */
	struct overwriter *v;
	size_t n, cap;
};
struct node_list {
	struct node **v;
	size_t n, cap;
};

/* Appends to by_node[id], for each sync node, the later sync nodes that overwrite one of its inputs. */
void hd_later_overwriters(const struct hd_program *g, struct node_list *by_node);
void hd_wait_for_overwrites(struct hd_program *g); /* a movement of sync ends before its operand is overwritten */

#endif
