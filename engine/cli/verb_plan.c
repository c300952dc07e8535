/* SPDX-License-Identifier: Apache-2.0
 * heddle plan: predicts the time of a step on a machine that need not be available.
 */
#include <config.h>
#include "engine/cli/verbs.h"
#include "engine/command/command.h"
#include "engine/command/picture.h"
#include "engine/file/installed.h"
#include "engine/graph/mesh.h"
#include "engine/human/human.h"
#include "engine/train/metrics.h"
#include "engine/predict/here.h"
#include "engine/predict/simulate.h"
#include "engine/run/job.h"
#include "engine/search/command.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const links[HD_LINKS] = { "node", "network" };

struct totals { /* maxima over the stages, and of memory over servers too; compute, exposed, hidden: of the busiest */
	double compute, exposed, hidden, idle, memory, host, moved[2], sent[HD_LINKS];
	double idle_ratio; /* idle over busy time on this machine; the bubble depends on the schedule alone */
};

static double most(double a, double b)
{
	return a > b ? a : b;
}

static struct totals total(const struct hd_prediction *r)
{
	struct totals t = { .memory = hd_prediction_memory(r) };

	for (int64_t i = 0; i < r->nstages; i++) {
		const struct hd_stage_price *s = &r->stages[i];

		/* The busiest stage determines the step's time. */
		if (s->compute + s->exposed > t.compute + t.exposed) {
			t.compute = s->compute, t.exposed = s->exposed;
			t.hidden = most(s->collective - s->exposed, 0);
		}
		t.host = most(t.host, s->host_memory);
		for (int k = 0; k < 2; k++)
			t.moved[k] = most(t.moved[k], s->moved[k]);
		for (int k = 0; k < HD_LINKS; k++)
			t.sent[k] = most(t.sent[k], s->sent[k]);
	}
	t.idle = r->step - r->host - r->sharing - t.compute - t.exposed;
	if (t.idle < 1e-9 * r->step) /* rounding */
		t.idle = 0;
	t.idle_ratio = t.compute + t.exposed > 0 ? t.idle / (t.compute + t.exposed) : 0;
	return t;
}

static double model_flops(const struct hd_plan *p)
{
	return p->model_flops * (double)p->micros;
}

/* Returns the FLOPs of all ranks, with recomputation and additional computations of the style. */
static double hardware_flops(const struct hd_plan *p, const struct hd_prediction *r)
{
	double flops = hd_plan_flops(p);

	for (int64_t i = 0; i < r->nstages; i++)
		flops += r->stages[i].more_flops * (double)p->ranks / (double)r->nstages;
	return flops;
}

/* Returns 1 if two stages have the same computation: their other times depend only on their position. */
static int alike(const struct hd_stage_price *a, const struct hd_stage_price *b)
{
	return a->parameters == b->parameters &&
	       !strcmp(hd_human_seconds(a->compute).text, hd_human_seconds(b->compute).text);
}

static double seconds_of(const struct hd_stage_price *s, int which)
{
	return which == 0 ? s->compute : which == 1 ? s->exposed : s->idle;
}

/* Prints "7.0 s", or "6.1 s to 7.0 s" for several stages. */
static void print_between(const struct hd_stage_price *s, int64_t n, int which)
{
	double low = seconds_of(s, which), high = low;

	for (int64_t i = 1; i < n; i++) {
		low = seconds_of(&s[i], which) < low ? seconds_of(&s[i], which) : low;
		high = most(high, seconds_of(&s[i], which));
	}
	printf("%s", hd_human_seconds(low).text);
	if (strcmp(hd_human_seconds(low).text, hd_human_seconds(high).text))
		printf(" to %s", hd_human_seconds(high).text);
}

static void print_stages(const struct hd_prediction *r)
{
	for (int64_t i = 0, n; r->nstages > 1 && i < r->nstages; i += n) {
		const struct hd_stage_price *s = &r->stages[i];
		double memory = s->memory;

		for (n = 1; i + n < r->nstages && alike(s, &s[n]); n++)
			memory = most(memory, s[n].memory);
		if (n > 1)
			printf("stages %lld to %lld, each: kernels ", (long long)i, (long long)(i + n - 1));
		else
			printf("stage %lld: kernels ", (long long)i);
		print_between(s, n, 0);
		printf(", collectives ");
		print_between(s, n, 1);
		printf(" exposed, idle ");
		print_between(s, n, 2);
		printf("; %s%s\n", n > 1 ? "at most " : "", hd_human_bytes(memory).text);
	}
}

/* Prints the load of the servers. A server's link carries the pushes of all its workers, and its replies to their
 * pulls. */
static void print_servers(const struct hd_prediction *r)
{
	const struct hd_server_price *s = &r->servers;

	if (!s->n)
		return;
	printf("%lld server rank%s: at most %s (rank %lld), kernels %s, its link %s; ", (long long)s->n,
	       hd_plural(s->n, "s"), hd_human_bytes(s->memory).text, (long long)s->rank,
	       hd_human_seconds(s->compute).text, hd_human_seconds(s->link).text);
	printf("a server sends to its workers %s within its node and %s to other nodes\n",
	       hd_human_bytes(s->sent[HD_LINK_NODE]).text, hd_human_bytes(s->sent[HD_LINK_NETWORK]).text);
}

static void print_slow(const struct hd_machine *m, const struct hd_prediction *r, double alike)
{
	if (m->slow > 0)
		printf("rank %lld takes %.4g times as long to compute: a step takes %s instead of %s, as all ranks "
		       "wait for it\n",
		       (long long)m->slow_rank, m->slow, hd_human_step(r->step).text, hd_human_step(alike).text);
}

static void print_memory(const struct hd_plan *p, const struct hd_machine *m, double bytes)
{
	struct hd_human text[2];
	char *keys;

	if (m->memory <= 0 || bytes <= m->memory) {
		printf("memory of a rank: %s%s\n", hd_human_bytes(bytes).text, m->memory > 0 ? ", fits" : "");
		return;
	}
	keys = hd_memory_advice(p);
	hd_human_two(bytes, m->memory, text);
	printf("memory of a rank: %s, more than its %s. This helps: %s\n", text[0].text, text[1].text, keys);
	free(keys);
}

static void print_text(const struct hd_plan *p, const struct hd_machine *m, const struct hd_prediction *r)
{
	struct totals t = total(r);
	double flops = model_flops(p) / r->step, all = hardware_flops(p, r) / r->step;

	hd_mesh_print(p);
	printf("on %s, %lld rank%s a node, %s\n", m->name, (long long)m->ranks_per_node,
	       hd_plural(m->ranks_per_node, "s"), p->compute_dtype == HD_DTYPE_BF16 ? "bf16" : "fp32");
	printf("step %s: %s tokens/s, %s a rank, %.1f%% of the peak\n", hd_human_step(r->step).text,
	       hd_human_count(hd_plan_tokens(p) / r->step).text, hd_human_rate(flops / (double)p->ranks).text,
	       100 * flops / hd_plan_peak(p, m));
	printf("including recomputation: %s a rank, %.1f%% of the peak; %s in all\n",
	       hd_human_rate(all / (double)p->ranks).text, 100 * all / hd_plan_peak(p, m), hd_human_rate(all).text);
	printf("the busiest stage: kernels %s, collectives %s exposed and %s hidden, idle %s (%.3f of its busy time)\n",
	       hd_human_seconds(t.compute).text, hd_human_seconds(t.exposed).text, hd_human_seconds(t.hidden).text,
	       hd_human_seconds(t.idle).text, t.idle_ratio);
	if (r->sharing > 0)
		printf("ranks share cores: for %s of the step other ranks use the core of a rank\n",
		       hd_human_seconds(r->sharing).text);
	if (r->host > 0)
		printf("the host begins a step and waits for its end: %s\n", hd_human_seconds(r->host).text);
	print_memory(p, m, t.memory);
	hd_memory_case_print(p);
	if (t.host > 0)
		printf("in host memory of a rank: %s; in a step %s are copied there and %s back\n",
		       hd_human_bytes(t.host).text, hd_human_bytes(t.moved[1]).text, hd_human_bytes(t.moved[0]).text);
	printf("sent in a step by the rank that sends most: within its node %s, to other nodes %s\n",
	       hd_human_bytes(t.sent[HD_LINK_NODE]).text, hd_human_bytes(t.sent[HD_LINK_NETWORK]).text);
	print_stages(r);
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

/* alike: seconds of a step without a slow rank */
static json_t *slow_json(const struct hd_machine *m, double alike)
{
	return json_pack("{s:I, s:o, s:o}", "rank", (json_int_t)m->slow_rank, "factor", hd_json_number(m->slow),
			 "step_seconds_without", hd_json_number(alike));
}

static void print_json(const struct hd_plan *p, const struct hd_machine *m, const struct hd_prediction *r, double alike)
{
	struct totals t = total(r);
	double flops = model_flops(p) / r->step, all = hardware_flops(p, r) / r->step;
	json_t *sent = json_object(), *o;
	char *line;

	for (int k = 0; k < HD_LINKS; k++)
		json_object_set_new(sent, links[k], json_integer((json_int_t)t.sent[k]));
	o = json_pack("{s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o}", "machine", m->name, "ranks",
		      (json_int_t)p->ranks, "step_seconds", hd_json_number(r->step), "tokens_per_second",
		      hd_json_number(hd_plan_tokens(p) / r->step), "flops_per_second", hd_json_number(flops),
		      "peak_share", hd_json_number(flops / hd_plan_peak(p, m)), "compute_seconds",
		      hd_json_number(t.compute), "comm_exposed_seconds", hd_json_number(t.exposed),
		      "comm_hidden_seconds", hd_json_number(t.hidden), "bubble", hd_json_number(hd_plan_bubble(p)),
		      "planned_peak_bytes", (json_int_t)t.memory, "bytes", sent);
	json_object_set_new(o, "idle_ratio", hd_json_number(t.idle_ratio));
	json_object_set_new(o, "precision", json_string(p->compute_dtype == HD_DTYPE_BF16 ? "bf16" : "fp32"));
	json_object_set_new(o, "model_flops_per_rank", hd_json_number(flops / (double)p->ranks));
	json_object_set_new(o, "hardware_flops_per_rank", hd_json_number(all / (double)p->ranks));
	json_object_set_new(o, "peak_share_model", hd_json_number(flops / hd_plan_peak(p, m)));
	json_object_set_new(o, "peak_share_hardware", hd_json_number(all / hd_plan_peak(p, m)));
	json_object_set_new(o, "job_flops", hd_json_number(all));
	if (m->memory > 0) {
		json_object_set_new(o, "memory_limit_bytes", json_integer((json_int_t)m->memory));
		json_object_set_new(o, "fits", json_boolean(t.memory <= m->memory));
	}
	if (hd_memory_case(p))
		json_object_set_new(o, "memory_case", json_string(hd_memory_case(p)));
	json_object_set_new(o, "stages", stages_json(r));
	if (m->slow > 0)
		json_object_set_new(o, "slow", slow_json(m, alike));
	if (r->sharing > 0)
		json_object_set_new(o, "sharing_seconds", hd_json_number(r->sharing));
	if (r->host > 0)
		json_object_set_new(o, "host_seconds", hd_json_number(r->host));
	if (t.host > 0)
		json_object_set_new(o, "host",
				    json_pack("{s:I, s:I, s:I}", "memory_bytes", (json_int_t)t.host, "to_host_bytes",
					      (json_int_t)t.moved[1], "to_device_bytes", (json_int_t)t.moved[0]));
	if (r->servers.n)
		json_object_set_new(o, "servers",
				    json_pack("{s:I, s:I, s:I, s:o, s:o, s:I, s:I}", "ranks", (json_int_t)r->servers.n,
					      "rank", (json_int_t)r->servers.rank, "memory_bytes",
					      (json_int_t)r->servers.memory, "compute_seconds",
					      hd_json_number(r->servers.compute), "link_seconds",
					      hd_json_number(r->servers.link), "node",
					      (json_int_t)r->servers.sent[HD_LINK_NODE], "network",
					      (json_int_t)r->servers.sent[HD_LINK_NETWORK]));
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

/* Refuses options that have no meaning without a search. */
static int without_search(const struct hd_cli *c, struct hd_err *err)
{
	static const char *const flags[] = { "top", "out", "space", "tries" };

	for (size_t i = 0; i < HD_LEN(flags); i++)
		if (hd_cli_has(c, flags[i]))
			return hd_err_set(err, HD_EINVAL, "plan: --%s needs --search", flags[i]);
	return HD_OK;
}

static int read_machine(struct hd_cli *c, struct hd_machine *m, struct hd_err *err)
{
	int64_t memory;

	if (!hd_cli_str(c, "machine", NULL))
		return no_machine(err);
	HD_TRY(hd_machine_open(hd_cli_str(c, "machine", NULL), m, err));
	HD_TRY(hd_cli_bytes(c, "memory", (int64_t)m->memory, &memory, err));
	m->memory = (double)memory;
	m->memory_given = hd_cli_has(c, "memory");
	return HD_OK;
}

/* alike: seconds of a step without a slow rank */
static int draw(const struct hd_cli *c, const struct hd_plan *p, const struct hd_machine *m,
		const struct hd_prediction *r, double alike, struct hd_err *err)
{
	struct hd_picture x = { .title = c->positional,
				.plan = p,
				.machine = m,
				.prediction = r,
				.trace = hd_cli_str(c, "times", NULL),
				.style = hd_cli_str(c, "style", NULL),
				.alike = alike };

	return hd_picture_write(&x, hd_cli_str(c, "html", ""), err);
}

/* Reads RANK=FACTOR. *alike: seconds of a step without a slow rank. */
static int read_slow(struct hd_cli *c, struct hd_plan *p, struct hd_machine *m, const struct hd_style *style,
		     double *alike, struct hd_err *err)
{
	const char *text = hd_cli_str(c, "slow", NULL);
	struct hd_prediction r = { .step = 0 };
	char *end, *after;

	if (!text)
		return HD_OK;
	hd_simulate(p, m, style, &r, err);
	*alike = r.step;
	hd_prediction_release(&r);
	HD_TRY(err->code);
	m->slow_rank = strtoll(text, &end, 10);
	m->slow = *end == '=' ? strtod(end + 1, &after) : 0;
	if (end == text || *end != '=' || after == end + 1 || *after || !(m->slow >= 1 && m->slow <= 1e6) ||
	    m->slow_rank < 0 || m->slow_rank >= p->ranks)
		return hd_err_set(
			err, HD_EINVAL,
			"plan: --slow %s is not RANK=FACTOR, with a rank from 0 to %lld and a factor of 1 or more",
			text, (long long)p->ranks - 1);
	return HD_OK;
}

static void warn_of_groups(const struct hd_plan *p, const struct hd_machine *m, const struct hd_prediction *r)
{
	char *note = hd_groups_note(p, m, r);

	if (note)
		hd_log(HD_LOG_WARN, "plan: %s", note);
	free(note);
}

static void note_quick(const struct hd_machine *m)
{
	if (m->rates && m->rates->quick)
		hd_log(HD_LOG_INFO, "plan: %s was measured with --quick, at few and small sizes: for a trial only",
		       m->name);
}

static int plan(struct hd_cli *c, struct hd_conf **conf, struct hd_plan **p, struct hd_err *err)
{
	struct hd_machine m;
	struct hd_style style;
	struct hd_prediction r = { .step = 0 };
	double without = 0;

	if (hd_cli_has(c, "times") && (!hd_cli_has(c, "html") || hd_cli_has(c, "search")))
		return hd_err_set(err, HD_EINVAL, "plan: --times needs --html and cannot be combined with --search");
	if (hd_cli_has(c, "slow") && hd_cli_has(c, "search"))
		return hd_err_set(err, HD_EINVAL,
				  "plan: --search treats all ranks alike, so it cannot be combined with --slow");
	HD_TRY(read_machine(c, &m, err));
	note_quick(&m);
	c->device_memory = !hd_machine_is_host(&m);
	c->gpu_kernels = m.rates && c->device_memory;
	hd_style_read(hd_cli_str(c, "style", NULL), &style, err);
	c->undivided_logits = !err->code && style.undivided_logits;
	c->separate_residual_adds = !err->code && style.separate_residual_adds;
	c->separate_loss_gradient = !err->code && style.loss_twice;
	if (err->code)
		;
	else if (hd_cli_has(c, "search"))
		hd_search_run(c, &m, &style, conf, err);
	else if (without_search(c, err) >= 0 && hd_cli_plan(c, hd_machine_node_size(&m), conf, p, err) >= 0 &&
		 hd_cli_outputs_check(c, *conf, err) >= 0) {
		hd_machine_share(&m, *p);
		hd_warn_of_recompute(*p);
		hd_warn_of_peak(&m, (*p)->compute_dtype);
		r.want_spans = hd_cli_has(c, "html");
		if (read_slow(c, *p, &m, &style, &without, err) >= 0 && hd_simulate(*p, &m, &style, &r, err) >= 0 &&
		    hd_cli_has(c, "html"))
			draw(c, *p, &m, &r, without, err);
		if (!err->code)
			warn_of_groups(*p, &m, &r);
		if (!err->code && hd_cli_has(c, "json"))
			print_json(*p, &m, &r, without);
		else if (!err->code)
			print_text(*p, &m, &r), print_servers(&r), print_slow(&m, &r, without);
	}
	hd_prediction_release(&r);
	hd_machine_close(&m);
	return err->code;
}

int hd_verb_plan(struct hd_cli *c)
{
	return hd_cli_run(c, plan);
}
