/* SPDX-License-Identifier: Apache-2.0
 * Walks over the nodes, one inside another.  If this broke, a plugin that walks over nodes and makes a node at each
 * would be given the nodes it makes itself, and never come to an end.
 */
#include <config.h>
#include "engine/host/host.h"
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"

static const struct hd_match all = { .size = sizeof(all) }, twice = { .size = sizeof(twice) };

static void make(struct hd_plan *p)
{
	struct tensor *x = p->last ? p->last->outs[0] : gt_param(p, "x", "embed");

	hd_map_new(p, &x, 1, "a * 2");
}

static int count(struct hd_plan *p, const struct hd_match *m, int most)
{
	struct hd_node *n = NULL;
	int k = 0;

	while (k < most && (n = hd_graph_table.node_next(p, n, m)))
		k++;
	return k;
}

/* Makes a node at each node of a walk, and walks over at most `most` nodes inside it.  Returns the number of nodes of
 * the outer walk, and in *seen that of the inner one. */
static int nested(const struct hd_match *inner, int most, int *seen)
{
	struct hd_plan *p = gt_plan(1);
	struct hd_node *n = NULL;
	int k = 0;

	hd_dim_get(p, "embed", 8);
	for (int i = 0; i < 3; i++)
		make(p);
	while (k < 20 && (n = hd_graph_table.node_next(p, n, &all))) {
		make(p);
		*seen = count(p, inner, most);
		k++;
	}
	hd_plan_destroy(p);
	return k;
}

/* Returns a bit mask of the nodes that have the attribute `one`.  Their texts would confuse a plain search for a
 * substring. */
static int with(const char *one)
{
	static const char *const texts[] = { "window=1",         "window=16 causal=1", "causal=1 window=1",
					     "window=1 scale=2", "of_window=1",        "" };
	const struct hd_match m = { .size = sizeof(m), .attr = one };
	struct hd_plan *p = gt_plan(1);
	struct hd_node *n = NULL;
	int found = 0;

	hd_dim_get(p, "embed", 8);
	for (size_t i = 0; i < HD_LEN(texts); i++) {
		make(p);
		p->last->attr = hd_plan_text(p, "%s", texts[i]);
	}
	for (int k = 0; k < 20 && (n = hd_graph_table.node_next(p, n, &m)); k++) {
		int at = 0;

		for (struct node *x = p->first; x != (struct node *)(void *)n; x = x->next)
			at++;
		found |= 1 << at;
	}
	hd_plan_destroy(p);
	return found;
}

int main(void)
{
	int seen = 0;

	is_int(with("window=1"), 1 | 4 | 8,
	       "an attribute is found as first, last or middle one, but not as a part of another");
	is_int(with("causal=1"), 2 | 4, "a different attribute is found");
	is_int(with("scale=3"), 0, "an attribute that no node has is not found");

	is_int(nested(&twice, 100, &seen), 3, "a walk with another inside does not return nodes made during it");
	is_int(seen, 6, "... and the inner one returns all nodes made before it began");
	is_int(nested(&all, 100, &seen), 3, "two walks by the same match are independent");
	is_int(seen, 6, "... and the inner one returns all nodes");
	is_int(nested(&twice, 2, &seen), 3, "an inner walk may be left early");
	return done();
}
