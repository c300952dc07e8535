/* SPDX-License-Identifier: Apache-2.0
 * Dims by name, and tensors over them: creates them, and counts the elements that a rank has.
 */
#include <config.h>
#include "engine/graph/graph.h"
#include "engine/device/device.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FEW_ROWS 1024 /* of experts: memory for fewer would save little, and smaller numbers vary more */

/* -- names ------------------------------------------------------------------------------------------------------------- */
const struct hd_dim *hd_dim_get(struct hd_plan *p, const char *name, int64_t n)
{
	struct dim *d;

	for (size_t i = 0; i < p->ndims; i++)
		if (p->dims[i]->inst < 0 && !strcmp(p->dims[i]->v.name, name))
			return &p->dims[i]->v;
	if (n <= 0)
		return NULL;
	d = hd_plan_alloc(p, sizeof(*d));
	d->v = (struct hd_dim){ sizeof(d->v), hd_plan_text(p, "%s", name), n };
	d->padded = n;
	d->inst = -1;
	d->id = (int)p->ndims;
	p->dims = hd_grow(p->dims, p->ndims, &p->cap_dims, sizeof(*p->dims));
	p->dims[p->ndims++] = d;
	hd_handle_add(p, &d->v, HANDLE_DIM);
	return &d->v;
}

/* Parses a list "a,b,c" of dims, up to the end of the text or a blank.  Returns how many. */
uint32_t hd_parse_dims(struct hd_plan *p, const char *spec, const struct hd_dim **dims)
{
	const char *all = spec;
	uint32_t n = 0;

	while (*spec && *spec != ' ') {
		size_t len = strcspn(spec, ", ");
		char *name = hd_format("%.*s", (int)len, spec);
		const struct hd_dim *d = hd_dim_get(p, name, 0);

		if (!d)
			hd_plan_fail(p, HD_EBUG, "there is no dim %s in (%s)", name, all);
		else if (n == HD_MAX_DIMS)
			hd_plan_fail(p, HD_EINVAL, "more than %d dims: (%s)", HD_MAX_DIMS, all);
		free(name);
		if (!d || n == HD_MAX_DIMS)
			return n;
		dims[n++] = d;
		spec += len + (spec[len] == ',');
	}
	return n;
}

/* -- tensors ----------------------------------------------------------------------------------------------------------- */
#define MOST_BYTES ((int64_t)1 << 60) /* limit for one tensor, and for all parameters together; global sizes */

/* Refuses sizes that are too large: later code multiplies sizes everywhere without checking for overflow. */
static void check_size(struct hd_plan *p, const struct tensor *t)
{
	int64_t n = HD_BITS(t->v.dtype) / 8 + 1;
	int over = 0;
	char *sizes = NULL;

	for (uint32_t i = 0; i < t->v.ndim; i++)
		over |= __builtin_mul_overflow(n, t->local[i], &n);
	if (!over && n <= MOST_BYTES && t->v.what == HD_TENSOR_PARAM)
		over = __builtin_add_overflow(p->parameter_bytes, n, &p->parameter_bytes) ||
		       p->parameter_bytes > MOST_BYTES;
	if (!over && n <= MOST_BYTES)
		return;
	for (uint32_t i = 0; i < t->v.ndim; i++)
		hd_append(&sizes, "%s%lld", i ? " x " : "", (long long)t->local[i]);
	hd_plan_fail(
		p, HD_EINVAL,
		"%s%s(%s): %s elements%s are more than any machine can address; look at the sizes in [model] and [train]",
		t->v.name ? t->v.name : "", t->v.name && *t->v.name ? " " : "", t->v.spec, sizes,
		t->v.what == HD_TENSOR_PARAM ? ", with the parameters before it," : "");
	free(sizes);
}

struct tensor *hd_tensor_new(struct hd_plan *p, const char *name, uint32_t what, uint32_t dtype,
			     const struct hd_dim *const *dims, uint32_t ndim)
{
	struct tensor *t = hd_plan_alloc(p, sizeof(*t));
	size_t len = 1;

	for (uint32_t i = 0; i < ndim; i++)
		len += strlen(dims[i]->name) + 1;
	t->spec = hd_plan_alloc(p, len);
	for (uint32_t i = 0; i < ndim; i++) {
		t->dims[i] = dims[i];
		t->local[i] = D(dims[i])->padded;
		strcat(strcat(t->spec, i ? "," : ""), dims[i]->name);
	}
	t->v = (struct hd_tensor){ .size = sizeof(t->v),
				   .name = name,
				   .spec = t->spec,
				   .dims = t->dims,
				   .local = t->local,
				   .ndim = ndim,
				   .dtype = dtype,
				   .what = what };
	t->plan = p;
	t->id = (int)p->ntensors;
	p->tensors = hd_grow(p->tensors, p->ntensors, &p->cap_tensors, sizeof(*p->tensors));
	p->tensors[p->ntensors++] = t;
	hd_handle_add(p, &t->v, HANDLE_TENSOR);
	check_size(p, t);
	return t;
}

struct tensor *hd_leaf(struct hd_plan *p, const char *name, uint32_t what, uint32_t dtype, const char *spec)
{
	const struct hd_dim *dims[HD_MAX_DIMS];
	uint32_t n = hd_parse_dims(p, spec, dims);
	struct tensor *t = hd_tensor_new(p, hd_plan_text(p, "%s", name), what, dtype, dims, n);

	t->step = what != HD_TENSOR_ACT && what != HD_TENSOR_DATA;
	return t;
}

struct tensor *hd_param(struct hd_plan *p, const char *name, const char *spec, int init, double std)
{
	struct tensor *t = hd_leaf(p, name, HD_TENSOR_PARAM, p->master_dtype, spec);

	t->init = init;
	t->init_std = std;
	t->decay = t->v.ndim > 1;
	return t;
}

struct tensor *hd_param_find(struct hd_plan *p, const char *name)
{
	for (size_t i = 0; i < p->ntensors; i++)
		if (p->tensors[i]->v.what == HD_TENSOR_PARAM && !strcmp(p->tensors[i]->v.name, name))
			return p->tensors[i];
	return NULL;
}

int hd_has_dim(const struct tensor *t, const struct hd_dim *d)
{
	for (uint32_t i = 0; i < t->v.ndim; i++)
		if (t->dims[i] == d)
			return 1;
	return 0;
}

static int64_t local_of(const struct tensor *t, const struct hd_dim *d)
{
	for (uint32_t i = 0; i < t->v.ndim; i++)
		if (t->dims[i] == d)
			return t->local[i];
	return 1;
}

/* Returns the number of (sample, slot) pairs on the rank, each of which may have rows of several experts.  Sets *expert
 * to the dim of the experts. */
static int64_t places(const struct tensor *t, const struct hd_dim **expert)
{
	const struct hd_dim *batch = t->ragged_counts->dims[1], *slot = hd_dim_get(t->plan, "slot", 0);

	*expert = t->ragged_counts->dims[0];
	return local_of(t, batch) * local_of(t, slot);
}

double hd_ragged_balanced(const struct tensor *t)
{
	const struct hd_dim *expert;
	int64_t n = places(t, &expert);

	return (double)(n * t->max_rows * local_of(t, expert)) / (double)expert->n;
}

int64_t hd_ragged_any(const struct tensor *t)
{
	const struct hd_dim *expert;
	int64_t n = places(t, &expert), e = local_of(t, expert);

	return n * (e < t->max_rows ? e : t->max_rows);
}

int64_t hd_ragged_max(const struct tensor *t)
{
	double each = t->plan->config.expert_rows, wanted = fmax(ceil(each * hd_ragged_balanced(t)), FEW_ROWS);
	int64_t most = hd_ragged_any(t);

	if (each <= 0)
		return most;
	return wanted < (double)most ? (int64_t)wanted : most;
}

enum hd_rows_case hd_rows_case(const struct hd_plan *p)
{
	for (size_t i = 0; i < p->ntensors; i++) {
		const struct tensor *t = p->tensors[i];

		if (t->ragged_counts && (double)hd_ragged_any(t) > hd_ragged_balanced(t))
			return hd_ragged_max(t) < hd_ragged_any(t) ? HD_ROWS_SOME : HD_ROWS_ANY;
	}
	return HD_ROWS_EQUAL;
}

int64_t hd_ragged_row_elements(const struct tensor *t)
{
	int64_t n = 1;

	for (uint32_t i = 0; i < t->v.ndim; i++)
		if (strcmp(t->dims[i]->name, "slot") && !hd_has_dim(t->ragged_counts, t->dims[i]))
			n *= t->local[i];
	return n;
}

int64_t hd_local_count(const struct tensor *t)
{
	int64_t n = 1;

	if (t->ragged_counts)
		return hd_ragged_max(t) * hd_ragged_row_elements(t);

	for (uint32_t i = 0; i < t->v.ndim; i++)
		n *= t->local[i];
	return n;
}

int64_t hd_global_count(const struct tensor *t)
{
	int64_t n = 1;

	for (uint32_t i = 0; i < t->v.ndim; i++)
		n *= t->dims[i]->n;
	return n;
}

int64_t hd_local_bytes(const struct tensor *t)
{
	return (hd_local_count(t) * HD_BITS(t->v.dtype) + 7) / 8;
}

int hd_dtype_known(uint32_t dtype)
{
	static const uint32_t all[] = { HD_DTYPE_F32,  HD_DTYPE_F64,  HD_DTYPE_F16, HD_DTYPE_BF16,
					HD_DTYPE_I32,  HD_DTYPE_I64,  HD_DTYPE_U8,  HD_DTYPE_I8,
					HD_DTYPE_E4M3, HD_DTYPE_E5M2, HD_DTYPE_B1 };

	for (size_t i = 0; i < HD_LEN(all); i++)
		if (all[i] == dtype)
			return 1;
	return 0;
}

void hd_tensor_inherit(struct tensor *y, const struct tensor *x)
{
	y->v.what = x->v.what;
	y->v.of = x->v.of;
	y->v.name = x->v.name;
	y->ragged_counts = x->ragged_counts;
	y->max_rows = x->max_rows;
	memcpy(y->reduced_dim, x->reduced_dim, sizeof(y->reduced_dim));
}

/* -- types of gradients --------------------------------------------------------------------------------------------------- */
uint32_t hd_gradient_dtype(const struct hd_plan *p, const struct hd_tensor *x)
{
	return x->what == HD_TENSOR_PARAM ? p->master_dtype : x->dtype;
}

const char *hd_gradient_attr(const struct hd_tensor *dout, const struct hd_tensor *x)
{
	return x->what == HD_TENSOR_PARAM && dout->dtype == HD_DTYPE_BF16 ? " fp32=1" : "";
}

int64_t hd_plan_parameters(const struct hd_plan *p)
{
	int64_t n = 0;

	for (size_t i = 0; i < p->ntensors; i++)
		if (!p->tensors[i]->v.node && p->tensors[i]->v.what == HD_TENSOR_PARAM)
			n += hd_global_count(p->tensors[i]);
	return n;
}
