/* SPDX-License-Identifier: Apache-2.0
 * Opens a job: it turns an INI into programs that are ready to run. The ranks compare their plans, allocate one arena,
 * create groups, and prepare kernels. What timing chooses is chosen once.
 */
#include <config.h>
#include "engine/graph/mesh.h"
#include "engine/graph/traffic.h"
#include "engine/run/job.h"
#include "engine/plugin/device_load.h"
#include "engine/run/autotune.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct hd_plan_options role_options[HD_JOB_ROLES] = {
	[HD_JOB_TRAIN] = { .train = 1 },     [HD_JOB_EVAL] = { .train = 0 },    [HD_JOB_GENERATE] = { .generate = 1 },
	[HD_JOB_PROMPT] = { .generate = 1 }, [HD_JOB_NEXT] = { .generate = 1 },
};

const struct hd_program *hd_job_first_program(const struct hd_job *j)
{
	for (int r = 0; r < HD_JOB_ROLES; r++)
		if (j->program[r])
			return j->program[r];
	return NULL;
}

const struct hd_plan *hd_job_any_plan(const struct hd_job *j)
{
	return hd_job_first_program(j)->plan;
}

/* Returns the first node in which a rank's plan differs from rank 0's, given the hashes of their nodes. */
static int64_t first_difference(const char *zero, const char *theirs)
{
	int64_t i = 0;

	while (zero[i] && zero[i] == theirs[i])
		i++;
	return i / HD_NODE_HASH;
}

/* Returns the texts of all ranks, on rank 0. Frees `mine`. */
static char **gathered(char *mine)
{
	char **all = hd_comm_gather_text(mine);

	free(mine);
	return all;
}

static void release(char **all, int n)
{
	for (int r = 0; all && r < n; r++)
		free(all[r]);
	free(all);
}

/* Names a rank whose plan differs, and the first node that differs. Nodes that were dropped may differ too: they leave
 * gaps in the numbers of tensors, which are part of a plan's hash. */
static int name_difference(const struct hd_job *j, struct hd_plan *p, struct hd_err *err)
{
	char **all = gathered(hd_plan_node_hashes(p)), *who;
	int64_t at[3] = { 0, 0, 1 }; /* rank, node, whether there is such a node */

	while (all && at[0] + 1 < j->world.size && !strcmp(all[at[0]], all[0]))
		at[0]++;
	if (all) {
		at[1] = first_difference(all[0], all[at[0]]);
		at[2] = strcmp(all[0], all[at[0]]) != 0;
	}
	release(all, j->world.size);
	hd_comm_bcast(at, sizeof(at), 0);
	all = gathered(hd_plan_node_text(p, at[1]));
	who = hd_rank_text((int)at[0]);
	if (all && !at[2])
		hd_err_set(err, HD_EINVAL,
			   "ranks have different plans: a plugin has built nodes on some of them that nothing reads; "
			   "does it depend on the rank?");
	else if (all && !strcmp(all[at[0]], all[0]))
		hd_err_set(
			err, HD_EINVAL,
			"%s has a different plan from rank 0, from node %lld on: %s on both, with other operands; are "
			"its plugins different?",
			who, (long long)at[1], all[0]);
	else if (all)
		hd_err_set(err, HD_EINVAL,
			   "%s has a different plan from rank 0, from node %lld on: %s there, %s here; are its plugins "
			   "different?",
			   who, (long long)at[1], all[at[0]], all[0]);
	free(who);
	release(all, j->world.size);
	return hd_comm_agree(err);
}

/* Checks that all ranks have the same plan. Otherwise they would run different programs. */
static int compare_plans(struct hd_job *j, struct hd_plan *p, struct hd_err *err)
{
	double hash = (double)(p->hash >> 12);

	return hd_comm_max(hash) == -hd_comm_max(-hash) ? HD_OK : name_difference(j, p, err);
}

/* Creates the plan. If the process was started alone on a layout of several ranks, any other error of the layout is
 * reported first. Otherwise the user would start all ranks only to see the layout refused. */
static int plan(struct hd_job *j, struct hd_plan_options *o, struct hd_plan **p, struct hd_err *err)
{
	struct hd_plan *whole = NULL;
	struct hd_err why = { 0 };

	o->needs = &j->needs;
	if (hd_plan_create(j->conf, o, p, &why) >= 0)
		return HD_OK;
	if (j->needs && j->world.size == 1) {
		struct hd_plan_options all = *o;

		all.ranks = j->needs;
		all.needs = NULL;
		if (hd_plan_create(j->conf, &all, &whole, err) < 0)
			j->needs = 0;
		else /* three fp32 per parameter, at 200 MB/s */
			j->save_seconds = 5 + hd_plan_parameters(whole) * 12 / 200000000;
		hd_plan_destroy(whole);
	}
	return hd_err_set(err, why.code, "%s", why.text);
}

static int64_t node_size(const struct hd_job *j)
{
	return j->world.size % j->world.hosts ? 0 : j->world.size / j->world.hosts;
}

static int64_t data_vocab(const struct hd_job *j)
{
	if (j->data)
		return hd_data_vocab(j->data);
	return j->text_vocab ? j->text_vocab : 256;
}

/* Returns what the plan of a role depends on in this job, apart from the INI. */
static struct hd_plan_options options_of(const struct hd_job *j, int role, int64_t global_batch)
{
	struct hd_plan_options o = role_options[role];

	if (role == HD_JOB_PROMPT || role == HD_JOB_NEXT) {
		o.past = j->cache.past;
		o.rows = j->cache.rows;
		o.tokens = role == HD_JOB_NEXT ? 1 : j->cache.tokens;
	}
	o.ranks = j->world.size;
	o.node_size = node_size(j);
	o.compute_dtype = j->compute_dtype;
	o.gelu = j->device->kernel("einsum_gelu") != NULL;
	o.no_multi_output_kernels = j->device->kernel("gelu_slope") == NULL;
	o.own_memory = o.on_gpus = !hd_device_in_host(j->device);
	o.global_batch = global_batch;
	o.data_vocab = data_vocab(j);
	o.quiet = role != HD_JOB_TRAIN && j->plan[HD_JOB_TRAIN]; /* warnings are about the layout that trains */
	return o;
}

static int build(struct hd_job *j, int role, int64_t global_batch, struct hd_err *err)
{
	struct hd_plan_options o = options_of(j, role, global_batch);
	struct hd_program_options po = { .rank = j->world.rank,
					 .device = j->device,
					 .keep_gradients = j->checkpoint.gradients,
					 .snapshot = role == HD_JOB_TRAIN && j->checkpoint.async };

	if (plan(j, &o, &j->plan[role], err) >= 0 && j->nccl && hd_spare_axis(j->plan[role]))
		hd_train_fail(j->conf, &j->train, "comm", err, HD_ENOTSUP,
			      "nccl has no pushes to servers: with train.comm = mpi they go through host memory");
	HD_TRY(hd_comm_agree(err));
	HD_TRY(compare_plans(j, j->plan[role], err));
	for (int r = 0; r < role && !err->code; r++)
		if (j->plan[r])
			hd_plans_store_alike(j->plan[r], j->plan[role], err);
	if (!err->code)
		hd_program_build(j->plan[role], &po, &j->program[role], err);
	HD_TRY(hd_comm_agree(err));
	j->program[role]->fixed_order = j->train.rank_order;
	return HD_OK;
}

static int64_t align(int64_t n)
{
	return (n + 4095) / 4096 * 4096;
}

static int64_t host_bytes(const struct hd_program *g)
{
	return align(g->memory.host_persistent) + align(g->memory.host_transient);
}

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Adds the memory of the program's kernels. Launches of all programs share scratch; memory
 * that plugins' kernels keep exists once per role. */
static void add_scratch(struct hd_job *j, int role, struct hd_program *g, struct hd_err *err)
{
	if (!hd_device_in_host(j->device) || hd_program_scratch(g, j->device, j->threads, err) < 0)
		return;
	j->scratch = larger(j->scratch, g->memory.scratch);
	j->kept = larger(j->kept, g->memory.kept);
	j->plugin_scratch = larger(j->plugin_scratch, g->memory.plugin_scratch);
	j->plugin_kept[role] = larger(j->plugin_kept[role], g->memory.plugin_kept);
	j->scratch_bytes = j->scratch + j->kept + j->plugin_scratch;
	for (int r = 0; r < HD_JOB_ROLES; r++)
		j->scratch_bytes += j->plugin_kept[r];
}

/* Returns the most bytes that a step may need, with the current program or those for the ramp's other sizes. Raises
 * j->host_bytes to the host memory that those need. */
static int64_t most_transient(struct hd_job *j, int role, struct hd_err *err)
{
	struct hd_program_options po = { .rank = j->world.rank,
					 .device = j->device,
					 .keep_gradients = j->checkpoint.gradients };
	int64_t most = j->program[role]->memory.transient;
	const struct hd_ramp *ramp = &j->train.batch;

	for (int64_t k = 0; role == HD_JOB_TRAIN && k < ramp->steps && !err->code; k++) {
		struct hd_plan_options o = options_of(j, role, hd_ramp_size(ramp, k));
		struct hd_program *g = NULL;
		struct hd_plan *p = NULL;

		if (hd_plan_create(j->conf, &o, &p, err) >= 0 && hd_program_build(p, &po, &g, err) >= 0)
			most = g->memory.transient > most ? g->memory.transient : most;
		if (g && !err->code)
			add_scratch(j, role, g, err);
		if (g && !err->code && host_bytes(g) > j->host_bytes)
			j->host_bytes = host_bytes(g);
		hd_program_destroy(g);
		hd_plan_destroy(p);
	}
	return most;
}

/* Places the leaves of the first program, then those that only the other programs have. Returns their bytes. */
static int64_t share_leaves(struct hd_job *j)
{
	int64_t bytes = hd_job_first_program(j)->memory.persistent;

	for (int r = 0; r < HD_JOB_ROLES; r++)
		if (j->program[r] && j->program[r] != hd_job_first_program(j))
			bytes = hd_program_share(j->program[r], j->program, r, bytes);
	return align(bytes);
}

/* Allocates host memory for updates that run there, if the device has memory of its own. */
static int host_memory(struct hd_job *j, struct hd_err *err)
{
	const struct hd_program *g = j->program[HD_JOB_TRAIN];

	if (g && host_bytes(g) > j->host_bytes)
		j->host_bytes = host_bytes(g);
	if (!hd_comm_max((double)j->host_bytes))
		return HD_OK;
	HD_TRY(hd_job_fits(j, (double)(j->host_bytes + j->snapshot_bytes), err));
	if (j->host_bytes)
		j->host = j->device->alloc_host((size_t)j->host_bytes, err);
	if (!err->code)
		hd_device_cpu()->open(j->threads, err);
	return hd_comm_agree(err);
}

int64_t hd_job_planned(const struct hd_job *j)
{
	return j->arena_bytes + j->snapshot_bytes + j->scratch_bytes;
}

/* Allocates the leaves, which all programs share, and one region for what lives within a step of any program. */
static int memory(struct hd_job *j, struct hd_err *err)
{
	int64_t transient = 0, staging = 0;

	for (int r = 0; r < HD_JOB_ROLES; r++)
		if (j->program[r]) {
			int64_t most = most_transient(j, r, err);

			transient = most > transient ? most : transient;
			if (!err->code)
				add_scratch(j, r, j->program[r], err);
		}
	HD_TRY(hd_comm_agree(err));
	j->transient_bytes = transient;
	j->persistent_bytes = share_leaves(j);
	j->arena_bytes = j->persistent_bytes + align(transient);
	j->snapshot_bytes = hd_job_first_program(j)->memory.snapshot;
	if (hd_device_in_host(j->device)) {
		HD_TRY(hd_job_fits(j, (double)hd_job_planned(j), err));
		j->arena = hd_comm_arena((size_t)j->arena_bytes, err);
		return hd_comm_agree(err);
	}
	j->arena = j->device->alloc((size_t)j->arena_bytes, err);
	HD_TRY(hd_comm_agree(err));
	HD_TRY(host_memory(j, err));
	if (j->nccl)
		return j->checkpoint.async ? hd_job_fits(j, (double)j->snapshot_bytes, err) : HD_OK;
	for (int r = 0; r < HD_JOB_ROLES; r++) /* the programs run one at a time */
		if (j->program[r] && hd_program_staging(j->program[r]) > staging)
			staging = hd_program_staging(j->program[r]);
	staging = (int64_t)hd_comm_max((double)staging);
	HD_TRY(hd_job_fits(j, (double)(staging + j->snapshot_bytes), err));
	j->staging = hd_comm_arena((size_t)align(staging + 1), err);
	if (j->staging)
		j->device->pin(j->staging, (size_t)align(staging + 1));
	return hd_comm_agree(err);
}

/* Returns the communicator that an earlier program of the same layout has for the group, or NULL. The programs of a
 * job run one at a time, and buffers of a device's communicators are large, so they are shared. */
static struct hd_communicator *known_members(const struct hd_program *was, const struct group *gr)
{
	for (size_t i = 0; was && i < was->plan->ngroups; i++)
		if (was->plan->groups[i]->role == gr->role && !strcmp(was->plan->groups[i]->name, gr->name))
			return was->members[i];
	return NULL;
}

static void group_members(const struct hd_program *g, const struct hd_program *was, struct hd_communicator **out)
{
	const struct hd_plan *p = g->plan;

	for (size_t i = 0; i < p->ngroups; i++) {
		const struct group *gr = p->groups[i];
		int *ranks;

		out[i] = known_members(was, gr);
		if (out[i])
			continue;
		ranks = hd_alloc((size_t)gr->v.n * sizeof(*ranks));
		out[i] = hd_communicator_create(ranks, (int)hd_group_ranks(p, gr, g->rank, ranks), gr->name);
		free(ranks);
	}
}

static int has_messages(const struct hd_plan *p, const struct group *gr)
{
	for (const struct node *n = p->first; n; n = n->next)
		if (n->comm.kind >= HD_COMM_SEND && n->comm.group == gr)
			return 1;
	return 0;
}

/* Adds the node's end, unless an earlier node has the same. */
static void add_end(const struct node *n, struct hd_message_end *ends, size_t *count)
{
	struct hd_message_end e = { (int)n->comm.index, n->comm.kind == HD_COMM_SEND, hd_message_channel(n) };

	for (size_t i = 0; i < *count; i++)
		if (ends[i].member == e.member && ends[i].sends == e.sends && ends[i].channel == e.channel)
			return;
	ends[(*count)++] = e;
}

static void prepare_messages(const struct hd_program *g, const struct group *gr, struct hd_communicator *m)
{
	struct hd_message_end *ends = hd_alloc((g->nmine + 1) * sizeof(*ends));
	size_t n = 0;

	for (size_t i = 0; i < g->nmine; i++)
		if (g->mine[i]->comm.kind >= HD_COMM_SEND && g->mine[i]->comm.group == gr)
			add_end(g->mine[i], ends, &n);
	hd_communicator_messages(m, ends, n);
	free(ends);
}

static int bind(struct hd_job *j, struct hd_program *g, const struct hd_program *was, struct hd_err *err)
{
	struct hd_bind b = { .device = j->device,
			     .persistent = j->arena,
			     .transient = j->arena + j->persistent_bytes,
			     .host = j->host,
			     .threads = j->threads,
			     .staging = j->staging };

	b.members = hd_plan_alloc(g->plan, (g->plan->ngroups + 1) * sizeof(*b.members));
	group_members(g, was, b.members);
	for (size_t i = 0; i < g->plan->ngroups; i++)
		if (has_messages(g->plan, g->plan->groups[i]))
			prepare_messages(g, g->plan->groups[i], b.members[i]);
	hd_program_bind(g, &b, err);
	return hd_comm_agree(err);
}

static int bind_all(struct hd_job *j, struct hd_err *err)
{
	const struct hd_program *first = NULL;

	for (int r = 0; r < HD_JOB_ROLES; r++) {
		if (!j->program[r])
			continue;
		HD_TRY(bind(j, j->program[r], first, err));
		first = first ? first : j->program[r];
	}
	return HD_OK;
}

/* Opens cuda if it can be used. Unless it must be used, a message gives the
 * reason if a driver is installed but cuda fails. */
static int choose_cuda(struct hd_job *j, int must, struct hd_err *err)
{
	const struct hd_device_ops *cuda = NULL;
	struct hd_err why = { 0 };
	char *text;

	if (must || hd_device_gpu_there())
		hd_device_cuda(&cuda, &why);
	hd_comm_share_devices(cuda);
	if (!cuda && !why.code)
		return HD_OK;
	if (cuda && cuda->open(j->threads, &why) >= 0)
		j->device = cuda;
	if (why.code && must)
		return hd_train_fail(j->conf, &j->train, "device", err, why.code, "%s", why.text);
	text = j->device ? cuda->describe() : hd_format("device cpu: %s", why.text);
	hd_log(HD_LOG_INFO, "%s", text);
	free(text);
	return HD_OK;
}

/* Loads the library for a device's communication, which all ranks need.
 * automatic: without it, they communicate over MPI. */
static int open_comm(struct hd_job *j, int automatic, struct hd_err *err)
{
	struct hd_err why = { 0 };

	j->device->comm->load(&why);
	hd_comm_agree(&why);
	if (why.code && !automatic)
		return hd_train_fail(j->conf, &j->train, "comm", err, why.code, "%s", why.text);
	if (why.code) {
		hd_log(HD_LOG_WARN,
		       "%s: GPUs communicate through host memory (train.comm = mpi asks for that, without this message)",
		       why.text);
		return HD_OK;
	}
	j->nccl = 1;
	return hd_comm_device(j->device->comm, err);
}

static int choose_comm(struct hd_job *j, struct hd_err *err)
{
	int nccl = j->train.comm == HD_TRANSPORT_NCCL, cuda = !hd_device_in_host(j->device),
	    ordered = j->train.rank_order;

	if (nccl && !cuda)
		return hd_train_fail(j->conf, &j->train, "comm", err, HD_ENOTSUP,
				     "nccl needs GPUs, and the device is cpu");
	if (nccl && !j->device->comm)
		return hd_train_fail(j->conf, &j->train, "comm", err, HD_ENOTSUP,
				     "nccl: the cuda device was built without NCCL");
	if (cuda && j->device->comm && !ordered && j->train.comm != HD_TRANSPORT_MPI && (j->world.size > 1 || nccl))
		return open_comm(j, !nccl, err);
	return HD_OK;
}

static int choose_device(struct hd_job *j, struct hd_err *err)
{
	if (j->train.device != HD_DEVICE_CPU)
		HD_TRY(choose_cuda(j, j->train.device == HD_DEVICE_CUDA, err));
	if (!j->device) {
		j->device = hd_device_cpu();
		return j->device->open(j->threads, err);
	}
	return HD_OK;
}

/* Refuses a job in which only some ranks have a GPU. */
static int agree_on_device(struct hd_job *j, struct hd_err *err)
{
	double cuda = !hd_device_in_host(j->device), most = hd_comm_max(cuda), least = -hd_comm_max(-cuda);

	if (most == least)
		return HD_OK;
	hd_train_fail(j->conf, &j->train, "device", err, HD_ENOTSUP,
		      "some ranks have a GPU and others do not: set cpu or cuda");
	return hd_comm_agree(err);
}

static int read_config(struct hd_job *j, struct hd_err *err)
{
	HD_TRY(hd_train_config_read(j->conf, &j->train, err));
	HD_TRY(hd_checkpoint_config_read(j->conf, &j->checkpoint, err));
	return hd_log_config_read(j->conf, &j->log, err);
}

static void close_role(struct hd_job *j, int role)
{
	hd_program_destroy(j->program[role]);
	hd_plan_destroy(j->plan[role]);
	j->program[role] = NULL;
	j->plan[role] = NULL;
}

/* Builds the program of each role. A cache needs a kernel for it, and a model that a run of only some tokens computes
 * rightly. Otherwise one program that generates from complete sequences replaces the two with a cache. */
static int build_all(struct hd_job *j, unsigned roles, struct hd_err *err)
{
	const unsigned cached = 1u << HD_JOB_PROMPT | 1u << HD_JOB_NEXT;
	const char *op;

	if (roles & cached && !j->device->kernel("attention_cached"))
		roles = (roles & ~cached) | 1u << HD_JOB_GENERATE;
	for (int r = 0; r < HD_JOB_ROLES; r++)
		if (roles >> r & 1)
			HD_TRY(build(j, r, 0, err));
	if (!(roles & cached) || !(op = j->plan[HD_JOB_NEXT]->reads_other_tokens))
		return HD_OK;
	if (j->world.rank == 0)
		hd_log(HD_LOG_INFO,
		       "generation without a cache, because an op %s of this model does not compute each token of a "
		       "sequence by itself",
		       op);
	close_role(j, HD_JOB_PROMPT);
	close_role(j, HD_JOB_NEXT);
	return build(j, HD_JOB_GENERATE, 0, err);
}

int hd_job_open(struct hd_job *j, struct hd_conf *conf, unsigned roles, const char *known_picks, struct hd_err *err)
{
	const struct hd_plan *p;

	j->conf = conf;
	read_config(j, err);
	HD_TRY(hd_comm_agree(err));
	choose_device(j, err);
	HD_TRY(hd_comm_agree(err));
	HD_TRY(agree_on_device(j, err));
	if (j->device->fixed)
		j->device->fixed(j->train.deterministic);
	j->compute_dtype = hd_precision_asked(&j->train, !hd_device_in_host(j->device));
	hd_autotune_precision(j, known_picks);
	if (j->compute_dtype && j->device->slow && j->device->slow(j->compute_dtype) && j->world.rank == 0)
		hd_log(HD_LOG_INFO, "%s", j->device->slow(j->compute_dtype));
	choose_comm(j, err);
	HD_TRY(hd_comm_agree(err));
	HD_TRY(build_all(j, roles, err));
	hd_comm_describe(hd_coords_text, hd_job_any_plan(j));
	hd_comm_watchdog(300);
	HD_TRY(memory(j, err));
	HD_TRY(bind_all(j, err));
	HD_TRY(hd_autotune(j, known_picks, err));
	p = hd_job_any_plan(j);
	j->flops_per_token = p->model_flops / (double)(p->batch * p->model.seq);
	return HD_OK;
}

int hd_job_resize(struct hd_job *j, int64_t global_batch, struct hd_err *err)
{
	struct hd_program *was = j->program[HD_JOB_TRAIN];
	struct hd_plan *old = j->plan[HD_JOB_TRAIN];
	char *picks = j->tuned;

	if (was->plan->batch * was->plan->micros == global_batch)
		return HD_OK;
	j->program[HD_JOB_TRAIN] = NULL;
	HD_TRY(build(j, HD_JOB_TRAIN, global_batch, err));
	if (j->program[HD_JOB_TRAIN]->memory.transient > j->transient_bytes)
		hd_err_set(err, HD_EBUG, "a step of %lld sequences needs %lld bytes, but %lld are available",
			   (long long)global_batch, (long long)j->program[HD_JOB_TRAIN]->memory.transient,
			   (long long)j->transient_bytes);
	if (host_bytes(j->program[HD_JOB_TRAIN]) > j->host_bytes)
		hd_err_set(err, HD_EBUG,
			   "a step of %lld sequences needs %lld bytes of host memory, but %lld are available",
			   (long long)global_batch, (long long)host_bytes(j->program[HD_JOB_TRAIN]),
			   (long long)j->host_bytes);
	HD_TRY(hd_comm_agree(err));
	HD_TRY(bind(j, j->program[HD_JOB_TRAIN], was, err));
	hd_comm_describe(hd_coords_text, hd_job_any_plan(j));
	hd_program_destroy(was);
	hd_plan_destroy(old);
	j->tuned = NULL;
	HD_TRY(hd_autotune(j, picks, err));
	free(picks);
	return HD_OK;
}

void hd_job_close(struct hd_job *j)
{
	hd_comm_describe(NULL, NULL);
	for (int r = 0; r < HD_JOB_ROLES; r++)
		close_role(j, r);
	hd_data_close(j->data);
	free(j->tuned);
	hd_conf_destroy(j->conf);
	if (j->nccl)
		j->device->comm->close();
	if (j->device && !hd_device_in_host(j->device) && j->arena)
		j->device->free(j->arena);
	if (j->host)
		j->device->free_host(j->host);
	if (j->device)
		j->device->close();
	memset(j, 0, sizeof(*j));
}
