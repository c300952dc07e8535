/* SPDX-License-Identifier: Apache-2.0
 * The INI of a machine: section [machine], all numbers in plain units (FLOP/s, bytes/s, seconds), per rank.
 */
#include <config.h>
#include "engine/config/machine.h"
#include "engine/file/installed.h"
#include "engine/config/conf.h"
#include <stdio.h>
#include <stdlib.h>

static const struct hd_option keys[] = {
	{ "name", HD_OPT_STR, 0, "", NULL, "name of the machine" },
	{ "ranks_per_node", HD_OPT_INT, 0, "1", "1..", "ranks with consecutive numbers that share a node" },
	{ "memory", HD_OPT_BYTES, 0, "0", "0..", "memory of a rank, in bytes (0: not checked)" },
	{ "flops_fp32", HD_OPT_NUM, 0, NULL, "1..", "peak matmul FLOPs of a rank, per second" },
	{ "flops_bf16", HD_OPT_NUM, 0, "0", "0..", "the same in bf16 (0: as in fp32)" },
	{ "efficiency", HD_OPT_NUM, 0, "1", "0.001..1", "share of the peak that large matmuls reach" },
	{ "memory_bandwidth", HD_OPT_NUM, 0, NULL, "1..", "memory bandwidth of a rank, in bytes per second" },
	{ "kernel_latency", HD_OPT_NUM, 0, "0", "0..", "overhead of each kernel, in seconds" },
	{ "node_bandwidth", HD_OPT_NUM, 0, NULL, "1..", "bytes per second that a rank sends within its node" },
	{ "node_latency", HD_OPT_NUM, 0, "0", "0..", "seconds of a message within a node" },
	{ "network_bandwidth", HD_OPT_NUM, 0, "0", "0..",
	  "bytes per second that a rank sends to other nodes (0: as within one)" },
	{ "network_latency", HD_OPT_NUM, 0, "0", "0..", "seconds of a message between nodes" },
};

static void take(const struct hd_section *s, const char *path, struct hd_machine *m)
{
	const char *name = hd_section_str(s, "name");

	snprintf(m->name, sizeof(m->name), "%s", name[0] ? name : path);
	m->ranks_per_node = hd_section_int(s, "ranks_per_node");
	m->memory = (double)hd_section_int(s, "memory");
	m->flops_fp32 = hd_section_num(s, "flops_fp32");
	m->flops_bf16 = hd_section_num(s, "flops_bf16");
	if (m->flops_bf16 == 0)
		m->flops_bf16 = m->flops_fp32;
	m->efficiency = hd_section_num(s, "efficiency");
	m->memory_bandwidth = hd_section_num(s, "memory_bandwidth");
	m->kernel_latency = hd_section_num(s, "kernel_latency");
	m->links[HD_LINK_NODE] =
		(struct hd_link){ hd_section_num(s, "node_bandwidth"), hd_section_num(s, "node_latency") };
	m->links[HD_LINK_NETWORK] =
		(struct hd_link){ hd_section_num(s, "network_bandwidth"), hd_section_num(s, "network_latency") };
	if (m->links[HD_LINK_NETWORK].bandwidth == 0)
		m->links[HD_LINK_NETWORK] = m->links[HD_LINK_NODE];
}

int hd_machine_read(const char *name, struct hd_machine *m, struct hd_err *err)
{
	static const struct hd_key_table table = { keys, HD_LEN(keys), 0 };
	static const char *const names[] = { "machine", NULL }, *const kinds[] = { NULL };
	struct hd_conf *c = NULL;
	struct hd_section *s;
	char *path = hd_installed_find("machines", name, err);

	if (!path)
		return err->code;
	if (hd_conf_read(path, NULL, 0, &c, err) >= 0 && hd_conf_known(c, names, kinds, err) >= 0) {
		s = hd_conf_section(c, NULL, "machine");
		if (hd_section_check(c, s, &table, 1, err) >= 0)
			take(s, path, m);
	}
	hd_conf_destroy(c);
	free(path);
	return err->code;
}
