/* SPDX-License-Identifier: Apache-2.0
 * heddle new-plugin NAME --kind KIND: writes a folder that builds, runs and passes its test unchanged.
 */
#include <config.h>
#include <folders.h>
#include "engine/kit/kit.h"
#include "engine/base/library.h"
#include "engine/config/conf.h"
#include "engine/file/file.h"
#include "engine/kit/templates.h"
#include "engine/process/launch.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct kind {
	const char *name, *source, *comment;
	int ranks; /* ranks of its test */
} kinds[] = {
	{ "sharding", hd_kit_sharding, "Everything is sharded over the sequence, attention over heads.", 2 },
	{ "sync", hd_kit_sync, "Replicas that sum their gradients themselves.", 2 },
	{ "schedule", hd_kit_schedule, "Stages in an order of their own.", 2 },
	{ "op", hd_kit_op, "An op of its own in place of gelu.", 1 },
	{ "lowering", hd_kit_lowering, "Replicas that sum their gradients in pieces.", 2 },
	{ "optimizer", hd_kit_optimizer, "An optimizer of its own.", 1 },
};

static const struct kind *kind_named(const char *name, struct hd_err *err)
{
	for (size_t i = 0; name && i < HD_LEN(kinds); i++)
		if (!strcmp(kinds[i].name, name))
			return &kinds[i];
	if (name)
		hd_err_set(err, HD_EINVAL,
			   "new-plugin: --kind is sharding, sync, schedule, op, lowering or optimizer, not %s", name);
	else
		hd_err_set(err, HD_EINVAL,
			   "new-plugin: --kind is missing: sharding, sync, schedule, op, lowering or optimizer");
	return NULL;
}

/* Checks the name, which is used for a file, for a key and in struct hd_plugin, which has 32 bytes for it. */
static int check_name(const char *name, struct hd_err *err)
{
	size_t n = strlen(name);

	if (n > 31)
		return hd_err_set(err, HD_EINVAL, "new-plugin: %s: a name has at most 31 letters, this one %zu", name,
				  n);
	for (const char *c = name; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '_')
			return hd_err_set(err, HD_EINVAL, "new-plugin: %s: a name has letters, digits and _, not %c",
					  name, *c);
	if (!isalpha((unsigned char)*name) || !strncmp(name, "lib", 3) || !strncmp(name, "heddle_", 7))
		return hd_err_set(
			err, HD_EINVAL,
			"new-plugin: %s: a name begins with a letter, and not with lib or heddle_, which names of files "
			"lose",
			name);
	if (hd_conf_is_plain(name))
		return hd_err_set(err, HD_EINVAL,
				  "new-plugin: %s: an INI has a section [%s], whose keys its own would hide", name,
				  name);
	return HD_OK;
}

static void add_section(char **text, const char *name, const struct kind *k)
{
	if (k->ranks > 1)
		hd_append(
			text,
			"[strategy x]\t\t; the name of the section is the name of the axis\nplugin = ./%s.so\nsize = %d\n",
			name, k->ranks);
	else
		hd_append(text, "[plugin %s]\nfile = ./%s.so\n", name, name);
}

static void add_optimizer(char **text, const char *name, const struct kind *k)
{
	if (k->source == hd_kit_optimizer)
		hd_append(text, "optimizer = %s\n", name);
}

static char *fill_in(const char *text, const char *name, const struct kind *k)
{
	char *out = hd_strdup("");

	for (const char *at = text; *at;) {
		size_t n = strcspn(at, "@");

		hd_append(&out, "%.*s", (int)n, at);
		at += n;
		if (!strncmp(at, "@NAME@", 6))
			hd_append(&out, "%s", name), at += 6;
		else if (!strncmp(at, "@RANKS@", 7))
			hd_append(&out, "%d", k->ranks), at += 7;
		else if (!strncmp(at, "@COMMENT@", 9))
			hd_append(&out, "%s", k->comment), at += 9;
		else if (!strncmp(at, "@SECTION@\n", 10))
			add_section(&out, name, k), at += 10;
		else if (!strncmp(at, "@OPTIMIZER@", 11))
			add_optimizer(&out, name, k), at += 11;
		else if (!strncmp(at, "@AGAINST@", 9))
			hd_append(&out, "%s",
				  k->ranks > 1                    ? ""
				  : k->source == hd_kit_optimizer ? "# both sides would train with SGD: "
								  : "# one rank without the op is another model: "),
				at += 9;
		else if (*at)
			hd_append(&out, "%c", *at++);
	}
	return out;
}

static int write_file(const char *dir, const char *file, const char *template, const struct kind *k, struct hd_err *err)
{
	char *path = hd_format("%s/%s", dir, file), *text = fill_in(template, dir, k);
	FILE *f = fopen(path, "wx");
	int bad = !f || fputs(text, f) < 0, why = errno;

	if (f && fclose(f))
		bad = 1, why = errno;
	if (!bad && strstr(file, ".sh"))
		chmod(path, 0755);
	if (bad)
		hd_err_set(err, HD_EIO, "%s: %s", path, strerror(why));
	free(path), free(text);
	return err->code;
}

/* A shell finds the program in these folders without help, and pkg-config the headers. */
static int is_usual(const char *folder, const char *pc)
{
	return (!strcmp(folder, "/usr/bin") && !strcmp(pc, "/usr/lib/pkgconfig")) ||
	       (!strcmp(folder, "/usr/local/bin") && !strcmp(pc, "/usr/local/lib/pkgconfig"));
}

/* Returns the folder of heddle.pc, which is beside that of the plugins; the caller frees it. */
static char *installed_pc(void)
{
	char *plugins = hd_installed_folder(HD_PLUGIN_DIR), *end = strrchr(plugins, '/'), *pc;

	pc = hd_format("%.*s/pkgconfig", (int)(end - plugins), plugins);
	free(plugins);
	return pc;
}

static void print_command(const char *name, const char *pc, const char *program)
{
	char *path = hd_launch_quoted(pc), *quoted = hd_launch_quoted(program);

	printf("\tcd %s && PKG_CONFIG_PATH=%s make test HEDDLE=%s\n", name, path, quoted);
	free(path), free(quoted);
}

/* Prints the commands to build and test the plugin. A program in its build folder, or under its own prefix, may be in
 * no PATH, nor its headers where pkg-config looks. For such a program the commands name both folders. */
static void print_next(const char *name)
{
	struct hd_err why = { 0 };
	char *program = hd_this_program(&why), *end = program ? strrchr(program, '/') : NULL;
	char *folder = hd_format("%.*s", end ? (int)(end - program) : 0, program ? program : "");
	char *pc = installed_pc();

	if (*folder && hd_file_has(folder, "heddle-uninstalled.pc"))
		print_command(name, folder, program);
	else if (*folder && !is_usual(folder, pc) && hd_file_has(pc, "heddle.pc"))
		print_command(name, pc, program);
	else
		printf("\tcd %s && make test\n", name);
	free(pc), free(folder), free(program);
}

static int write_folder(const char *name, const struct kind *k, struct hd_err *err)
{
	char *source = hd_format("%s.c", name), *ini = hd_format("%s.ini", name);

	if (mkdir(name, 0777))
		hd_err_set(err, HD_EIO, "new-plugin: folder %s: %s", name, strerror(errno));
	else if (write_file(name, source, k->source, k, err) >= 0 && write_file(name, ini, hd_kit_ini, k, err) >= 0 &&
		 write_file(name, "Makefile", hd_kit_makefile, k, err) >= 0)
		write_file(name, "test.sh", hd_kit_test, k, err);
	if (!err->code) {
		printf("wrote %s/: %s, %s, Makefile, test.sh; to build and test it:\n", name, source, ini);
		print_next(name);
	}
	free(source), free(ini);
	return err->code;
}

int hd_verb_new_plugin(struct hd_cli *c)
{
	struct hd_err err = { 0 };
	const struct kind *k = kind_named(hd_cli_str(c, "kind", NULL), &err);

	if (k && check_name(c->positional, &err) >= 0)
		write_folder(c->positional, k, &err);
	if (err.code)
		hd_log(HD_LOG_ERROR, "%s", err.text);
	return err.code ? 1 : 0;
}
