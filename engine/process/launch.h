/* SPDX-License-Identifier: Apache-2.0
 * engine/process/launch.h - finds out how a process was started, and builds and runs commands that start ranks.
 */
#ifndef HD_ENGINE_LAUNCH_H
#define HD_ENGINE_LAUNCH_H
#include <stdint.h>
#include <sys/types.h>

/* Returns 1 if the launcher calls this rank 0, or if there is no launcher. Works before MPI has begun. */
int hd_launch_first(void);
/* Sets the environment as if a launcher had started this process as the given rank. */
void hd_launch_pretend(const char *rank);
/* Returns 1 if mpirun or a similar launcher has started this process and others, which MPI connects. */
int hd_launch_mpi(void);
/* Returns how many of the ranks that the launcher has started are on other hosts; 0 without a launcher. */
int hd_launch_elsewhere(void);
/* Returns how many ranks the launcher has started, including this one; 0 if it is the only one or
 * there is no launcher. */
int hd_launch_ranks(void);
/* Returns how many tasks srun has started, including this one, if MPI does not connect them. Returns 0 if MPI does,
 * or if this task is the only one. It also returns 0 in a shell that srun has started on a terminal: there a program
 * is alone on purpose. */
int hd_launch_unconnected(void);
/* Returns 1 if the launcher is PRRTE, which is that of Open MPI 5. */
int hd_launch_prrte(void);
/* Returns 1 if Open MPI says that all ranks are on this host. */
int hd_launch_on_one_host(void);
/* Returns whether output ends up on a terminal. The pseudo-terminal that mpirun gives to its ranks does not count. */
int hd_launch_terminal(void);
int hd_launch_columns(void); /* returns the width of that terminal; 80 if unknown */
/* Once mpirun ends a job it reads no more output, so a write would block until mpirun kills the writer. For this case,
 * call hd_launch_open_stderr before signals are handled. Call hd_launch_redirect_messages when the launcher has told
 * this process to end: it drops buffered output, and sends messages to the launcher's own stderr. */
void hd_launch_open_stderr(void);
void hd_launch_redirect_messages(void);
/* Says that a rank of this host has died. Acts like hd_launch_redirect_messages if the launcher then reads no more
 * output. */
void hd_launch_rank_died(void);
/* Writes text to the launcher's own stderr, or to this process's if that is not known; any thread may call it. */
void hd_launch_tell(const char *text);
/* Returns 1 if the launcher is mpirun and was not told to wait: it kills its ranks within a second of
 * passing SIGTERM on. */
int hd_launch_kills_soon(void);
/* Returns the word as a shell must get it: in quotation marks if it needs them. The caller frees it. */
char *hd_launch_quoted(const char *word);

/* Returns the command, quoted for a shell, that starts argv on so many ranks. They get so many seconds to save after a
 * signal. The caller frees it. options: the user's own for mpirun, which are not quoted; "" if none. */
char *hd_launch_command(int64_t ranks, int64_t seconds, const char *options, int argc, char **argv);
/* Returns the same for a shell that execs it, with output to the file `output`; the caller frees it. One rank is
 * started without a launcher. */
char *hd_launch_command_to(int64_t ranks, int64_t seconds, int argc, char **argv, const char *output);
/* Returns this process's environment without the variables of a launcher, for a command that starts a job of its own.
 * The caller frees the array, but not the strings. */
char **hd_launch_environ(void);
/* Runs that command in that environment. Returns its status as from waitpid, so 0 if it succeeded, or -1 if it was
 * not started. */
int hd_launch_run(int64_t ranks, int64_t seconds, int argc, char **argv, const char *output);

/* After hd_launch_hold_signals, SIGTERM, SIGINT and SIGHUP do not end this process. The first one is passed on to the
 * command that hd_launch_run is running; after it, hd_launch_run starts no command. */
void hd_launch_hold_signals(void);
void hd_launch_pass_on(pid_t to); /* passes the signal on to another process that this one waits for; 0: to none */
/* Undoes hd_launch_hold_signals. If a signal came meanwhile, ends the process by it. */
void hd_launch_release_signals(void);
/* Makes the kernel send SIGTERM to this process if its parent ends before it. For children. */
void hd_launch_die_with_parent(void);

#endif
