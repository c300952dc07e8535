/* SPDX-License-Identifier: Apache-2.0
 * Prices by measured rates.
 */
#include <config.h>
#include "engine/graph/mesh.h"
#include "engine/predict/here.h"
#include "engine/predict/work.h"
#include <math.h>
#include <string.h>

int hd_machine_open(const char *name, struct hd_machine *m, struct hd_err *err)
{
	struct hd_rates *r = NULL;

	HD_TRY(hd_machine_read(name, m, err));
	HD_TRY(hd_rates_read(name, &r, err));
	m->rates = r;
	m->threads = r ? r->threads : 0;
	return HD_OK;
}

void hd_machine_close(struct hd_machine *m)
{
	hd_rates_destroy((struct hd_rates *)m->rates);
	m->rates = NULL;
}

int hd_machine_is_host(const struct hd_machine *m)
{
	return m->rates && !strcmp(m->rates->device, "cpu");
}

int64_t hd_machine_node_size(const struct hd_machine *m)
{
	return hd_machine_is_host(m) && m->rates->hosts == 1 ? -1 : m->ranks_per_node;
}

static int64_t job_ranks(const struct hd_machine *m, const struct hd_plan *p)
{
	return m->job ? m->job : p->ranks;
}

/* Returns the ranks on one host. */
static int64_t ranks_per_host(const struct hd_machine *m, int64_t ranks)
{
	return m->ranks_per_node < ranks ? m->ranks_per_node : ranks;
}

static int64_t ranks_here(const struct hd_machine *m, const struct hd_plan *p)
{
	return ranks_per_host(m, job_ranks(m, p));
}

double hd_machine_memory(const struct hd_machine *m, int64_t ranks)
{
	const struct hd_rates *r = m->rates;

	if (!hd_machine_is_host(m) || m->shared || m->memory_given)
		return m->memory;
	return m->memory * (double)(r->ranks / r->hosts) / (double)(r->hosts == 1 ? ranks : ranks_per_host(m, ranks));
}

void hd_machine_share(struct hd_machine *m, const struct hd_plan *p)
{
	const struct hd_rates *r = m->rates;
	int64_t here;
	double more;

	if (!hd_machine_is_host(m) || m->shared)
		return;
	m->memory = hd_machine_memory(m, job_ranks(m, p));
	m->shared = 1;
	if (r->hosts == 1)
		m->ranks_per_node = m->cards = job_ranks(m, p);
	here = ranks_here(m, p);
	m->threads = p->config.threads ? p->config.threads : r->cores / here ? r->cores / here : 1;
	more = (double)m->threads / (double)r->threads;
	m->flops_fp32 *= more;
	m->flops_bf16 *= more;
	m->memory_bandwidth *= more;
}

void hd_machine_busy(const struct hd_machine *m, const struct hd_plan *p, struct hd_prediction *r)
{
	double work = 0;

	r->crowd = 1;
	if (hd_machine_is_host(m))
		r->crowd = fmax((double)(ranks_here(m, p) * m->threads) / (double)m->rates->cores, 1);
	if (m->job || r->crowd <= 1)
		return;
	for (int64_t i = 0; i < r->nstages; i++)
		work += r->crowd * (r->stages[i].compute + r->stages[i].collective) / (double)r->nstages;
	r->sharing = fmax(work - r->step, 0);
	r->step += r->sharing;
}

/* Returns the additional seconds of a launch in which a rank's threads read what others of them wrote. That is 0 with
 * as many threads as a measuring rank had, and `launch` with all cores. */
static double team_seconds(const struct hd_machine *m)
{
	const struct hd_rates *r = m->rates;
	double alone = (double)r->threads, all = (double)r->cores, here = (double)m->threads;

	return here > alone && all > alone ? r->launch * fmin((1 - alone / here) / (1 - alone / all), 1) : 0;
}

/* A GPU's rates are those of its first second. Later its products are slower, since its power is limited. */
static double seconds(const struct hd_pricing *x, const struct hd_work *w, const char *name)
{
	double s = hd_work_seconds(x->m->rates, w, name, x->m->threads);

	if (w->flops > 0)
		s /= x->m->sustained_clock;
	return s > 0 ? s + team_seconds(x->m) : -1;
}

double hd_known_kernel(const struct hd_pricing *x, const struct node *n)
{
	struct hd_work w;

	if (!x->m->rates)
		return -1;
	return hd_work_of(x->g, n, &w) ? seconds(x, &w, n->v.op->name) : 0;
}

/* A kernel that computes t in the accumulator adds as it computes, and was measured so. */
double hd_known_added(const struct hd_pricing *x, const struct tensor *t, const struct tensor *to)
{
	struct hd_work w;
	double s, add;

	if (!x->m->rates)
		return -1;
	if (x->g->at[t->id].root == x->g->at[to->id].root || !hd_work_added(t, &w))
		return 0;
	/* Most terms are added by the kernels that compute them. So `accumulate` may have been measured for the loss
	 * alone, and a sum of two tensors moves the same bytes. */
	s = seconds(x, &w, "accumulate");
	add = seconds(x, &w, "add");
	return add > 0 && (add < s || s <= 0) ? add : s;
}

/* Returns the additional seconds of a movement between ranks that share a core: they take turns. */
static double turn_seconds(const struct hd_machine *m)
{
	return m->ranks_per_node * m->threads > m->rates->cores ? m->rates->turn : 0;
}

double hd_known_movement(const struct hd_pricing *x, const struct node *n, double sent)
{
	static const uint32_t like[][2] = { { HD_COMM_ALL_MAX, HD_COMM_ALL_REDUCE },
					    { HD_COMM_REDUCE, HD_COMM_ALL_REDUCE },
					    { HD_COMM_RING_REDUCE_SCATTER, HD_COMM_REDUCE_SCATTER },
					    { HD_COMM_ORDERED_REDUCE_SCATTER, HD_COMM_REDUCE_SCATTER },
					    { HD_COMM_RING_ALL_GATHER, HD_COMM_ALL_GATHER },
					    { HD_COMM_GATHER, HD_COMM_ALL_GATHER },
					    { HD_COMM_BROADCAST, HD_COMM_ALL_GATHER },
					    { HD_COMM_SCATTER, HD_COMM_ALL_TO_ALL },
					    { HD_COMM_ALL_TO_ALL_V, HD_COMM_ALL_TO_ALL },
					    { HD_COMM_PERMUTE, HD_COMM_SHIFT },
					    { HD_COMM_SEND, HD_COMM_SHIFT } };
	uint32_t kind = n->comm.kind;
	double s;

	if (!x->m->rates || sent <= 0)
		return -1;
	for (size_t i = 0; i < HD_LEN(like); i++)
		if (like[i][0] == kind) {
			kind = like[i][1];
			break;
		}
	s = hd_rates_moved(x->m->rates, hd_comm_kind_name(kind), sent);
	return s > 0 ? s + turn_seconds(x->m) : -1;
}
