/* SPDX-License-Identifier: Apache-2.0
 * Start and end of MPI, and exchanges while nothing else runs.
 *
 * At most one thread is inside MPI: each call holds hd_mpi_lock. A process that no launcher started skips MPI
 * (hd_launch_mpi), because starting it as a singleton takes a third of a second.
 */
#include <config.h>
#include "engine/comm/world/mpi_calls.h"
#include "engine/process/launch.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

pthread_mutex_t hd_mpi_lock = PTHREAD_MUTEX_INITIALIZER;
MPI_Comm hd_mpi_world = MPI_COMM_NULL;

static struct {
	MPI_Comm host; /* the ranks of this host */
	int status;    /* exit status of an abort */
} mpi = { MPI_COMM_NULL, 0 };

/* Numbers the ranks of this host, and fills in hd_here's tables between world ranks and local ranks. */
static void find_hosts(void)
{
	/* For tests only: "mpi" treats every rank as its own host. */
	const char *test = getenv("HD_TEST_COMM");
	int first, L;

	if (test && !strcmp(test, "mpi"))
		MPI_Comm_split(hd_mpi_world, hd_here.w.rank, 0, &mpi.host);
	else
		MPI_Comm_split_type(hd_mpi_world, MPI_COMM_TYPE_SHARED, hd_here.w.rank, MPI_INFO_NULL, &mpi.host);
	MPI_Comm_rank(mpi.host, &hd_here.w.local_rank);
	MPI_Comm_size(mpi.host, &hd_here.w.local_size);
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

/* Collects the names of all hosts for messages, unless all ranks have the same one. */
static void name_hosts(void)
{
	char own[HD_HOST_NAME] = "", (*all)[HD_HOST_NAME] = hd_alloc((size_t)hd_here.w.size * sizeof(*all));
	int differ = 0;

	gethostname(own, sizeof(own) - 1);
	MPI_Allgather(own, (int)sizeof(own), MPI_BYTE, all, (int)sizeof(own), MPI_BYTE, hd_mpi_world);
	for (int r = 1; r < hd_here.w.size; r++)
		differ |= strcmp(all[r], all[0]) != 0;
	if (differ)
		hd_here.host_of = all;
	else
		free(all);
}

/* Keeps Open MPI from looking for networks. Between ranks of one host it uses shared memory in any case, but looks for
 * networks first, which takes 0.2 s if there are none. Its layer ob1 does not look, but still prepares TCP. For that,
 * Open MPI 5 pairs the host's own addresses. If an interface also has an IPv6 address, that fails, with an error
 * message for each pair of ranks. The user's own settings are kept. */
static void skip_networks(void)
{
	if (!hd_launch_on_one_host())
		return;
	setenv("OMPI_MCA_pml", "ob1", 0);
	setenv("OMPI_MCA_btl_tcp_disable_family", "6", 0);
}

int hd_mpi_open(struct hd_err *err)
{
	int given;

	skip_networks();
	if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given) != MPI_SUCCESS)
		return hd_err_set(err, HD_EIO, "MPI_Init_thread failed");
	if (given < MPI_THREAD_SERIALIZED) {
		MPI_Finalize();
		return hd_err_set(err, HD_ENOTSUP, "this MPI provides thread level %d; at least %d is needed", given,
				  MPI_THREAD_SERIALIZED);
	}
	hd_here.mpi = 1;
	MPI_Comm_dup(MPI_COMM_WORLD, &hd_mpi_world);
	MPI_Comm_rank(hd_mpi_world, &hd_here.w.rank);
	MPI_Comm_size(hd_mpi_world, &hd_here.w.size);
	find_hosts();
	name_hosts();
	return 0;
}

void hd_mpi_close(void)
{
	if (hd_here.mpi)
		MPI_Finalize();
	hd_here.mpi = 0;
}

static void end_now(int sig)
{
	(void)sig;
	_exit(mpi.status);
}

static void abort_all(int status) __attribute__((noreturn));
static void abort_all(int status)
{
	/* MPI_Abort asks the launcher, which may not respond: mpirun does not while it ends a job. */
	mpi.status = status;
	signal(SIGALRM, end_now);
	alarm(2);
	/* Another thread may be inside MPI for the time of a test; but a thread that is stuck there must
	 * not stop this one. */
	for (int i = 0; i < 100 && pthread_mutex_trylock(&hd_mpi_lock); i++)
		usleep(10000);
	MPI_Abort(MPI_COMM_WORLD, status);
	_exit(status);
}

void hd_comm_abort(int status)
{
	hd_here_leaves(HD_RANK_ENDS);
	if (hd_here.mpi)
		abort_all(status);
	_exit(status);
}

/* -- planning: nothing else runs --------------------------------------------------------------- */
int hd_mpi_all(int yes)
{
	if (hd_here.mpi)
		HD_MPI(MPI_Allreduce(MPI_IN_PLACE, &yes, 1, MPI_INT, MPI_LAND, hd_mpi_world));
	return yes != 0;
}

int hd_host_all(int yes)
{
	if (hd_here.mpi)
		HD_MPI(MPI_Allreduce(MPI_IN_PLACE, &yes, 1, MPI_INT, MPI_LAND, mpi.host));
	return yes != 0;
}

void hd_host_bcast(void *p, size_t bytes)
{
	if (hd_here.mpi)
		HD_MPI(MPI_Bcast(p, (int)bytes, MPI_BYTE, 0, mpi.host));
}

void hd_host_gather(void *all, const void *mine, size_t bytes)
{
	if (hd_here.mpi)
		HD_MPI(MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, mpi.host));
	else
		memcpy(all, mine, bytes);
}

void hd_host_barrier(void)
{
	if (hd_here.mpi)
		HD_MPI(MPI_Barrier(mpi.host));
}
