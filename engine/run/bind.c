/* SPDX-License-Identifier: Apache-2.0
 * Binds a program to memory: the result is a flat list of commands with every address resolved. Nothing is allocated
 * afterwards.
 */
#include <config.h>
#include "engine/run/commands.h"
#include "engine/graph/traffic.h"
#include "engine/ops/movement.h"
#include "engine/plugin/kernel.h"
#include <stdlib.h>
#include <string.h>

struct waiting_calls {
	int64_t *v;
	size_t n, cap;
};

/* The state while commands are appended. */
struct binding {
	struct hd_program *g;
	char *written;             /* by tensor id: whether the accumulator has been written */
	const struct node *broken; /* a node whose kernel writes in the way it was told it never would; NULL: none */
	char *staging;             /* free staging memory begins here; NULL: movements reach the tensors directly */
	int64_t requests;          /* number of calls so far */
	const struct entry **call; /* by request: the entry that made the call */
	struct hd_err *err;        /* why a call is refused, with the code `refused`; 0: none is */
	int refused;
};

static struct command *append(struct hd_program *g, int type, const struct entry *e)
{
	struct command *c;

	g->commands = hd_grow(g->commands, g->ncommands, &g->cap_commands, sizeof(*g->commands));
	c = &g->commands[g->ncommands++];
	*c = (struct command){ .type = type,
			       .micro = e ? e->micro : HD_STEP,
			       .unit = e ? e->unit : (struct hd_schedule_unit){ HD_UNIT_U, 0, HD_STEP },
			       .name = e && e->node ? e->node->v.op->name : "load",
			       .gathers = e && e->node && e->node->v.phase == HD_UNIT_G,
			       .period = e && e->node ? e->node->period : 0,
			       .node = e ? e->node : NULL };
	return c;
}

static void resolve(struct hd_program *g, struct tensor *const *t, uint32_t n, int64_t micro, void **to)
{
	for (uint32_t i = 0; i < n; i++)
		to[i] = hd_program_address(g, t[i], micro);
}

static void run_launch(struct binding *b, const struct entry *e, const struct launch *l)
{
	struct hd_program *g = b->g;
	struct command *c = append(g, CMD_RUN, e);

	c->kernel = l->kernel;
	c->prep = &l->prep;
	c->launch = l;
	c->on_host = e->node->v.nout && e->node->outs[0]->v.space == HD_SPACE_HOST;
	c->out = hd_plan_alloc(g->plan, (l->nin + l->nout + 1) * sizeof(void *));
	c->in = c->out + l->nout;
	resolve(g, l->out, l->nout, e->micro, c->out);
	resolve(g, l->in, l->nin, e->micro, c->in);
	for (uint32_t i = 0; l->rows && i < e->node->v.nin + e->node->v.nout && !c->rows_most; i++) {
		const struct tensor *t = i < e->node->v.nin ? e->node->ins[i] : e->node->outs[i - e->node->v.nin];

		c->rows_most = t->ragged_counts ? hd_ragged_max(t) : 0;
	}
	if (c->rows_most) {
		c->rows = hd_program_address(g, l->rows, e->micro);
		c->nrows = hd_local_count(l->rows);
	}
	c->acc = l->acc;
	if (l->acc < 0) {
		c->acc = b->written[l->target->id];
		b->written[l->target->id] = 1;
	}
	if (l->never & (c->acc ? HD_NEVER_ADDS : HD_NEVER_OVERWRITES))
		b->broken = e->node;
}

/* Describes the rows of a movement between samples and experts. The rank that
 * moves them reads their counts in host memory. */
static void describe_rows(struct binding *b, const struct node *n, int64_t micro, struct command *c)
{
	struct hd_program *g = b->g;
	struct hd_rows *r = hd_plan_alloc(g->plan, sizeof(*r));
	const struct tensor *many = n->ins[n->comm.index ? 1 : 2]; /* counts for all experts: (expert, batch) */

	r->have = hd_program_address(g, n->ins[1], micro);
	r->need = hd_program_address(g, n->ins[2], micro);
	r->experts = many->local[0] / n->comm.group->v.n;
	r->samples = many->local[1];
	r->ncounts = hd_local_count(many);
	r->most = hd_ragged_max(n->outs[0]);
	r->bytes = hd_ragged_row_elements(n->ins[0]) * HD_BITS(n->ins[0]->v.dtype) / 8;
	if (!hd_in_host(g))
		b->staging = hd_stage_rows(g, c, r, n, hd_local_count(many), b->staging);
	c->call.rows = r;
	hd_comm_rows_reserve(g->members[n->comm.group->id], r->experts);
}

static void start_comm(struct binding *b, const struct entry *e)
{
	struct hd_program *g = b->g;
	struct command *c = append(g, CMD_START, e);
	struct node *n = e->node;
	const struct tensor *x = n->ins[0];
	int64_t count = hd_comm_node_count(n);

	if (HD_BITS(x->v.dtype) < 8)
		count = (count + 7) / 8;
	c->members = g->members[n->comm.group->id];
	c->call = (struct hd_call){ .kind = n->comm.kind,
				    .dtype = HD_BITS(x->v.dtype) < 8 ? HD_DTYPE_U8 : x->v.dtype,
				    .index = (int32_t)n->comm.index,
				    .mul = n->comm.mul,
				    .workers = hd_comm_workers(n),
				    .count = count,
				    .wire = n->comm.wire,
				    .fixed = (uint32_t)g->fixed_order };
	if (n->comm.kind != HD_COMM_RECV && g->at[x->id].here &&
	    !(n->comm.kind == HD_COMM_BROADCAST && hd_communicator_me(c->members) != n->comm.index))
		c->call.in = hd_program_address(g, x, e->micro);
	if (n->comm.kind != HD_COMM_SEND && g->at[n->outs[0]->id].here)
		c->call.out = hd_program_address(g, n->outs[0], e->micro);
	if (n->comm.kind == HD_COMM_ALL_TO_ALL_V)
		describe_rows(b, n, e->micro, c);
	c->call.what = hd_plan_text(g->plan, "%s of %s (%s)%s%s", hd_comm_kind_name(n->comm.kind),
				    hd_comm_node_subject_name(n), hd_comm_node_subject(n)->v.spec,
				    n->v.block[0] ? " in " : "", n->v.block);
	if (n->comm.kind >= HD_COMM_SEND)
		c->call.channel = hd_message_channel(n);
	c->name = hd_comm_kind_name(n->comm.kind);
	c->request = b->requests;
	if (!b->refused)
		b->refused = hd_comm_check(c->members, &c->call, b->err);
	if (b->staging)
		b->staging = hd_stage_call(g, c, n, b->staging);
}

/* Starts a copy between the device's memory and the host's. */
static void start_transfer(struct binding *b, const struct entry *e)
{
	struct hd_program *g = b->g;
	struct command *c = append(g, CMD_TRANSFER, e);
	const struct tensor *x = e->node->ins[0], *y = e->node->outs[0];

	c->request = b->requests;
	c->call.in = hd_program_address(g, x, e->micro);
	c->call.out = hd_program_address(g, y, e->micro);
	c->call.index = y->v.space == HD_SPACE_HOST;
	c->call.what = hd_plan_text(g->plan, "%s of %s (%s)", e->node->v.op->name,
				    y->v.of ? y->v.of->name : "the factor of clipping", x->spec);
	c->bytes = (size_t)hd_local_bytes(x);
	g->staged_results[b->requests] = (struct staged_result){ .transfer = 1 };
}

/* Appends the waits that come before an entry, or at the end if it is NULL. */
static void append_waits(struct binding *b, struct waiting_calls *w, const struct entry *before)
{
	for (size_t i = 0; i < w->n; i++) {
		struct command *c = append(b->g, CMD_WAIT, before);

		c->node = NULL;
		c->request = w->v[i];
		c->micro = b->call[c->request]->micro;
		c->gathers = b->call[c->request]->node->v.phase == HD_UNIT_G;
		c->period = b->call[c->request]->node->period;
		c->name = "wait";
	}
}

static int copy_to(struct hd_program *g, const struct hd_bind *b, const struct tensor *t, const struct tensor *v,
		   struct hd_err *err)
{
	struct hd_view view[2] = { { .dtype = t->v.dtype, .ndim = t->v.ndim },
				   { .dtype = t->v.dtype, .ndim = t->v.ndim } };
	struct hd_kernel_desc d = { "", 1, 1, &view[0], &view[1], HD_NEVER_ADDS };
	struct hd_prep *prep = hd_plan_alloc(g->plan, sizeof(*prep));
	struct command *c;

	for (uint32_t k = 0; k < t->v.ndim; k++) {
		view[0].dims[k] = view[1].dims[k] = t->dims[k];
		view[0].n[k] = view[1].n[k] = t->local[k];
	}
	c = append(g, CMD_RUN, NULL);
	c->kernel = b->device->kernel("copy");
	c->name = "copy";
	c->period = v->v.node ? N(v->v.node)->period : 0;
	c->prep = prep;
	c->out = hd_plan_alloc(g->plan, 2 * sizeof(void *));
	c->in = c->out + 1;
	c->out[0] = hd_program_address(g, t, HD_STEP);
	c->in[0] = hd_program_address(g, v, HD_STEP);
	return c->kernel->prepare(&d, prep, err);
}

/* Copies of new values into leaves that are still to be appended. */
struct leaf_copies {
	struct {
		struct tensor *to, *from;
	} * v;
	size_t n;
	uint32_t *reads;  /* by tensor: the copies that read this leaf */
	uint32_t *writes; /* by tensor: the copies into this leaf that come before its value of some steps (`then`) */
};

/* Returns the other leaf whose bytes copy i reads, or NULL. */
static const struct tensor *read_leaf(const struct hd_program *g, const struct leaf_copies *c, size_t i)
{
	const struct tensor *root = g->at[c->v[i].from->id].root;

	return root->v.node ? NULL : root;
}

static int must_wait(const struct leaf_copies *c, size_t i)
{
	const struct tensor *to = c->v[i].to;

	return c->reads[to->id] || (c->v[i].from == to->then && c->writes[to->id]);
}

static void add_copy(const struct hd_program *g, struct leaf_copies *c, struct tensor *t, struct tensor *v)
{
	const struct tensor *leaf;

	if (t->v.node || !v || !hd_tensor_here(g, t) || g->at[v->id].root == t)
		return;
	c->v[c->n].to = t;
	c->v[c->n].from = v;
	leaf = read_leaf(g, c, c->n++);
	if (leaf)
		c->reads[leaf->id]++;
	c->writes[t->id] += v == t->assign;
}

/* Appends the copies that need not wait for others. Returns how many remain, or an error. */
static int append_copies(struct hd_program *g, const struct hd_bind *b, struct leaf_copies *c, struct hd_err *err)
{
	size_t left = 0;

	for (size_t i = 0; i < c->n; i++) {
		const struct tensor *leaf = read_leaf(g, c, i);

		if (must_wait(c, i)) {
			c->v[left++] = c->v[i];
			continue;
		}
		HD_TRY(copy_to(g, b, c->v[i].to, c->v[i].from, err));
		if (leaf)
			c->reads[leaf->id]--;
		c->writes[c->v[i].to->id] -= c->v[i].from == c->v[i].to->assign;
	}
	c->n = left;
	return (int)left;
}

/* Copies the new values of leaves where the update could not write them in place. If such a value is the old value of
 * another leaf, it is copied before that leaf changes. Values of only some steps (`then`) come last. */
static int copy_leaves(struct hd_program *g, const struct hd_bind *b, struct hd_err *err)
{
	const struct hd_plan *p = g->plan;
	struct leaf_copies c = { .v = hd_alloc((2 * p->ntensors + 1) * sizeof(*c.v)),
				 .reads = hd_alloc((p->ntensors + 1) * sizeof(*c.reads)),
				 .writes = hd_alloc((p->ntensors + 1) * sizeof(*c.writes)) };
	int left = 1;

	for (int k = 0; k < 2; k++)
		for (size_t i = 0; i < p->ntensors; i++)
			add_copy(g, &c, p->tensors[i], k ? p->tensors[i]->then : p->tensors[i]->assign);
	for (size_t before = c.n + 1; left > 0 && c.n < before;) {
		before = c.n;
		left = append_copies(g, b, &c, err);
	}
	if (left > 0)
		left = hd_err_set(err, HD_ENOTSUP,
				  "%s and other states exchange their values: assign them a map, \"a\"",
				  c.v[0].to->v.name);
	free(c.v), free(c.reads), free(c.writes);
	return left;
}

static void append_entry(struct binding *b, const struct entry *e)
{
	struct hd_program *g = b->g;
	const struct launches *l;
	struct command *c;

	if (e->type == HD_ENTRY_LOAD) {
		c = append(g, CMD_LOAD, e);
		c->data = e->data;
		c->out = hd_plan_alloc(g->plan, sizeof(void *));
		c->out[0] = hd_program_address(g, e->data, e->micro);
		c->bytes = (size_t)hd_local_bytes(e->data);
		return;
	}
	l = &g->launches[e->node->id];
	if (e->type == HD_ENTRY_ACC) {
		if (g->at[e->node->ins[e->input]->id].root != g->at[e->node->outs[0]->id].root)
			run_launch(b, e, &l->v[e->input]);
		return;
	}
	if (e->node->comm.kind)
		start_comm(b, e);
	else if (e->node->is->role == OP_ROLE_TRANSFER)
		start_transfer(b, e);
	else if (e->node->is->role != OP_ROLE_ACCUMULATE)
		for (size_t i = 0; i < l->n; i++)
			run_launch(b, e, &l->v[i]);
}

/* Returns whether all runs that include a include b. A forward program may leave out its last micro-batches, and
 * unit G. */
static int run_together(const struct hd_program *g, const struct command *a, const struct command *b)
{
	return g->plan->train || (a->micro == b->micro && a->gathers == b->gathers);
}

/* Joins adjacent launches of one kernel if the kernel can run them as one. */
static void join_commands(struct hd_program *g)
{
	struct hd_joint *l = hd_alloc((g->ncommands + 1) * sizeof(*l));

	for (size_t i = 0, to; i < g->ncommands; i = to) {
		const struct command *c = &g->commands[i];
		const struct hd_kernel *k = c->type == CMD_RUN && !c->period && !c->on_host ? c->kernel : NULL;
		void *state;

		for (to = i + 1; k && to < g->ncommands && to != g->update_at && g->commands[to].type == CMD_RUN &&
				 !g->commands[to].period && g->commands[to].kernel == k &&
				 run_together(g, c, &g->commands[to]);)
			to++;
		if (!k || !k->join || to - i < 2)
			continue;
		for (size_t j = i; j < to; j++)
			l[j - i] = (struct hd_joint){ g->commands[j].prep, g->commands[j].out, g->commands[j].in,
						      g->commands[j].acc };
		state = k->join(l, to - i);
		if (!state)
			continue;
		g->joined = hd_grow(g->joined, g->njoined, &g->cap_joined, sizeof(*g->joined));
		g->joined[g->njoined++] = (struct joined){ i, to, state };
	}
	free(l);
}

/* Finds the runs of kernels that a device can record and replay as one. */
static void find_runs(struct hd_program *g)
{
	g->recordings = hd_plan_alloc(g->plan, (g->ncommands + 1) * sizeof(*g->recordings));
	for (size_t i = 0; i < g->ncommands; i++) {
		struct recording *r = g->nrecordings ? &g->recordings[g->nrecordings - 1] : NULL;

		int recordable = g->commands[i].type == CMD_RUN && !g->commands[i].period && !g->commands[i].on_host;

		if (recordable && r && r->to == i && i != g->update_at &&
		    run_together(g, &g->commands[r->from], &g->commands[i]))
			r->to++;
		else if (recordable)
			g->recordings[g->nrecordings++] = (struct recording){ .from = i, .to = i + 1 };
	}
}

/* Releases the prepared kernels. The program itself is released in engine/program/program.c. */
static void release_launches(struct hd_program *g)
{
	for (int i = 0; g->launches && i <= g->plan->nnodes; i++) {
		for (size_t k = 0; k < g->launches[i].n; k++)
			if (g->launches[i].v[k].prep.release)
				g->launches[i].v[k].prep.release(g->launches[i].v[k].prep.state);
		free(g->launches[i].v);
	}
	free(g->launches);
	g->launches = NULL;
}

static void release(struct hd_program *g)
{
	release_launches(g);
	for (size_t i = 0; i < g->nrecordings; i++)
		if (g->recordings[i].replay)
			g->device->forget(g->recordings[i].replay);
	for (size_t i = 0; i < g->njoined; i++)
		g->commands[g->joined[i].from].kernel->unjoin(g->joined[i].state);
	free(g->joined);
	if (g->host)
		g->device->free_host(g->host);
	hd_host_copies_destroy(g);
	free(g->commands);
}

/* Returns whether the node changes a leaf. An update does, and so does an optimizer of a
 * plugin that computes in the leaf's own memory. */
static int changes_a_leaf(const struct hd_program *g, const struct node *n)
{
	int changes = n->in_update;

	for (uint32_t k = 0; k < n->v.nout && n->v.phase == HD_UNIT_U; k++)
		changes |= !g->at[n->outs[k]->id].root->v.node;
	return changes;
}

static size_t find_update(const struct hd_program *g)
{
	size_t at = 0;

	while (at < g->ncommands && !(g->commands[at].node && changes_a_leaf(g, g->commands[at].node)))
		at++;
	return at;
}

/* Appends the commands of all entries, with each wait before the entry that needs it. */
static void append_entries(struct binding *b)
{
	struct hd_program *g = b->g;
	struct waiting_calls *w = hd_alloc((g->n + 1) * sizeof(*w));

	for (size_t e = 0; e < g->n; e++) {
		const struct entry *entry = &g->entries[e];

		append_waits(b, &w[e], entry);
		if (entry->wait >= 0) {
			struct waiting_calls *at = &w[entry->wait];

			at->v = hd_grow(at->v, at->n, &at->cap, sizeof(*at->v));
			at->v[at->n++] = b->requests;
			b->call[b->requests] = entry;
		}
		append_entry(b, entry);
		b->requests += entry->wait >= 0;
	}
	append_waits(b, &w[g->n], NULL);
	for (size_t e = 0; e <= g->n; e++)
		free(w[e].v);
	free(w);
}

/* -- memory of kernels -------------------------------------------------------------------------------- */
static int is_counted(const struct hd_tables_counted *a, uint64_t same)
{
	for (size_t i = 0; i < a->n; i++)
		if (a->v[i] == same)
			return 1;
	return 0;
}

void hd_ask_kernel(struct program_memory *m, struct hd_tables_counted *counted, const struct hd_kernel *k,
		   const struct hd_kernel_desc *d, int threads)
{
	int64_t bytes = k->scratch ? k->scratch(d, threads) : 0;
	uint64_t same = 0;

	if (bytes > m->scratch)
		m->scratch = bytes;
	bytes = k->kept ? k->kept(d, &same) : 0;
	if (!bytes || is_counted(counted, same))
		return;
	counted->v = hd_grow(counted->v, counted->n, &counted->cap, sizeof(*counted->v));
	counted->v[counted->n++] = same;
	m->kept += bytes;
}

int hd_ask_plugin_kernel(struct program_memory *m, const struct hd_kernel_ops *k, const struct hd_kernel_owner *o,
			 const struct hd_kernel_desc *d, struct hd_err *err)
{
	struct hd_kernel_bytes bytes;

	HD_TRY(hd_plugin_kernel_bytes(k, o, d, &bytes, err));
	m->plugin_kept += bytes.kept;
	if (bytes.scratch > m->plugin_scratch)
		m->plugin_scratch = bytes.scratch;
	return HD_OK;
}

int64_t hd_program_plugin_bytes(const struct hd_program *g)
{
	int64_t kept = 0, most = 0;

	for (int i = 0; g->launches && i <= g->plan->nnodes; i++)
		for (size_t k = 0; k < g->launches[i].n; k++)
			if (g->launches[i].v[k].kernel == &hd_plugin_kernel) {
				struct hd_kernel_bytes b = hd_plugin_kernel_takes(&g->launches[i].v[k].prep);

				kept += b.kept;
				most = b.scratch > most ? b.scratch : most;
			}
	return kept + most;
}

static int try_rank(struct hd_program *g, const struct hd_device_ops *device, int64_t rank, struct hd_err *err)
{
	const struct hd_bind dry = { .device = device, .dry = 1 };
	int64_t was = g->rank;
	int rc;

	release_launches(g);
	g->rank = rank;
	rc = hd_pass_record(g, &dry, err);
	g->rank = was;
	return rc;
}

int hd_program_record(struct hd_program *g, const struct hd_device_ops *device, int threads, struct hd_err *err)
{
	const struct hd_bind dry = { .device = device, .threads = threads, .dry = 1 };

	g->release = release;
	release_launches(g);
	return hd_pass_record(g, &dry, err);
}

int hd_program_scratch(struct hd_program *g, const struct hd_device_ops *device, int threads, struct hd_err *err)
{
	const struct hd_bind ask = { .device = device, .threads = threads, .asks = 1 };
	int rc;

	if (device->fixed)
		device->fixed(g->plan->config.deterministic);
	g->memory.scratch = g->memory.kept = g->memory.plugin_scratch = g->memory.plugin_kept = 0;
	rc = hd_pass_record(g, &ask, err);
	release_launches(g);
	return rc;
}

int hd_program_try(struct hd_program *g, const struct hd_device_ops *device, const struct hd_classes *c,
		   int64_t class_number, struct hd_err *err)
{
	uint32_t others;

	g->release = release;
	g->asked_axes = 0;
	HD_TRY(try_rank(g, device, g->rank, err));
	others = g->asked_axes & ~c->axes;
	for (int64_t i = c->first[class_number]; g->asked_axes && i < c->nranks; i++)
		for (int64_t k = 0; c->of[i] == class_number && k < hd_coords_count(g->plan, others); k++)
			HD_TRY(try_rank(g, device, c->ranks[i] + hd_coords_rank(g->plan, others, k), err));
	return HD_OK;
}

int hd_program_bind(struct hd_program *g, const struct hd_bind *bind, struct hd_err *err)
{
	struct binding b = { .g = g, .err = err, .staging = bind->staging };

	g->release = release;
	g->persistent = bind->persistent;
	g->transient = bind->transient;
	g->host_persistent = bind->host;
	g->host_transient = bind->host ? bind->host + (g->memory.host_persistent + 4095) / 4096 * 4096 : NULL;
	g->members = bind->members;
	g->staged_results = hd_plan_alloc(g->plan, (g->n + 1) * sizeof(*g->staged_results));
	g->copies = hd_host_copies_create();
	HD_TRY(hd_pass_record(g, bind, err));
	b.written = hd_alloc(g->plan->ntensors + 1);
	b.call = hd_alloc((g->n + 1) * sizeof(*b.call));
	append_entries(&b);
	free(b.written), free(b.call);
	if (b.broken)
		return hd_err_set(err, HD_EBUG, "%s of %s: its kernel was prepared for a different way to write",
				  b.broken->v.op->name, b.broken->v.block);
	HD_TRY(b.refused);
	g->requests = hd_plan_alloc(g->plan, (size_t)(b.requests + 1) * sizeof(*g->requests));
	g->update_at = find_update(g);
	HD_TRY(copy_leaves(g, bind, err));
	if (!hd_in_host(g)) {
		HD_TRY(hd_stage_loads(g, err));
		find_runs(g);
	}
	join_commands(g);
	return HD_OK;
}
