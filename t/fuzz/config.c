/* SPDX-License-Identifier: Apache-2.0
 * Texts that say what is run: an INI with its overrides, machines, schedules.
 */
#include <config.h>
#include "t/fuzz/fuzz.h"
#include "engine/config/machine.h"
#include "engine/config/output_config.h"
#include "engine/config/train_config.h"
#include "engine/data/data.h"
#include "engine/inprocess/inprocess.h"
#include "engine/models/model.h"
#include "engine/passes/passes.h"
#include "engine/schedule/schedule_check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SETS = 8 };

/* What is kept of a conf in a checkpoint reads as the same conf. */
static void round_trip(const struct hd_conf *c)
{
	char *text = hd_conf_text(c), *again;
	struct hd_conf *copy = NULL;
	struct hd_err err = { 0 };

	if (hd_conf_parse("copy", text, NULL, 0, &copy, &err) < 0) {
		fprintf(stderr, "what hd_conf_text makes cannot be read: %s\n%s\n", err.text, text);
		abort();
	}
	again = hd_conf_text(copy);
	if (strcmp(text, again)) {
		fprintf(stderr, "what hd_conf_text makes is read as another conf\n%s\n---\n%s\n", text, again);
		abort();
	}
	free(text);
	free(again);
	hd_conf_destroy(copy);
}

void hd_fuzz_model(struct hd_conf *c)
{
	struct hd_train_config train;
	struct hd_err err = { 0 };
	struct hd_model m = { 0 };
	int rc = hd_section_check(c, hd_conf_section(c, NULL, "model"), &hd_model_keys, 1, &err);

	if (rc >= 0)
		rc = hd_train_config_read(c, &train, &err);
	if (rc >= 0)
		rc = hd_model_read(c, 0, &m, &err);
	hd_fuzz_judge(rc, &err);
}

static void read_sections(struct hd_conf *c)
{
	static const char *const names[] = { "model", "data", "train", "checkpoint", "log", NULL };
	static const char *const kinds[] = { "strategy", "plugin", NULL };
	struct hd_err err[5] = { { 0 } };
	struct hd_train_config train;
	struct hd_checkpoint_config checkpoint;
	struct hd_log_config log;

	hd_fuzz_judge(hd_conf_known(c, names, kinds, &err[0]), &err[0]);
	hd_fuzz_judge(hd_train_config_read(c, &train, &err[1]), &err[1]);
	hd_fuzz_judge(hd_checkpoint_config_read(c, &checkpoint, &err[2]), &err[2]);
	hd_fuzz_judge(hd_log_config_read(c, &log, &err[3]), &err[3]);
	hd_fuzz_judge(hd_section_check(c, hd_conf_section(c, NULL, "data"), &hd_data_keys, 1, &err[4]), &err[4]);
	hd_fuzz_model(c);
	if (!err[1].code)
		for (int64_t step = 1; step < 4; step++)
			hd_learning_rate(&train, step, step * train.seq, train.steps, train.steps);
}

void hd_fuzz_conf(const uint8_t *data, size_t n)
{
	char *text = hd_alloc(n + 1), *end = memcpy(text, data, n), *next;
	const char *sets[MOST_SETS];
	struct hd_conf *c = NULL;
	struct hd_err err = { 0 };
	int nsets = 0;

	end += n;
	for (next = text + strlen(text) + 1; next < end && nsets < MOST_SETS; next += strlen(next) + 1)
		sets[nsets++] = next;
	hd_fuzz_judge(hd_conf_parse("x.ini", text, sets, nsets, &c, &err), &err);
	if (c) {
		round_trip(c);
		read_sections(c);
	}
	hd_conf_destroy(c);
	free(text);
}

void hd_fuzz_machine(const uint8_t *data, size_t n)
{
	struct hd_err err = { 0 };
	struct hd_machine m;
	int rc = hd_machine_read(hd_fuzz_file("machine.ini", data, n), &m, &err);

	hd_fuzz_judge(rc, &err);
	if (rc >= 0 && !(m.ranks_per_node >= 1 && m.flops_fp32 >= 1 && m.memory >= 0)) {
		fprintf(stderr, "a machine of %lld ranks a node, %g FLOP/s\n", (long long)m.ranks_per_node,
			m.flops_fp32);
		abort();
	}
}

/* -- schedules --------------------------------------------------------------------------------- */
static int open_schedule(struct hd_inprocess **r, struct hd_err *err)
{
	static const char layout[] =
		"[model]\nfamily = gpt2\nlayers = 2\nheads = 2\nembed = 8\nvocab = 11\n[data]\ntrain = none\n"
		"[train]\nseq = 4\nglobal_batch = 3\nmicro_batch = 1\nsteps = 1\noptimizer = sgd\n"
		"[strategy pp]\nplugin = " HD_TEST_BUILD "/plugins/pp/.libs/pp.so\nsize = 2\nschedule = ";
	char *ini = hd_format("%s%s/schedule.csv\n", layout, hd_fuzz_folder());
	int planned = 0, rc = hd_inprocess_open(ini, 0, r, &planned, err);

	free(ini);
	return rc;
}

/* The plan is made with a good file, and anew from time to time, because what is read stays in it. */
static struct hd_plan *planned(void)
{
	static const char good[] = "0,F,0,0\n0,F,0,1\n0,F,0,2\n0,B,0,0\n0,B,0,1\n0,B,0,2\n"
				   "1,F,0,0\n1,F,0,1\n1,F,0,2\n1,B,0,0\n1,B,0,1\n1,B,0,2\n";
	static struct hd_inprocess *r;
	static int left;
	struct hd_err err = { 0 };

	if (left--)
		return r->plan;
	left = 10000;
	hd_inprocess_close(r);
	hd_fuzz_file("schedule.csv", good, strlen(good));
	if (open_schedule(&r, &err) < 0) {
		fprintf(stderr, "a good schedule: %s\n", err.text);
		abort();
	}
	return r->plan;
}

/* In the plan that is there, the pass that reads the file and checks the order. */
static void read_schedule(struct hd_plan *p, const uint8_t *data, size_t n)
{
	struct hd_err err = { 0 };

	hd_fuzz_file("schedule.csv", data, n);
	for (int64_t c = 0; c < p->ncoords; c++) {
		free(p->units[c]);
		p->units[c] = NULL;
	}
	hd_schedule_report_release(&p->timing);
	p->separate_w = 0;
	p->err = &err;
	hd_fuzz_judge(hd_pass_schedule(p), &err);
	p->err = NULL;
}

static void run_schedule(void)
{
	struct hd_inprocess *r = NULL;
	struct hd_err err = { 0 };
	int rc = open_schedule(&r, &err);

	hd_fuzz_judge(rc, &err);
	if (rc >= 0 && hd_inprocess_step(r, &err) < 0) {
		fprintf(stderr, "a schedule that was accepted: %s\n", err.text);
		abort();
	}
	hd_inprocess_close(r);
}

void hd_fuzz_schedule(const uint8_t *data, size_t n)
{
	read_schedule(planned(), data, n);
	if (hd_fuzz_goes_on(1000))
		run_schedule();
}
