/* SPDX-License-Identifier: Apache-2.0
 * engine/host/host.h - what plugins call.
 */
#ifndef HD_ENGINE_HOST_H
#define HD_ENGINE_HOST_H
#include <heddle/host.h>

struct hd_plan;
extern const struct hd_host hd_host_table;       /* host.c */
extern const struct hd_graph_api hd_graph_table; /* host_graph.c */
extern const struct hd_record_api hd_record_table;
/* Says what plugins said while the batch was asked for, which is not said before it is known whether the plan is kept. */
void hd_host_messages(const struct hd_plan *p);
int hd_in_slot(const struct hd_plan *p, const char *slot); /* of the plugin whose turn it is */
const struct hd_axis *hd_host_axis(struct hd_plan *p, const struct hd_axis_args *args);

#endif
