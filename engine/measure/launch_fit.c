/* SPDX-License-Identifier: Apache-2.0
 * Separates an additional time of each launch from the drift of the machine.
 *
 * A machine that has become slower adds a share to each time, and so most to long launches. What is looked for adds
 * as much to a short launch as to a long one. So the measured times y are fitted by a line over the expected times x,
 * y = each + drift x, by least squares. A mean of y - x would be the drift of the few longest launches.
 */
#include <config.h>
#include "engine/measure/launch_fit.h"

#define SHORT 1e-4 /* seconds: errors of longer launches grow with their times, those of shorter ones do not shrink */

void hd_launch_fit_add(struct hd_launch_fit *d, double expected, double seconds)
{
	double error = expected + SHORT, weight = 1 / (error * error);

	d->n += weight;
	d->x += weight * expected;
	d->xx += weight * expected * expected;
	d->y += weight * seconds;
	d->xy += weight * expected * seconds;
}

double hd_launch_fit_extra(const struct hd_launch_fit *d)
{
	double spread = d->n * d->xx - d->x * d->x;

	return spread > 1e-9 * d->n * d->xx ? (d->xx * d->y - d->x * d->xy) / spread : 0;
}
