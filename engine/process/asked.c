/* SPDX-License-Identifier: Apache-2.0
 * Signals that ask a run to end.  A thread waits for them; all others block them.
 *
 * A handler on a thread that computes would corrupt memory: oneDNN's generated products use the stack pointer for a buffer on the
 * heap, and the kernel writes the handler's frame below that pointer.  So no thread that computes may run a handler on its own stack.
 * The one signal that the main thread takes is WAKES, on a stack of its own.
 */
#include <config.h>
#include "engine/process/asked.h"
#include "engine/base/err.h"
#include "engine/process/launch.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE 2   /* seconds: so long the start of a run may still take, and then save */
#define LOOK 2.0     /* seconds: twice as long as between two looks */
#define STUCK 60     /* seconds in one kernel of a plugin, after which it is not waited for */
#define WAKES SIGURG /* ends a write that the main thread waits in; ignored where nobody handles it */

static atomic_int asked, from_launcher, by_launcher, ready, ends;
static void (*_Atomic on_ending)(void);
static const char *_Atomic hurry; /* not yet said */
static uint64_t (*_Atomic whose_turn)(char *text, size_t size);
static void (*_Atomic too_long)(const char *where, double seconds);
static double longest; /* written before too_long */
static pthread_t waiter, main_thread;
static int first, waits;

/* A launcher has told all ranks, and one speaks. */
static void leave(void) __attribute__((noreturn));
static void leave(void)
{
	static const char text[] = "heddle: asked to end before the first step: nothing is saved\n";

	if (first || !from_launcher)
		if (write(2, text, sizeof(text) - 1) < 0)
			_exit(2);
	_exit(1);
}

/* Seconds for which a plugin's slot or kernel, the same one, has not returned; where: "" if none runs.  A process that is stopped
 * for a while looks late: of the time since its last look no more than two seconds count. */
static double in_one_turn(char *where, size_t size)
{
	static uint64_t turn;
	static double looked, seconds;
	uint64_t is = whose_turn(where, size);
	double now = hd_seconds(), since = now - looked;

	seconds += since < LOOK ? since : LOOK;
	if (!*where || is != turn || looked == 0)
		seconds = 0;
	turn = is;
	looked = now;
	return seconds;
}

/* A plugin that does not return is no reason to stay for ever: the run would never look. */
static void leave_stuck(double limit)
{
	char where[200], text[400];
	double seconds = in_one_turn(where, sizeof(where));
	int n;

	if (seconds < limit)
		return;
	n = snprintf(text, sizeof(text),
		     "heddle: asked to end, and still%s after %.0f seconds: it is not waited for, nothing is saved\n",
		     where, seconds);
	if (write(2, text, (size_t)n) < 0)
		_exit(2);
	_exit(1);
}

/* Nobody has asked.  If all ranks are in a kernel that does not return, none waits for another, whose watchdog would tell. */
static void look_for_stuck(void)
{
	char where[200];
	double seconds = in_one_turn(where, sizeof(where));

	if (*where && seconds > longest)
		too_long(where, seconds);
}

/* At once, for the step may take longer than the launcher waits. SIGUSR1 is nobody's way to end a process soon. */
static void say_hurry(void)
{
	const char *text = asked && asked != SIGUSR1 && first ? atomic_exchange(&hurry, NULL) : NULL;

	if (text)
		hd_launch_tell(text);
}

static void take(const siginfo_t *info)
{
	void (*ending)(void);

	from_launcher = info->si_pid == getppid();
	by_launcher = info->si_signo != SIGUSR1 && from_launcher;
	asked = info->si_signo;
	say_hurry();
	ending = on_ending;
	if (!ready || !by_launcher)
		return;
	if (ending)
		ending();
	/* An mpirun that ends the job reads nothing more: a line that is printed for it would wait for ever. */
	pthread_kill(main_thread, WAKES);
}

static void signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGUSR1);
}

/* From hd_asked_pass_on.  A thread that is cancelled leaves what a sanitizer keeps of it behind. */
static int is_the_end(const siginfo_t *info)
{
	return ends && info->si_pid == getpid();
}

static void *wait_for_signals(void *unused)
{
	const struct timespec patience = { PATIENCE, 0 }, second = { 1, 0 };
	siginfo_t info;
	sigset_t set;

	(void)unused;
	signals(&set);
	for (;;) {
		int early = asked && !ready, watched = asked && ready && whose_turn, looks = !asked && too_long != NULL;

		if (sigtimedwait(&set, &info, early ? &patience : &second) > 0) {
			if (is_the_end(&info))
				return NULL;
			if (watched)
				leave_stuck(PATIENCE);
			take(&info);
		} else if (early && errno == EAGAIN && !ready) {
			leave();
		} else if (watched) {
			leave_stuck(STUCK);
		} else if (looks) {
			look_for_stuck();
		}
	}
}

static void wake(int sig)
{
	(void)sig;
}

/* Without SA_RESTART: the write is to end. */
static void handle_wakes(void)
{
	static char stack[64 << 10];
	stack_t alt = { .ss_sp = stack, .ss_size = sizeof(stack) }, is;
	struct sigaction sa = { .sa_handler = wake, .sa_flags = SA_ONSTACK };

	if (!sigaltstack(NULL, &is) && (is.ss_flags & SS_DISABLE))
		sigaltstack(&alt, NULL);
	sigaction(WAKES, &sa, NULL);
}

void hd_asked_open(void)
{
	sigset_t set, all, was;

	first = hd_launch_first();
	main_thread = pthread_self();
	signals(&set);
	sigprocmask(SIG_BLOCK, &set, NULL); /* also of all threads to come */
	handle_wakes();
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	waits = !pthread_create(&waiter, NULL, wait_for_signals, NULL);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	if (!waits) /* no thread to be had: they end the process, as they would without us */
		sigprocmask(SIG_UNBLOCK, &set, NULL);
}

void hd_asked_ready(void (*ending)(void))
{
	on_ending = ending;
	ready = 1;
	if (by_launcher && ending)
		ending();
}

void hd_asked_hurry(const char *text)
{
	hurry = text;
	say_hurry();
}

void hd_asked_watch(uint64_t (*turn)(char *text, size_t size))
{
	whose_turn = turn;
}

void hd_asked_watchdog(double seconds, void (*over)(const char *where, double seconds))
{
	longest = seconds;
	too_long = over;
}

int hd_asked_pass_on(void)
{
	if (!waits)
		return 0;
	ends = 1;
	pthread_kill(waiter, SIGUSR1);
	pthread_join(waiter, NULL);
	ends = waits = 0;
	if (asked)
		kill(getpid(), asked);
	return 1;
}

int hd_asked(void)
{
	return asked;
}

int hd_asked_by_launcher(void)
{
	return by_launcher;
}
