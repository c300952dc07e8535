/* SPDX-License-Identifier: Apache-2.0
 * The tables of functions with which plugins read and change the graph (struct hd_graph_api, heddle/graph.h), and with
 * which their ops record launches.
 */
#include <config.h>
#include "engine/host/host_impl.h"
#include "engine/graph/op.h"
#include <stdarg.h>
#include <stdlib.h>

static int64_t record_index(struct hd_record *r, const struct hd_group *g)
{
	return r->index(r, g);
}

static int record_launch(struct hd_record *r, const char *kernel, struct hd_tensor *const *ins, uint32_t nin,
			 struct hd_tensor *const *outs, uint32_t nout, const char *attr, ...)
{
	char *text;
	va_list v;
	int rc;

	va_start(v, attr);
	text = hd_vformat(attr ? attr : "", v);
	va_end(v);
	rc = r->launch(r, kernel, ins, nin, outs, nout, text);
	free(text);
	return rc;
}

const struct hd_record_api hd_record_table = { .size = sizeof(struct hd_record_api),
					       .index = record_index,
					       .launch = record_launch };

const struct hd_graph_api hd_graph_table = {
	.size = sizeof(struct hd_graph_api),
	.node_next = hd_host_node_next,
	.leaf_next = hd_host_leaf_next,
	.place = hd_host_place,
	.attr = hd_host_attr,
	.attr_dims = hd_host_attr_dims,
	.storage = hd_host_storage,
	.replace = hd_host_replace,
	.cursor = hd_host_cursor,
	.after = hd_host_after,
	.op = hd_host_op,
	.node = hd_host_node,
	.einsum = hd_host_einsum,
	.map = hd_host_map,
	.cast = hd_host_cast,
	.chunk = hd_host_chunk,
	.join = hd_host_join,
	.pick = hd_host_pick,
	.pack = hd_host_pack,
	.unpack = hd_host_unpack,
	.comm = hd_host_comm,
	.reshard = hd_host_reshard,
	.state = hd_host_state,
	.assign = hd_host_assign,
	.only = hd_host_only,
	.either = hd_host_either,
	.scalar = hd_host_scalar,
	.constant = hd_host_constant,
	.iota = hd_host_iota,
	.random = hd_host_random,
	.topk = hd_host_topk,
	.gather = hd_host_take,
	.scatter = hd_host_put,
	.initial = hd_host_initial,
	.rename = hd_host_rename,
	.replace_in = hd_host_replace_in,
	.updated = hd_host_updated,
	.every = hd_host_every,
	.local = hd_host_local,
	.own = hd_host_own,
	.pack_pieces = hd_host_pack_pieces,
	.unpack_pieces = hd_host_unpack_pieces,
};
