/* SPDX-License-Identifier: Apache-2.0
 * Tests the checks of t/lib/tap.h: if one of them let a failure pass, every other test could be silently wrong.
 * The program runs itself, with an argument, as a test that fails on purpose, and compares the output.
 */
#include <config.h>
#include "t/lib/tap.h"
#include <sys/wait.h>

static int fail_on_purpose(void)
{
	ok(1 == 1, "passes %d", 1);
	ok(1 == 2, "fails");
	is_int(3, 4, "int");
	is_str("a", NULL, "string");
	near(1.0, 1.5, 0.25, "far");
	near(NAN, NAN, 1.0, "nan");
	near(1.0, 1.25, 0.25, "close");
	near(INFINITY, INFINITY, 0.0, "infinite");
	is_str("a", "a", "same");
	skip("no gpu here");
	return done();
}

/* Returns the exit status and stores the output in text. */
static int run(char *text, size_t room, const char *env, const char *self, const char *mode)
{
	char command[1024];
	FILE *out;
	size_t n;
	int status;

	snprintf(command, sizeof(command), "%s %s %s", env, self, mode);
	fflush(stdout);
	out = popen(command, "r");
	if (!out)
		return -1;
	n = fread(text, 1, room - 1, out);
	text[n] = 0;
	status = pclose(out);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char **argv)
{
	char text[4096];
	int rc;

	if (argc > 1 && !strcmp(argv[1], "fail"))
		return fail_on_purpose();
	if (argc > 1 && !strcmp(argv[1], "empty"))
		return done();
	if (argc > 1 && !strcmp(argv[1], "skip"))
		skip_all("needs a gpu, or two");

	rc = run(text, sizeof(text), "HD_TEST_REQUIRE=", argv[0], "fail");
	is_int(rc, 1, "a failed check fails the program");
	ok(strstr(text, "ok 1 - passes 1\n") == text, "the first line of the output is the first check");
	ok(strstr(text, "\nnot ok 2 - fails\n# ") != NULL, "a false condition fails");
	ok(strstr(text, "t0000-tap.c:") && strstr(text, ": 1 == 2\n"), "file, line and expression are printed");
	ok(strstr(text, "\nnot ok 3 - int\n") && strstr(text, "#   got 3\n#  want 4\n"),
	   "a failed integer check prints both values");
	ok(strstr(text, "\nnot ok 4 - string\n") && strstr(text, "#   got \"a\"\n#  want NULL\n"),
	   "a failed string check prints both values, and NULL is not a string");
	ok(strstr(text, "\nnot ok 5 - far\n") && strstr(text, "off by 0.5"), "a number outside the tolerance fails");
	ok(strstr(text, "\nnot ok 6 - nan\n") != NULL, "a NaN is not near anything, not even a NaN");
	ok(strstr(text, "\nok 7 - close\n") && strstr(text, "\nok 8 - infinite\n"), "the tolerance is inclusive");
	ok(strstr(text, "\nok 10 # SKIP no gpu here\n") != NULL, "a skip is reported as ok, with its reason");
	ok(strstr(text, "\n1..10\n# 5 of 10 failed\n") != NULL,
	   "the plan counts all checks, and the summary counts the failed ones");

	rc = run(text, sizeof(text), "HD_TEST_REQUIRE=nccl,gpu", argv[0], "fail");
	ok(rc == 1 && strstr(text, "\nnot ok 10 - required: no gpu here\n"), "HD_TEST_REQUIRE makes a skip fail");
	rc = run(text, sizeof(text), "HD_TEST_REQUIRE=pu", argv[0], "fail");
	ok(strstr(text, "\nok 10 # SKIP") != NULL, "HD_TEST_REQUIRE matches only whole words");
	rc = run(text, sizeof(text), "HD_TEST_REQUIRE=", argv[0], "empty");
	ok(rc == 1 && !strncmp(text, "1..0\n", 5), "a program without a check fails");
	rc = run(text, sizeof(text), "HD_TEST_REQUIRE=", argv[0], "skip");
	is_str(text, "1..0 # SKIP needs a gpu, or two\n", "skip_all skips the entire program");
	is_int(rc, 0, "... which is not a failure");
	rc = run(text, sizeof(text), "HD_TEST_REQUIRE=gpu", argv[0], "skip");
	ok(rc == 1 && strstr(text, "not ok 1 - required"), "... unless HD_TEST_REQUIRE names its reason");
	return done();
}
