/* SPDX-License-Identifier: Apache-2.0
 * The orders that the plugin pp makes, for all numbers of stages, micro-batches and chunks: each unit once, no deadlock,
 * and the bubble and the micro-batches in flight of the papers.  Also its messages about a user's file that is wrong.
 * If this broke, `check` would accept an order that hangs, or a machine would be bought for a bubble that no run has.
 *
 * GPipe (Huang et al. 2019): (p - 1) / m.  1F1B and interleaved (Narayanan et al. 2021): (p - 1) / m, (p - 1) / (v m).
 * ZB-H1 (Qi et al. 2023), F = B = W: (p - 1) / (3 m).  With fewer micro-batches than stages it is (2 p - 1 - m) / (3
 * m), because the first stage cannot begin its last part sooner.
 */
#include <config.h>
#include "engine/schedule/schedule_check.h"
#include "plugins/pp/schedule.c" /* with a host of its own, below */
#include "t/lib/tap.h"
#include <stdarg.h>

#define P 8
#define V 4
#define M 16
#define UNITS (3 * V * M)

static struct hd_schedule_unit list[P][UNITS];
static const struct hd_schedule_unit *lists[P];
static int count[P], table[P * V];
static char said[300];
static const char *text;
static void *heap[8];
static int nheap;

static int take(struct hd_plan *p, const struct hd_unit_args *x)
{
	int64_t c = x->coord;

	(void)p;
	if (c >= 0 && c < P && count[c] < UNITS)
		list[c][count[c]++] = (struct hd_schedule_unit){ .kind = x->kind,
								 .chunk = (int32_t)x->chunk,
								 .micro = (int32_t)x->micro };
	return HD_OK;
}

static int fail(struct hd_plan *p, int32_t code, const char *fmt, ...)
{
	va_list v;

	(void)p;
	va_start(v, fmt);
	vsnprintf(said, sizeof(said), fmt, v);
	va_end(v);
	return code;
}

static int status(struct hd_plan *p)
{
	(void)p;
	return said[0] ? HD_EINVAL : HD_OK;
}

static void *room(struct hd_plan *p, size_t bytes)
{
	(void)p;
	return heap[nheap++] = calloc(1, bytes);
}

static const char *content(struct hd_plan *p, const char *key)
{
	(void)p, (void)key;
	return text;
}

static const char *path(struct hd_plan *p, const char *key)
{
	(void)p, (void)key;
	return "x.csv";
}

static void HD_PRINTF(5, 6)
	quiet(struct hd_plan *p, int32_t level, const char *file, int32_t line, const char *fmt, ...)
{
	(void)p, (void)level, (void)file, (void)line, (void)fmt;
}

static const struct hd_host host = { .size = sizeof(host),
				     .unit = take,
				     .fail = fail,
				     .status = status,
				     .alloc = room,
				     .opt_text = content,
				     .opt_str = path,
				     .log = quiet };

static int make(int order, int p, int m, int v)
{
	struct hd_axis axis = { .size = sizeof(axis), .name = "pp", .n = p };
	struct hd_strategy s = { .h = &host, .pp = &axis, .chunks = v, .order = order };
	int rc;

	memset(count, 0, sizeof(count));
	said[0] = 0;
	for (int r = 0; r < p; r++) {
		lists[r] = list[r];
		for (int c = 0; c < v; c++)
			table[r * v + c] = c * p + r;
	}
	rc = pp_schedule(&s, NULL, m);
	while (nheap)
		free(heap[--nheap]);
	return rc;
}

static int check(int p, int m, int v, struct hd_schedule_report *rep, struct hd_err *err)
{
	struct hd_schedule s = { .p = p, .v = v, .m = m, .units = lists, .n = count, .part_of = table };

	return hd_schedule_check(&s, rep, err);
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

static int in_flight(int order, int p, int m, int v, int r)
{
	switch (order) {
	case PP_GPIPE: return m;
	case PP_1F1B: return least(p - r, m);
	case PP_ZB: return least(p, m);
	default: return v == 1 ? least(p - r, m) : least((p - r - 1) * 2 + (v - 1) * p + 1, m * v);
	}
}

static double bubble(int order, int p, int m, int v)
{
	if (order == PP_ZB)
		return (m >= p ? p - 1.0 : 2.0 * p - 1 - m) / (3.0 * m);
	return (p - 1.0) / (v * m);
}

/* Returns a description of the first error of one order, or NULL. */
static char *judge(int order, int p, int m, int v)
{
	struct hd_schedule_report rep = { 0 };
	struct hd_err err = { 0 };
	char *why = NULL;

	if (make(order, p, m, v) < 0)
		return hd_strdup(said);
	if (check(p, m, v, &rep, &err) < 0)
		return hd_strdup(err.text);
	if (fabs(rep.bubble - bubble(order, p, m, v)) > 1e-9)
		why = hd_format("bubble %.4f, not %.4f", rep.bubble, bubble(order, p, m, v));
	for (int r = 0; r < p && !why; r++)
		if (rep.in_flight[r] != in_flight(order, p, m, v, r))
			why = hd_format("stage %d has %d in flight, not %d", r, rep.in_flight[r],
					in_flight(order, p, m, v, r));
	hd_schedule_report_release(&rep);
	return why;
}

static void all_sizes(int order, const char *name, int chunks)
{
	int made = 0, refused = 0;
	char *why = NULL;

	for (int p = 1; p <= P && !why; p++)
		for (int m = 1; m <= M && !why; m++)
			for (int v = 1; v <= chunks && !why; v++) {
				if (v > 1 && m % p) {
					char want[100];

					snprintf(want, sizeof(want),
						 "the %d micro-batches of a step are not a multiple of the %d stages",
						 m, p);
					refused += make(order, p, m, v) == HD_EDIVIDE && strstr(said, want);
					continue;
				}
				why = judge(order, p, m, v);
				made++;
				if (why)
					note("p %d m %d v %d: %s", p, m, v, why);
			}
	ok(!why, "%s: %d orders have the bubble and the micro-batches in flight of the paper", name, made);
	is_int(made + refused, P * M * chunks,
	       "... and a number of micro-batches that does not divide is refused with both numbers");
	free(why);
}

/* -- orders as drawn in the papers ------------------------------------------------------------- */
/* Returns the units of a stage in order, such as "F0 F1 B0 B1"; a chunk other than 0 follows a dot. */
static const char *drawn(int order, int p, int m, int v, int r)
{
	static char line[1000];
	size_t n = 0;

	line[0] = 0;
	if (make(order, p, m, v) < 0)
		return said;
	for (int i = 0; i < count[r]; i++) {
		const struct hd_schedule_unit *u = &list[r][i];
		char kind = u->kind == HD_UNIT_F ? 'F' : u->kind == HD_UNIT_B ? 'B' : 'W';

		n += (size_t)snprintf(line + n, sizeof(line) - n, u->chunk ? "%s%c%d.%d" : "%s%c%d", i ? " " : "", kind,
				      (int)u->micro, (int)u->chunk);
	}
	return line;
}

static void drawings(void)
{
	for (int r = 0; r < 3; r++)
		is_str(drawn(PP_GPIPE, 3, 3, 1, r), "F0 F1 F2 B2 B1 B0",
		       "gpipe: backward begins with the last micro-batch");
	is_str(drawn(PP_1F1B, 3, 4, 1, 0), "F0 F1 F2 B0 F3 B1 B2 B3",
	       "1f1b: the first of three stages has the order of the paper");
	is_str(drawn(PP_1F1B, 3, 4, 1, 1), "F0 F1 B0 F2 B1 F3 B2 B3",
	       "1f1b: the second stage has the order of the paper");
	is_str(drawn(PP_1F1B, 3, 4, 1, 2), "F0 B0 F1 B1 F2 B2 F3 B3",
	       "1f1b: the last stage has the order of the paper");
	is_str(drawn(PP_INTERLEAVED, 2, 2, 2, 0), "F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1",
	       "interleaved: the first of two stages has the order of the paper");
	is_str(drawn(PP_INTERLEAVED, 2, 2, 2, 1), "F0 F1 F0.1 B0.1 F1.1 B1.1 B0 B1",
	       "interleaved: the last stage has the order of the paper");
}

/* -- files ------------------------------------------------------------------------------------------------------------------- */
static void file(const char *csv, const char *want, const char *name)
{
	struct hd_err err = { 0 };

	text = csv;
	if (make(PP_FILE, 2, 2, 1) >= 0)
		check(2, 2, 1, NULL, &err);
	else
		snprintf(err.text, sizeof(err.text), "%s", said);
	is_str(err.text, want, name);
}

#define GOOD "0,F,0,0\n0,F,0,1\n0,B,0,0\n0,B,0,1\n1,F,0,0\n1,B,0,0\n1,F,0,1\n1,B,0,1\n"

/* The same order in the forms that people and spreadsheets write. */
static void as_written(void)
{
	file(GOOD, "", "a file that is an order is accepted");
	file("0,F,0,0\r\n0,F,0,1\r\n0,B,0,0\r\n0,B,0,1\r\n\r\n1,F,0,0\r\n1,B,0,0\r\n1,F,0,1\r\n1,B,0,1", "",
	     "... with other line ends");
	file("\xef\xbb\xbfrank,kind,chunk,micro\n" GOOD, "", "... with a byte order mark and a header line");
	file("# mine\n 0, F, 0, 0 \n0,F,0,1\n\n  # back\n0,B,0,0\n0,B,0,1\n1,F,0,0\n1,B,0,0\n1 ,F,0,1\n1,B\t,0,1\n", "",
	     "... with blanks, empty lines and comments");
	file("# my order\n\nrank,kind,chunk,micro\n" GOOD, "", "... with names after a comment");
	file("rank,kind,chunk,micro\r0,F,0,0\r0,F,0,1\r0,B,0,0\r0,B,0,1\r1,F,0,0\r1,B,0,0\r1,F,0,1\r1,B,0,1", "",
	     "... with lines that end in a carriage return");
}

/* A malformed line is never misread: the message names it by the number that an editor shows. */
static void not_lines(void)
{
	static const char *const lines[] = { "0,X,0,1",    "0,F",      "0,F,0",     "0,F,,1",
					     "0,F,0,1,0",  "0,FB,0,1", "0,F,0,1.5", "0 F 0 1",
					     "zero,F,0,1", "+0,F,0,1", "0,F,0,1;",  "rank,kind,chunk,micro" };
	char csv[200], want[200];

	for (size_t i = 0; i < HD_LEN(lines); i++) {
		snprintf(csv, sizeof(csv), "0,F,0,0\n\n%s\n0,B,0,0\n", lines[i]);
		snprintf(want, sizeof(want),
			 "schedule: line 3 of x.csv is '%s', not rank,kind,chunk,micro with kind F, B or W", lines[i]);
		file(csv, want, lines[i]);
	}
	file("0,F,0,0\r\r0,F\r0,B,0,0\r",
	     "schedule: line 3 of x.csv is '0,F', not rank,kind,chunk,micro with kind F, B or W",
	     "lines that end in a carriage return are counted");
	file("", "schedule: x.csv contains no unit", "an empty file is refused");
	file("rank,kind,chunk,micro\n# later\n", "schedule: x.csv contains no unit",
	     "a file with only a header and comments is refused");
	file(GOOD "2,F,0,0\n", "schedule: line 9 of x.csv: rank 2; there are 2, counted from 0",
	     "a rank beyond the last is refused");
	file(GOOD "-1,F,0,0\n", "schedule: line 9 of x.csv: rank -1; there are 2, counted from 0",
	     "a rank below 0 is refused");
	file(GOOD "0,F,1,0\n", "schedule: line 9 of x.csv: chunk 1; there are 1, counted from 0",
	     "a chunk beyond the last is refused");
	file(GOOD "0,F,0,4294967296\n",
	     "schedule: line 9 of x.csv: micro-batch 4294967296; there are 2, counted from 0",
	     "a micro-batch beyond the last is refused");
}

int main(void)
{
	all_sizes(PP_GPIPE, "gpipe", 1);
	all_sizes(PP_1F1B, "1f1b", 1);
	all_sizes(PP_ZB, "zb", 1);
	all_sizes(PP_INTERLEAVED, "interleaved", V);
	drawings();
	as_written();
	not_lines();
	file("0,F,0,0\n0,F,0,1\n0,B,0,0\n0,B,0,1\n1,F,0,0\n1,B,0,0\n1,F,0,1\n", "schedule: stage 1 has no B1",
	     "a file without one unit is refused, and the message names the unit");
	file("0,F,0,0\n0,B,0,0\n0,F,0,1\n0,B,0,1\n1,F,0,0\n1,F,0,1\n1,B,0,0\n1,B,0,1\n",
	     "schedule: deadlock: stage 1 waits at F1 for stage 0, which waits at B0 for stage 1",
	     "a file that deadlocks is refused, and the message shows the cycle");
	file("0,F,0,1\n0,F,0,0\n0,B,0,0\n0,B,0,1\n1,F,0,0\n1,B,0,0\n1,F,0,1\n1,B,0,1\n",
	     "schedule: stage 1 runs F0 before F1, but stage 0 sends for F1 first",
	     "a file that receives in a different order than is sent is refused");
	file(GOOD "1,B,0,1\n", "schedule: stage 1 has B1 twice, as units 3 and 4",
	     "a file with a unit twice is refused");
	file("0,F,0,0\n0,F,0,1\n0,B,0,0\n0,B,0,1\n", "schedule: stage 1 has no F0",
	     "a file without one rank is refused");
	file(GOOD "0,W,0,0\n", "schedule: stage 0 has no W1, though other units have a W of their own",
	     "a file with W for only some units is refused");
	return done();
}
