/* SPDX-License-Identifier: Apache-2.0
 * heddle SUBCOMMAND ...: the table of subcommands, and the call of the one that the command line names.
 */
#include <config.h>
#include "engine/cli/verbs.h"
#include "engine/elastic/elastic.h"
#include "engine/keys/keys.h"
#include "engine/kit/kit.h"
#include "engine/measure/measure.h"
#include "engine/names/unknown.h"
#include "engine/process/launch.h"
#include <heddle/version.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* -- the table of verbs -------------------------------------------------------------------------------- */
static const struct hd_flag run_flags[] = {
	{ "ranks", "MIN:MAX", "the fewest and the most ranks; or N, no fewer" },
	{ "hostfile", "FILE", "hostfile for mpirun; hosts that do not answer are left out" },
	{ "probe", "COMMAND", "runs COMMAND HOST true: does the host answer? (default: ssh)" },
	{ "mpirun", "OPTIONS", "more options of mpirun" },
	{ "restarts", "N", "restarts without a new checkpoint in between (default 3)" },
};
static const struct hd_flag check_flags[] = {
	{ "ranks", "N", "number of ranks (default: the product of the sizes)" },
	{ "ranks-per-node", "N",
	  "ranks of a node of the cluster, on which some collectives depend (default: unknown)" },
	{ "memory", "SIZE", "fail if a rank needs more memory" },
	{ "all", NULL, "print a line for each stage, in MB, also for equal ones" },
	{ "json", NULL, "one line of JSON" },
	{ "against-one-rank", NULL,
	  "train a few steps of SGD in the layout and on one rank, and compare every gradient" },
};
static const struct hd_flag explain_flags[] = {
	{ "ranks", "N", "number of ranks (default: the product of the sizes)" },
	{ "ranks-per-node", "N",
	  "ranks of a node of the cluster, on which some collectives depend (default: unknown)" },
	{ "rank", "R", "the rank whose program is printed (default 0)" },
	{ "schedule", NULL, "draw the units of each stage" },
	{ "times", "FILE", "with --schedule: draw units with their times in a trace (log.trace)" },
	{ "all", NULL, "print a line for each layer, in bytes, also for equal ones" },
	{ "nodes", NULL, "list every node: operands, placements of its results, the section that created it" },
	{ "after", "PASS", "print the graph of all ranks after that pass instead; list: the names of the passes" },
	{ "saved", NULL, "print the activations saved for backward instead, block by block" },
	{ "kept", NULL, "the former name of --saved" },
	{ "work", NULL, "print FLOPs of matmuls and bytes of operands of a step instead, by unit and kernel" },
	{ "json", NULL, "as JSON" },
};
static const struct hd_flag plan_flags[] = {
	{ "ranks", "N", "number of ranks (default: the product of the sizes)" },
	{ "machine", "FILE|NAME", "INI of the machine, or the name of an installed one" },
	{ "style", "FILE|NAME", "predict heddle (default), or another framework with the same layout" },
	{ "memory", "SIZE", "memory of a rank, e.g. 80G (default: from the machine's file)" },
	{ "slow", "RANK=FACTOR", "let that rank take FACTOR times as long to compute: how long do the others wait?" },
	{ "search", NULL, "find the fastest layout of the model on that many ranks" },
	{ "top", "K", "with --search: print the K best (default 10)" },
	{ "out", "FILE", "with --search: write the best as an INI" },
	{ "tries", "N",
	  "with --search: plan N layouts completely, and then some near the best (default 200, fewer for large "
	  "models; 0: no limit)" },
	{ "html", "FILE", "draw the plan, and the result of --search, as a page for a browser" },
	{ "times", "FILE", "with --html: a trace (log.trace), whose last step is drawn below the planned one" },
	{ "space", "FILE|NAME", "with --search: INI of the search space, or the name of an installed one" },
	{ "json", NULL, "one line of JSON" },
};
static const struct hd_flag machine_flags[] = {
	{ "out", "FILE", "the machine file to write (default: standard output)" },
	{ "quick", NULL, "measure fewer and smaller sizes, in seconds; for a trial" },
};
static const struct hd_flag bench_flags[] = {
	{ "steps", "K", "timed steps (default 5)" },
	{ "generate", NULL,
	  "time generation instead: a prompt, then tokens, compared with the limit that reading the weights sets" },
	{ "batch", "N", "with --generate: texts generated together (default 1)" },
	{ "json", NULL, "one line of JSON" },
	{ "products", NULL, "also time the matmuls of the step alone, a lower bound for the step" },
	{ "bound", NULL, "also time each of these matmuls with the best implementation and layout known here" },
	{ "profile", NULL, "then print where the time goes: each kind of kernel, its rates, and the possible gain" },
};
static const struct hd_flag eval_flags[] = {
	{ "data", "FILE", "data to evaluate on" },
	{ "choices", "FILE", "questions: lines {\"prompt\", \"choices\": [...], \"answer\": 0}; prints the accuracy" },
	{ "tokenizer", "DIR", "tokenizer of the text, if the checkpoint has none; byte: bytes" },
	{ "no-special-tokens", NULL,
	  "with --choices: leave out the special tokens that the tokenizer puts before a text" },
	{ "json", NULL, "one line of JSON" },
};
static const struct hd_flag generate_flags[] = {
	{ "prompt", "TEXT", "the text to continue (default: a line break)" },
	{ "prompts", "FILE", "many texts to continue, one a line" },
	{ "tokens", "N", "tokens to generate (default 200)" },
	{ "temperature", "T", "0: always the likeliest token (default 0.8)" },
	{ "top-k", "K", "sample from the K likeliest tokens (default 0: all)" },
	{ "top-p", "P", "sample from the likeliest tokens with a total probability of P (default 1: all)" },
	{ "seed", "S", "seed of the sampling (default 1)" },
	{ "ids", NULL, "prompt and text are ids, separated by blanks" },
	{ "tokenizer", "DIR", "tokenizer, if the checkpoint has none; byte: bytes" },
	{ "no-special-tokens", NULL, "leave out the special tokens that the tokenizer puts before a text" },
	{ "ignore-eos", NULL, "continue after the model's end-of-text token" },
	{ "no-cache", NULL, "compute the whole context again for each token" },
	{ "logits", NULL, "print the logits of the next token instead, as a line of JSON" },
};
static const struct hd_flag data_flags[] = { { "step", "K", "number of the step, from 1" },
					     { "json", NULL, "one line of JSON" } };
static const struct hd_flag tokenize_flags[] = {
	{ "tokenizer", "DIR", "tokenizer.json, or its directory" },
	{ "out", "PREFIX", "write PREFIX.bin and PREFIX.idx" },
	{ "field", "NAME", "JSONL field with the text (default text)" },
	{ "prepend-bos", "YES", "yes: put the beginning-of-text token before each document (default no)", "yes no" },
	{ "append-eos", "YES", "yes: put the end-of-text token after each document (default no)", "yes no" },
	{ "ids", "FILE", "print the ids of a text instead" },
	{ "text", "FILE", "print the text of ids instead" },
};
static const struct hd_flag report_flags[] = { { "out", "FILE", "the page (default: standard output)" } };
static const struct hd_flag plugins_flags[] = { { "json", NULL, "as JSON" } };

static const struct hd_flag keys_flags[] = {
	{ "json", NULL, "one line of JSON" },
	{ "man", NULL, "the manual page heddle.ini(5)" },
};

static const struct hd_flag conform_flags[] = {
	{ "only", "TEXT", "run only checks with TEXT in their names" },
	{ "layouts", "N", "random layouts for each family of models (default 12)" },
	{ "seed", "S", "seed of the random layouts (default 1)" },
	{ "no-runs", NULL, "leave out the check that needs mpirun: resuming in another layout" },
	{ "limit", "S", "seconds of processor time, or of sleep, that one check may take (default 20)" },
	{ "from", "K", "number of the first random layout (default 0)" },
	{ "json", NULL, "one line of JSON" },
};

static const struct hd_flag new_plugin_flags[] = {
	{ "kind", "KIND", "sharding, sync, schedule, op, lowering or optimizer",
	  "sharding sync schedule op lowering optimizer" },
};

#define FLAGS(f) f, (int)HD_LEN(f)
const struct hd_verb hd_verbs[] = {
	{ "train", "CONF", "train a model", NULL, 0, hd_verb_train, 0 },
	{ "run", "CONF", "train, and continue with the remaining ranks when some are lost", FLAGS(run_flags),
	  hd_verb_run, 1 },
	{ "check", "CONF", "check a layout without running it, and print it", FLAGS(check_flags), hd_verb_check, 1 },
	{ "explain", "CONF", "print every collective with its bytes and its reason", FLAGS(explain_flags),
	  hd_verb_explain, 1 },
	{ "plan", "CONF", "predict the time of a step on a machine from its description", FLAGS(plan_flags),
	  hd_verb_plan, 1 },
	{ "machine", NULL, "measure this machine, and write the file that plan reads", FLAGS(machine_flags),
	  hd_verb_machine, 0 },
	{ "bench", "CONF", "time steps on synthetic tokens, drawn by Zipf's law with exponent 1", FLAGS(bench_flags),
	  hd_verb_bench, 0 },
	{ "eval", "CKPT", "compute the loss of a checkpoint on a file", FLAGS(eval_flags), hd_verb_eval, 0 },
	{ "generate", "CKPT", "generate text from a checkpoint", FLAGS(generate_flags), hd_verb_generate, 0 },
	{ "data", "CONF", "print the token ids of a step", FLAGS(data_flags), hd_verb_data, 1 },
	{ "tokenize", "[FILE...]", "write files of token ids from text, JSONL, .gz, .zst, directories",
	  FLAGS(tokenize_flags), hd_verb_tokenize, 1 },
	{ "report", "METRICS[,METRICS...]", "write loss curves and other metrics of runs as an HTML page",
	  FLAGS(report_flags), hd_verb_report, 1 },
	{ "conform", "PLUGIN [CONF]", "test a plugin: does it train like one rank, in many layouts?",
	  FLAGS(conform_flags), hd_verb_conform, 1 },
	{ "new-plugin", "NAME", "write a folder with a plugin that builds, runs and passes its test",
	  FLAGS(new_plugin_flags), hd_verb_new_plugin, 1 },
	{ "keys", "[SECTION]", "list the keys of the INI, of the engine and of all plugins", FLAGS(keys_flags),
	  hd_verb_keys, 1 },
	{ "completion", "SHELL", "print a completion script for bash or zsh", NULL, 0, hd_verb_completion, 1 },
	{ "plugins", "[NAME]", "list plugins, or one plugin's options", FLAGS(plugins_flags), hd_verb_plugins, 1 },
};
const int hd_nverbs = (int)HD_LEN(hd_verbs);

/* Takes the numbers of standard files that the caller has closed (>&-). Otherwise the next file that is opened, such as
 * one of metrics, gets such a number, and with it all that is printed. As before, reads and writes of these fail. */
static void keep_standard_numbers(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0)
			return; /* without /dev/null there is nothing else to take it */
}

int main(int argc, char **argv)
{
	struct hd_cli cli;
	struct hd_err err = { 0 };
	double started = hd_seconds();
	int rc = 0;

	keep_standard_numbers();
	/* A write beyond ulimit -f then fails as on a full disk. Processes that this one starts inherit the setting. */
	signal(SIGXFSZ, SIG_IGN);
	hd_log_init(hd_launch_first(), HD_LOG_INFO);
	hd_unknown_look_in(hd_key_owners);
	if (hd_cli_parse(argc, argv, hd_verbs, hd_nverbs, &cli, &err) < 0) {
		if (hd_launch_first())
			hd_log(HD_LOG_ERROR, "%s", err.text);
		rc = 2;
	} else if (!hd_launch_first() && (!cli.verb || cli.help || cli.verb->alone)) {
		rc = 0; /* one process prints it for all */
	} else if (cli.version) {
		printf("heddle %s, plugin ABI %d.%d\n", PACKAGE_VERSION, HD_ABI_MAJOR, HD_ABI_MINOR);
	} else if (!cli.verb) {
		hd_cli_usage(stdout, hd_verbs, hd_nverbs);
	} else if (cli.help) {
		hd_cli_help(stdout, cli.verb);
	} else {
		cli.started = started;
		rc = cli.verb->run(&cli);
	}
	hd_cli_release(&cli);
	return hd_cli_end(rc);
}
