/* SPDX-License-Identifier: Apache-2.0
 * Draws the mesh: for each axis the ranks of one group, and how all groups along it lie on the nodes.
 */
#include <config.h>
#include "engine/base/err.h"
#include "engine/page/plan_draw.h"
#include "engine/page/html.h"
#include <stdlib.h>
#include <string.h>

enum { LEFT = 210, BOXES = 480, ROW = 26, MOST = 16, NAME = 34 };

static int64_t members(const struct hd_page_axis *x)
{
	return x->n + x->servers;
}

/* Returns whether members k - 1 and k of the group of rank 0 are on one node. */
static int touch(const struct hd_plan_page *p, const struct hd_page_axis *x, int64_t k)
{
	return k > 0 && k < members(x) && k * x->stride / p->node == (k - 1) * x->stride / p->node;
}

static void draw_box(FILE *f, const struct hd_page_axis *x, int64_t member, const char *text, double at, double wide,
		     double y, int close)
{
	fprintf(f, "<rect class=\"box%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"20\"/>",
		member < x->n ? "" : " server", at, y, wide - (close ? 0 : 6));
	fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", at + wide / 2 - 1, y + 14, text);
}

/* Returns how many boxes have room for the longest number. */
static int64_t most_boxes(const struct hd_page_axis *x)
{
	char *last = hd_format("%lld", (long long)((members(x) - 1) * x->stride));
	int64_t most = BOXES / (7 * (int64_t)strlen(last) + 8);

	free(last);
	return most < MOST ? most : MOST;
}

/* Draws the members of rank 0's group. Of many, some before the last are left out. */
static void draw_boxes(FILE *f, const struct hd_plan_page *p, const struct hd_page_axis *x, double y)
{
	int64_t n = members(x), most = most_boxes(x), shown = n < most ? n : most;
	double wide = (double)BOXES / (double)shown;

	for (int64_t i = 0; i < shown; i++) {
		int64_t k = i == shown - 1 ? n - 1 : i, next = i == shown - 2 ? n - 1 : k + 1;
		char *text =
			i == shown - 2 && shown < n ? hd_strdup("...") : hd_format("%lld", (long long)(k * x->stride));

		draw_box(f, x, k, text, LEFT + (double)i * wide, wide, y, touch(p, x, next));
		free(text);
	}
}

static char *places(const struct hd_page_axis *x)
{
	if (!x->spanning)
		return hd_strdup("all members within a node");
	if (x->spanning < x->groups)
		return hd_format("%lld of %lld groups span nodes", (long long)x->spanning, (long long)x->groups);
	return hd_strdup(x->apart == x->groups ? "each member on a node of its own" : "nodes have some of the members");
}

static void draw_axis(FILE *f, const struct hd_plan_page *p, const struct hd_page_axis *x, double y)
{
	char *text = places(x);

	fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 6, y + 14);
	hd_html_short(f, x->name, NAME);
	fprintf(f, "</text>\n");
	draw_boxes(f, p, x, y);
	fprintf(f, "<text x=\"%d\" y=\"%.1f\">%lld apart, %s</text>\n", LEFT + BOXES + 10, y + 14, (long long)x->stride,
		text);
	free(text);
}

void hd_page_mesh(FILE *f, const struct hd_plan_page *p)
{
	int servers = 0;

	if (!p->naxes) {
		fprintf(f, "<h2>The mesh</h2>\n<p>One rank.</p>\n");
		return;
	}
	hd_page_begin(f, "The mesh", p->naxes * ROW + 8);
	for (int a = 0; a < p->naxes; a++) {
		servers |= p->axes[a].servers > 0;
		draw_axis(f, p, &p->axes[a], 4 + a * ROW);
	}
	hd_page_end(f);
	fprintf(f,
		"<p class=\"note\">%lld ranks, %lld a node. Each line: the members of the group of rank 0 "
		"along an axis, by their ranks. Boxes that touch are on one node.%s</p>\n",
		(long long)p->ranks, (long long)p->node, servers ? " Dashed boxes are servers." : "");
}
