/* SPDX-License-Identifier: Apache-2.0
 * Ranks of different hosts, simulated on one.  If this broke, a run over several machines would be
 * wrong while a run on one machine is right.
 */
#include <config.h>
#include "lib/comm_test.h"
#include "lib/mpi.h"
#include "lib/tap.h"

int main(int argc, char **argv)
{
	if (argc > 1)
		return strcmp(argv[1], "orders") ? check_everything() : check_orders_alone();
	setenv("HD_TEST_COMM", "mpi", 1);
	for (int n = 2; n <= 4; n++) {
		char name[80];

		snprintf(name, sizeof(name), "every kind and type works on %d hosts", n);
		is_int(mpi_run(n, 18, "%s rank", argv[0]), 0, name);
	}
	is_int(mpi_run(7, 18, "%s orders", argv[0]), 0, "sums of 7 members follow a given order");
	return done();
}
