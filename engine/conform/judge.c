/* SPDX-License-Identifier: Apache-2.0
 * Runs the list of checks in a child process. If a plugin crashes, exits or loops there, the check fails, and the
 * report names the slot. The next child continues after that check.
 */
#include <config.h>
#include "engine/conform/judge.h"
#include "engine/plan/plan.h"
#include "engine/plugin/turn.h"
#include "engine/process/launch.h"
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A check counts as asleep if it has used no processor time for as long as it may compute. That time is divided into
 * PARTS, since the suspension of a machine can lengthen one part. "No time" is less than a hundredth, which even a
 * loaded machine grants. */
enum { PARTS = 4 };
#define IDLE 0.01
/* Memory shared by parent and child: a multiple of that time, while the child waits for a different process; 0: no
 * limit. */
static int *patience;

void outcome_set(struct outcome *o, int verdict, const char *fmt, ...)
{
	char text[4000];
	va_list v;

	va_start(v, fmt);
	vsnprintf(text, sizeof(text), fmt, v);
	va_end(v);
	o->verdict = verdict;
	free(o->why);
	o->why = hd_strdup(text);
}

int outcome_refused(const struct judge *j, const struct hd_err *err, struct outcome *o)
{
	int mistake =
		err->code == HD_EBUG || err->code == HD_EIO || !*err->text || !strcmp(err->mistake, j->plugin->name);

	if (mistake)
		outcome_set(o, JUDGED_WRONG, "%s", *err->text ? err->text : "refused without a message");
	else
		outcome_set(o, JUDGED_SKIPPED, "refused: %s", err->text);
	return !mistake;
}

void outcome_constant(const struct judge *j, const struct hd_plan *p, struct outcome *o)
{
	for (int i = 0; i < p->ninst && o->verdict == JUDGED_OK; i++) {
		int64_t n;
		const struct tensor *t = p->inst[i].plugin == j->plugin ? hd_constant_state(p, i, &n) : NULL;

		if (t)
			outcome_set(o, JUDGED_WRONG, "state %s is read but never assigned, so it is always 0%s",
				    t->v.name, n > 1 ? "; there are others" : "");
	}
}

void judge_add(struct judge *j, void (*run)(struct judge *j, const struct judge_task *t, struct outcome *o),
	       struct layout *layout, int64_t number, const char *fmt, ...)
{
	char name[300];
	va_list v;

	va_start(v, fmt);
	vsnprintf(name, sizeof(name), fmt, v);
	va_end(v);
	if (j->options.only && !strstr(name, j->options.only)) {
		free(layout);
		return;
	}
	j->tasks = hd_grow(j->tasks, j->n, &j->cap, sizeof(*j->tasks));
	j->tasks[j->n++] = (struct judge_task){ hd_strdup(name), run, layout, number };
}

void judge_waits(int times)
{
	*patience = times;
}

void judge_limit(const struct judge *j)
{
	struct itimerval limit = { .it_value = { .tv_sec = j->options.seconds } };

	setitimer(ITIMER_PROF, &limit, NULL);
}

/* -- in the child --------------------------------------------------------------------------------- */
#define STUCK "does not return"
enum { TEXTS = 3 }; /* texts of an outcome: why, name, warnings */
struct outcome_header {
	int verdict, compared;
	struct layout layout;
	size_t length[TEXTS]; /* lengths of the texts that follow */
};
static int report_to;
static char *warnings; /* of the current check, as lines */

static void keep_warning(int level, const char *line)
{
	if (level != HD_LOG_WARN)
		fprintf(stderr, "heddle: %s\n", line);
	else if (!warnings || !strstr(warnings, line))
		hd_append(&warnings, "%s\n", line);
}

static void write_outcome(const struct outcome *o)
{
	const char *text[TEXTS] = { o->why ? o->why : "", o->name ? o->name : "", warnings ? warnings : "" };
	struct outcome_header head = { .verdict = o->verdict, .compared = o->compared, .layout = o->layout };

	for (int i = 0; i < TEXTS; i++)
		head.length[i] = strlen(text[i]);
	if (write(report_to, &head, sizeof(head)) < 0)
		_exit(3);
	for (int i = 0; i < TEXTS; i++)
		if (write(report_to, text[i], head.length[i]) < 0)
			_exit(3);
}

/* Reports what it can and ends the process. Nothing is safe after such a signal. */
static void on_signal(int sig)
{
	char where[200];
	struct outcome o = { .verdict = JUDGED_WRONG };
	char text[300];

	hd_turn_where(where, sizeof(where));
	snprintf(text, sizeof(text), "%s%s",
		 sig == SIGPROF   ? STUCK
		 : sig == SIGABRT ? "abort()"
		 : sig == SIGFPE  ? "a division by zero, or the like (SIGFPE)"
				  : "a crash: it accesses an invalid address (SIGSEGV)",
		 where);
	o.why = text;
	write_outcome(&o);
	_exit(JUDGE_ENDED);
}

static int at_work;
static void on_process_exit(void)
{
	char where[200], text[300];
	struct outcome o = { .verdict = JUDGED_WRONG, .why = text };

	if (!at_work)
		return;
	hd_turn_where(where, sizeof(where));
	snprintf(text, sizeof(text), "exit()%s: a plugin may not end the process", where);
	write_outcome(&o);
	_exit(JUDGE_ENDED);
}

static void child(struct judge *j, size_t from)
{
	static char stack[65536]; /* a slot with endless recursion has used up its own stack */
	stack_t other = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };
	static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGFPE, SIGPROF };

	hd_launch_die_with_parent();
	hd_turn_handled();
	sigaltstack(&other, NULL);
	for (size_t i = 0; i < HD_LEN(signals); i++)
		sigaction(signals[i], &act, NULL);
	atexit(on_process_exit);
	hd_log_init(1, HD_LOG_WARN);
	hd_log_to(keep_warning);
	dup2(2, 1); /* what a plugin prints must not mix with the results */
	for (size_t i = from; i < j->n; i++) {
		struct outcome o = { 0 };

		judge_limit(j);
		judge_waits(1);
		at_work = 1;
		j->tasks[i].run(j, &j->tasks[i], &o);
		at_work = 0;
		write_outcome(&o);
		free(o.why), free(o.name), free(warnings);
		warnings = NULL;
	}
	_exit(0);
}

/* -- in the parent -------------------------------------------------------------------------------- */
static int read_fully(int fd, void *to, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t k = read(fd, (char *)to + at, n - at);

		if (k <= 0 && !(k < 0 && errno == EINTR))
			return 0;
		at += k > 0 ? (size_t)k : 0;
	}
	return 1;
}

static int read_outcome(int fd, struct outcome *o, char **warned)
{
	struct outcome_header head = { 0 };
	char *text[TEXTS];
	int complete = read_fully(fd, (char *)&head, sizeof(head));

	for (int i = 0; i < TEXTS; i++) {
		text[i] = complete && head.length[i] ? hd_alloc(head.length[i] + 1) : NULL;
		complete = complete && read_fully(fd, text[i], head.length[i]);
	}
	*o = (struct outcome){ complete ? head.verdict : JUDGED_OK, text[0], text[1], head.layout, head.compared };
	*warned = text[2];
	return complete;
}

static double processor_seconds(pid_t pid)
{
	struct timespec t = { 0 };
	clockid_t clock;

	if (!clock_getcpuclockid(pid, &clock))
		clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Waits until the child reports something. If the child sleeps, it is made to report where, just as its own timer does
 * if it loops. */
static void await(const struct judge *j, pid_t pid, int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	double part = (double)j->options.seconds / PARTS, was = processor_seconds(pid);
	int idle = 0, signals_sent = 0;

	while (poll(&p, 1, (int)(part * 1000)) <= 0) {
		double now = processor_seconds(pid);

		idle = now - was < IDLE * part ? idle + 1 : 0;
		was = now;
		if (*patience && idle >= PARTS * *patience) {
			kill(pid, signals_sent++ ? SIGKILL : SIGPROF);
			idle = 0;
		}
	}
}

/* Counts the reason, without the line number of the layout's INI, which the user does not have. */
static void count_refusal(struct judge *j, const char *why)
{
	static const char refused[] = "refused: ", line[] = "layout:";
	const char *reason = why && !strncmp(why, refused, strlen(refused)) ? why + strlen(refused) : NULL, *end;
	char *text;

	if (!reason)
		return;
	if (!strncmp(reason, line, strlen(line)))
		reason = strchr(reason, ' ') ? strchr(reason, ' ') + 1 : reason;
	end = strstr(reason, " (drawn before");
	text = hd_format("%.*s", end ? (int)(end - reason) : (int)strlen(reason), reason);
	json_object_set_new(j->refusals, text,
			    json_integer(1 + json_integer_value(json_object_get(j->refusals, text))));
	free(text);
}

static void report_nothing_accepted(struct judge *j, FILE *out)
{
	struct outcome o = { 0 };
	const char *reason, *most = NULL;
	json_int_t count = 0;
	json_t *n;

	json_object_foreach(j->refusals, reason, n)
		if (json_integer_value(n) > count)
			most = reason, count = json_integer_value(n);
	outcome_set(
		&o, JUDGED_WRONG,
		"every layout was refused, so nothing was tested. The most frequent reason, %lld times: %s\n"
		"Keys that the plugin needs in its section can be given in an INI, and those of routers in [model]: heddle "
		"conform PLUGIN CONF",
		(long long)count, most ? most : "(no reason)");
	tap_result(j, out, "is accepted somewhere", &o);
	free(o.why);
}

/* Runs the checks from `from` on in one child. Returns the index of the check with which the next child begins: it is
 * after the one that ended this child, if any. */
static size_t run_child(struct judge *j, FILE *out, size_t from)
{
	struct outcome o;
	char *warned;
	size_t done = from;
	int fd[2], status = 0;
	pid_t pid;

	fflush(out);
	if (pipe(fd) || (pid = fork()) < 0) {
		outcome_set(&o, JUDGED_WRONG, "no child process can be started: %s", strerror(errno));
		tap_result(j, out, j->tasks[from].name, &o);
		return j->n;
	}
	if (!pid) {
		close(fd[0]);
		report_to = fd[1];
		child(j, from);
	}
	close(fd[1]);
	while (done < j->n) {
		await(j, pid, fd[0]);
		if (!read_outcome(fd[0], &o, &warned))
			break;
		tap_result(j, out, o.name ? o.name : j->tasks[done].name, &o);
		tap_warnings(j, out, warned);
		tap_compared(j, &o);
		count_refusal(j, o.verdict == JUDGED_SKIPPED ? o.why : NULL);
		j->accepted += o.verdict != JUDGED_SKIPPED && j->tasks[done].layout && j->tasks[done].number >= 0;
		done++;
		j->stuck += o.why && !strncmp(o.why, STUCK, strlen(STUCK));
		free(o.why), free(o.name);
	}
	close(fd[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	if (done < j->n && WIFEXITED(status) && WEXITSTATUS(status) == JUDGE_ENDED)
		return done; /* the check reported last is the one that ended the child */
	if (done < j->n) {
		o = (struct outcome){ .verdict = JUDGED_WRONG };
		outcome_set(&o, JUDGED_WRONG, "the process ended without a message (%s %d)",
			    WIFSIGNALED(status) ? "signal" : "status",
			    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		tap_result(j, out, j->tasks[done++].name, &o);
		free(o.why);
	}
	return done;
}

/* Asks a question in a child process, since it calls slots. Returns the child's exit status, or `otherwise` if the
 * child does not finish. */
int judge_ask(const struct judge *j, int (*question)(const struct judge *j), int otherwise)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		alarm((unsigned)j->options.seconds);
		hd_log_init(0, HD_LOG_ERROR);
		if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
			_exit(otherwise);
		_exit(question(j));
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : otherwise;
}

int loss_rank(const struct hd_inprocess *r, int from)
{
	for (int k = from; k < r->n; k++)
		if (hd_inprocess_address(r, r->plan->loss, k))
			return k;
	return -1;
}

double loss_of(const struct hd_inprocess *r)
{
	int k = loss_rank(r, 0);

	return k < 0 ? NAN : hd_inprocess_scalar(r, r->plan->loss, k);
}

#define MOST_STUCK 3

void judge_all(struct judge *j, FILE *out)
{
	struct outcome o = { 0 };

	patience = mmap(NULL, sizeof(*patience), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (patience == MAP_FAILED)
		patience = hd_alloc(sizeof(*patience)); /* stays 0 in this process: no limit */
	for (size_t at = 0; at < j->n;) {
		at = run_child(j, out, at);
		if (j->stuck < MOST_STUCK || at >= j->n)
			continue;
		outcome_set(&o, JUDGED_WRONG, "%d checks did not return; the other %zu were not started", j->stuck,
			    j->n - at);
		tap_result(j, out, "comes back", &o);
		break;
	}
	if (!j->accepted && !j->options.only && j->stuck < MOST_STUCK)
		report_nothing_accepted(j, out);
	free(o.why);
}
