/* SPDX-License-Identifier: Apache-2.0
 * heddle conform PLUGIN [CONF]: whether a plugin does what it promises.
 */
#include <config.h>
#include "engine/kit/kit.h"
#include "engine/conform/conform.h"
#include <limits.h>
#include <unistd.h>

/* NULL: it does not know where it is. */
static const char *this_program(char *path, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", path, size - 1);

	if (n <= 0)
		return NULL;
	path[n] = 0;
	return path;
}

int hd_verb_conform(struct hd_cli *c)
{
	struct hd_conform_options o = { .plugin = c->positional,
					.conf = c->nwords > 1 ? c->words[1] : NULL,
					.program = NULL,
					.only = hd_cli_str(c, "only", NULL),
					.json = hd_cli_has(c, "json") };
	struct hd_err err = { 0 };
	char path[PATH_MAX];
	int failed = 0;

	if (!o.plugin)
		hd_err_set(&err, HD_EINVAL, "conform: which plugin?");
	if (!hd_cli_has(c, "no-runs"))
		o.program = this_program(path, sizeof(path));
	hd_cli_int(c, "layouts", 0, 100000, 12, &o.layouts, &err);
	hd_cli_int(c, "seed", 0, INT64_MAX, 1, &o.seed, &err);
	hd_cli_int(c, "limit", 1, 100000, 20, &o.seconds, &err);
	hd_cli_int(c, "from", 0, INT64_MAX, 0, &o.from, &err);
	if (!err.code)
		failed = hd_conform(&o, stdout, &err);
	if (err.code)
		hd_log(HD_LOG_ERROR, "%s", err.text);
	return err.code || failed ? 1 : 0;
}
