/* SPDX-License-Identifier: Apache-2.0
 * engine/kit/templates.h - templates of the files that new-plugin writes; it replaces @NAME@ and similar words.
 */
#ifndef HD_ENGINE_KIT_TEMPLATES_H
#define HD_ENGINE_KIT_TEMPLATES_H

extern const char hd_kit_sharding[], hd_kit_schedule[], hd_kit_sync[], hd_kit_lowering[], hd_kit_op[],
	hd_kit_optimizer[];
extern const char hd_kit_ini[], hd_kit_makefile[], hd_kit_test[];

#endif
