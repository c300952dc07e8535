/* SPDX-License-Identifier: Apache-2.0
 * t/lib/tap.h - checks for test programs in C.  They print TAP, which prove and `make check` read.
 *
 *	ok(cond, fmt, ...)			one check, named by the printf text
 *	is_int(got, want, name)			equal integers (long long)
 *	is_str(got, want, name)			equal texts; NULL equals only NULL
 *	near(got, want, tol, name)		|got - want| <= tol; a NaN fails
 *	skip(why, ...)				skips one check that cannot be made here
 *	skip_all(why, ...)			skips the complete program and ends it; must come before any check
 *	note(fmt, ...)				prints a comment line
 *	whole_sweep()				0 in the tiers check and ci, where a representative of a long sweep is enough
 *	return done();				prints the plan and returns the exit status; no check is a failure
 *
 * A check returns 1 if it passed.  Otherwise it returns 0 and prints its place and both values.
 * HD_TEST_REQUIRE=gpu,nccl makes a skip fail if its reason has one of these words: an automatic run names there what
 * its machine must have.
 */
#ifndef HD_TAP_H
#define HD_TAP_H
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TAP_UNUSED __attribute__((unused))
#define TAP_PRINTF(f, a) __attribute__((format(printf, f, a), unused))

#define ok(cond, ...) tap_ok(!!(cond), #cond, __FILE__, __LINE__, __VA_ARGS__)
#define is_int(got, want, name) tap_is_int(got, want, #got, __FILE__, __LINE__, name)
#define is_str(got, want, name) tap_is_str(got, want, #got, __FILE__, __LINE__, name)
#define near(got, want, tol, name) tap_near(got, want, tol, #got, __FILE__, __LINE__, name)

static TAP_UNUSED int whole_sweep(void)
{
	const char *tier = getenv("HD_TEST_TIER");

	return !tier || (strcmp(tier, "check") && strcmp(tier, "ci"));
}

static int tap_count TAP_UNUSED, tap_failed TAP_UNUSED;

static TAP_PRINTF(5, 6) int tap_ok(int pass, const char *expr, const char *file, int line, const char *fmt, ...)
{
	va_list v;

	printf("%sok %d - ", pass ? "" : "not ", ++tap_count);
	va_start(v, fmt);
	vprintf(fmt, v);
	va_end(v);
	putchar('\n');
	if (!pass)
		printf("# %s:%d: %s\n", file, line, expr);
	fflush(stdout); /* so that a later crash loses nothing and a child does not print it twice */
	tap_failed += !pass;
	return pass;
}

static TAP_UNUSED int tap_is_int(long long got, long long want, const char *expr, const char *file, int line,
				 const char *name)
{
	if (!tap_ok(got == want, expr, file, line, "%s", name))
		printf("#   got %lld\n#  want %lld\n", got, want);
	return got == want;
}

static TAP_UNUSED int tap_is_str(const char *got, const char *want, const char *expr, const char *file, int line,
				 const char *name)
{
	int same = got && want ? !strcmp(got, want) : got == want;

	if (!tap_ok(same, expr, file, line, "%s", name))
		printf("#   got %s%s%s\n#  want %s%s%s\n", got ? "\"" : "", got ? got : "NULL", got ? "\"" : "",
		       want ? "\"" : "", want ? want : "NULL", want ? "\"" : "");
	return same;
}

static TAP_UNUSED int tap_near(double got, double want, double tol, const char *expr, const char *file, int line,
			       const char *name)
{
	int within = got == want || fabs(got - want) <= tol; /* the first test is for infinities */

	if (!tap_ok(within, expr, file, line, "%s", name))
		printf("#   got %.17g\n#  want %.17g within %g, off by %g\n", got, want, tol, fabs(got - want));
	return within;
}

/* Returns whether HD_TEST_REQUIRE names a word of this reason. */
static TAP_UNUSED int tap_required(const char *why)
{
	const char *list = getenv("HD_TEST_REQUIRE"), *hit;
	size_t n;

	for (; list && *list; list += n + (list[n] == ',')) {
		n = strcspn(list, ",");
		for (hit = why; n && *hit; hit++)
			if (!strncasecmp(hit, list, n) && !isalnum((unsigned char)hit[n]) &&
			    (hit == why || !isalnum((unsigned char)hit[-1])))
				return 1;
	}
	return 0;
}

static TAP_PRINTF(1, 2) void skip(const char *why, ...)
{
	char text[512];
	va_list v;

	va_start(v, why);
	vsnprintf(text, sizeof(text), why, v);
	va_end(v);
	if (tap_required(text))
		tap_ok(0, "HD_TEST_REQUIRE asks for it", __FILE__, __LINE__, "required: %s", text);
	else
		printf("ok %d # SKIP %s\n", ++tap_count, text);
	fflush(stdout);
}

static TAP_UNUSED int done(void)
{
	printf("1..%d\n", tap_count);
	if (!tap_count)
		printf("# nothing was checked\n");
	else if (tap_failed)
		printf("# %d of %d failed\n", tap_failed, tap_count);
	fflush(stdout);
	return !tap_count || tap_failed;
}

static TAP_PRINTF(1, 2) void skip_all(const char *why, ...)
{
	char text[512];
	va_list v;

	va_start(v, why);
	vsnprintf(text, sizeof(text), why, v);
	va_end(v);
	if (tap_required(text) || tap_count) {
		tap_ok(0, "a reason to skip everything, first", __FILE__, __LINE__, "required: %s", text);
		exit(done());
	}
	printf("1..0 # SKIP %s\n", text);
	exit(0);
}

static TAP_PRINTF(1, 2) void note(const char *fmt, ...)
{
	va_list v;

	printf("# ");
	va_start(v, fmt);
	vprintf(fmt, v);
	va_end(v);
	putchar('\n');
}

#endif
