/* SPDX-License-Identifier: Apache-2.0
 * kernels/cpu/matmul/matmul_impl.h - what the files for matrix products share: oneDNN's implementations, primitives,
 * and products in pieces that do not depend on the threads.
 */
#ifndef HD_KERNELS_CPU_MATMUL_MATMUL_IMPL_H
#define HD_KERNELS_CPU_MATMUL_MATMUL_IMPL_H
#include <oneapi/dnnl/dnnl.h>
#include "kernels/cpu/tiles/tiles.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/thin/thin.h"

/* Implementations that need more scratch than hd_mm_limit() are not used. It is HD_MM_MORE_SCRATCH times the least
 * that any needs, but HD_MM_FREE_SCRATCH at least and HD_MM_MAX_SCRATCH at most. Those that need more keep all sums in
 * fp32, and none of them is fast. */
#define HD_MM_FREE_SCRATCH ((size_t)4 << 20) /* the limit is never below this */
#define HD_MM_MAX_SCRATCH ((size_t)64 << 20)
#define HD_MM_MORE_SCRATCH 4 /* times the least that any needs */

/* -- offers.c: oneDNN's implementations of a product, which its versions 2 and 3 list in different ways -- */
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
	dnnl_primitive_desc_t pd; /* the next one, or NULL */
};
#endif

dnnl_engine_t hd_mm_engine(void); /* NULL before hd_mm_open */
int hd_mm_offers_begin(struct hd_mm_offers *o, const struct hd_mm_shape *s, int sum, int swap);
/* The same, with b in the layout that the implementation prefers; s has the strides of a and c. */
int hd_mm_offers_packed(struct hd_mm_offers *o, const struct hd_mm_shape *s);
/* Returns the next implementation, which the caller destroys, or NULL after the last. */
dnnl_primitive_desc_t hd_mm_offers_next(struct hd_mm_offers *o, int *begun);
void hd_mm_offers_end(struct hd_mm_offers *o);
const char *hd_mm_name(const_dnnl_primitive_desc_t pd);
size_t hd_mm_scratch(const_dnnl_primitive_desc_t pd);
size_t hd_mm_limit(const struct hd_mm_shape *s, int sum); /* the most scratch that an implementation may need */

struct hd_mm_bound { /* the operands of one execution; each thread that executes has its own */
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

/* hd_mm_bind() and hd_mm_build() return 1, or 0 with nothing left allocated. */
int hd_mm_bind(struct hd_mm_bound *b, const_dnnl_primitive_desc_t pd, int swap, int bias);
void hd_mm_unbind(struct hd_mm_bound *b);
int hd_mm_build(struct hd_mm_primitive *p, const_dnnl_primitive_desc_t pd, int swap, int bias);
#define HD_MM_PLAIN_LOOPS "ref"
/* Creates the first implementation within hd_mm_limit that is not a plain loop (many hundred times slower). `want`:
 * the first with that name, or with HD_MM_PLAIN_LOOPS the loops. Swapped ones exist only where c is a vector. */
int hd_mm_create(struct hd_mm_primitive *p, const struct hd_mm_shape *s, int sum, int swap, const char *want);
/* Returns the bytes of the scratchpad of the implementation that it would find if the limit were `most`, or -1 for
 * none. */
int64_t hd_mm_scratch_needed(const struct hd_mm_shape *s, int sum, const char *want, size_t most);
void hd_mm_drop(struct hd_mm_primitive *p);
int hd_mm_execute(dnnl_primitive_t prim, const struct hd_mm_bound *b, void *scratch, void *c, const void *a,
		  const void *m, const void *bias);
double hd_mm_flops(const struct hd_mm_shape *s);

/* -- own.c: products of our own, which compete with oneDNN's, under names like theirs -- */
#define HD_MM_TILES "own:amx"
#define HD_MM_THIN "own:thin"
#define HD_MM_GEMM "own:gemm"
extern const char *const hd_mm_own_names[HD_MM_OWN];
/* Returns the bytes of scratch, or 0 if the shape is not supported. */
int64_t hd_mm_own_bytes(const struct hd_mm_shape *s, const char *name, int threads);
/* Returns 1, or 0 if the shape is not supported, or not on this processor. */
int hd_mm_own_make(struct hd_mm_own *o, const struct hd_mm_shape *s, const char *name);
int hd_mm_own_exists(const struct hd_mm_own *o);
/* mem: indexed by HD_MM_A, ...; from: what is added. If hd_mm_own_adds() returns 1, it is any tensor with c's layout,
 * else c; NULL: nothing. */
void hd_mm_own_run(const struct hd_mm_own *o, void *scratch, const void *from, void *const *mem, uint32_t bias_dtype);
int hd_mm_own_adds(const struct hd_mm_own *o);

/* -- matmul_scratch.c: the implementations that may be chosen, so that the most scratch is known in advance -- */
/* Returns whether b' a' may be computed instead of a b, as one of them is a vector. */
int hd_mm_can_swap(const struct hd_mm_shape *s);
/* Returns whether tiles are used instead of pieces where timing may decide nothing. */
int hd_mm_in_tiles(const struct hd_mm_shape *s);

/* Where timing may decide nothing, or oneDNN has no implementation, products with vectors may be preferred. Returns
 * their bytes of scratch, or 0 if they are not. */
int64_t hd_mm_own_default(const struct hd_mm_shape *s, int threads);

/* -- timing.c: shared by the timings of products -- */
/* Shortens the longest dims of a product that takes more FLOPs than limit. The remainder that makes tails is kept. */
void hd_mm_shrink(struct hd_mm_shape *s, double limit);
/* Makes *mem at least `bytes` long, all of it written, since untouched pages all read as one page of zeros. The caller
 * frees *mem. Returns 1, or 0 without memory, and then *mem is NULL. */
int hd_mm_touch(void **mem, size_t *have, size_t bytes);

/* Returns 1 if oneDNN has no products of bf16 here, so that they compute in fp32. */
int hd_mm_in_fp32(void);

/* -- rivals.c: the fastest implementation of a shape -- */
/* Times keys that are not picked yet. wanted: one key per line. Returns KEY VALUE lines for all of them; the caller
 * frees it. */
char *hd_mm_time(const char *wanted);

/* -- matmul_picks.c: keys of shapes, and the implementation picked for each -- */
#define HD_MM_KEY 700
struct hd_mm_pick {
	char *key, *value;
	struct hd_mm_pick *next;
};
void hd_mm_key_of(char *key, const struct hd_mm_shape *s, int sum);
/* Returns text, which is freed, with one more line: KEY, or KEY VALUE. */
char *hd_mm_key_append(char *text, const char *key, const char *value);
int hd_mm_key_shape(struct hd_mm_shape *s, int *sum, const char *key);
struct hd_mm_pick *hd_mm_pick_find(const char *key, size_t len);
void hd_mm_pick_add(const char *key, size_t nkey, const char *value, size_t nvalue);
void hd_mm_picks_read(const char *text, int over);

/* A product in pieces. Functions that return it return NULL if oneDNN has no implementation for one of its pieces. */
struct hd_mm_pieces;
struct hd_mm_pieces *hd_mm_pieces_create(const struct hd_mm_shape *s, int sum); /* for train.deterministic */
/* Cuts along batch, m and n until an implementation, or the one named `want`, is within hd_mm_limit. Returns NULL if
 * oneDNN has none but plain loops. */
struct hd_mm_pieces *hd_mm_pieces_of_scratch(const struct hd_mm_shape *s, int sum, const char *want);
int hd_mm_shrink_scratch(struct hd_mm_shape *s, int sum,
			 const char *want); /* likewise, for the extents of a piece alone; 0: none */
void hd_mm_pieces_destroy(struct hd_mm_pieces *p);
/* Return the bytes of scratch for either kind, or 0 if such pieces do not exist. */
int64_t hd_mm_pieces_bytes(const struct hd_mm_shape *s, int sum, int threads);
int64_t hd_mm_pieces_of_scratch_bytes(const struct hd_mm_shape *s, int sum, const char *want);
int64_t hd_mm_pieces_taken(const struct hd_mm_pieces *p);
int hd_mm_pieces_run(const struct hd_mm_pieces *p, void *scratch, void *c, const void *a, const void *b,
		     const void *bias);

#endif
