/* SPDX-License-Identifier: Apache-2.0
 * Reference of map: the expression evaluated in double for one output element after the other.
 */
#include <config.h>
#include "engine/device/device.h"
#include "engine/base/expr.h"
#include <stdlib.h>
#include <string.h>

#define MAX_IN 26

struct map {
	struct hd_expr e;
	uint32_t nin, ndim;
	int64_t n[HD_MAX_DIMS];
	int64_t stride[MAX_IN][HD_MAX_DIMS];	/* along the output's dims; 0: has it not */
};

static int set_input(struct map *m, int i, const struct hd_view *x, const struct hd_view *y,
		     struct hd_err *err)
{
	int64_t stride = 1;

	if (x->dtype != HD_F64)
		return hd_err_set(err, HD_ENOTSUP, "map: input %c is %s, it must be f64", 'a' + i,
				  hd_dtype_name(x->dtype));
	for (uint32_t k = x->ndim; k-- > 0; stride *= x->n[k]) {
		uint32_t at = 0;

		while (at < y->ndim && y->dims[at] != x->dims[k])
			at++;
		if (at == y->ndim || y->n[at] != x->n[k])
			return hd_err_set(err, HD_EINVAL, "map: dim %s of input %c has %lld "
					  "elements, the output has %lld", x->dims[k]->name,
					  'a' + i, (long long)x->n[k],
					  at < y->ndim ? (long long)y->n[at] : 0LL);
		m->stride[i][at] = stride;
	}
	return 0;
}

static int check(const struct hd_kernel_desc *d, const struct hd_expr *e, struct hd_err *err)
{
	if (d->nout != 1 || d->nin > MAX_IN)
		return hd_err_set(err, HD_EINVAL, "map: %u inputs and %u outputs, at most %d and "
				  "one are possible", d->nin, d->nout, MAX_IN);
	if (e->vars > (int)d->nin)
		return hd_err_set(err, HD_EINVAL, "map: \"%.200s\" reads input %c, the node has "
				  "%u inputs", d->attr, 'a' + e->vars - 1, d->nin);
	if (d->out[0].dtype != HD_F64)
		return hd_err_set(err, HD_ENOTSUP, "map: the output is %s, it must be f64",
				  hd_dtype_name(d->out[0].dtype));
	return 0;
}

static int prepare(const struct hd_kernel_desc *d, struct hd_prep *p, struct hd_err *err)
{
	struct map *m = hd_alloc(sizeof(*m));
	int rc = hd_expr_compile(d->attr, &m->e, err);

	if (!rc)
		rc = check(d, &m->e, err);
	for (int i = 0; !rc && i < (int)d->nin; i++)
		rc = set_input(m, i, &d->in[i], &d->out[0], err);
	if (rc) {
		free(m);
		return rc;
	}
	m->nin = d->nin;
	m->ndim = d->out[0].ndim;
	memcpy(m->n, d->out[0].n, sizeof(m->n));
	p->n[0] = hd_view_count(&d->out[0]);
	p->state = m;
	p->release = free;
	return 0;
}

static void run(const struct hd_prep *p, void *const *out, void *const *in, const struct hd_run *r)
{
	const struct map *m = p->state;

	(void)r;
	for (int64_t o = 0; o < p->n[0]; o++) {
		double v[MAX_IN];

		for (uint32_t i = 0; i < m->nin; i++) {
			int64_t rest = o, at = 0;

			for (uint32_t k = m->ndim; k-- > 0; rest /= m->n[k])
				at += rest % m->n[k] * m->stride[i][k];
			v[i] = ((const double *)in[i])[at];
		}
		((double *)out[0])[o] = hd_expr_eval(&m->e, v);
	}
}

const struct hd_kernel hd_ref_map = { .name = "map", .prepare = prepare, .run = run };
