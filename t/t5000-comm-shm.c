/* SPDX-License-Identifier: Apache-2.0
 * Ranks of one host: if this breaks, gradients of ranks that share a machine are silently wrong,
 * or a step hangs.
 */
#include <config.h>
#include "lib/comm_test.h"
#include "lib/mpi.h"
#include "lib/tap.h"

static void check_bytes(void)
{
	is_int(hd_comm_bytes(HD_COMM_ALL_REDUCE, HD_DTYPE_F32, 100, 4, 0, 0), 600,
	       "all-reduce: 2 (n - 1) / n of the bytes");
	is_int(hd_comm_bytes(HD_COMM_ALL_REDUCE, HD_DTYPE_F32, 100, 1, 0, 0), 0, "alone: nothing is sent");
	is_int(hd_comm_bytes(HD_COMM_REDUCE_SCATTER, HD_DTYPE_BF16, 100, 4, 0, 0), 600,
	       "reduce-scatter: (n - 1) / n of n pieces");
	is_int(hd_comm_bytes(HD_COMM_SCATTER, HD_DTYPE_U8, 10, 3, 1, 1), 20, "scatter: the root sends n - 1 pieces");
	is_int(hd_comm_bytes(HD_COMM_SCATTER, HD_DTYPE_U8, 10, 3, 0, 1), 0, "scatter: others send nothing");
	is_int(hd_comm_bytes(HD_COMM_SHIFT, HD_DTYPE_F32, 10, 3, 0, -3), 0, "a shift by n stays at home");
	is_int(hd_call_from(&(struct hd_call){ .kind = HD_COMM_RECV, .index = 2 }, 4, 1), 2, "whom a receive is from");
	is_int(hd_call_from(&(struct hd_call){ .kind = HD_COMM_SHIFT, .index = 1 }, 4, 0), 3, "and a shift");
	is_int(hd_comm_bytes(HD_COMM_SEND, HD_DTYPE_B1, 10, 3, 0, 1), 2, "signs are bits");
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return strcmp(argv[1], "orders") ? check_everything() : check_orders_alone();
	check_bytes();
	for (int n = 1; n <= 4; n++) {
		char name[80];

		snprintf(name, sizeof(name), "every kind and type on %d rank%s", n, n > 1 ? "s" : "");
		is_int(mpi_run(n, 18, "%s rank", argv[0]), 0, name);
	}
	is_int(mpi_run(7, 18, "%s orders", argv[0]), 0, "sums in a stated order, of 7 members");
	setenv("HD_TEST_COMM", "private", 1);
	is_int(mpi_run(2, 18, "%s rank", argv[0]), 0, "ranks of a host that cannot share memory");
	return done();
}
