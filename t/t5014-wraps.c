/* SPDX-License-Identifier: Apache-2.0
 * Numbers of calls and messages wrap: tags of sums at 8192, mailboxes at 64, half of a request's number at 2^32.  A
 * group starts shortly before such a number, or before the 20,000th wrap, and all communication is checked across it. 
 * If this broke, a run would hang after days, or add a different step's gradients.
 */
#include <config.h>
#define wait wait_for /* <sys/wait.h> has one too */
#include "engine/comm/transport/shm.c"
#include "engine/comm/transport/shm_messages.c" /* whose counters are set below */
#undef wait
#include "t/lib/comm_test.h"
#include "t/lib/mpi.h"
#include "t/lib/tap.h"

#define WRAPS 20000
#define TAGS 8192 /* of engine/comm/transport/net_members.c */

/* Sets counters as if each pair and channel had passed n messages, and n calls and barriers had run; MAILBOXES divides
 * n. */
static void count_from(struct hd_communicator *m, uint64_t n)
{
	hd_comm_barrier();
	for (int j = 0; j < m->n * HD_CHANNELS; j++)
		m->shm.sent[j] = m->shm.received[j] = n;
	for (int j = 0; j < m->n; j++)
		for (uint32_t channel = 0; channel < HD_CHANNELS; channel++)
			for (uint64_t k = n - MAILBOXES; k < n; k++) {
				struct hd_mailbox *b = mailbox_of(m, m->me, j, channel, k);

				b->posted = b->taken = k + 1;
				b->fd = -1;
			}
	m->shm.calls = m->shm.step = n;
	member_of(m, m->me)->step = n;
	hd_comm_barrier();
}

static void check_across(struct hd_communicator *m, const int *ranks)
{
	for (int where = 0; where < 2; where++) {
		check_messages(m, 40, 300, where);
		check_messages(m, 150, 7, where);
	}
	for (uint32_t kind = HD_COMM_ALL_REDUCE; kind <= HD_COMM_ORDERED_REDUCE_SCATTER; kind++)
		for (int64_t count = 3; count < 4000; count += 3000)
			check_kind(m, ranks, kind, HD_DTYPE_F32, count, kind == HD_COMM_SHIFT ? 1 : 0, 0, 0);
	check_orders(m, ranks);
}

static int run_rank(int shared)
{
	static const uint64_t messages[] = { (uint64_t)WRAPS * MAILBOXES - MAILBOXES, (1ull << 31) - MAILBOXES,
					     (1ull << 32) - MAILBOXES, (1ull << 33) - MAILBOXES,
					     (1ull << 48) - MAILBOXES };
	static const uint64_t sums[] = { (uint64_t)WRAPS * TAGS - 5, (1ull << 31) - 5, (1ull << 32) - 5,
					 (1ull << 63) - 5, 0ull - 5 };
	int all[8];

	if (!open_all(16 << 20))
		return 1;
	for (int i = 0; i < world.size; i++)
		all[i] = i;
	for (int i = 0; i < 5; i++) {
		struct hd_communicator *m = hd_communicator_create(all, world.size, "all");

		check_transport(m);
		if (shared)
			count_from(m, messages[i]);
		m->net.sums = sums[i];
		check_across(m, all);
		if (shared && m->shm.sent[(m->me ^ 1) * HD_CHANNELS] < messages[i] + 380)
			WRONG("rank %d: %llu messages, not 380 or more after %llu", world.rank,
			      (unsigned long long)m->shm.sent[(m->me ^ 1) * HD_CHANNELS],
			      (unsigned long long)messages[i]);
		if (!shared && m->net.sums - sums[i] < 10)
			WRONG("rank %d: sums were not counted", world.rank);
	}
	hd_comm_close();
	return wrong != 0;
}

/* Passes all wraps of the mailboxes in turn, from the first member to the second. */
static int run_all(void)
{
	static const int both[] = { 0, 1 };
	struct hd_request r[MAILBOXES];
	struct hd_communicator *m;
	int32_t *data;

	if (!open_all(1 << 20))
		return 1;
	m = hd_communicator_create(both, 2, "both");
	data = (int32_t *)arena + (int64_t)m->me * MAILBOXES;
	for (int turn = 0; turn < WRAPS && !wrong; turn++) {
		for (int k = 0; k < MAILBOXES; k++) {
			struct hd_call c = { .kind = m->me ? HD_COMM_RECV : HD_COMM_SEND,
					     .dtype = HD_DTYPE_I32,
					     .index = !m->me,
					     .count = 1,
					     .in = &data[k],
					     .out = &data[k] };

			if (!m->me)
				data[k] = turn * MAILBOXES + k;
			hd_comm_start(m, &c, &r[k]);
		}
		for (int k = 0; k < MAILBOXES; k++) {
			hd_comm_wait(&r[k]);
			if (m->me && data[k] != turn * MAILBOXES + k)
				WRONG("message %d of wrap %d is %d", k, turn, data[k]);
		}
	}
	hd_comm_close();
	return wrong != 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return !strcmp(argv[1], "all") ? run_all() : run_rank(!strcmp(argv[1], "shared"));
	is_int(mpi_run(2, 30, "%s shared", argv[0]), 0, "shared memory works across each number that wraps");
	is_int(mpi_run(4, 30, "%s shared", argv[0]), 0, "... also on four ranks");
	is_int(mpi_run(2, 60, "%s all", argv[0]), 0, "a pair's mailboxes wrap 20,000 times");
	setenv("HD_TEST_COMM", "mpi", 1);
	is_int(mpi_run(2, 30, "%s network", argv[0]), 0, "tags of sums wrap on the network");
	return done();
}
