/* SPDX-License-Identifier: Apache-2.0
 * heddle conform PLUGIN [CONF]: checks that a plugin keeps its promises.
 */
#include <config.h>
#include "engine/kit/kit.h"
#include "engine/conform/conform.h"
#include "engine/base/library.h"
#include <stdlib.h>

int hd_verb_conform(struct hd_cli *c)
{
	struct hd_conform_options o = { .plugin = c->positional,
					.conf = c->nwords > 1 ? c->words[1] : NULL,
					.program = NULL,
					.only = hd_cli_str(c, "only", NULL),
					.json = hd_cli_has(c, "json") };
	struct hd_err err = { 0 };
	char *program = NULL;
	int failed = 0;

	if (!o.plugin)
		hd_err_set(&err, HD_EINVAL, "conform: which plugin?");
	if (!err.code && !hd_cli_has(c, "no-runs"))
		o.program = program = hd_this_program(&err);
	hd_cli_int(c, "layouts", 0, 100000, 12, &o.layouts, &err);
	hd_cli_int(c, "seed", 0, INT64_MAX, 1, &o.seed, &err);
	hd_cli_int(c, "limit", 1, 100000, 20, &o.seconds, &err);
	hd_cli_int(c, "from", 0, INT64_MAX, 0, &o.from, &err);
	if (!err.code)
		failed = hd_conform(&o, stdout, &err);
	if (err.code)
		hd_log(HD_LOG_ERROR, "%s", err.text);
	free(program);
	return err.code || failed ? 1 : 0;
}
