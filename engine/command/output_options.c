/* SPDX-License-Identifier: Apache-2.0
 * Checks options that name an output file against all other files that the command line and its INI name.
 */
#include <config.h>
#include "engine/command/command.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/file/installed.h"
#include "engine/file/same_file.h"
#include <stdlib.h>

static const char *const outputs[] = { "out", "html" };
static const struct {
	const char *flag, *folder; /* folder: of installed files, which have names; NULL: only a path */
} inputs[] = { { "machine", "machines" }, { "style", "styles" }, { "space", "spaces" }, { "times", NULL } };

static int is_input(const struct hd_cli *c, size_t i, const char *path)
{
	struct hd_err ignored = { 0 };
	const char *name = hd_cli_str(c, inputs[i].flag, NULL);
	char *file = NULL;
	int same;

	if (!name)
		return 0;
	if (inputs[i].folder)
		file = hd_installed_find(inputs[i].folder, name, &ignored);
	same = inputs[i].folder && !file ? 0 : hd_file_same(file ? file : name, path);
	free(file);
	return same;
}

/* Returns the other use of the file at path, which the caller frees, or NULL if it has none. */
static char *use_of(const struct hd_cli *c, struct hd_conf *conf, size_t output, const char *path)
{
	for (size_t i = 0; i < output; i++) {
		const char *other = hd_cli_str(c, outputs[i], NULL);

		if (other && hd_file_same(other, path))
			return hd_format("is written as --%s", outputs[i]);
	}
	for (size_t i = 0; i < HD_LEN(inputs); i++)
		if (is_input(c, i, path))
			return hd_format("is read as --%s", inputs[i].flag);
	return hd_conf_file_use(conf, path);
}

int hd_cli_outputs_check(const struct hd_cli *c, struct hd_conf *conf, struct hd_err *err)
{
	for (size_t i = 0; i < HD_LEN(outputs); i++) {
		const char *path = hd_cli_str(c, outputs[i], NULL);
		char *use = path ? use_of(c, conf, i, path) : NULL;

		if (use)
			hd_err_set(err, HD_EINVAL, "%s: --%s: %s %s too; give another file", c->verb->name, outputs[i],
				   path, use);
		free(use);
		HD_TRY(err->code);
	}
	return HD_OK;
}
