/* SPDX-License-Identifier: Apache-2.0
 * A model that a plugin's serial definition trains. One rank computes the gradients of all members, one member after
 * another. The definition computes the new parameters from them.
 */
#include <config.h>
#include "engine/conform/parts/parts.h"
#include "engine/plugin/turn.h"
#include <stdlib.h>
#include <string.h>

#define MOST_KEPT (INT64_C(1) << 30)

/* A state that update keeps for a parameter, by name. */
struct serial_kept {
	struct serial_kept *next;
	char *name;
	int64_t n;
	double *x;
};

struct serial_served {
	struct serial_param p;
	const struct tensor *t;        /* a tensor of `alone` */
	double **weights, **gradients; /* per member */
	struct serial_kept *kept;
};

struct serial_model {
	const struct hd_inprocess *layout;
	struct hd_inprocess *alone;
	const struct inst *of; /* the tested plugin's section */
	double lr;
	int64_t members;
	struct serial_served *all;
	size_t n;
};

/* The argument of update. view must be first: state and initial get its address. */
struct serial_call {
	struct hd_serial view;
	struct serial_model *m;
	struct serial_served *of;
};

static double *state(const struct hd_serial *s, const char *name, int64_t n)
{
	struct serial_served *of = ((const struct serial_call *)(const void *)s)->of;
	struct serial_kept *k = of->kept;
	double *x;

	while (k && name && strcmp(k->name, name))
		k = k->next;
	if (k || !name || n <= 0 || n > MOST_KEPT)
		return k && name && k->n == n ? k->x : NULL;
	x = calloc((size_t)n, sizeof(*x)); /* the plugin chooses n, so memory may be short */
	if (!x)
		return NULL;
	k = hd_alloc(sizeof(*k));
	*k = (struct serial_kept){ of->kept, hd_strdup(name), n, x };
	return (of->kept = k)->x;
}

/* Tells whether full is SECTION.name.PARAMETER, or SECTION.name. for a state that is like no parameter. The section is
 * x. */
static int is_named(const char *full, const char *name, const char *param)
{
	size_t n = strlen(name);

	if (strncmp(full, "x.", 2) || strncmp(full + 2, name, n) || full[2 + n] != '.')
		return 0;
	return !full[3 + n] || !strcmp(full + 3 + n, param);
}

/* Returns the values of t on the first rank that holds it, which is a member 0, or NULL. A stage holds only its own
 * layers. */
static const double *on_member_0(const struct hd_inprocess *r, const struct tensor *t)
{
	const double *x = NULL;

	for (int k = 0; k < r->n && !x; k++)
		x = hd_inprocess_address(r, t, k);
	return x;
}

static int initial(const struct hd_serial *s, const char *name, double *to, int64_t n)
{
	const struct hd_inprocess *r = ((const struct serial_call *)(const void *)s)->m->layout;

	if (!name || !to)
		return HD_EINVAL;
	for (size_t i = 0; i < r->plan->ntensors; i++) {
		const struct tensor *t = r->plan->tensors[i];
		const double *x;

		if (t->v.node || t->v.what != HD_TENSOR_STATE || !is_named(t->v.name, name, s->name))
			continue;
		x = on_member_0(r, t);
		if (!x || hd_local_count(t) != n || t->v.dtype != HD_DTYPE_F64)
			return HD_EINVAL;
		memcpy(to, x, (size_t)n * sizeof(*to));
		return HD_OK;
	}
	return HD_EINVAL;
}

static double *copy(const double *x, int64_t n)
{
	return memcpy(hd_alloc((size_t)n * sizeof(*x) + 1), x, (size_t)n * sizeof(*x));
}

static void serve(struct serial_model *m, const struct tensor *t)
{
	const double *x = hd_inprocess_address(m->alone, t, 0);
	struct serial_served *s = &m->all[m->n++];
	int64_t n = hd_local_count(t);

	*s = (struct serial_served){ .p = { t->v.name, n, copy(x, n), copy(x, n) }, .t = t };
	s->weights = hd_alloc((size_t)m->members * sizeof(*s->weights));
	s->gradients = hd_alloc((size_t)m->members * sizeof(*s->gradients));
	for (int64_t k = 0; k < m->members; k++) {
		s->weights[k] = copy(x, n);
		s->gradients[k] = hd_alloc((size_t)n * sizeof(double) + 1);
	}
}

/* Returns the section x, which has the tested plugin. A section `beside` may be in front of it. */
static const struct inst *tested(const struct hd_plan *p)
{
	int i = 0;

	while (strcmp(p->inst[i].name, "x") != 0)
		i++;
	return &p->inst[i];
}

struct serial_model *serial_model_create(const struct hd_inprocess *layout, struct hd_inprocess *alone, double lr)
{
	struct serial_model *m = hd_alloc(sizeof(*m));

	*m = (struct serial_model){
		.layout = layout, .alone = alone, .lr = lr, .members = layout->plan->batch / alone->plan->batch
	};
	m->of = tested(layout->plan);
	m->all = hd_alloc((alone->plan->ntensors + 1) * sizeof(*m->all));
	for (size_t i = 0; i < alone->plan->ntensors; i++) {
		const struct tensor *t = alone->plan->tensors[i];

		if (!t->v.node && t->v.what == HD_TENSOR_PARAM && hd_inprocess_gradient(alone, t))
			serve(m, t);
	}
	return m;
}

static void release(struct serial_served *s, int64_t members)
{
	for (int64_t k = 0; k < members; k++)
		free(s->weights[k]), free(s->gradients[k]);
	for (struct serial_kept *k = s->kept, *next; k; k = next) {
		next = k->next;
		free(k->name), free(k->x), free(k);
	}
	free(s->weights), free(s->gradients), free(s->p.param), free(s->p.first);
}

void serial_model_destroy(struct serial_model *m)
{
	for (size_t i = 0; i < m->n; i++)
		release(&m->all[i], m->members);
	free(m->all);
	free(m);
}

const struct serial_param *serial_model_param(const struct serial_model *m, size_t i)
{
	return i < m->n ? &m->all[i].p : NULL;
}

/* Computes the gradients of one member's samples, with the member's weights. */
static int compute(struct serial_model *m, int64_t member, double *loss, struct hd_err *err)
{
	m->alone->members = m->members;
	m->alone->member = member;
	for (size_t i = 0; i < m->n; i++)
		memcpy(hd_inprocess_address(m->alone, m->all[i].t, 0), m->all[i].weights[member],
		       (size_t)m->all[i].p.n * sizeof(double));
	HD_TRY(hd_inprocess_step(m->alone, err));
	for (size_t i = 0; i < m->n; i++)
		memcpy(m->all[i].gradients[member],
		       hd_inprocess_address(m->alone, hd_inprocess_gradient(m->alone, m->all[i].t), 0),
		       (size_t)m->all[i].p.n * sizeof(double));
	*loss += hd_inprocess_scalar(m->alone, m->alone->plan->loss, 0);
	return HD_OK;
}

static int update(struct serial_model *m, struct serial_served *s, int64_t step, struct hd_err *err)
{
	int64_t dims[HD_MAX_DIMS];
	struct serial_call a = { .m = m, .of = s };
	int rc;

	for (uint32_t d = 0; d < s->t->v.ndim; d++)
		dims[d] = s->t->dims[d]->n;
	a.view = (struct hd_serial){ .size = sizeof(a.view),
				     .name = s->p.name,
				     .dims = dims,
				     .ndim = s->t->v.ndim,
				     .members = (uint32_t)m->members,
				     .n = s->p.n,
				     .step = step,
				     .lr = m->lr,
				     .param = s->p.param,
				     .weights = s->weights,
				     .gradients = (const double *const *)s->gradients,
				     .state = state,
				     .initial = initial };
	hd_turn_note(hd_inst_section(m->of), m->of->name, m->of->plugin->name, "serial.update");
	rc = m->of->plugin->serial->update(&a.view);
	hd_turn_note(NULL, NULL, NULL, NULL);
	return rc < 0 ? hd_err_set(err, rc, "serial.update of %s returns %d", s->p.name, rc) : HD_OK;
}

int serial_model_step(struct serial_model *m, int64_t step, double *loss, struct hd_err *err)
{
	*loss = 0;
	for (int64_t k = 0; k < m->members; k++)
		HD_TRY(compute(m, k, loss, err));
	for (size_t i = 0; i < m->n; i++)
		HD_TRY(update(m, &m->all[i], step, err));
	return HD_OK;
}
