/* SPDX-License-Identifier: Apache-2.0
 * An optimizer with states of other dims than the parameter: means of squares of rows and of columns, as Adafactor's (Shazeer and
 * Stern 2018, 1804.04235).  What keeps a division finite is added behind the sums, where padding is still zero
 * (t1305-factored-states.sh).
 */
#include <heddle/strategy.h>
#include <stdio.h>

static struct hd_tensor *mean_of(const struct hd_graph_api *g, struct hd_plan *p, const struct hd_update *u,
				 const char *which, struct hd_tensor *sum, double n)
{
	char name[200];
	struct hd_tensor *in[2] = { NULL, sum }, *now;

	snprintf(name, sizeof(name), "%s.%s", which, u->name);
	in[0] = hd_state(g, p, name, sum, u->param->dtype, HD_RESHARD_ZERO);
	now = g->map(p, in, 2, "0.5 * a + 0.5 * b / %.17g", n);
	g->assign(p, in[0], now);
	return now;
}

static int update(struct hd_strategy *s, struct hd_plan *p, const struct hd_update *u, struct hd_tensor **value)
{
	const struct hd_graph_api *g = u->h->graph;
	const struct hd_dim *const *d = u->param->dims;
	uint32_t n = u->param->ndim;
	struct hd_tensor *in[] = { u->gradient, u->factor, NULL, NULL, NULL, NULL }, *squares;
	double rows = (double)d[0]->n, columns = 1;

	(void)s;
	for (uint32_t i = 1; i < n; i++)
		columns *= (double)d[i]->n;
	squares = g->map(p, in, 2, "a * a * b * b");
	in[2] = u->param;
	in[3] = g->scalar(p, HD_SCALAR_LR, NULL);
	in[4] = mean_of(g, p, u, "row", g->einsum(p, &squares, 1, d, 1), columns);
	in[5] = mean_of(g, p, u, "column", g->einsum(p, &squares, 1, d + 1, n - 1), rows);
	*value = g->map(p, in, 6, "c - d * a * b / sqrt(sqrt((e + 1e-3) * (f + 1e-3)))");
	return u->h->status(p);
}

static const struct hd_optimizer_ops optimizer = { .size = sizeof(optimizer), .update = update };
HD_PLUGIN_TABLES("factored", "1.0", .optimizer = &optimizer)
