/* SPDX-License-Identifier: Apache-2.0
 * Movement that devices do among themselves, in the order of their queues. The host does not wait here: a wait only
 * makes work that is enqueued later begin after the movement.
 */
#include <config.h>
#include "engine/comm/transport/transport.h"
#include "engine/comm/wait/wait.h"
#include "engine/comm/world/mpi.h"
#include "engine/device/device.h"
#include <stdlib.h>

static struct {
	const struct hd_device_comm *ops; /* NULL: not used */
	struct hd_err error;              /* why a group could not be created; hd_comm_finish reports it */
	int64_t requests;
} device;

/* A launcher may give each rank devices of its own, as Slurm does with --gpus-per-task. */
void hd_comm_share_devices(const struct hd_device_ops *d)
{
	int n = hd_here.w.local_size, before = 0, same = 0;
	uint64_t mine = d ? d->visible() : 0, *all = hd_alloc((size_t)n * sizeof(*all));

	hd_host_gather(all, &mine, sizeof(mine));
	for (int i = 0; i < n; i++) {
		before += all[i] == mine && i < hd_here.w.local_rank;
		same += all[i] == mine;
	}
	free(all);
	if (d)
		d->among(before, same);
}

int hd_comm_device(const struct hd_device_comm *d, struct hd_err *err)
{
	void *id = hd_alloc(d->id_bytes);

	if (hd_here.w.rank == 0)
		d->id(id, err);
	HD_TRY(hd_comm_agree(err));
	hd_comm_bcast(id, d->id_bytes, 0);
	d->open(id, hd_here.w.rank, hd_here.w.size, err);
	free(id);
	HD_TRY(hd_comm_agree(err));
	device.ops = d;
	return HD_OK;
}

static int finish(const struct hd_device_ops *d, struct hd_err *err)
{
	int rc = d->finish(err);
	char *warning = d->warning ? d->warning() : NULL;

	if (warning)
		hd_log(HD_LOG_WARN, "%s", warning);
	free(warning);
	return rc;
}

int hd_comm_settle(const struct hd_device_ops *d, struct hd_err *err)
{
	struct hd_backoff p;

	if (!device.ops)
		return HD_OK;
	hd_backoff_begin(&p, NULL, "the kernels and movements of the device");
	p.longest = 0; /* naps stay short: the next kernels wait for the host */
	while (!device.error.code && !d->ready() && device.ops->poll(&device.error) >= 0)
		hd_backoff_wait(&p, -1);
	hd_backoff_end(&p);
	if (!device.error.code)
		device.ops->poll(&device.error);
	if (device.error.code) {
		device.ops->abort();
		return hd_err_set(err, device.error.code, "%s", device.error.text);
	}
	return HD_OK;
}

int hd_comm_finish(const struct hd_device_ops *d, struct hd_err *err)
{
	HD_TRY(hd_comm_settle(d, err));
	return finish(d, err);
}

/* -- the transport ----------------------------------------------------------------------------- */
static int attach(struct hd_communicator *m)
{
	if (!device.ops)
		return 0;
	m->device.group = device.ops->split(m->world[0], m->me, &device.error);
	return 1;
}

/* Returns the index of the communicator for messages of this channel and sender. */
static int message_group(int channel, int sender)
{
	return (channel & 1) * 2 + (sender & 1);
}

/* Connects the ends whose messages use communicator k. */
static void connect_ends(struct hd_communicator *m, int k, const struct hd_message_end *ends, size_t n)
{
	int *to = hd_alloc((n + 1) * sizeof(*to)), *from = hd_alloc((n + 1) * sizeof(*from)), nto = 0, nfrom = 0;

	for (size_t i = 0; i < n; i++) {
		if (message_group(ends[i].channel, ends[i].sends ? m->me : ends[i].member) != k)
			continue;
		if (ends[i].sends)
			to[nto++] = ends[i].member;
		else
			from[nfrom++] = ends[i].member;
	}
	if (nto + nfrom > 0)
		device.ops->connect(m->device.messages[k], to, nto, from, nfrom, &device.error);
	free(to);
	free(from);
}

/* Creates communicators for sends and receives. A device's communicator executes its operations one after
 * another. Between neighbours, the sends and the receives of a rank use different ones, so a send never waits for
 * an earlier receive. All ranks connect them in the same order, so no two wait for each other. */
static void messages(struct hd_communicator *m, const struct hd_message_end *ends, size_t n)
{
	for (int i = 0; i < 4 && !m->device.messages[i]; i++)
		m->device.messages[i] = device.ops->split(m->world[0], m->me, &device.error);
	for (int k = 0; k < 4 && !device.error.code; k++)
		connect_ends(m, k, ends, n);
}

static int start(struct hd_request *t)
{
	const struct hd_communicator *m = t->m;
	const struct hd_call *c = &t->call;
	int sender = c->kind == HD_COMM_SEND ? m->me : c->index;
	void *group =
		c->kind >= HD_COMM_SEND ? m->device.messages[message_group((int)c->channel, sender)] : m->device.group;

	if (!group) /* split has failed; finish prints why */
		return HD_EIO;
	t->seq = (uint64_t)++device.requests;
	return device.ops->start(group, c, m->n, m->me, device.requests);
}

static int wait(struct hd_request *t)
{
	return device.ops->wait((int64_t)t->seq);
}

const struct hd_transport hd_transport_device = {
	.name = "device",
	.moves = HD_MOVES_BY_QUEUE,
	.attach = attach,
	.messages = messages,
	.start = start,
	.wait = wait,
};
