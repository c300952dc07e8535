/* SPDX-License-Identifier: Apache-2.0
 * Mixtral (Jiang et al. 2401.04088): Llama with experts in every layer, of which each token goes to the two that its router
 * likes best.  The graph and the names of the weights are Llama's (llama.c); defaults and config.json are its own.
 */
#include <config.h>
#include "engine/models/experts.h"

static struct tensor *hidden(struct hd_plan *p, struct tensor *ids)
{
	return hd_family_llama.hidden(p, ids);
}
static struct tensor *logits(struct hd_plan *p, struct tensor *h)
{
	return hd_family_llama.logits(p, h);
}
static int64_t mlp(int64_t embed)
{
	return hd_family_llama.mlp(embed);
}

static int hf(const struct hd_model *m, const char *name, struct hd_hf_region *r)
{
	return hd_family_llama.hf(m, name, r);
}

/* As MixtralForCausalLM has it, which knows no dense layers, no capacity and no other router.  Without experts it is a Llama. */
static json_t *config(const struct hd_model *m)
{
	if (!m->experts)
		return hd_family_llama.config(m);
	return hd_experts_config(m,
				 json_pack("{s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, "
					   "s:{s:s, s:f}, s:b, s:n, s:s, s:i, s:i}",
					   "architectures", "MixtralForCausalLM", "model_type", "mixtral", "hidden_act",
					   "silu", "vocab_size", (json_int_t)m->vocab, "max_position_embeddings",
					   (json_int_t)m->max_seq, "hidden_size", (json_int_t)m->embed,
					   "num_hidden_layers", (json_int_t)m->layers, "num_attention_heads",
					   (json_int_t)m->heads, "num_key_value_heads", (json_int_t)m->kv_heads,
					   "head_dim", (json_int_t)m->head_dim, "intermediate_size", (json_int_t)m->mlp,
					   "rms_norm_eps", m->norm_eps, "initializer_range", m->init_std, "rope_theta",
					   m->rope_theta, /* up to version 4 */
					   "rope_parameters", "rope_type", "default", "rope_theta", m->rope_theta,
					   "tie_word_embeddings", m->tie, "sliding_window", "torch_dtype", "float32",
					   "bos_token_id", 0, "eos_token_id", 0));
}

static const struct hd_hf_key keys[] = {
	{ "num_hidden_layers", "layers" },
	{ "hidden_size", "embed" },
	{ "num_attention_heads", "heads" },
	{ "num_key_value_heads", "kv_heads" },
	{ "intermediate_size", "mlp" },
	{ "vocab_size", "vocab" },
	{ "max_position_embeddings", "max_seq" },
	{ "rms_norm_eps", "norm_eps" },
	{ "initializer_range", "init_std" },
	{ "rope_theta", "rope_theta" },
	{ "rope_parameters.rope_theta", "rope_theta" },
	{ "tie_word_embeddings", "tie_embeddings" },
	{ "num_local_experts", "experts" },
	{ "num_experts_per_tok", "experts_per_token" },
	{ "router_aux_loss_coef", "aux_loss" },
	{ NULL, NULL },
};

static const char *unlike(const json_t *o)
{
	if (json_integer_value(json_object_get(o, "num_experts_per_tok")) ==
	    1) /* its gate is 1 there, here the router's */
		return "num_experts_per_tok";
	return json_is_integer(json_object_get(o, "sliding_window")) ? "sliding_window" : hd_family_llama.unlike(o);
}

const struct hd_family hd_family_mixtral = { .name = "mixtral",
					     .tie = 0,
					     .grouped = 1,
					     .rope = 1,
					     .experts = 8,
					     .moe_every = 1,
					     .topk = 1,
					     .mlp = mlp,
					     .hidden = hidden,
					     .logits = logits,
					     .hf = hf,
					     .config = config,
					     .keys = keys,
					     .unlike = unlike };
