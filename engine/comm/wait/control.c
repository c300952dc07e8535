/* SPDX-License-Identifier: Apache-2.0
 * The control channel: a few small, blocking exchanges between all ranks, always over MPI.
 *
 * A wait is a loop of tests with hd_backoff_wait between them. So the progress thread can work, dead peers are
 * noticed, and a waiting rank leaves its core to others.
 */
#include <config.h>
#include "engine/comm/world/mpi_calls.h"
#include "engine/comm/wait/wait.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE (1 << 30) /* bytes: MPI counts in int */

static void finish(MPI_Request *r, const char *what)
{
	struct hd_backoff p;
	int done = 0;

	hd_backoff_begin(&p, NULL, what);
	for (;;) {
		HD_MPI(MPI_Test(r, &done, MPI_STATUS_IGNORE));
		if (done)
			break;
		hd_backoff_wait(&p, -1);
	}
	hd_backoff_end(&p);
}

void hd_comm_barrier(void)
{
	MPI_Request r;

	if (!hd_here.mpi)
		return;
	HD_MPI(MPI_Ibarrier(hd_mpi_world, &r));
	finish(&r, "a barrier of all ranks");
}

void hd_comm_bcast(void *buf, size_t bytes, int root)
{
	MPI_Request r;

	for (size_t at = 0; hd_here.mpi && at < bytes; at += PIECE) {
		size_t n = bytes - at < PIECE ? bytes - at : PIECE;

		HD_MPI(MPI_Ibcast((char *)buf + at, (int)n, MPI_BYTE, root, hd_mpi_world, &r));
		finish(&r, "a broadcast to all ranks");
	}
}

char *hd_comm_bcast_text(const char *text, int root)
{
	int64_t n = hd_here.w.rank == root ? (int64_t)strlen(text) : 0;
	char *s;

	hd_comm_bcast(&n, sizeof(n), root);
	s = hd_alloc((size_t)n + 1);
	if (hd_here.w.rank == root)
		memcpy(s, text, (size_t)n);
	hd_comm_bcast(s, (size_t)n, root);
	return s;
}

static char **texts_cut(const char *all, const int *len)
{
	char **texts = hd_alloc((size_t)hd_here.w.size * sizeof(*texts));

	for (int i = 0; i < hd_here.w.size; all += len[i++]) {
		texts[i] = hd_alloc((size_t)len[i] + 1);
		memcpy(texts[i], all, (size_t)len[i]);
	}
	return texts;
}

char **hd_comm_gather_text(const char *text)
{
	int n = (int)strlen(text), size = hd_here.w.size, first = hd_here.w.rank == 0;
	int *len = hd_alloc((size_t)size * sizeof(int)), *at = hd_alloc((size_t)size * sizeof(int));
	char *all = NULL, **texts = NULL;
	MPI_Request r;

	len[0] = n;
	if (hd_here.mpi) {
		HD_MPI(MPI_Igather(&n, 1, MPI_INT, len, 1, MPI_INT, 0, hd_mpi_world, &r));
		finish(&r, "a gather of texts from all ranks");
	}
	for (int i = 1; i < size; i++)
		at[i] = at[i - 1] + len[i - 1];
	if (first)
		all = hd_alloc((size_t)at[size - 1] + (size_t)len[size - 1]);
	if (hd_here.mpi) {
		HD_MPI(MPI_Igatherv(text, n, MPI_BYTE, all, len, at, MPI_BYTE, 0, hd_mpi_world, &r));
		finish(&r, "a gather of texts from all ranks");
	}
	if (first)
		texts = texts_cut(hd_here.mpi ? all : text, len);
	free(all);
	free(len);
	free(at);
	return texts;
}

static double all_double(double x, MPI_Op op, const char *what)
{
	MPI_Request r;

	if (!hd_here.mpi)
		return x;
	HD_MPI(MPI_Iallreduce(MPI_IN_PLACE, &x, 1, MPI_DOUBLE, op, hd_mpi_world, &r));
	finish(&r, what);
	return x;
}

double hd_comm_max(double x)
{
	return all_double(x, MPI_MAX, "a maximum over all ranks");
}

double hd_comm_sum(double x)
{
	return all_double(x, MPI_SUM, "a sum over all ranks");
}

/* Adds the rank and its host to the message of an error that only some ranks have, such as a file missing on one host.
 * Does nothing if all ranks are on one host. */
static void name_failed(struct hd_err *err, int failed)
{
	char *who, *text;

	if (failed == hd_here.w.size || !hd_here.host_of || !err->code || err->agreed)
		return;
	who = hd_rank_text(hd_here.w.rank);
	text = hd_format("%s: %s", who, err->text);
	if (!strstr(err->text, who))
		snprintf(err->text, sizeof(err->text), "%s", text);
	free(who);
	free(text);
}

int hd_comm_agree(struct hd_err *err)
{
	double size = hd_here.w.size;
	double first = all_double(err->code ? hd_here.w.rank : size, MPI_MIN, "an agreement of all ranks on errors");

	if (first < size) {
		name_failed(err, (int)hd_comm_sum(err->code != 0));
		hd_comm_bcast(err, sizeof(*err), (int)first);
		err->agreed = 1;
	}
	return err->code;
}

/* -- exchanges on a second thread, while the run goes on ------------------------------------- */
static MPI_Comm side_comm = MPI_COMM_NULL;

void hd_comm_side_open(void)
{
	if (hd_here.mpi && side_comm == MPI_COMM_NULL)
		HD_MPI(MPI_Comm_dup(hd_mpi_world, &side_comm));
}

/* Waits without watching for dead peers, because the thread that trains does that. */
static void side_finish(MPI_Request *r)
{
	for (int done = 0; !done;) {
		HD_MPI(MPI_Test(r, &done, MPI_STATUS_IGNORE));
		if (!done)
			usleep(500);
	}
}

static double side_double(double x, MPI_Op op)
{
	MPI_Request r;

	HD_MPI(MPI_Iallreduce(MPI_IN_PLACE, &x, 1, MPI_DOUBLE, op, side_comm, &r));
	side_finish(&r);
	return x;
}

double hd_comm_side_sum(double x)
{
	return hd_here.mpi ? side_double(x, MPI_SUM) : x;
}

int hd_comm_side_agree(struct hd_err *err)
{
	double size = hd_here.w.size, first;
	MPI_Request r;

	if (!hd_here.mpi)
		return hd_comm_agree(err);
	first = side_double(err->code ? hd_here.w.rank : size, MPI_MIN);
	if (first >= size)
		return HD_OK;
	name_failed(err, (int)side_double(err->code != 0, MPI_SUM));
	HD_MPI(MPI_Ibcast(err, (int)sizeof(*err), MPI_BYTE, (int)first, side_comm, &r));
	side_finish(&r);
	err->agreed = 1;
	return err->code;
}
