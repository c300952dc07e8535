/* SPDX-License-Identifier: Apache-2.0
 * The keys of [model], and the sizes they give with each family's defaults.
 */
#include <config.h>
#include "engine/models/model.h"
#include "engine/base/parse.h"
#include <string.h>

static const struct hd_option keys[] = {
	{ "family", HD_OPT_STR, 0, "gpt2", NULL, "gpt2, llama or mixtral: one file per family in engine/models/" },
	{ "load", HD_OPT_STR, 0, "", NULL,
	  "directory of a Hugging Face or Heddle checkpoint: initial weights, and sizes" },
	{ "layers", HD_OPT_INT, 0, NULL, "1..100000", "transformer layers" },
	{ "embed", HD_OPT_INT, 0, NULL, "1..1000000000", "width of the residual stream" },
	{ "heads", HD_OPT_INT, 0, NULL, "1..1000000000", "attention heads" },
	{ "kv_heads", HD_OPT_INT, 0, "0", "0..1000000000", "key and value heads (0: as many as heads)" },
	{ "mlp", HD_OPT_INT, 0, "0", "0..1000000000", "width of the feed-forward layer (0: the family's rule)" },
	{ "vocab", HD_OPT_INT, 0, "0", "0..1000000000", "vocabulary (0: from the data; 256 for text as bytes)" },
	{ "max_seq", HD_OPT_INT, 0, "0", "0..1000000000", "positions (0: train.seq)" },
	{ "dropout", HD_OPT_NUM, 0, "0", "0..0.99", "fraction of activations dropped in training" },
	{ "init_std", HD_OPT_NUM, 0, "0.02", "0..", "deviation of the initial weights" },
	{ "tie_embeddings", HD_OPT_STR, 0, "auto", NULL, "yes, no, or auto: the family's rule" },
	{ "rope_theta", HD_OPT_NUM, 0, "10000", "1..", "base of the rotary angles" },
	{ "norm_eps", HD_OPT_NUM, 0, "1e-5", "0..", "added to the variance" },
	{ "experts", HD_OPT_INT, 0, "-1", "-1..65536",
	  "experts in a layer that has them (0: none; -1: the family's rule)" },
	{ "experts_per_token", HD_OPT_INT, 0, "2", "1..64", "experts that each token chooses" },
	{ "moe_every", HD_OPT_INT, 0, "0", "0..", "every n-th layer has experts (0: the family's rule)" },
	{ "router", HD_OPT_CHOICE, 0, "auto", "gshard|topk|auto", "router = gshard or topk; auto: the family's rule" },
	{ "capacity_factor", HD_OPT_NUM, 0, "-1", "-1..",
	  "capacity of an expert / (tokens / experts) (0: no limit; -1: with router = gshard 2, else 0)" },
	{ "group_tokens", HD_OPT_INT, 0, "0", "0..1000000000",
	  "tokens that share an expert's capacity (0: train.seq)" },
	{ "second_expert", HD_OPT_CHOICE, 0, "random", "random|all",
	  "router = gshard: with probability 2 x its gate, or always" },
	{ "aux_loss", HD_OPT_NUM, 0, "0.01", "0..", "weight of the load-balancing loss" },
	{ "z_loss", HD_OPT_NUM, 0, "0", "0..", "weight of the z-loss, which keeps the router's logits small" },
};
const struct hd_key_table hd_model_keys = { keys, HD_LEN(keys), sizeof(keys[0]) };

static const struct hd_family *const families[] = { &hd_family_gpt2, &hd_family_llama, &hd_family_mixtral };

const struct hd_family *hd_family_find(const char *name)
{
	for (size_t i = 0; i < HD_LEN(families); i++)
		if (!strcmp(families[i]->name, name))
			return families[i];
	return NULL;
}

/* A group is a unit of the whole batch: what its tokens decide must be known where they are. */
static int check_experts(struct hd_conf *c, struct hd_section *s, const struct hd_model *m, struct hd_err *err)
{
	int64_t batch = hd_section_int(hd_conf_section(c, NULL, "train"), "global_batch");

	if (m->moe_every < 1)
		return hd_section_fail(c, s, "experts", err, HD_ENOTSUP, "the family %s has no experts",
				       m->family->name);
	if (m->moe_every > m->layers)
		return hd_section_fail(c, s, "moe_every", err, HD_EINVAL,
				       "%lld is more than model.layers = %lld: no layer has experts",
				       (long long)m->moe_every, (long long)m->layers);
	if (m->experts_per_token > m->experts)
		return hd_section_fail(c, s, "experts_per_token", err, HD_EINVAL,
				       "%lld is more than model.experts = %lld", (long long)m->experts_per_token,
				       (long long)m->experts);
	if (m->router_gshard && m->experts_per_token != 2)
		return hd_section_fail(c, s, "experts_per_token", err, HD_EINVAL,
				       "%lld, and router = gshard chooses 2 "
				       "(router = topk: any number)",
				       (long long)m->experts_per_token);
	if (m->group_tokens % m->seq && m->seq % m->group_tokens)
		return hd_section_fail(c, s, "group_tokens", err, HD_EDIVIDE,
				       "%lld neither divides train.seq = %lld nor is a "
				       "multiple of it",
				       (long long)m->group_tokens, (long long)m->seq);
	if (batch * m->seq % m->group_tokens)
		return hd_section_fail(c, s, "group_tokens", err, HD_EDIVIDE,
				       "%lld does not divide the %lld tokens of a step "
				       "(train.global_batch x train.seq)",
				       (long long)m->group_tokens, (long long)(batch * m->seq));
	if (hd_section_num(s, "capacity_factor") < 0 && hd_section_num(s, "capacity_factor") != -1)
		return hd_section_fail(c, s, "capacity_factor", err, HD_EINVAL,
				       "%g is negative (0: no limit; -1: the router's rule)",
				       hd_section_num(s, "capacity_factor"));
	if (m->capacity_factor > 0 && !hd_model_capacity(m))
		return hd_section_fail(c, s, "capacity_factor", err, HD_EINVAL,
				       "%g x group_tokens %lld / experts %lld is a "
				       "capacity of no token",
				       m->capacity_factor, (long long)m->group_tokens, (long long)m->experts);
	return HD_OK;
}

int64_t hd_model_capacity(const struct hd_model *m)
{
	double capacity = m->capacity_factor * (double)m->group_tokens / (double)m->experts;

	if (!(m->capacity_factor > 0) || capacity >= (double)m->group_tokens)
		return m->group_tokens;
	return (int64_t)capacity;
}

static int check(struct hd_conf *c, struct hd_section *s, const struct hd_model *m, struct hd_err *err)
{
	if (m->experts)
		HD_TRY(check_experts(c, s, m, err));
	if (m->embed % m->heads)
		return hd_section_fail(c, s, "heads", err, HD_EDIVIDE, "%lld does not divide model.embed = %lld",
				       (long long)m->heads, (long long)m->embed);
	if (m->heads % m->kv_heads)
		return hd_section_fail(c, s, "kv_heads", err, HD_EDIVIDE, "%lld does not divide model.heads = %lld",
				       (long long)m->kv_heads, (long long)m->heads);
	if (m->dropout > 0 && !m->family->dropout)
		return hd_section_fail(c, s, "dropout", err, HD_ENOTSUP, "the family %s has no dropout",
				       m->family->name);
	if (m->kv_heads != m->heads && !m->family->grouped)
		return hd_section_fail(c, s, "kv_heads", err, HD_ENOTSUP,
				       "%lld, and the family %s has as many as heads = %lld", (long long)m->kv_heads,
				       m->family->name, (long long)m->heads);
	if (hd_section_has(s, "rope_theta") && !m->family->rope)
		return hd_section_fail(c, s, "rope_theta", err, HD_ENOTSUP, "the family %s has no rotary positions",
				       m->family->name);
	if (m->family->rope && m->head_dim % 2)
		return hd_section_fail(c, s, "heads", err, HD_EDIVIDE,
				       "model.embed / heads = %lld / %lld is %lld, which is "
				       "odd, and the rotary positions of the family %s turn pairs",
				       (long long)m->embed, (long long)m->heads, (long long)m->head_dim,
				       m->family->name);
	if (m->seq > m->max_seq)
		return hd_section_fail(c, s, "max_seq", err, HD_EINVAL, "%lld is less than train.seq = %lld",
				       (long long)m->max_seq, (long long)m->seq);
	if (!m->vocab)
		return hd_section_fail(c, s, "vocab", err, HD_EINVAL, "must be given: the data do not say it");
	return HD_OK;
}

static void read_experts(struct hd_section *s, struct hd_model *m)
{
	const char *router = hd_section_str(s, "router");

	m->experts = hd_section_int(s, "experts") >= 0 ? hd_section_int(s, "experts") : m->family->experts;
	m->experts_per_token = hd_section_int(s, "experts_per_token");
	m->moe_every = m->family->moe_every && hd_section_int(s, "moe_every") ? hd_section_int(s, "moe_every")
									      : m->family->moe_every;
	m->router_gshard = !strcmp(router, "auto") ? !m->family->topk : !strcmp(router, "gshard");
	m->capacity_factor = hd_section_num(s, "capacity_factor");
	if (m->capacity_factor < 0)
		m->capacity_factor = m->router_gshard ? 2 : 0;
	m->group_tokens = hd_section_int(s, "group_tokens") ? hd_section_int(s, "group_tokens") : m->seq;
	m->second_random = m->router_gshard && !strcmp(hd_section_str(s, "second_expert"), "random");
	m->aux_loss = hd_section_num(s, "aux_loss");
	m->z_loss = hd_section_num(s, "z_loss");
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

		hd_suggest(advice, sizeof(advice), hd_section_str(s, "family"), "known", names, (int)HD_LEN(families));
		return hd_section_fail(c, s, "family", err, HD_EINVAL, "there is no family %s; %s",
				       hd_section_str(s, "family"), advice);
	}
	m->layers = hd_section_int(s, "layers");
	m->embed = hd_section_int(s, "embed");
	m->heads = hd_section_int(s, "heads");
	m->kv_heads = hd_section_int(s, "kv_heads") ? hd_section_int(s, "kv_heads") : m->heads;
	m->head_dim = m->embed / m->heads;
	m->mlp = hd_section_int(s, "mlp") ? hd_section_int(s, "mlp") : m->family->mlp(m->embed);
	m->vocab = hd_section_int(s, "vocab") ? hd_section_int(s, "vocab") : data_vocab;
	m->seq = hd_section_int(hd_conf_section(c, NULL, "train"), "seq");
	m->step_seq = m->seq;
	m->max_seq = hd_section_int(s, "max_seq") ? hd_section_int(s, "max_seq") : m->seq;
	m->dropout = hd_section_num(s, "dropout");
	m->init_std = hd_section_num(s, "init_std");
	m->rope_theta = hd_section_num(s, "rope_theta");
	m->norm_eps = hd_section_num(s, "norm_eps");
	if (strcmp(tie, "auto") && strcmp(tie, "yes") && strcmp(tie, "no"))
		return hd_section_fail(c, s, "tie_embeddings", err, HD_EINVAL, "%s is neither yes, no nor auto", tie);
	m->tie = !strcmp(tie, "auto") ? m->family->tie : !strcmp(tie, "yes");
	read_experts(s, m);
	return check(c, s, m, err);
}
