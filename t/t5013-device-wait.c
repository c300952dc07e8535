/* SPDX-License-Identifier: Apache-2.0
 * While a rank waits for a GPU's step, its naps stay short, however long the step takes.  If they grew like those for
 * other ranks, each step on several GPUs would begin a millisecond late, twice.  Sleeps are counted and measured by
 * their arguments, since libc's function is replaced; only their number depends on the machine's time.
 */
#include <config.h>
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "engine/comm/comm.h"
#include "engine/device/device.h"
#include "t/lib/tap.h"
#include <poll.h>
#include <time.h>

static double longest;
static int naps, turns;

int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask)
{
	double s = ts ? (double)ts->tv_sec + 1e-9 * (double)ts->tv_nsec : 0;
	struct timespec left = ts ? *ts : (struct timespec){ 0 };

	(void)fds, (void)n, (void)mask;
	naps++;
	longest = s > longest ? s : longest;
	nanosleep(&left, NULL);
	return 0;
}

/* A device whose work is done after so many naps.  Growing naps would start to grow after 10 ms and reach 1 ms after
 * 20 ms. */
static int ready(void)
{
	return naps >= turns;
}
static int finish(struct hd_err *err)
{
	(void)err;
	return 0;
}
static int load(struct hd_err *err)
{
	(void)err;
	return 0;
}
static int make_id(void *id, struct hd_err *err)
{
	(void)id, (void)err;
	return 0;
}
static int open_comm(const void *id, int rank, int size, struct hd_err *err)
{
	(void)id, (void)rank, (void)size, (void)err;
	return 0;
}
static int poll_comm(struct hd_err *err)
{
	(void)err;
	return 0;
}

int main(void)
{
	const struct hd_device_ops d = { .name = "a GPU", .ready = ready, .finish = finish };
	const struct hd_device_comm c = {
		.name = "its own", .id_bytes = 8, .load = load, .id = make_id, .open = open_comm, .poll = poll_comm
	};
	struct hd_world w = { 0 };
	struct hd_err err = { 0 };

	if (hd_comm_open(&w, &err) < 0 || hd_comm_device(&c, &err) < 0)
		return fprintf(stderr, "%s\n", err.text), 1;
	turns = 600;
	is_int(hd_comm_finish(&d, &err), 0, "waiting for the device succeeds");
	ok(naps >= turns, "... with %d naps", naps);
	ok(longest <= 50e-6, "... of at most %.0f us", 1e6 * longest);
	hd_comm_close();
	return done();
}
