/* SPDX-License-Identifier: Apache-2.0
 * Counts the MPI messages of at least $HD_COUNT_SENDS_FROM bytes.  Built as a shared object by a test and preloaded;
 * at its end, each rank that sent such a message appends their number as a line to the file $HD_COUNT_SENDS.
 */
#ifdef HD_COUNT_SENDS
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static long sends;

int MPI_Isend(const void *buf, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *r)
{
	const char *from = getenv("HD_COUNT_SENDS_FROM");
	int size;

	PMPI_Type_size(type, &size);
	sends += from && (long)n * size >= atol(from);
	return PMPI_Isend(buf, n, type, to, tag, comm, r);
}

__attribute__((destructor)) static void count(void)
{
	const char *path = getenv("HD_COUNT_SENDS");
	FILE *f = path && sends ? fopen(path, "a") : NULL;

	if (!f)
		return;
	fprintf(f, "%ld\n", sends);
	fclose(f);
}
#endif
typedef int hd_count_sends_is_a_shared_object; /* not in the library of the tests */
