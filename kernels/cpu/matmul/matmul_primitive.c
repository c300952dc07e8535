/* SPDX-License-Identifier: Apache-2.0
 * Primitives created from oneDNN's implementations (offers.c). A run sets four addresses and the scratchpad. The
 * scratchpad is ours and is shared; by default each primitive would have its own.
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

dnnl_engine_t hd_mm_engine(void)
{
	return engine;
}

const char *hd_mm_name(const_dnnl_primitive_desc_t pd)
{
	const char *name = NULL;

	dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
	return name ? name : "?";
}

size_t hd_mm_scratch(const_dnnl_primitive_desc_t pd)
{
	hd_mm_desc md = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);

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
	hd_mm_desc md = dnnl_primitive_desc_query_md(pd, what, index);

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

int64_t hd_mm_scratch_needed(const struct hd_mm_shape *s, int sum, const char *want, size_t most)
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
