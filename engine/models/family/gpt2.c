/* SPDX-License-Identifier: Apache-2.0
 * GPT-2 (Radford et al. 2019): learned positions, layer norm before each sublayer, GELU (tanh form), biases, tied head.
 * Weights are [in, out], as transformers' GPT2LMHeadModel stores them. q, k and v are three parameters here and three
 * column ranges of c_attn there.
 */
#include <config.h>
#include "engine/models/decoder/experts.h"
#include "engine/models/family/families.h"
#include <stdio.h>
#include <string.h>

static struct tensor *weight(struct hd_plan *p, int64_t l, const char *name, const char *spec, double std)
{
	return hd_param(p, hd_plan_text(p, "h.%lld.%s.weight", (long long)l, name), spec, HD_INIT_NORMAL, std);
}

/* x W + b */
static struct tensor *linear(struct hd_plan *p, struct tensor *x, int64_t l, const char *name, const char *w,
			     const char *out, const char *b, double std)
{
	struct tensor *y[2];

	y[0] = hd_einsum(p, x, weight(p, l, name, w, std), out);
	y[1] = hd_param(p, hd_plan_text(p, "h.%lld.%s.bias", (long long)l, name), b, HD_INIT_ZERO, 0);
	y[1]->decay = 0;
	return hd_op1(p, "add", y, 2, "%s", "");
}

static struct tensor *norm(struct hd_plan *p, struct tensor *x, const char *name)
{
	struct tensor *in[3] = { x, hd_param(p, hd_plan_text(p, "%s.weight", name), "embed", HD_INIT_ONE, 0),
				 hd_param(p, hd_plan_text(p, "%s.bias", name), "embed", HD_INIT_ZERO, 0) };

	return hd_op1(p, "norm", in, 3, "eps=%.17g", p->model.norm_eps);
}

static struct tensor *drop(struct hd_plan *p, struct tensor *x, int64_t site)
{
	if (p->model.dropout <= 0)
		return x;
	return hd_op1(p, "dropout", &x, 1, "p=%.17g site=%lld", p->model.dropout, (long long)site);
}

static struct tensor *residual(struct hd_plan *p, struct tensor *x, struct tensor *y)
{
	struct tensor *in[] = { x, y };

	return hd_op1(p, "add", in, 2, "%s", "");
}

/* Experts have no biases, as in GShard (2006.16668) and its successors. */
static struct tensor *experts(struct hd_plan *p, struct tensor *x, int64_t l, double std, double out)
{
	static const char *const wide = "expert,batch,slot,mlp", *const narrow = "expert,batch,slot,embed";
	struct hd_experts e;
	struct tensor *h = hd_experts_begin(p, x, weight(p, l, "moe.router", "embed,router_expert", std), NULL, l, &e);

	h = hd_einsum(p, h, weight(p, l, "moe.experts.fc", "expert,embed,mlp", std), wide);
	h = hd_op1(p, "gelu", &h, 1, "%s", "");
	h = hd_einsum(p, h, weight(p, l, "moe.experts.proj", "expert,mlp,embed", out), narrow);
	return hd_experts_end(p, h, &e);
}

static struct tensor *feed_forward(struct hd_plan *p, struct tensor *x, int64_t l, double std, double out)
{
	struct tensor *h = linear(p, x, l, "mlp.fc", "embed,mlp", "batch,seq,mlp", "mlp", std);

	h = hd_op1(p, "gelu", &h, 1, "%s", "");
	return linear(p, h, l, "mlp.proj", "mlp,embed", "batch,seq,embed", "embed", out);
}

static struct tensor *layer(struct hd_plan *p, struct tensor *x, int64_t l)
{
	const struct hd_model *m = &p->model;
	double std = m->init_std, out = std / hd_sqrt(2.0 * (double)m->layers);
	struct tensor *h = norm(p, x, hd_plan_text(p, "h.%lld.ln_1", (long long)l)), *qkv[3];
	static const char *const names[] = { "attn.q", "attn.k", "attn.v" };

	for (int i = 0; i < 3; i++)
		qkv[i] = linear(p, h, l, names[i], "embed,heads,head_dim", "batch,seq,heads,head_dim", "heads,head_dim",
				std);
	h = hd_op1(p, "attention", qkv, 3, "causal=1");
	h = linear(p, h, l, "attn.proj", "heads,head_dim,embed", "batch,seq,embed", "embed", out);
	x = residual(p, x, drop(p, h, 2 * l + 1));
	h = norm(p, x, hd_plan_text(p, "h.%lld.ln_2", (long long)l));
	h = (hd_experts_in(m, l) ? experts : feed_forward)(p, h, l, std, out);
	return residual(p, x, drop(p, h, 2 * l + 2));
}

static struct tensor *hidden(struct hd_plan *p, struct tensor *ids)
{
	struct tensor *in[2] = { ids, NULL }, *x;

	hd_block_begin(p, "embed");
	in[1] = hd_param(p, "wte.weight", "vocab,embed", HD_INIT_NORMAL, p->model.init_std);
	in[0] = hd_op1(p, "embedding", in, 2, "%s", "");
	in[1] = hd_param(p, "wpe.weight", "position,embed", HD_INIT_NORMAL, p->model.init_std);
	x = drop(p, hd_op1(p, "position", in, 2, "%s", ""), 0);
	for (int64_t l = 0; l < p->model.layers; l++) {
		hd_block_begin(p, hd_plan_text(p, "layer %lld", (long long)l));
		x = layer(p, x, l);
	}
	hd_block_begin(p, "head");
	return norm(p, x, "ln_f");
}

static struct tensor *logits(struct hd_plan *p, struct tensor *h)
{
	struct tensor *w = p->model.tie
				   ? hd_param_find(p, "wte.weight")
				   : hd_param(p, "lm_head.weight", "vocab,embed", HD_INIT_NORMAL, p->model.init_std);

	return h ? hd_einsum(p, h, w, h->v.ndim == 2 ? "batch,vocab" : "batch,seq,vocab") : NULL;
}

/* -- Hugging Face -------------------------------------------------------------------------------------------------- */
static const struct {
	const char *ours, *theirs;
	int cols, rows_split;
} names[] = {
	{ "attn.q", "attn.c_attn", 0, 1 }, { "attn.k", "attn.c_attn", 1, 1 },
	{ "attn.v", "attn.c_attn", 2, 1 }, { "attn.proj", "attn.c_proj", 0, 2 },
	{ "mlp.fc", "mlp.c_fc", 0, 1 },    { "mlp.proj", "mlp.c_proj", 0, 1 },
	{ "ln_1", "ln_1", 0, 1 },          { "ln_2", "ln_2", 0, 1 },
};

static int layer_region(const struct hd_model *m, long long l, const char *rest, struct hd_hf_region *r)
{
	const int64_t e = m->embed;
	char stem[64];

	snprintf(stem, sizeof(stem), "transformer.h.%lld.moe", l);
	if (!strncmp(rest, "moe.", 4))
		return hd_experts_region(stem, rest + 4, strstr(rest, "proj") ? m->mlp : e,
					 strstr(rest, "router") ? m->experts
					 : strstr(rest, "proj") ? e
								: m->mlp,
					 r);

	for (size_t i = 0; i < HD_LEN(names); i++) {
		size_t n = strlen(names[i].ours);
		int attn = !strncmp(names[i].theirs, "attn.c_attn", 11), fc = !strcmp(names[i].ours, "mlp.fc");

		if (strncmp(rest, names[i].ours, n) || rest[n] != '.')
			continue;
		snprintf(r->name, sizeof(r->name), "transformer.h.%lld.%s%s", l, names[i].theirs, rest + n);
		r->ndim = strcmp(rest + n, ".weight") || !strncmp(rest, "ln", 2) ? 1 : 2;
		r->split = names[i].rows_split;
		r->shape[r->ndim - 1] = attn ? 3 * e : fc ? m->mlp : e;
		r->at[r->ndim - 1] = attn ? names[i].cols * e : 0;
		if (r->ndim == 2)
			r->shape[0] = !strcmp(names[i].ours, "mlp.proj") ? m->mlp : e;
		return HD_OK;
	}
	return HD_EBUG;
}

static int hf(const struct hd_model *m, const char *name, struct hd_hf_region *r)
{
	long long l;
	int n = 0;

	memset(r, 0, sizeof(*r));
	if (sscanf(name, "h.%lld.%n", &l, &n) == 1 && n)
		return layer_region(m, l, name + n, r);
	r->split = 1;
	r->ndim = strncmp(name, "ln_f", 4) ? 2 : 1;
	r->shape[0] = r->ndim == 1 ? m->embed : !strcmp(name, "wpe.weight") ? m->max_seq : m->vocab;
	r->shape[1] = m->embed;
	snprintf(r->name, sizeof(r->name), "%s%s", strcmp(name, "lm_head.weight") ? "transformer." : "", name);
	return HD_OK;
}

static const struct hd_family_key keys[] = {
	{ "n_layer", "layers", NULL, "!", 0 },
	{ "n_embd", "embed", NULL, "!", 0 },
	{ "n_head", "heads", NULL, "!", 0 },
	{ "n_inner", "mlp", NULL, NULL, 0 },
	{ "vocab_size", "vocab", NULL, "!", 0 },
	{ "n_positions", "max_seq", NULL, "!", 0 },
	{ "layer_norm_epsilon", "norm_eps", NULL, "1e-5", 0 },
	{ "initializer_range", "init_std", NULL, NULL, 0 },
	{ "tie_word_embeddings", "tie_embeddings", NULL, "yes", 0 },
	{ "activation_function", NULL, "gelu_new|gelu_pytorch_tanh|gelu_fast", NULL, 0 },
	{ "scale_attn_weights", NULL, "true", NULL, 0 },
	{ "scale_attn_by_inverse_layer_idx", NULL, "false", NULL, 0 },
	{ "reorder_and_upcast_attn", NULL, "false|true", NULL, 0 },
	{ "add_cross_attention", NULL, "false", NULL, 0 },
	{ "resid_pdrop", "dropout", NULL, "-", 0 }, /* not read: dropout may differ from that of the earlier training */
	{ "embd_pdrop", "dropout", NULL, "-", 0 },
	{ "attn_pdrop", NULL, "0", "-", 0 },
	{ "n_ctx", NULL, NULL, NULL, 0 },
	{ "summary_type", NULL, NULL, NULL, 0 },
	{ "summary_use_proj", NULL, NULL, NULL, 0 },
	{ "summary_activation", NULL, NULL, NULL, 0 },
	{ "summary_proj_to_labels", NULL, NULL, NULL, 0 },
	{ "summary_first_dropout", NULL, NULL, NULL, 0 },
	{ NULL, NULL, NULL, NULL, 0 },
};

static const struct hd_family_value defaults[] = { { "tie_embeddings", "yes" }, { NULL, NULL } };

static int64_t mlp(int64_t embed)
{
	return 4 * embed;
}

const struct hd_family hd_family_gpt2 = {
	.name = "gpt2",
	.model_type = "gpt2",
	.class = "GPT2LMHeadModel",
	.dropout = 1,
	.moe_every = 2,
	.mlp = mlp,
	.defaults = defaults,
	.hidden = hidden,
	.logits = logits,
	.hf = hf,
	.keys = keys,
};
