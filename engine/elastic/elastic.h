/* SPDX-License-Identifier: Apache-2.0
 * engine/elastic/elastic.h - heddle run: train, and go on with the ranks that are left when some are lost.
 */
#ifndef HD_ENGINE_ELASTIC_H
#define HD_ENGINE_ELASTIC_H
#include "engine/command/options.h"

int hd_verb_run(struct hd_cli *c);

/* -- child.c: one mpirun after the other, and what this process is asked meanwhile --------------- */
struct hd_child_asked {
	int end;  /* SIGTERM, SIGINT or SIGUSR1: the run is to save and end */
	int more; /* SIGUSR2: there are more ranks again */
};
void hd_child_listen(void);                          /* before the first */
void hd_child_pending(struct hd_child_asked *asked); /* what came while none ran */
/* Runs a command of the shell until it ends.  It is told to save and end (SIGUSR1) when this process is asked to, or when more ranks
 * are there and it has fewer than it could (grows).  -> as waitpid has it; -1: not started */
int hd_child_run(const char *command, int grows, struct hd_child_asked *asked, struct hd_err *err);

/* -- hosts.c ------------------------------------------------------------------------------------ */
/* The slots of the hosts of a hostfile that answer `probe NAME true` within ten seconds.  Lines are "NAME slots=N", as Open MPI 4
 * reads them; without slots 1.  *kept: a file that names these hosts, malloc'ed, which is the caller's to remove.  *lost: how many
 * do not answer. */
int hd_hosts_there(const char *hostfile, const char *probe, char **kept, int64_t *slots, int64_t *lost,
		   struct hd_err *err);

#endif
