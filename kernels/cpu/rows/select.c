/* SPDX-License-Identifier: Apache-2.0
 * select: the row of one position of each sequence; hd_run.position names the position at run time.
 */
#include <config.h>
#include "kernels/prepare/select.h"

const struct hd_kernel hd_cpu_select = { .name = "select", .prepare = hd_prepare_select, .run = hd_run_select };
