/* SPDX-License-Identifier: Apache-2.0
 * Expressions of ops.  If this broke, a plugin's op would compute something other than its text says, or train on a
 * wrong gradient without any message.
 */
#include <config.h>
#include "engine/base/expr.h"
#include "t/lib/tap.h"

static double eval(const char *text, double a, double b, double c)
{
	struct hd_expr e;
	struct hd_err err = { 0 };
	double v[26] = { a, b, c };

	if (hd_expr_compile(text, &e, &err) < 0) {
		note("%s", err.text);
		return NAN;
	}
	return hd_expr_eval(&e, v);
}

static void check_values(void)
{
	static const struct {
		const char *text;
		double want;
	} t[] = {
		/* a = 2, b = -3, c = 0.5 */
		{ "a", 2 },
		{ " b ", -3 },
		{ "1.5e1", 15 },
		{ ".5", 0.5 },
		{ "a+b*c", 0.5 },
		{ "(a+b)*c", -0.5 },
		{ "a-b-c", 4.5 },
		{ "a-(b-c)", 5.5 },
		{ "a/b/c", -4.0 / 3 },
		{ "a/(b/c)", -1.0 / 3 },
		{ "-a*b", 6 },
		{ "a--b", -1 },
		{ "a*-b", 6 },
		{ "--a", 2 },
		{ "-(a+b)", 1 },
		{ "2-3-4", -5 },
		{ "8/4/2", 1 },
		{ "exp(c)", 1.6487212707001282 },
		{ "log(a)", 0.69314718055994531 },
		{ "tanh(c)", 0.46211715726000976 },
		{ "sqrt(a)", 1.4142135623730951 },
		{ "abs(b)", 3 },
		{ "sign(b)", -1 },
		{ "sign(0*a)", 0 },
		{ "min(a,b)", -3 },
		{ "max(a,b)", 2 },
		{ "where(a,b,c)", -3 },
		{ "where(b,b,c)", 0.5 },
		{ "where(0,b,c)", 0.5 },
		{ "erf(c)", 0.52049987781304654 },
		{ "erf(-a)", -0.99532226501895273 },
		{ "round(c)", 0 },
		{ "round(b * c)", -2 },
		{ "round(5 * c)", 2 },
		{ "floor(b * c)", -2 },
		{ "floor(a + c)", 2 },
		{ "floor(b)", -3 },
		{ "max(a, min(b, c) * 4)", 2 },
	};

	for (size_t i = 0; i < HD_LEN(t); i++)
		near(eval(t[i].text, 2, -3, 0.5), t[i].want, 1e-15, t[i].text);
	ok(isnan(eval("max(a, 0)", NAN, 0, 0)), "max(a, 0) does not hide a nan");
	ok(isnan(eval("sign(a)", NAN, 0, 0)), "sign does not hide a nan");
	ok(eval("1/0", 0, 0, 0) == INFINITY, "1/0 is an infinity");
}

/* The derivative by Richardson's form of the central difference: error h^4, rounding 2^-53 / h. */
static double slope(const char *text, int var, const double *at)
{
	double d[2];

	for (int k = 0; k < 2; k++) {
		double h = k ? 5e-4 : 1e-3, up[3], down[3];

		memcpy(up, at, sizeof(up));
		memcpy(down, at, sizeof(down));
		up[var] += h;
		down[var] -= h;
		d[k] = eval(text, up[0], up[1], up[2]) - eval(text, down[0], down[1], down[2]);
		d[k] /= 2 * h;
	}
	return (4 * d[1] - d[0]) / 3;
}

/* Returns the largest difference from the numerical slope, relative to 1 + |slope|, on a grid that misses kinks. */
static double worst(const char *text, const char *derivative, int var)
{
	static const double grid[] = { -2.11, -0.87, -0.31, 0.43, 1.07, 2.53 };
	double most = 0;

	for (int i = 0; i < 6 * 6 * 6; i++) {
		double at[3] = { grid[i % 6], grid[i / 6 % 6] + 0.017, grid[i / 36] - 0.029 };
		double want = slope(text, var, at), got = eval(derivative, at[0], at[1], at[2]);

		if (isnan(want)) /* outside the domain of log or sqrt */
			continue;
		most = fmax(most, fabs(got - want) / (1 + fabs(want)));
		if (isnan(got))
			return NAN;
	}
	return most;
}

static void check_derivative(const char *text, int twice)
{
	for (int var = 0; var < 3; var++) {
		struct hd_err err = { 0 };
		char *d = hd_expr_derive(text, var, &err), *dd = NULL;

		ok(d && worst(text, d, var) < 1e-8, "d/d%c %s = %.160s", 'a' + var, text, d ? d : err.text);
		if (d && twice) {
			dd = hd_expr_derive(d, var, &err);
			ok(dd && worst(d, dd, var) < 1e-8, "d2/d%c2 %s", 'a' + var, text);
		}
		free(d);
		free(dd);
	}
}

static void check_derivatives(void)
{
	static const char *const once[] = {
		"0.5 * a * (1 + tanh(0.7978845608028654 * (a + 0.044715 * a * a * a)))",
		"exp(tanh(a * b) - sqrt(c * c + a * a)) / (1 + exp(-b))",
		"a * b * c * a * b * c / (1 + a * a + b * b + c * c)",
	};
	static const char *const twice[] = {
		"3",
		"a",
		"a + b - c",
		"a * b * c",
		"a / b / c",
		"a - (b - (c - a))",
		"-a * -b",
		"a * a * a",
		"a / (1 + exp(-a)) * b",
		"max(a, 0)",
		"min(a, b) * max(b, c)",
		"abs(a * b) + abs(c)",
		"sqrt(a * a + b * b)",
		"log(abs(a) + abs(b))",
		"where(a - b, a * c, b * c)",
		"tanh(a * b)",
		"sign(a) * b + where(c, a * a, -a)",
		"exp(a) - exp(-a * b)",
		"log(a) * sqrt(b)",
		"a + sign(b) * 0.00012345678901234567",
		"2 * (3 * a) * (b / -1) - 0 * c",
	};

	for (size_t i = 0; i < HD_LEN(once); i++)
		check_derivative(once[i], 0);
	for (size_t i = 0; i < HD_LEN(twice); i++)
		check_derivative(twice[i], 1);
}

static void derives_to(const char *text, const char *want)
{
	struct hd_err err = { 0 };
	char *d = hd_expr_derive(text, 0, &err);

	is_str(d ? d : err.text, want, text);
	free(d);
}

static void check_simple(void)
{
	derives_to("b * c + 7", "0");
	derives_to("a", "1");
	derives_to("a * b + c", "b");
	derives_to("a * a", "2 * a");
	derives_to("-a", "-1");
	derives_to("a + sign(b) * 0.1", "1");
	derives_to("a / 4", "0.25");
	derives_to("max(a, 0)", "where(a, 1, 0)");
	derives_to("tanh(a)", "1 - tanh(a) * tanh(a)");
	derives_to("sqrt(a)", "0.5 / sqrt(a)");
	derives_to("abs(a)", "sign(a)");
	derives_to("where(a, b, c)", "0");
	derives_to("exp(-a)", "-exp(-a)");
}

static void check_linear(void)
{
	static const struct {
		const char *text;
		int want;
	} t[] = {
		{ "a", 1 },
		{ "2 * a", 1 },
		{ "-a/3 + a", 1 },
		{ "a * b", 1 },
		{ "a * exp(b)", 1 },
		{ "where(b, a, 0)", 1 },
		{ "where(b, a, c)", 0 },
		{ "a + 1", 0 },
		{ "a + b", 0 },
		{ "a*a", 0 },
		{ "b/a", 0 },
		{ "abs(a)", 0 },
		{ "where(a, a, 0)", 0 },
		{ "b", 0 },
		{ "max(a, b)", 0 },
		{ "0", 1 },
		{ "a + 0", 1 },
		{ "(a - b * a) * (c + 1)", 1 },
		{ "a +", 0 },
		{ "exp(a)", 0 },
	};

	for (size_t i = 0; i < HD_LEN(t); i++)
		is_int(hd_expr_linear(t[i].text, 0), t[i].want, t[i].text);
}

static void refused(const char *text, const char *want)
{
	struct hd_expr e;
	struct hd_err err = { 0 };
	int rc = hd_expr_compile(text, &e, &err);

	ok(rc == HD_EINVAL && strstr(err.text, want), "\"%.30s\": %.150s", text, err.text);
	ok(!hd_expr_derive(text, 0, NULL), "... and has no derivative");
}

static char *repeated(const char *piece, int n, const char *end)
{
	char *s = hd_alloc(strlen(piece) * (size_t)n + strlen(end) + 1);

	for (int i = 0; i < n; i++)
		memcpy(s + strlen(piece) * (size_t)i, piece, strlen(piece));
	memcpy(s + strlen(piece) * (size_t)n, end, strlen(end) + 1);
	return s;
}

static void check_refused(void)
{
	char *deep = repeated("(", 100000, "a"), *longest = repeated("a + ", 300000, "a");
	char *minus = repeated("-", 100000, "a"), *edge = repeated("a * ", 124, "a");
	struct hd_expr e;
	struct hd_err err = { 0 };

	refused("", "a value expected at position 1 (\"end\")");
	refused("a +", "a value expected at position 4");
	refused("a b", "an operator expected at position 3 (\"b\")");
	refused("(a", "')' missing at position 3");
	refused("a)", "a ')' without '(' at position 2");
	refused("sin(a)", "an unknown function at position 1 (\"sin(a)\")");
	refused("tan(a)", "an unknown function at position 1");
	refused("exp a", "'(' missing after a function at position 5");
	refused("min(a)", "too few arguments, ',' missing at position 6");
	refused("exp(a, b)", "too many arguments at position 6");
	refused("a * A", "a capital letter at position 5");
	refused("0x10", "a hexadecimal number at position 1");
	refused("1.2.3", "a malformed number at position 1");
	refused("2a", "a malformed number at position 1");
	refused("a + 1e999", "a number out of range at position 5");
	refused("a ^ 2", "an operator expected at position 3");
	refused("a; b", "an operator expected at position 2");
	refused(deep, "nested too deeply at position 201");
	refused(minus, "nested too deeply");
	refused(longest, "has 600001 operations, at most 250 are possible");
	ok(hd_expr_compile(edge, &e, &err) == 0 && e.n == 249, "249 operations fit");
	ok(!hd_expr_derive(edge, 0, &err) && strstr(err.text, "differentiated, has"),
	   "... but those of its derivative do not: %.200s", err.text + 200);
	free(deep);
	free(longest);
	free(minus);
	free(edge);
}

int main(void)
{
	struct hd_expr e;

	check_values();
	check_derivatives();
	check_simple();
	check_linear();
	check_refused();
	ok(!hd_expr_compile("a + (b + (c + z))", &e, NULL), "an expression with the last of 26 variables is accepted");
	is_int(e.vars, 26, "... and vars counts up to the highest variable");
	is_int(e.depth, 4, "... and depth is the largest depth of the stack");
	ok(!hd_expr_compile("c * a", &e, NULL) && e.vars == 3,
	   "vars counts up to the highest variable, also if a lower one follows it");
	return done();
}
