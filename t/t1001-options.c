/* SPDX-License-Identifier: Apache-2.0
 * The command line: a flag that is silently ignored changes what a job does.  Error texts are
 * compared whole, because users and scripts read them.
 */
#include <config.h>
#include "engine/command/options.h"
#include "t/lib/tap.h"

static const struct hd_flag check_flags[] = {
	{ "ranks", "N", "plan for N ranks" },
	{ "memory", "SIZE", "refuse a rank that needs more" },
	{ "temperature", "T", "0 is greedy" },
	{ "json", NULL, "as JSON" },
};
static const struct hd_verb verbs[] = {
	{ "check", "CONF", "refuses what can be refused", check_flags, HD_LEN(check_flags), NULL },
	{ "eval", "CKPT", "loss of a checkpoint", check_flags, 1, NULL },
	{ "plugins", "[NAME]", "lists plugins", NULL, 0, NULL },
};

static struct hd_cli cli;
static struct hd_err err;

/* Parses "check x.ini ..."; the error, or "". */
static const char *parse(const char *line)
{
	static char copy[400];
	static char heddle[] = "heddle", *argv[20] = { heddle };
	int argc = 1;
	char *next;

	hd_cli_release(&cli);
	memset(&err, 0, sizeof(err));
	snprintf(copy, sizeof(copy), "%s", line);
	for (next = strtok(copy, " "); next && argc < 20; next = strtok(NULL, " "))
		argv[argc++] = next;
	if (hd_cli_parse(argc, argv, verbs, HD_LEN(verbs), &cli, &err) != err.code)
		return "the code is not that of the text";
	return err.text;
}

static void accepted(void)
{
	int64_t n = 0;
	double t = 0;

	is_str(parse("check --ranks 8 x.ini --set tp.size=4 --memory=2G --set a.b=c=d --json"), "", "everything");
	is_str(cli.verb->name, "check", "verb");
	is_str(cli.positional, "x.ini", "positional");
	ok(cli.nsets == 2 && !strcmp(cli.sets[0], "tp.size=4") && !strcmp(cli.sets[1], "a.b=c=d"), "sets, in order");
	ok(!hd_cli_int(&cli, "ranks", 1, 1 << 20, 1, &n, &err) && n == 8, "an int");
	ok(!hd_cli_bytes(&cli, "memory", 0, &n, &err) && n == 2ll << 30, "a size");
	ok(hd_cli_has(&cli, "json") && !hd_cli_has(&cli, "temperature") && !hd_cli_has(&cli, "none"), "has");
	ok(!hd_cli_num(&cli, "temperature", 0, 9, 0.5, &t, &err) && t == 0.5, "not given");
	is_str(hd_cli_str(&cli, "ranks", "?"), "8", "a string");
	is_str(hd_cli_str(&cli, "none", "?"), "?", "a flag that another verb has");
	is_str(parse("check x.ini --json --json"), "", "twice, without a value: nothing is lost");
	is_str(parse("check --temperature -1.5 -- --odd.ini"), "", "a negative value, and a file with dashes");
	ok(!hd_cli_num(&cli, "temperature", -2, 9, 0, &t, &err) && t == -1.5, "a number");
	is_str(cli.positional, "--odd.ini", "after --");
	is_str(parse("check x.ini --ranks --mca\ta\tb"), "",
	       "a value of several words, which are options of another program");
	is_str(hd_cli_str(&cli, "ranks", ""), "--mca\ta\tb", "all of it");
	ok(!*parse("plugins") && !cli.positional, "an optional word");
	ok(!*parse("check --help") && cli.help && cli.verb, "help needs no CONF");
	ok(!*parse("help eval") && cli.help && !strcmp(cli.verb->name, "eval"), "help as a verb");
	ok(!*parse("-h") && cli.help && !cli.verb, "general help");
	ok(!*parse("--version") && cli.version, "version");
}

static const char *int_error(const char *line)
{
	int64_t n;

	parse(line);
	hd_cli_int(&cli, "ranks", 1, 64, 1, &n, &err);
	return err.text;
}

static void refused(void)
{
	int64_t n;
	double t;

	is_str(parse(""), "no verb; see heddle --help", "nothing");
	is_str(parse("chekc x.ini"), "chekc: unknown verb; did you mean check?", "verb");
	is_str(parse("fly"), "fly: unknown verb; verbs: check, eval, plugins", "no verb is near");
	is_str(parse("help chek"), "chek: unknown verb; did you mean check?", "verb of help");
	is_str(parse("--ranks 8"), "a verb comes first, not --ranks; see heddle --help", "flag first");
	is_str(parse("check x.ini --rank 8"), "check: unknown option --rank; did you mean --ranks?", "flag");
	is_str(parse("check x.ini --rank=8"), "check: unknown option --rank; did you mean --ranks?", "flag with =");
	is_str(parse("check x.ini --colour"),
	       "check: unknown option --colour; options: --ranks, --memory, "
	       "--temperature, --json, --set, --help",
	       "no flag is near");
	is_str(parse("plugins c --set a.b=c"), "plugins: unknown option --set; options: --help",
	       "--set without CONF or CKPT");
	parse("check x-y.ini");
	is_str(cli.positional, "x-y.ini", "a dash within a word");
	is_str(parse("check x.ini -r 8"), "check: unknown option -r; options have two dashes", "one dash");
	is_str(parse("check x.ini --ranks"), "check: --ranks needs a value: --ranks N", "no value");
	is_str(parse("check x.ini --ranks --json"), "check: --ranks needs a value: --ranks N", "a flag for a value");
	is_str(parse("check x.ini --json=1"), "check: --json takes no value, '1' was given", "a value too many");
	is_str(parse("check x.ini --ranks 8 --ranks=9"), "check: --ranks is given twice: 8 and 9", "twice");
	is_str(parse("check"), "check: CONF is missing: heddle check CONF", "no CONF");
	is_str(parse("check x.ini y.ini"), "check: 'y.ini' is one too many after x.ini", "two CONF");
	is_str(int_error("check x --ranks eight"), "check: --ranks: 'eight' is not a whole number", "int");
	is_str(int_error("check x --ranks 0"), "check: --ranks: 0 is too small, at least 1", "small");
	is_str(int_error("check x --ranks 65"), "check: --ranks: 65 is too large, at most 64", "large");
	parse("check x --memory lots --temperature=hot");
	hd_cli_bytes(&cli, "memory", 0, &n, &err);
	is_str(err.text, "check: --memory: 'lots' is not a size (a whole number; K, M, G or T may follow it)", "size");
	memset(&err, 0, sizeof(err));
	hd_cli_num(&cli, "temperature", 0, 1, 0, &t, &err);
	is_str(err.text, "check: --temperature: 'hot' is not a number", "number");
}

static void help(void)
{
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);

	hd_cli_help(f, &verbs[0]);
	fclose(f);
	is_str(text,
	       "heddle check CONF [--set section.key=value]... [options]\n\n"
	       "refuses what can be refused\n\n"
	       "  --ranks N                  plan for N ranks\n"
	       "  --memory SIZE              refuse a rank that needs more\n"
	       "  --temperature T            0 is greedy\n"
	       "  --json                     as JSON\n"
	       "  --set SECTION.KEY=VALUE    override a key of the INI; repeatable\n"
	       "  --help                     print this\n",
	       "help of a verb");
	free(text);
	f = open_memstream(&text, &n);
	hd_cli_usage(f, verbs, HD_LEN(verbs));
	fclose(f);
	is_str(text,
	       "usage: heddle VERB ...\n\n"
	       "Trains large transformer models on many ranks.  An INI file describes the model, the data and the layout.\n\n"
	       "  check CONF               refuses what can be refused\n"
	       "  eval CKPT                loss of a checkpoint\n"
	       "  plugins [NAME]           lists plugins\n\n"
	       "heddle VERB --help lists the options of a verb, and heddle keys the keys of the INI.\n"
	       "To begin: heddle check layout.ini --ranks 8, then mpirun -np 8 heddle train layout.ini\n",
	       "help of all");
	free(text);
}

int main(void)
{
	accepted();
	refused();
	help();
	hd_cli_release(&cli);
	return done();
}
