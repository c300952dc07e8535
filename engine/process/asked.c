/* SPDX-License-Identifier: Apache-2.0
 * Signals that ask a run to end. A dedicated thread waits for them; all other threads block them.
 *
 * A handler on a thread that computes would corrupt memory: oneDNN's generated kernels point the stack pointer into a
 * buffer on the heap. The system would write the handler's frame below that pointer. So no thread that computes may
 * run a handler on its own stack. The only signal that the main thread takes is WAKES, on an alternate stack.
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

#define PATIENCE 2   /* seconds for the start of a run after a signal, or for a plugin after a second one */
#define LOOK 2.0     /* seconds: twice the time between two looks at what a plugin does */
#define STUCK 60     /* seconds in one slot or kernel of a plugin, after which the run no longer waits for it */
#define WAKES SIGURG /* interrupts a write in which the main thread is blocked; ignored by default */

static atomic_int requested, from_launcher, by_launcher, ready, stopping;
static void (*_Atomic on_ending)(void);
static const char *_Atomic notice; /* the text of hd_end_request_notice, until it is written */
static int (*job_failed)(void);    /* must be written before notice */
static uint64_t (*_Atomic running_call)(char *text, size_t size);
static void (*_Atomic on_too_long)(const char *where, double seconds);
static double longest_call; /* must be written before on_too_long */
static pthread_t waiter, main_thread;
static int first, waiter_runs;

/* Ends a process that was asked to before its first step. If the launcher sent the signal, all ranks got it, and only
 * the first one prints the message. */
static void end_early(void) __attribute__((noreturn));
static void end_early(void)
{
	static const char text[] = "heddle: asked to end before the first step: nothing is saved\n";

	if (first || !from_launcher)
		if (write(2, text, sizeof(text) - 1) < 0)
			_exit(2);
	_exit(1);
}

/* Returns for how many seconds the same slot or kernel of a plugin has been running. *where names it; "" if none runs.
 * A process that was stopped for a while would look late, so at most LOOK seconds count since the last call. */
static double seconds_in_call(char *where, size_t size)
{
	static uint64_t call;
	static double looked, seconds;
	uint64_t is = running_call(where, size);
	double now = hd_seconds(), since = now - looked;

	seconds += since < LOOK ? since : LOOK;
	if (!*where || is != call || looked == 0)
		seconds = 0;
	call = is;
	looked = now;
	return seconds;
}

/* Ends the process if a plugin's slot or kernel has been running for `limit` seconds. The run cannot notice the signal
 * before that returns, which may be never. */
static void end_if_stuck(double limit)
{
	char where[200], text[400];
	double seconds = seconds_in_call(where, sizeof(where));
	int n;

	if (seconds < limit)
		return;
	n = snprintf(text, sizeof(text),
		     "heddle: asked to end, but still%s after %.0f seconds: it is no longer waited for, and nothing is "
		     "saved\n",
		     where, seconds);
	if (write(2, text, (size_t)n) < 0)
		_exit(2);
	_exit(1);
}

/* Reports a plugin's slot or kernel that runs for too long in a run that nobody has asked to end. If all ranks are in
 * such a kernel, none of them waits for another, so the watchdog of communication would not notice. */
static void report_if_stuck(void)
{
	char where[200];
	double seconds = seconds_in_call(where, sizeof(where));

	if (*where && seconds > longest_call)
		on_too_long(where, seconds);
}

/* Writes the text of hd_end_request_notice at once, since the step may take longer than the launcher waits. SIGUSR1
 * needs no such warning: nobody who sends it kills the process soon afterwards. */
static void write_notice(void)
{
	const char *text = requested && requested != SIGUSR1 && first ? atomic_exchange(&notice, NULL) : NULL;

	if (text && !job_failed())
		hd_launch_tell(text);
}

static void handle_signal(const siginfo_t *info)
{
	void (*ending)(void);

	from_launcher = info->si_pid == getppid();
	by_launcher = info->si_signo != SIGUSR1 && from_launcher;
	requested = info->si_signo;
	write_notice();
	ending = on_ending;
	if (!ready || !by_launcher)
		return;
	if (ending)
		ending();
	/* An mpirun that ends the job reads no more output, so a blocked write would never return. */
	pthread_kill(main_thread, WAKES);
}

int hd_hangup_ends(void)
{
	struct sigaction is;

	return !sigaction(SIGHUP, NULL, &is) && is.sa_handler != SIG_IGN;
}

static void signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGUSR1);
	if (hd_hangup_ends())
		sigaddset(set, SIGHUP);
}

/* Returns whether hd_end_request_pass_on sent the signal, to end the waiting thread. Cancelling the thread instead
 * would leak what a sanitizer allocates for it. */
static int stops_waiter(const siginfo_t *info)
{
	return stopping && info->si_pid == getpid();
}

static void *wait_for_signals(void *unused)
{
	const struct timespec patience = { PATIENCE, 0 }, second = { 1, 0 };
	siginfo_t info;
	sigset_t set;

	(void)unused;
	signals(&set);
	for (;;) {
		int early = requested && !ready, watched = requested && ready && running_call,
		    looks = !requested && on_too_long != NULL;

		if (sigtimedwait(&set, &info, early ? &patience : &second) > 0) {
			if (stops_waiter(&info))
				return NULL;
			if (watched)
				end_if_stuck(PATIENCE);
			handle_signal(&info);
		} else if (early && errno == EAGAIN && !ready) {
			end_early();
		} else if (watched) {
			end_if_stuck(STUCK);
		} else if (looks) {
			report_if_stuck();
		}
	}
}

static void wake(int sig)
{
	(void)sig;
}

/* Installs the handler of WAKES, without SA_RESTART, so that the signal ends a blocked write. */
static void handle_wakes(void)
{
	static char stack[64 << 10];
	stack_t alt = { .ss_sp = stack, .ss_size = sizeof(stack) }, is;
	struct sigaction sa = { .sa_handler = wake, .sa_flags = SA_ONSTACK };

	if (!sigaltstack(NULL, &is) && (is.ss_flags & SS_DISABLE))
		sigaltstack(&alt, NULL);
	sigaction(WAKES, &sa, NULL);
}

void hd_end_request_open(void)
{
	sigset_t set, all, was;

	first = hd_launch_first();
	main_thread = pthread_self();
	signals(&set);
	sigprocmask(SIG_BLOCK, &set, NULL); /* inherited by all threads that are created later */
	handle_wakes();
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	waiter_runs = !pthread_create(&waiter, NULL, wait_for_signals, NULL);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	if (!waiter_runs) /* without the thread, the signals end the process, as they do by default */
		sigprocmask(SIG_UNBLOCK, &set, NULL);
}

void hd_end_request_ready(void (*ending)(void))
{
	on_ending = ending;
	ready = 1;
	if (by_launcher && ending)
		ending();
}

void hd_end_request_notice(const char *text, int (*failed)(void))
{
	job_failed = failed;
	notice = text;
	write_notice();
}

void hd_end_request_watch(uint64_t (*call)(char *text, size_t size))
{
	running_call = call;
}

void hd_end_request_watchdog(double seconds, void (*over)(const char *where, double seconds))
{
	longest_call = seconds;
	on_too_long = over;
}

int hd_end_request_pass_on(void)
{
	if (!waiter_runs)
		return 0;
	stopping = 1;
	pthread_kill(waiter, SIGUSR1);
	pthread_join(waiter, NULL);
	stopping = waiter_runs = 0;
	if (requested)
		kill(getpid(), requested);
	return 1;
}

int hd_end_requested(void)
{
	return requested;
}

int hd_end_requested_by_launcher(void)
{
	return by_launcher;
}
