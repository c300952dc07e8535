/* SPDX-License-Identifier: Apache-2.0
 * Finds where a file of transformers stores the decoder's parameters. By default each is a tensor with the same name
 * after "model.". In a fused family, q, k and v are rows of one tensor, and so are gate and up. A plugin's family may
 * have other names.
 */
#include <config.h>
#include "engine/models/decoder/decoder.h"
#include "engine/models/decoder/experts.h"
#include "engine/models/decoder/knobs.h"
#include <stdio.h>
#include <string.h>

struct stored_at {
	int64_t rows, cols, first, all; /* cols 0: one dim; first: its row in the fused tensor; all: rows of that */
	int split;
	const char *in; /* the name of the fused tensor, or NULL */
};

static int projection(const struct hd_model *m, const char *name, struct stored_at *at)
{
	static const char *const names[] = { "q_proj.", "k_proj.", "v_proj." };
	int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;

	for (int i = 0; i < 3; i++)
		if (!strncmp(name, names[i], 7)) {
			*at = (struct stored_at){ .rows = i ? kv : q,
						  .cols = m->embed,
						  .first = i ? q + (i - 1) * kv : 0,
						  .all = q + 2 * kv,
						  .split = 2,
						  .in = "qkv_proj." };
			return 1;
		}
	return 0;
}

static int in_attention(const struct hd_model *m, const char *name, struct stored_at *at)
{
	if (projection(m, name, at))
		return 1;
	if (!strncmp(name, "o_proj.", 7))
		*at = (struct stored_at){ .rows = m->embed, .cols = m->heads * m->head_dim, .split = 1 };
	else if (m->qk_norm == 1)
		*at = (struct stored_at){ .rows = m->head_dim, .split = 1 };
	else
		*at = (struct stored_at){ .rows = (*name == 'q' ? m->heads : m->kv_heads) * m->head_dim, .split = 2 };
	return 1;
}

static int feed_forward(const struct hd_model *m, const char *name, struct stored_at *at)
{
	int up = !strncmp(name, "up_proj.", 8);

	if (!strncmp(name, "down_proj.", 10))
		*at = (struct stored_at){ .rows = m->embed, .cols = m->mlp, .split = 1 };
	else
		*at = (struct stored_at){ .rows = m->mlp,
					  .cols = m->embed,
					  .first = up ? m->mlp : 0,
					  .all = 2 * m->mlp,
					  .split = 1,
					  .in = "gate_up_proj." };
	return 1;
}

/* Describes a parameter of a layer by its name after "layers.N."; returns 0 if there is no such parameter. */
static int in_layer(const struct hd_model *m, const char *rest, struct stored_at *at)
{
	if (!strncmp(rest, "self_attn.", 10))
		return in_attention(m, rest + 10, at);
	if (!strncmp(rest, "mlp.", 4))
		return feed_forward(m, rest + 4, at);
	*at = (struct stored_at){ .rows = m->embed, .split = 1 };
	return strstr(rest, "layernorm") != NULL;
}

/* Finds a parameter of a layer of experts by its name after the stem: the router's, an expert's or a shared
 * expert's. */
static int in_experts(const struct hd_model *m, const char *name, const char *rest, struct hd_hf_region *r)
{
	const struct hd_expert_names *n = hd_expert_names_of(m->family);
	int64_t mlp = m->expert_mlp ? m->expert_mlp : m->mlp;
	int gate = !strncmp(rest, "gate.", 5), shared = !strncmp(rest, "shared_experts.", 15), down;
	char stem[64], last[40];

	snprintf(last, sizeof(last), ".%s.", shared ? "down_proj" : n->down);
	down = strstr(rest, last) != NULL;
	mlp = shared ? mlp * m->shared_experts : mlp;
	snprintf(stem, sizeof(stem), "model.%.*s", (int)(rest - 1 - name), name);
	if (gate && !strstr(rest, ".weight")) {
		r->ndim = 1;
		r->split = 1;
		r->shape[0] = m->experts;
		snprintf(r->name, sizeof(r->name), "model.%s", name);
		return HD_OK;
	}
	return hd_experts_region(stem, rest, gate ? m->experts : down ? m->embed : mlp, down ? mlp : m->embed, r);
}

/* Returns the part of the name after "STEM." if it belongs to a layer of experts, else NULL. */
static const char *after_stem(const struct hd_model *m, const char *rest)
{
	static const char *const parts[] = { "gate.", "experts.", "shared_experts." };
	const char *stem = hd_expert_names_of(m->family)->stem;
	size_t n = strlen(stem);

	if (strncmp(rest, stem, n) || rest[n] != '.')
		return NULL;
	for (size_t i = 0; i < HD_LEN(parts); i++)
		if (!strncmp(rest + n + 1, parts[i], strlen(parts[i])))
			return rest + n + 1;
	return NULL;
}

/* Sets r to the region that `at` describes, for a parameter with this name and this part of it after "layers.N.". */
static void set_region(const struct hd_model *m, const char *name, const char *rest, const struct stored_at *at,
		       struct hd_hf_region *r)
{
	int several = m->family->fused && at->in, bias = strstr(rest, ".bias") != NULL;
	const char *dot = strchr(rest, '.'), *last = strrchr(name, '.');

	r->ndim = at->cols && !bias ? 2 : 1;
	r->split = at->split;
	r->shape[0] = several ? at->all : at->rows;
	r->shape[1] = at->cols;
	r->at[0] = several ? at->first : 0;
	if (several)
		snprintf(r->name, sizeof(r->name), "model.%.*s%s%s", (int)(dot + 1 - name), name, at->in, last + 1);
	else
		snprintf(r->name, sizeof(r->name), "model.%s", name);
}

static int by_llama(const struct hd_model *m, const char *name, struct hd_hf_region *r)
{
	struct stored_at at = { .rows = m->embed, .split = 1 };
	long long l;
	int n = 0;

	memset(r, 0, sizeof(*r));
	if (sscanf(name, "layers.%lld.%n", &l, &n) == 1 && n) {
		const char *in = after_stem(m, name + n);

		if (in)
			return in_experts(m, name, in, r);
		if (!in_layer(m, name + n, &at))
			return HD_EBUG;
	} else if (strcmp(name, "norm.weight")) {
		at = (struct stored_at){ .rows = m->vocab, .cols = m->embed, .split = 1 };
	}
	set_region(m, name, name + n, &at, r);
	if (!strcmp(name, "lm_head.weight"))
		snprintf(r->name, sizeof(r->name), "%s", name);
	return HD_OK;
}

/* -- names of a plugin's family ------------------------------------------------------------------------------------ */
static const struct {
	const char *name;
	/* Weights with the same number have the same input, and may be rows of one tensor; 0: not. The inputs are
	 * those of attention (1), the feed-forward layer (2) and shared experts (3). */
	int joins;
} weights[] = {
	{ "model.embed_tokens", 0 },
	{ "lm_head", 0 },
	{ "model.norm", 0 },
	{ "model.layers.*.input_layernorm", 0 },
	{ "model.layers.*.post_attention_layernorm", 0 },
	{ "model.layers.*.pre_feedforward_layernorm", 0 },
	{ "model.layers.*.post_feedforward_layernorm", 0 },
	{ "model.layers.*.self_attn.q_proj", 1 },
	{ "model.layers.*.self_attn.k_proj", 1 },
	{ "model.layers.*.self_attn.v_proj", 1 },
	{ "model.layers.*.self_attn.o_proj", 0 },
	{ "model.layers.*.self_attn.q_norm", 0 },
	{ "model.layers.*.self_attn.k_norm", 0 },
	{ "model.layers.*.mlp.gate_proj", 2 },
	{ "model.layers.*.mlp.up_proj", 2 },
	{ "model.layers.*.mlp.down_proj", 0 },
	{ "model.layers.*.mlp.gate", 0 },
	{ "model.layers.*.mlp.experts.*.gate_proj", 0 },
	{ "model.layers.*.mlp.experts.*.up_proj", 0 },
	{ "model.layers.*.mlp.experts.*.down_proj", 0 },
	{ "model.layers.*.mlp.shared_experts.gate_proj", 3 },
	{ "model.layers.*.mlp.shared_experts.up_proj", 3 },
	{ "model.layers.*.mlp.shared_experts.down_proj", 0 },
};

int hd_decoder_weight(const char *ours)
{
	for (size_t i = 0; i < HD_LEN(weights); i++)
		if (!strcmp(weights[i].name, ours))
			return 1;
	return 0;
}

int hd_decoder_joins(const char *ours)
{
	for (size_t i = 0; i < HD_LEN(weights); i++)
		if (!strcmp(weights[i].name, ours))
			return weights[i].joins;
	return 0;
}

/* What the stars of a pattern match: the number of a layer, then that of an expert (which may be a star itself). */
struct starred {
	char at[2][24];
	int n;
};

/* Whether the n bytes of a name match the pattern; *s gets what the stars match. */
static int matches(const char *pattern, const char *name, size_t n, struct starred *s)
{
	const char *end = name + n;

	for (s->n = 0; *pattern; pattern++) {
		size_t digits = strspn(name, "0123456789*");

		if (*pattern != '*') {
			if (name == end || *pattern != *name++)
				return 0;
			continue;
		}
		if (!digits || s->n == 2)
			return 0;
		snprintf(s->at[s->n++], sizeof(s->at[0]), "%.*s", (int)digits, name);
		name += digits;
	}
	return name == end;
}

/* Writes the pattern to out, with its stars replaced, and appends last. */
static void fill(const char *pattern, const struct starred *s, const char *last, char *out, size_t room)
{
	int n = 0;
	size_t at = 0;

	for (; *pattern && at + 1 < room; pattern++)
		at += *pattern == '*' ? (size_t)snprintf(out + at, room - at, "%s", s->at[n++])
				      : (size_t)snprintf(out + at, room - at, "%c", *pattern);
	snprintf(out + at, room - at, "%s", last);
}

/* Sets the rows of a weight in its tensor. Weights with the same name are rows of one tensor, in the order of the
 * list. */
static int join(const struct hd_model *m, const struct hd_family_name *one, const struct starred *s, const char *last,
		struct hd_hf_region *r)
{
	int64_t before = 0, all = 0;

	for (const struct hd_family_name *n = m->family->names; n->ours; n++) {
		struct hd_hf_region other;
		char name[128];

		if (strcmp(n->theirs, one->theirs))
			continue;
		fill(n->ours + strlen("model."), s, last, name, sizeof(name));
		HD_TRY(by_llama(m, name, &other));
		before = n == one ? all : before;
		all += other.shape[0];
	}
	r->at[0] = before;
	r->shape[0] = all;
	return HD_OK;
}

/* Whether the name is that of a norm that the layers have, as model.norm determines; 0 for other weights. */
static int has_norm(const struct hd_model *m, const char *ours)
{
	if (!strcmp(ours, "model.layers.*.input_layernorm"))
		return m->norm != HD_NORM_AFTER;
	if (!strcmp(ours, "model.layers.*.pre_feedforward_layernorm"))
		return m->norm == HD_NORM_BOTH;
	if (!strcmp(ours, "model.layers.*.post_feedforward_layernorm"))
		return m->norm != HD_NORM_BEFORE;
	return !strcmp(ours, "model.layers.*.post_attention_layernorm");
}

/* Whether a different norm of this model already has the name. Then the family's class does not have this norm, which
 * keeps its own name. */
static int is_taken(const struct hd_model *m, const struct hd_family_name *one)
{
	if (!strcmp(one->ours, one->theirs) || !has_norm(m, one->theirs))
		return 0;
	for (const struct hd_family_name *n = m->family->names; n->ours; n++)
		if (!strcmp(n->ours, one->theirs))
			return 0;
	return 1;
}

int hd_decoder_hf(const struct hd_model *m, const char *name, struct hd_hf_region *r)
{
	char was[sizeof(r->name)], *last;

	HD_TRY(by_llama(m, name, r));
	snprintf(was, sizeof(was), "%s", r->name);
	last = strrchr(was, '.');
	for (const struct hd_family_name *n = m->family->names; n && n->ours; n++) {
		struct starred s;

		if (!last || !matches(n->ours, was, (size_t)(last - was), &s) || is_taken(m, n))
			continue;
		fill(n->theirs, &s, last, r->name, sizeof(r->name));
		return hd_decoder_joins(n->ours) ? join(m, n, &s, last, r) : HD_OK;
	}
	return HD_OK;
}
