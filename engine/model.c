/* SPDX-License-Identifier: Apache-2.0
 * The keys of [model], and the sizes they give with each family's defaults.
 */
#include <config.h>
#include "engine/model.h"
#include "engine/words.h"
#include <string.h>

static const struct hd_option keys[] = {
	{ "family", HD_OPT_STR, 0, "gpt2", NULL, "gpt2 or llama: one file per family in engine/models/" },
	{ "layers", HD_OPT_INT, 0, "12", "1..100000", "transformer layers" },
	{ "embed", HD_OPT_INT, 0, "768", "1..", "width of the residual stream" },
	{ "heads", HD_OPT_INT, 0, "12", "1..", "attention heads" },
	{ "kv_heads", HD_OPT_INT, 0, "0", "0..", "key and value heads (0: as many as heads)" },
	{ "mlp", HD_OPT_INT, 0, "0", "0..", "width of the feed-forward layer (0: the family's rule)" },
	{ "vocab", HD_OPT_INT, 0, "0", "0..", "vocabulary (0: from the data; 256 for text as bytes)" },
	{ "max_seq", HD_OPT_INT, 0, "0", "0..", "positions (0: train.seq)" },
	{ "dropout", HD_OPT_NUM, 0, "0", "0..0.99", "share of activations dropped in training" },
	{ "init_std", HD_OPT_NUM, 0, "0.02", "0..", "deviation of the initial weights" },
	{ "tie_embeddings", HD_OPT_STR, 0, "auto", NULL, "yes, no, or auto: the family's rule" },
	{ "rope_theta", HD_OPT_NUM, 0, "10000", "1..", "base of the rotary angles" },
	{ "norm_eps", HD_OPT_NUM, 0, "1e-5", "0..", "added to the variance" },
};
const struct hd_key_table hd_model_keys = { keys, HD_LEN(keys), sizeof(keys[0]) };

static const struct hd_family *const families[] = { &hd_family_gpt2, &hd_family_llama };

const struct hd_family *hd_family_find(const char *name)
{
	for (size_t i = 0; i < HD_LEN(families); i++)
		if (!strcmp(families[i]->name, name))
			return families[i];
	return NULL;
}

static int check(struct hd_conf *c, struct hd_section *s, const struct hd_model *m, struct hd_err *err)
{
	if (m->embed % m->heads)
		return hd_section_fail(c, s, "heads", err, HD_EDIVIDE, "%lld does not divide model.embed = %lld",
				       (long long)m->heads, (long long)m->embed);
	if (m->heads % m->kv_heads)
		return hd_section_fail(c, s, "kv_heads", err, HD_EDIVIDE, "%lld does not divide model.heads = %lld",
				       (long long)m->kv_heads, (long long)m->heads);
	if (m->dropout > 0 && !m->family->dropout)
		return hd_section_fail(c, s, "dropout", err, HD_ENOTSUP, "the family %s has no dropout", m->family->name);
	if (m->seq > m->max_seq)
		return hd_section_fail(c, s, "max_seq", err, HD_EINVAL, "%lld is less than train.seq = %lld",
				       (long long)m->max_seq, (long long)m->seq);
	if (!m->vocab)
		return hd_section_fail(c, s, "vocab", err, HD_EINVAL, "must be given: the data do not say it");
	return HD_OK;
}

int hd_model_read(struct hd_conf *c, int64_t data_vocab, struct hd_model *m, struct hd_err *err)
{
	struct hd_section *s = hd_conf_section(c, NULL, "model");
	const char *tie = hd_section_str(s, "tie_embeddings");
	const char *names[HD_LEN(families)];

	m->family = hd_family_find(hd_section_str(s, "family"));
	for (size_t i = 0; i < HD_LEN(families); i++)
		names[i] = families[i]->name;
	if (!m->family) {
		char advice[500];

		hd_word_advice(advice, sizeof(advice), hd_section_str(s, "family"), "known", names, (int)HD_LEN(families));
		return hd_section_fail(c, s, "family", err, HD_EINVAL, "there is no family %s; %s", hd_section_str(s, "family"),
				       advice);
	}
	m->layers = hd_section_int(s, "layers");
	m->embed = hd_section_int(s, "embed");
	m->heads = hd_section_int(s, "heads");
	m->kv_heads = hd_section_int(s, "kv_heads") ? hd_section_int(s, "kv_heads") : m->heads;
	m->head_dim = m->embed / m->heads;
	m->mlp = hd_section_int(s, "mlp") ? hd_section_int(s, "mlp") : m->family->mlp(m->embed);
	m->vocab = hd_section_int(s, "vocab") ? hd_section_int(s, "vocab") : data_vocab;
	m->seq = hd_section_int(hd_conf_section(c, NULL, "train"), "seq");
	m->max_seq = hd_section_int(s, "max_seq") ? hd_section_int(s, "max_seq") : m->seq;
	m->dropout = hd_section_num(s, "dropout");
	m->init_std = hd_section_num(s, "init_std");
	m->rope_theta = hd_section_num(s, "rope_theta");
	m->norm_eps = hd_section_num(s, "norm_eps");
	if (strcmp(tie, "auto") && strcmp(tie, "yes") && strcmp(tie, "no"))
		return hd_section_fail(c, s, "tie_embeddings", err, HD_EINVAL, "%s is neither yes, no nor auto", tie);
	m->tie = !strcmp(tie, "auto") ? m->family->tie : !strcmp(tie, "yes");
	return check(c, s, m, err);
}
