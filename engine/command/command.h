/* SPDX-License-Identifier: Apache-2.0
 * engine/command/command.h - functions that subcommands share, mostly for their beginning and end.
 */
#ifndef HD_ENGINE_COMMAND_COMMAND_H
#define HD_ENGINE_COMMAND_COMMAND_H
#include "engine/command/options.h"
#include "engine/config/machine.h"
#include "engine/run/job.h"

/* Reads the INI named on the command line, with its --set. */
int hd_cli_conf(const struct hd_cli *c, struct hd_conf **conf, struct hd_err *err);
/* Opens the training data, after checking [train], [model], [checkpoint] and [log]. */
int hd_cli_data(struct hd_conf *conf, struct hd_data **data, struct hd_err *err);
/* The same on all ranks of a run, which wait for the slowest without a time limit. */
int hd_start_data(struct hd_job *j, struct hd_conf *conf, struct hd_err *err);
/* Begins a subcommand that runs under mpirun: sets up threads and the ranks, and agrees on errors. An err that is
 * already set becomes the message of hd_finish. */
int hd_start(const struct hd_cli *c, struct hd_job *j, struct hd_conf *conf, struct hd_err *err);
/* alike.c: check that all ranks have the same program and INI, or the same data. Collective over all ranks. */
int hd_ranks_alike(struct hd_conf *conf, struct hd_err *err);
int hd_data_alike(const struct hd_data *d, struct hd_err *err);
/* Ends a subcommand: prints the one message, and returns the exit status. */
int hd_finish(const struct hd_cli *c, struct hd_job *j, struct hd_err *err);
/* Begin a run on the checkpoint that the command line names: first hd_checkpoint_start reads its INI. After the
 * subcommand has read its other inputs, hd_checkpoint_open builds the programs and loads the weights. roles: a bit for
 * each of enum hd_role. */
int hd_checkpoint_start(const struct hd_cli *c, struct hd_job *j, struct hd_err *err);
int hd_checkpoint_open(const struct hd_cli *c, struct hd_job *j, unsigned roles, struct hd_err *err);
/* Warns of each --set for a key that only training reads. */
void hd_cli_warn_unread(const struct hd_cli *c);
int64_t hd_checkpoint_vocab(const struct hd_job *j); /* from its INI, so that no program is needed */
/* Opens the checkpoint's tokenizer for the prompt; `what` names the prompt in messages. *t is NULL if bytes are the
 * tokens, or with --ids. */
int hd_checkpoint_tokenizer(const struct hd_cli *c, struct hd_job *j, const char *what, struct hd_tokenizer **t,
			    struct hd_err *err);
/* Reads the INI and fills the options of a plan on --ranks ranks, or on 1 if that is not given. */
int hd_cli_plan_options(struct hd_cli *c, int64_t node_size, struct hd_conf **conf, struct hd_plan_options *o,
			struct hd_err *err);
/* Creates a plan without running it, for --ranks or for the ranks that the layout needs. node_size: ranks per node; 0:
 * unknown; -1: all are on one node. */
int hd_cli_plan(struct hd_cli *c, int64_t node_size, struct hd_conf **conf, struct hd_plan **p, struct hd_err *err);
/* output_options.c: refuses an --out or --html file that the command line or the INI names for another purpose. */
int hd_cli_outputs_check(const struct hd_cli *c, struct hd_conf *conf, struct hd_err *err);
/* Returns the exit status of a process that would end with rc. If output could not be written completely to standard
 * output, a message says so, and the status is not 0. */
int hd_cli_end(int rc);
/* Runs a subcommand on such a plan, and returns its exit status. */
int hd_cli_run(struct hd_cli *c, int (*what)(struct hd_cli *, struct hd_conf **, struct hd_plan **, struct hd_err *));
/* Builds the program of a rank of such a plan, on the CPU device. Returns NULL, with err set, on failure. */
int hd_cli_program_options(struct hd_plan *p, struct hd_program_options *o, struct hd_err *err); /* without the rank */
struct hd_program *hd_cli_program(struct hd_plan *p, int64_t rank, struct hd_err *err);
/* without_effect.c: warns of each key in the plan's INI that is given and has no effect. */
void hd_warn_without_effect(const struct hd_plan *p);
void hd_warn_of_recompute(const struct hd_plan *p); /* only train.recompute */
/* Warns if products are in bf16 and the machine's file has no peak for bf16. */
void hd_warn_of_peak(const struct hd_machine *m, uint32_t dtype);
/* Returns for how many rows of experts memory is planned. "largest": for any choices. "expert_rows": for as many as
 * train.expert_rows says. NULL: a capacity limits them, or each rank has all experts. */
const char *hd_memory_case(const struct hd_plan *p);
void hd_memory_case_print(const struct hd_plan *p); /* a line, if there is such a case */
void hd_batch_hint_print(const struct hd_plan *p);  /* prints hd_plan_batch_hint, if it has one */
void hd_mesh_print(const struct hd_plan *p);        /* prints axes, replicas, micro-batches and the bubble */

#endif
