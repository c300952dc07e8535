/* SPDX-License-Identifier: Apache-2.0
 * engine/inprocess/net.h - ranks as threads of one process, and a transport between them that is stricter than a machine.
 *
 * One rank runs at a time.  When it waits for a peer that has not arrived, the next rank runs.  So what happens is the same
 * every time.  Checked on the way: all members make the same call (kind, count, dtype, root); what is under way is not
 * touched (outputs are NaN until they are waited for, inputs must still be what they were at the start); sends meet
 * receives; nobody waits forever.
 */
#ifndef HD_ENGINE_INPROCESS_NET_H
#define HD_ENGINE_INPROCESS_NET_H
#include "engine/comm/comm.h"

struct hd_net_in;
struct hd_net_in *hd_net_in_open(int ranks);
void hd_net_in_close(struct hd_net_in *net); /* and all its communicators */
/* Of rank me of `ranks`, which are the group's members; group: its number, the same on all. */
struct hd_communicator *hd_net_in_join(struct hd_net_in *net, const int *ranks, int n, int me, int group,
				       const char *name);
/* work(ctx, rank) on all ranks, to their ends.  0, or HD_EIO and the first thing that went wrong. */
int hd_net_in_run(struct hd_net_in *net, int (*work)(void *ctx, int rank), void *ctx, struct hd_err *err);

#endif
