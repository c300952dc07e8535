/* SPDX-License-Identifier: Apache-2.0
 * engine/host/host.h - the tables of functions that plugins call.
 */
#ifndef HD_ENGINE_HOST_H
#define HD_ENGINE_HOST_H
#include <heddle/host.h>

struct hd_plan;
extern const struct hd_host hd_host_table;       /* host.c */
extern const struct hd_graph_api hd_graph_table; /* host_graph.c */
extern const struct hd_record_api hd_record_table;
/* Prints the messages of plugins that a plan holds back while it is only built to ask the rules about the batch. It is
 * called if that plan fails; otherwise the plan that is kept logs them again. */
void hd_host_messages(const struct hd_plan *p);
int hd_in_slot(const struct hd_plan *p, const char *slot); /* returns whether this slot of a plugin is running */
const struct hd_axis *hd_host_axis(struct hd_plan *p, const struct hd_axis_args *args);

#endif
