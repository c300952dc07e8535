/* SPDX-License-Identifier: Apache-2.0
 * heddle VERB ...: the command line and how a process begins and ends.
 */
#include <config.h>
#include "engine/verbs.h"
#include "engine/affinity.h"
#include "engine/launch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double started;
static int the_argc;
static char **the_argv;

double hd_started(void) { return started; }

int hd_cli_conf(const struct hd_cli *c, struct hd_conf **conf, struct hd_err *err)
{
	if (!c->positional)
		return hd_err_set(err, HD_EINVAL, "%s: which INI file?", c->verb->name);
	HD_TRY(hd_conf_read(c->positional, c->sets, c->nsets, conf, err));
	HD_TRY(hd_model_load_conf(*conf, err));
	return hd_plan_sections(*conf, err);
}

/* A number of [train] before the section has been checked: threads decide how the process starts. */
static int wanted_threads(struct hd_conf *conf)
{
	struct hd_section *t = hd_conf_section(conf, NULL, "train");
	struct hd_err ignored = { 0 };

	if (hd_section_check(conf, t, &hd_train_keys, 1, &ignored) < 0)
		return 0;
	return (int)hd_section_int(t, "threads");
}

int hd_start(struct hd_job *j, struct hd_conf *conf, struct hd_err *err)
{
	j->started = started;
	j->threads = hd_affinity_setup(the_argc, the_argv, !err->code ? wanted_threads(conf) : 1);
	if (hd_comm_open(&j->world, err) < 0 && !j->world.size)
		return err->code;
	hd_log_init(j->world.rank == 0, HD_INFO);
	if (hd_affinity_note())
		hd_log(HD_INFO, "%s", hd_affinity_note());
	hd_comm_watchdog(300, NULL);
	return hd_comm_agree(err);
}

/* Started alone on a layout of several ranks: the command that starts it as it must be. */
static void advise(const struct hd_job *j, const struct hd_err *err)
{
	char *command = hd_launch_command(j->needs, j->save_seconds, the_argc, the_argv);

	hd_log(HD_ERROR, "%s; start it with\n\t%s", err->text, command);
	free(command);
}

int hd_finish(struct hd_job *j, struct hd_err *err)
{
	int single = j->world.size <= 1;

	fflush(stdout);
	if (!err->code) {
		hd_comm_close();
		return 0;
	}
	if (!single && !err->agreed) {		/* the others know nothing of it, and wait: end them */
		if (hd_comm_may_speak())
			hd_log(HD_ERROR, "%s: %s", hd_rank_text(j->world.rank), err->text);
		hd_comm_abort(1);
	}
	if (single && j->needs > 1)
		advise(j, err);
	else if (j->world.rank == 0)
		hd_log(HD_ERROR, "%s", err->text);
	if (j->stopped)
		hd_comm_leave(1);
	if (j->world.size)
		hd_comm_close();
	return 1;
}

/* -- the table of verbs ------------------------------------------------------------------------------------------------------------ */
static const struct hd_flag check_flags[] = {
	{ "ranks", "N", "number of ranks (default: what the sizes say)" },
	{ "memory", "SIZE", "refuse a rank that would need more" },
};
static const struct hd_flag explain_flags[] = {
	{ "ranks", "N", "number of ranks (default: what the sizes say)" },
	{ "rank", "R", "whose program (default 0)" },
	{ "schedule", NULL, "draw the units of each stage" },
	{ "times", "FILE", "of a trace (log.trace): the drawing by measured times of units instead of counts" },
	{ "nodes", NULL, "list every node: operands, placements of its results, whose it is" },
	{ "kept", NULL, "instead: what is kept from forward to backward, block by block" },
	{ "json", NULL, "as JSON" },
};
static const struct hd_flag plan_flags[] = {
	{ "ranks", "N", "number of ranks (default: what the sizes say)" },
	{ "machine", "FILE", "INI of the machine: conf/machines/" },
	{ "json", NULL, "one line of JSON" },
};
static const struct hd_flag bench_flags[] = {
	{ "steps", "K", "timed steps (default 5)" },
	{ "json", NULL, "one line of JSON" },
	{ "products", NULL, "also time the step's matrix products alone: the bound of what a step can reach" },
	{ "profile", NULL, "then one step with the time of each kind of kernel" },
};
static const struct hd_flag eval_flags[] = { { "data", "FILE", "what to evaluate on" }, { "json", NULL, "one line of JSON" } };
static const struct hd_flag generate_flags[] = {
	{ "prompt", "TEXT", "what the text begins with" },
	{ "tokens", "N", "how many more (default 200)" },
	{ "temperature", "T", "0: always the likeliest (default 0.8)" },
	{ "top-k", "K", "draw among the K likeliest (default 0: all)" },
	{ "seed", "S", "of the draws (default 1)" },
	{ "logits", NULL, "instead of text one line of JSON: the logits of the token after the prompt" },
};
static const struct hd_flag data_flags[] = { { "step", "K", "which step, from 1" }, { "json", NULL, "one line of JSON" } };
static const struct hd_flag report_flags[] = { { "out", "FILE", "the page (default: standard output)" } };
static const struct hd_flag plugins_flags[] = { { "json", NULL, "as JSON" } };

#define FLAGS(f) f, (int)HD_LEN(f)
const struct hd_verb hd_verbs[] = {
	{ "train", "CONF", "train a model", NULL, 0, hd_verb_train },
	{ "check", "CONF", "refuse what can be refused; print the layout", FLAGS(check_flags), hd_verb_check, 1 },
	{ "explain", "CONF", "print every collective with its bytes and its reason", FLAGS(explain_flags), hd_verb_explain, 1 },
	{ "plan", "CONF", "predict a step on a machine that need not be at hand", FLAGS(plan_flags), hd_verb_plan, 1 },
	{ "bench", "CONF", "time steps on synthetic tokens", FLAGS(bench_flags), hd_verb_bench },
	{ "eval", "CKPT", "loss of a checkpoint on a file", FLAGS(eval_flags), hd_verb_eval },
	{ "generate", "CKPT", "text from a checkpoint", FLAGS(generate_flags), hd_verb_generate },
	{ "data", "CONF", "print the token ids of a step", FLAGS(data_flags), hd_verb_data, 1 },
	{ "report", "METRICS[,METRICS...]", "loss curves and other numbers of runs, as a page for a browser", FLAGS(report_flags), hd_verb_report, 1 },
	{ "plugins", "[NAME]", "list plugins, or one plugin's options", FLAGS(plugins_flags), hd_verb_plugins, 1 },
};
const int hd_nverbs = (int)HD_LEN(hd_verbs);

int main(int argc, char **argv)
{
	struct hd_cli cli;
	struct hd_err err = { 0 };
	int rc = 0;

	started = hd_seconds();
	the_argc = argc;
	the_argv = argv;
	hd_log_init(hd_launch_first(), HD_INFO);
	if (hd_cli_parse(argc, argv, hd_verbs, hd_nverbs, &cli, &err) < 0) {
		if (hd_launch_first())
			hd_log(HD_ERROR, "%s", err.text);
		rc = 2;
	} else if (!hd_launch_first() && (!cli.verb || cli.help || cli.verb->alone)) {
		rc = 0;			/* one process says it for all */
	} else if (cli.version) {
		printf("heddle %s, plugin ABI %d.%d\n", PACKAGE_VERSION, HD_ABI_MAJOR, HD_ABI_MINOR);
	} else if (!cli.verb) {
		hd_cli_usage(stdout, hd_verbs, hd_nverbs);
	} else if (cli.help) {
		hd_cli_help(stdout, cli.verb);
	} else {
		rc = cli.verb->run(&cli);
	}
	hd_cli_release(&cli);
	return rc;
}
