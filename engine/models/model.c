/* SPDX-License-Identifier: Apache-2.0
 * The keys of [model], and the sizes that they determine together with the family's defaults.
 */
#include <config.h>
#include "engine/models/model.h"
#include "engine/models/decoder/experts.h"
#include "engine/models/decoder/knobs.h"
#include "engine/base/parse.h"
#include <stdlib.h>
#include <string.h>

static const struct hd_option keys[] = {
	{ "family", HD_OPT_STR, 0, "gpt2", NULL,
	  "gpt2, llama, mistral, ...: defaults of the keys below, and names in files (doc/ini.md)" },
	{ "load", HD_OPT_STR, 0, "", NULL,
	  "directory of a Hugging Face or Heddle checkpoint: initial weights, and sizes" },
	{ "layers", HD_OPT_INT, 0, NULL, "1..100000", "transformer layers" },
	{ "embed", HD_OPT_INT, 0, NULL, "1..1000000000", "width of the residual stream" },
	{ "heads", HD_OPT_INT, 0, NULL, "1..1000000000", "attention heads" },
	{ "kv_heads", HD_OPT_INT, 0, "0", "0..1000000000", "key and value heads (0: as many as heads)" },
	{ "head_dim", HD_OPT_INT, 0, "0", "0..", "width of a head (0: embed / heads)" },
	{ "mlp", HD_OPT_INT, 0, "0", "0..1000000000", "width of the feed-forward layer (0: the family's rule)" },
	{ "vocab", HD_OPT_INT, 0, "0", "0..1000000000",
	  "size of the vocabulary (0: from the data; 256 for text as bytes)" },
	{ "max_seq", HD_OPT_INT, 0, "0", "0..1000000000", "positions that the model knows (0: train.seq)" },
	{ "dropout", HD_OPT_NUM, 0, "0", "0..0.99", "fraction of activations dropped in training" },
	{ "init_std", HD_OPT_NUM, 0, "0.02", "0..1e30", "standard deviation of the initial weights" },
	{ "tie_embeddings", HD_OPT_STR, 0, "auto", NULL,
	  "whether the head has the weights of the embedding: yes, no, or auto: the family's rule" },
	{ "rope_theta", HD_OPT_NUM, 0, "10000", "1..1e30", "base of the rotary angles" },
	{ "norm_eps", HD_OPT_NUM, 0, "1e-5", "0..1e30", "added to the variance in norms" },
	{ "norm", HD_OPT_CHOICE, 0, "before", "before|after|both",
	  "where norms stand: before each sublayer, after it, or both" },
	{ "norm_offset", HD_OPT_BOOL, 0, "no", NULL, "norm weights are stored minus one" },
	{ "activation", HD_OPT_CHOICE, 0, "silu", "silu|gelu_tanh|gelu_erf",
	  "activation function of the feed-forward layer's gate" },
	{ "qk_norm", HD_OPT_CHOICE, 0, "none", "none|head|all",
	  "norm of queries and keys: of each head, or of all together" },
	{ "qkv_bias", HD_OPT_BOOL, 0, "no", NULL, "biases of queries, keys and values" },
	{ "out_bias", HD_OPT_BOOL, 0, "no", NULL, "bias after attention" },
	{ "mlp_bias", HD_OPT_BOOL, 0, "no", NULL, "biases of the feed-forward layer" },
	{ "window", HD_OPT_INT, 0, "0", "0..", "tokens that attention sees, itself included (0: all before it)" },
	{ "window_layers", HD_OPT_STR, 0, "w", NULL, "letters repeated over the layers: w has the window, f has none" },
	{ "attention_softcap", HD_OPT_NUM, 0, "0", "0..1e30", "c: a score s becomes c tanh(s / c) (0: unchanged)" },
	{ "logit_softcap", HD_OPT_NUM, 0, "0", "0..1e30", "the same for logits" },
	{ "query_scale", HD_OPT_NUM, 0, "0", "0..1e30", "scores are divided by its square root (0: head_dim)" },
	{ "embed_scale", HD_OPT_NUM, 0, "1", "0..1e30", "factor of the embeddings (0: the square root of embed)" },
	{ "rotary_fraction", HD_OPT_NUM, 0, "1", "0..1", "fraction of head_dim that is rotated by the position" },
	{ "rope_theta_window", HD_OPT_NUM, 0, "0", "0..1e30",
	  "rope_theta of layers with a window, which is not scaled (0: as the others)" },
	{ "rope_scaling", HD_OPT_CHOICE, 0, "none", "none|linear|dynamic|llama3|yarn|longrope",
	  "how rotary angles are scaled for longer texts" },
	{ "rope_factor", HD_OPT_NUM, 0, "1", "1..", "rope_scaling: the factor" },
	{ "rope_original", HD_OPT_NUM, 0, "0", "0..1e9",
	  "rope_scaling: positions of the original training (0: max_seq; longrope needs a number)" },
	{ "rope_low", HD_OPT_NUM, 0, "1", "0..", "llama3: turns within rope_original below which an angle is scaled" },
	{ "rope_high", HD_OPT_NUM, 0, "4", "0..", "llama3: turns above which it is not" },
	{ "rope_beta_fast", HD_OPT_NUM, 0, "32", "0..", "yarn: turns above which an angle is not scaled" },
	{ "rope_beta_slow", HD_OPT_NUM, 0, "1", "0..", "yarn: turns below which it is" },
	{ "rope_attention", HD_OPT_NUM, 0, "0", "0..",
	  "yarn, longrope: factor of queries and keys (0: by rope_factor)" },
	{ "rope_short", HD_OPT_STR, 0, "", NULL,
	  "longrope: what the angle of each pair is divided by where train.seq is at most rope_original" },
	{ "rope_long", HD_OPT_STR, 0, "", NULL, "longrope: the same where train.seq is more" },
	{ "rope_truncate", HD_OPT_BOOL, 0, "yes", NULL, "yarn: its bounds are whole dims" },
	{ "experts", HD_OPT_INT, 0, "-1", "-1..65536",
	  "experts in a layer that has them (0: none; -1: the family's rule)" },
	{ "experts_per_token", HD_OPT_INT, 0, "2", "1..64", "experts that each token chooses" },
	{ "moe_every", HD_OPT_INT, 0, "0", "0..", "every n-th layer has experts (0: the family's rule)" },
	{ "router", HD_OPT_CHOICE, 0, "auto", HD_ROUTERS "|auto",
	  "how tokens choose experts; auto: the family's rule" },
	{ "router_groups", HD_OPT_INT, 0, "1", "1..64", "router = sigmoid: groups of neighbouring experts" },
	{ "router_best_groups", HD_OPT_INT, 0, "1", "1..64", "router = sigmoid: groups that a token may choose from" },
	{ "router_bias_rate", HD_OPT_NUM, 0, "0", "0..1",
	  "router = sigmoid: what a step adds to the bias of an expert with fewer choices than the mean, or "
	  "subtracts from others" },
	{ "gate_scale", HD_OPT_NUM, 0, "1", "1e-30..1e30", "factor of the gates" },
	{ "expert_mlp", HD_OPT_INT, 0, "0", "0..", "width of an expert (0: mlp)" },
	{ "dense_layers", HD_OPT_INT, 0, "0", "0..", "number of layers at the beginning without experts" },
	{ "shared_experts", HD_OPT_INT, 0, "0", "0..64", "experts that every token also goes to" },
	{ "normalize_gates", HD_OPT_CHOICE, 0, "auto", "yes|no|auto",
	  "gates of a token's experts sum to 1; auto: the family's rule, else yes where a token has several" },
	{ "capacity_factor", HD_OPT_NUM, 0, "-1", "-1..",
	  "capacity of an expert / (tokens / experts) (0: no limit; -1: with router = gshard 2, else 0)" },
	{ "group_tokens", HD_OPT_INT, 0, "0", "0..1000000000",
	  "tokens that share an expert's capacity (0: train.seq)" },
	{ "second_expert", HD_OPT_CHOICE, 0, "random", "random|all",
	  "router = gshard: the second expert is used with probability 2 x its gate, or always" },
	{ "aux_loss", HD_OPT_NUM, 0, "0.01", "0..1e30", "weight of the load-balancing loss" },
	{ "z_loss", HD_OPT_NUM, 0, "0", "0..1e30", "weight of the z-loss, which keeps the router's logits small" },
};
const struct hd_key_table hd_model_keys = { keys, HD_LEN(keys), sizeof(keys[0]) };

/* Checks the keys that only some routers have. */
static int check_router(struct hd_conf *c, struct hd_section *s, const struct hd_model *m, struct hd_err *err)
{
	static const char *const of_sigmoid[] = { "router_groups", "router_best_groups", "router_bias_rate" };
	int64_t groups = m->router_groups, each = m->experts / groups;

	if (m->router == HD_ROUTER_SIGMOID && !m->family->decoder)
		return hd_section_fail(c, s, "router", err, HD_ENOTSUP, "the family %s does not have sigmoid",
				       m->family->name);
	for (size_t i = 0; i < HD_LEN(of_sigmoid) && m->router != HD_ROUTER_SIGMOID; i++)
		if (hd_section_has(s, of_sigmoid[i]))
			return hd_section_fail(c, s, of_sigmoid[i], err, HD_ENOTSUP,
					       "only router = sigmoid has it, but here it is %s",
					       m->router == HD_ROUTER_GSHARD ? "gshard" : "topk");
	if (m->router == HD_ROUTER_GSHARD && m->gate_scale != 1)
		return hd_section_fail(c, s, "gate_scale", err, HD_ENOTSUP,
				       "%g, but gates of router = gshard have no factor", m->gate_scale);
	if (m->experts % groups || (groups > 1 && each < 2))
		return hd_section_fail(
			c, s, "router_groups", err, HD_EDIVIDE,
			"%lld, but model.experts = %lld cannot be divided into that many groups of two or more",
			(long long)groups, (long long)m->experts);
	if (m->router_best_groups > groups)
		return hd_section_fail(c, s, "router_best_groups", err, HD_EINVAL,
				       "%lld is more than model.router_groups = %lld", (long long)m->router_best_groups,
				       (long long)groups);
	if (m->router == HD_ROUTER_SIGMOID && m->experts_per_token > m->router_best_groups * each)
		return hd_section_fail(c, s, "experts_per_token", err, HD_EINVAL,
				       "%lld is more than the %lld experts of router_best_groups = %lld",
				       (long long)m->experts_per_token, (long long)(m->router_best_groups * each),
				       (long long)m->router_best_groups);
	return HD_OK;
}

static int has_experts(const struct hd_model *m)
{
	for (int64_t l = 0; l < m->layers; l++)
		if (hd_experts_in(m, l))
			return 1;
	return 0;
}

/* Checks the keys of experts. The tokens of a group share the capacity of the experts, so a batch must consist of
 * complete groups. */
static int check_experts(struct hd_conf *c, struct hd_section *s, const struct hd_model *m, struct hd_err *err)
{
	int64_t batch = hd_section_int(hd_conf_section(c, NULL, "train"), "global_batch");

	if (m->moe_every < 1)
		return hd_section_fail(c, s, "experts", err, HD_ENOTSUP, "the family %s has no experts",
				       m->family->name);
	if (m->dense_layers >= m->layers)
		return hd_section_fail(c, s, "dense_layers", err, HD_EINVAL,
				       "%lld of model.layers = %lld: no layer has experts", (long long)m->dense_layers,
				       (long long)m->layers);
	if (m->moe_every > m->layers)
		return hd_section_fail(c, s, "moe_every", err, HD_EINVAL,
				       "%lld is more than model.layers = %lld: no layer has experts",
				       (long long)m->moe_every, (long long)m->layers);
	if (!has_experts(m))
		return hd_section_fail(c, s, "dense_layers", err, HD_EINVAL,
				       "%lld of model.layers = %lld, with model.moe_every = %lld: no layer has experts",
				       (long long)m->dense_layers, (long long)m->layers, (long long)m->moe_every);
	if (m->experts_per_token > m->experts)
		return hd_section_fail(c, s, "experts_per_token", err, HD_EINVAL,
				       "%lld is more than model.experts = %lld", (long long)m->experts_per_token,
				       (long long)m->experts);
	HD_TRY(check_router(c, s, m, err));
	if (m->router == HD_ROUTER_GSHARD && m->experts_per_token != 2)
		return hd_section_fail(c, s, "experts_per_token", err, HD_EINVAL,
				       "%lld, but router = gshard chooses 2 (router = topk, sigmoid: any number)",
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
				       "%g x group_tokens %lld / experts %lld is a capacity of less than one token",
				       m->capacity_factor, (long long)m->group_tokens, (long long)m->experts);
	return HD_OK;
}

static int check_longrope(struct hd_conf *c, struct hd_section *s, const struct hd_model *m, struct hd_err *err)
{
	int64_t pairs = (int64_t)(m->rotary_fraction * (double)m->head_dim) / 2;

	for (int i = 0; i < 2; i++) {
		int64_t n = hd_rope_list(i ? m->rope_long : m->rope_short);

		if (n < 0)
			return hd_section_fail(c, s, i ? "rope_long" : "rope_short", err, HD_EINVAL,
					       "'%s' must be numbers above 0 with commas between them",
					       i ? m->rope_long : m->rope_short);
		if (n != pairs)
			return hd_section_fail(c, s, i ? "rope_long" : "rope_short", err, HD_EINVAL,
					       "%lld factors, but %lld pairs of a head are rotated", (long long)n,
					       (long long)pairs);
	}
	if (!(m->rope_original > 1))
		return hd_section_fail(
			c, s, "rope_original", err, HD_EINVAL,
			"%g, but rope_scaling = longrope needs the number of positions of the original training",
			m->rope_original);
	return HD_OK;
}

static int check_rope(struct hd_conf *c, struct hd_section *s, const struct hd_model *m, struct hd_err *err)
{
	int64_t turned = (int64_t)(m->rotary_fraction * (double)m->head_dim);
	double low = m->rope_low, high = m->rope_high;
	int given = hd_section_int(s, "head_dim") > 0;

	if (turned % 2 && turned == m->head_dim && given)
		return hd_section_fail(c, s, "head_dim", err, HD_EDIVIDE,
				       "%lld is odd, but the rotary positions of the family %s rotate pairs",
				       (long long)m->head_dim, m->family->name);
	if (turned % 2 && turned == m->head_dim)
		return hd_section_fail(
			c, s, "heads", err, HD_EDIVIDE,
			"model.embed / heads = %lld / %lld is %lld, which is odd, but the rotary positions of the "
			"family %s rotate pairs",
			(long long)m->embed, (long long)m->heads, (long long)m->head_dim, m->family->name);
	if (turned % 2)
		return hd_section_fail(c, s, "rotary_fraction", err, HD_EDIVIDE,
				       "%g of head_dim %lld is %lld, which is odd, but rotary positions rotate pairs",
				       m->rotary_fraction, (long long)m->head_dim, (long long)turned);
	if (m->rope_original != (double)(int64_t)m->rope_original)
		return hd_section_fail(c, s, "rope_original", err, HD_EINVAL,
				       "%.15g is not a whole number of positions", m->rope_original);
	if (m->rope_scaling == HD_ROPE_SCALING_LONGROPE)
		HD_TRY(check_longrope(c, s, m, err));
	if (m->rope_scaling == HD_ROPE_SCALING_LLAMA3 && !(low < high))
		return hd_section_fail(c, s, "rope_high", err, HD_EINVAL, "%g is not more than rope_low = %g", high,
				       low);
	if (m->rope_scaling == HD_ROPE_SCALING_YARN && m->rope_beta_fast < m->rope_beta_slow)
		return hd_section_fail(c, s, "rope_beta_fast", err, HD_EINVAL, "%g is less than rope_beta_slow = %g",
				       m->rope_beta_fast, m->rope_beta_slow);
	if (m->rope_scaling == HD_ROPE_SCALING_DYNAMIC && turned <= 2)
		return hd_section_fail(c, s, "rope_scaling", err, HD_EINVAL,
				       "dynamic needs more than 2 rotated dims, but here there are %lld",
				       (long long)turned);
	return HD_OK;
}

static int check_decoder(struct hd_conf *c, struct hd_section *s, const struct hd_model *m, struct hd_err *err)
{
	if (!*m->window_layers || strspn(m->window_layers, "wf") != strlen(m->window_layers))
		return hd_section_fail(c, s, "window_layers", err, HD_EINVAL,
				       "'%s' must be letters w (a layer with the window) and f (one without)",
				       m->window_layers);
	return check_rope(c, s, m, err);
}

static int check(struct hd_conf *c, struct hd_section *s, const struct hd_model *m, struct hd_err *err)
{
	if (m->experts)
		HD_TRY(check_experts(c, s, m, err));
	if (m->embed % m->heads && !hd_section_int(s, "head_dim"))
		return hd_section_fail(c, s, "heads", err, HD_EDIVIDE, "%lld does not divide model.embed = %lld",
				       (long long)m->heads, (long long)m->embed);
	if (hd_section_int(s, "head_dim") && !m->family->decoder && m->head_dim * m->heads != m->embed)
		return hd_section_fail(c, s, "head_dim", err, HD_ENOTSUP,
				       "%lld, but the family %s has embed / heads = %lld", (long long)m->head_dim,
				       m->family->name, (long long)(m->embed / m->heads));
	if (m->heads % m->kv_heads)
		return hd_section_fail(c, s, "kv_heads", err, HD_EDIVIDE, "%lld does not divide model.heads = %lld",
				       (long long)m->kv_heads, (long long)m->heads);
	if (m->dropout > 0 && !m->family->dropout)
		return hd_section_fail(c, s, "dropout", err, HD_ENOTSUP, "the family %s has no dropout",
				       m->family->name);
	if (m->kv_heads != m->heads && !m->family->grouped)
		return hd_section_fail(c, s, "kv_heads", err, HD_ENOTSUP,
				       "%lld, but the family %s has as many as heads = %lld", (long long)m->kv_heads,
				       m->family->name, (long long)m->heads);
	if (hd_section_has(s, "rope_theta") && !m->family->rope)
		return hd_section_fail(c, s, "rope_theta", err, HD_ENOTSUP, "the family %s has no rotary positions",
				       m->family->name);
	if (m->family->decoder)
		HD_TRY(check_decoder(c, s, m, err));
	if (m->seq > m->max_seq)
		return hd_section_fail(c, s, "max_seq", err, HD_EINVAL,
				       "%lld positions are fewer than train.seq = %lld", (long long)m->max_seq,
				       (long long)m->seq);
	if (!m->vocab)
		return hd_section_fail(
			c, s, "vocab", err, HD_EINVAL,
			"must be given, or data.tokenizer = DIR of the tokenizer that made the ids: files of ids do "
			"not contain it");
	return HD_OK;
}

static void read_experts(struct hd_section *s, struct hd_model *m)
{
	const char *router = hd_section_str(s, "router"), *gates = hd_section_str(s, "normalize_gates");
	const char *family = hd_family_default(m->family, "normalize_gates");
	const char *each = hd_family_default(m->family, "experts_per_token");

	gates = !strcmp(gates, "auto") && family ? family : gates;

	m->experts = hd_section_int(s, "experts") >= 0 ? hd_section_int(s, "experts") : m->family->experts;
	m->experts_per_token = hd_section_has(s, "experts_per_token") || !each ? hd_section_int(s, "experts_per_token")
									       : strtoll(each, NULL, 10);
	m->moe_every = m->family->moe_every && hd_section_int(s, "moe_every") ? hd_section_int(s, "moe_every")
									      : m->family->moe_every;
	m->router = !strcmp(router, "sigmoid") ? HD_ROUTER_SIGMOID
		    : !strcmp(router, "topk")  ? HD_ROUTER_TOPK
		    : !strcmp(router, "auto")  ? m->family->router
					       : HD_ROUTER_GSHARD;
	m->capacity_factor = hd_section_num(s, "capacity_factor");
	if (m->capacity_factor < 0)
		m->capacity_factor = m->router == HD_ROUTER_GSHARD ? 2 : 0;
	m->group_tokens = hd_section_int(s, "group_tokens") ? hd_section_int(s, "group_tokens") : m->seq;
	m->second_random = m->router == HD_ROUTER_GSHARD && !strcmp(hd_section_str(s, "second_expert"), "random");
	m->normalize_gates = !strcmp(gates, "auto") ? m->experts_per_token > 1 : !strcmp(gates, "yes");
	m->z_loss = hd_section_num(s, "z_loss");
}

int hd_model_read(struct hd_conf *c, int64_t data_vocab, struct hd_model *m, struct hd_err *err)
{
	struct hd_section *s = hd_conf_section(c, NULL, "model");
	const char *tie = hd_section_str(s, "tie_embeddings"), *tied;
	const char *const *names = hd_family_names(0);
	int n = 0;

	m->family = hd_family_find(hd_section_str(s, "family"));
	while (names[n])
		n++;
	if (!m->family) {
		char advice[500];

		hd_suggest(advice, sizeof(advice), hd_section_str(s, "family"), "known", names, n);
		return hd_section_fail(c, s, "family", err, HD_EINVAL, "there is no family %s; %s",
				       hd_section_str(s, "family"), advice);
	}
	m->layers = hd_section_int(s, "layers");
	m->embed = hd_section_int(s, "embed");
	m->heads = hd_section_int(s, "heads");
	m->kv_heads = hd_section_int(s, "kv_heads") ? hd_section_int(s, "kv_heads") : m->heads;
	m->head_dim = hd_section_int(s, "head_dim") ? hd_section_int(s, "head_dim") : m->embed / m->heads;
	m->mlp = hd_section_int(s, "mlp") ? hd_section_int(s, "mlp") : m->family->mlp(m->embed);
	m->vocab = hd_section_int(s, "vocab") ? hd_section_int(s, "vocab") : data_vocab;
	m->seq = hd_section_int(hd_conf_section(c, NULL, "train"), "seq");
	m->step_seq = m->seq;
	m->max_seq = hd_section_int(s, "max_seq") ? hd_section_int(s, "max_seq") : m->seq;
	m->dropout = hd_section_num(s, "dropout");
	HD_TRY(hd_knobs_read(c, s, m, err));
	if (strcmp(tie, "auto") && strcmp(tie, "yes") && strcmp(tie, "no"))
		return hd_section_fail(c, s, "tie_embeddings", err, HD_EINVAL, "%s is neither yes, no nor auto", tie);
	tied = hd_family_default(m->family, "tie_embeddings");
	m->tie = !strcmp(!strcmp(tie, "auto") && tied ? tied : tie, "yes");
	read_experts(s, m);
	return check(c, s, m, err);
}
