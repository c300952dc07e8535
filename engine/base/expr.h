/* SPDX-License-Identifier: Apache-2.0
 * engine/base/expr.h - elementwise expressions as text: parsed, differentiated, compiled to a short stack program.
 *
 * The variables a, b, c, ... are the inputs. Operators are + - * / and unary -; parentheses and numbers are allowed.
 * Functions of one argument are exp log tanh erf sqrt abs sign round floor; round takes ties to the even number. min
 * and max take two arguments. where(c, x, y) is x where c > 0, else y.
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
}; /* operations in postfix order; depth: the most stack slots in use; vars: highest variable + 1 */

/* Returns the number of operands of an operation. */
static inline int hd_expr_arity(int code)
{
	if (code <= HD_X_NUM)
		return 0;
	if (code <= HD_X_DIV || code == HD_X_MIN || code == HD_X_MAX)
		return 2;
	return code == HD_X_WHERE ? 3 : 1;
}

/* Parses and compiles the text; an error names the text and the position. */
int hd_expr_compile(const char *text, struct hd_expr *e, struct hd_err *err);
double hd_expr_eval(const struct hd_expr *e, const double *vars);
/* Returns the text of the derivative with respect to variable `var` (0 = a), with 0 and 1 folded; the caller frees
 * it. It is "0" if the expression does not depend on the variable, and NULL on error. */
char *hd_expr_derive(const char *text, int var, struct hd_err *err);
/* Returns 1 if the expression is homogeneous and linear in that variable, the others fixed. */
int hd_expr_linear(const char *text, int var);

#endif
