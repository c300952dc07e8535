/* SPDX-License-Identifier: Apache-2.0
 * Walks over the nodes, one inside another.  If this broke, a plugin that looks around from each node would be given the
 * nodes that it makes itself, and never come to an end.
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

/* -> nodes that a walk returns which makes one at each, and walks itself: to the end, or `most` nodes. */
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

/* -> the nodes whose attributes have `one`, as bits; each node has a text that a search for part of a text would confuse. */
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
	       "nodes with an attribute: first, last and between; none that has it as part of another");
	is_int(with("causal=1"), 2 | 4, "another attribute");
	is_int(with("scale=3"), 0, "and one that no node has");

	is_int(nested(&twice, 100, &seen), 3, "a walk does not return what was made during it, with another inside");
	is_int(seen, 6, "and the one inside returns what was made before it");
	is_int(nested(&all, 100, &seen), 3, "both by the same match");
	is_int(seen, 6, "and the one inside returns all");
	is_int(nested(&twice, 2, &seen), 3, "one inside that is left early");
	return done();
}
