/* SPDX-License-Identifier: Apache-2.0
 * heddle plan: what a step takes on a machine that need not be at hand.
 */
#include <config.h>
#include "engine/cli/verbs.h"
#include "engine/command/command.h"
#include "engine/file/installed.h"
#include "engine/train/metrics.h"
#include "engine/predict/simulate.h"
#include <stdio.h>
#include <stdlib.h>

static const char *const links[HD_LINKS] = { "node", "network" };

struct totals { /* of the stage of which there is most */
	double compute, exposed, hidden, idle, memory, sent[HD_LINKS], bubble;
};

static double most(double a, double b)
{
	return a > b ? a : b;
}

static struct totals total(const struct hd_prediction *r)
{
	struct totals t = { .memory = 0 };

	for (int64_t i = 0; i < r->nstages; i++) {
		const struct hd_stage_price *s = &r->stages[i];

		if (s->compute + s->exposed > t.compute + t.exposed) { /* the busiest decides the step */
			t.compute = s->compute, t.exposed = s->exposed;
			t.hidden = most(s->collective - s->exposed, 0);
		}
		t.memory = most(t.memory, s->memory);
		for (int k = 0; k < HD_LINKS; k++)
			t.sent[k] = most(t.sent[k], s->sent[k]);
	}
	t.idle = r->step - t.compute - t.exposed;
	if (t.idle < 1e-9 * r->step) /* rounding */
		t.idle = 0;
	t.bubble = t.compute + t.exposed > 0 ? t.idle / (t.compute + t.exposed) : 0;
	return t;
}

static double peak(const struct hd_plan *p, const struct hd_machine *m)
{
	return (double)p->ranks * (p->compute_dtype == HD_DTYPE_BF16 ? m->flops_bf16 : m->flops_fp32);
}

static double tokens(const struct hd_plan *p)
{
	return (double)(p->micros * p->batch * p->model.seq);
}

static void print_text(const struct hd_plan *p, const struct hd_machine *m, const struct hd_prediction *r)
{
	struct totals t = total(r);
	double flops = hd_plan_flops(p) / r->step;

	hd_mesh_print(p);
	printf("on %s, %lld rank%s a node, %s\n", m->name, (long long)m->ranks_per_node,
	       m->ranks_per_node == 1 ? "" : "s", p->compute_dtype == HD_DTYPE_BF16 ? "bf16" : "fp32");
	printf("step %.6g s: %.6g tokens/s, %.4g TFLOP/s a rank, %.1f%% of the peak\n", r->step, tokens(p) / r->step,
	       flops / (double)p->ranks / 1e12, 100 * flops / peak(p, m));
	printf("the busiest stage: kernels %.6g s, collectives %.6g s exposed and %.6g s hidden, idle %.6g s (bubble %.3f)\n",
	       t.compute, t.exposed, t.hidden, t.idle, t.bubble);
	printf("memory of a rank: %.1f GB%s\n", t.memory / 1e9,
	       m->memory <= 0         ? ""
	       : t.memory > m->memory ? ", more than it has"
				      : ", fits");
	printf("sent in a step by the rank that sends most: within its node %.1f MB, to other nodes %.1f MB\n",
	       t.sent[HD_LINK_NODE] / 1e6, t.sent[HD_LINK_NETWORK] / 1e6);
	for (int64_t i = 0; r->nstages > 1 && i < r->nstages; i++) {
		const struct hd_stage_price *s = &r->stages[i];

		printf("stage %lld: kernels %.6g s, collectives %.6g s exposed, idle %.6g s; %.1f GB\n", (long long)i,
		       s->compute, s->exposed, s->idle, s->memory / 1e9);
	}
}

static json_t *stages_json(const struct hd_prediction *r)
{
	json_t *all = json_array();

	for (int64_t i = 0; i < r->nstages; i++) {
		const struct hd_stage_price *s = &r->stages[i];

		json_array_append_new(all,
				      json_pack("{s:I, s:I, s:I, s:o, s:o, s:o}", "rank", (json_int_t)s->rank,
						"parameters", (json_int_t)s->parameters, "memory_bytes",
						(json_int_t)s->memory, "compute_seconds", hd_json_number(s->compute),
						"comm_exposed_seconds", hd_json_number(s->exposed), "idle_seconds",
						hd_json_number(s->idle)));
	}
	return all;
}

static void print_json(const struct hd_plan *p, const struct hd_machine *m, const struct hd_prediction *r)
{
	struct totals t = total(r);
	double flops = hd_plan_flops(p) / r->step;
	json_t *sent = json_object(), *o;
	char *line;

	for (int k = 0; k < HD_LINKS; k++)
		json_object_set_new(sent, links[k], json_integer((json_int_t)t.sent[k]));
	o = json_pack("{s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o}", "machine", m->name, "ranks",
		      (json_int_t)p->ranks, "step_seconds", hd_json_number(r->step), "tokens_per_second",
		      hd_json_number(tokens(p) / r->step), "flops_per_second", hd_json_number(flops), "peak_share",
		      hd_json_number(flops / peak(p, m)), "compute_seconds", hd_json_number(t.compute),
		      "comm_exposed_seconds", hd_json_number(t.exposed), "comm_hidden_seconds",
		      hd_json_number(t.hidden), "bubble", hd_json_number(t.bubble), "planned_peak_bytes",
		      (json_int_t)t.memory, "bytes", sent, "stages", stages_json(r));
	line = hd_json_line(o);
	puts(line);
	free(line);
}

static int no_machine(struct hd_err *err)
{
	char *names = hd_installed_names("machines");

	hd_err_set(err, HD_EINVAL, "plan: --machine FILE must be given, or the name of one that comes with heddle: %s",
		   names);
	free(names);
	return err->code;
}

static int plan(struct hd_cli *c, struct hd_conf **conf, struct hd_plan **p, struct hd_err *err)
{
	const char *path = hd_cli_str(c, "machine", NULL);
	struct hd_machine m;
	struct hd_prediction r = { .step = 0 };

	if (!path)
		return no_machine(err);
	HD_TRY(hd_machine_read(path, &m, err));
	HD_TRY(hd_cli_plan(c, m.ranks_per_node, conf, p, err));
	if (hd_simulate(*p, &m, &r, err) >= 0)
		(hd_cli_has(c, "json") ? print_json : print_text)(*p, &m, &r);
	hd_price_release(&r);
	return err->code;
}

int hd_verb_plan(struct hd_cli *c)
{
	return hd_cli_run(c, plan);
}
