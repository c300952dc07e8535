/* SPDX-License-Identifier: Apache-2.0
 * engine/plugin/device_load.h - the cuda device, a module that is loaded when it is requested.
 */
#ifndef HD_ENGINE_DEVICE_LOAD_H
#define HD_ENGINE_DEVICE_LOAD_H
#include "engine/device/device.h"

/* Loads the module and sets *out; its `open` tells whether a GPU can be used. Fails if there is no module or if it does
 * not load. */
int hd_device_cuda(const struct hd_device_ops **out, struct hd_err *err);
int hd_device_gpu_there(void); /* a cheap test for a driver, which tells whether loading the module is worth the time */

#endif
