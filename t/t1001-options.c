/* SPDX-License-Identifier: Apache-2.0
 * Parsing the command line.  If this broke, a flag could be silently ignored, and the job would do something else.
 * Complete error texts are compared, because users and scripts read them.
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

/* Parses a line such as "check x.ini ..." and returns the error, or "". */
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

	is_str(parse("check --ranks 8 x.ini --set tp.size=4 --memory=2G --set a.b=c=d --json"), "",
	       "a line with every form of option is accepted");
	is_str(cli.verb->name, "check", "the verb is found");
	is_str(cli.positional, "x.ini", "the positional argument is found");
	ok(cli.nsets == 2 && !strcmp(cli.sets[0], "tp.size=4") && !strcmp(cli.sets[1], "a.b=c=d"),
	   "the values of --set are kept in order");
	ok(!hd_cli_int(&cli, "ranks", 1, 1 << 20, 1, &n, &err) && n == 8, "an integer is read");
	ok(!hd_cli_bytes(&cli, "memory", 0, &n, &err) && n == 2ll << 30, "a size is read");
	ok(hd_cli_has(&cli, "json") && !hd_cli_has(&cli, "temperature") && !hd_cli_has(&cli, "none"),
	   "hd_cli_has tells which flags were given");
	ok(!hd_cli_num(&cli, "temperature", 0, 9, 0.5, &t, &err) && t == 0.5,
	   "a number that is not given has its default");
	is_str(hd_cli_str(&cli, "ranks", "?"), "8", "a flag is read as a string");
	is_str(hd_cli_str(&cli, "none", "?"), "?", "a flag that the verb does not have reads as the default");
	is_str(parse("check x.ini --json --json"), "", "a flag without a value may be given twice");
	is_str(parse("check --temperature -1.5 -- --odd.ini"), "",
	       "a negative value, and a file name with dashes after --, are accepted");
	ok(!hd_cli_num(&cli, "temperature", -2, 9, 0, &t, &err) && t == -1.5, "a negative number is read");
	is_str(cli.positional, "--odd.ini", "the word after -- is positional");
	is_str(parse("check x.ini --ranks --mca\ta\tb"), "",
	       "a value that contains options of another program is accepted");
	is_str(hd_cli_str(&cli, "ranks", ""), "--mca\ta\tb", "... and kept completely");
	ok(!*parse("plugins") && !cli.positional, "an optional positional argument may be absent");
	ok(!*parse("check --help") && cli.help && cli.verb, "--help needs no CONF");
	ok(!*parse("help eval") && cli.help && !strcmp(cli.verb->name, "eval"), "help may be given as a verb");
	ok(!*parse("-h") && cli.help && !cli.verb, "-h without a verb asks for the general help");
	ok(!*parse("--version") && cli.version, "--version is accepted");
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

	is_str(parse(""), "no verb; see heddle --help", "an empty command line is refused");
	is_str(parse("chekc x.ini"), "chekc: unknown verb; did you mean check?",
	       "an unknown verb: a near one is suggested");
	is_str(parse("fly"), "fly: unknown verb; verbs: check, eval, plugins", "all verbs are listed if none is near");
	is_str(parse("help chek"), "chek: unknown verb; did you mean check?",
	       "help of an unknown verb: a near one is suggested");
	is_str(parse("--ranks 8"), "a verb comes first, not --ranks; see heddle --help",
	       "an option before the verb is refused");
	is_str(parse("check x.ini --rank 8"), "check: unknown option --rank; did you mean --ranks?",
	       "an unknown option: a near one is suggested");
	is_str(parse("check x.ini --rank=8"), "check: unknown option --rank; did you mean --ranks?",
	       "an unknown option with =: a near one is suggested");
	is_str(parse("check x.ini --colour"),
	       "check: unknown option --colour; options: --ranks, --memory, "
	       "--temperature, --json, --set, --help",
	       "all options are listed if none is near");
	is_str(parse("plugins c --set a.b=c"), "plugins: unknown option --set; options: --help",
	       "--set is unknown to a verb without CONF or CKPT");
	parse("check x-y.ini");
	is_str(cli.positional, "x-y.ini", "a word with a dash inside is positional");
	is_str(parse("check x.ini -r 8"), "check: unknown option -r; options have two dashes",
	       "an option with one dash is refused");
	is_str(parse("check x.ini --ranks"), "check: --ranks needs a value: --ranks N",
	       "an option without its value is refused");
	is_str(parse("check x.ini --ranks --json"), "check: --ranks needs a value: --ranks N",
	       "another flag is not taken as an option's value");
	is_str(parse("check x.ini --json=1"), "check: --json takes no value, '1' was given",
	       "a value for an option that takes none is refused");
	is_str(parse("check x.ini --ranks 8 --ranks=9"), "check: --ranks is given twice: 8 and 9",
	       "an option given twice is refused");
	is_str(parse("check"), "check: CONF is missing: heddle check CONF", "a missing CONF is refused");
	is_str(parse("check x.ini y.ini"), "check: 'y.ini' is one too many after x.ini", "a second CONF is refused");
	is_str(int_error("check x --ranks eight"), "check: --ranks: 'eight' is not a whole number",
	       "a value that is not an integer is refused");
	is_str(int_error("check x --ranks 0"), "check: --ranks: 0 is too small, at least 1",
	       "an integer that is too small is refused");
	is_str(int_error("check x --ranks 65"), "check: --ranks: 65 is too large, at most 64",
	       "an integer that is too large is refused");
	parse("check x --memory lots --temperature=hot");
	hd_cli_bytes(&cli, "memory", 0, &n, &err);
	is_str(err.text, "check: --memory: 'lots' is not a size (a whole number; K, M, G or T may follow it)",
	       "a value that is not a size is refused");
	memset(&err, 0, sizeof(err));
	hd_cli_num(&cli, "temperature", 0, 1, 0, &t, &err);
	is_str(err.text, "check: --temperature: 'hot' is not a number", "a value that is not a number is refused");
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
	       "the help of a verb lists its options");
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
	       "the general help lists all verbs");
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
