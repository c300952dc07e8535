/* SPDX-License-Identifier: Apache-2.0
 * heddle run: starts heddle train with mpirun. When ranks are lost, starts it again from the newest checkpoint with
 * the ranks that are left.
 *
 * Checkpoints do not depend on the layout, nor samples on ranks, so fewer ranks do the same steps on the same global
 * batches. heddle check tells for which numbers of ranks the layout can be planned.
 */
#include <config.h>
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* memfd_create */
#endif
#include "engine/elastic/elastic.h"
#include "engine/base/library.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/config/train_config.h"
#include "engine/command/command.h"
#include "engine/file/atomic_file.h"
#include "engine/file/file.h"
#include "engine/process/dir_lock.h"
#include "engine/process/launch.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE \
	2 /* seconds that mpirun waits, twice, for the remaining ranks after a failure; requests to end do not use it */

#define LONGEST_SAVE 600.0 /* seconds that ranks without mpirun may take to end */

/* Identity and time of the file DIR/latest, which each save replaces; all 0 if there is no such file. */
struct saved_last {
	ino_t file;
	struct timespec at;
};

struct elastic {
	const struct hd_cli *c;
	struct hd_conf *conf;
	const char *dir;
	int64_t least, most, ranks_left; /* numbers of ranks: the fewest and the most allowed; how many are left */
	int64_t hosts_lost;      /* how many hosts of the hostfile did not answer when the last run was started */
	int64_t restarts, tries; /* restarts without a new checkpoint: how many are allowed, and how many there were */
	char *program;
	char *hostfile;                     /* lists the hosts that answer; or NULL */
	char *newest;                       /* the newest checkpoint when the last run was started; or NULL */
	int began_empty;                    /* dir had no checkpoint when heddle run began */
	int given;                          /* checkpoint.resume is a path, or no; it applies until this run saves */
	char *chosen;                       /* that path; or NULL */
	struct saved_last at_first, before; /* when heddle run began; when the last run was started */
	struct hd_child_asked asked;
};

/* -- what is asked for ----------------------------------------------------------------------- */
static int read_ranks(struct elastic *e, struct hd_err *err)
{
	const char *text = hd_cli_str(e->c, "ranks", "");
	long long least = 0, most = 0;
	int end = 0, n = sscanf(text, "%9lld:%9lld%n", &least, &most, &end);

	if (n < 2) {
		end = 0;
		n = sscanf(text, "%9lld%n", &least, &end);
		most = least;
	}
	if (n < 1 || text[end] || least < 1 || most < least)
		return hd_err_set(err, HD_EINVAL,
				  "run: --ranks: '%s' is not MIN:MAX, the fewest and the most ranks, or N", text);
	e->least = least;
	e->most = e->ranks_left = most;
	return HD_OK;
}

/* Opens DIR/latest to get its current attributes: those of a name may be stale if the directory is on another host. */
static struct saved_last last_save(const struct elastic *e)
{
	char *path = hd_format("%s/latest", e->dir);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat s;
	struct saved_last is = { 0 };

	if (fd >= 0 && !fstat(fd, &s))
		is = (struct saved_last){ s.st_ino, s.st_mtim };
	if (fd >= 0)
		close(fd);
	free(path);
	return is;
}

static int has_saved_since(const struct elastic *e, const struct saved_last *was)
{
	struct saved_last is = last_save(e);

	return is.file != was->file || is.at.tv_sec != was->at.tv_sec || is.at.tv_nsec != was->at.tv_nsec;
}

static char *newest(const struct elastic *e)
{
	struct hd_err none = { 0 };

	return hd_checkpoint_find(e->dir, &none);
}

static int open_run(struct elastic *e, struct hd_err *err)
{
	struct hd_checkpoint_config k;

	e->program = hd_this_program(err);
	if (!e->program)
		return err->code;
	if (hd_cli_has(e->c, "probe") && !hd_cli_has(e->c, "hostfile"))
		return hd_err_set(err, HD_EINVAL, "run: --probe does nothing without --hostfile");
	HD_TRY(read_ranks(e, err));
	HD_TRY(hd_cli_int(e->c, "restarts", 0, 1000000, 3, &e->restarts, err));
	HD_TRY(hd_cli_conf(e->c, &e->conf, err));
	HD_TRY(hd_checkpoint_config_read(e->conf, &k, err));
	e->dir = k.dir;
	if (!*k.dir)
		return hd_section_fail(e->conf, k.section, "dir", err, HD_EINVAL,
				       "is not given, but run resumes from the checkpoints in it");
	e->at_first = last_save(e);
	e->newest = newest(e);
	e->began_empty = !e->newest;
	e->given = hd_section_has(k.section, "resume") && strcmp(k.resume, "auto");
	return e->given ? hd_checkpoint_choose(e->conf, &e->chosen, err) : HD_OK;
}

/* Returns whether the next run starts from the newest checkpoint in dir, rather than from what checkpoint.resume says.
 * Before this run has saved, the newest one may be another run's, unless dir had none. */
static int is_from_newest(const struct elastic *e)
{
	return e->newest && (!e->given || e->began_empty || has_saved_since(e, &e->at_first));
}

/* -- commands -------------------------------------------------------------------------------- */
/* Returns the arguments of heddle VERB CONF --set ... [--ranks N], NULL-terminated, for arguments_free. */
static char **arguments(struct elastic *e, const char *verb, int64_t ranks, int *argc)
{
	char **argv = hd_alloc((size_t)(2 * e->c->nsets + 8) * sizeof(*argv));
	const char *words[] = { e->program, verb, e->c->positional };

	*argc = 0;
	for (size_t i = 0; i < HD_LEN(words); i++)
		argv[(*argc)++] = hd_strdup(words[i]);
	for (int i = 0; i < e->c->nsets; i++) {
		argv[(*argc)++] = hd_strdup("--set");
		argv[(*argc)++] = hd_strdup(e->c->sets[i]);
	}
	if (is_from_newest(e) || !e->given) { /* a run that is just ending may yet save the first one */
		argv[(*argc)++] = hd_strdup("--set");
		argv[(*argc)++] = hd_strdup("checkpoint.resume=auto");
	}
	if (ranks) {
		argv[(*argc)++] = hd_strdup("--ranks");
		argv[(*argc)++] = hd_format("%lld", (long long)ranks);
	}
	return argv;
}

static void arguments_free(char **argv)
{
	for (int i = 0; argv[i]; i++)
		free(argv[i]);
	free(argv);
}

static char *train_command(struct elastic *e, int64_t ranks)
{
	int argc;
	char **argv = arguments(e, "train", 0, &argc);
	const char *user = hd_cli_str(e->c, "mpirun", "");
	char *hosts = e->hostfile ? hd_launch_quoted(e->hostfile) : NULL; /* $TMPDIR may have blanks */
	char *options =
		hd_format("%s%s%s%s", hosts ? "--hostfile " : "", hosts ? hosts : "", hosts && *user ? " " : "", user);
	char *text = hd_launch_command(ranks, PATIENCE, options, argc, argv), *command = hd_format("exec %s", text);

	free(text);
	free(options);
	free(hosts);
	arguments_free(argv);
	return command;
}

/* -- a layout that fits ---------------------------------------------------------------------- */
static char *message_of(const char *file)
{
	struct hd_err none = { 0 };
	char *text = hd_file_read(file, NULL, &none), *found = NULL;

	for (char *line = text ? strtok(text, "\n") : NULL; line; line = strtok(NULL, "\n"))
		if (!strncmp(line, "heddle: ", 8) && !found)
			found = hd_strdup(line + 8);
	free(text);
	return found;
}

/* Returns whether the layout can be planned for so many ranks. If not, *why becomes the reason, unless it is set
 * already; the caller frees it. */
static int can_be(struct elastic *e, int64_t ranks, const char *file, char **why)
{
	int argc;
	char **argv = arguments(e, "check", ranks, &argc);
	int status = hd_launch_run(1, 0, argc, argv, file);

	if (status && !*why)
		*why = message_of(file);
	arguments_free(argv);
	return !status;
}

/* Returns the largest number of ranks, among those left, that the layout can be planned for; 0 with
 * err if there is none. */
static int64_t fits(struct elastic *e, struct hd_err *err)
{
	/* In memory: check could not print into a full $TMPDIR, so no number of ranks would seem to fit. */
	int fd = memfd_create("heddle-run", MFD_CLOEXEC);
	char *file = hd_format("/proc/%d/fd/%d", (int)getpid(), fd), *why = NULL;
	int64_t n = e->ranks_left;

	while (n >= e->least && !can_be(e, n, file, &why))
		n--;
	if (fd >= 0)
		close(fd);
	if (n < e->least && e->ranks_left < e->least)
		hd_err_set(err, HD_EIO, "run: %lld rank%s are left, but --ranks asks for at least %lld",
			   (long long)e->ranks_left, hd_plural(e->ranks_left, "s"), (long long)e->least);
	else if (n < e->least)
		hd_err_set(err, HD_EINVAL, "run: no number of ranks from %lld to %lld fits; with %lld: %s",
			   (long long)e->least, (long long)e->ranks_left, (long long)e->ranks_left,
			   why ? why : "check fails");
	free(file);
	free(why);
	return n < e->least ? 0 : n;
}

/* -- what is left ---------------------------------------------------------------------------- */
/* Finds the hosts that answer, and updates ranks_left and hosts_lost. Without a hostfile all ranks are on this host. */
static int find_hosts(struct elastic *e, struct hd_err *err)
{
	const char *given = hd_cli_str(e->c, "hostfile", NULL);
	int64_t slots;

	if (!given)
		return HD_OK;
	if (e->hostfile)
		unlink(e->hostfile);
	free(e->hostfile);
	HD_TRY(hd_hosts_there(given, hd_cli_str(e->c, "probe", NULL), &e->hostfile, &slots, &e->hosts_lost, err));
	e->ranks_left = e->ranks_left < slots ? e->ranks_left : slots;
	return HD_OK;
}

/* Waits until the ranks of a run have ended whose mpirun was killed. They finish their step and save, and the next run
 * continues from what they save. */
static void wait_for_ranks(struct elastic *e)
{
	double end = hd_seconds() + LONGEST_SAVE;
	int ended;

	do {
		struct hd_lock_held lock = { 0 };
		struct hd_err busy = { 0 };

		ended = hd_dir_lock(&lock, e->dir, 1, &busy) >= 0;
		hd_dir_unlock(&lock);
		hd_child_pending(&e->asked);
	} while (!ended && !e->asked.end && hd_seconds() < end);
}

static int is_lost(int status)
{
	return WIFSIGNALED(status) || WEXITSTATUS(status) == HD_STATUS_LOST || WEXITSTATUS(status) > 128;
}

static void log_restart(const struct elastic *e, int status, int64_t ranks)
{
	char *more = e->ranks_left < e->most
			     ? hd_format(" (kill -USR2 %d: %lld again)", (int)getpid(), (long long)e->most)
			     : hd_strdup("");

	if (e->ranks_left < ranks)
		hd_log(HD_LOG_WARN, "run: some of %lld ranks are lost; %lld %s left%s", (long long)ranks,
		       (long long)e->ranks_left, e->ranks_left == 1 ? "is" : "are", more);
	else if (WIFSIGNALED(status))
		hd_log(HD_LOG_WARN, "run: signal %d ended mpirun, but no rank is lost: starting %lld again%s",
		       WTERMSIG(status), (long long)ranks, more);
	else
		hd_log(HD_LOG_WARN, "run: a host is lost, but the others have room: starting %lld ranks again%s",
		       (long long)ranks, more);
	free(more);
}

/* Looks at a run that ended before its last step. Returns 1 if it is to be started again. */
static int should_restart(struct elastic *e, int status, int64_t ranks, struct hd_err *err)
{
	int64_t lost_before = e->hosts_lost; /* when the run was started */
	int host_lost = 0, progress;

	if (WIFSIGNALED(status))
		wait_for_ranks(e);
	progress = has_saved_since(e, &e->before);
	e->ranks_left = WIFSIGNALED(status) ? ranks : ranks - 1; /* a signal ended mpirun itself: no rank is lost */
	if (hd_cli_has(e->c, "hostfile")) {
		e->ranks_left = ranks;
		if (find_hosts(e, err) < 0)
			return 0;
		host_lost = e->hosts_lost > lost_before;
		if (!host_lost && is_lost(status) && !WIFSIGNALED(status))
			e->ranks_left = ranks - 1 < e->ranks_left ? ranks - 1 : e->ranks_left;
	}
	if (!is_lost(status) && !host_lost)
		return 0; /* an error, which the run has reported */
	e->tries = progress ? 0 : e->tries + 1;
	if (e->tries > e->restarts)
		return hd_err_set(err, HD_EIO, "run: no checkpoint was made in %lld restart%s (--restarts)",
				  (long long)e->restarts, hd_plural(e->restarts, "s")),
		       0;
	log_restart(e, status, ranks);
	return 1;
}

/* -- all of it ------------------------------------------------------------------------------- */
static int one_run(struct elastic *e, int64_t *ranks, int *status, struct hd_err *err)
{
	const char *from;
	char *command;

	free(e->newest);
	e->newest = newest(e);
	e->before = last_save(e);
	*ranks = fits(e, err);
	if (!*ranks)
		return err->code;
	hd_child_pending(&e->asked);
	e->asked.more = 0;
	*status = 0;
	if (e->asked.end)
		return HD_OK;
	from = is_from_newest(e) ? e->newest : e->chosen;
	hd_log(HD_LOG_INFO, "run: %lld rank%s%s%s", (long long)*ranks, hd_plural(*ranks, "s"), from ? ", from " : "",
	       from ? from : "");
	command = train_command(e, *ranks);
	*status = hd_child_run(command, *ranks < e->most, &e->asked, err);
	free(command);
	return err->code;
}

/* Statuses from here on lie above 128 + any signal and are mpirun's own. Open MPI 5 ends with 250 when a signal comes
 * while it starts its daemons. */
#define NEVER_BEGAN 192

/* Returns the exit status of a run that was asked to end. If the signal came before mpirun or a rank handled it, it
 * killed them, and mpirun's status may be 0. */
static int end(struct elastic *e, int status, struct hd_err *err)
{
	int sig = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) - 128;

	if (WIFEXITED(status) && WEXITSTATUS(status) && WEXITSTATUS(status) < NEVER_BEGAN && sig != SIGUSR1)
		return WEXITSTATUS(status);
	if (WIFSIGNALED(status) && sig != SIGUSR1)
		return hd_err_set(
			err, HD_EIO,
			"run: asked to end, but signal %d ended mpirun: the steps since the last checkpoint are lost",
			sig);
	free(e->newest);
	e->newest = newest(e);
	if (!is_from_newest(e))
		return hd_err_set(err, HD_EIO, "run: asked to end before it had begun: nothing is saved");
	if (!has_saved_since(e, &e->before)) /* otherwise the run has reported it */
		hd_log(HD_LOG_INFO, "run: asked to end; saved in %s", e->dir);
	return 0;
}

/* Returns whether the run has done all its steps: then there is a checkpoint of the last one. The status does not
 * tell, because Open MPI 5 also ends with 0 when it has lost a host. */
static int is_done(struct elastic *e)
{
	struct hd_train_config t;
	struct hd_err none = { 0 };
	const char *name;
	long long step = -1;

	if (hd_train_config_read(e->conf, &t, &none) < 0)
		return 1; /* unlikely, since the run has read the same file */
	free(e->newest);
	e->newest = newest(e);
	name = e->newest && is_from_newest(e) ? strrchr(e->newest, '/') : NULL;
	return name && sscanf(name, "/step-%lld", &step) == 1 && step >= t.steps;
}

/* Starts runs until one has done all steps, cannot go on, or was asked to end. Returns the exit status. */
static int supervise(struct elastic *e, struct hd_err *err)
{
	int64_t ranks;
	int status = 0;

	HD_TRY(find_hosts(e, err));
	for (;;) {
		HD_TRY(one_run(e, &ranks, &status, err));
		if (e->asked.end)
			return end(e, status, err);
		if (WIFEXITED(status) && !WEXITSTATUS(status) && !(e->asked.more && ranks < e->most) && is_done(e))
			return 0;
		if (e->asked.more) {
			e->ranks_left = e->most;
			HD_TRY(find_hosts(e, err));
		} else if (!should_restart(e, status, ranks, err)) {
			return err->code ? err->code : WEXITSTATUS(status);
		}
	}
}

int hd_verb_run(struct hd_cli *c)
{
	struct elastic e = { .c = c };
	struct hd_err err = { 0 };
	int status = 1;

	hd_child_listen();
	if (open_run(&e, &err) >= 0)
		status = supervise(&e, &err);
	if (err.code)
		hd_log(HD_LOG_ERROR, "%s", err.text);
	if (e.hostfile)
		unlink(e.hostfile);
	free(e.program);
	free(e.hostfile);
	free(e.newest);
	free(e.chosen);
	hd_conf_destroy(e.conf);
	return err.code ? 1 : status;
}
