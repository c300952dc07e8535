/* SPDX-License-Identifier: Apache-2.0
 * Interpolates between measured rates. The rate of a kernel is interpolated over its size, both as logarithms. The rate
 * of a product is a mean over all measured shapes, weighted by how near each is. See Shepard, A two-dimensional
 * interpolation function for irregularly-spaced data, 1968.
 */
#include <config.h>
#include "engine/rates/rates.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NEAR 0.7 /* in log2 of the size: points nearer than this are merged */

void hd_rates_destroy(struct hd_rates *r)
{
	for (int k = 0; r && k < HD_PRODUCT_KINDS; k++)
		for (int t = 0; t < HD_RATE_TYPES; t++)
			free(r->products[k][t].v);
	for (size_t i = 0; r && i < r->n; i++)
		for (int t = 0; t < HD_RATE_TYPES; t++)
			free(r->kernels[i].of[t].v);
	for (size_t i = 0; r && i < r->nmovements; i++)
		free(r->movements[i].of[0].v);
	if (r)
		free(r->kernels), free(r->movements);
	free(r);
}

static struct hd_kernel_rates *of_name(struct hd_kernel_rates **all, size_t *n, size_t *cap, const char *name)
{
	struct hd_kernel_rates *k;

	for (size_t i = 0; i < *n; i++)
		if (!strcmp((*all)[i].name, name))
			return &(*all)[i];
	*all = hd_grow(*all, *n, cap, sizeof(**all));
	k = &(*all)[(*n)++];
	snprintf(k->name, sizeof(k->name), "%s", name);
	return k;
}

struct hd_kernel_rates *hd_rates_kernel(struct hd_rates *r, const char *name)
{
	return of_name(&r->kernels, &r->n, &r->cap, name);
}

struct hd_kernel_rates *hd_rates_movement(struct hd_rates *r, const char *kind)
{
	return of_name(&r->movements, &r->nmovements, &r->cap_movements, kind);
}

void hd_rates_add(struct hd_rate_points *p, struct hd_rate_point x)
{
	p->v = hd_grow(p->v, p->n, &p->cap, sizeof(*p->v));
	p->v[p->n++] = x;
}

static double between(double x, double y)
{
	return x == y ? 0 : log2(x / y);
}

static int in_order(const void *a, const void *b)
{
	const struct hd_rate_point *x = a, *y = b;

	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	if (x->rows != y->rows)
		return x->rows < y->rows ? -1 : 1;
	if (x->columns != y->columns)
		return x->columns < y->columns ? -1 : 1;
	return x->rate < y->rate ? -1 : x->rate > y->rate;
}

static int is_near(const struct hd_rate_point *a, const struct hd_rate_point *b)
{
	if (a->rows > 0)
		return a->rows == b->rows && a->columns == b->columns && a->summed == b->summed;
	return between(b->at, a->at) < NEAR;
}

/* Returns the median rate of points from .. to - 1, at the geometric mean of their sizes. */
static struct hd_rate_point one_of(struct hd_rate_point *v, size_t from, size_t to)
{
	struct hd_rate_point x = v[from];
	double size = 0, *rates = hd_alloc((to - from) * sizeof(*rates));

	for (size_t i = from; i < to; i++) { /* an insertion sort */
		size_t k = i - from;

		size += log(v[i].at > 0 ? v[i].at : 1) / (double)(to - from);
		for (; k && rates[k - 1] > v[i].rate; k--)
			rates[k] = rates[k - 1];
		rates[k] = v[i].rate;
	}
	x.rate = rates[(to - from) / 2];
	x.at = exp(size);
	free(rates);
	return x;
}

void hd_rates_settle(struct hd_rate_points *p)
{
	size_t n = 0;

	if (p->n)
		qsort(p->v, p->n, sizeof(*p->v), in_order);
	for (size_t i = 0, to; i < p->n; i = to) {
		for (to = i + 1; to < p->n && is_near(&p->v[i], &p->v[to]);)
			to++;
		p->v[n++] = one_of(p->v, i, to);
	}
	p->n = n;
}

static double along(const struct hd_rate_points *p, double at)
{
	size_t i = 0;
	double part;

	while (i < p->n && p->v[i].at <= at)
		i++;
	if (!i || i == p->n)
		return p->v[i ? i - 1 : 0].rate;
	part = between(at, p->v[i - 1].at) / between(p->v[i].at, p->v[i - 1].at);
	return p->v[i - 1].rate * exp2(part * between(p->v[i].rate, p->v[i - 1].rate));
}

static double among(const struct hd_rate_points *p, double rows, double columns, double summed)
{
	double sum = 0, weights = 0;

	for (size_t i = 0; i < p->n; i++) {
		const struct hd_rate_point *x = &p->v[i];
		double r = between(rows, x->rows), c = between(columns, x->columns), s = between(summed, x->summed);
		double far = r * r + c * c + s * s, weight = 1 / (far * far + 1e-6);

		sum += weight * log2(x->rate);
		weights += weight;
	}
	return exp2(sum / weights);
}

static double product_rate(const struct hd_rates *r, const struct hd_rate_work *w, double part)
{
	const struct hd_rate_points *p = &r->products[w->product][w->bf16];
	double rows = w->rows, columns = w->columns;

	for (int k = 0; !p->n && k < HD_PRODUCT_KINDS; k++)
		p = &r->products[k][w->bf16];
	if (!p->n)
		return 0;
	if (rows >= columns)
		rows *= part;
	else
		columns *= part;
	return among(p, rows, columns, w->summed);
}

static double kernel_rate(const struct hd_rates *r, const struct hd_rate_work *w, double part)
{
	for (size_t i = 0; i < r->n; i++) {
		const struct hd_rate_points *p = r->kernels[i].of;

		if (strcmp(r->kernels[i].name, w->kernel))
			continue;
		p += p[w->bf16].n ? w->bf16 : !w->bf16;
		if (!p->n)
			return 0;
		return along(p, w->flops > 0 ? w->flops / w->bytes : w->bytes * part);
	}
	return 0;
}

double hd_rates_seconds(const struct hd_rates *r, const struct hd_rate_work *w)
{
	/* Scales the work to the threads that measured, so that each has the same part. */
	double part = (double)r->threads / (double)w->threads, rate;

	rate = w->product >= 0 ? product_rate(r, w, part) : w->bytes > 0 ? kernel_rate(r, w, part) : 0;
	return rate > 0 ? (w->flops > 0 ? w->flops : w->bytes) / (rate * (double)w->threads) : 0;
}

double hd_rates_moved(const struct hd_rates *r, const char *kind, double sent)
{
	for (size_t i = 0; i < r->nmovements; i++)
		if (!strcmp(r->movements[i].name, kind) && r->movements[i].of[0].n)
			return sent > 0 ? sent / along(&r->movements[i].of[0], sent) : 0;
	return 0;
}
