/* SPDX-License-Identifier: Apache-2.0
 * engine/models/model.h - a model family: its keys, its sizes, its graph written once for one device, its Hugging Face names.
 *
 * One file per family in engine/models/family/.  A family builds nodes block by block (embed, layer 0, ..., head) with the
 * builders of engine/ops/build.h; it knows no mesh and no rank.
 */
#ifndef HD_ENGINE_MODEL_H
#define HD_ENGINE_MODEL_H
#include "engine/models/family/families.h"

struct hd_plugin_entry;

extern const struct hd_key_table hd_model_keys;
int hd_model_read(struct hd_conf *c, int64_t data_vocab, struct hd_model *m, struct hd_err *err);

/* -- brought.c ------------------------------------------------------------------------------------------------------------ */
/* The plugin that a section [strategy NAME] or [plugin NAME] names; an error is at its key. */
int hd_plugin_of_section(struct hd_conf *c, struct hd_section *s, struct hd_plugin_entry **e, struct hd_err *err);
/* The families that plugins of these sections bring are known from here on. */
int hd_families_load(struct hd_conf *c, struct hd_err *err);

/* -- model_graph.c -------------------------------------------------------------------------------------------------------- */
/* p->model in nodes, of p->batch sequences: up to the loss, or (generate) to the logits of one position. */
int hd_model_graph(struct hd_plan *p, int generate);
void hd_model_count_blocks(struct hd_plan *p); /* what each block costs, for plugins that deal them to stages */

#endif
