/* SPDX-License-Identifier: Apache-2.0
 * Signals that ask a run to end.
 */
#include <config.h>
#include "engine/process/asked.h"
#include "engine/process/launch.h"
#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t asked, from_launcher, by_launcher, ready;
static void (*volatile on_ending)(void);
static int first;

#define PATIENCE 2 /* seconds: so long the start of a run may still take, and then save */

/* All that a handler may do.  A launcher has told all ranks, and one speaks. */
static void leave(int sig)
{
	static const char text[] = "heddle: asked to end before the first step: nothing is saved\n";

	(void)sig;
	if (first || !from_launcher)
		if (write(2, text, sizeof(text) - 1) < 0)
			_exit(2);
	_exit(1);
}

static void on_signal(int sig, siginfo_t *from, void *unused)
{
	(void)unused;
	asked = sig;
	from_launcher = from->si_pid == getppid();
	by_launcher = sig != SIGUSR1 && from_launcher;
	if (!ready)
		alarm(PATIENCE);
	else if (by_launcher && on_ending)
		on_ending();
}

static void signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGUSR1);
}

void hd_asked_hold(int on)
{
	sigset_t set;

	signals(&set);
	sigprocmask(on ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

static void handle(int flags)
{
	struct sigaction sa = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | flags };

	signals(&sa.sa_mask);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGUSR1, &sa, NULL);
}

void hd_asked_open(void)
{
	first = hd_launch_first();
	handle(SA_RESTART);
	signal(SIGALRM, leave);
	hd_asked_hold(0); /* what came while the program was started again */
}

/* No SA_RESTART: a line that is printed for an mpirun that ends the job would wait for it to the end. */
void hd_asked_ready(void (*ending)(void))
{
	handle(0);
	on_ending = ending;
	ready = 1;
	alarm(0);
	if (by_launcher && ending)
		ending();
}

int hd_asked(void)
{
	return asked;
}

int hd_asked_by_launcher(void)
{
	return by_launcher;
}
