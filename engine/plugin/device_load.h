/* SPDX-License-Identifier: Apache-2.0
 * engine/plugin/device_load.h - the cuda device, a module that is loaded when it is asked for.
 */
#ifndef HD_ENGINE_DEVICE_LOAD_H
#define HD_ENGINE_DEVICE_LOAD_H
#include "engine/device/device.h"

/* Loaded (its `open` says whether a GPU can be used).  Error: there is no module, or it does not load. */
int hd_device_cuda(const struct hd_device_ops **out, struct hd_err *err);
int hd_device_gpu_there(void); /* cheap: whether a driver is there, so that loading it is worth the time */

#endif
