/* SPDX-License-Identifier: Apache-2.0
 * model.load: a directory of transformers, or one of Heddle, to begin from. It gives the sizes of the model. Values
 * that the INI gives, too, must agree as far as weights depend on them.
 */
#include <config.h>
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_impl.h"
#include "engine/config/conf_impl.h"
#include "engine/models/model.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns whether the key is a size that weights depend on. max_seq is not one: if positions have weights, their
 * shape tells it. */
static int is_size(const char *key)
{
	if (!strcmp(key, "family") || !strcmp(key, "tie_embeddings"))
		return 1;
	for (uint32_t i = 0; i < hd_model_keys.n; i++)
		if (!strcmp(hd_model_keys.keys[i].key, key))
			return hd_model_keys.keys[i].type == HD_OPT_INT && strcmp(key, "max_seq");
	return 0;
}

/* Returns whether 0 means that the engine derives the key's number. For other keys, such as dropout and window, 0 is a
 * number that the user has chosen. */
static int derives_zero(const char *key)
{
	static const char *const keys[] = { "kv_heads",  "head_dim",    "mlp",           "vocab",
					    "max_seq",   "query_scale", "rope_original", "rope_attention",
					    "moe_every", "expert_mlp",  "group_tokens" };

	for (size_t i = 0; i < HD_LEN(keys); i++)
		if (!strcmp(keys[i], key))
			return 1;
	return 0;
}

/* Returns whether the value is a default that leaves the choice to the engine. */
static int is_open(const char *key, const char *value)
{
	if (!strcmp(value, "0") && derives_zero(key))
		return 1;
	if (strcmp(value, "-1") && strcmp(value, "auto"))
		return 0;
	for (uint32_t i = 0; i < hd_model_keys.n; i++)
		if (!strcmp(hd_model_keys.keys[i].key, key))
			return hd_model_keys.keys[i].default_value &&
			       !strcmp(hd_model_keys.keys[i].default_value, value);
	return 0;
}

static int same(const char *a, const char *b)
{
	char *end;
	long long x = strtoll(a, &end, 10);

	return !strcmp(a, b) || (*a && !*end && x == strtoll(b, NULL, 10));
}

static int load_key(struct hd_conf *c, struct hd_section *s, const char *dir, const struct hd_entry *theirs,
		    struct hd_err *err)
{
	struct hd_entry *ours = hd_conf_entry_find(s, theirs->key);
	struct hd_entry from = *hd_conf_entry_find(s, "load"); /* a copy, since entries may move */

	if (ours && !is_open(theirs->key, ours->value)) {
		if (is_size(theirs->key) && !same(ours->value, theirs->value))
			return hd_section_fail(c, s, theirs->key, err, HD_EINVAL, "%s, but the model in %s has %s",
					       ours->value, dir, theirs->value);
		return HD_OK;
	}
	if (!ours)
		ours = hd_conf_entry_add(s, theirs->key, "", from.line);
	free(ours->value);
	ours->value = hd_strdup(theirs->value);
	ours->loaded = 1;
	if (from.set && !ours->set)
		ours->set = hd_strdup(from.set);
	return HD_OK;
}

/* Uses the model's tokenizer for the text, unless the INI names another. */
static void load_tokenizer(struct hd_conf *c, const char *from)
{
	struct hd_section *data = hd_conf_section(c, NULL, "data");
	struct hd_err ignored = { 0 };
	char *dir = data && !hd_conf_entry_find(data, "tokenizer") ? hd_checkpoint_find(from, &ignored) : NULL;

	if (dir && hd_has_tokenizer(dir))
		hd_conf_tokenizer(c, dir, NULL);
	free(dir);
}

/* Returns where the sizes are from, malloc'ed: the directory. If it is gone, the checkpoint that the run continues,
 * which has the sizes and all weights. */
static char *origin_of(struct hd_conf *c, const char *load)
{
	struct hd_err ignored = { 0 };
	char *resume = NULL;

	if (access(load, F_OK) && errno == ENOENT)
		hd_checkpoint_choose(c, &resume, &ignored);
	return resume ? resume : hd_strdup(load);
}

static int load_keys(struct hd_conf *c, struct hd_section *ours, const char *from, struct hd_err *err)
{
	struct hd_conf *other = NULL;
	struct hd_section *theirs;
	struct hd_err why = { 0 };
	int rc = hd_checkpoint_conf(from, NULL, 0, &other, &why);

	if (rc < 0)
		return hd_section_fail(c, ours, "load", err, why.code, "%s", why.text);
	theirs = hd_conf_section(other, NULL, "model");
	for (size_t i = 0; i < theirs->n && rc >= 0; i++)
		if (strcmp(theirs->entries[i].key, "load"))
			rc = load_key(c, ours, from, &theirs->entries[i], err);
	hd_conf_destroy(other);
	return rc;
}

int hd_model_load_conf(struct hd_conf *c, struct hd_err *err)
{
	struct hd_section *ours = hd_conf_section(c, NULL, "model");
	const struct hd_entry *load = hd_conf_entry_find(ours, "load");
	char *from;
	int rc;

	if (!load || !*load->value)
		return HD_OK;
	HD_TRY(hd_families_load(c, err)); /* config.json may be of one of these */
	from = origin_of(c, load->value);
	rc = load_keys(c, ours, from, err);
	if (rc >= 0)
		load_tokenizer(c, from);
	free(from);
	return rc;
}
