/* SPDX-License-Identifier: Apache-2.0
 * Reports SIGBUS in a mapped file. Reading one beyond its end raises that signal: the file became shorter, for example
 * by a copy over it, or its disk fails. Without this handler the process would end without a message.
 */
#include <config.h>
#include "engine/file/file.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct mapped {
	struct mapped *next;
	const char *at;
	size_t bytes;
	char path[];
};
static struct mapped *first;
static struct sigaction before;

/* A signal handler may call only async-signal-safe functions, so the line is assembled by hand. */
static void add(char line[600], const char *text)
{
	size_t n = strlen(line), more = strlen(text);

	more = more < 599 - n ? more : 599 - n;
	memcpy(line + n, text, more);
	line[n + more] = 0;
}

static void add_number(char line[600], size_t number)
{
	char digits[24], *at = digits + sizeof(digits) - 1;

	*at = 0;
	do
		*--at = (char)('0' + number % 10);
	while (number /= 10);
	add(line, at);
}

int hd_file_fault(const void *at)
{
	const struct mapped *m = first;
	char line[600] = "heddle: ";
	struct stat st;

	while (m && ((const char *)at < m->at || (const char *)at >= m->at + m->bytes))
		m = m->next;
	if (!m)
		return 0;
	add(line, m->path);
	if (!stat(m->path, &st) && (size_t)st.st_size < m->bytes) {
		add(line, ": had ");
		add_number(line, m->bytes);
		add(line, " bytes when it was opened, and has ");
		add_number(line, (size_t)st.st_size);
		add(line, " now");
	} else {
		add(line, ": cannot be read: its disk or network fails, or it was made shorter");
	}
	add(line, "\n");
	return write(STDERR_FILENO, line, strlen(line)) > 0;
}

/* Handles SIGBUS. If no mapped file is the cause, the previous handler is restored. A fault then occurs again on
 * return; a signal that a process sent is raised again. */
static void fault(int signal, siginfo_t *info, void *context)
{
	(void)context;
	if (info->si_code > 0 && hd_file_fault(info->si_addr))
		_exit(EXIT_FAILURE);
	sigaction(signal, &before, NULL);
	if (info->si_code <= 0)
		raise(signal);
}

void hd_file_mapped(const char *path, const void *at, size_t bytes)
{
	struct mapped *m = hd_alloc(sizeof(*m) + strlen(path) + 1);
	struct sigaction a = { .sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_NODEFER };
	static int watched;

	m->at = at;
	m->bytes = bytes;
	m->next = first;
	strcpy(m->path, path);
	first = m;
	if (!watched++)
		sigaction(SIGBUS, &a, &before);
}

void hd_file_unmapped(const void *at)
{
	for (struct mapped **m = &first, *gone; *m; m = &(*m)->next)
		if ((*m)->at == at) {
			gone = *m;
			*m = gone->next;
			free(gone);
			return;
		}
}
