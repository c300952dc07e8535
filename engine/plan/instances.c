/* SPDX-License-Identifier: Apache-2.0
 * What a plan reads of the INI: [model], [train], and an instance of a plugin for each [strategy NAME].
 */
#include <config.h>
#include "engine/config/output_config.h"
#include "engine/data/data.h"
#include "engine/plan/plan_impl.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const struct hd_option strategy_options[] = {
	{ "plugin", HD_OPT_STR, 0, NULL, NULL, "name of a plugin, or path of a .so" },
	{ "size", HD_OPT_STR, 0, "auto", NULL, "ranks on this axis; auto: what the other sections leave over" },
};

static const char *const sections[] = { "model", "data", "train", "checkpoint", "log", NULL };

/* NAME is the axis' in all output, NAME.row of a plugin with several, a+b of a group, and NAME.key of --set. */
static int check_name(struct hd_plan *p, struct hd_section *s)
{
	const char *name = hd_section_name(s);

	for (const char *c = name; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '_' && *c != '-')
			return hd_section_fail(p->conf, s, NULL, p->err, HD_EINVAL,
					       "a name has letters, digits, _ and -, not %c", *c);
	for (int i = 0; sections[i]; i++)
		if (!strcmp(name, sections[i]))
			return hd_section_fail(p->conf, s, NULL, p->err, HD_EINVAL,
					       "there is a section [%s]: --set %s.size would be "
					       "its key",
					       name, name);
	return HD_OK;
}

static int open_instance(struct hd_plan *p, struct hd_section *s)
{
	struct inst *in = &p->inst[p->ninst];
	struct hd_key_table tables[2] = { { strategy_options, HD_LEN(strategy_options), sizeof(strategy_options[0]) } };
	const char *slash = strrchr(hd_conf_path(p->conf), '/'), *dir;
	struct hd_plugin_entry *e = NULL;
	struct hd_err why = { 0 };

	if (p->ninst == HD_MAX_AXES)
		return hd_err_set(p->err, HD_EINVAL, "more than %d strategies", HD_MAX_AXES);
	HD_TRY(check_name(p, s));
	if (!hd_section_has(s, "plugin"))
		return hd_section_fail(p->conf, s, NULL, p->err, HD_EINVAL, "the key plugin must be given");
	dir = hd_plan_text(p, "%.*s", slash ? (int)(slash - hd_conf_path(p->conf)) : 1,
			   slash ? hd_conf_path(p->conf) : ".");
	if (hd_registry_find(hd_section_str(s, "plugin"), dir, &e, &why) < 0)
		return hd_section_fail(p->conf, s, "plugin", p->err, why.code, "%s", why.text);
	tables[1] = (struct hd_key_table){ e->ops->options, e->ops->noptions, e->ops->option_size };
	HD_TRY(hd_section_check(p->conf, s, tables, 2, p->err));
	*in = (struct inst){ .name = hd_section_name(s), .section = s, .plugin = e };
	p->ninst++;
	return HD_OK;
}

int hd_plan_sections(struct hd_conf *c, struct hd_err *err)
{
	static const char *const kinds[] = { "strategy", NULL };

	return hd_conf_known(c, sections, kinds, err);
}

int hd_plan_conf(struct hd_plan *p)
{
	struct hd_checkpoint_config checkpoint;
	struct hd_log_config log;
	struct hd_section *s = NULL;

	HD_TRY(hd_plan_sections(p->conf, p->err));
	HD_TRY(hd_section_check(p->conf, hd_conf_section(p->conf, NULL, "model"), &hd_model_keys, 1, p->err));
	HD_TRY(hd_section_check(p->conf, hd_conf_section(p->conf, NULL, "data"), &hd_data_keys, 1, p->err));
	HD_TRY(hd_train_config_read(p->conf, &p->config, p->err));
	HD_TRY(hd_checkpoint_config_read(p->conf, &checkpoint, p->err)); /* of these two only what is wrong */
	HD_TRY(hd_log_config_read(p->conf, &log, p->err));
	while ((s = hd_conf_next(p->conf, "strategy", s)))
		HD_TRY(open_instance(p, s));
	return hd_model_read(p->conf, p->options->data_vocab, &p->model, p->err);
}
