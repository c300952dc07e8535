/* SPDX-License-Identifier: Apache-2.0
 * Reports SIGBUS in a mapped file. Reading one beyond its end raises that signal: the file became shorter, for example
 * by a copy over it, or its disk fails. Without this handler the process would end without a message.
 */
#include <config.h>
#include "engine/file/file.h"
#include "engine/human/handler_line.h"
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

int hd_file_fault(const void *at)
{
	struct hd_handler_line line = { .n = 0 };
	const struct mapped *m = first;
	struct stat st;

	while (m && ((const char *)at < m->at || (const char *)at >= m->at + m->bytes))
		m = m->next;
	if (!m)
		return 0;
	hd_handler_add(&line, "heddle: ");
	hd_handler_add(&line, m->path);
	if (!stat(m->path, &st) && (size_t)st.st_size < m->bytes) {
		hd_handler_add(&line, ": had ");
		hd_handler_add_number(&line, m->bytes);
		hd_handler_add(&line, " bytes when it was opened, but has ");
		hd_handler_add_number(&line, (uint64_t)st.st_size);
		hd_handler_add(&line, " now");
	} else {
		hd_handler_add(&line, ": cannot be read: its disk or network has failed, or it was truncated");
	}
	return hd_handler_write(&line);
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
