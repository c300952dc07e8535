/* SPDX-License-Identifier: Apache-2.0
 * Tripwire of the plugin ABI: if a field or slot has moved, this file does not compile.
 *
 * A plugin that was built earlier calls the engine, and is called, by offset. Inserting, removing, reordering or
 * resizing a member of a public struct silently changes the plugin's behaviour. A version number helps only if someone
 * notices the change. Two changes are allowed within a major. A struct that begins with its size may get a new member
 * at its end, and an enum a new value. Both add lines here and change none, except that ENDS moves to the new last
 * member. A new member must not go into the padding at the end of a struct: the struct's size would not tell which
 * version has it. The numbers are those of 64-bit machines; the rules hold on others too.
 */
#include <config.h>
#include <heddle/strategy.h>

#define AT(type, field, bytes) _Static_assert(offsetof(struct type, field) == (bytes), #type "." #field " has moved")
#define ENDS(type, field, bytes) \
	_Static_assert(offsetof(struct type, field) + sizeof(((struct type *)0)->field) == (bytes), \
		       #type "." #field " has another size")
#define FROZEN(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type " is frozen")
#define IS(constant, value) _Static_assert((constant) == (value), #constant " has changed")

#if __SIZEOF_POINTER__ == 8

/* heddle/host.h */
AT(hd_dim, size, 0);
AT(hd_dim, name, 8);
AT(hd_dim, n, 16);
ENDS(hd_dim, n, 24);

AT(hd_axis, size, 0);
AT(hd_axis, name, 8);
AT(hd_axis, n, 16);
AT(hd_axis, spare, 24);
AT(hd_axis, mine, 32);
ENDS(hd_axis, mine, 36);

AT(hd_group, size, 0);
AT(hd_group, n, 8);
ENDS(hd_group, n, 16);

AT(hd_place, kind, 0);
AT(hd_place, red, 1);
AT(hd_place, role, 2);
AT(hd_place, order, 3);
AT(hd_place, index, 4);
AT(hd_place, level, 8);
AT(hd_place, dim, 16);
AT(hd_place, reserved, 24);
ENDS(hd_place, reserved, 32);
FROZEN(hd_place, 32);

AT(hd_block, size, 0);
AT(hd_block, name, 8);
AT(hd_block, flops, 16);
AT(hd_block, param_bytes, 24);
AT(hd_block, boundary_bytes, 32);
ENDS(hd_block, boundary_bytes, 40);

AT(hd_axis_args, size, 0);
AT(hd_axis_args, suffix, 8);
AT(hd_axis_args, n, 16);
AT(hd_axis_args, spare, 24);
ENDS(hd_axis_args, spare, 32);

AT(hd_group_args, size, 0);
AT(hd_group_args, axes, 8);
AT(hd_group_args, naxes, 16);
AT(hd_group_args, role, 20);
ENDS(hd_group_args, role, 24);

AT(hd_rule_args, size, 0);
AT(hd_rule_args, dim, 8);
AT(hd_rule_args, axis, 16);
AT(hd_rule_args, kind, 24);
AT(hd_rule_args, flags, 32);
AT(hd_rule_args, reserved, 36);
ENDS(hd_rule_args, reserved, 40);

AT(hd_stage_args, size, 0);
AT(hd_stage_args, block, 8);
AT(hd_stage_args, axis, 16);
AT(hd_stage_args, coord, 24);
AT(hd_stage_args, chunk, 32);
ENDS(hd_stage_args, chunk, 40);

AT(hd_unit_args, size, 0);
AT(hd_unit_args, axis, 8);
AT(hd_unit_args, coord, 16);
AT(hd_unit_args, chunk, 24);
AT(hd_unit_args, micro, 32);
AT(hd_unit_args, kind, 40);
AT(hd_unit_args, reserved, 44);
ENDS(hd_unit_args, reserved, 48);

AT(hd_host, size, 0);
AT(hd_host, abi_major, 8);
AT(hd_host, abi_minor, 12);
AT(hd_host, log, 16);
AT(hd_host, fail, 24);
AT(hd_host, status, 32);
AT(hd_host, alloc, 40);
AT(hd_host, query, 48);
AT(hd_host, opt_int, 56);
AT(hd_host, opt_num, 64);
AT(hd_host, opt_str, 72);
AT(hd_host, opt_text, 80);
AT(hd_host, dim, 88);
AT(hd_host, dim_new, 96);
AT(hd_host, axis, 104);
AT(hd_host, axis_next, 112);
AT(hd_host, group, 120);
AT(hd_host, rule, 128);
AT(hd_host, block_next, 136);
AT(hd_host, stage, 144);
AT(hd_host, unit, 152);
AT(hd_host, graph, 160);
AT(hd_host, record, 168);
ENDS(hd_host, record, 176);

/* heddle/graph.h */
AT(hd_tensor, size, 0);
AT(hd_tensor, name, 8);
AT(hd_tensor, node, 16);
AT(hd_tensor, of, 24);
AT(hd_tensor, spec, 32);
AT(hd_tensor, dims, 40);
AT(hd_tensor, local, 48);
AT(hd_tensor, ndim, 56);
AT(hd_tensor, dtype, 60);
AT(hd_tensor, what, 64);
AT(hd_tensor, space, 68);
ENDS(hd_tensor, space, 72);

AT(hd_reshard, size, 0);
AT(hd_reshard, axis, 8);
AT(hd_reshard, have, 16);
AT(hd_reshard, need, 48);
ENDS(hd_reshard, need, 80);

AT(hd_node, size, 0);
AT(hd_node, op, 8);
AT(hd_node, kind, 16);
AT(hd_node, attr, 24);
AT(hd_node, block, 32);
AT(hd_node, ins, 40);
AT(hd_node, outs, 48);
AT(hd_node, reshard, 56);
AT(hd_node, nin, 64);
AT(hd_node, nout, 68);
AT(hd_node, phase, 72);
AT(hd_node, stage, 76);
AT(hd_node, owner, 80);
ENDS(hd_node, owner, 88);

AT(hd_match, size, 0);
AT(hd_match, op, 8);
AT(hd_match, kind, 16);
AT(hd_match, axis, 24);
AT(hd_match, phases, 32);
AT(hd_match, flags, 36);
AT(hd_match, attr, 40);
AT(hd_match, reads, 48);
ENDS(hd_match, reads, 56);

AT(hd_pos, group, 0);
AT(hd_pos, mul, 8);
AT(hd_pos, add, 12);
AT(hd_pos, step, 16);
AT(hd_pos, reserved, 20);
ENDS(hd_pos, reserved, 32);
FROZEN(hd_pos, 32);

AT(hd_storage_args, size, 0);
AT(hd_storage_args, leaf, 8);
AT(hd_storage_args, axis, 16);
AT(hd_storage_args, place, 24);
AT(hd_storage_args, space, 32);
AT(hd_storage_args, reserved, 36);
ENDS(hd_storage_args, reserved, 40);

AT(hd_cursor_args, size, 0);
AT(hd_cursor_args, anchor, 8);
AT(hd_cursor_args, queue, 16);
ENDS(hd_cursor_args, queue, 24);

AT(hd_comm_args, size, 0);
AT(hd_comm_args, group, 8);
AT(hd_comm_args, x, 16);
AT(hd_comm_args, dim, 24);
AT(hd_comm_args, index, 32);
AT(hd_comm_args, kind, 40);
AT(hd_comm_args, wire, 44);
AT(hd_comm_args, mul, 48);
ENDS(hd_comm_args, mul, 56);

AT(hd_state_args, size, 0);
AT(hd_state_args, name, 8);
AT(hd_state_args, like, 16);
AT(hd_state_args, dtype, 24);
AT(hd_state_args, relayout, 28);
ENDS(hd_state_args, relayout, 32);

AT(hd_members, group, 0);
AT(hd_members, from, 8);
AT(hd_members, to, 12);
AT(hd_members, reserved, 16);
ENDS(hd_members, reserved, 24);
FROZEN(hd_members, 24);

AT(hd_graph_api, size, 0);
AT(hd_graph_api, node_next, 8);
AT(hd_graph_api, leaf_next, 16);
AT(hd_graph_api, place, 24);
AT(hd_graph_api, attr, 32);
AT(hd_graph_api, attr_dims, 40);
AT(hd_graph_api, storage, 48);
AT(hd_graph_api, replace, 56);
AT(hd_graph_api, cursor, 64);
AT(hd_graph_api, after, 72);
AT(hd_graph_api, op, 80);
AT(hd_graph_api, node, 88);
AT(hd_graph_api, einsum, 96);
AT(hd_graph_api, map, 104);
AT(hd_graph_api, cast, 112);
AT(hd_graph_api, chunk, 120);
AT(hd_graph_api, join, 128);
AT(hd_graph_api, pick, 136);
AT(hd_graph_api, pack, 144);
AT(hd_graph_api, unpack, 152);
AT(hd_graph_api, comm, 160);
AT(hd_graph_api, reshard, 168);
AT(hd_graph_api, state, 176);
AT(hd_graph_api, assign, 184);
AT(hd_graph_api, only, 192);
AT(hd_graph_api, either, 200);
AT(hd_graph_api, scalar, 208);
AT(hd_graph_api, constant, 216);
AT(hd_graph_api, iota, 224);
AT(hd_graph_api, random, 232);
AT(hd_graph_api, initial, 240);
AT(hd_graph_api, rename, 248);
AT(hd_graph_api, topk, 256);
AT(hd_graph_api, gather, 264);
AT(hd_graph_api, scatter, 272);
AT(hd_graph_api, replace_in, 280);
AT(hd_graph_api, updated, 288);
AT(hd_graph_api, every, 296);
AT(hd_graph_api, local, 304);
AT(hd_graph_api, own, 312);
AT(hd_graph_api, pack_pieces, 320);
AT(hd_graph_api, unpack_pieces, 328);
ENDS(hd_graph_api, unpack_pieces, 336);

/* heddle/op.h */
AT(hd_shape, dtype, 0);
AT(hd_shape, ndim, 4);
AT(hd_shape, dims, 8);
AT(hd_shape, local, 72);
AT(hd_shape, space, 136);
AT(hd_shape, reserved, 140);
ENDS(hd_shape, reserved, 152);
FROZEN(hd_shape, 152);

AT(hd_cost, size, 0);
AT(hd_cost, matmul_flops, 8);
AT(hd_cost, other_flops, 16);
AT(hd_cost, bytes, 24);
ENDS(hd_cost, bytes, 32);

AT(hd_record_api, size, 0);
AT(hd_record_api, index, 8);
AT(hd_record_api, launch, 16);
ENDS(hd_record_api, launch, 24);

AT(hd_op, size, 0);
AT(hd_op, name, 8);
AT(hd_op, kind, 16);
AT(hd_op, unshardable, 24);
AT(hd_op, linear, 32);
AT(hd_op, max_outputs, 40);
AT(hd_op, inplace, 48);
AT(hd_op, shape, 56);
AT(hd_op, vjp, 64);
AT(hd_op, place, 72);
AT(hd_op, cost, 80);
AT(hd_op, record, 88);
AT(hd_op, flags, 96);
AT(hd_op, zero, 100);
ENDS(hd_op, zero, 104);

/* heddle/strategy.h */
AT(hd_option, key, 0);
AT(hd_option, type, 8);
AT(hd_option, zero, 12);
AT(hd_option, default_value, 16);
AT(hd_option, range, 24);
AT(hd_option, help, 32);
ENDS(hd_option, help, 40);
FROZEN(hd_option, 40);

AT(hd_strategy_ops, size, 0);
AT(hd_strategy_ops, options, 8);
AT(hd_strategy_ops, noptions, 16);
AT(hd_strategy_ops, option_size, 20);
AT(hd_strategy_ops, open, 24);
AT(hd_strategy_ops, close, 32);
AT(hd_strategy_ops, mesh, 40);
AT(hd_strategy_ops, rewrite, 48);
AT(hd_strategy_ops, rules, 56);
AT(hd_strategy_ops, storage, 64);
AT(hd_strategy_ops, lower, 72);
AT(hd_strategy_ops, schedule, 80);
ENDS(hd_strategy_ops, schedule, 88);

AT(hd_basic, size, 0);
AT(hd_basic, h, 8);
AT(hd_basic, axis, 16);
ENDS(hd_basic, axis, 24);

AT(hd_plugin, magic, 0);
AT(hd_plugin, abi_major, 4);
AT(hd_plugin, abi_minor, 6);
AT(hd_plugin, name, 8);
AT(hd_plugin, version, 40);
AT(hd_plugin, build, 56);
AT(hd_plugin, size, 120);
AT(hd_plugin, strategy, 128);
AT(hd_plugin, approximate, 136);
AT(hd_plugin, kernels, 144);
AT(hd_plugin, optimizer, 152);
AT(hd_plugin, families, 160);
AT(hd_plugin, serial, 168);
ENDS(hd_plugin, serial, 176);

/* heddle/serial.h */
AT(hd_serial, size, 0);
AT(hd_serial, name, 8);
AT(hd_serial, dims, 16);
AT(hd_serial, ndim, 24);
AT(hd_serial, members, 28);
AT(hd_serial, n, 32);
AT(hd_serial, step, 40);
AT(hd_serial, lr, 48);
AT(hd_serial, param, 56);
AT(hd_serial, weights, 64);
AT(hd_serial, gradients, 72);
AT(hd_serial, state, 80);
AT(hd_serial, initial, 88);
ENDS(hd_serial, initial, 96);

AT(hd_serial_ops, size, 0);
AT(hd_serial_ops, keys, 8);
AT(hd_serial_ops, beside, 16);
AT(hd_serial_ops, one, 24);
AT(hd_serial_ops, update, 32);
ENDS(hd_serial_ops, update, 40);

/* heddle/family.h */
AT(hd_family_value, key, 0);
AT(hd_family_value, value, 8);
ENDS(hd_family_value, value, 16);
FROZEN(hd_family_value, 16);

AT(hd_family_key, theirs, 0);
AT(hd_family_key, ours, 8);
AT(hd_family_key, values, 16);
AT(hd_family_key, absent, 24);
AT(hd_family_key, flags, 32);
ENDS(hd_family_key, flags, 40);
FROZEN(hd_family_key, 40);

AT(hd_family_name, ours, 0);
AT(hd_family_name, theirs, 8);
ENDS(hd_family_name, theirs, 16);
FROZEN(hd_family_name, 16);

AT(hd_family_ops, size, 0);
AT(hd_family_ops, name, 8);
AT(hd_family_ops, model_type, 16);
AT(hd_family_ops, class_name, 24);
AT(hd_family_ops, defaults, 32);
AT(hd_family_ops, keys, 40);
AT(hd_family_ops, names, 48);
AT(hd_family_ops, window, 56);
AT(hd_family_ops, window_every, 60);
AT(hd_family_ops, window_absent, 64);
ENDS(hd_family_ops, window_absent, 72);

/* heddle/optimizer.h */
AT(hd_update, size, 0);
AT(hd_update, h, 8);
AT(hd_update, name, 16);
AT(hd_update, param, 24);
AT(hd_update, gradient, 32);
AT(hd_update, factor, 40);
AT(hd_update, weight_decay, 48);
ENDS(hd_update, weight_decay, 56);

AT(hd_optimizer_ops, size, 0);
AT(hd_optimizer_ops, update, 8);
ENDS(hd_optimizer_ops, update, 16);

/* heddle/kernel.h */
AT(hd_operand, size, 0);
AT(hd_operand, dims, 8);
AT(hd_operand, n, 16);
AT(hd_operand, first, 24);
AT(hd_operand, ndim, 32);
AT(hd_operand, dtype, 36);
ENDS(hd_operand, dtype, 40);

AT(hd_step, size, 0);
AT(hd_step, seed, 8);
AT(hd_step, step, 16);
AT(hd_step, lr, 24);
AT(hd_step, loss_scale, 32);
AT(hd_step, train, 40);
AT(hd_step, zero, 44);
ENDS(hd_step, zero, 48);

AT(hd_kernel_prepare, size, 0);
AT(hd_kernel_prepare, attr, 8);
AT(hd_kernel_prepare, ins, 16);
AT(hd_kernel_prepare, outs, 24);
AT(hd_kernel_prepare, nin, 32);
AT(hd_kernel_prepare, nout, 36);
AT(hd_kernel_prepare, threads, 40);
AT(hd_kernel_prepare, zero, 44);
AT(hd_kernel_prepare, alloc, 48);
AT(hd_kernel_prepare, fail, 56);
AT(hd_kernel_prepare, state, 64);
ENDS(hd_kernel_prepare, state, 72);

AT(hd_kernel_run, size, 0);
AT(hd_kernel_run, state, 8);
AT(hd_kernel_run, ins, 16);
AT(hd_kernel_run, outs, 24);
AT(hd_kernel_run, stream, 32);
AT(hd_kernel_run, step, 40);
AT(hd_kernel_run, sample0, 48);
AT(hd_kernel_run, threads, 56);
AT(hd_kernel_run, zero, 60);
AT(hd_kernel_run, scratch, 64);
ENDS(hd_kernel_run, scratch, 72);

AT(hd_kernel_ops, size, 0);
AT(hd_kernel_ops, name, 8);
AT(hd_kernel_ops, device, 16);
AT(hd_kernel_ops, prepare, 24);
AT(hd_kernel_ops, run, 32);
AT(hd_kernel_ops, release, 40);
AT(hd_kernel_ops, scratch, 48);
ENDS(hd_kernel_ops, scratch, 56);

#endif

/* Values are compiled into plugins too. */
IS(HD_OK, 0);
IS(HD_DEFAULT, 1);
IS(HD_EINVAL, -1);
IS(HD_ENOMEM, -2);
IS(HD_ENOTSUP, -3);
IS(HD_EDIVIDE, -4);
IS(HD_EABI, -5);
IS(HD_EBUG, -6);
IS(HD_EIO, -7);
IS(HD_LOG_ERROR, 0);
IS(HD_LOG_WARN, 1);
IS(HD_LOG_INFO, 2);
IS(HD_LOG_DEBUG, 3);
IS(HD_PLACE_REPLICATED, 0);
IS(HD_PLACE_SHARD, 1);
IS(HD_PLACE_PARTIAL, 2);
IS(HD_PLACE_PINNED, 3);
IS(HD_SPACE_DEVICE, 0);
IS(HD_SPACE_HOST, 1);
IS(HD_MATCH_OTHERS, 1);
IS(HD_MATCH_MINE, 2);
IS(HD_RED_SUM, 0);
IS(HD_RED_MAX, 1);
IS(HD_ROLE_CORE, 0);
IS(HD_ROLE_SPARE, 1);
IS(HD_ROLE_ALL, 2);
IS(HD_RULE_PAD, 1);
IS(HD_RULE_IF_DIVIDES, 2);
IS(HD_RULE_INSIDE, 4);
IS(HD_RULE_INNERMOST, 8);
IS(HD_RULE_KEEP_REPLICATED, 16);
IS(HD_RULE_OUTERMOST, 32);
IS(HD_RULE_ZIGZAG, 64);
IS(HD_ORDER_CONTIGUOUS, 0);
IS(HD_ORDER_ZIGZAG, 1);
IS(HD_UNIT_F, 1);
IS(HD_UNIT_B, 2);
IS(HD_UNIT_W, 4);
IS(HD_UNIT_U, 8);
IS(HD_UNIT_G, 16);
IS(HD_UNIT_S, 32);
IS(HD_TENSOR_ACT, 0);
IS(HD_TENSOR_DATA, 1);
IS(HD_TENSOR_PARAM, 2);
IS(HD_TENSOR_GRAD, 3);
IS(HD_TENSOR_STATE, 4);
IS(HD_TENSOR_MASTER, 5);
IS(HD_COMM_ALL_REDUCE, 1);
IS(HD_COMM_REDUCE_SCATTER, 2);
IS(HD_COMM_ALL_GATHER, 3);
IS(HD_COMM_ALL_TO_ALL, 4);
IS(HD_COMM_BROADCAST, 5);
IS(HD_COMM_REDUCE, 6);
IS(HD_COMM_GATHER, 7);
IS(HD_COMM_SCATTER, 8);
IS(HD_COMM_SHIFT, 9);
IS(HD_COMM_ALL_MAX, 10);
IS(HD_COMM_PERMUTE, 11);
IS(HD_COMM_RING_REDUCE_SCATTER, 12);
IS(HD_COMM_RING_ALL_GATHER, 13);
IS(HD_COMM_ORDERED_REDUCE_SCATTER, 14);
IS(HD_COMM_PUSH, 15);
IS(HD_COMM_PULL, 16);
IS(HD_RESHARD_SUM, 0);
IS(HD_RESHARD_ZERO, 1);
IS(HD_RESHARD_REFUSE, 2);
IS(HD_SCALAR_LR, 0);
IS(HD_SCALAR_STEP, 1);
IS(HD_SCALAR_SAMPLES, 2);
IS(HD_SCALAR_INDEX, 3);
IS(HD_INITIAL_VALUE, 0);
IS(HD_INITIAL_NORMAL, 1);
IS(HD_INITIAL_PARAMETER, 2);
IS(HD_OP_CHEAP, 1);
IS(HD_FAMILY_KEY_NULL, 1);
IS(HD_FAMILY_WINDOW_NONE, 0);
IS(HD_FAMILY_WINDOW_ALL, 1);
IS(HD_FAMILY_WINDOW_USED_BY_ALL, 2);
IS(HD_FAMILY_WINDOW_USE, 3);
IS(HD_FAMILY_WINDOW_TYPES, 4);
IS(HD_OPT_INT, 0);
IS(HD_OPT_BOOL, 1);
IS(HD_OPT_BYTES, 2);
IS(HD_OPT_NUM, 3);
IS(HD_OPT_STR, 4);
IS(HD_OPT_CHOICE, 5);
IS(HD_DTYPE_F32, 0x32000);
IS(HD_DTYPE_F64, 0x34000);
IS(HD_DTYPE_F16, 0x31000);
IS(HD_DTYPE_BF16, 0x31001);
IS(HD_DTYPE_I32, 0x12000);
IS(HD_DTYPE_I64, 0x14000);
IS(HD_DTYPE_U8, 0x20800);
IS(HD_DTYPE_I8, 0x10800);
IS(HD_DTYPE_E4M3, 0x30800);
IS(HD_DTYPE_E5M2, 0x30801);
IS(HD_DTYPE_B1, 0x20100);
IS(HD_MAX_DIMS, 8);
IS(HD_MAX_AXES, 12);
IS(HD_MAX_INS, 16);
IS(HD_MAX_OUTS, 8);
IS(HD_MAGIC, 0x4844504c);
