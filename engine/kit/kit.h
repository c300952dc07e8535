/* SPDX-License-Identifier: Apache-2.0
 * engine/kit/kit.h - the subcommands for plugin authors. Each function returns the exit status.
 */
#ifndef HD_ENGINE_KIT_H
#define HD_ENGINE_KIT_H
#include "engine/command/options.h"

int hd_verb_conform(struct hd_cli *c);
int hd_verb_new_plugin(struct hd_cli *c);

#endif
