/* SPDX-License-Identifier: Apache-2.0
 * engine/inprocess/net.h - ranks as threads of one process, with a transport that is stricter than a real one.
 *
 * One rank runs at a time. When it waits for a peer that has not arrived, the next rank runs, so every execution is
 * the same. The transport checks that all members make the same call (kind, count, dtype, root). It also checks that
 * each send meets a receive, and that no rank waits forever. Buffers must not be touched while a call is under way.
 * Until they are waited for, outputs are NaN; inputs must not have changed by then.
 */
#ifndef HD_ENGINE_INPROCESS_NET_H
#define HD_ENGINE_INPROCESS_NET_H
#include "engine/comm/comm.h"

struct hd_net_in;
struct hd_net_in *hd_net_in_open(int ranks);
void hd_net_in_close(struct hd_net_in *net); /* also frees its communicators */
/* Creates the communicator of rank `me` in a group. ranks: the members, n of them, one of which is `me`; group: the
 * group's number, the same on all members. */
struct hd_communicator *hd_net_in_join(struct hd_net_in *net, const int *ranks, int n, int me, int group,
				       const char *name);
/* Runs work(ctx, rank) on all ranks until all have finished. Returns 0, or an error that describes the first failure:
 * HD_EIO, or HD_ENOMEM if not all threads could be started. */
int hd_net_in_run(struct hd_net_in *net, int (*work)(void *ctx, int rank), void *ctx, struct hd_err *err);

#endif
