/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/matmul/product.h - matrix products in device memory, by cuBLASLt or by gelu_wgmma.cu where that is
 * faster.
 */
#ifndef HD_KERNELS_CUDA_MATMUL_PRODUCT_H
#define HD_KERNELS_CUDA_MATMUL_PRODUCT_H
#include "kernels/cuda/base/cuda.h"
extern "C" {
#include "kernels/prepare/product.h"
}

struct hd_product;
int hd_product_open(cudaStream_t queue, struct hd_err *err);
void hd_product_close(void);
/* Returns NULL if the strides do not describe matrices, or if the library has nothing for these dtypes.  Equal
 * products share one. */
struct hd_product *hd_product_get(const struct hd_mm_shape *s);
void hd_product_release(struct hd_product *p);
/* c = a b + bias + (add ? add : 0).  add has c's strides and may be c.  aux has c's strides too: in products with a
 * gelu (s->then) it is the gelu's input, written or read.  Returns 0, or HD_ENOTSUP before anything is written. */
int hd_product_run(struct hd_product *p, const struct hd_run *r, void *c, const void *a, const void *b,
		   const void *bias, const void *add, const void *aux);
/* Returns 1 if operands may begin at any element.  Otherwise all must begin at multiples of 16 bytes, or run
 * refuses. */
int hd_product_anywhere(const struct hd_product *p);
double hd_matmul_rate(uint32_t dtype);

/* Implementations for operands that all begin at multiples of 16 bytes: at most so many from the library.  The first
 * is the default. */
#define HD_PRODUCT_MOST 8
struct hd_product *hd_product_next(const struct hd_product *p); /* iterates over all products; NULL: the first */
const struct hd_mm_shape *hd_product_shape(const struct hd_product *p);
int hd_product_choices(const struct hd_product *p);
void hd_product_pick(struct hd_product *p, int i);
size_t hd_product_version(void); /* the library's version */

/* Returns 1 if the last choice is not one of the library's implementations but Heddle's own kernel (gelu_wgmma.cu). */
int hd_product_has_own(const struct hd_product *p);
int hd_gelu_wgmma_has(const struct hd_mm_shape *s); /* 1 if this GPU runs it for this shape */
/* c = gelu of a b + bias, which goes to aux if it is kept.  Returns 0, or HD_ENOTSUP before anything is written. */
int hd_gelu_wgmma(const struct hd_mm_shape *s, const struct hd_run *r, void *c, const void *a, const void *b,
		  const void *bias, const void *aux);

/* chain.cu: c = (add ? add : 0) + a[0] b[0] + a[1] b[1] + ... in one launch.  add has c's layout and may be c. */
#define HD_CHAIN_MOST 4
struct hd_chain;
/* Takes plain bf16 products that share one result.  Returns NULL if they cannot be chained.  The chain has
 * references of its own to them. */
struct hd_chain *hd_chain_get(struct hd_product *const *p, int n);
void hd_chain_release(struct hd_chain *c);
/* Returns 0, or HD_ENOTSUP before anything is written: operands do not begin at multiples of 16 bytes, or the chain
 * was not picked. */
int hd_chain_run(const struct hd_chain *c, const struct hd_run *r, void *out, const void *const *a,
		 const void *const *b, const void *add);
struct hd_chain *hd_chain_next(const struct hd_chain *c);                      /* iterates over all; NULL: the first */
int hd_chain_products(const struct hd_chain *c, struct hd_product *const **p); /* returns their number */
/* Returns the number of choices.  Choice 0 is a chain's products, one after another. */
int hd_chain_choices(void);
void hd_chain_pick(struct hd_chain *c, int i);
int64_t hd_chain_picked(void); /* products that run in one launch with others that share their result */

/* product_tune.cu: like `fixed` and `autotune` of a device (engine/device/device.h), for products on this queue and
 * GPU. */
void hd_product_fixed(int yes);
char *hd_product_tune(const char *known, const struct hd_exchange *x, cudaStream_t queue, const char *gpu);
/* einsum.cu: returns counts of products, such as those that run in loops, as lines "key value"; the caller frees it. */
char *hd_einsum_choices(void);
/* Returns a sentence on the products that the library has refused since the last call, or NULL; the caller frees it. */
char *hd_einsum_refusals(void);

#endif
