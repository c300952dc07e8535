/* SPDX-License-Identifier: Apache-2.0
 * The additional time of each launch, measured while the machine becomes faster or slower.  If this broke, a plan for
 * one rank with all cores could take twice as long as the run.
 */
#include <config.h>
#include "engine/base/rng.h"
#include "engine/measure/launch_fit.h"
#include "t/lib/tap.h"

/* Adds n launches of 3 us to 20 ms, as many in each octave, each `each` seconds longer and all `slower` times slower.
 * noise: the standard deviation of a time, as its share. */
static struct hd_launch_fit launches(int n, double each, double slower, double noise)
{
	struct hd_launch_fit d = { 0 };

	for (int i = 0; i < n; i++) {
		double expected = 3e-6 * pow(20e-3 / 3e-6, hd_random_uniform(1, (uint64_t)i));
		double seconds = expected * (slower + noise * hd_random_normal(2, (uint64_t)i)) + each;

		hd_launch_fit_add(&d, expected, seconds);
	}
	return d;
}

static double fit(int n, double each, double slower)
{
	struct hd_launch_fit d = launches(n, each, slower, 0);

	return hd_launch_fit_extra(&d);
}

/* Each launch's error times the root of its weight is below `noise`. So the variance of the estimate is below that of
 * least squares with equal errors, noise^2 (sum x^2) / (n sum x^2 - (sum x)^2). */
static void noisy(void)
{
	const double noise = 0.1;
	struct hd_launch_fit d = launches(1000, 5e-6, 1.3, noise);
	double deviation = noise * sqrt(d.xx / (d.n * d.xx - d.x * d.x));

	ok(deviation < 2e-6, "a tenth of noise leaves an error of %.2f us", 1e6 * deviation);
	near(hd_launch_fit_extra(&d), 5e-6, 4 * deviation, "... and not more");
}

int main(void)
{
	struct hd_launch_fit one = { 0 }, same = { 0 };

	near(fit(1000, 0, 1), 0, 1e-12, "launches as long as expected: nothing is added");
	near(fit(1000, 5e-6, 1), 5e-6, 1e-12, "the time of each is found");
	near(fit(1000, 5e-6, 1.3), 5e-6, 1e-12, "... on a machine that became slower");
	near(fit(1000, 5e-6, 0.8), 5e-6, 1e-12, "... or faster");
	near(fit(2, 5e-6, 1.3), 5e-6, 1e-12, "... from two launches");
	noisy();
	hd_launch_fit_add(&one, 1e-3, 2e-3);
	near(hd_launch_fit_extra(&one), 0, 0, "one launch alone tells nothing");
	near(hd_launch_fit_extra(&same), 0, 0, "and no launch either");
	for (int i = 0; i < 10; i++)
		hd_launch_fit_add(&same, 1e-3, 1.1e-3);
	near(hd_launch_fit_extra(&same), 0, 0, "launches of one length do not tell drift from a time of each");
	return done();
}
