/* SPDX-License-Identifier: Apache-2.0
 * engine/command/options.h - the command line: heddle VERB [POSITIONAL] [--set section.key=value]... [options]
 *
 * Verbs and their options are tables; parsing, errors and the text of --help are derived from them. Strings belong to
 * argv, so a struct hd_cli must not outlive it.
 */
#ifndef HD_ENGINE_COMMAND_OPTIONS_H
#define HD_ENGINE_COMMAND_OPTIONS_H
#include <stdio.h>
#include "engine/base/err.h"

struct hd_flag {
	const char *name; /* without dashes */
	const char *arg;  /* "N", "FILE", ...; NULL: the flag takes no value */
	const char *help; /* one line */
	/* The words that the value must be one of, separated by blanks; NULL: there is no such list, or it is not
	 * constant. Only completion reads them. */
	const char *values;
};

struct hd_cli;
struct hd_verb {
	const char *name;
	/* "CONF", "CKPT"; "[NAME]": optional; "A [B]": two; "[FILE...]": many; NULL: not allowed */
	const char *positional;
	const char *help; /* one line */
	const struct hd_flag *flags;
	int nflags;
	int (*run)(struct hd_cli *cli);
	int alone; /* needs no MPI: under mpirun, only the first process runs it */
};

struct hd_cli {
	const struct hd_verb *verb;  /* NULL: only help or the version is requested */
	const struct hd_verb *verbs; /* all verbs */
	int nverbs;
	const char *positional; /* the first positional argument; NULL: not given */
	const char **words;     /* all positional arguments */
	int nwords;
	const char **sets; /* the values of --set, which verbs with a CONF or CKPT accept */
	int nsets;
	int help, version; /* --help, -h, "help"; --version */
	int argc;          /* the complete command line, for a program that starts itself again */
	char **argv;
	int64_t ranks;              /* ranks of plans without --ranks; 0: the layout decides */
	int device_memory;          /* plans are for devices with their own memory, unless the INI says cpu */
	int gpu_kernels;            /* and with Heddle's GPU kernels, likewise */
	int undivided_logits;       /* plans are for a framework that computes all logits at once */
	int separate_loss_gradient; /* and that reads logits again for their gradient */
	int separate_residual_adds; /* and that adds residual streams by separate kernels */
	double started;             /* time at which main began (hd_seconds) */
	const char **values;        /* values of verb->flags; NULL: not given, "" for a flag without a value */
};

/* Parses the command line; a missing verb is an error. verbs[] remains the caller's. Release out even after an
 * error. */
int hd_cli_parse(int argc, char **argv, const struct hd_verb *verbs, int nverbs, struct hd_cli *out,
		 struct hd_err *err);
void hd_cli_release(struct hd_cli *c);

/* Returns whether the verb accepts --set: its positional argument is a CONF or CKPT. */
int hd_cli_takes_sets(const struct hd_verb *v);

/* flag: its name in the table, without dashes. A flag that the verb does not have counts as not given. */
int hd_cli_has(const struct hd_cli *c, const char *flag);
const char *hd_cli_str(const struct hd_cli *c, const char *flag, const char *otherwise);
/* Stores the flag's value, which must be in min..max, or `otherwise`, unchecked, if it is not given. Errors name verb
 * and flag. */
int hd_cli_int(const struct hd_cli *c, const char *flag, int64_t min, int64_t max, int64_t otherwise, int64_t *out,
	       struct hd_err *err);
int hd_cli_num(const struct hd_cli *c, const char *flag, double min, double max, double otherwise, double *out,
	       struct hd_err *err);
int hd_cli_bytes(const struct hd_cli *c, const char *flag, int64_t otherwise, int64_t *out, struct hd_err *err);

void hd_cli_help(FILE *f, const struct hd_verb *v);                  /* prints the help of one verb */
void hd_cli_usage(FILE *f, const struct hd_verb *verbs, int nverbs); /* prints the list of all verbs */

#endif
