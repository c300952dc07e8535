/* SPDX-License-Identifier: Apache-2.0
 * engine/elastic/elastic.h - heddle run: trains, and goes on with the remaining ranks when some are lost.
 */
#ifndef HD_ENGINE_ELASTIC_H
#define HD_ENGINE_ELASTIC_H
#include "engine/command/options.h"

int hd_verb_run(struct hd_cli *c);

/* -- child.c: one mpirun after another, and signals that come meanwhile -------------------------- */
struct hd_child_asked {
	int end;  /* SIGTERM, SIGINT or SIGUSR1 came: the run is to save and end */
	int more; /* SIGUSR2 came: more ranks are available again */
};
void hd_child_listen(void);                          /* call it before the first run */
void hd_child_pending(struct hd_child_asked *asked); /* takes signals that came while no command ran */
/* Runs a shell command until it ends. Sends it SIGUSR1, to save and end, when this process is asked to end,
 * or to use more ranks if the command could (grows). Returns the status as from waitpid, or -1 with err if
 * it was not started. */
int hd_child_run(const char *command, int grows, struct hd_child_asked *asked, struct hd_err *err);

/* -- hosts.c ------------------------------------------------------------------------------------ */
/* Finds the hosts of a hostfile that answer `probe NAME true` within ten seconds. probe NULL: ssh, with the user and
 * the port of the line, as mpirun calls it. Lines are "NAME slots=N", as Open MPI 4 reads them; N is 1 if not given.
 * *slots becomes the slots of these hosts together, and *lost the number of hosts that do not answer. *kept becomes
 * the path of a new hostfile with these hosts; the caller frees it and removes the file. */
int hd_hosts_there(const char *hostfile, const char *probe, char **kept, int64_t *slots, int64_t *lost,
		   struct hd_err *err);

#endif
