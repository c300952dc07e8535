/* SPDX-License-Identifier: Apache-2.0
 * Llama (Touvron et al. 2302.13971): RMS norm before each sublayer, rotary positions (2104.09864), grouped-query attention
 * (2305.13245), SwiGLU (2002.05202), no biases.  Weights stand as [out, in], the way transformers' LlamaForCausalLM
 * stores them, so every parameter is a whole tensor there.
 */
#include <config.h>
#include "engine/models/experts.h"
#include <stdio.h>
#include <string.h>

static struct tensor *linear(struct hd_plan *p, struct tensor *x, int64_t l, const char *name, const char *w,
			     const char *out, double std)
{
	return hd_einsum(p, x,
			 hd_param(p, hd_plan_text(p, "layers.%lld.%s.weight", (long long)l, name), w, HD_INIT_NORMAL,
				  std),
			 out);
}

static struct tensor *norm(struct hd_plan *p, struct tensor *x, const char *name)
{
	struct tensor *in[2] = { x, hd_param(p, hd_plan_text(p, "%s.weight", name), "embed", HD_INIT_ONE, 0) };

	return hd_op1(p, "norm", in, 2, "rms=1 eps=%.17g", p->model.norm_eps);
}

static struct tensor *rope(struct hd_plan *p, struct tensor *x)
{
	return hd_op1(p, "rope", &x, 1, "theta=%.17g", p->model.rope_theta);
}

static struct tensor *residual(struct hd_plan *p, struct tensor *x, struct tensor *y)
{
	struct tensor *in[] = { x, y };

	return hd_op1(p, "add", in, 2, "%s", "");
}

/* names: of gate, up and down, below `in` */
static struct tensor *swiglu(struct hd_plan *p, struct tensor *x, int64_t l, const char *const *names,
			     const char *const *weights, const char *wide, const char *narrow)
{
	double std = p->model.init_std;
	struct tensor *in[2] = { linear(p, x, l, names[0], weights[0], wide, std),
				 linear(p, x, l, names[1], weights[0], wide, std) };
	struct tensor *h = hd_op1(p, "swiglu", in, 2, "%s", "");

	return linear(p, h, l, names[2], weights[1], narrow, std / hd_root(2.0 * (double)p->model.layers));
}

static struct tensor *feed_forward(struct hd_plan *p, struct tensor *x, int64_t l)
{
	static const char *const names[] = { "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj" };
	static const char *const weights[] = { "mlp,embed", "embed,mlp" };

	return swiglu(p, x, l, names, weights, "batch,seq,mlp", "batch,seq,embed");
}

/* Mixtral's layer: w1 gate, w3 up, w2 down. */
static struct tensor *experts(struct hd_plan *p, struct tensor *x, int64_t l)
{
	static const char *const names[] = { "block_sparse_moe.experts.w1", "block_sparse_moe.experts.w3",
					     "block_sparse_moe.experts.w2" };
	static const char *const weights[] = { "expert,mlp,embed", "expert,embed,mlp" };
	struct hd_experts e;
	struct tensor *router = hd_param(p, hd_plan_text(p, "layers.%lld.block_sparse_moe.gate.weight", (long long)l),
					 "router_expert,embed", HD_INIT_NORMAL, p->model.init_std);

	x = hd_experts_begin(p, x, router, l, &e);
	return hd_experts_end(p, swiglu(p, x, l, names, weights, "expert,batch,slot,mlp", "expert,batch,slot,embed"),
			      &e);
}

static struct tensor *layer(struct hd_plan *p, struct tensor *x, int64_t l)
{
	static const char *const kv = "batch,seq,kv_heads,head_dim", *const q = "batch,seq,heads,head_dim";
	const struct hd_model *m = &p->model;
	double std = m->init_std, out = std / hd_root(2.0 * (double)m->layers);
	struct tensor *h = norm(p, x, hd_plan_text(p, "layers.%lld.input_layernorm", (long long)l)), *in[3];

	in[0] = rope(p, linear(p, h, l, "self_attn.q_proj", "heads,head_dim,embed", q, std));
	in[1] = rope(p, linear(p, h, l, "self_attn.k_proj", "kv_heads,head_dim,embed", kv, std));
	in[2] = linear(p, h, l, "self_attn.v_proj", "kv_heads,head_dim,embed", kv, std);
	h = hd_op1(p, "attention", in, 3, "causal=1");
	x = residual(p, x, linear(p, h, l, "self_attn.o_proj", "embed,heads,head_dim", "batch,seq,embed", out));
	h = norm(p, x, hd_plan_text(p, "layers.%lld.post_attention_layernorm", (long long)l));
	return residual(p, x, (hd_experts_in(m, l) ? experts : feed_forward)(p, h, l));
}

static struct tensor *hidden(struct hd_plan *p, struct tensor *ids)
{
	struct tensor *in[2] = { ids, NULL }, *x;

	hd_block_begin(p, "embed");
	in[1] = hd_param(p, "embed_tokens.weight", "vocab,embed", HD_INIT_NORMAL, p->model.init_std);
	x = hd_op1(p, "embedding", in, 2, "%s", "");
	for (int64_t l = 0; l < p->model.layers; l++) {
		hd_block_begin(p, hd_plan_text(p, "layer %lld", (long long)l));
		x = layer(p, x, l);
	}
	hd_block_begin(p, "head");
	return norm(p, x, "norm");
}

static struct tensor *logits(struct hd_plan *p, struct tensor *h)
{
	struct tensor *w = p->model.tie
				   ? hd_param_find(p, "embed_tokens.weight")
				   : hd_param(p, "lm_head.weight", "vocab,embed", HD_INIT_NORMAL, p->model.init_std);

	return h ? hd_einsum(p, h, w, h->v.ndim == 2 ? "batch,vocab" : "batch,seq,vocab") : NULL;
}

/* -- Hugging Face ------------------------------------------------------------------------------------------------------------ */
static int experts_region(const struct hd_model *m, const char *name, struct hd_hf_region *r)
{
	char stem[64];
	const char *rest = strstr(name, "block_sparse_moe.");
	int down = strstr(rest, ".w2.") != NULL, gate = strstr(rest, ".gate.") != NULL;

	snprintf(stem, sizeof(stem), "model.%.*sblock_sparse_moe", (int)(rest - name), name);
	return hd_experts_region(stem, rest + strlen("block_sparse_moe."),
				 gate   ? m->experts
				 : down ? m->embed
					: m->mlp,
				 down ? m->mlp : m->embed, r);
}

static int hf(const struct hd_model *m, const char *name, struct hd_hf_region *r)
{
	int kv = strstr(name, "k_proj") || strstr(name, "v_proj"), down = strstr(name, "down_proj") != NULL;

	memset(r, 0, sizeof(*r));
	if (strstr(name, "block_sparse_moe."))
		return experts_region(m, name, r);
	snprintf(r->name, sizeof(r->name), "%s%s", strncmp(name, "lm_head", 7) ? "model." : "", name);
	r->ndim = strstr(name, "norm") ? 1 : 2;
	r->split = strstr(name, "self_attn") && !strstr(name, "o_proj") ? 2 : 1;
	r->shape[0] = strstr(name, "mlp.")        ? (down ? m->embed : m->mlp)
		      : strstr(name, "self_attn") ? (kv ? m->kv_heads * m->head_dim : m->embed)
		      : r->ndim == 1              ? m->embed
						  : m->vocab;
	r->shape[1] = down ? m->mlp : m->embed;
	return HD_OK;
}

static json_t *config(const struct hd_model *m)
{
	return hd_experts_config(
		m, json_pack("{s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:{s:s, s:f}, "
			     "s:b, s:b, s:b, s:s, s:i, s:i}",
			     "architectures", "LlamaForCausalLM", "model_type", "llama", "hidden_act", "silu",
			     "vocab_size", (json_int_t)m->vocab, "max_position_embeddings", (json_int_t)m->max_seq,
			     "hidden_size", (json_int_t)m->embed, "num_hidden_layers", (json_int_t)m->layers,
			     "num_attention_heads", (json_int_t)m->heads, "num_key_value_heads",
			     (json_int_t)m->kv_heads, "head_dim", (json_int_t)m->head_dim, "intermediate_size",
			     (json_int_t)m->mlp, "rms_norm_eps", m->norm_eps, "initializer_range", m->init_std,
			     "rope_theta", m->rope_theta, /* up to version 4 */
			     "rope_parameters", "rope_type", "default", "rope_theta", m->rope_theta,
			     "tie_word_embeddings", m->tie, "attention_bias", 0, "mlp_bias", 0, "torch_dtype",
			     "float32", "bos_token_id", 0, "eos_token_id", 0));
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
	{ NULL, NULL },
};

static int64_t whole(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

/* Positions that are turned in another way than by theta alone: a section that says so, by an old name or a new one. */
static int turns_else(const json_t *o, const char *section)
{
	const json_t *rope = json_object_get(o, section), *type = json_object_get(rope, "rope_type");

	if (!type)
		type = json_object_get(rope, "type");
	return json_is_string(type) && strcmp(json_string_value(type), "default");
}

static const char *unlike(const json_t *o)
{
	const char *act = json_string_value(json_object_get(o, "hidden_act"));

	if (act && strcmp(act, "silu") && strcmp(act, "swish"))
		return "hidden_act";
	if (json_is_integer(json_object_get(o, "head_dim")) &&
	    whole(o, "head_dim") * whole(o, "num_attention_heads") != whole(o, "hidden_size"))
		return "head_dim";
	if (json_is_true(json_object_get(o, "attention_bias")))
		return "attention_bias";
	if (json_is_true(json_object_get(o, "mlp_bias")))
		return "mlp_bias";
	return turns_else(o, "rope_scaling")      ? "rope_scaling"
	       : turns_else(o, "rope_parameters") ? "rope_parameters"
						  : NULL;
}

/* 8/3 embed, rounded up to 64 */
static int64_t mlp(int64_t embed)
{
	return (8 * embed / 3 + 63) / 64 * 64;
}

const struct hd_family hd_family_llama = { .name = "llama",
					   .tie = 0,
					   .grouped = 1,
					   .rope = 1,
					   .moe_every = 2,
					   .mlp = mlp,
					   .hidden = hidden,
					   .logits = logits,
					   .hf = hf,
					   .config = config,
					   .keys = keys,
					   .unlike = unlike };
