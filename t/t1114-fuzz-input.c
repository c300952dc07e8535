/* SPDX-License-Identifier: Apache-2.0
 * usage: t1114-fuzz-input.t [SECONDS [SEED [NAME...]]]
 * Files of strangers (t/fuzz): those of t/data/fuzz, each of which once did harm or begins a kind of its own, are read or refused.  If
 * this broke, a file from elsewhere would crash a run, take all memory, or lead to other files.  With SECONDS, as `make
 * check-fuzz-input` has it: so long of each kind's files changed at random.
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

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 0;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	int64_t all = 0;

	for (const struct hd_fuzz_input *i = hd_fuzz_inputs; i->name; i++) {
		char *corpus = hd_format("%s/t/data/fuzz/%s", HD_TEST_SRC, i->name);
		int64_t n;

		if (is_asked(i->name, argc, argv)) {
			n = seconds ? hd_fuzz_run(i, corpus, seconds, seed) : hd_fuzz_replay(i, corpus);
			ok(n > 0, "%s: %lld inputs are read or refused", i->name, (long long)n);
			all += n > 0 ? n : 0;
		}
		free(corpus);
	}
	note("%lld inputs", (long long)all);
	return done();
}
