/* SPDX-License-Identifier: Apache-2.0
 * What comes in from a plugin: arguments of another size, enums, flags and reserved words that this engine does not know are
 * refused, so that whatever is added later is noticed by an engine that does not have it.
 */
#include <config.h>
#include "engine/plan/host_impl.h"
#include <stdlib.h>

#define ARGS_MAX 4096 /* bytes: what claims to be larger is no arguments */

int hd_args_take(struct hd_plan *p, const char *call, void *to, size_t ours, size_t first, const void *from)
{
	size_t n = 0;

	if (!from)
		return hd_plan_fail(p, HD_EBUG, "%s: the arguments are NULL", call), 0;
	memcpy(&n, from, sizeof(n));
	if (n < first || n > ARGS_MAX)
		return hd_plan_fail(p, HD_EBUG, "%s: size of the arguments is %zu, not %zu or more (their sizeof)",
				    call, n, first),
		       0;
	for (size_t i = ours; i < n; i++)
		if (((const char *)from)[i])
			return hd_plan_fail(
				       p, HD_EABI,
				       "%s: the arguments have %zu bytes, this engine knows %zu, and byte %zu is not 0",
				       call, n, ours, i),
			       0;
	memset(to, 0, ours);
	memcpy(to, from, n < ours ? n : ours);
	return 1;
}

int hd_args_one_of(struct hd_plan *p, const char *call, const char *what, uint64_t value, uint64_t most)
{
	if (value <= most)
		return 1;
	hd_plan_fail(p, HD_EINVAL, "%s: %s is %llu, this engine knows 0 to %llu", call, what, (unsigned long long)value,
		     (unsigned long long)most);
	return 0;
}

int hd_args_flags(struct hd_plan *p, const char *call, const char *what, uint32_t flags, uint32_t known)
{
	if (!(flags & ~known))
		return 1;
	hd_plan_fail(p, HD_EINVAL, "%s: %s has the unknown bit %u, this engine knows %u", call, what,
		     flags & ~known & -(flags & ~known), known);
	return 0;
}

int hd_args_zero(struct hd_plan *p, const char *call, const char *what, uint64_t word)
{
	if (!word)
		return 1;
	hd_plan_fail(p, HD_EINVAL, "%s: %s is %llu, it must be 0", call, what, (unsigned long long)word);
	return 0;
}
