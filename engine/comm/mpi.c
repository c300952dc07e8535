/* SPDX-License-Identifier: Apache-2.0
 * MPI's start and end, and the control channel: few, blocking, small exchanges between all ranks.
 *
 * Never two threads are inside MPI: each call holds hd_mpi_lock, and a wait is a loop of tests
 * with hd_pause between them, so the progress thread can work, dead peers are seen, and a waiting
 * rank leaves its core to others.
 *
 * A process that no launcher started skips MPI: starting it as a singleton takes a third of a
 * second.
 */
#include <config.h>
#include "engine/comm/mpi_calls.h"
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

pthread_mutex_t hd_mpi_lock = PTHREAD_MUTEX_INITIALIZER;
MPI_Comm hd_mpi_world = MPI_COMM_NULL;
static MPI_Comm host = MPI_COMM_NULL; /* the ranks of this host */

#define PIECE (1 << 30) /* bytes: MPI counts in int */

int hd_mpi_launched(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK",
					    "PMI_SIZE", "PMI_FD"};
	const char *size = getenv("OMPI_COMM_WORLD_SIZE");

	if (size && atoi(size) == 1)
		return 0;
	for (size_t i = 0; i < HD_LEN(names); i++)
		if (getenv(names[i]))
			return 1;
	return 0;
}

/* Numbers the ranks of this host and says where each world rank is. */
static void find_hosts(void)
{
	/* For tests only: "mpi" treats every rank as its own host. */
	const char *test = getenv("HD_TEST_COMM");
	int first, L;

	if (test && !strcmp(test, "mpi"))
		MPI_Comm_split(hd_mpi_world, hd_here.w.rank, 0, &host);
	else
		MPI_Comm_split_type(hd_mpi_world, MPI_COMM_TYPE_SHARED, hd_here.w.rank,
				    MPI_INFO_NULL, &host);
	MPI_Comm_rank(host, &hd_here.w.local_rank);
	MPI_Comm_size(host, &hd_here.w.local_size);
	first = hd_here.w.local_rank == 0;
	MPI_Allreduce(&first, &hd_here.w.hosts, 1, MPI_INT, MPI_SUM, hd_mpi_world);
	L = hd_here.w.local_size;
	hd_here.world_of = hd_alloc((size_t)L * sizeof(int));
	hd_here.local_of = hd_alloc((size_t)hd_here.w.size * sizeof(int));
	hd_host_gather(hd_here.world_of, &hd_here.w.rank, sizeof(int));
	for (int i = 0; i < hd_here.w.size; i++)
		hd_here.local_of[i] = -1;
	for (int i = 0; i < L; i++)
		hd_here.local_of[hd_here.world_of[i]] = i;
}

int hd_mpi_open(struct hd_err *err)
{
	int given;

	if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given) != MPI_SUCCESS)
		return hd_err_set(err, HD_EIO, "MPI_Init_thread failed");
	if (given < MPI_THREAD_SERIALIZED) {
		MPI_Finalize();
		return hd_err_set(err, HD_ENOTSUP,
				  "this MPI gives thread level %d, the least that is needed is %d",
				  given, MPI_THREAD_SERIALIZED);
	}
	hd_here.mpi = 1;
	MPI_Comm_dup(MPI_COMM_WORLD, &hd_mpi_world);
	MPI_Comm_rank(hd_mpi_world, &hd_here.w.rank);
	MPI_Comm_size(hd_mpi_world, &hd_here.w.size);
	find_hosts();
	return 0;
}

void hd_mpi_close(void)
{
	if (hd_here.mpi)
		MPI_Finalize();
	hd_here.mpi = 0;
}

static int abort_status;

static void end_now(int sig)
{
	(void)sig;
	_exit(abort_status);
}

void hd_mpi_abort(int status)
{
	/* MPI_Abort asks the launcher, which may be asleep: mpirun is, while it ends a job. */
	abort_status = status;
	signal(SIGALRM, end_now);
	alarm(2);
	/* Another thread may be inside MPI for the time of a test; one that is stuck there must
	 * not keep us. */
	for (int i = 0; i < 100 && pthread_mutex_trylock(&hd_mpi_lock); i++)
		usleep(10000);
	MPI_Abort(MPI_COMM_WORLD, status);
	_exit(status);
}

/* -- planning: nothing else runs --------------------------------------------------------------- */
int hd_mpi_all(int yes)
{
	if (hd_here.mpi)
		MPI_Allreduce(MPI_IN_PLACE, &yes, 1, MPI_INT, MPI_LAND, hd_mpi_world);
	return yes != 0;
}

int hd_host_all(int yes)
{
	if (hd_here.mpi)
		MPI_Allreduce(MPI_IN_PLACE, &yes, 1, MPI_INT, MPI_LAND, host);
	return yes != 0;
}

void hd_host_bcast(void *p, size_t bytes)
{
	if (hd_here.mpi)
		MPI_Bcast(p, (int)bytes, MPI_BYTE, 0, host);
}

void hd_host_gather(void *all, const void *mine, size_t bytes)
{
	if (hd_here.mpi)
		MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, host);
	else
		memcpy(all, mine, bytes);
}

void hd_host_barrier(void)
{
	if (hd_here.mpi)
		MPI_Barrier(host);
}

/* -- control ----------------------------------------------------------------------------------- */
static void finish(MPI_Request *r, const char *what)
{
	struct hd_pause p;
	int done = 0;

	hd_pause_begin(&p, NULL, what);
	for (;;) {
		HD_MPI(MPI_Test(r, &done, MPI_STATUS_IGNORE));
		if (done)
			break;
		hd_pause(&p, -1);
	}
	hd_pause_end(&p);
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
		HD_MPI(MPI_Igatherv(text, n, MPI_BYTE, all, len, at, MPI_BYTE, 0, hd_mpi_world,
				    &r));
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

int hd_comm_agree(struct hd_err *err)
{
	double size = hd_here.w.size;
	double first = all_double(err->code ? hd_here.w.rank : size, MPI_MIN,
				  "an agreement of all ranks on errors");

	if (first < size) {
		hd_comm_bcast(err, sizeof(*err), (int)first);
		err->agreed = 1;
	}
	return err->code;
}
