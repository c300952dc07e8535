/* SPDX-License-Identifier: Apache-2.0
 * engine/plugin/kernel.h - a kernel of a plugin (heddle/kernel.h) as one of the engine's.
 */
#ifndef HD_ENGINE_PLUGIN_KERNEL_H
#define HD_ENGINE_PLUGIN_KERNEL_H
#include "engine/device/device.h"
#include <heddle/kernel.h>

extern const struct hd_kernel hd_plugin_kernel; /* of all of them: it runs what was prepared */

/* As slot prepare of a kernel, of the instance that the section [NAME] made.  threads 0: 1. */
struct hd_kernel_owner {
	struct hd_strategy *self;
	const char *section;
	int threads;
};
int hd_plugin_kernel_prepare(const struct hd_kernel_ops *ops, const struct hd_kernel_owner *o,
			     const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err);
/* After a run: what the plugin's function returned, with a text, if that was no HD_OK. */
int hd_plugin_kernel_failed(const struct hd_prep *p, struct hd_err *err);

#endif
