/* SPDX-License-Identifier: Apache-2.0
 * Detects that a machine was busy while it was measured: a rate then falls steeply as sizes grow. Caches cause smaller
 * falls.
 */
#include <config.h>
#include "engine/rates/rates.h"
#include <stdlib.h>

#define FALL 4.0 /* a rate falls if it is so many times smaller */
#define SIZE 4.0 /* at a size that is at most so many times larger */

double hd_rates_fall(const struct hd_rate_points *p, size_t *from, size_t *to)
{
	double most = 0;

	for (size_t i = 0; i < p->n; i++)
		for (size_t k = i + 1; k < p->n && p->v[k].at <= SIZE * p->v[i].at * (1 + 1e-9); k++) {
			double fall = p->v[i].rate / p->v[k].rate;

			if (fall <= FALL || fall <= most)
				continue;
			most = fall;
			*from = i, *to = k;
		}
	return most;
}

struct worst_fall {
	double fall;
	char *text;
	int curves;
};

static void look(struct worst_fall *w, const char *section, const char *name, const char *key,
		 const struct hd_rate_points *p)
{
	size_t i = 0, k = 0;
	double fall = hd_rates_fall(p, &i, &k);

	w->curves += fall > 0;
	if (fall <= w->fall)
		return;
	free(w->text);
	w->fall = fall;
	w->text = hd_format("[%s%s%s] %s falls from %.3g at %.3g to %.3g at %.3g", section, *name ? " " : "", name, key,
			    p->v[i].rate, p->v[i].at, p->v[k].rate, p->v[k].at);
}

int hd_rates_warn_of_falls(const struct hd_rates *r, const struct hd_rate_points *memory)
{
	static const char *const types[HD_RATE_TYPES] = { "fp32", "bf16" };
	struct worst_fall w = { .fall = 0 };

	look(&w, "machine", "", "memory_efficiency", memory);
	for (size_t i = 0; i < r->n; i++)
		for (int t = 0; t < HD_RATE_TYPES; t++)
			look(&w, "kernel", r->kernels[i].name, types[t], &r->kernels[i].of[t]);
	for (size_t i = 0; i < r->nmovements; i++)
		look(&w, "movement", r->movements[i].name, "rate", &r->movements[i].of[0]);
	if (w.curves)
		hd_log(HD_LOG_WARN,
		       "machine: %s, %.0f times lower; %d curve%s fall%s by more than %.0f times where sizes grow by "
		       "%.0f times. Was the machine busy? Measure again without other work, or predicted steps are "
		       "too slow",
		       w.text, w.fall, w.curves, w.curves > 1 ? "s" : "", w.curves > 1 ? "" : "s", FALL, SIZE);
	free(w.text);
	return w.curves;
}
