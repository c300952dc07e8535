/* SPDX-License-Identifier: Apache-2.0
 * usage: t1113-fuzz.t [SEEDS [FIRST]]
 * A plugin that makes random calls with random arguments (t/plugins/fuzz.c), and one with random tables, in plans of
 * three families with and without other plugins.  An accepted plan is bound and makes a step.  If this broke, a mistake
 * in somebody's plugin would crash the engine, or access memory outside the plan.  `make check-fuzz` runs it for
 * thousands of seeds under sanitizers.
 *
 * Each seed runs in a child, which must end in time with a step, or with one line that names the section or the plugin.
 */
#include <config.h>
#include "engine/conform/judge.h"
#include "engine/inprocess/inprocess.h"
#include "engine/program/match.h"
#include "t/lib/tap.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 120, CALLS_MAX = 1024, FIRST_END = 64 /* not a status of abort, exit or a sanitizer */ };
/* LATE: refused after planning, by the checks of `heddle check`; FAILED: failed in its first step. */
enum end { STEPPED, REFUSED, LATE, FAILED, BAD, CRASHED, ENDS };

static struct shared {
	uint32_t made[CALLS_MAX];
} * counts; /* in a file that the plugin maps too */
static char counts_path[] = "/tmp/heddle-t1113.XXXXXX";
static char *why; /* the last child's message, in shared memory */

/* Seeds beyond the usual range that have found a mistake. */
static const long once_wrong[] = { 858 };

/* Every fourth seed tests tables (t/plugins/fuzz_tables.c), the others calls. */
static int is_of_tables(long seed)
{
	return seed % 4 == 3;
}

static void write_ini(char *to, size_t room, long seed)
{
	static const char *const families[] = { "family = gpt2\nmlp = 12\n", "family = llama\nkv_heads = 1\nmlp = 12\n",
						"family = mixtral\nkv_heads = 1\nmlp = 12\nexperts = 2\n"
						"experts_per_token = 1\n",
						"family = fuzzed\nkv_heads = 1\nmlp = 12\n" };
	static const int wild[] = { 0, 4, 40, 400, 0, 10 };
	static const char *const more[] = {
		"", "[strategy dp]\nplugin = " HD_TEST_BUILD "/plugins/dp/.libs/dp.so\nsize = 2\n",
		"[strategy tp]\nplugin = " HD_TEST_BUILD "/plugins/tp/.libs/tp.so\nsize = 2\n"
	};

	char plugin[600];
	const char *family =
		families[!is_of_tables(seed) && seed % 7 == 0 ? 3 : seed % 3]; /* 3: the plugin's own family */

	if (is_of_tables(seed))
		snprintf(plugin, sizeof(plugin), "fuzz_tables.so\nsize = 2\n");
	else
		snprintf(plugin, sizeof(plugin), "fuzz.so\nsize = 2\nseed = %ld\nwild = %d\ncalls = %ld\ncounts = %s\n",
			 seed, wild[seed % 6], 2 + seed % 29, counts_path);
	snprintf(to, room,
		 "[model]\n%slayers = 2\nheads = 2\nembed = 8\nvocab = 11\n[data]\ntrain = none\n"
		 "[train]\nseq = 4\nglobal_batch = 4\nmicro_batch = 1\nsteps = 1\noptimizer = %s\n%s"
		 "[strategy f]\nplugin = " HD_TEST_BUILD "/t/plugins/.libs/%s",
		 family, seed % 5 ? "sgd" : "f", more[seed / 3 % 3], plugin);
}

/* Checks, as `heddle check` does, that sends, receives and collectives of all ranks match. */
static int meet(const struct hd_inprocess *r, struct hd_err *err)
{
	struct hd_classes c;
	struct hd_match_run *m;

	hd_classes_find(r->plan, &c);
	m = hd_match_create(r->plan, &c);
	for (int64_t k = 0; k < c.n; k++)
		hd_match_add(m, k, r->program[c.ranks[c.first[k]]]);
	hd_match_all(m, err);
	hd_match_destroy(m);
	hd_classes_release(&c);
	return err->code;
}

/* Runs a step of the plugin's serial definition after one of the layout; its result is ignored. */
static void serial_step(const struct hd_inprocess *layout)
{
	static const char ini[] =
		"[model]\nlayers = 2\nheads = 2\nembed = 8\nmlp = 12\nvocab = 11\n[data]\ntrain = none\n"
		"[train]\nseq = 4\nglobal_batch = 1\nmicro_batch = 1\nsteps = 1\noptimizer = sgd\n";
	struct hd_inprocess *alone = NULL;
	struct hd_err err = { 0 };
	struct serial_model *m;
	double loss = 0;
	int planned;

	if (!layout->plan->inst[0].plugin->serial || hd_inprocess_open(ini, 1, &alone, &planned, &err) < 0)
		return;
	m = serial_model_create(layout, alone, 0.1);
	serial_model_step(m, 1, &loss, &err);
	serial_model_destroy(m);
	hd_inprocess_close(alone);
}

static int is_said_well(const char *text)
{
	return *text && !strchr(text, '\n') && (strstr(text, "[strategy ") || strstr(text, "fuzz"));
}

/* Plans, binds and makes a step, in the child. */
static enum end run(long seed)
{
	struct hd_inprocess *r = NULL;
	struct hd_err err = { 0 };
	char ini[4000], number[30];
	int planned = 0, begins;

	hd_log_init(1, getenv("HD_FUZZ_LOUD") ? HD_LOG_DEBUG : -1);
	write_ini(ini, sizeof(ini), seed);
	snprintf(number, sizeof(number), "%ld", seed);
	setenv("HD_FUZZ_SEED", number, 1);
	begins = hd_inprocess_open(ini, 0, &r, &planned, &err) >= 0 && meet(r, &err) >= 0;
	if (begins && hd_inprocess_step(r, &err) >= 0) {
		if (seed % 3 == 0)
			serial_step(r);
		hd_inprocess_close(r);
		return STEPPED;
	}
	snprintf(why, 4096, "%s", err.text);
	if (begins)
		return FAILED;
	return !is_said_well(err.text) ? BAD : planned ? LATE : REFUSED;
}

static enum end one(long seed)
{
	pid_t child;
	int status = 0;

	*why = 0;
	fflush(NULL);
	if (getenv("HD_FUZZ_HERE")) /* for a debugger */
		return run(seed);
	child = fork();
	if (!child) {
		int quiet = open("/dev/null", O_WRONLY);

		if (quiet >= 0 && !getenv("HD_FUZZ_LOUD"))
			dup2(quiet, STDOUT_FILENO);
		alarm(SECONDS);
		_exit(FIRST_END + run(seed));
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status) >= FIRST_END && WEXITSTATUS(status) < FIRST_END + CRASHED)
		return (enum end)(WEXITSTATUS(status) - FIRST_END);
	snprintf(why, 4096, WIFSIGNALED(status) ? "signal %d" : "status %d",
		 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return CRASHED;
}

static int open_shared(void)
{
	int f = mkstemp(counts_path);

	if (f < 0 || ftruncate(f, 4096))
		return -1;
	counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
	why = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	close(f);
	return counts == MAP_FAILED || why == MAP_FAILED ? -1 : 0;
}

int main(int argc, char **argv)
{
	static const char *const names[ENDS] = { "made a step",
						 "was refused",
						 "was refused after it was planned",
						 "was accepted and failed",
						 "was refused without a name, or in several lines",
						 "crashed or never ended" };
	long seeds = argc > 1        ? atol(argv[1])
		     : whole_sweep() ? 400
				     : 80,
	     first = argc > 2 ? atol(argv[2]) : 1, n[ENDS] = { 0 };
	long kept = argc > 1 ? 0 : (long)HD_LEN(once_wrong);
	uint32_t kinds[2] = { 0 }, calls = 0;

	if (open_shared())
		skip_all("no temporary file");
	for (long i = 0; i < seeds + kept; i++) {
		long seed = i < seeds ? first + i : once_wrong[i - seeds];
		enum end e = one(seed);

		n[e]++;
		if (e >= LATE || getenv("HD_FUZZ_LOUD"))
			note("seed %ld %s: %s", seed, names[e], why);
	}
	for (int i = 0; i < CALLS_MAX; i++)
		kinds[i >= CALLS_MAX / 2] += counts->made[i] > 0, calls += counts->made[i];
	note("%ld made a step, %ld refused, %ld of them late; %u calls of %u kinds", n[STEPPED], n[REFUSED] + n[LATE],
	     n[LATE], calls, kinds[1]);
	is_int(n[CRASHED], 0, "no plan crashes or hangs the engine");
	is_int(n[FAILED], 0, "an accepted plan makes a step");
	is_int(n[BAD], 0, "a refusal is one line that names the section or the plugin");
	ok(n[STEPPED] && n[REFUSED], "some plans are refused, and some are not");
	is_int(kinds[0], 48, "each call was made with valid arguments");
	is_int(kinds[1], 48, "... and with random arguments");
	unlink(counts_path);
	return done();
}
