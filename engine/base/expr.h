/* SPDX-License-Identifier: Apache-2.0
 * engine/base/expr.h - elementwise expressions as text: parsed, differentiated, compiled to a short stack program.
 *
 * Variables a, b, c, ... are the inputs.  + - * / unary -, parentheses, numbers; exp log tanh erf sqrt abs sign round
 * floor (one argument; round: to the nearest, of two to the even one), min max (two), where(c, x, y): x where c > 0, else y.
 */
#ifndef HD_ENGINE_EXPR_H
#define HD_ENGINE_EXPR_H
#include "engine/base/err.h"

enum hd_expr_code {
	HD_X_VAR,
	HD_X_NUM,
	HD_X_ADD,
	HD_X_SUB,
	HD_X_MUL,
	HD_X_DIV,
	HD_X_NEG,
	HD_X_EXP,
	HD_X_LOG,
	HD_X_TANH,
	HD_X_SQRT,
	HD_X_ABS,
	HD_X_SIGN,
	HD_X_MIN,
	HD_X_MAX,
	HD_X_WHERE,
	HD_X_ROUND,
	HD_X_FLOOR,
	HD_X_ERF
};
struct hd_expr_op {
	int32_t code, var;
	double num;
};
struct hd_expr {
	int32_t n, depth, vars;
	struct hd_expr_op op[250];
}; /* postfix; depth: largest stack; vars: highest variable + 1 */

/* Operands of an operation. */
static inline int hd_expr_arity(int code)
{
	if (code <= HD_X_NUM)
		return 0;
	if (code <= HD_X_DIV || code == HD_X_MIN || code == HD_X_MAX)
		return 2;
	return code == HD_X_WHERE ? 3 : 1;
}

/* error: names the position and the text. */
int hd_expr_compile(const char *text, struct hd_expr *e, struct hd_err *err);
double hd_expr_eval(const struct hd_expr *e, const double *vars);
/* Text of the derivative by variable `var` (0 = a), simplified (0 and 1 folded).  malloc'ed; NULL on error.
 * "0" where it does not depend on it. */
char *hd_expr_derive(const char *text, int var, struct hd_err *err);
int hd_expr_linear(const char *text, int var); /* 1: homogeneous linear in that variable, the others fixed */

#endif
