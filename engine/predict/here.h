/* SPDX-License-Identifier: Apache-2.0
 * engine/predict/here.h - a machine that heddle machine has measured. Reads its file, shares it out to the ranks of a
 * layout, and prices entries by its rates.
 */
#ifndef HD_ENGINE_PREDICT_HERE_H
#define HD_ENGINE_PREDICT_HERE_H
#include "engine/predict/price.h"
#include "engine/predict/simulate.h"
#include "engine/rates/rates.h"

/* Reads a machine file, with the rates if it has any. hd_machine_close releases these. */
int hd_machine_open(const char *name, struct hd_machine *m, struct hd_err *err);
void hd_machine_close(struct hd_machine *m);
/* Returns the ranks of a node for hd_cli_plan_options. -1, for one measured host whose ranks compute on its cores: all
 * ranks. */
int64_t hd_machine_node_size(const struct hd_machine *m);
/* Returns the bytes that each of so many ranks has. */
double hd_machine_memory(const struct hd_machine *m, int64_t ranks);
/* Shares out the cores and the memory of measured hosts to the ranks of a plan. Does nothing for other machines (not
 * measured, or GPUs), or if they have already been shared out. */
void hd_machine_share(struct hd_machine *m, const struct hd_plan *p);
/* Lengthens a step whose ranks share cores: it takes at least all their work on these cores. A rank that waits leaves
 * its core to others. For a part of a job it only sets r->crowd. */
void hd_machine_busy(const struct hd_machine *m, const struct hd_plan *p, struct hd_prediction *r);
/* Returns whether ranks compute in the host's memory. They then copy what they send each other themselves, in
 * their own time. */
int hd_machine_is_host(const struct hd_machine *m);

/* Return seconds by measured rates, or less than 0 if these are not known. */
double hd_known_kernel(const struct hd_pricing *x, const struct node *n);
double hd_known_added(const struct hd_pricing *x, const struct tensor *t, const struct tensor *to);
double hd_known_movement(const struct hd_pricing *x, const struct node *n, double sent);

#endif
