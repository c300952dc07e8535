/* SPDX-License-Identifier: Apache-2.0
 * The step that bench reports.  If this broke, the communication of a slow step would be reported with the time of a
 * usual one: a step that waits longer than it takes.
 */
#include <config.h>
#include "t/lib/tap.h"
#include "engine/bench/bench.h"

int main(void)
{
	struct hd_bench_step odd[] = { { 0.2, 0.05, 0.03 }, { 9, 8.5, 1 }, { 0.1, 0.01, 0.02 } };
	struct hd_bench_step even[] = { { 4, 3, 1 }, { 1, 0.5, 0 }, { 100, 90, 9 }, { 2, 1, 0.5 } };
	struct hd_bench_step s = hd_bench_middle(odd, 3);

	near(s.seconds, 0.2, 1e-12, "of three steps the median is reported");
	near(s.exposed, 0.05, 1e-12, "... with its own waiting time, not the mean of 2.853");
	near(s.hidden, 0.03, 1e-12, "... and its own hidden communication");
	near(odd[0].seconds, 0.1, 1e-12, "... and the steps are sorted by time");
	s = hd_bench_middle(even, 4);
	near(s.seconds, 3, 1e-12, "of four steps the mean of the middle two is reported");
	near(s.exposed, 2, 1e-12, "... with the mean of their waiting times");
	near(s.hidden, 0.75, 1e-12, "... and of their hidden communication");
	return done();
}
