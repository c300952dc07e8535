/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/matmul/matmul_impl.h - what the files that make matrix products share: what oneDNN offers, primitives, and products
 * in pieces that do not depend on the threads.
 */
#ifndef HD_KERNELS_CPU_MATMUL_MATMUL_IMPL_H
#define HD_KERNELS_CPU_MATMUL_MATMUL_IMPL_H
#include <oneapi/dnnl/dnnl.h>
#include "kernels/cpu/tiles/tiles.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/thin/thin.h"

/* An implementation that wants much more scratch than another is not offered, nor is one that wants more than most of them: they
 * keep all sums in fp32, and are none of the fast ones. */
#define HD_MM_FREE_SCRATCH ((size_t)4 << 20) /* at least so much is not too much */
#define HD_MM_MAX_SCRATCH ((size_t)64 << 20)
#define HD_MM_MORE_SCRATCH 4 /* times the least that any wants */

/* -- offers.c: the implementations that oneDNN has for a product; versions 2 and 3 of it say so in different ways -- */
#if DNNL_VERSION_MAJOR < 3
typedef const dnnl_memory_desc_t *hd_mm_desc;
struct hd_mm_offers { /* the iterator reads desc and attr as long as it lives */
	dnnl_primitive_desc_iterator_t it;
	dnnl_matmul_desc_t desc;
	dnnl_primitive_attr_t attr;
};
#else
typedef const_dnnl_memory_desc_t hd_mm_desc;
struct hd_mm_offers {
	dnnl_primitive_desc_t pd; /* the one to come, or NULL */
};
#endif

dnnl_engine_t hd_mm_engine(void); /* NULL before hd_mm_open */
int hd_mm_offers_begin(struct hd_mm_offers *o, const struct hd_mm_shape *s, int sum, int swap);
/* b lies as the implementation likes it; the strides of s are those of a and c. */
int hd_mm_offers_packed(struct hd_mm_offers *o, const struct hd_mm_shape *s);
/* The next implementation, to be destroyed by the caller; NULL: no more. */
dnnl_primitive_desc_t hd_mm_offers_next(struct hd_mm_offers *o, int *begun);
void hd_mm_offers_end(struct hd_mm_offers *o);
const char *hd_mm_name(const_dnnl_primitive_desc_t pd);
size_t hd_mm_scratch(const_dnnl_primitive_desc_t pd);
size_t hd_mm_limit(const struct hd_mm_shape *s, int sum); /* an implementation may want so much */

struct hd_mm_bound { /* the operands of one execution: each thread that executes has its own */
	dnnl_memory_t mem[HD_MM_OPERANDS], scratch;
	dnnl_exec_arg_t args[HD_MM_OPERANDS + 1];
	int nargs;
};

struct hd_mm_primitive {
	dnnl_primitive_t prim;
	struct hd_mm_bound bound;
	int swapped;
	size_t scratch_bytes;
};

/* 1, or 0 and nothing is left. */
int hd_mm_bind(struct hd_mm_bound *b, const_dnnl_primitive_desc_t pd, int swap, int bias);
void hd_mm_unbind(struct hd_mm_bound *b);
int hd_mm_build(struct hd_mm_primitive *p, const_dnnl_primitive_desc_t pd, int swap, int bias);
#define HD_MM_PLAIN_LOOPS "ref"
/* The first implementation offered that wants at most hd_mm_limit and is no plain loop (many hundred times slower), or
 * the first whose name is `want`; of HD_MM_PLAIN_LOOPS the loops.  Swapped ones exist where c is a vector. */
int hd_mm_create(struct hd_mm_primitive *p, const struct hd_mm_shape *s, int sum, int swap, const char *want);
/* Bytes of the scratchpad of the one that it would find among those with at most so many; -1: none. */
int64_t hd_mm_wants(const struct hd_mm_shape *s, int sum, const char *want, size_t most);
void hd_mm_drop(struct hd_mm_primitive *p);
int hd_mm_execute(dnnl_primitive_t prim, const struct hd_mm_bound *b, void *scratch, void *c, const void *a,
		  const void *m, const void *bias);
double hd_mm_flops(const struct hd_mm_shape *s);

/* -- own.c: products of our own beside oneDNN's, by names beside theirs -- */
#define HD_MM_TILES "own:amx"
#define HD_MM_THIN "own:thin"
struct hd_mm_own { /* one of them, or none */
	struct hd_amx *tiles;
	struct hd_thin *thin;
};
int64_t hd_mm_own_bytes(const struct hd_mm_shape *s, const char *name,
			int threads); /* of scratch; 0: not for this shape */
/* 1, or 0: not for this shape, or not here. */
int hd_mm_own_make(struct hd_mm_own *o, const struct hd_mm_shape *s, const char *name);
/* mem: by HD_MM_A..; from: what is added, c or nothing (NULL); tiles: or something else */
void hd_mm_own_run(const struct hd_mm_own *o, void *scratch, const void *from, void *const *mem, uint32_t bias_dtype);
void hd_mm_own_drop(struct hd_mm_own *o);

/* -- matmul_scratch.c: what is chosen among, so that the most of it is known before -- */
/* With b' a' in place of a b, one of which is a vector. */
int hd_mm_can_swap(const struct hd_mm_shape *s);
int hd_mm_in_tiles(const struct hd_mm_shape *s); /* where timing may decide nothing: tiles rather than pieces */

/* -- timing.c: what timings of products share -- */
/* A product that would take more FLOPs than limit gets shorter along its longest dims, with the remainder that makes tails. */
void hd_mm_shrink(struct hd_mm_shape *s, double limit);
/* At least so many bytes, all written: untouched pages all read as one page of zeros.  *mem is the caller's to free.  -> 1; 0: no
 * memory, and *mem is NULL. */
int hd_mm_touch(void **mem, size_t *have, size_t bytes);

/* -- rivals.c: the fastest implementation of a shape -- */
/* Times what is not picked yet.  wanted: a key a line.  -> KEY VALUE lines of all of them, malloc'ed. */
char *hd_mm_time(const char *wanted);

/* -- matmul_picks.c: keys of shapes, and what was picked for each -- */
#define HD_MM_KEY 700
struct hd_mm_pick {
	char *key, *value;
	struct hd_mm_pick *next;
};
void hd_mm_key_of(char *key, const struct hd_mm_shape *s, int sum);
/* text, which is freed, with one line more: KEY, or KEY VALUE */
char *hd_mm_key_append(char *text, const char *key, const char *value);
int hd_mm_key_shape(struct hd_mm_shape *s, int *sum, const char *key);
struct hd_mm_pick *hd_mm_pick_find(const char *key, size_t len);
void hd_mm_pick_add(const char *key, size_t nkey, const char *value, size_t nvalue);
void hd_mm_picks_read(const char *text, int over);

/* A product in pieces.  NULL: oneDNN has nothing for a piece of it. */
struct hd_mm_pieces;
struct hd_mm_pieces *hd_mm_pieces_create(const struct hd_mm_shape *s, int sum); /* train.deterministic */
/* Cut along batch, m and n until there is an implementation, or the one named `want`, within hd_mm_limit.  NULL:
 * oneDNN has none but plain loops. */
struct hd_mm_pieces *hd_mm_pieces_of_scratch(const struct hd_mm_shape *s, int sum, const char *want);
int hd_mm_shrink_scratch(struct hd_mm_shape *s, int sum,
			 const char *want); /* likewise: the extents of a piece; 0: none */
void hd_mm_pieces_destroy(struct hd_mm_pieces *p);
/* Bytes of scratch of either; 0 too if there are no such pieces. */
int64_t hd_mm_pieces_bytes(const struct hd_mm_shape *s, int sum, int threads);
int64_t hd_mm_pieces_of_scratch_bytes(const struct hd_mm_shape *s, int sum, const char *want);
int64_t hd_mm_pieces_taken(const struct hd_mm_pieces *p);
int hd_mm_pieces_run(const struct hd_mm_pieces *p, void *scratch, void *c, const void *a, const void *b,
		     const void *bias);

#endif
