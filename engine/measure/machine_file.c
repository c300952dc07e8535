/* SPDX-License-Identifier: Apache-2.0
 * Writes the machine file: first [machine], from the best measured rates, for all that has no measured rate; then these
 * rates.
 */
#include <config.h>
#include "engine/measure/measure.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double best(const struct hd_rates *r, int type)
{
	double most = 0;

	for (int k = 0; k < HD_PRODUCT_KINDS; k++)
		for (size_t i = 0; i < r->products[k][type].n; i++)
			most = fmax(most, r->products[k][type].v[i].rate);
	return most;
}

static double best_of(const struct hd_rate_points *p)
{
	double most = 0;

	for (size_t i = 0; i < p->n; i++)
		most = fmax(most, p->v[i].rate);
	return most;
}

/* Prints rates as shares of the best, by size: "1e6:0.3, 1e8:0.9". The sizes increase. */
static void print_shares(FILE *to, const char *key, const struct hd_rate_points *p, double most)
{
	fprintf(to, "%s = ", key);
	for (size_t i = 0; i < p->n; i++)
		fprintf(to, "%s%.3g:%.3g", i ? ", " : "", p->v[i].at, fmin(p->v[i].rate / most, 1));
	fprintf(to, "\n");
}

/* Prints the efficiency of fp32 products of all kinds, by their FLOPs, with a new point at each factor of four. */
static void print_efficiency(FILE *to, const struct hd_rates *r)
{
	struct hd_rate_points p = { NULL, 0, 0 };

	for (int k = 0; k < HD_PRODUCT_KINDS; k++)
		for (size_t i = 0; i < r->products[k][HD_RATE_FP32].n; i++) {
			const struct hd_rate_point *x = &r->products[k][HD_RATE_FP32].v[i];
			double flops = 2 * x->rows * x->columns * x->summed;

			hd_rates_add(&p,
				     (struct hd_rate_point){ .at = exp2(2 * floor(log2(flops) / 2)), .rate = x->rate });
		}
	hd_rates_settle(&p);
	print_shares(to, "efficiency", &p, best(r, HD_RATE_FP32));
	free(p.v);
}

/* Returns the share of the best rate that point i reaches without latency, which is charged separately. If it takes no
 * longer than the first point, all of its time counts as latency. */
static double share_of(const struct hd_rate_points *p, size_t i, double most)
{
	double seconds = p->v[i].at / p->v[i].rate - p->v[0].at / p->v[0].rate;

	return seconds > 0 ? fmin(fmax(p->v[i].at / seconds / most, 0.01), 1) : 1;
}

static void print_link(FILE *to, const char *name, const struct hd_rate_points *p, double members, double otherwise)
{
	double most = p ? best_of(p) : 0;

	if (most <= 0) {
		fprintf(to, "%s_bandwidth = %.3g\t; not measured: there was only one rank\n", name, otherwise);
		return;
	}
	fprintf(to, "%s_bandwidth = %.3g\t; of sums, by the bytes that a rank sends\n", name, most);
	fprintf(to, "%s_latency = %.3g\n", name, p->v[0].at / p->v[0].rate / (2 * (members - 1)));
	fprintf(to, "%s_efficiency = ", name);
	for (size_t i = 0; i < p->n; i++)
		fprintf(to, "%s%.3g:%.3g", i ? ", " : "", p->v[i].at, share_of(p, i, most));
	fprintf(to, "\n");
}

static double host_memory(void)
{
	return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

/* Returns the bytes of memory of one rank. */
static double rank_memory(const struct hd_job *j)
{
	int64_t left;

	if (hd_device_in_host(j->device))
		return host_memory() / (double)j->world.local_size;
	return (double)j->device->memory(&left);
}

static const struct hd_rate_points *sums(const struct hd_rates *r)
{
	for (size_t i = 0; i < r->nmovements; i++)
		if (!strcmp(r->movements[i].name, "all-reduce"))
			return &r->movements[i].of[0];
	return NULL;
}

void hd_machine_print(const struct hd_measuring *m, const struct hd_rate_points *memory,
		      const struct hd_rate_points *network, FILE *to)
{
	const struct hd_world *w = &m->j->world;
	const struct hd_rates *r = m->rates;
	double each = (double)r->threads, here = (double)w->local_size;

	fprintf(to, "; %s: %lld core%s, measured by `heddle machine` with %d rank%s of %lld thread%s.\n", r->processor,
		(long long)r->cores, hd_plural(r->cores, "s"), w->size, hd_plural(w->size, "s"), (long long)r->threads,
		hd_plural(r->threads, "s"));
	fprintf(to,
		"; [machine] describes one such rank, and is used for what the rates below do not cover.\n[machine]\n");
	fprintf(to, "name = %s\nranks_per_node = %d\n", r->processor, w->local_size);
	fprintf(to, "memory = %.0fM\n", rank_memory(m->j) / 1048576);
	fprintf(to, "context_memory = %.0fK\t; of a process, besides what is planned: program, libraries, MPI\n",
		m->process_memory / 1024);
	fprintf(to, "flops_fp32 = %.4g\t; the best measured\nflops_bf16 = %.4g\n", each * best(r, HD_RATE_FP32),
		each * best(r, HD_RATE_BF16));
	print_efficiency(to, r);
	if (m->sustained > 0)
		fprintf(to,
			"sustained_clock = %.3g\t; share of the speed of products left after seconds of them: power limits\n",
			m->sustained);
	fprintf(to, "memory_bandwidth = %.3g\t; %s\n", best_of(memory),
		hd_device_in_host(m->j->device) ? "a = b + s c, bytes of all three"
						: "the best of norms, sums, additions and updates");
	print_shares(to, "memory_efficiency", memory, best_of(memory));
	print_link(to, "node", sums(r), here, best_of(memory) / 2);
	if (w->hosts > 1)
		print_link(to, "network", network, w->hosts, 0);
	hd_rates_print(r, to);
}
