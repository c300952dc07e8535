/* SPDX-License-Identifier: Apache-2.0
 * The sections that an INI may have, and the tables of their keys.
 */
#include <config.h>
#include "engine/config/output_config.h"
#include "engine/config/train_config.h"
#include "engine/data/data.h"
#include "engine/keys/keys.h"
#include "engine/models/model.h"
#include "engine/plan/plan.h"
#include "engine/plugin/registry.h"
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *label, *about;
	const struct hd_key_table *keys;
} own[] = {
	{ "model", "the model: its family and sizes", &hd_model_keys },
	{ "data", "training data", &hd_data_keys },
	{ "train", "the steps of a run", &hd_train_keys },
	{ "checkpoint", "checkpoints that a run writes, and the one that it continues", &hd_checkpoint_keys },
	{ "log", "metrics and other records of a run", &hd_log_keys },
	{ "strategy NAME", "an axis of the layout; besides these the keys of its plugin", &hd_strategy_keys },
	{ "plugin NAME", "a plugin that is no strategy; besides this its own keys", &hd_extension_keys },
};

const struct hd_option *hd_key_at(const struct hd_key_table *t, uint32_t i)
{
	return (const void *)((const char *)t->keys + (size_t)i * (t->stride ? t->stride : sizeof(*t->keys)));
}

static int has_key(const struct hd_key_table *t, const char *key)
{
	uint32_t i = 0;

	while (i < t->n && strcmp(hd_key_at(t, i)->key, key) != 0)
		i++;
	return i < t->n;
}

int hd_key_owners(const char *key, const char **labels, int most)
{
	int n = 0;

	for (size_t i = 0; i < HD_LEN(own) && n < most; i++)
		if (own[i].keys != &hd_extension_keys && has_key(own[i].keys, key))
			labels[n++] = own[i].label;
	return n;
}

int hd_key_sections(struct hd_key_section **out)
{
	struct hd_plugin_entry **found;
	int nfound = hd_registry_scan(&found), n = (int)HD_LEN(own);
	struct hd_key_section *s = hd_alloc((size_t)(n + nfound) * sizeof(*s));

	for (int i = 0; i < n; i++) {
		snprintf(s[i].label, sizeof(s[i].label), "%s", own[i].label);
		s[i].about = own[i].about;
		s[i].keys = *own[i].keys;
	}
	for (int i = 0; i < nfound; i++) {
		const struct hd_plugin_entry *e = found[i];

		if (e->why || e->hidden)
			continue;
		snprintf(s[n].label, sizeof(s[n].label), "%s %.60s", e->is_strategy ? "strategy" : "plugin", e->name);
		s[n].about = e->is_strategy ? "keys of a section with this plugin" : "keys of this plugin";
		s[n++].keys = (struct hd_key_table){ e->ops->options, e->ops->noptions, e->ops->option_size };
	}
	free(found);
	*out = s;
	return n;
}
