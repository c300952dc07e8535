/* SPDX-License-Identifier: Apache-2.0
 * usage: t1114-fuzz-input.t [SECONDS [SEED [NAME...]]]
 * Files of strangers (t/fuzz).  Each file of t/data/fuzz once did harm or is the first of its kind; all are read or
 * refused.  If this broke, a file from elsewhere could crash a run, take all memory, or give access to other files.
 * With SECONDS, as in `make check-fuzz-input`, files of each kind are changed at random for that time.  It ends when
 * all runs together have tried HD_FUZZ_WANTED inputs of the kind.
 */
#include <config.h>
#include "t/fuzz/fuzz.h"
#include "t/lib/tap.h"

static int is_asked(const char *name, int argc, char **argv)
{
	for (int i = 3; i < argc; i++)
		if (!strcmp(name, argv[i]))
			return 1;
	return argc <= 3;
}

/* Returns the number of inputs that were run, or a negative number if one crashed. */
static int64_t search(const struct hd_fuzz_input *i, const char *corpus, int seconds, uint64_t seed)
{
	int64_t wanted = hd_fuzz_wanted(), before = hd_fuzz_tally(i->name), n;
	double from = hd_seconds();

	if (wanted && before >= wanted) {
		note("%s: all %lld executions were made before", i->name, (long long)wanted);
		return hd_fuzz_replay(i, corpus);
	}
	n = hd_fuzz_run(i, corpus, seconds, seed);
	note("%s: %.0f executions per second, %lld of %lld", i->name, (double)n / (hd_seconds() - from),
	     (long long)hd_fuzz_tally(i->name), (long long)wanted);
	return n;
}

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 0;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	int64_t all = 0;

	for (const struct hd_fuzz_input *i = hd_fuzz_inputs; i->name; i++) {
		char *corpus = hd_format("%s/t/data/fuzz/%s", HD_TEST_SRC, i->name);
		int64_t n;

		if (is_asked(i->name, argc, argv)) {
			n = seconds ? search(i, corpus, seconds, seed) : hd_fuzz_replay(i, corpus);
			ok(n > 0, "%s: %lld inputs are read or refused", i->name, (long long)n);
			all += n > 0 ? n : 0;
		}
		free(corpus);
	}
	note("%lld inputs", (long long)all);
	return done();
}
