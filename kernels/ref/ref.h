/* SPDX-License-Identifier: Apache-2.0
 * kernels/ref/ref.h - the reference device: plain loops in double precision.
 */
#ifndef HD_KERNELS_REF_REF_H
#define HD_KERNELS_REF_REF_H
#include "engine/device/device.h"

const struct hd_device_ops *hd_device_ref(void);

#endif
