/* SPDX-License-Identifier: Apache-2.0
 * Texts of any length: attributes, expressions, names, messages.  If this broke, a formula could be cut in the middle
 * of a number, "a + b * 0.12" instead of "a + b * 0.125", and the run would silently compute something else.
 */
#include <config.h>
#include "engine/host/host.h"
#include "engine/graph/op.h"
#include "t/lib/graph_test.h"
#include "t/lib/tap.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An expression of more than n bytes, in few operations. */
static char *long_expr(int n)
{
	return hd_format("a * 0.%0*d5 + a", n, 0);
}

static void expressions(void)
{
	static const int lengths[] = { 480, 505, 590, 640, 5000 };
	struct hd_plan *p = gt_plan(1);
	const struct hd_op *map = hd_graph_table.op(p, "map");
	struct tensor *x;
	int map_is = 1, node_is = 1, op1_is = 1, make_is = 1;

	hd_dim_get(p, "embed", 8);
	x = gt_param(p, "x", "embed");
	for (size_t i = 0; i < HD_LEN(lengths); i++) {
		char *want = long_expr(lengths[i]);
		struct hd_tensor *in = &x->v, *y = hd_graph_table.map(p, &in, 1, "%s", want);
		struct hd_node *n = hd_graph_table.node(p, map, &in, 1, "%s", want);
		struct tensor *z = hd_op1(p, "map", &x, 1, "%s", want);
		struct node *m = hd_node_make(p, "map", &x, 1, "%s", want);

		map_is &= y && !strcmp(y->node->attr, want);
		node_is &= n && !strcmp(n->attr, want);
		op1_is &= z && !strcmp(z->v.node->attr, want);
		make_is &= m && !strcmp(m->attr, want);
		free(want);
	}
	ok(map_is, "map accepts an expression of any length");
	ok(node_is, "node accepts attributes of any length");
	ok(op1_is && make_is, "... and so do the engine's own builders");
	is_int(p->err->code, 0, "... without an error");
	hd_plan_destroy(p);
}

/* Eight dims, each with a name of a hundred letters. */
static void dims(void)
{
	struct hd_plan *p = gt_plan(1);
	const struct hd_dim *d[HD_MAX_DIMS + 1];
	struct tensor *x;
	struct hd_tensor *in, *y;
	char *spec = NULL;

	for (int i = 0; i < HD_MAX_DIMS; i++) {
		char *name = hd_format("%0100d", i);

		d[i] = hd_dim_get(p, name, 2);
		hd_append(&spec, "%s%s", i ? "," : "", name);
		free(name);
	}
	x = gt_param(p, "x", spec);
	in = x ? &x->v : NULL;
	y = hd_graph_table.einsum(p, &in, 1, d, HD_MAX_DIMS - 1);
	ok(y && y->ndim == HD_MAX_DIMS - 1 && y->dims[y->ndim - 1] == d[HD_MAX_DIMS - 2], "einsum has all its dims");
	d[HD_MAX_DIMS] = hd_dim_get(p, "one_more", 2);
	hd_append(&spec, ",one_more");
	hd_parse_dims(p, spec, d);
	ok(p->err->code == HD_EINVAL && strstr(p->err->text, "more than 8 dims"), "one dim too many is refused");
	free(spec);
	hd_plan_destroy(p);
}

static char *launched;

static int launch(struct hd_record *r, const char *kernel, struct hd_tensor *const *ins, uint32_t nin,
		  struct hd_tensor *const *outs, uint32_t nout, const char *attr)
{
	(void)r, (void)kernel, (void)ins, (void)nin, (void)outs, (void)nout;
	launched = hd_strdup(attr);
	return HD_OK;
}

static void launches(void)
{
	struct hd_record r = { .api = &hd_record_table, .launch = launch };
	char *want = long_expr(700);

	hd_record_table.launch(&r, "map", NULL, 0, NULL, 0, "%s", want);
	is_str(launched, want, "launch accepts attributes of any length");
	free(want);
	free(launched);
}

/* Messages have a limited length, and show that they were cut. */
static void messages(void)
{
	struct hd_plan *p = gt_plan(1);
	size_t n;

	hd_plan_fail(p, HD_EINVAL, "%0*d is not a multiple", 900, 7);
	ok(strstr(p->err->text, "7 is not a multiple"), "an error of 900 bytes is complete");
	p->err->code = 0;
	hd_plan_fail(p, HD_EINVAL, "%0*d", 3000, 7);
	n = strlen(p->err->text);
	ok(n > 900 && !strcmp(p->err->text + n - 4, " ..."), "an error of 3000 bytes ends with a sign that it was cut");
	hd_plan_destroy(p);
}

/* Returns the number of bytes that hd_log prints of a message of 3000, on a rank that may speak or not. */
static long printed(int speaks, int level)
{
	FILE *to = tmpfile();
	int kept = dup(2);
	long n;

	fflush(stderr);
	dup2(fileno(to), 2);
	hd_log_init(speaks, HD_LOG_INFO);
	hd_log(level, "%03000d", 7);
	fflush(stderr);
	dup2(kept, 2);
	close(kept);
	hd_log_init(1, HD_LOG_INFO);
	fseek(to, 0, SEEK_END);
	n = ftell(to);
	fclose(to);
	return n;
}

static void logs(void)
{
	const long whole = (long)strlen("heddle: ") + 3000 + 1;

	is_int(printed(1, HD_LOG_INFO), whole, "a message of 3000 bytes is printed completely");
	is_int(printed(1, HD_LOG_DEBUG), 0, "a message below the log level is not printed");
	is_int(printed(0, HD_LOG_WARN), 0, "... nor is a warning of a rank that does not speak");
	is_int(printed(0, HD_LOG_ERROR), whole, "... but its error is printed");
}

int main(void)
{
	expressions();
	dims();
	launches();
	messages();
	logs();
	return done();
}
