/* SPDX-License-Identifier: Apache-2.0
 * What a plan reads from the INI: [model], [train], and an instance of a plugin for each [strategy NAME] and [plugin
 * NAME].
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
	{ "size", HD_OPT_STR, 0, "auto", NULL, "ranks on this axis; auto: those that the other sections leave over" },
};
static const struct hd_option extension_options[] = {
	{ "file", HD_OPT_STR, 0, NULL, NULL, "path of a .so, or name of a plugin, that is no strategy" },
};

const struct hd_key_table hd_strategy_keys = { strategy_options, HD_LEN(strategy_options),
					       sizeof(strategy_options[0]) };
const struct hd_key_table hd_extension_keys = { extension_options, HD_LEN(extension_options),
						sizeof(extension_options[0]) };

/* Checks NAME, which appears in other names.  It is the axis in all output, NAME.row one axis of a plugin with several,
 * a+b a group, and NAME.key a key of --set. */
static int check_name(struct hd_plan *p, struct hd_section *s)
{
	const char *name = hd_section_name(s);

	for (const char *c = name; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '_' && *c != '-')
			return hd_section_fail(p->conf, s, NULL, p->err, HD_EINVAL,
					       "a name has letters, digits, _ and -, not %c", *c);
	if (hd_conf_is_plain(name))
		return hd_section_fail(p->conf, s, NULL, p->err, HD_EINVAL,
				       "there is a section [%s]: --set %s.size would set its key", name, name);
	return HD_OK;
}

/* Checks that strategies are in [strategy NAME], and other plugins in [plugin NAME].  A plugin that claims axes, shards
 * dims or orders units is a strategy, and has a place in the order of the mesh. */
static int check_role(struct hd_plan *p, struct hd_section *s, const struct hd_plugin_entry *e, int extension)
{
	if (extension && e->strategy_slot)
		return hd_section_fail(p->conf, s, "file", p->err, HD_EINVAL,
				       "%s has the slot %s: it is a strategy, [strategy %s] plugin = %s", e->name,
				       e->strategy_slot, hd_section_name(s), hd_section_str(s, "file"));
	if (!extension && !e->is_strategy)
		return hd_section_fail(p->conf, s, "plugin", p->err, HD_EINVAL,
				       "%s has no strategy table: it is loaded by [plugin %s] file = %s", e->name,
				       hd_section_name(s), hd_section_str(s, "plugin"));
	return HD_OK;
}

static int check_new(struct hd_plan *p, struct hd_section *s)
{
	if (p->ninst == HD_MAX_INSTANCES)
		return hd_err_set(p->err, HD_EINVAL, "more than %d strategies and plugins", HD_MAX_INSTANCES);
	HD_TRY(check_name(p, s));
	for (int i = 0; i < p->ninst; i++)
		if (!strcmp(p->inst[i].name, hd_section_name(s)))
			return hd_section_fail(p->conf, s, NULL, p->err, HD_EINVAL,
					       "there is a section [%s %s]: both would be named %s",
					       hd_inst_section(&p->inst[i]), p->inst[i].name, p->inst[i].name);
	return HD_OK;
}

static int open_instance(struct hd_plan *p, struct hd_section *s)
{
	struct inst *in = &p->inst[p->ninst];
	int extension = hd_section_is(s, "plugin");
	const char *key = extension ? "file" : "plugin";
	struct hd_key_table tables[2] = { extension ? hd_extension_keys : hd_strategy_keys };
	struct hd_plugin_entry *e = NULL;

	HD_TRY(check_new(p, s));
	if (!hd_section_has(s, key))
		return hd_section_fail(p->conf, s, NULL, p->err, HD_EINVAL, "the key %s must be given", key);
	HD_TRY(hd_plugin_of_section(p->conf, s, &e, p->err));
	HD_TRY(check_role(p, s, e, extension));
	tables[1] = (struct hd_key_table){ e->ops->options, e->ops->noptions, e->ops->option_size };
	HD_TRY(hd_section_check(p->conf, s, tables, 2, p->err));
	*in = (struct inst){ .name = hd_section_name(s), .section = s, .plugin = e, .extension = extension };
	p->ninst++;
	return HD_OK;
}

int hd_plan_sections(struct hd_conf *c, struct hd_err *err)
{
	static const char *const kinds[] = { "strategy", "plugin", NULL };

	return hd_conf_known(c, hd_conf_plain, kinds, err);
}

static int choose_optimizer(struct hd_plan *p)
{
	for (int i = 0; i < p->ninst && p->config.optimizer; i++)
		if (!strcmp(p->inst[i].name, p->config.optimizer))
			p->optimizer = &p->inst[i];
	if (p->optimizer && !p->optimizer->plugin->optimizer)
		return hd_train_fail(p->conf, &p->config, "optimizer", p->err, HD_EINVAL,
				     "%s: the plugin %s brings no optimizer", p->config.optimizer,
				     p->optimizer->plugin->name);
	return HD_OK;
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
	if (p->options->on_gpus)
		p->config.device = HD_DEVICE_CUDA;
	/* These two are read only to find errors in them. */
	HD_TRY(hd_checkpoint_config_read(p->conf, &checkpoint, p->err));
	HD_TRY(hd_log_config_read(p->conf, &log, p->err));
	while ((s = hd_conf_next(p->conf, NULL, s)))
		if (hd_section_is(s, "strategy") || hd_section_is(s, "plugin"))
			HD_TRY(open_instance(p, s));
	HD_TRY(choose_optimizer(p));
	HD_TRY(hd_families_load(p->conf, p->err));
	return hd_model_read(p->conf, p->options->data_vocab, &p->model, p->err);
}
