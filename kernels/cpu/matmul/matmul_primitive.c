/* SPDX-License-Identifier: Apache-2.0
 * What oneDNN offers for a product, and primitives made of it: a run sets four addresses and the scratchpad.  The
 * scratchpad is ours and shared: by default each primitive would hold its own.
 */
#include <config.h>
#include "kernels/cpu/matmul/matmul_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dnnl_engine_t engine;
static dnnl_stream_t stream;

int hd_mm_open(struct hd_err *err)
{
	if (engine)
		return 0;
	if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success ||
	    dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) != dnnl_success)
		return hd_err_set(err, HD_ENOTSUP, "oneDNN has no cpu engine here");
	return 0;
}

static dnnl_data_type_t type_of(uint32_t dtype)
{
	return dtype == HD_DTYPE_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

/* The rows and columns of operand o are dims `row` and `col` of the shape.  Extents of 1 get
 * the stride of a dense matrix: oneDNN reads the leading dimension from it. */
static int describe(dnnl_memory_desc_t *md, const struct hd_mm_shape *s, int o, int row, int col)
{
	dnnl_dims_t n, stride;
	const int64_t *st = s->stride[o];
	int d, nb = s->ndim - 3;

	for (d = 0; d < nb; d++) {
		n[d] = st[d] ? s->n[d] : 1;
		stride[d] = st[d] ? st[d] : 1;
	}
	n[nb] = st[row] ? s->n[row] : 1;
	n[nb + 1] = st[col] ? s->n[col] : 1;
	stride[nb] = st[row];
	stride[nb + 1] = n[nb + 1] > 1 ? st[col] : 1;
	if (n[nb] == 1)
		stride[nb] = n[nb + 1] * stride[nb + 1];
	else if (n[nb + 1] == 1 && stride[nb] == 1)
		stride[nb + 1] = 1;
	return dnnl_memory_desc_init_by_strides(md, nb + 2, n, type_of(s->dtype[o]), stride) == dnnl_success;
}

static int make_desc(dnnl_matmul_desc_t *desc, const struct hd_mm_shape *s, int swap, int packed)
{
	dnnl_memory_desc_t a, b, c, bias;
	int m = s->ndim - 3, n = m + 1, k = m + 2, has = s->dtype[HD_MM_BIAS] != 0;

	if (!describe(&a, s, HD_MM_A, swap ? k : m, swap ? m : k) ||
	    !describe(&b, s, HD_MM_B, swap ? n : k, swap ? k : n) ||
	    !describe(&c, s, HD_MM_C, swap ? n : m, swap ? m : n))
		return 0;
	if (has && !describe(&bias, s, HD_MM_BIAS, m, n))
		return 0;
	if (packed &&
	    dnnl_memory_desc_init_by_tag(&b, b.ndims, b.dims, b.data_type, dnnl_format_tag_any) != dnnl_success)
		return 0;
	return dnnl_matmul_desc_init(desc, swap ? &b : &a, swap ? &a : &b, has ? &bias : NULL, &c) == dnnl_success;
}

static dnnl_primitive_attr_t make_attr(int sum)
{
	dnnl_primitive_attr_t attr = NULL;
	dnnl_post_ops_t post = NULL;

	if (dnnl_primitive_attr_create(&attr) != dnnl_success)
		return NULL;
	dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
	if (sum && dnnl_post_ops_create(&post) == dnnl_success) {
		dnnl_post_ops_append_sum(post, 1);
		dnnl_primitive_attr_set_post_ops(attr, post);
		dnnl_post_ops_destroy(post);
	}
	return attr;
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
	if (!engine || !make_desc(&o->desc, s, swap, packed))
		return 0;
	o->attr = make_attr(sum);
	if (o->attr && dnnl_primitive_desc_iterator_create(&o->it, &o->desc, o->attr, engine, NULL) == dnnl_success)
		return 1;
	o->it = NULL;
	hd_mm_offers_end(o);
	return 0;
}

int hd_mm_offers_begin(struct hd_mm_offers *o, const struct hd_mm_shape *s, int sum, int swap)
{
	return begin(o, s, sum, swap, 0);
}

int hd_mm_offers_packed(struct hd_mm_offers *o, const struct hd_mm_shape *s)
{
	return begin(o, s, 0, 0, 1);
}

/* The next implementation, to be destroyed by the caller; NULL: no more. */
dnnl_primitive_desc_t hd_mm_offers_next(struct hd_mm_offers *o, int *begun)
{
	if ((*begun)++ && dnnl_primitive_desc_iterator_next(o->it) != dnnl_success)
		return NULL;
	return dnnl_primitive_desc_iterator_fetch(o->it);
}

const char *hd_mm_name(const_dnnl_primitive_desc_t pd)
{
	const char *name = NULL;

	dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
	return name ? name : "?";
}

size_t hd_mm_scratch(const_dnnl_primitive_desc_t pd)
{
	const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);

	return md ? dnnl_memory_desc_get_size(md) : 0;
}

/* ---- primitives ------------------------------------------------------------------------------ */

void hd_mm_unbind(struct hd_mm_bound *b)
{
	for (int o = 0; o < HD_MM_OPERANDS; o++)
		if (b->mem[o])
			dnnl_memory_destroy(b->mem[o]);
	if (b->scratch)
		dnnl_memory_destroy(b->scratch);
	memset(b, 0, sizeof(*b));
}

static int bind(struct hd_mm_bound *b, const_dnnl_primitive_desc_t pd, dnnl_query_t what, int index, int arg,
		dnnl_memory_t *mem)
{
	const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, what, index);

	if (!md || dnnl_memory_create(mem, md, engine, DNNL_MEMORY_NONE) != dnnl_success)
		return 0;
	b->args[b->nargs].arg = arg;
	b->args[b->nargs++].memory = *mem;
	return 1;
}

int hd_mm_bind(struct hd_mm_bound *b, const_dnnl_primitive_desc_t pd, int swap, int bias)
{
	memset(b, 0, sizeof(*b));
	if (bind(b, pd, dnnl_query_src_md, 0, DNNL_ARG_SRC, &b->mem[swap ? HD_MM_B : HD_MM_A]) &&
	    bind(b, pd, dnnl_query_weights_md, 0, DNNL_ARG_WEIGHTS, &b->mem[swap ? HD_MM_A : HD_MM_B]) &&
	    bind(b, pd, dnnl_query_dst_md, 0, DNNL_ARG_DST, &b->mem[HD_MM_C]) &&
	    (!bias || bind(b, pd, dnnl_query_weights_md, 1, DNNL_ARG_BIAS, &b->mem[HD_MM_BIAS])) &&
	    (!hd_mm_scratch(pd) || bind(b, pd, dnnl_query_scratchpad_md, 0, DNNL_ARG_SCRATCHPAD, &b->scratch)))
		return 1;
	hd_mm_unbind(b);
	return 0;
}

void hd_mm_drop(struct hd_mm_primitive *p)
{
	hd_mm_unbind(&p->bound);
	if (p->prim)
		dnnl_primitive_destroy(p->prim);
	memset(p, 0, sizeof(*p));
}

int hd_mm_build(struct hd_mm_primitive *p, const_dnnl_primitive_desc_t pd, int swap, int bias)
{
	memset(p, 0, sizeof(*p));
	p->swapped = swap;
	p->scratch_bytes = hd_mm_scratch(pd);
	if (dnnl_primitive_create(&p->prim, pd) == dnnl_success && hd_mm_bind(&p->bound, pd, swap, bias))
		return 1;
	hd_mm_drop(p);
	return 0;
}

static int fits(const_dnnl_primitive_desc_t pd, const char *want, size_t most)
{
	const char *name = hd_mm_name(pd);

	if (hd_mm_scratch(pd) > most)
		return 0;
	if (!want)
		return !strstr(name, HD_MM_PLAIN_LOOPS);
	return !strcmp(want, HD_MM_PLAIN_LOOPS) ? strstr(name, want) != NULL : !strcmp(want, name);
}

int64_t hd_mm_wants(const struct hd_mm_shape *s, int sum, const char *want, size_t most)
{
	dnnl_primitive_desc_t pd;
	struct hd_mm_offers o;
	int64_t found = -1;
	int begun = 0;

	if (!hd_mm_offers_begin(&o, s, sum, 0))
		return -1;
	while (found < 0 && (pd = hd_mm_offers_next(&o, &begun))) {
		if (fits(pd, want, most))
			found = (int64_t)hd_mm_scratch(pd);
		dnnl_primitive_desc_destroy(pd);
	}
	hd_mm_offers_end(&o);
	return found;
}

size_t hd_mm_limit(const struct hd_mm_shape *s, int sum)
{
	size_t least = HD_MM_MAX_SCRATCH / HD_MM_MORE_SCRATCH, limit;
	dnnl_primitive_desc_t pd;
	struct hd_mm_offers o;
	int begun = 0;

	if (!hd_mm_offers_begin(&o, s, sum, 0))
		return HD_MM_MAX_SCRATCH;
	while ((pd = hd_mm_offers_next(&o, &begun))) {
		if (fits(pd, NULL, least))
			least = hd_mm_scratch(pd);
		dnnl_primitive_desc_destroy(pd);
	}
	hd_mm_offers_end(&o);
	limit = HD_MM_MORE_SCRATCH * least;
	return limit > HD_MM_FREE_SCRATCH ? limit : HD_MM_FREE_SCRATCH;
}

int hd_mm_create(struct hd_mm_primitive *p, const struct hd_mm_shape *s, int sum, int swap, const char *want)
{
	dnnl_primitive_desc_t pd;
	struct hd_mm_offers o;
	size_t limit = hd_mm_limit(s, sum);
	int done = 0, begun = 0;

	if (!hd_mm_offers_begin(&o, s, sum, swap))
		return 0;
	while (!done && (pd = hd_mm_offers_next(&o, &begun))) {
		if (fits(pd, want, limit))
			done = hd_mm_build(p, pd, swap, s->dtype[HD_MM_BIAS] != 0);
		dnnl_primitive_desc_destroy(pd);
	}
	hd_mm_offers_end(&o);
	return done;
}

int hd_mm_execute(dnnl_primitive_t prim, const struct hd_mm_bound *b, void *scratch, void *c, const void *a,
		  const void *m, const void *bias)
{
	dnnl_memory_set_data_handle(b->mem[HD_MM_A], (void *)(uintptr_t)a);
	dnnl_memory_set_data_handle(b->mem[HD_MM_B], (void *)(uintptr_t)m);
	dnnl_memory_set_data_handle(b->mem[HD_MM_C], c);
	if (b->mem[HD_MM_BIAS])
		dnnl_memory_set_data_handle(b->mem[HD_MM_BIAS], (void *)(uintptr_t)bias);
	if (b->scratch)
		dnnl_memory_set_data_handle(b->scratch, scratch);
	if (dnnl_primitive_execute(prim, stream, b->nargs, b->args) != dnnl_success)
		return HD_ENOTSUP;
	dnnl_stream_wait(stream);
	return 0;
}

double hd_mm_flops(const struct hd_mm_shape *s)
{
	double f = 2;

	for (int d = 0; d < s->ndim; d++)
		f *= (double)s->n[d];
	return f;
}
