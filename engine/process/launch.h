/* SPDX-License-Identifier: Apache-2.0
 * engine/process/launch.h - what a process can tell of how it was started, and what to type instead.
 */
#ifndef HD_ENGINE_LAUNCH_H
#define HD_ENGINE_LAUNCH_H
#include <stdint.h>
#include <sys/types.h>

/* Before MPI is up.  1: the launcher calls this rank 0, or there is no launcher. */
int hd_launch_first(void);
/* From now on this process sees what it would if a launcher had started it as this rank. */
void hd_launch_pretend(const char *rank);
/* 1: mpirun or the like has started this process with others. */
int hd_launch_mpi(void);
/* Of the ranks that the launcher has started with this one, those on other hosts; 0: none, or there is no launcher. */
int hd_launch_elsewhere(void);
/* How many ranks the launcher has started, this one too; 0: one, or there is no launcher. */
int hd_launch_ranks(void);
/* How many tasks srun has started with this one where MPI connects none of them; 0: it does, or this is a task alone.  In a shell that
 * srun has started on a terminal a program is alone on purpose. */
int hd_launch_unconnected(void);
/* 1: the launcher is PRRTE, that of Open MPI 5. */
int hd_launch_prrte(void);
/* 1: Open MPI says that all ranks are on this host. */
int hd_launch_on_one_host(void);
/* Whether what is printed ends on a terminal: the pseudo-terminal that mpirun gives to its ranks is not one. */
int hd_launch_terminal(void);
int hd_launch_columns(void); /* of that terminal; 80 where it does not say */
/* listen: before signals are handled.  deaf: the launcher has told this process to end.  mpirun takes nothing more that
 * is printed, and a write would wait for it until it kills. What is buffered for it is dropped, and messages go where its
 * own went. */
void hd_launch_listen(void);
void hd_launch_deaf(void);
/* A rank of this host has died: deaf, where the launcher then takes nothing more. */
void hd_launch_lost(void);
/* Writes text where the launcher's own messages go, from any thread. */
void hd_launch_tell(const char *text);
/* 1: the launcher is mpirun, and nothing has told it to wait: it kills its ranks within a second after it has passed SIGTERM on. */
int hd_launch_hurries(void);
/* The command that starts argv on so many ranks and leaves them so many seconds to save after a signal, quoted for a
 * shell; malloc'ed.  options: the user's own for mpirun, as they are; "": none. */
char *hd_launch_command(int64_t ranks, int64_t seconds, const char *options, int argc, char **argv);
/* The same for a shell that becomes it; one rank needs no launcher.  What it prints goes to the file output; malloc'ed. */
char *hd_launch_command_to(int64_t ranks, int64_t seconds, int argc, char **argv, const char *output);
/* Runs that.  -> the status, 0: it succeeded. */
int hd_launch_run(int64_t ranks, int64_t seconds, int argc, char **argv, const char *output);

/* From hold on SIGTERM, SIGINT and SIGHUP do not end this process.  The first one is passed on to what hd_launch_run runs, which runs
 * nothing after it. */
void hd_launch_hold(void);
void hd_launch_pass_on(pid_t to); /* or to another process that this one waits for; 0: to nobody */
void hd_launch_let(void);         /* ends the process by the signal that came meanwhile; returns if there was none */
/* In a child: SIGTERM when its parent ends before it. */
void hd_launch_die_with_parent(void);

#endif
