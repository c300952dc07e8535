/* SPDX-License-Identifier: Apache-2.0
 * Elementwise expressions: text is parsed into a tree and written as postfix; a derivative becomes text again.
 *
 *	sum     := product { (+|-) product }
 *	product := unary { (*|/) unary }
 *	unary   := - unary | number | variable | function ( sum {, sum} ) | ( sum )
 *
 * The tree is stored in one growing table, and children are indices into it. So a derivative may share subtrees, and no
 * node is freed separately. A shared subtree is written out once per use; the size of the text is computed, and checked
 * against the limit, before it is written.
 */
#include <config.h>
#include "engine/base/expr.h"
#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPS ((int)HD_LEN(((struct hd_expr *)0)->op))
#define MAX_NEST 200 /* recursion limit of the parser, which bounds the C stack */

struct expr_node {
	int32_t code, var, arg[3];
	double num;
};
struct tree {
	struct expr_node *node;
	size_t n, cap;
	const char *text, *at; /* the parser's input and position */
	int nest;
	struct hd_err *err;
	int code; /* the first error, or 0 */
};

static const struct {
	const char *name;
	int code, args;
} functions[] = {
	{ "exp", HD_X_EXP, 1 },     { "log", HD_X_LOG, 1 },     { "tanh", HD_X_TANH, 1 },   { "sqrt", HD_X_SQRT, 1 },
	{ "abs", HD_X_ABS, 1 },     { "sign", HD_X_SIGN, 1 },   { "min", HD_X_MIN, 2 },     { "max", HD_X_MAX, 2 },
	{ "where", HD_X_WHERE, 3 }, { "round", HD_X_ROUND, 1 }, { "floor", HD_X_FLOOR, 1 }, { "erf", HD_X_ERF, 1 },
};

/* Evaluates one operation. sign keeps NaN and the sign of zero. min and max return the first argument if either is
 * NaN, so that max(a, 0) does not hide a NaN in a. */
static double apply(int code, double x, double y, double z)
{
	switch (code) {
	case HD_X_ADD: return x + y;
	case HD_X_SUB: return x - y;
	case HD_X_MUL: return x * y;
	case HD_X_DIV: return x / y;
	case HD_X_NEG: return -x;
	case HD_X_EXP: return exp(x);
	case HD_X_LOG: return log(x);
	case HD_X_TANH: return tanh(x);
	case HD_X_SQRT: return sqrt(x);
	case HD_X_ABS: return fabs(x);
	case HD_X_SIGN: return x > 0 ? 1 : x < 0 ? -1 : x;
	case HD_X_MIN: return y < x ? y : x;
	case HD_X_MAX: return y > x ? y : x;
	case HD_X_WHERE: return x > 0 ? y : z;
	case HD_X_ROUND: return rint(x);
	case HD_X_FLOOR: return floor(x);
	case HD_X_ERF: return erf(x);
	}
	return 0;
}

/* -- the tree ---------------------------------------------------------------------------------- */

static int add_node(struct tree *t, struct expr_node n)
{
	t->node = hd_grow(t->node, t->n, &t->cap, sizeof(*t->node));
	t->node[t->n] = n;
	return (int)t->n++;
}

static int number(struct tree *t, double v)
{
	return add_node(t, (struct expr_node){ .code = HD_X_NUM, .num = v });
}

static int is_number(const struct tree *t, int i)
{
	return t->node[i].code == HD_X_NUM;
}

static int is_value(const struct tree *t, int i, double v)
{
	return is_number(t, i) && t->node[i].num == v;
}

/* Appends a node. An operation on numbers alone is folded into a number if the result is finite, since only that can
 * be written as text. */
static int make(struct tree *t, int code, int x, int y, int z)
{
	int arg[3] = { x, y, z }, n = hd_expr_arity(code), fold = 1;
	double v[3] = { 0, 0, 0 };

	for (int i = 0; i < n; i++) {
		fold = fold && is_number(t, arg[i]);
		v[i] = t->node[arg[i]].num;
	}
	v[0] = fold ? apply(code, v[0], v[1], v[2]) : 0;
	if (fold && isfinite(v[0]))
		return number(t, v[0]);
	return add_node(t, (struct expr_node){ .code = code, .arg = { x, y, z } });
}

/* -- parser ------------------------------------------------------------------------------------ */

static int parse_sum(struct tree *t);

static int fail(struct tree *t, const char *at, const char *what)
{
	if (!t->code)
		t->code = hd_err_set(t->err, HD_EINVAL, "expression \"%.200s\": %s at position %d (\"%.20s\")", t->text,
				     what, (int)(at - t->text) + 1, *at ? at : "end");
	return number(t, 0); /* a valid node, so that the callers need not test */
}

static int next_is(struct tree *t, char c)
{
	while (isspace((unsigned char)*t->at))
		t->at++;
	if (t->code || *t->at != c)
		return 0;
	t->at++;
	return 1;
}

static int parse_call(struct tree *t, const char *word, int len)
{
	size_t f = 0;
	int arg[3] = { 0, 0, 0 };

	while (f < HD_LEN(functions) && (strncmp(functions[f].name, word, (size_t)len) || functions[f].name[len]))
		f++;
	if (f == HD_LEN(functions))
		return fail(t, word, len == 1 ? "a capital letter" : "an unknown function");
	if (!next_is(t, '('))
		return fail(t, t->at, "'(' missing after a function");
	for (int i = 0; i < functions[f].args; i++) {
		if (i && !next_is(t, ','))
			return fail(t, t->at, "too few arguments, ',' missing");
		arg[i] = parse_sum(t);
	}
	if (!next_is(t, ')'))
		return fail(t, t->at, *t->at == ',' ? "too many arguments" : "')' missing");
	return make(t, functions[f].code, arg[0], arg[1], arg[2]);
}

static int parse_number(struct tree *t)
{
	const char *start = t->at;
	char *end;
	double v;

	if (start[0] == '0' && (start[1] | 32) == 'x')
		return fail(t, start, "a hexadecimal number");
	v = strtod(start, &end);
	if (end == start || isalpha((unsigned char)*end) || *end == '.')
		return fail(t, start, "a malformed number");
	if (!isfinite(v))
		return fail(t, start, "a number out of range");
	t->at = end;
	return number(t, v);
}

static int parse_primary(struct tree *t)
{
	const char *start = t->at;
	int i;

	if (next_is(t, '(')) {
		i = parse_sum(t);
		return next_is(t, ')') ? i : fail(t, t->at, "')' missing");
	}
	if (isdigit((unsigned char)*start) || *start == '.')
		return parse_number(t);
	while (isalpha((unsigned char)*t->at))
		t->at++;
	if (t->at == start)
		return fail(t, start, "a value expected");
	if (t->at == start + 1 && *start >= 'a' && *start <= 'z')
		return add_node(t, (struct expr_node){ .code = HD_X_VAR, .var = *start - 'a' });
	return parse_call(t, start, (int)(t->at - start));
}

static int parse_unary(struct tree *t)
{
	int i;

	if (++t->nest > MAX_NEST)
		return fail(t, t->at, "nested too deeply");
	i = next_is(t, '-') ? make(t, HD_X_NEG, parse_unary(t), 0, 0) : parse_primary(t);
	t->nest--;
	return i;
}

static int parse_product(struct tree *t)
{
	int x = parse_unary(t);

	for (;;) {
		if (next_is(t, '*'))
			x = make(t, HD_X_MUL, x, parse_unary(t), 0);
		else if (next_is(t, '/'))
			x = make(t, HD_X_DIV, x, parse_unary(t), 0);
		else
			return x;
	}
}

static int parse_sum(struct tree *t)
{
	int x = parse_product(t);

	for (;;) {
		if (next_is(t, '+'))
			x = make(t, HD_X_ADD, x, parse_product(t), 0);
		else if (next_is(t, '-'))
			x = make(t, HD_X_SUB, x, parse_product(t), 0);
		else
			return x;
	}
}

/* Returns the number of operations that the tree has when written out. Children precede their parents in the table. */
static double written_size(const struct tree *t, int root)
{
	double *size = hd_alloc(t->n * sizeof(*size)), n;

	for (int i = 0; i <= root; i++) {
		size[i] = 1;
		for (int k = 0; k < hd_expr_arity(t->node[i].code); k++)
			size[i] += size[t->node[i].arg[k]];
	}
	n = size[root];
	free(size);
	return n;
}

static int check_size(struct tree *t, int root, const char *of)
{
	double n = written_size(t, root);

	if (n <= MAX_OPS)
		return root;
	t->code = hd_err_set(t->err, HD_EINVAL,
			     "expression \"%.200s\"%s has %.0f operations, at "
			     "most %d are possible",
			     t->text, of, n, MAX_OPS);
	return t->code;
}

/* Returns the root, or HD_E...; the caller frees t->node in both cases. An expression that is too large is refused
 * here, before any function recurses over the tree. */
static int parse(struct tree *t, const char *text, struct hd_err *err)
{
	int root;

	*t = (struct tree){ .text = text, .at = text, .err = err };
	root = parse_sum(t);
	if (!t->code && *t->at)
		fail(t, t->at, *t->at == ')' ? "a ')' without '('" : "an operator expected");
	return t->code ? t->code : check_size(t, root, "");
}

/* -- compile and evaluate ---------------------------------------------------------------------- */

static void emit(const struct tree *t, int i, struct hd_expr *e, int height)
{
	const struct expr_node *d = &t->node[i];

	for (int k = 0; k < hd_expr_arity(d->code); k++)
		emit(t, d->arg[k], e, height + k);
	e->op[e->n++] = (struct hd_expr_op){ .code = d->code, .var = d->var, .num = d->num };
	if (height + 1 > e->depth)
		e->depth = height + 1;
	if (d->code == HD_X_VAR && d->var >= e->vars)
		e->vars = d->var + 1;
}

int hd_expr_compile(const char *text, struct hd_expr *e, struct hd_err *err)
{
	struct tree t;
	int root = parse(&t, text, err);

	memset(e, 0, sizeof(*e));
	if (root >= 0)
		emit(&t, root, e, 0);
	free(t.node);
	return root < 0 ? root : 0;
}

double hd_expr_eval(const struct hd_expr *e, const double *vars)
{
	double stack[HD_LEN(e->op) + 3];
	int top = 0;

	memset(stack, 0, (size_t)(e->depth + 3) * sizeof(*stack));
	for (int i = 0; i < e->n; i++) {
		const struct hd_expr_op *o = &e->op[i];

		top -= hd_expr_arity(o->code);
		if (o->code == HD_X_VAR)
			stack[top] = vars[o->var];
		else if (o->code == HD_X_NUM)
			stack[top] = o->num;
		else
			stack[top] = apply(o->code, stack[top], stack[top + 1], stack[top + 2]);
		top++;
	}
	return stack[0];
}

/* -- derivative: nodes built with these functions fold 0, 1 and signs --------------------------- */

static int neg(struct tree *t, int x)
{
	return t->node[x].code == HD_X_NEG ? t->node[x].arg[0] : make(t, HD_X_NEG, x, 0, 0);
}

static int same(const struct tree *t, int x, int y)
{
	const struct expr_node *a = &t->node[x], *b = &t->node[y];

	if (x == y)
		return 1;
	if (a->code != b->code || a->var != b->var || a->num != b->num)
		return 0;
	for (int k = 0; k < hd_expr_arity(a->code); k++)
		if (!same(t, a->arg[k], b->arg[k]))
			return 0;
	return 1;
}

static int mul(struct tree *t, int x, int y);
static int sub(struct tree *t, int x, int y);

static int add(struct tree *t, int x, int y)
{
	if (is_value(t, x, 0))
		return y;
	if (is_value(t, y, 0))
		return x;
	if (t->node[y].code == HD_X_NEG)
		return sub(t, x, t->node[y].arg[0]);
	if (same(t, x, y))
		return mul(t, number(t, 2), x);
	return make(t, HD_X_ADD, x, y, 0);
}

static int sub(struct tree *t, int x, int y)
{
	if (is_value(t, y, 0))
		return x;
	if (is_value(t, x, 0))
		return neg(t, y);
	if (t->node[y].code == HD_X_NEG)
		return add(t, x, t->node[y].arg[0]);
	return make(t, HD_X_SUB, x, y, 0);
}

static int mul(struct tree *t, int x, int y)
{
	struct expr_node d = t->node[y]; /* a copy: the table moves as it grows */

	if (is_number(t, y) && !is_number(t, x))
		return mul(t, y, x);
	if (is_value(t, x, 0) || is_value(t, x, 1))
		return is_value(t, x, 0) ? x : y;
	if (is_value(t, x, -1))
		return neg(t, y);
	if (t->node[x].code == HD_X_NEG)
		return neg(t, mul(t, t->node[x].arg[0], y));
	if (d.code == HD_X_NEG)
		return neg(t, mul(t, x, d.arg[0]));
	if (is_number(t, x) && d.code == HD_X_MUL && is_number(t, d.arg[0]))
		return mul(t, make(t, HD_X_MUL, x, d.arg[0], 0), d.arg[1]);
	return make(t, HD_X_MUL, x, y, 0);
}

static int quotient(struct tree *t, int x, int y)
{
	if (is_value(t, x, 0) || is_value(t, y, 1))
		return x;
	if (is_value(t, y, -1))
		return neg(t, x);
	if (t->node[x].code == HD_X_NEG)
		return neg(t, quotient(t, t->node[x].arg[0], y));
	return make(t, HD_X_DIV, x, y, 0);
}

static int choose(struct tree *t, int c, int x, int y)
{
	return same(t, x, y) ? x : make(t, HD_X_WHERE, c, x, y);
}

static int unary_slope(struct tree *t, int i, int code, int x)
{
	switch (code) {
	case HD_X_EXP: return i;
	case HD_X_LOG: return quotient(t, number(t, 1), x);
	case HD_X_TANH: return sub(t, number(t, 1), mul(t, i, i));
	case HD_X_SQRT: return quotient(t, number(t, 0.5), i);
	case HD_X_ERF: /* 2 / sqrt(pi) exp(-x x) */
		return mul(t, number(t, 1.1283791670955126), make(t, HD_X_EXP, neg(t, mul(t, x, x)), 0, 0));
	case HD_X_ABS: return make(t, HD_X_SIGN, x, 0, 0);
	}
	return number(t, 0); /* sign, round, floor: slope 0 */
}

static int derive(struct tree *t, int i, int var)
{
	struct expr_node d = t->node[i]; /* a copy: the table moves as it grows */
	int x = d.arg[0], y = d.arg[1], dx, dy;

	if (hd_expr_arity(d.code) == 0)
		return number(t, d.code == HD_X_VAR && d.var == var);
	if (d.code == HD_X_WHERE)
		return choose(t, x, derive(t, y, var), derive(t, d.arg[2], var));
	dx = derive(t, x, var);
	if (hd_expr_arity(d.code) == 1 && d.code != HD_X_NEG)
		return is_value(t, dx, 0) ? dx : mul(t, dx, unary_slope(t, i, d.code, x));
	dy = hd_expr_arity(d.code) == 2 ? derive(t, y, var) : 0;
	switch (d.code) {
	case HD_X_NEG: return neg(t, dx);
	case HD_X_ADD: return add(t, dx, dy);
	case HD_X_SUB: return sub(t, dx, dy);
	case HD_X_MUL: return add(t, mul(t, dx, y), mul(t, x, dy));
	case HD_X_DIV: /* (x' - (x / y) y') / y: y squared would overflow earlier */
		return quotient(t, sub(t, dx, is_value(t, dy, 0) ? dy : mul(t, i, dy)), y);
	case HD_X_MIN: return choose(t, sub(t, y, x), dx, dy);
	default: /* if both are equal, the slope of the second: max(a, 0) has slope 0 at 0 */
		return choose(t, sub(t, x, y), dx, dy);
	}
}

/* -- text -------------------------------------------------------------------------------------- */

static int binds(const struct expr_node *d)
{
	if (d->code == HD_X_NEG || (d->code == HD_X_NUM && signbit(d->num)))
		return 3;
	if (d->code == HD_X_ADD || d->code == HD_X_SUB)
		return 1;
	return d->code == HD_X_MUL || d->code == HD_X_DIV ? 2 : 4;
}

static void write_number(FILE *f, double v)
{
	char s[40];
	int digits = 6;

	do
		snprintf(s, sizeof(s), "%.*g", digits, v);
	while (digits++ < 17 && strtod(s, NULL) != v);
	fputs(s, f);
}

static void write_node(FILE *f, const struct tree *t, int i);

/* The right operand keeps its brackets at equal precedence: a + (b - c) rounds differently from (a + b) - c. */
static void write_side(FILE *f, const struct tree *t, int i, int outer, int right)
{
	int inner = binds(&t->node[i]);
	int brackets = inner < outer || (right && (inner == outer || inner == 3));

	if (brackets)
		fputc('(', f);
	write_node(f, t, i);
	if (brackets)
		fputc(')', f);
}

static void write_node(FILE *f, const struct tree *t, int i)
{
	static const char *const sign[] = {
		[HD_X_ADD] = " + ",
		[HD_X_SUB] = " - ",
		[HD_X_MUL] = " * ",
		[HD_X_DIV] = " / ",
	};
	const struct expr_node *d = &t->node[i];

	if (d->code == HD_X_VAR) {
		fputc('a' + d->var, f);
	} else if (d->code == HD_X_NUM) {
		write_number(f, d->num);
	} else if (d->code == HD_X_NEG) {
		fputc('-', f);
		write_side(f, t, d->arg[0], 3, 1);
	} else if (d->code <= HD_X_DIV) {
		write_side(f, t, d->arg[0], binds(d), 0);
		fputs(sign[d->code], f);
		write_side(f, t, d->arg[1], binds(d), 1);
	} else {
		for (size_t k = 0; k < HD_LEN(functions); k++)
			if (functions[k].code == d->code)
				fprintf(f, "%s(", functions[k].name);
		for (int k = 0; k < hd_expr_arity(d->code); k++) {
			fputs(k ? ", " : "", f);
			write_node(f, t, d->arg[k]);
		}
		fputc(')', f);
	}
}

static char *written(const struct tree *t, int root)
{
	char *s = NULL;
	size_t len;
	FILE *f = open_memstream(&s, &len);

	if (!f)
		return NULL;
	write_node(f, t, root);
	return fclose(f) ? (free(s), NULL) : s;
}

char *hd_expr_derive(const char *text, int var, struct hd_err *err)
{
	struct tree t;
	struct hd_expr e;
	char *s = NULL;
	int root = parse(&t, text, err);

	if (root < 0)
		goto out_tree;
	root = check_size(&t, derive(&t, root, var), ", differentiated,");
	if (root < 0)
		goto out_tree;
	s = written(&t, root);
	if (!s)
		hd_err_set(err, HD_ENOMEM, "expression \"%.200s\": no memory for its derivative", text);
	else if (hd_expr_compile(s, &e, err) < 0) { /* nested deeper than the parser accepts */
		free(s);
		s = NULL;
	}
out_tree:
	free(t.node);
	return s;
}

/* -- linearity --------------------------------------------------------------------------------- */

enum { ZERO, CONSTANT, LINEAR, OTHER };

static int both(int x, int y) /* of the terms of a sum, or of two branches */
{
	if (x == ZERO || x == y)
		return y;
	return y == ZERO ? x : OTHER;
}

static int shape(const struct tree *t, int i, int var)
{
	const struct expr_node *d = &t->node[i];
	int k[3] = { ZERO, ZERO, ZERO };

	if (d->code == HD_X_VAR)
		return d->var == var ? LINEAR : CONSTANT;
	if (d->code == HD_X_NUM)
		return d->num == 0 ? ZERO : CONSTANT;
	for (int j = 0; j < hd_expr_arity(d->code); j++)
		k[j] = shape(t, d->arg[j], var);
	if (k[0] <= CONSTANT && k[1] <= CONSTANT && k[2] <= CONSTANT)
		return CONSTANT;
	switch (d->code) {
	case HD_X_ADD:
	case HD_X_SUB: return both(k[0], k[1]);
	case HD_X_NEG: return k[0];
	case HD_X_MUL:
		if (k[0] <= CONSTANT || k[1] <= CONSTANT)
			return k[0] == LINEAR || k[1] == LINEAR ? LINEAR : OTHER;
		return OTHER;
	case HD_X_DIV: return k[0] == LINEAR && k[1] == CONSTANT ? LINEAR : OTHER;
	case HD_X_WHERE: return k[0] <= CONSTANT ? both(k[1], k[2]) : OTHER;
	}
	return OTHER;
}

int hd_expr_linear(const char *text, int var)
{
	struct tree t;
	struct hd_err err = { 0 };
	int root = parse(&t, text, &err), kind = root < 0 ? OTHER : shape(&t, root, var);

	free(t.node);
	return kind == LINEAR || kind == ZERO;
}
