/* SPDX-License-Identifier: Apache-2.0
 * Reverse-mode differentiation of the logical graph, before placement.  So place.c derives the communication of
 * backward, of gradient sync and of the global norm in the same way as that of forward.
 *
 * The pass visits the forward nodes, last first.  The gradient of a node's output is the sum of its readers'
 * contributions, and the op's vjp adds the nodes that compute the gradients of the inputs.  It is called twice, for
 * gradients of activations (unit B) and of parameters (unit W), so these are separate nodes.  A parameter's
 * contributions are added up over the micro-batches (op accumulate); sync, the global norm and the update follow once a
 * step.  Backward begins at the loss with loss_scale = 1 / (tokens of the global batch).  No other factor is
 * applied.
 */
#include <config.h>
#include "engine/device/device.h"
#include "engine/graph/mesh.h"
#include "engine/passes/passes.h"
#include <stdlib.h>
#include <string.h>

struct tensor_list {
	struct tensor **x;
	uint32_t n;
	size_t cap;
};

static void push(struct tensor_list *l, struct tensor *t)
{
	l->x = hd_grow(l->x, l->n, &l->cap, sizeof(*l->x));
	l->x[l->n++] = t;
}

/* Returns the sum of the contributions to a gradient.  It is computed in the block that contributed last (that of the
 * earliest reader), so that one tensor crosses a stage boundary, not each contribution. */
static struct tensor *total(struct hd_plan *p, const struct tensor_list *l)
{
	struct tensor *sum;
	uint32_t n;

	if (!l->n)
		return NULL;
	sum = l->x[0];
	p->cursor = hd_cursor_end(HD_UNIT_B, N(l->x[l->n - 1]->v.node)->block);
	for (uint32_t at = 1; at < l->n && sum; at += n - 1) { /* one addition has HD_MAX_INS inputs at most */
		struct tensor *some[HD_MAX_INS] = { sum };

		n = l->n - at + 1 < HD_MAX_INS ? l->n - at + 1 : HD_MAX_INS;
		memcpy(some + 1, l->x + at, (n - 1) * sizeof(some[0]));
		sum = hd_op1(p, "add", some, n, "%s", "");
	}
	return sum;
}

static int is_float(uint32_t dtype)
{
	return dtype >> 16 == HD_DTYPE_F32 >> 16;
}

/* Returns, by tensor id, whether a tensor depends on a parameter, so that its gradient is needed. */
static int *wants_gradient(struct hd_plan *p, size_t ntensors)
{
	int *w = hd_alloc(ntensors * sizeof(*w));

	for (size_t i = 0; i < ntensors; i++)
		w[i] = p->tensors[i]->v.what == HD_TENSOR_PARAM;
	for (struct node *n = p->first; n; n = n->next) {
		int any = 0;

		for (uint32_t i = 0; i < n->v.nin; i++)
			any |= w[n->ins[i]->id];
		for (uint32_t k = 0; k < n->v.nout; k++)
			w[n->outs[k]->id] = any && is_float(n->outs[k]->v.dtype);
	}
	return w;
}

/* The gradient of an activation has its dtype; that of a parameter is in full precision. */
static struct tensor *in_precision(struct hd_plan *p, struct tensor *g, const struct tensor *x)
{
	uint32_t dtype = hd_gradient_dtype(p, &x->v);

	return !p->compute_dtype || g->v.dtype == dtype ? g : hd_op1(p, "cast", &g, 1, "dtype=%u", dtype);
}

#define BEYOND 64 /* extra entries after the last input, to detect a plugin that writes there */

/* Checks the dtype of a gradient: contributions to one sum have the same. In low precision in_precision converts them. */
static void check_dtype(struct hd_plan *p, const struct node *n, uint32_t i, uint32_t dtype)
{
	uint32_t want = n->ins[i]->v.dtype;

	if (dtype != want && !(p->compute_dtype && is_float(dtype)))
		hd_plan_fail(p, HD_EINVAL, "%s: gradient %u is %s, but input %u is %s", n->v.op->name, i,
			     hd_dtype_name(dtype), i, hd_dtype_name(want));
}

/* Checks the gradients that a plugin's vjp returned: they must be tensors of this plan, with the dims and dtypes of
 * their inputs. */
static int check_vjp(struct hd_plan *p, const struct node *n, uint64_t want, struct hd_tensor *const *din)
{
	for (uint32_t i = n->v.nin; i < n->v.nin + BEYOND && !p->err->code; i++)
		if (din[i])
			hd_plan_fail(p, HD_EBUG, "%s: gradient %u is set, but there are %u inputs", n->v.op->name, i,
				     n->v.nin);
	for (uint32_t i = 0; i < n->v.nin && !p->err->code; i++) {
		if (!(want >> i & 1) || !din[i])
			continue;
		if (hd_handle_kind(p, din[i]) != HANDLE_TENSOR)
			hd_plan_fail(p, HD_EBUG, "%s: gradient %u is not a tensor of this plan", n->v.op->name, i);
		else if (din[i]->ndim != n->ins[i]->v.ndim ||
			 memcmp(din[i]->dims, n->ins[i]->dims, din[i]->ndim * sizeof(*din[i]->dims)))
			hd_plan_fail(p, HD_EINVAL, "%s: gradient %u is (%s), but input %u is (%s)", n->v.op->name, i,
				     din[i]->spec, i, n->ins[i]->spec);
		else
			check_dtype(p, n, i, din[i]->dtype);
	}
	return p->err->code;
}

/* Returns a node that a plugin created and that reads a result of n, or NULL. */
static struct node *plugins_reader(const struct node *n)
{
	for (uint32_t k = 0; k < n->v.nout; k++)
		for (size_t u = 0; u < n->outs[k]->nusers; u++)
			if (n->outs[k]->users[u]->made_by >= 0)
				return n->outs[k]->users[u];
	return NULL;
}

/* Reports a node that has no gradient.  For a plugin's op, the message has its section, and says what to do. */
static int not_differentiable(struct hd_plan *p, const struct node *n)
{
	const struct node *reader = plugins_reader(n);
	int who = n->inst >= 0 ? n->inst : n->made_by >= 0 ? n->made_by : reader ? reader->made_by : -1;
	struct hd_slot was = hd_slot_begin(p, n->inst, "vjp");

	if (who >= 0)
		hd_plan_mistake(p, who);
	p->about = n->made_by < 0 ? reader : NULL;
	hd_plan_fail(p, HD_ENOTSUP, "%s is not differentiable, but a gradient is needed through it%s", n->v.op->name,
		     n->inst >= 0 ? ": the op needs a slot vjp" : "");
	hd_slot_end(p, was);
	return p->err->code;
}

static int call_vjp(struct hd_plan *p, struct node *n, struct tensor **dout, uint64_t want, uint32_t phase,
		    struct tensor_list *grads)
{
	struct hd_tensor **din = hd_alloc((n->v.nin + BEYOND) * sizeof(*din));
	struct hd_slot was;
	int rc;

	if (!want) {
		free(din);
		return 0;
	}
	if (!n->v.op->vjp) {
		free(din);
		return not_differentiable(p, n);
	}
	p->cursor = hd_cursor_end(phase, n->block);
	was = hd_slot_begin(p, n->inst, "vjp");
	rc = n->v.op->vjp(n->inst >= 0 ? p->inst[n->inst].self : NULL, p, &n->v, (struct hd_tensor *const *)dout, want,
			  din);
	if (n->inst >= 0)
		rc = hd_op_slot_returned(p, n->v.op, rc);
	if (rc >= 0 && n->inst >= 0)
		rc = check_vjp(p, n, want, din);
	hd_slot_end(p, was);
	for (uint32_t i = 0; rc >= 0 && i < n->v.nin; i++)
		if (want >> i & 1 && din[i])
			push(&grads[n->ins[i]->id], in_precision(p, T(din[i]), n->ins[i]));
	free(din);
	return rc < 0 ? hd_plan_fail(p, rc, "%s: the gradient rule failed", n->v.op->name) : p->err->code;
}

/* Returns whether n is a router whose auxiliary losses have a gradient, even if a plugin has replaced its gates. */
static int has_own_loss(const struct node *n)
{
	return hd_is(n, OP_ROLE_ROUTE) && (hd_attr_num(n->attr, "aux", 0) != 0 || hd_attr_num(n->attr, "z", 0) != 0);
}

static int backward_of(struct hd_plan *p, struct node *n, const int *wants, struct tensor_list *grads)
{
	struct tensor *dout[HD_MAX_OUTS] = { NULL };
	uint64_t acts = 0, params = 0;
	int any = 0;

	p->cursor = hd_cursor_end(HD_UNIT_B, n->block);
	for (uint32_t k = 0; k < n->v.nout; k++) {
		dout[k] = total(p, &grads[n->outs[k]->id]);
		any |= dout[k] != NULL;
	}
	if (!any && !has_own_loss(n))
		return p->err->code;
	for (uint32_t i = 0; i < n->v.nin; i++)
		if (wants[n->ins[i]->id])
			*(n->ins[i]->v.what == HD_TENSOR_PARAM ? &params : &acts) |= (uint64_t)1 << i;
	HD_TRY(call_vjp(p, n, dout, acts, HD_UNIT_B, grads));
	return call_vjp(p, n, dout, params, HD_UNIT_W, grads);
}

static struct tensor *as_gradient(struct hd_plan *p, struct tensor *g, struct tensor *param)
{
	if (!g)
		return NULL;
	g->v.what = HD_TENSOR_GRAD;
	g->v.of = &param->v;
	g->v.name = hd_plan_text(p, "grad:%s", param->v.name);
	g->step = 1;
	return g;
}

/* Returns the gradient of a parameter for a step.  In each block, one accumulate node adds up all contributions.  A
 * parameter that several blocks use (a tied embedding) has an accumulator in each, perhaps on different stages.  A
 * total node adds them up where the parameter lives.  If they are all there, fuse.c makes them one accumulator. */
static struct tensor *accumulator(struct hd_plan *p, struct tensor *param, const struct tensor_list *l)
{
	struct tensor_list parts = { 0 };
	struct tensor *g;

	for (uint32_t i = 0, k; i < l->n; i = k) {
		int block = N(l->x[i]->v.node)->block;

		for (k = i + 1; k < l->n && N(l->x[k]->v.node)->block == block; k++)
			;
		push(&parts, as_gradient(p, hd_op1(p, "accumulate", l->x + i, k - i, "%s", ""), param));
	}
	g = parts.x[0];
	if (parts.n > 1) {
		push(&parts, param);
		g = as_gradient(p, hd_op1(p, "total", parts.x, parts.n, "%s", ""), param);
	}
	free(parts.x);
	return g;
}

static struct tensor *state(struct hd_plan *p, struct tensor *param, const char *suffix)
{
	struct tensor *s = hd_tensor_new(p, hd_plan_text(p, "%s.%s", param->v.name, suffix), HD_TENSOR_STATE,
					 p->master_dtype, param->dims, param->v.ndim);

	s->v.of = &param->v;
	s->step = 1;
	s->init = HD_INIT_ZERO;
	return s;
}

/* Moves the gradient to where the update runs: with the optimizer's state, or with the parameter. */
static struct tensor *sync(struct hd_plan *p, struct tensor *g, struct tensor *lives)
{
	struct tensor *ins[] = { g, lives }, *y = hd_op1(p, "sync", ins, 2, "%s", "");

	if (y) {
		hd_tensor_inherit(y, g);
		y->step = 1;
	}
	return y;
}

static struct tensor *full_of(struct tensor *w)
{
	return w->master ? w->master : w;
}

static int is_of(const struct hd_plan *p, const struct hd_tensor *t)
{
	size_t i = p->ntensors;

	while (i && &p->tensors[i - 1]->v != t)
		i--;
	return i > 0;
}

/* Lets a plugin's optimizer build the update; the parameter takes its result. */
static int update_by_plugin(struct hd_plan *p, struct tensor *w, struct tensor *g)
{
	struct tensor *full = full_of(w), *v;
	struct hd_tensor *value = NULL;
	const struct hd_update u = { .size = sizeof(u),
				     .h = p->host,
				     .name = w->v.name,
				     .param = &full->v,
				     .gradient = &g->v,
				     .factor = &p->factor->v,
				     .weight_decay = w->decay ? p->config.weight_decay : 0 };
	struct hd_slot was = hd_slot_begin(p, (int)(p->optimizer - p->inst), "update");

	p->cursor = hd_cursor_end(HD_UNIT_U, -1); /* each call begins with every(1) */
	hd_slot_returned(p, p->optimizer->plugin->optimizer->update(p->optimizer->self, p, &u, &value));
	if (value && !p->err->code && !is_of(p, value))
		hd_plan_fail(p, HD_EINVAL, "update of %s: the new value is not a tensor of this plan", w->v.name);
	if (!p->err->code && (!value || value->dtype != full->v.dtype || value->ndim != full->v.ndim ||
			      memcmp(T(value)->dims, full->dims, full->v.ndim * sizeof(full->dims[0]))))
		hd_plan_fail(p, HD_EINVAL, "update of %s (%s): the new value is %s%s%s", w->v.name, full->spec,
			     value ? "(" : "missing", value ? value->spec : "",
			     !value                          ? ""
			     : value->dtype == full->v.dtype ? ")"
							     : "), of another dtype");
	hd_slot_end(p, was);
	p->cursor = hd_cursor_end(HD_UNIT_U, -1);
	if (p->err->code)
		return p->err->code;
	v = T(value);
	if (!v->v.node && v != full) /* a state that may take the parameter's old value in exchange */
		v = hd_map_new(p, &v, 1, "a");
	if (!v)
		return p->err->code;
	hd_assign(full, v);
	if (w->master)
		hd_assign(w, hd_op1(p, "cast", &v, 1, "dtype=%u", w->v.dtype));
	return p->err->code;
}

static int update(struct hd_plan *p, struct tensor *w, struct tensor *g, struct tensor *m)
{
	const struct hd_train_config *t = &p->config;
	double decay = w->decay ? t->weight_decay : 0;
	struct tensor *full = full_of(w);
	int rounds = w->master && w->v.dtype != full->v.dtype;
	const char *low = rounds ? " low=1" : "";
	struct node *n;

	if (p->optimizer)
		return update_by_plugin(p, w, g);
	if (!m) {
		struct tensor *ins[] = { full, g, p->factor };

		n = hd_node_make(p, "sgd", ins, 3, "decay=%.17g%s", decay, low);
		hd_assign(full, n ? n->outs[0] : NULL);
		if (n && w->master)
			hd_assign(w, n->outs[rounds]);
		return p->err->code;
	}
	struct tensor *ins[] = { full, g, m, state(p, w, "v"), p->factor };

	n = hd_node_make(p, "adamw", ins, 5, "beta1=%.17g beta2=%.17g eps=%.17g decay=%.17g%s", t->beta1, t->beta2,
			 t->eps, decay, low);
	for (int i = 0; n && i < 3; i++)
		hd_assign(ins[i == 0 ? 0 : i + 1], n->outs[i]);
	if (n && w->master)
		hd_assign(w, n->outs[rounds ? 3 : 0]);
	return p->err->code;
}

/* Updates the bias of a router by the step's load of its experts, if the model asks for it. */
static void balance(struct hd_plan *p, const struct node *route, struct tensor *sums)
{
	struct tensor *in[2] = { route->v.nin > 1 ? route->ins[1] : NULL, sums };

	if (in[0] && in[1] && p->model.router_bias_rate > 0)
		hd_assign(in[0], hd_op1(p, "route_bias", in, 2, "rate=%.17g", p->model.router_bias_rate));
}

/* If ranks hold no model (servers), states can be there.  So each parameter gets a master, which the update changes
 * instead. */
static int masters_on_spare(struct hd_plan *p, const struct tensor_list *grads, size_t nleaves)
{
	const struct axis *a = hd_spare_axis(p);

	if (!a)
		return HD_OK;
	if (p->optimizer)
		return hd_plan_fail(
			p, HD_ENOTSUP,
			"[strategy %s] has %lld servers, but train.optimizer = %s comes from a plugin: servers "
			"update with adamw or sgd",
			p->inst[a->inst].name, (long long)a->v.spare, p->optimizer->name);
	for (size_t i = 0; i < nleaves; i++)
		if (p->tensors[i]->v.what == HD_TENSOR_PARAM && grads[i].n && !p->tensors[i]->master)
			hd_master_new(p, p->tensors[i]);
	return p->err->code;
}

/* Adds what runs once a step: accumulators, global norm and update; and the sum of the losses. */
static int step_nodes(struct hd_plan *p, struct tensor_list *grads, size_t nleaves)
{
	struct tensor_list w = { 0 }, g = { 0 }, m = { 0 };
	struct node *clip;
	struct tensor *s;

	HD_TRY(masters_on_spare(p, grads, nleaves));
	p->cursor = hd_cursor_end(HD_UNIT_S, -1);
	for (size_t i = 0; i < nleaves; i++)
		if (p->tensors[i]->v.what == HD_TENSOR_PARAM && grads[i].n) {
			struct tensor *acc = accumulator(p, p->tensors[i], &grads[i]);

			push(&w, p->tensors[i]);
			push(&m, p->config.adamw ? state(p, p->tensors[i], "m") : NULL);
			push(&g, acc ? sync(p, acc, p->config.adamw ? m.x[m.n - 1] : full_of(p->tensors[i])) : NULL);
		}
	p->loss = hd_op1(p, "accumulate", &p->loss, 1, "%s", "");
	for (size_t i = 0; i < p->nmoe_stats; i++)
		p->moe_stats[i] = hd_op1(p, "accumulate", &p->moe_stats[i], 1, "%s", "");
	p->cursor = hd_cursor_end(HD_UNIT_U, -1);
	s = hd_op1(p, "norm2", g.x, g.n, "%s", "");
	clip = s ? hd_node_make(p, "clip", &s, 1, "clip=%.17g", p->config.clip) : NULL;
	if (!clip)
		return p->err->code;
	p->factor = clip->outs[0];
	p->norm = clip->outs[1];
	for (uint32_t i = 0; i < w.n; i++)
		HD_TRY(update(p, w.x[i], g.x[i], m.x[i]));
	for (size_t i = 0; i < p->nmoe_stats && !p->err->code; i++)
		balance(p, N(N(p->moe_stats[i]->v.node)->ins[0]->v.node), p->moe_stats[i]);
	free(m.x);
	free(w.x);
	free(g.x);
	return p->err->code;
}

/* Returns the tensor with which backward begins.  It is the loss that a step reports, which a slot rewrite may have
 * changed.  But if that is a sum, it is the operand of the sum: all terms have the same gradient, so backward need not
 * wait for the sum. */
static struct tensor *summed(const struct hd_plan *p)
{
	struct node *n = hd_maker(p->loss);

	return hd_is(n, OP_ROLE_SUM) ? n->ins[0] : p->loss;
}

static int is_sum_of_losses(const struct hd_plan *p)
{
	return summed(p) == p->nll && hd_is(hd_maker(p->nll), OP_ROLE_NLL);
}

int hd_pass_autodiff(struct hd_plan *p)
{
	size_t nforward = p->ntensors;
	int *wants = wants_gradient(p, nforward), rc = 0;
	struct tensor_list *grads = hd_alloc(nforward * sizeof(*grads));
	struct tensor *from = summed(p);
	struct node *n, *last = p->last;

	p->own_loss = !is_sum_of_losses(p);
	p->cursor = hd_cursor_end(HD_UNIT_B, N(from->v.node)->block);
	push(&grads[from->id], hd_op1(p, "fill", &from, 1, "value=1 loss_scale=1"));
	for (n = last; n && !rc; n = n->prev)
		rc = backward_of(p, n, wants, grads);
	if (!rc)
		rc = step_nodes(p, grads, nforward);
	for (size_t i = 0; i < nforward; i++)
		free(grads[i].x);
	free(grads);
	free(wants);
	return rc;
}

/* -- updates in host memory ----------------------------------------------------------------------------------------------- */
/* The optimizer in the host's memory (ZeRO-Offload, Ren et al. 2021, 2101.06840).  If slot storage has put a
 * parameter's states there, a master is with them, and the host's kernels run the update there.
 *
 *   sync ─▶ to_host ─▶ update ─▶ to_device ─▶ the parameter
 *
 * to_host comes directly after the gradient's last sum, so it is in flight while backward continues.  to_device comes
 * after the update, so the values of one parameter are copied to the device while the next is updated. */
static int is_in_host(const struct tensor *t)
{
	return !t->v.node && t->v.space == HD_SPACE_HOST;
}

static int updates_in_host(const struct node *n)
{
	int yes = 0;

	for (uint32_t i = 0; n->is->role == OP_ROLE_UPDATE && i < n->v.nin; i++)
		yes |= is_in_host(n->ins[i]);
	return yes;
}

/* Copies x to the other memory.  of: the parameter that it belongs to, or NULL. */
static struct tensor *moved(struct hd_plan *p, struct tensor *x, const struct tensor *of, const char *op,
			    struct cursor at, const char *why)
{
	struct tensor *y;

	p->cursor = hd_cursor_why(at, hd_plan_text(p, "%s", why));
	y = hd_op1(p, op, &x, 1, "%s", "");
	if (y) {
		y->step = 1;
		y->v.of = of ? &of->v : NULL;
		y->v.space = x->v.space == HD_SPACE_HOST ? HD_SPACE_DEVICE : HD_SPACE_HOST;
	}
	return y;
}

/* Returns the master, which the update reads and writes instead of the parameter; creates it if there is none. */
static struct tensor *master_of(struct hd_plan *p, struct node *n, struct tensor *w)
{
	struct tensor *m;

	if (w->master)
		return w->master;
	m = hd_master_new(p, w);
	hd_placed_like(m, w);
	hd_localize(p, m);
	hd_set_input(p, n, 0, m);
	hd_assign(m, n->outs[0]);
	return m;
}

/* Moves one update to host memory.  factor: the clip factor in host memory, copied there once for all updates. */
static int offload(struct hd_plan *p, struct node *n, struct tensor **factor)
{
	struct tensor *full = n->ins[0], *w = full->v.what == HD_TENSOR_MASTER ? T(full->v.of) : full;

	master_of(p, n, w);
	if (!*factor)
		*factor = moved(p, n->ins[n->v.nin - 1], NULL, "to_host",
				hd_cursor_after(N(n->ins[n->v.nin - 1]->v.node)), "the update runs in host memory");
	for (uint32_t i = 0; i < n->v.nin && !p->err->code; i++) {
		struct tensor *x = n->ins[i], *y = *factor;

		if (!x->v.node) {
			x->v.space = HD_SPACE_HOST;
			continue;
		}
		if (i + 1 < n->v.nin)
			y = moved(p, x, w, "to_host", hd_cursor_after(N(x->v.node)), "its states are in host memory");
		if (y)
			hd_set_input(p, n, i, y);
	}
	for (uint32_t k = 0; k < n->v.nout; k++)
		n->outs[k]->v.space = HD_SPACE_HOST;
	hd_assign(w, moved(p, w->assign, w, "to_device", hd_cursor_after(n), "updated in host memory"));
	return p->err->code;
}

int hd_pass_offload(struct hd_plan *p)
{
	struct tensor *factor = NULL;
	struct node *next;

	for (struct node *n = p->first; n && p->own_memory && !p->err->code; n = next) {
		next = n->next;
		if (updates_in_host(n))
			offload(p, n, &factor);
	}
	return p->err->code;
}
