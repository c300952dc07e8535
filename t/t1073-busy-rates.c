/* SPDX-License-Identifier: Apache-2.0
 * Rates that were measured beside other work.  If their warning broke, plans would be made by them without a word; if caches
 * were taken for it, nobody would heed it.
 */
#include <config.h>
#include "t/lib/tap.h"
#include "engine/rates/rates.h"

static double fall(int n, const double (*x)[2], size_t *from, size_t *to)
{
	struct hd_rate_points p = { NULL, 0, 0 };
	double f;

	for (int i = 0; i < n; i++)
		hd_rates_add(&p, (struct hd_rate_point){ .at = x[i][0], .rate = x[i][1] });
	f = hd_rates_fall(&p, from, to);
	free(p.v);
	return f;
}

int main(void)
{
	static const double busy[][2] = { { 1e4, 1e9 }, { 4e4, 5e9 }, { 8e4, 4e9 }, { 16e4, 1e7 }, { 64e4, 4e9 } },
			    caches[][2] = { { 1e4, 40e9 }, { 4e4, 10e9 }, { 16e4, 4e9 }, { 1e7, 1e8 } };
	struct hd_rates *r = hd_alloc(sizeof(*r));
	struct hd_rate_points none = { NULL, 0, 0 }, *p;
	size_t from = 9, to = 9;

	near(fall(5, busy, &from, &to), 500, 1e-9, "500 times less where sizes grow by four");
	is_int((long long)from, 1, "from the size with most");
	is_int((long long)to, 3, "to the one with least");
	near(fall(4, caches, &from, &to), 0, 0, "caches: four times less, and less yet far away");
	near(fall(0, NULL, &from, &to), 0, 0, "nothing was measured");
	is_int(hd_rates_warn_of_falls(r, &none), 0, "no warning of nothing");
	p = &hd_rates_kernel(r, "norm")->of[HD_RATE_FP32];
	for (int i = 0; i < 5; i++)
		hd_rates_add(p, (struct hd_rate_point){ .at = busy[i][0], .rate = busy[i][1] });
	is_int(hd_rates_warn_of_falls(r, &none), 1, "a warning of one curve");
	is_int(hd_rates_warn_of_falls(r, p), 2, "of memory too");
	hd_rates_destroy(r);
	return done();
}
