/* SPDX-License-Identifier: Apache-2.0
 * Remembers which plugin's code is running. A crash in a plugin still ends the process, but the last line then names
 * the plugin.
 */
#include <config.h>
#include "engine/plugin/turn.h"
#include "engine/file/file.h"
#include "engine/human/handler_line.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct hd_turn own, *turn = &own;
static pthread_mutex_t noting = PTHREAD_MUTEX_INITIALIZER;  /* held while *turn changes or another thread reads it */
static const char *_Atomic kernel, *_Atomic kernel_section; /* set in every step, so no text is copied */
static _Atomic uint64_t kernels;                            /* number of kernel calls (run, release) so far */

void hd_turn_share(struct hd_turn *to)
{
	turn = to ? to : &own;
}

/* Reports what the running slot, kernel or file did. For signal handlers. */
static void report(const char *what, const char *more)
{
	const char *of_slot[] = {
		"heddle: [", turn->section, "]: slot ", turn->slot, " of plugin ", turn->plugin, NULL
	};
	const char *of_kernel[] = { "heddle: [", kernel_section, "]: kernel ", kernel, NULL };
	const char *of_file[] = { "heddle: plugin ", turn->file, NULL };
	struct hd_handler_line line = { .n = 0 };

	for (const char **part = turn->slot[0] ? of_slot : kernel ? of_kernel : of_file; *part; part++)
		hd_handler_add(&line, *part);
	hd_handler_add(&line, what);
	hd_handler_add(&line, more);
	hd_handler_write(&line);
}

static const char *name_of(int signal)
{
	switch (signal) {
	case SIGSEGV: return "SIGSEGV (an invalid address)";
	case SIGBUS: return "SIGBUS";
	case SIGFPE: return "SIGFPE (a division by 0)";
	case SIGILL: return "SIGILL";
	default: return "SIGABRT (abort)";
	}
}

static void on_crash(int signal, siginfo_t *info, void *context)
{
	(void)context;
	if (signal == SIGBUS && info->si_code > 0 && hd_file_fault(info->si_addr))
		_exit(EXIT_FAILURE);
	if (turn->slot[0] || kernel)
		report(" ended by signal ", name_of(signal));
	else if (turn->file[0])
		report(": crashed while it was loaded, by signal ", name_of(signal));
	turn->slot[0] = turn->file[0] = 0;
	kernel = NULL;
	raise(signal); /* SA_RESETHAND is set, so the process ends as it would have without us */
}

static void on_exit_in_slot(void)
{
	if (!turn->slot[0] && !turn->file[0] && !kernel)
		return;
	report(turn->slot[0] || kernel ? " called exit" : ": called exit while it was loaded", "");
	_exit(EXIT_FAILURE);
}

#ifdef __SANITIZE_ADDRESS__
static void install_handlers(void)
{
	atexit(on_exit_in_slot); /* the sanitizer reports more about a crash */
	(void)on_crash;
}
#else
/* Installs the handlers at the first turn. MPI has started by then, so they replace its handlers. */
static void install_handlers(void)
{
	static const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };
	static char stack[64 << 10]; /* the crash may be a stack overflow */
	stack_t alt = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction a = { .sa_sigaction = on_crash,
			       .sa_flags = (int)(SA_SIGINFO | SA_RESETHAND | SA_NODEFER | SA_ONSTACK) };

	sigaltstack(&alt, NULL);
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		sigaction(signals[i], &a, NULL);
	atexit(on_exit_in_slot);
}
#endif

/* Writes " in slot S of [KIND NAME]", " in kernel K of [NAME]" or " while FILE is loaded", or nothing. The caller holds the
 * lock. */
static void describe(char *text, size_t size)
{
	const char *name = kernel, *section = kernel_section;

	if (turn->slot[0])
		snprintf(text, size, " in slot %s of [%s]", turn->slot, turn->section);
	else if (name && section)
		snprintf(text, size, " in kernel %s of [%s]", name, section);
	else if (turn->file[0])
		snprintf(text, size, " while %s is loaded", turn->file);
}

uint64_t hd_turn_now(char *text, size_t size)
{
	uint64_t slots;

	text[0] = 0;
	pthread_mutex_lock(&noting);
	describe(text, size);
	slots = turn->count;
	pthread_mutex_unlock(&noting);
	return slots + kernels;
}

/* In a signal handler this very thread may hold the lock. Then nothing is named. */
void hd_turn_where(char *text, size_t size)
{
	text[0] = 0;
	if (pthread_mutex_trylock(&noting))
		return;
	describe(text, size);
	pthread_mutex_unlock(&noting);
}

void hd_turn_kernel(const char *section, const char *name)
{
	kernels += name != NULL;
	kernel_section = section;
	kernel = name;
}

static int handlers_installed;

void hd_turn_handled(void)
{
	handlers_installed = 1;
}

static void install_once(void)
{
	if (!handlers_installed)
		install_handlers();
	handlers_installed = 1;
}

void hd_turn_file(const char *path)
{
	if (path)
		install_once();
	pthread_mutex_lock(&noting);
	turn->count++;
	snprintf(turn->file, sizeof(turn->file), "%s", path ? path : "");
	pthread_mutex_unlock(&noting);
}

static void note(const char *kind, const char *section, const char *plugin, const char *slot)
{
	turn->count++;
	turn->slot[0] = 0;
	if (!slot)
		return;
	snprintf(turn->section, sizeof(turn->section), "%s %s", kind, section);
	snprintf(turn->plugin, sizeof(turn->plugin), "%s", plugin);
	snprintf(turn->slot, sizeof(turn->slot), "%s", slot);
}

void hd_turn_note(const char *kind, const char *section, const char *plugin, const char *slot)
{
	if (slot)
		install_once();
	pthread_mutex_lock(&noting);
	note(kind, section, plugin, slot);
	pthread_mutex_unlock(&noting);
}
