/* SPDX-License-Identifier: Apache-2.0
 * Derives the batch from the rules: the number of replicas, the sequences in a replica's micro-batch, and the
 * micro-batches in a step.
 */
#include <config.h>
#include "engine/plan/plan_impl.h"
#include <stdlib.h>
#include <string.h>

/* Returns the product of the axes that shard the batch: over replicas, or inside one replica's micro-batch.  A rule
 * that applies only if it divides does not affect the batch. */
static int64_t cuts_of_batch(const struct hd_plan *p, int inside)
{
	int64_t n = 1;
	uint32_t seen = 0;

	for (size_t i = 0; i < p->nrules; i++) {
		const struct rule *r = &p->rules[i];

		if (strcmp(r->dim->name, "batch") || r->flags & HD_RULE_KEEP_REPLICATED ||
		    hd_rule_is_conditional(r->flags) || !(r->flags & HD_RULE_INSIDE) != !inside ||
		    seen >> r->axis->id & 1)
			continue;
		seen |= 1u << r->axis->id;
		n *= r->axis->v.n;
	}
	return n;
}

static int fits(const struct hd_ramp *ramp, int64_t n)
{
	return ramp->full % n == 0 && (!ramp->steps || (ramp->start % n == 0 && ramp->step % n == 0));
}

/* Returns the largest micro-batch up to 8 that divides the batch and is a multiple of `unit`, the product of the axes
 * that shard it.  Of a `unit` above 8, only `unit` itself is tried.  If none divides, the micro-batch need not be a
 * multiple.  If that does not help, returns 0, or 1 with a ramp. */
static int64_t default_micro_batch(const struct hd_ramp *ramp, int64_t replicas, int64_t unit)
{
	for (int64_t k = unit > 8 ? unit : 8 / unit * unit; k >= unit; k -= unit)
		if (fits(ramp, k * replicas))
			return k;
	for (int64_t k = 8; k >= 1; k--)
		if (fits(ramp, k * replicas))
			return k;
	return ramp->steps ? 1 : 0;
}

/* Checks that the micro-batches divide every size of the ramp. */
static int check_ramp(struct hd_plan *p, const struct hd_step_batch *b)
{
	const struct hd_ramp *ramp = &p->config.batch;

	for (int64_t k = 0; k < ramp->steps; k++)
		if (hd_ramp_size(ramp, k) % (b->micro_batch * b->replicas))
			return hd_train_fail(
				p->conf, &p->config, "global_batch_ramp", p->err, HD_EDIVIDE,
				"step %lld of the ramp, %lld sequences, is not a multiple of micro_batch %lld x %lld "
				"replicas",
				(long long)k + 1, (long long)hd_ramp_size(ramp, k), (long long)b->micro_batch,
				(long long)b->replicas);
	return HD_OK;
}

/* Each micro-batch has its own units and messages, which are all planned: each needs 20 KB or more. */
#define MOST_MICROS 100000

static int check_micros(struct hd_plan *p, const struct hd_step_batch *b)
{
	int64_t full = p->config.batch.full, micros = full / (b->micro_batch * b->replicas);

	if (micros <= MOST_MICROS)
		return HD_OK;
	return hd_train_fail(
		p->conf, &p->config, "global_batch", p->err, HD_ENOTSUP,
		"%lld sequences are %lld micro-batches of %lld on each of %lld replicas, but a step has at most %d",
		(long long)full, (long long)micros, (long long)b->micro_batch, (long long)b->replicas, MOST_MICROS);
}

/* Without training, no step is divided among the replicas: global_batch only suggests a micro-batch. It may be that of
 * a training in another layout, or nobody's, for a model without an INI. */
static void batch_of_forward(const struct hd_plan *p, struct hd_step_batch *b, int64_t inside)
{
	int64_t each = (p->options->rows + b->replicas - 1) / b->replicas;

	if (p->options->generate)
		b->micro_batch = each > inside ? (each + inside - 1) / inside * inside : inside;
	else if (!b->micro_batch || (!p->config.micro_batch && b->micro_batch % inside))
		b->micro_batch = inside;
}

int hd_batch_of_rules(struct hd_plan *p, struct hd_step_batch *b)
{
	const struct hd_ramp *ramp = &p->config.batch;
	int64_t inside = cuts_of_batch(p, 1);

	b->replicas = cuts_of_batch(p, 0);
	b->micro_batch = p->config.micro_batch ? p->config.micro_batch : default_micro_batch(ramp, b->replicas, inside);
	if (!p->options->train) {
		batch_of_forward(p, b, inside);
		return HD_OK;
	}
	if (!b->micro_batch || ramp->full % (b->micro_batch * b->replicas))
		return hd_train_fail(p->conf, &p->config, "global_batch", p->err, HD_EDIVIDE,
				     "%lld is not a multiple of micro_batch %lld x %lld replicas",
				     (long long)ramp->full, (long long)(b->micro_batch ? b->micro_batch : 1),
				     (long long)b->replicas);
	HD_TRY(check_micros(p, b));
	return check_ramp(p, b);
}

/* Returns whether a micro-batch may have k sequences, and there are then so many micro-batches that no stage is idle.
 * in_rounds: their number must also be a multiple of the stages. */
static int fills_stages(const struct hd_plan *p, int64_t k, int in_rounds)
{
	int64_t stages = p->stages->v.n, inside = cuts_of_batch(p, 1),
		micros = p->config.batch.full / (k * p->replicas);

	return k % inside == 0 && fits(&p->config.batch, k * p->replicas) && micros >= stages &&
	       (!in_rounds || micros % stages == 0);
}

char *hd_plan_batch_hint(const struct hd_plan *p)
{
	int64_t stages = p->stages ? p->stages->v.n : 1, k = 0;

	if (!p->train || p->micros >= stages)
		return NULL;
	/* Some schedules need complete rounds of the stages. */
	for (int in_rounds = 1; in_rounds >= 0 && !k; in_rounds--)
		for (k = p->micro_batch - 1; k > 0 && !fills_stages(p, k, in_rounds); k--)
			;
	if (k > 0)
		return hd_format(
			"hint: %lld micro-batch%s for %lld stages: some are idle; train.micro_batch = %lld makes %lld",
			(long long)p->micros, hd_plural(p->micros, "es"), (long long)stages, (long long)k,
			(long long)(p->config.batch.full / (k * p->replicas)));
	return hd_format("hint: %lld micro-batch%s for %lld stages: some are idle; train.global_batch = %lld with "
			 "train.micro_batch = %lld makes %lld",
			 (long long)p->micros, hd_plural(p->micros, "es"), (long long)stages,
			 (long long)(stages * p->batch), (long long)p->micro_batch, (long long)stages);
}

/* Checks that the units of every size of the ramp can be ordered. */
static int schedule_ramp(struct hd_plan *p, const struct hd_ramp *r)
{
	for (int64_t k = 0; k < r->steps; k++) {
		p->micros = hd_ramp_size(r, k) / p->batch;
		if (hd_pass_schedule(p) < 0) {
			const char *why = hd_plan_text(p, "%s", p->err->text);

			p->err->code = 0; /* reported below, with the step */
			return hd_train_fail(p->conf, &p->config, "global_batch_ramp", p->err, HD_EDIVIDE,
					     "step %lld of the ramp, %lld sequences: %s", (long long)k + 1,
					     (long long)hd_ramp_size(r, k), why);
		}
		hd_schedule_report_release(&p->timing);
	}
	return HD_OK;
}

/* Checks that the rules ask for the batch for which the graph was built. */
static int check_again(struct hd_plan *p)
{
	struct hd_step_batch b;

	HD_TRY(hd_batch_of_rules(p, &b));
	if (b.replicas == p->replicas && b.micro_batch == p->micro_batch)
		return HD_OK;
	return hd_plan_fail(
		p, HD_EBUG,
		"the rules of a strategy depend on the batch, or differ from one call to the next. They first gave "
		"%lld replicas of %lld sequences, but in a graph of that batch %lld of %lld",
		(long long)p->replicas, (long long)p->micro_batch, (long long)b.replicas, (long long)b.micro_batch);
}

/* Returns how many micro-batches a program computes. An evaluation has two for each stage, so that the stages work on
 * different ones at the same time. Generation cannot: each token needs the one before. */
static int64_t micros_of_program(const struct hd_plan *p)
{
	int64_t global = p->options->global_batch ? p->options->global_batch : p->config.batch.full,
		stages = p->stages ? p->stages->v.n : 1;

	if (p->options->generate)
		return 1;
	if (p->options->micros)
		return p->options->micros * hd_micros_at_once(p);
	if (p->train)
		return global / p->batch;
	return stages > 1 ? 2 * stages : 1;
}

int hd_plan_batch(struct hd_plan *p)
{
	HD_TRY(check_again(p));
	if (p->train)
		HD_TRY(schedule_ramp(p, &p->config.batch));
	p->micros = micros_of_program(p);
	D(hd_dim_get(p, "batch", 0))->padded = p->batch; /* each member has complete sequences */
	return HD_OK;
}
