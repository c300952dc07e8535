/* SPDX-License-Identifier: Apache-2.0
 * Ranks of different hosts, simulated on one.  If this broke, a run over several machines would be
 * wrong while a run on one machine is right.
 */
#include <config.h>
#include "lib/comm_test.h"
#include "lib/mpi.h"
#include "lib/tap.h"

static int is_refused(struct hd_communicator *m, uint32_t kind, uint32_t dtype, uint32_t wire, struct hd_err *err)
{
	struct hd_call c = { .kind = kind, .dtype = dtype, .wire = wire, .count = 3000000000 };

	memset(err, 0, sizeof(*err));
	return hd_comm_check(m, &c, err) == HD_ENOTSUP;
}

/* A call of MPI counts in int, which messages do not. */
static int long_main(void)
{
	int all[] = { 0, 1 };
	struct hd_communicator *m;
	struct hd_request t;
	struct hd_call c = { .kind = HD_COMM_ALL_REDUCE, .dtype = HD_DTYPE_F32, .count = 3000000000 };
	struct hd_err err;

	if (!open_all(1 << 20))
		return 1;
	m = hd_communicator_create(all, 2, "all");
	if (!is_refused(m, HD_COMM_ALL_REDUCE, HD_DTYPE_F32, 0, &err) || !strstr(err.text, "all-reduce on group all") ||
	    !strstr(err.text, "3000000000") || !strstr(err.text, "2147483647"))
		WRONG("a sum of 3000000000 elements: %s", err.text);
	if (hd_comm_start(m, &c, &t) != HD_ENOTSUP)
		WRONG("it is started");
	if (is_refused(m, HD_COMM_ALL_REDUCE, HD_DTYPE_BF16, 0, &err) ||
	    is_refused(m, HD_COMM_ORDERED_REDUCE_SCATTER, HD_DTYPE_F32, HD_DTYPE_BF16, &err) ||
	    is_refused(m, HD_COMM_SEND, HD_DTYPE_F32, 0, &err))
		WRONG("messages are refused: %s", err.text);
	hd_comm_close();
	return wrong != 0;
}

/* Messages that are cut into pieces, some of them into hundreds. */
static int pieces_main(void)
{
	int all[] = { 0, 1, 2 };
	struct hd_communicator *m;

	if (!open_all(16 << 20))
		return 1;
	m = hd_communicator_create(all, 3, "all");
	for (int turn = 0; turn < 5; turn++)
		check_rows(m, all, turn, 0);
	for (uint32_t kind = HD_COMM_ALL_REDUCE; kind <= HD_COMM_ORDERED_REDUCE_SCATTER; kind++)
		for (size_t d = 0; d < HD_LEN(dtypes); d++)
			check_kind(m, all, kind, dtypes[d], 1001, 1, 0, 0);
	check_orders(m, all);
	check_messages(m, 40, 3000, 0);
	hd_comm_close();
	return wrong != 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return !strcmp(argv[1], "long")     ? long_main()
		       : !strcmp(argv[1], "pieces") ? pieces_main()
		       : !strcmp(argv[1], "orders") ? check_orders_alone()
						    : check_everything();
	setenv("HD_TEST_COMM", "mpi", 1);
	for (int n = 2; n <= 4; n++) {
		char name[80];

		snprintf(name, sizeof(name), "every kind and type works on %d hosts", n);
		is_int(mpi_run(n, 18, "%s rank", argv[0]), 0, name);
	}
	is_int(mpi_run(7, 18, "%s orders", argv[0]), 0, "sums of 7 members follow a given order");
	is_int(mpi_run(2, 18, "%s long", argv[0]), 0, "calls that are too long for MPI are refused");
	setenv("HD_TEST_COMM_PIECE", "50", 1);
	is_int(mpi_run(3, 18, "%s pieces", argv[0]), 0, "long messages are cut into pieces");
	return done();
}
