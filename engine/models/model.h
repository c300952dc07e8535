/* SPDX-License-Identifier: Apache-2.0
 * engine/models/model.h - reads [model], and builds the graph of a model.
 *
 * Each family is a file in engine/models/family/ with its defaults and its Hugging Face names. Its graph is written
 * once, for one device. A family builds nodes block by block (embed, layer 0, ..., head) with the builders of
 * engine/ops/build.h. It knows no mesh and no rank.
 */
#ifndef HD_ENGINE_MODEL_H
#define HD_ENGINE_MODEL_H
#include "engine/models/family/families.h"

struct hd_plugin_entry;

extern const struct hd_key_table hd_model_keys;
int hd_model_read(struct hd_conf *c, int64_t data_vocab, struct hd_model *m, struct hd_err *err);

/* -- brought.c ----------------------------------------------------------------------------------------------------- */
/* Finds the plugin that a section [strategy NAME] or [plugin NAME] names; an error names its key. */
int hd_plugin_of_section(struct hd_conf *c, struct hd_section *s, struct hd_plugin_entry **e, struct hd_err *err);
/* Checks and registers the families of the plugins that such sections name. */
int hd_families_load(struct hd_conf *c, struct hd_err *err);

/* -- model_graph.c ------------------------------------------------------------------------------------------------- */
/* Builds the graph of p->model for p->batch sequences: up to the loss, or with generate to the logits of one
 * position. */
int hd_model_graph(struct hd_plan *p, int generate);
void hd_model_count_blocks(struct hd_plan *p); /* sets the cost of each block, for plugins that assign them to stages */

#endif
