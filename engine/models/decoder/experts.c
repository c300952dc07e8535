/* SPDX-License-Identifier: Apache-2.0
 * Builds layers of experts as nodes of the graph, and computes their metrics.
 *
 * The router chooses along `router_expert`, and the experts are placed along `expert`. Both dims have the same size. A
 * rule that shards `expert` shards the experts' weights and products, but not the choice. Where dispatch may not shard
 * it, the batch is sharded instead, which causes the two movements of each direction (engine/ops/experts.c).
 */
#include <config.h>
#include "engine/models/decoder/experts.h"
#include "engine/models/decoder/knobs.h"
#include <stdio.h>
#include <string.h>

const struct hd_expert_names *hd_expert_names_of(const struct hd_family *f)
{
	static const struct hd_expert_names mixtral = { "block_sparse_moe", "w1", "w3", "w2" };

	return f->expert_names ? f->expert_names : &mixtral;
}

int hd_experts_in(const struct hd_model *m, int64_t l)
{
	return m->experts && l >= m->dense_layers && l % m->moe_every == m->moe_every - 1;
}

int64_t hd_model_capacity(const struct hd_model *m)
{
	double capacity = m->capacity_factor * (double)m->group_tokens / (double)m->experts;

	if (!(m->capacity_factor > 0) || capacity >= (double)m->group_tokens)
		return m->group_tokens;
	return (int64_t)capacity;
}

/* Return the number of tokens that share an expert's capacity, and the capacity. Without a limit an expert can take
 * every token of a sample. */
static int64_t group_of(const struct hd_model *m)
{
	return m->capacity_factor > 0 ? m->group_tokens : m->step_seq;
}
static int64_t capacity_of(const struct hd_model *m)
{
	return m->capacity_factor > 0 ? hd_model_capacity(m) : m->step_seq;
}

/* Returns an expert's slots per sample: the capacity of all groups in it, or its share of a larger group's, rounded
 * up. */
static int64_t slots_of(const struct hd_model *m)
{
	int64_t group = group_of(m), capacity = capacity_of(m);

	return group <= m->step_seq ? capacity * (m->step_seq / group)
				    : (capacity + group / m->step_seq - 1) / (group / m->step_seq);
}

void hd_experts_dims(struct hd_plan *p)
{
	const struct hd_model *m = &p->model;

	if (!m->experts)
		return;
	hd_dim_get(p, "expert", m->experts);
	hd_dim_get(p, "router_expert", m->experts);
	hd_dim_get(p, "topk", m->experts_per_token);
	if (m->expert_mlp)
		hd_dim_get(p, "expert_mlp", m->expert_mlp);
	if (m->shared_experts)
		hd_dim_get(p, "shared_mlp", m->shared_experts * (m->expert_mlp ? m->expert_mlp : m->mlp));
	hd_dim_get(p, "slot", slots_of(m));
	hd_dim_get(p, "router_stat", m->experts + 3);
}

/* Returns the attributes that describe how the router chooses. */
static const char *router_attr(struct hd_plan *p)
{
	const struct hd_model *m = &p->model;
	const char *scale = m->gate_scale == 1 ? "" : hd_plan_text(p, " scale=%.17g", m->gate_scale);

	if (m->router != HD_ROUTER_SIGMOID)
		return scale;
	return hd_plan_text(p, " sigmoid=1 groups=%lld best_groups=%lld%s", (long long)m->router_groups,
			    (long long)m->router_best_groups, scale);
}

struct tensor *hd_experts_begin(struct hd_plan *p, struct tensor *x, struct tensor *router, struct tensor *bias,
				int64_t site, struct hd_experts *e)
{
	const struct hd_model *m = &p->model;
	struct tensor *chosen[] = { x, router },
		      *in[3] = { hd_op1(p, "einsum", chosen, 2, "out=batch,seq,router_expert fp32=1"), bias };
	int rows = !(m->capacity_factor > 0);
	struct node *n =
		in[0] ? hd_node_make(p, "route", in, bias ? 2 : 1,
				     "aux_group=%lld group=%lld capacity=%lld first_choice_aux=%d normalize=%d "
				     "random=%d site=%lld counts=%d aux=%.17g z=%.17g%s",
				     (long long)m->group_tokens, (long long)group_of(m), (long long)capacity_of(m),
				     m->router == HD_ROUTER_GSHARD, (int)m->normalize_gates, m->second_random,
				     (long long)site, rows, m->aux_loss, m->z_loss, router_attr(p))
		      : NULL;

	memset(e, 0, sizeof(*e));
	if (!n)
		return NULL;
	e->gates = n->outs[0];
	e->slots = n->outs[1];
	if (p->train) {
		p->moe_stats = hd_grow(p->moe_stats, p->nmoe_stats, &p->cap_moe_stats, sizeof(*p->moe_stats));
		p->moe_stats[p->nmoe_stats++] = n->outs[2];
	}
	in[0] = x, in[1] = e->slots, in[2] = rows ? n->outs[3] : NULL;
	return hd_op1(p, "dispatch", in, 2 + (uint32_t)rows, "group=%lld capacity=%lld%s", (long long)group_of(m),
		      (long long)capacity_of(m), rows ? " rows=1" : "");
}

struct tensor *hd_experts_end(struct hd_plan *p, struct tensor *y, const struct hd_experts *e)
{
	struct tensor *in[] = { y, e->slots, e->gates };

	return hd_op1(p, "combine", in, 3, "group=%lld capacity=%lld gates=1", (long long)group_of(&p->model),
		      (long long)capacity_of(&p->model));
}

int hd_experts_check(struct hd_plan *p)
{
	int64_t group = group_of(&p->model), seq = p->model.step_seq, local;

	for (struct node *n = p->first; n; n = n->next) {
		if (n->is->role != OP_ROLE_ROUTE)
			continue;
		group = group > p->model.group_tokens ? group : p->model.group_tokens;
		local = n->ins[0]->local[0];
		if (group > seq && local * seq % group)
			return hd_section_fail(
				p->conf, hd_conf_section(p->conf, NULL, "model"), "group_tokens", p->err, HD_EDIVIDE,
				"groups of %lld tokens, but a rank has %lld of a micro-batch (%lld x %lld): a group "
				"must be on one rank",
				(long long)group, (long long)(local * seq), (long long)local, (long long)seq);
	}
	return HD_OK;
}

/* -- numbers ------------------------------------------------------------------------------------------------------- */
static double sum_at(const void *sums, uint32_t dtype, int64_t i)
{
	return dtype == HD_DTYPE_F64 ? ((const double *)sums)[i] : ((const float *)sums)[i];
}

struct hd_expert_numbers hd_experts_numbers(const struct hd_model *m, const void *sums, uint32_t dtype, double tokens)
{
	double most = 0, all = 0;

	for (int64_t e = 0; e < m->experts; e++) {
		double n = sum_at(sums, dtype, 3 + e);

		most = n > most ? n : most;
		all += n;
	}
	return (struct hd_expert_numbers){ sum_at(sums, dtype, 0) / tokens,
					   sum_at(sums, dtype, 2) / (tokens * (double)m->experts_per_token),
					   all > 0 ? most * (double)m->experts / all : 0 };
}

/* -- files --------------------------------------------------------------------------------------------------------- */
int hd_experts_region(const char *stem, const char *name, int64_t rows, int64_t cols, struct hd_hf_region *r)
{
	const char *rest = strncmp(name, "experts.", 8) ? NULL : name + 8;

	r->ndim = 2;
	r->split = 1;
	r->shape[0] = rows;
	r->shape[1] = cols;
	r->each = rest != NULL;
	if (rest)
		snprintf(r->name, sizeof(r->name), "%s.experts.*.%s", stem, rest);
	else
		snprintf(r->name, sizeof(r->name), "%s.%s", stem, name);
	return HD_OK;
}

json_t *hd_experts_config(const struct hd_model *m, json_t *o)
{
	if (!o || !m->experts)
		return o;
	json_object_set_new(o, "num_local_experts", json_integer(m->experts));
	json_object_set_new(o, "num_experts_per_tok", json_integer(m->experts_per_token));
	json_object_set_new(o, "moe_every", json_integer(m->moe_every));
	json_object_set_new(o, "router_aux_loss_coef", json_real(m->aux_loss));
	return o;
}
