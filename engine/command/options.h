/* SPDX-License-Identifier: Apache-2.0
 * engine/command/options.h - the command line: heddle VERB [POSITIONAL] [--set section.key=value]...
 * [options]
 *
 * Verbs and their options are tables; parsing, errors and the text of --help come from them.
 * Strings are argv's, so a struct hd_cli lives no longer than those.
 */
#ifndef HD_ENGINE_COMMAND_OPTIONS_H
#define HD_ENGINE_COMMAND_OPTIONS_H
#include <stdio.h>
#include "engine/base/err.h"

struct hd_flag {
	const char *name; /* without dashes */
	const char *arg;  /* "N", "FILE", ...; NULL: the flag takes no value */
	const char *help; /* one line */
};

struct hd_cli;
struct hd_verb {
	const char *name;
	const char *
		positional; /* "CONF", "CKPT"; "[NAME]": may be left out; "A [B]": two; "[FILE...]": many; NULL: there is none */
	const char *help; /* one line */
	const struct hd_flag *flags;
	int nflags;
	int (*run)(struct hd_cli *cli);
	int alone; /* needs no MPI: started by mpirun, the first process does it */
};

struct hd_cli {
	const struct hd_verb *verb;  /* NULL: only help or version is asked for */
	const struct hd_verb *verbs; /* all of them */
	int nverbs;
	const char *positional; /* NULL: left out; of many the first */
	const char **words;     /* all of them */
	int nwords;
	const char **sets; /* what followed each --set; verbs with a CONF or CKPT know it */
	int nsets;
	int help, version; /* --help, -h, "help"; --version */
	int argc;          /* the whole command line: a program that starts itself again needs it */
	char **argv;
	int64_t ranks;       /* of plans without --ranks; 0: as many as the layout says */
	int device_memory;   /* plans are for a machine whose devices have memory of their own, unless they say cpu */
	int gpu_kernels;     /* and whose kernels are Heddle's for GPUs, likewise */
	int whole_logits;    /* plans are of a framework that makes all logits at once */
	int loss_apart;      /* and of one that reads logits again for their gradient */
	int residuals_apart; /* and of one that adds residual streams by kernels of their own */
	double started;      /* when main began (hd_seconds) */
	const char **values; /* of verb->flags; NULL: not given, "" for one without value */
};

/* verbs[] stays the caller's.  No verb at all: an error.  Release out in either case. */
int hd_cli_parse(int argc, char **argv, const struct hd_verb *verbs, int nverbs, struct hd_cli *out,
		 struct hd_err *err);
void hd_cli_release(struct hd_cli *c);

/* flag: its name in the table, without dashes; one that the verb does not have counts as not given. */
int hd_cli_has(const struct hd_cli *c, const char *flag);
const char *hd_cli_str(const struct hd_cli *c, const char *flag, const char *otherwise);
/* min <= *out <= max; not given: otherwise, unchecked.  Errors name verb and flag. */
int hd_cli_int(const struct hd_cli *c, const char *flag, int64_t min, int64_t max, int64_t otherwise, int64_t *out,
	       struct hd_err *err);
int hd_cli_num(const struct hd_cli *c, const char *flag, double min, double max, double otherwise, double *out,
	       struct hd_err *err);
int hd_cli_bytes(const struct hd_cli *c, const char *flag, int64_t otherwise, int64_t *out, struct hd_err *err);

void hd_cli_help(FILE *f, const struct hd_verb *v);                  /* of one verb */
void hd_cli_usage(FILE *f, const struct hd_verb *verbs, int nverbs); /* of all */

#endif
