/* SPDX-License-Identifier: Apache-2.0
 * engine/config/machine.h - a machine that need not be at hand, as an INI file says it, for heddle plan.
 */
#ifndef HD_ENGINE_MACHINE_H
#define HD_ENGINE_MACHINE_H
#include <stdint.h>
#include "engine/base/err.h"

enum { HD_LINK_NODE, HD_LINK_NETWORK, HD_LINKS }; /* between ranks of one node; between nodes */
struct hd_link {
	double bandwidth, latency;
}; /* bytes per second that one rank sends; seconds of a message */
struct hd_machine {
	char name[80];
	int64_t ranks_per_node;
	double memory;                 /* bytes of a rank */
	double flops_fp32, flops_bf16; /* peak of products, of a rank, per second */
	double efficiency;             /* of the peak that large products reach */
	double memory_bandwidth;       /* bytes per second, of a rank */
	double kernel_latency;         /* seconds that each kernel costs besides */
	struct hd_link links[HD_LINKS];
};
/* name: of a file, or of one of conf/machines/ without .ini */
int hd_machine_read(const char *name, struct hd_machine *m, struct hd_err *err);

#endif
