/* SPDX-License-Identifier: Apache-2.0
 * The launcher, as a rank sees it: its environment variables, its terminal and stderr, and the command that starts it.
 */
#include <config.h>
#include "engine/process/launch.h"
#include "engine/base/err.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;

static const char *const rank_names[] = { "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID" };

int hd_launch_first(void)
{
	for (size_t i = 0; i < HD_LEN(rank_names); i++)
		if (getenv(rank_names[i]))
			return atoi(getenv(rank_names[i])) == 0;
	return 1;
}

void hd_launch_pretend(const char *rank)
{
	for (size_t i = 0; i < HD_LEN(rank_names); i++)
		setenv(rank_names[i], rank, 1);
}

int hd_launch_mpi(void)
{
	static const char *const names[] = { "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "PMI_FD" };
	const char *size = getenv("OMPI_COMM_WORLD_SIZE");

	if (size && atoi(size) == 1)
		return 0;
	for (size_t i = 0; i < HD_LEN(names); i++)
		if (getenv(names[i]))
			return 1;
	return 0;
}

static int number_of(const char *name)
{
	const char *value = getenv(name);

	return value ? atoi(value) : 0;
}

int hd_launch_elsewhere(void)
{
	int all = number_of("OMPI_COMM_WORLD_SIZE"), here = number_of("OMPI_COMM_WORLD_LOCAL_SIZE");

	if (!all && getenv("SLURM_PROCID") && number_of("SLURM_STEP_NUM_NODES") > 1) {
		all = number_of("SLURM_STEP_NUM_TASKS");
		here = atoi(getenv("SLURM_STEP_TASKS_PER_NODE") ? getenv("SLURM_STEP_TASKS_PER_NODE") : "1");
	}
	return all > here && here > 0 ? all - here : 0;
}

int hd_launch_ranks(void)
{
	int all = number_of("OMPI_COMM_WORLD_SIZE");

	all = all ? all : number_of("PMI_SIZE");
	all = all || !getenv("SLURM_PROCID") ? all : number_of("SLURM_STEP_NUM_TASKS");
	return all > 1 ? all : 0;
}

/* Returns whether this process has a terminal. srun without --pty gives its tasks none. */
static int has_terminal(void)
{
	int fd = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

int hd_launch_unconnected(void)
{
	/* mpirun starts its daemons with srun, so even a single rank of mpirun inherits srun's variables. */
	return hd_launch_mpi() || getenv("OMPI_COMM_WORLD_SIZE") || has_terminal() ? 0 : hd_launch_ranks();
}

int hd_launch_prrte(void)
{
	return getenv("PRTE_LAUNCHED") != NULL;
}

int hd_launch_on_one_host(void)
{
	int all = number_of("OMPI_COMM_WORLD_SIZE");

	return all && all == number_of("OMPI_COMM_WORLD_LOCAL_SIZE");
}

/* mpirun passes on what its ranks print, so the stdout of mpirun counts. On another host the parent is a daemon, whose
 * stdout is /dev/null. */
int hd_launch_terminal(void)
{
	char link[32], to[64] = "";

	if (!isatty(1) || !getenv("OMPI_COMM_WORLD_RANK"))
		return isatty(1);
	snprintf(link, sizeof(link), "/proc/%d/fd/1", (int)getppid());
	if (readlink(link, to, sizeof(to) - 1) < 0)
		return 0;
	return !strncmp(to, "/dev/pts/", 9) || !strncmp(to, "/dev/tty", 8) || !strcmp(to, "/dev/console");
}

int hd_launch_columns(void)
{
	struct winsize w = { .ws_col = 0 };
	char link[32];
	int fd = -1;

	if (getenv("OMPI_COMM_WORLD_RANK")) { /* mpirun's terminal counts: the ranks' pseudo-terminal has no size */
		snprintf(link, sizeof(link), "/proc/%d/fd/1", (int)getppid());
		fd = open(link, O_WRONLY | O_NOCTTY | O_CLOEXEC);
	}
	if (ioctl(fd >= 0 ? fd : 1, TIOCGWINSZ, &w))
		w.ws_col = 0;
	if (fd >= 0)
		close(fd);
	return w.ws_col ? w.ws_col : 80;
}

static int launcher_stderr = -1;

/* Duplicates the launcher's own stderr descriptor, where that is allowed. If it is a file, both then share its
 * position and do not overwrite each other. Otherwise opens the same file again. */
void hd_launch_open_stderr(void)
{
	char link[32];

	if (!getenv("OMPI_COMM_WORLD_RANK"))
		return;
#if defined(SYS_pidfd_open) && defined(SYS_pidfd_getfd)
	int process = (int)syscall(SYS_pidfd_open, getppid(), 0);

	if (process >= 0) {
		launcher_stderr = (int)syscall(SYS_pidfd_getfd, process, 2, 0);
		close(process);
	}
#endif
	snprintf(link, sizeof(link), "/proc/%d/fd/2", (int)getppid());
	if (launcher_stderr < 0)
		launcher_stderr = open(link, O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC);
}

void hd_launch_tell(const char *text)
{
	int fd = launcher_stderr >= 0 ? launcher_stderr : 2;

	/* On a terminal, the current line may already contain progress, or ^C. */
	if ((isatty(fd) && write(fd, "\n", 1) < 0) || write(fd, text, strlen(text)) < 0)
		return; /* no reader */
}

/* PRRTE has no setting for the time between SIGTERM and SIGKILL. */
int hd_launch_kills_soon(void)
{
	return getenv("OMPI_COMM_WORLD_RANK") && (hd_launch_prrte() || !getenv("OMPI_MCA_odls_base_sigkill_timeout"));
}

void hd_launch_redirect_messages(void)
{
	if (!getenv("OMPI_COMM_WORLD_RANK"))
		return;
	__fpurge(stdout);
	if (launcher_stderr >= 0)
		dup2(launcher_stderr, 2);
}

/* Open MPI 5 closes the pipes of all ranks as soon as one has died. A daemon on another host has no stderr
 * that anybody reads. */
void hd_launch_rank_died(void)
{
	if (!hd_launch_prrte() || !hd_launch_on_one_host())
		return;
	if (launcher_stderr < 0)
		hd_launch_open_stderr();
	hd_launch_redirect_messages();
}

/* Returns the number of physical cores, which mpirun counts, rather than of hardware threads. */
static int64_t cores(void)
{
	long threads = sysconf(_SC_NPROCESSORS_ONLN);
	int siblings = 1, own = 1;
	char line[4096];
	FILE *f = fopen("/proc/cpuinfo", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "siblings : %d", &siblings) == 1 || sscanf(line, "cpu cores : %d", &own) == 1)
			continue;
	if (f)
		fclose(f);
	return siblings > own && own > 0 ? threads * own / siblings : threads;
}

static void add(char **text, const char *word)
{
	hd_append(text, "%s%s", **text ? " " : "", word);
}

char *hd_launch_quoted(const char *word)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
	char *q = hd_alloc(4 * strlen(word) + 3), *to = q;

	if (*word && strspn(word, plain) == strlen(word)) {
		strcpy(q, word);
	} else {
		*to++ = '\'';
		for (; *word; word++)
			if (*word == '\'')
				to = stpcpy(to, "'\\''");
			else
				*to++ = *word;
		*to = '\'';
	}
	return q;
}

static void add_quoted(char **text, const char *word)
{
	char *q = hd_launch_quoted(word);

	add(text, q);
	free(q);
}

/* mpirun waits odls_base_sigkill_timeout seconds between SIGCONT and SIGTERM, and again before SIGKILL, so that
 * is no longer than needed. If the user's options bind ranks, no binding is added: Open MPI 5 refuses an option
 * that is given twice. */
char *hd_launch_command(int64_t ranks, int64_t seconds, const char *options, int argc, char **argv)
{
	char *text = hd_format("mpirun%s%s -np %lld", *options ? " " : "", options, (long long)ranks), *wait;

	if (ranks > cores())
		add(&text, "--oversubscribe");
	if (!strstr(options, "--bind-to"))
		add(&text, "--bind-to none");
	if (!geteuid())
		add(&text, "--allow-run-as-root");
	wait = hd_format("--mca odls_base_sigkill_timeout %lld", (long long)seconds);
	add(&text, wait);
	free(wait);
	for (int i = 0; i < argc; i++)
		add_quoted(&text, argv[i]);
	return text;
}

/* With exec the shell becomes the program, which then gets signals directly. */
char *hd_launch_command_to(int64_t ranks, int64_t seconds, int argc, char **argv, const char *output)
{
	char *command = ranks > 1 ? hd_launch_command(ranks, seconds, "", argc, argv) : hd_strdup(""), *text;

	for (int i = 0; i < argc && ranks <= 1; i++)
		add_quoted(&command, argv[i]);
	add(&command, ">");
	add_quoted(&command, output);
	text = hd_format("exec %s 2>&1 </dev/null", command);
	free(command);
	return text;
}

static int is_of_launcher(const char *variable)
{
	static const char *const prefixes[] = { "OMPI_COMM_WORLD",
						"OMPI_UNIVERSE_SIZE",
						"OMPI_MCA_ess",
						"OMPI_MCA_orte",
						"OMPI_MCA_pmix",
						"PMIX_",
						"PMI_",
						"SLURM_PROCID",
						"SLURM_STEP_NUM_TASKS" };

	for (size_t i = 0; i < HD_LEN(prefixes); i++)
		if (!strncmp(variable, prefixes[i], strlen(prefixes[i])))
			return 1;
	return 0;
}

char **hd_launch_environ(void)
{
	size_t n = 0, kept = 0;
	char **all;

	while (environ[n])
		n++;
	all = hd_alloc((n + 1) * sizeof(*all));
	for (size_t i = 0; i < n; i++)
		if (!is_of_launcher(environ[i]))
			all[kept++] = environ[i];
	return all;
}
