/* SPDX-License-Identifier: Apache-2.0
 * Rates measured while the machine was busy with other work.  If the warning about them broke, plans would silently
 * rely on them; if it mistook the effect of caches for other work, nobody would heed it.
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

	near(fall(5, busy, &from, &to), 500, 1e-9, "a rate falls by a factor of 500 while the size grows by four");
	is_int((long long)from, 1, "... from the size with the highest rate");
	is_int((long long)to, 3, "... to the one with the lowest");
	near(fall(4, caches, &from, &to), 0, 0, "the slower decline by caches is not a fall");
	near(fall(0, NULL, &from, &to), 0, 0, "without measurements there is no fall");
	is_int(hd_rates_warn_of_falls(r, &none), 0, "... and no warning");
	p = &hd_rates_kernel(r, "norm")->of[HD_RATE_FP32];
	for (int i = 0; i < 5; i++)
		hd_rates_add(p, (struct hd_rate_point){ .at = busy[i][0], .rate = busy[i][1] });
	is_int(hd_rates_warn_of_falls(r, &none), 1, "one curve with a fall gives one warning");
	is_int(hd_rates_warn_of_falls(r, p), 2, "a fall of the memory's rate gives another");
	hd_rates_destroy(r);
	return done();
}
