/* SPDX-License-Identifier: Apache-2.0
 * The decoder of Llama (Touvron et al. 2302.13971): RMS norms, rotary positions (2104.09864), grouped-query attention
 * (2305.13245), a gated feed-forward layer (2002.05202). Later ideas are keys of [model], and fields of struct
 * hd_model. Weights are [out, in], as transformers stores them, under its names without the first word.
 */
#include <config.h>
#include "engine/models/decoder/decoder.h"
#include "engine/models/decoder/experts.h"
#include "engine/models/decoder/knobs.h"
#include "engine/ops/movement.h"
#include <string.h>

static const char *const narrow = "batch,seq,embed";

static struct tensor *weight(struct hd_plan *p, int64_t l, const char *name, const char *spec, double std)
{
	return hd_param(p, hd_plan_text(p, "layers.%lld.%s.weight", (long long)l, name), spec, HD_INIT_NORMAL, std);
}

/* x W + bias; b is the dims of the bias, or NULL if the model has none. */
static struct tensor *linear(struct hd_plan *p, struct tensor *x, int64_t l, const char *name, const char *w,
			     const char *out, const char *b, double std)
{
	struct tensor *y[2] = { hd_einsum(p, x, weight(p, l, name, w, std), out), NULL };

	if (!b)
		return y[0];
	y[1] = hd_param(p, hd_plan_text(p, "layers.%lld.%s.bias", (long long)l, name), b, HD_INIT_ZERO, 0);
	if (y[1])
		y[1]->decay = 0;
	return hd_op1(p, "add", y, 2, "%s", "");
}

/* -- norms --------------------------------------------------------------------------------------------------------- */
/* Returns a norm's weight, adding one if the model stores it minus one. */
static struct tensor *norm_weight(struct hd_plan *p, const char *name, const char *dims)
{
	const char *weight = hd_plan_text(p, "%s.weight", name);
	struct tensor *sum[2];

	sum[0] = hd_param(p, weight, dims, p->model.norm_offset ? HD_INIT_ZERO : HD_INIT_ONE, 0);
	if (sum[0])
		sum[0]->decay = 0; /* no weight decay, whatever its dims */
	if (!sum[0] || !p->model.norm_offset)
		return sum[0];
	sum[1] = hd_build_made(p, "constant", sum[0]->dims, sum[0]->v.ndim, "value=1");
	return hd_op1(p, "add", sum, 2, "fp32=1");
}

/* Norm over `dim`, the last dim of x. */
static struct tensor *norm(struct hd_plan *p, struct tensor *x, const char *name, const char *dim)
{
	struct tensor *in[2] = { x, norm_weight(p, name, dim) };

	return hd_op1(p, "norm", in, 2, "rms=1 eps=%.17g", p->model.norm_eps);
}

/* Norm over all heads of a projection, of n = heads x head_dim values. An axis may shard them. The squares are summed
 * by an einsum of their own, so that the result is a partial sum where heads are sharded. */
static struct tensor *norm_heads(struct hd_plan *p, struct tensor *x, const char *name, const char *dims, int64_t n)
{
	struct tensor *in[3] = { x, x, NULL };

	in[1] = hd_op1(p, "einsum", in, 2, "out=batch,seq fp32=1");
	in[1] = hd_map_new(p, &in[1], 1,
			   hd_plan_text(p, "1 / sqrt(a / %lld + %.17g)", (long long)n, p->model.norm_eps));
	in[2] = norm_weight(p, name, dims);
	return hd_map_new(p, in, 3, "a * b * c");
}

static struct tensor *norm_qk(struct hd_plan *p, struct tensor *x, int64_t l, int keys)
{
	const struct hd_model *m = &p->model;
	const char *name = hd_plan_text(p, "layers.%lld.self_attn.%c_norm", (long long)l, keys ? 'k' : 'q');

	if (m->qk_norm == HD_QK_NORM_HEAD)
		return norm(p, x, name, "head_dim");
	if (m->qk_norm == HD_QK_NORM_ALL)
		return norm_heads(p, x, name, keys ? "kv_heads,head_dim" : "heads,head_dim",
				  (keys ? m->kv_heads : m->heads) * m->head_dim);
	return x;
}

/* Applies a norm of a layer, or returns x unchanged if the model does not have this norm. */
static struct tensor *layer_norm(struct hd_plan *p, struct tensor *x, int64_t l, const char *name, int has)
{
	return has ? norm(p, x, hd_plan_text(p, "layers.%lld.%s", (long long)l, name), "embed") : x;
}

/* -- attention ----------------------------------------------------------------------------------------------------- */
int hd_decoder_window(const struct hd_model *m, int64_t l)
{
	return m->window && m->window < m->seq && m->window_layers[(size_t)l % strlen(m->window_layers)] == 'w';
}

static int is_windowed(const struct hd_model *m, int64_t l)
{
	return m->window && m->window_layers[(size_t)l % strlen(m->window_layers)] == 'w';
}

/* Rewrites a comma-separated list for an attribute: with colons, without blanks. */
static const char *with_colons(struct hd_plan *p, const char *list)
{
	char *text = hd_plan_alloc(p, strlen(list) + 1), *to = text;

	for (; *list; list++)
		if (*list != ' ' && *list != '\t')
			*to++ = (char)(*list == ',' ? ':' : *list);
	return text;
}

static const char *scaling_attr(struct hd_plan *p)
{
	static const char *const names[] = { "", "linear", "dynamic", "llama3", "yarn", "longrope" };
	const struct hd_model *m = &p->model;
	double original = m->rope_original > 0 ? m->rope_original : (double)m->max_seq;
	const char *first = hd_plan_text(p, " scaling=%s factor=%.17g original=%.17g", names[m->rope_scaling],
					 m->rope_factor, original);

	if (m->rope_scaling == HD_ROPE_SCALING_LINEAR)
		return hd_plan_text(p, " scaling=linear factor=%.17g", m->rope_factor);
	if (m->rope_scaling == HD_ROPE_SCALING_DYNAMIC)
		return hd_plan_text(p, "%s length=%lld", first, (long long)m->seq);
	if (m->rope_scaling == HD_ROPE_SCALING_LONGROPE)
		return hd_plan_text(p, "%s attention=%.17g factors=%s", first, m->rope_attention,
				    with_colons(p, (double)m->seq > original ? m->rope_long : m->rope_short));
	if (m->rope_scaling == HD_ROPE_SCALING_LLAMA3)
		return hd_plan_text(p, "%s low=%.17g high=%.17g", first, m->rope_low, m->rope_high);
	return hd_plan_text(p, "%s beta_fast=%.17g beta_slow=%.17g attention=%.17g truncate=%lld", first,
			    m->rope_beta_fast, m->rope_beta_slow, m->rope_attention, (long long)m->rope_truncate);
}

static struct tensor *rope(struct hd_plan *p, struct tensor *x, int64_t l)
{
	const struct hd_model *m = &p->model;
	int own = is_windowed(m, l) && m->rope_theta_window > 0; /* its own theta, which is not scaled */
	int64_t turned = (int64_t)(m->rotary_fraction * (double)m->head_dim);
	const char *part = turned < m->head_dim ? hd_plan_text(p, " rotary=%lld", (long long)turned) : "";

	return hd_op1(p, "rope", &x, 1, "theta=%.17g%s%s", own ? m->rope_theta_window : m->rope_theta, part,
		      own || !m->rope_scaling ? "" : scaling_attr(p));
}

static const char *attention_attr(struct hd_plan *p, int64_t l)
{
	const struct hd_model *m = &p->model;
	const char *attr = "causal=1";

	if (m->query_scale > 0 && m->query_scale != (double)m->head_dim)
		attr = hd_plan_text(p, "%s scale=%.17g", attr, 1 / hd_sqrt(m->query_scale));
	if (hd_decoder_window(m, l))
		attr = hd_plan_text(p, "%s window=%lld", attr, (long long)m->window);
	if (m->attention_softcap > 0)
		attr = hd_plan_text(p, "%s softcap=%.17g", attr, m->attention_softcap);
	return attr;
}

static struct tensor *self_attention(struct hd_plan *p, struct tensor *x, int64_t l, double out)
{
	static const char *const kv = "batch,seq,kv_heads,head_dim", *const q = "batch,seq,heads,head_dim";
	const struct hd_model *m = &p->model;
	const char *b = m->qkv_bias ? "heads,head_dim" : NULL, *kb = m->qkv_bias ? "kv_heads,head_dim" : NULL;
	struct tensor *in[3];

	in[0] = linear(p, x, l, "self_attn.q_proj", "heads,head_dim,embed", q, b, m->init_std);
	in[0] = rope(p, norm_qk(p, in[0], l, 0), l);
	in[1] = linear(p, x, l, "self_attn.k_proj", "kv_heads,head_dim,embed", kv, kb, m->init_std);
	in[1] = rope(p, norm_qk(p, in[1], l, 1), l);
	in[2] = linear(p, x, l, "self_attn.v_proj", "kv_heads,head_dim,embed", kv, kb, m->init_std);
	x = hd_op1(p, "attention", in, 3, "%s", attention_attr(p, l));
	return linear(p, x, l, "self_attn.o_proj", "embed,heads,head_dim", narrow, m->out_bias ? "embed" : NULL, out);
}

/* -- feed-forward layer -------------------------------------------------------------------------------------------- */
static struct tensor *gated(struct hd_plan *p, struct tensor *gate, struct tensor *up)
{
	struct tensor *in[2] = { gate, up };

	if (p->model.activation == HD_ACTIVATION_SILU)
		return hd_op1(p, "swiglu", in, 2, "%s", "");
	return hd_op1(p, "swiglu", in, 2, "gelu=%lld", (long long)p->model.activation);
}

static struct tensor *feed_forward(struct hd_plan *p, struct tensor *x, int64_t l, double out)
{
	const struct hd_model *m = &p->model;
	const char *wide = "batch,seq,mlp", *b = m->mlp_bias ? "mlp" : NULL;
	struct tensor *gate = linear(p, x, l, "mlp.gate_proj", "mlp,embed", wide, b, m->init_std);
	struct tensor *up = linear(p, x, l, "mlp.up_proj", "mlp,embed", wide, b, m->init_std);

	return linear(p, gated(p, gate, up), l, "mlp.down_proj", "embed,mlp", narrow, b ? "embed" : NULL, out);
}

/* Experts that every token uses in addition to those it chose: one feed-forward layer, as wide as all of them
 * together. */
static struct tensor *shared(struct hd_plan *p, struct tensor *x, int64_t l, const char *stem, double out)
{
	static const char *const wide = "batch,seq,shared_mlp", *const in = "shared_mlp,embed";
	double std = p->model.init_std;
	struct tensor *gate =
		linear(p, x, l, hd_plan_text(p, "%s.shared_experts.gate_proj", stem), in, wide, NULL, std);
	struct tensor *up = linear(p, x, l, hd_plan_text(p, "%s.shared_experts.up_proj", stem), in, wide, NULL, std);

	return linear(p, gated(p, gate, up), l, hd_plan_text(p, "%s.shared_experts.down_proj", stem),
		      "embed,shared_mlp", narrow, NULL, out);
}

static struct tensor *residual(struct hd_plan *p, struct tensor *x, struct tensor *y)
{
	struct tensor *in[] = { x, y };

	return hd_op1(p, "add", in, 2, "%s", "");
}

/* Returns the bias that a sigmoid router adds to its scores when it chooses, or NULL for other routers. It is in no
 * gate, so it has no gradient, and it does not decay. */
static struct tensor *router_bias(struct hd_plan *p, int64_t l, const char *stem)
{
	struct tensor *b = NULL;

	if (p->model.router == HD_ROUTER_SIGMOID)
		b = hd_param(p, hd_plan_text(p, "layers.%lld.%s.gate.e_score_correction_bias", (long long)l, stem),
			     "router_expert", HD_INIT_ZERO, 0);
	if (b) {
		b->decay = 0;
		b->no_gradient = 1;
	}
	return b;
}

static struct tensor *experts(struct hd_plan *p, struct tensor *x, int64_t l, double out)
{
	const struct hd_expert_names *n = hd_expert_names_of(p->model.family);
	const char *mlp = p->model.expert_mlp ? "expert_mlp" : "mlp";
	const char *wide = hd_plan_text(p, "expert,batch,slot,%s", mlp), *in = hd_plan_text(p, "expert,%s,embed", mlp);
	double std = p->model.init_std;
	struct hd_experts e;
	struct tensor *gate, *up, *y, *of_all;

	y = hd_experts_begin(p, x, weight(p, l, hd_plan_text(p, "%s.gate", n->stem), "router_expert,embed", std),
			     router_bias(p, l, n->stem), l, &e);
	gate = linear(p, y, l, hd_plan_text(p, "%s.experts.%s", n->stem, n->gate), in, wide, NULL, std);
	up = linear(p, y, l, hd_plan_text(p, "%s.experts.%s", n->stem, n->up), in, wide, NULL, std);
	y = linear(p, gated(p, gate, up), l, hd_plan_text(p, "%s.experts.%s", n->stem, n->down),
		   hd_plan_text(p, "expert,embed,%s", mlp), "expert,batch,slot,embed", NULL, out);
	y = hd_experts_end(p, y, &e);
	if (!p->model.shared_experts)
		return y;
	of_all = shared(p, x, l, n->stem, out);
	return residual(p, y, of_all);
}

/* -- the model ----------------------------------------------------------------------------------------------------- */
/* The names of norms are those of Llama, Gemma and OLMo. In the first, post_attention_layernorm is the norm before the
 * feed-forward layer; in the others, it is the one after attention. */
static struct tensor *layer(struct hd_plan *p, struct tensor *x, int64_t l)
{
	const struct hd_model *m = &p->model;
	double out = m->init_std / hd_sqrt(2.0 * (double)m->layers);
	int before = m->norm != HD_NORM_AFTER, after = m->norm != HD_NORM_BEFORE;
	struct tensor *h = self_attention(p, layer_norm(p, x, l, "input_layernorm", before), l, out);

	x = residual(p, x, layer_norm(p, h, l, "post_attention_layernorm", after));
	h = layer_norm(p, x, l, after ? "pre_feedforward_layernorm" : "post_attention_layernorm", before);
	h = (hd_experts_in(m, l) ? experts : feed_forward)(p, h, l, out);
	return residual(p, x, layer_norm(p, h, l, "post_feedforward_layernorm", after));
}

static struct tensor *scaled(struct hd_plan *p, struct tensor *x)
{
	double by = p->model.embed_scale == 0 ? hd_sqrt((double)p->model.embed) : p->model.embed_scale;

	return by == 1 ? x : hd_map_new(p, &x, 1, hd_plan_text(p, "a * %.17g", by));
}

struct tensor *hd_decoder_hidden(struct hd_plan *p, struct tensor *ids)
{
	struct tensor *in[2] = { ids, NULL }, *x;

	hd_block_begin(p, "embed");
	in[1] = hd_param(p, "embed_tokens.weight", "vocab,embed", HD_INIT_NORMAL, p->model.init_std);
	x = scaled(p, hd_op1(p, "embedding", in, 2, "%s", ""));
	for (int64_t l = 0; l < p->model.layers; l++) {
		hd_block_begin(p, hd_plan_text(p, "layer %lld", (long long)l));
		x = layer(p, x, l);
	}
	hd_block_begin(p, "head");
	return norm(p, x, "norm", "embed");
}

struct tensor *hd_decoder_logits(struct hd_plan *p, struct tensor *h)
{
	const struct hd_model *m = &p->model;
	struct tensor *w = m->tie ? hd_param_find(p, "embed_tokens.weight")
				  : hd_param(p, "lm_head.weight", "vocab,embed", HD_INIT_NORMAL, m->init_std);

	h = h ? hd_einsum(p, h, w, h->v.ndim == 2 ? "batch,vocab" : "batch,seq,vocab") : NULL;
	if (!h || m->logit_softcap <= 0)
		return h;
	return hd_map_new(p, &h, 1, hd_plan_text(p, "%.17g * tanh(a / %.17g)", m->logit_softcap, m->logit_softcap));
}

int64_t hd_decoder_mlp(int64_t embed)
{
	return (8 * embed / 3 + 63) / 64 * 64;
}
