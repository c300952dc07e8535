/* SPDX-License-Identifier: Apache-2.0
 * log.trace_steps: FIRST-LAST or one step, counted as in the metrics.
 */
#include <config.h>
#include "engine/train/trace.h"
#include <stdio.h>
#include <string.h>

int hd_trace_steps(const struct hd_section *log, int64_t *from, int64_t *to)
{
	const char *t = hd_section_str(log, "trace_steps");
	long long a = 0, b = 0;
	int read = 0, n = sscanf(t, "%9lld%n-%9lld%n", &a, &read, &b, &read);

	if (n == 1)
		b = a;
	*from = a, *to = b;
	return n < 1 || t[read] || a < 1 || b < a || strspn(t, "0123456789-") != strlen(t) ? HD_EINVAL : HD_OK;
}

int hd_trace_steps_check(struct hd_conf *c, struct hd_section *log, struct hd_err *err)
{
	int64_t from, to;

	return hd_trace_steps(log, &from, &to) == HD_OK ? HD_OK : hd_section_fail(c, log, "trace_steps", err, HD_EINVAL,
		"'%s' is neither a step, from 1, nor FIRST-LAST", hd_section_str(log, "trace_steps"));
}
