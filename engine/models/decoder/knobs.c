/* SPDX-License-Identifier: Apache-2.0
 * The keys of [model] that determine the graph, and their fields in struct hd_model.
 */
#include <config.h>
#include "engine/models/decoder/knobs.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct hd_model, field)
static const struct hd_knob knobs[] = {
	{ "layers", HD_KNOB_INT, AT(layers), NULL, 0, 1 },
	{ "embed", HD_KNOB_INT, AT(embed), NULL, 0, 1 },
	{ "heads", HD_KNOB_INT, AT(heads), NULL, 0, 1 },
	{ "kv_heads", HD_KNOB_INT, AT(kv_heads), NULL, 0, 1 },
	{ "head_dim", HD_KNOB_INT, AT(head_dim), NULL, 0, 1 },
	{ "mlp", HD_KNOB_INT, AT(mlp), NULL, 0, 1 },
	{ "vocab", HD_KNOB_INT, AT(vocab), NULL, 0, 1 },
	{ "max_seq", HD_KNOB_INT, AT(max_seq), NULL, 0, 1, 1 },
	{ "tie_embeddings", HD_KNOB_YES, AT(tie), NULL, 0, 1 },
	{ "dropout", HD_KNOB_NUM, AT(dropout), NULL, 0, 1, 1 },
	{ "experts", HD_KNOB_INT, AT(experts), NULL, 0, 1 },
	{ "experts_per_token", HD_KNOB_INT, AT(experts_per_token), NULL, 0, 1 },
	{ "moe_every", HD_KNOB_INT, AT(moe_every), NULL, 0, 1 },
	{ "router", HD_KNOB_CHOICE, AT(router), HD_ROUTERS, 0, 1 },
	{ "capacity_factor", HD_KNOB_NUM, AT(capacity_factor), NULL, 0, 1, 1 },
	{ "router_groups", HD_KNOB_INT, AT(router_groups), NULL, 1, 0 },
	{ "router_best_groups", HD_KNOB_INT, AT(router_best_groups), NULL, 1, 0 },
	{ "router_bias_rate", HD_KNOB_NUM, AT(router_bias_rate), NULL, 0, 0, 1 },
	{ "gate_scale", HD_KNOB_NUM, AT(gate_scale), NULL, 1, 0 },
	{ "normalize_gates", HD_KNOB_YES, AT(normalize_gates), NULL, 0, 1 },
	{ "expert_mlp", HD_KNOB_INT, AT(expert_mlp), NULL, 1, 0 },
	{ "dense_layers", HD_KNOB_INT, AT(dense_layers), NULL, 1, 0 },
	{ "shared_experts", HD_KNOB_INT, AT(shared_experts), NULL, 1, 0 },
	{ "init_std", HD_KNOB_NUM, AT(init_std), NULL, 0, 0, 1 },
	{ "rope_theta", HD_KNOB_NUM, AT(rope_theta), NULL, 0, 0 },
	{ "norm_eps", HD_KNOB_NUM, AT(norm_eps), NULL, 0, 0 },
	{ "aux_loss", HD_KNOB_NUM, AT(aux_loss), NULL, 0, 0, 1 },
	{ "norm", HD_KNOB_CHOICE, AT(norm), "before|after|both", 1, 0 },
	{ "norm_offset", HD_KNOB_YES, AT(norm_offset), NULL, 1, 0 },
	{ "activation", HD_KNOB_CHOICE, AT(activation), "silu|gelu_tanh|gelu_erf", 1, 0 },
	{ "qk_norm", HD_KNOB_CHOICE, AT(qk_norm), "none|head|all", 1, 0 },
	{ "qkv_bias", HD_KNOB_YES, AT(qkv_bias), NULL, 1, 0 },
	{ "out_bias", HD_KNOB_YES, AT(out_bias), NULL, 1, 0 },
	{ "mlp_bias", HD_KNOB_YES, AT(mlp_bias), NULL, 1, 0 },
	{ "window", HD_KNOB_INT, AT(window), NULL, 1, 0 },
	{ "window_layers", HD_KNOB_TEXT, AT(window_layers), NULL, 1, 0 },
	{ "embed_scale", HD_KNOB_NUM, AT(embed_scale), NULL, 1, 0 },
	{ "query_scale", HD_KNOB_NUM, AT(query_scale), NULL, 1, 0 },
	{ "attention_softcap", HD_KNOB_NUM, AT(attention_softcap), NULL, 1, 0 },
	{ "logit_softcap", HD_KNOB_NUM, AT(logit_softcap), NULL, 1, 0 },
	{ "rotary_fraction", HD_KNOB_NUM, AT(rotary_fraction), NULL, 1, 0 },
	{ "rope_theta_window", HD_KNOB_NUM, AT(rope_theta_window), NULL, 1, 0 },
	{ "rope_scaling", HD_KNOB_CHOICE, AT(rope_scaling), "none|linear|dynamic|llama3|yarn|longrope", 1, 0 },
	{ "rope_factor", HD_KNOB_NUM, AT(rope_factor), NULL, 1, 0 },
	{ "rope_original", HD_KNOB_NUM, AT(rope_original), NULL, 1, 0 },
	{ "rope_low", HD_KNOB_NUM, AT(rope_low), NULL, 1, 0 },
	{ "rope_high", HD_KNOB_NUM, AT(rope_high), NULL, 1, 0 },
	{ "rope_beta_fast", HD_KNOB_NUM, AT(rope_beta_fast), NULL, 1, 0 },
	{ "rope_beta_slow", HD_KNOB_NUM, AT(rope_beta_slow), NULL, 1, 0 },
	{ "rope_attention", HD_KNOB_NUM, AT(rope_attention), NULL, 1, 0 },
	{ "rope_truncate", HD_KNOB_YES, AT(rope_truncate), NULL, 1, 0 },
	{ "rope_short", HD_KNOB_TEXT, AT(rope_short), NULL, 1, 0 },
	{ "rope_long", HD_KNOB_TEXT, AT(rope_long), NULL, 1, 0 },
};

int64_t hd_rope_list(const char *text)
{
	char *end;
	int64_t n = 0;

	for (; *text; n++) {
		if (!(strtod(text, &end) > 0) || end == text)
			return -1;
		text = end + strspn(end, " \t");
		if (*text && *text != ',')
			return -1;
		text += *text == ',';
	}
	return n;
}

const struct hd_knob *hd_knob_find(const char *key)
{
	for (size_t i = 0; i < HD_LEN(knobs); i++)
		if (!strcmp(knobs[i].key, key))
			return &knobs[i];
	return NULL;
}

const struct hd_knob *hd_knob_next(const struct hd_knob *k)
{
	k = k ? k + 1 : knobs;
	return k < knobs + HD_LEN(knobs) ? k : NULL;
}

const char *hd_family_default(const struct hd_family *f, const char *key)
{
	for (const struct hd_family_value *d = f->defaults; d && d->key; d++)
		if (!strcmp(d->key, key))
			return d->value;
	return NULL;
}

/* Returns the index of a word in "a|b|c", or -1. */
static int64_t choice_of(const char *choices, const char *word)
{
	size_t n = strlen(word);

	for (int64_t i = 0;; i++, choices++) {
		size_t here = strcspn(choices, "|");

		if (here == n && !memcmp(choices, word, n))
			return i;
		choices += here;
		if (!*choices)
			return -1;
	}
}

int64_t hd_router_of(const char *word)
{
	return choice_of(HD_ROUTERS, word);
}

static void set_from_text(struct hd_model *m, const struct hd_knob *k, const char *value)
{
	void *to = (char *)m + k->at;

	switch (k->kind) {
	case HD_KNOB_INT: *(int64_t *)to = strtoll(value, NULL, 10); break;
	case HD_KNOB_NUM: *(double *)to = strtod(value, NULL); break;
	case HD_KNOB_YES: *(int64_t *)to = !strcmp(value, "yes"); break;
	case HD_KNOB_CHOICE: *(int64_t *)to = choice_of(k->choices, value); break;
	case HD_KNOB_TEXT: *(const char **)to = value; break;
	}
}

static void set_from_section(struct hd_model *m, const struct hd_knob *k, struct hd_section *s)
{
	void *to = (char *)m + k->at;

	if (k->kind == HD_KNOB_INT || k->kind == HD_KNOB_YES)
		*(int64_t *)to = hd_section_int(s, k->key);
	else if (k->kind == HD_KNOB_NUM)
		*(double *)to = hd_section_num(s, k->key);
	else
		set_from_text(m, k, hd_section_str(s, k->key));
}

int hd_knobs_read(struct hd_conf *c, struct hd_section *s, struct hd_model *m, struct hd_err *err)
{
	for (const struct hd_knob *k = hd_knob_next(NULL); k; k = hd_knob_next(k)) {
		const char *family = hd_family_default(m->family, k->key);

		if (k->derived)
			continue;
		if (hd_section_has(s, k->key) && k->decoder && !m->family->decoder)
			return hd_section_fail(c, s, k->key, err, HD_ENOTSUP, "the family %s does not have it",
					       m->family->name);
		if (!hd_section_has(s, k->key) && family)
			set_from_text(m, k, family);
		else
			set_from_section(m, k, s);
	}
	return HD_OK;
}

void hd_knob_text(const struct hd_model *m, const struct hd_knob *k, char text[80])
{
	const void *at = (const char *)m + k->at;
	const char *word = k->choices;

	if (k->kind == HD_KNOB_INT)
		snprintf(text, 80, "%lld", (long long)*(const int64_t *)at);
	else if (k->kind == HD_KNOB_NUM)
		snprintf(text, 80, "%.17g", *(const double *)at);
	else if (k->kind == HD_KNOB_YES)
		snprintf(text, 80, "%s", *(const int64_t *)at ? "yes" : "no");
	else if (k->kind == HD_KNOB_TEXT)
		snprintf(text, 80, "%s", *(const char *const *)at);
	for (int64_t i = 0; k->kind == HD_KNOB_CHOICE && i < *(const int64_t *)at; i++)
		word = strchr(word, '|') + 1;
	if (k->kind == HD_KNOB_CHOICE)
		snprintf(text, 80, "%.*s", (int)strcspn(word, "|"), word);
}

int hd_knob_is_default(const struct hd_model *m, const struct hd_knob *k)
{
	static const struct hd_family_value plain[] = {
		{ "norm", "before" },
		{ "norm_offset", "no" },
		{ "activation", "silu" },
		{ "qk_norm", "none" },
		{ "qkv_bias", "no" },
		{ "out_bias", "no" },
		{ "mlp_bias", "no" },
		{ "embed_scale", "1" },
		{ "query_scale", "0" },
		{ "attention_softcap", "0" },
		{ "logit_softcap", "0" },
		{ "rotary_fraction", "1" },
		{ "expert_mlp", "0" },
		{ "dense_layers", "0" },
		{ "shared_experts", "0" },
		{ "router_groups", "1" },
		{ "router_best_groups", "1" },
		{ "gate_scale", "1" },
		{ NULL, NULL },
	};
	const char *value = hd_family_default(m->family, k->key);
	struct hd_model other = *m;
	char text[80], theirs[80];

	for (const struct hd_family_value *d = plain; !value && d->key; d++)
		value = strcmp(d->key, k->key) ? NULL : d->value;
	if (!value)
		return 1;
	set_from_text(&other, k, value); /* compared as a number, since 1e-6 and 0.000001 are equal */
	hd_knob_text(m, k, text);
	hd_knob_text(&other, k, theirs);
	return !strcmp(text, theirs);
}
