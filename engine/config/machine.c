/* SPDX-License-Identifier: Apache-2.0
 * The INI of a machine: section [machine], all numbers in base units (FLOP/s, bytes/s, seconds).
 */
#include <config.h>
#include "engine/config/machine.h"
#include "engine/file/installed.h"
#include "engine/config/conf.h"
#include <stdio.h>
#include <stdlib.h>

#define MOST_MEMORY "0..1125899906842624" /* a pebibyte: sums of them stay exact, and within an int64_t */

static const struct hd_option keys[] = {
	{ "name", HD_OPT_STR, 0, "", NULL, "name of the machine" },
	{ "ranks_per_node", HD_OPT_INT, 0, "1", "1..", "ranks with consecutive numbers that share a node" },
	{ "memory", HD_OPT_BYTES, 0, "0", "0..", "memory of a rank, in bytes (0: not checked)" },
	{ "flops_fp32", HD_OPT_NUM, 0, NULL, "1..", "peak matmul FLOPs of a rank, per second" },
	{ "flops_bf16", HD_OPT_NUM, 0, "0", "0..", "the same in bf16 (0: as in fp32)" },
	{ "sustained_clock", HD_OPT_NUM, 0, "1", "0.01..1",
	  "share of the peak's clock that is kept while matmuls run (power and heat)" },
	{ "efficiency", HD_OPT_STR, 0, "1", NULL,
	  "share of the peak that a matmul reaches: a number, or FLOPs:SHARE, ... by its FLOPs" },
	{ "extent_efficiency", HD_OPT_STR, 0, "1", NULL,
	  "share of that, by the smallest of a matmul's three extents: EXTENT:SHARE, ..." },
	{ "older_instructions", HD_OPT_NUM, 0, "1", "0.01..1",
	  "share of the peak in 16 bits that counts as the peak for kernels written for the previous generation" },
	{ "memory_bandwidth", HD_OPT_NUM, 0, NULL, "1..", "memory bandwidth of a rank, in bytes per second" },
	{ "memory_efficiency", HD_OPT_STR, 0, "1", NULL,
	  "share of it that a kernel reaches, by the bytes that it reads and writes: BYTES:SHARE, ..." },
	{ "kernel_latency", HD_OPT_NUM, 0, "0", "0..", "overhead of each kernel, in seconds" },
	{ "overlap_cost", HD_OPT_NUM, 0, "0", "0..0.99",
	  "share of its compute units that a rank cannot use while it sends and receives" },
	{ "node_bandwidth", HD_OPT_NUM, 0, NULL, "1..", "bytes per second that a rank sends within its node" },
	{ "node_latency", HD_OPT_NUM, 0, "0", "0..", "latency of a message within a node, in seconds" },
	{ "node_efficiency", HD_OPT_STR, 0, "1", NULL,
	  "share of node_bandwidth, by the bytes that a rank sends at once: BYTES:SHARE, ..." },
	{ "cards", HD_OPT_INT, 0, "0", "0..", "network cards of a node (0: one for each rank)" },
	{ "network_bandwidth", HD_OPT_NUM, 0, "0", "0..",
	  "bytes per second that a card sends to other nodes (0: as a rank within one)" },
	{ "network_latency", HD_OPT_NUM, 0, "0", "0..", "latency of a message between nodes, in seconds" },
	{ "network_efficiency", HD_OPT_STR, 0, "1", NULL,
	  "share of network_bandwidth, by the bytes that a rank sends at once: BYTES:SHARE, ..." },
	{ "all_reduce_efficiency", HD_OPT_STR, 0, "1", NULL,
	  "share of node_bandwidth that an all-reduce of whole nodes reaches, by their number: NODES:SHARE, ..." },
	{ "incast", HD_OPT_NUM, 0, "1", "0.01..1",
	  "share of its bandwidth that a card keeps while several send to it" },
	{ "host_link_bandwidth", HD_OPT_NUM, 0, "25e9", "1..",
	  "bytes per second between a device's memory and the host's, each way" },
	{ "host_memory_bandwidth", HD_OPT_NUM, 0, "40e9", "1..",
	  "bytes per second that a rank's kernels on the host read and write" },
	{ "context_memory", HD_OPT_BYTES, 0, "0", MOST_MEMORY,
	  "bytes of a rank's memory that the device itself takes" },
	{ "communicator_memory", HD_OPT_BYTES, 0, "0", MOST_MEMORY, "bytes of the buffers of each communicator" },
	{ "workspace_memory", HD_OPT_BYTES, 0, "0", MOST_MEMORY, "bytes of workspace that libraries of kernels take" },
};

static void read_numbers(const struct hd_section *s, const char *path, struct hd_machine *m)
{
	const char *name = hd_section_str(s, "name");

	snprintf(m->name, sizeof(m->name), "%s", name[0] ? name : path);
	m->ranks_per_node = hd_section_int(s, "ranks_per_node");
	m->memory = (double)hd_section_int(s, "memory");
	m->flops_fp32 = hd_section_num(s, "flops_fp32");
	m->flops_bf16 = hd_section_num(s, "flops_bf16");
	m->bf16_is_fp32 = m->flops_bf16 == 0;
	if (m->bf16_is_fp32)
		m->flops_bf16 = m->flops_fp32;
	m->sustained_clock = hd_section_num(s, "sustained_clock");
	m->older_instructions = hd_section_num(s, "older_instructions");
	m->memory_bandwidth = hd_section_num(s, "memory_bandwidth");
	m->kernel_latency = hd_section_num(s, "kernel_latency");
	m->overlap_cost = hd_section_num(s, "overlap_cost");
	m->incast = hd_section_num(s, "incast");
	m->host_link = hd_section_num(s, "host_link_bandwidth");
	m->host_memory_bandwidth = hd_section_num(s, "host_memory_bandwidth");
	m->context_memory = (double)hd_section_int(s, "context_memory");
	m->communicator_memory = (double)hd_section_int(s, "communicator_memory");
	m->workspace_memory = (double)hd_section_int(s, "workspace_memory");
	m->cards = hd_section_int(s, "cards") ? hd_section_int(s, "cards") : m->ranks_per_node;
}

static int read_curves(struct hd_conf *c, struct hd_section *s, struct hd_machine *m, struct hd_err *err)
{
	HD_TRY(hd_curve_read(c, s, "efficiency", &m->efficiency, err));
	HD_TRY(hd_curve_read(c, s, "extent_efficiency", &m->extent, err));
	HD_TRY(hd_curve_read(c, s, "memory_efficiency", &m->transfer, err));
	HD_TRY(hd_curve_read(c, s, "all_reduce_efficiency", &m->all_reduce, err));
	HD_TRY(hd_curve_read(c, s, "node_efficiency", &m->links[HD_LINK_NODE].efficiency, err));
	return hd_curve_read(c, s, "network_efficiency", &m->links[HD_LINK_NETWORK].efficiency, err);
}

static int read_links(struct hd_conf *c, struct hd_section *s, struct hd_machine *m, struct hd_err *err)
{
	struct hd_link *node = &m->links[HD_LINK_NODE], *network = &m->links[HD_LINK_NETWORK];

	node->bandwidth = hd_section_num(s, "node_bandwidth");
	node->latency = hd_section_num(s, "node_latency");
	network->bandwidth = hd_section_num(s, "network_bandwidth");
	network->latency = hd_section_num(s, "network_latency");
	HD_TRY(read_curves(c, s, m, err));
	if (network->bandwidth > 0)
		return HD_OK;
	network->bandwidth = node->bandwidth;
	if (!hd_section_has(s, "network_latency"))
		network->latency = node->latency;
	if (!hd_section_has(s, "network_efficiency"))
		network->efficiency = node->efficiency;
	return HD_OK;
}

#define LEAST_MEMORY (INT64_C(1) << 20)

/* No rank has so little memory: 80 is meant as 80G. */
static int check_memory(struct hd_conf *c, struct hd_section *s, struct hd_err *err)
{
	int64_t memory = hd_section_int(s, "memory");

	if (!memory || memory >= LEAST_MEMORY)
		return HD_OK;
	return hd_section_fail(c, s, "memory", err, HD_EINVAL,
			       "%lld bytes are too few for a rank, at least 1M; is the unit missing?",
			       (long long)memory);
}

int hd_machine_read(const char *name, struct hd_machine *m, struct hd_err *err)
{
	static const struct hd_key_table table = { keys, HD_LEN(keys), 0 };
	static const char *const names[] = { "machine", "measured", NULL }, *const kinds[] = { "product", "kernel",
											       "movement", NULL };
	struct hd_conf *c = NULL;
	struct hd_section *s;
	char *path = hd_installed_find("machines", name, err);

	*m = (struct hd_machine){ .name = "" };
	if (!path)
		return err->code;
	if (hd_conf_read(path, NULL, 0, &c, err) >= 0 && hd_conf_known(c, names, kinds, err) >= 0) {
		s = hd_conf_section(c, NULL, "machine");
		if (hd_section_check(c, s, &table, 1, err) >= 0 && check_memory(c, s, err) >= 0 &&
		    read_links(c, s, m, err) >= 0)
			read_numbers(s, path, m);
	}
	hd_conf_destroy(c);
	free(path);
	return err->code;
}
