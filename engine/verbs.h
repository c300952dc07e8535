/* SPDX-License-Identifier: Apache-2.0
 * engine/verbs.h - the verbs of the command line; one file per verb or two.  Each returns the exit status.
 */
#ifndef HD_ENGINE_VERBS_H
#define HD_ENGINE_VERBS_H
#include "engine/job.h"
#include "engine/options.h"

extern const struct hd_verb hd_verbs[];
extern const int hd_nverbs;

int hd_verb_train(struct hd_cli *c);
int hd_verb_check(struct hd_cli *c);
int hd_verb_explain(struct hd_cli *c);
int hd_verb_plan(struct hd_cli *c);
int hd_verb_bench(struct hd_cli *c);
int hd_verb_eval(struct hd_cli *c);
int hd_verb_generate(struct hd_cli *c);
int hd_verb_data(struct hd_cli *c);
int hd_verb_plugins(struct hd_cli *c);
int hd_verb_report(struct hd_cli *c);

/* The INI of the command line, with its --set. */
int hd_cli_conf(const struct hd_cli *c, struct hd_conf **conf, struct hd_err *err);
/* What every verb that runs under mpirun begins and ends with: threads, world, the one message.  An err that is set
 * already becomes that message too. */
int hd_start(struct hd_job *j, struct hd_conf *conf, struct hd_err *err);
int hd_finish(struct hd_job *j, struct hd_err *err);	/* prints the one message; -> exit status */
/* A plan without ranks, of --ranks or of what the layout says (verb_explain.c).  node_size: ranks of a node, or 0. */
int hd_cli_plan(struct hd_cli *c, int64_t node_size, struct hd_conf **conf, struct hd_plan **p, struct hd_err *err);
/* A verb on such a plan, from its first line to its status. */
int hd_cli_run(struct hd_cli *c, int (*what)(struct hd_cli *, struct hd_conf **, struct hd_plan **, struct hd_err *));
void hd_mesh_print(const struct hd_plan *p);
double hd_started(void);				/* when main began */

#endif
