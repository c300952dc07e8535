/* SPDX-License-Identifier: Apache-2.0
 * Checks that a run does not write what it reads: a typing error in log.trace would cost the training data.
 */
#include <config.h>
#include "engine/checkpoint/checkpoint_impl.h"
#include "engine/base/json.h"
#include "engine/data/tokens.h"
#include "engine/file/file.h"
#include "engine/file/installed.h"
#include "engine/file/same_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LONGEST_LINE (1 << 20) /* bytes of a line of metrics that are read */

static const char *value(struct hd_conf *c, const char *section, const char *key)
{
	return hd_section_str(hd_conf_section(c, NULL, section), key);
}

/* -- what is read ------------------------------------------------------------------------------ */
static int of_tokenizer(const char *tokenizer, const char *path)
{
	return *tokenizer && strcmp(tokenizer, "byte") && hd_tokenizer_has(tokenizer, path);
}

static int of_machine(const char *name, const char *path)
{
	struct hd_err ignored = { 0 };
	char *file = *name ? hd_installed_find("machines", name, &ignored) : NULL;
	int same = file && hd_file_same(file, path);

	free(file);
	return same;
}

static int ends(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

/* Returns whether a file belongs to a checkpoint. name: its path below the directory, where other files may be, too. */
static int is_part(const char *name)
{
	static const char *const names[] = { "config.json", "generation_config.json", "model.safetensors.index.json" };

	for (size_t i = 0; i < HD_LEN(names); i++)
		if (!strcmp(name, names[i]))
			return 1;
	return !strncmp(name, "heddle/", 7) || (!strchr(name, '/') && ends(name, ".safetensors"));
}

/* Returns whether path is a file of the checkpoint that model.load or checkpoint.resume names. */
static int of_checkpoint(const char *checkpoint, const char *path)
{
	struct hd_err ignored = { 0 };
	char *found = *checkpoint ? hd_checkpoint_find(checkpoint, &ignored) : NULL;
	char *dir = found ? hd_file_real(found) : NULL, *real = dir ? hd_file_real(path) : NULL;
	size_t n = dir ? strlen(dir) : 0;
	int is = real && !strncmp(real, dir, n) && real[n] == '/' && is_part(real + n + 1);

	if (real && !is)
		is = hd_tokenizer_has(found, path);
	free(found);
	free(dir);
	free(real);
	return is;
}

/* Returns whether path is DIR/latest, or in a directory such as DIR/step-00000500. */
static int of_saved(const char *checkpoints, const char *path)
{
	char *dir = *checkpoints ? hd_file_real(checkpoints) : NULL, *real = dir ? hd_file_real(path) : NULL;
	size_t n = dir ? strlen(dir) : 0;
	int is = 0;

	if (real && !strncmp(real, dir, n) && real[n] == '/')
		is = !strcmp(real + n, "/latest") || (!strncmp(real + n, "/step-", 6) && strchr(real + n + 6, '/'));
	free(dir);
	free(real);
	return is;
}

/* Returns whether path is the file that a value names, from the current directory or next to the INI. A bare word is
 * the name of a plugin or of a schedule. */
static int of_value(struct hd_conf *c, const char *file, const char *path)
{
	const char *ini = hd_conf_path(c), *slash = strrchr(ini, '/');
	char *beside;
	int same;

	if (!strpbrk(file, "./"))
		return 0;
	beside = hd_format("%.*s%s", slash && *file != '/' ? (int)(slash - ini) + 1 : 0, ini, file);
	same = hd_file_same(file, path) || hd_file_same(beside, path);
	free(beside);
	return same;
}

/* Looks at orders of units and plugins, which are keys of sections that the user names. */
static char *of_section(struct hd_conf *c, const char *path)
{
	static const char *const keys[][2] = { { "strategy", "schedule" },
					       { "strategy", "plugin" },
					       { "plugin", "file" } };

	for (size_t i = 0; i < HD_LEN(keys); i++)
		for (struct hd_section *s = NULL; (s = hd_conf_next(c, keys[i][0], s));)
			if (of_value(c, hd_section_str(s, keys[i][1]), path))
				return hd_format("is read as %s.%s", hd_section_name(s), keys[i][1]);
	return NULL;
}

char *hd_conf_file_use(struct hd_conf *c, const char *path)
{
	const char *train = value(c, "data", "train"), *valid = value(c, "data", "valid");

	if (of_saved(value(c, "checkpoint", "dir"), path))
		return hd_strdup("is a file of checkpoint.dir");
	if (access(path, F_OK)) /* all other files that are read exist */
		return NULL;
	if (hd_file_same(hd_conf_path(c), path))
		return hd_strdup("is the INI");
	if (*train && hd_tokens_are_in(train, path))
		return hd_strdup("is read as data.train");
	if (*valid && hd_tokens_are_in(valid, path))
		return hd_strdup("is read as data.valid");
	if (of_tokenizer(value(c, "data", "tokenizer"), path))
		return hd_strdup("is read as data.tokenizer");
	if (of_machine(value(c, "log", "machine"), path))
		return hd_strdup("is read as log.machine");
	if (of_checkpoint(value(c, "model", "load"), path))
		return hd_strdup("is a file of model.load");
	if (of_checkpoint(value(c, "checkpoint", "resume"), path))
		return hd_strdup("is a file of checkpoint.resume");
	return of_section(c, path);
}

/* -- metrics ----------------------------------------------------------------------------------- */
/* Returns whether a line is an object with a step, or the beginning of one that a full disk has cut off. */
static int is_line(const char *text)
{
	static const char begins[] = "{\"step\":";
	size_t n = strcspn(text, "\n");
	json_t *o = text[n] ? json_loadb(text, n, 0, NULL) : NULL;
	int is = text[n] ? json_is_integer(json_object_get(o, "step")) : !strncmp(text, begins, sizeof(begins) - 1);

	json_decref(o);
	return is;
}

/* Returns whether a file contains metrics, by its first line. If it cannot be read, or is empty, it may contain
 * them. */
static int is_metrics(const char *path)
{
	struct stat st;
	FILE *f = !stat(path, &st) && S_ISREG(st.st_mode) ? fopen(path, "re") : NULL;
	char *text = f ? hd_alloc(LONGEST_LINE + 1) : NULL;
	int is = !f || !fread(text, 1, LONGEST_LINE, f) || is_line(text);

	if (f)
		fclose(f);
	free(text);
	return is;
}

/* -- what is written --------------------------------------------------------------------------- */
struct output {
	const char *section, *key;
	int dir;
};
static const struct output outputs[] = {
	{ "log", "metrics", 0 }, { "log", "trace", 0 }, { "log", "tensorboard", 1 }, { "checkpoint", "dir", 1 }
};

/* Returns how an earlier key of `outputs` uses path, or NULL. So each pair is reported once, at the later key.
 * Directories may be the same. */
static char *other_use(struct hd_conf *c, size_t i, const char *path)
{
	for (size_t k = 0; k < i; k++) {
		const char *other = value(c, outputs[k].section, outputs[k].key);

		if (*other && !(outputs[i].dir && outputs[k].dir) && hd_file_same(other, path))
			return hd_format("is written as %s.%s", outputs[k].section, outputs[k].key);
	}
	return NULL;
}

static int check_one(struct hd_conf *c, size_t i, struct hd_err *err)
{
	const struct output *o = &outputs[i];
	struct hd_section *s = hd_conf_section(c, NULL, o->section);
	const char *path = hd_section_str(s, o->key);
	struct hd_err why = { 0 };
	char *use;

	if (!*path)
		return HD_OK;
	if (hd_path_writable(path, o->dir, &why) < 0)
		return hd_section_fail(c, s, o->key, err, why.code, "%s", why.text);
	if (!strcmp(o->section, "checkpoint") && hd_file_has(path, "config.json"))
		return hd_section_fail(c, s, o->key, err, HD_EINVAL,
				       "%s is itself a model, with a config.json: eval, generate and model.load would "
				       "read that one, not the steps saved there; give another dir",
				       path);
	use = other_use(c, i, path);
	if (!use && !o->dir)
		use = hd_conf_file_use(c, path);
	if (use)
		hd_section_fail(c, s, o->key, err, HD_EINVAL, "%s %s too; give another file", path, use);
	else if (!strcmp(o->key, "metrics") && !is_metrics(path))
		hd_section_fail(c, s, o->key, err, HD_EINVAL,
				"%s does not contain the metrics of a run, so it is not set aside; give another file",
				path);
	free(use);
	return err->code;
}

int hd_outputs_check(struct hd_conf *c, struct hd_err *err)
{
	for (size_t i = 0; i < HD_LEN(outputs); i++)
		HD_TRY(check_one(c, i, err));
	return HD_OK;
}
