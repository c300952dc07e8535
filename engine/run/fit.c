/* SPDX-License-Identifier: Apache-2.0
 * Checks that the memory of all ranks of a host fits into the host. It runs before a page is touched, because the
 * kernel would let the ranks fill the memory and then kill one.
 */
#include <config.h>
#include "engine/human/human.h"
#include "engine/comm/world/mpi.h"
#include "engine/process/host_limits.h"
#include "engine/run/job.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct memory_wish { /* what one rank of this host needs */
	double need, left;
	char who[80];
};

/* Returns whether an option already has the value that saves most memory. */
static int exhausted(const struct hd_section *s, const struct hd_option *o)
{
	const char *top = o->range ? strstr(o->range, "..") : NULL;

	if (o->type == HD_OPT_BOOL)
		return hd_section_int(s, o->key) != 0;
	return top && top[2] && !strcmp(hd_section_str(s, o->key), top + 2);
}

/* Appends the options that would save memory. A plugin says so in an option's help
 * text; nothing else here knows what plugins can do. */
static void advise_options(const struct inst *in, char **text)
{
	const struct hd_strategy_ops *ops = in->plugin->ops;

	for (uint32_t i = 0; i < ops->noptions; i++) {
		const struct hd_option *o = (const void *)((const char *)ops->options + (size_t)i * ops->option_size);

		if (o->help && strstr(o->help, "less memory") && !exhausted(in->section, o))
			hd_append(text, "%s%s.%s (%s)", *text ? ", " : "", in->name, o->key, o->help);
	}
}

char *hd_memory_advice(const struct hd_plan *p)
{
	int trains = p->train;
	char *text = NULL;

	if (trains && p->micro_batch > 1)
		hd_append(&text, "a smaller train.micro_batch (it is %lld)", (long long)p->micro_batch);
	if (trains && p->config.recompute != HD_RECOMPUTE_FULL)
		hd_append(&text, "%strain.recompute = full", text ? ", " : "");
	if (trains && hd_rows_case(p) == HD_ROWS_ANY)
		hd_append(&text, "%strain.expert_rows = 2", text ? ", " : "");
	for (int i = 0; trains && i < p->ninst; i++)
		advise_options(&p->inst[i], &text);
	hd_append(&text, "%smore hosts, in a layout that shards the model", text ? ", " : "");
	return text;
}

static int refuse(const struct hd_job *j, const struct memory_wish *all, struct hd_err *err)
{
	char *keys = hd_memory_advice(j->program[HD_JOB_TRAIN] ? j->plan[HD_JOB_TRAIN] : hd_job_any_plan(j)),
	     *ranks = hd_strdup(""), *more = hd_strdup("");

	if (j->world.local_size > 1)
		hd_append(&ranks, " by the %d ranks of this host", j->world.local_size);
	if (j->snapshot_bytes)
		hd_append(&more, ", a copy for checkpoint.async %s", hd_human_bytes((double)j->snapshot_bytes).text);
	if (j->scratch_bytes)
		hd_append(&more, ", scratch of kernels %s", hd_human_bytes((double)j->scratch_bytes).text);
	hd_err_set(
		err, HD_ENOMEM,
		"%s of memory would be needed%s, and %s has %s left (rank %d: parameters and state %s, within a step "
		"%s%s). This helps: %s. heddle check prints the memory of a layout",
		hd_human_bytes(all->need).text, ranks, all->who, hd_human_bytes(all->left).text, j->world.rank,
		hd_human_bytes((double)j->persistent_bytes).text, hd_human_bytes((double)j->transient_bytes).text, more,
		keys);
	free(keys);
	free(ranks);
	free(more);
	return err->code;
}

int hd_job_fits(struct hd_job *j, double bytes, struct hd_err *err)
{
	int n = j->world.local_size;
	struct memory_wish mine = { .need = bytes }, *of = hd_alloc((size_t)n * sizeof(*of)), all;
	struct hd_memory_room left = hd_memory_left("");

	mine.left = left.bytes;
	snprintf(mine.who, sizeof(mine.who), "%s", left.who);
	hd_host_gather(of, &mine, sizeof(mine));
	all = of[0];
	for (int i = 1; i < n; i++) {
		double need = all.need + of[i].need;

		all = of[i].left < all.left ? of[i] : all;
		all.need = need;
	}
	free(of);
	if (all.need > all.left)
		refuse(j, &all, err);
	return hd_comm_agree(err);
}
