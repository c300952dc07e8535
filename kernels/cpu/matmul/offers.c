/* SPDX-License-Identifier: Apache-2.0
 * The implementations that oneDNN offers for a product. Version 2 has a description of the product and an iterator
 * over implementations. Version 3 creates the first implementation at once, and turns it into the next one.
 */
#include <config.h>
#include "kernels/cpu/matmul/matmul_impl.h"
#include <string.h>

static dnnl_data_type_t type_of(uint32_t dtype)
{
	return dtype == HD_DTYPE_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* A matrix, or a batch of matrices, in oneDNN's terms. */
struct matrix {
	dnnl_dims_t n, stride;
	int ndims;
	dnnl_data_type_t type;
};

/* Returns operand o, whose rows and columns are dims `row` and `col` of the shape. Extents of 1 get the stride of a
 * dense matrix, from which oneDNN reads the leading dimension. */
static struct matrix matrix_of(const struct hd_mm_shape *s, int o, int row, int col)
{
	struct matrix l = { .ndims = s->ndim - 1, .type = type_of(s->dtype[o]) };
	const int64_t *st = s->stride[o];
	int nb = s->ndim - 3;

	for (int d = 0; d < nb; d++) {
		l.n[d] = st[d] ? s->n[d] : 1;
		l.stride[d] = st[d] ? st[d] : 1;
	}
	l.n[nb] = st[row] ? s->n[row] : 1;
	l.n[nb + 1] = st[col] ? s->n[col] : 1;
	l.stride[nb] = st[row];
	l.stride[nb + 1] = l.n[nb + 1] > 1 ? st[col] : 1;
	if (l.n[nb] == 1)
		l.stride[nb] = l.n[nb + 1] * l.stride[nb + 1];
	else if (l.n[nb + 1] == 1 && l.stride[nb] == 1)
		l.stride[nb + 1] = 1;
	return l;
}

/* Returns operand o of the product, or of its transpose b' a'. */
static struct matrix operand(const struct hd_mm_shape *s, int o, int swap)
{
	static const int rows[] = { [HD_MM_A] = 0, [HD_MM_B] = 2, [HD_MM_C] = 0, [HD_MM_BIAS] = 0 };
	static const int cols[] = { [HD_MM_A] = 2, [HD_MM_B] = 1, [HD_MM_C] = 1, [HD_MM_BIAS] = 1 };
	int first = s->ndim - 3, row = first + rows[o], col = first + cols[o];

	return swap ? matrix_of(s, o, col, row) : matrix_of(s, o, row, col);
}

static int append_sum(dnnl_post_ops_t post)
{
#if DNNL_VERSION_MAJOR < 3
	return dnnl_post_ops_append_sum(post, 1) == dnnl_success;
#else
	return dnnl_post_ops_append_sum(post, 1, 0, dnnl_data_type_undef) == dnnl_success;
#endif
}

static dnnl_primitive_attr_t make_attr(int sum)
{
	dnnl_primitive_attr_t attr = NULL;
	dnnl_post_ops_t post = NULL;

	if (dnnl_primitive_attr_create(&attr) != dnnl_success)
		return NULL;
	dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
	if (sum && dnnl_post_ops_create(&post) == dnnl_success) {
		if (append_sum(post))
			dnnl_primitive_attr_set_post_ops(attr, post);
		dnnl_post_ops_destroy(post);
	}
	return attr;
}

#if DNNL_VERSION_MAJOR < 3
static int describe(dnnl_memory_desc_t *md, struct matrix l, int any)
{
	if (any)
		return dnnl_memory_desc_init_by_tag(md, l.ndims, l.n, l.type, dnnl_format_tag_any) == dnnl_success;
	return dnnl_memory_desc_init_by_strides(md, l.ndims, l.n, l.type, l.stride) == dnnl_success;
}

static int make_desc(dnnl_matmul_desc_t *desc, const struct hd_mm_shape *s, int swap, int packed)
{
	dnnl_memory_desc_t md[HD_MM_OPERANDS];
	int has = s->dtype[HD_MM_BIAS] != 0;

	for (int o = 0; o < HD_MM_OPERANDS; o++)
		if (s->dtype[o] && !describe(&md[o], operand(s, o, swap), packed && o == HD_MM_B))
			return 0;
	return dnnl_matmul_desc_init(desc, &md[swap ? HD_MM_B : HD_MM_A], &md[swap ? HD_MM_A : HD_MM_B],
				     has ? &md[HD_MM_BIAS] : NULL, &md[HD_MM_C]) == dnnl_success;
}

void hd_mm_offers_end(struct hd_mm_offers *o)
{
	if (o->it)
		dnnl_primitive_desc_iterator_destroy(o->it);
	if (o->attr)
		dnnl_primitive_attr_destroy(o->attr);
}

static int begin(struct hd_mm_offers *o, const struct hd_mm_shape *s, int sum, int swap, int packed)
{
	memset(o, 0, sizeof(*o));
	if (!hd_mm_engine() || !make_desc(&o->desc, s, swap, packed))
		return 0;
	o->attr = make_attr(sum);
	if (o->attr &&
	    dnnl_primitive_desc_iterator_create(&o->it, &o->desc, o->attr, hd_mm_engine(), NULL) == dnnl_success)
		return 1;
	o->it = NULL;
	hd_mm_offers_end(o);
	return 0;
}

dnnl_primitive_desc_t hd_mm_offers_next(struct hd_mm_offers *o, int *begun)
{
	if ((*begun)++ && dnnl_primitive_desc_iterator_next(o->it) != dnnl_success)
		return NULL;
	return dnnl_primitive_desc_iterator_fetch(o->it);
}
#else
static int describe(dnnl_memory_desc_t *md, struct matrix l, int any)
{
	if (any)
		return dnnl_memory_desc_create_with_tag(md, l.ndims, l.n, l.type, dnnl_format_tag_any) == dnnl_success;
	return dnnl_memory_desc_create_with_strides(md, l.ndims, l.n, l.type, l.stride) == dnnl_success;
}

static int first_offer(dnnl_primitive_desc_t *pd, const struct hd_mm_shape *s, int sum, int swap, int packed)
{
	dnnl_memory_desc_t md[HD_MM_OPERANDS] = { NULL };
	dnnl_primitive_attr_t attr = make_attr(sum);
	int done = attr != NULL;

	for (int o = 0; o < HD_MM_OPERANDS && done; o++)
		done = !s->dtype[o] || describe(&md[o], operand(s, o, swap), packed && o == HD_MM_B);
	done = done && dnnl_matmul_primitive_desc_create(pd, hd_mm_engine(), md[swap ? HD_MM_B : HD_MM_A],
							 md[swap ? HD_MM_A : HD_MM_B], md[HD_MM_BIAS], md[HD_MM_C],
							 attr) == dnnl_success;
	for (int o = 0; o < HD_MM_OPERANDS; o++)
		if (md[o])
			dnnl_memory_desc_destroy(md[o]);
	if (attr)
		dnnl_primitive_attr_destroy(attr);
	return done;
}

void hd_mm_offers_end(struct hd_mm_offers *o)
{
	if (o->pd)
		dnnl_primitive_desc_destroy(o->pd);
}

static int begin(struct hd_mm_offers *o, const struct hd_mm_shape *s, int sum, int swap, int packed)
{
	o->pd = NULL;
	return hd_mm_engine() && first_offer(&o->pd, s, sum, swap, packed);
}

dnnl_primitive_desc_t hd_mm_offers_next(struct hd_mm_offers *o, int *begun)
{
	dnnl_primitive_desc_t pd;

	if ((*begun)++ && dnnl_primitive_desc_next_impl(o->pd) != dnnl_success)
		return NULL;
	return dnnl_primitive_desc_clone(&pd, o->pd) == dnnl_success ? pd : NULL;
}
#endif

int hd_mm_offers_begin(struct hd_mm_offers *o, const struct hd_mm_shape *s, int sum, int swap)
{
	return begin(o, s, sum, swap, 0);
}

int hd_mm_offers_packed(struct hd_mm_offers *o, const struct hd_mm_shape *s)
{
	return begin(o, s, 0, 0, 1);
}
