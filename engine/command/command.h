/* SPDX-License-Identifier: Apache-2.0
 * engine/command/command.h - what subcommands share: how one begins and ends.
 */
#ifndef HD_ENGINE_COMMAND_COMMAND_H
#define HD_ENGINE_COMMAND_COMMAND_H
#include "engine/command/options.h"
#include "engine/config/machine.h"
#include "engine/run/job.h"

/* The INI of the command line, with its --set. */
int hd_cli_conf(const struct hd_cli *c, struct hd_conf **conf, struct hd_err *err);
/* The training data; [train], [model], [checkpoint] and [log] are checked first. */
int hd_cli_data(struct hd_conf *conf, struct hd_data **data, struct hd_err *err);
/* The same on all ranks of a run, which wait for the slowest however long it takes. */
int hd_start_data(struct hd_job *j, struct hd_conf *conf, struct hd_err *err);
/* What every subcommand that runs under mpirun begins and ends with: threads, world, the one message.  An err that is set
 * already becomes that message too. */
int hd_start(const struct hd_cli *c, struct hd_job *j, struct hd_conf *conf, struct hd_err *err);
/* alike.c: whether all ranks have the same program and the same INI, or the same data; all ranks. */
int hd_ranks_alike(struct hd_conf *conf, struct hd_err *err);
int hd_data_alike(const struct hd_data *d, struct hd_err *err);
/* Prints the one message; -> exit status. */
int hd_finish(const struct hd_cli *c, struct hd_job *j, struct hd_err *err);
/* A run on the checkpoint that the command line names. First its INI, then what else the subcommand reads. Last the
 * programs of those roles (a bit for each of enum hd_role) with the checkpoint's weights. */
int hd_checkpoint_start(const struct hd_cli *c, struct hd_job *j, struct hd_err *err);
int hd_checkpoint_open(const struct hd_cli *c, struct hd_job *j, unsigned roles, struct hd_err *err);
int64_t hd_checkpoint_vocab(const struct hd_job *j); /* of its INI: before there is a program */
/* The prompt's tokenizer (with its name for messages): the checkpoint's; *t NULL: bytes are its tokens, or --ids. */
int hd_checkpoint_tokenizer(const struct hd_cli *c, struct hd_job *j, const char *what, struct hd_tokenizer **t,
			    struct hd_err *err);
/* The INI, and what a plan of it on the ranks of --ranks (1, if it is not given) needs to know besides. */
int hd_cli_plan_options(struct hd_cli *c, int64_t node_size, struct hd_conf **conf, struct hd_plan_options *o,
			struct hd_err *err);
/* A plan without ranks, of --ranks or of what the layout says.  node_size: ranks of a node, 0:
 * unknown; -1: all are on one. */
int hd_cli_plan(struct hd_cli *c, int64_t node_size, struct hd_conf **conf, struct hd_plan **p, struct hd_err *err);
/* output_options.c: refuses a file of --out or --html that the command line or the INI names for something else. */
int hd_cli_outputs_check(const struct hd_cli *c, struct hd_conf *conf, struct hd_err *err);
/* The status of a process that would end with rc.  If not all of its output has reached standard output, it is not 0, and a
 * message says so. */
int hd_cli_end(int rc);
/* A subcommand on such a plan, from its first line to its exit status. */
int hd_cli_run(struct hd_cli *c, int (*what)(struct hd_cli *, struct hd_conf **, struct hd_plan **, struct hd_err *));
/* The program of a rank of such a plan, on the cpu device; NULL: err says why. */
int hd_cli_program_options(struct hd_plan *p, struct hd_program_options *o, struct hd_err *err); /* of any rank */
struct hd_program *hd_cli_program(struct hd_plan *p, int64_t rank, struct hd_err *err);
/* without_effect.c: names the keys of the plan's INI that are given and do nothing, each in a warning. */
void hd_warn_without_effect(const struct hd_plan *p);
void hd_warn_of_recompute(const struct hd_plan *p); /* of them, train.recompute */
/* Products of dtype on a machine whose file has no peak of bf16. */
void hd_warn_of_peak(const struct hd_machine *m, uint32_t dtype);
/* Memory is that of more rows than equal choices of experts would give a rank: there is no capacity limit. */
int hd_memory_is_largest(const struct hd_plan *p);
extern const char hd_memory_is_largest_text[];     /* a line */
void hd_batch_hint_print(const struct hd_plan *p); /* hd_plan_batch_hint, if there is one */
void hd_mesh_print(const struct hd_plan *p);       /* axes, replicas, micro-batches and the bubble */

#endif
