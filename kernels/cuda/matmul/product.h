/* SPDX-License-Identifier: Apache-2.0
 * kernels/cuda/matmul/product.h - matrix products in device memory: by cuBLASLt, or gelu_wgmma.cu where that is faster.
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
/* NULL: strides that are no matrices, or nothing for these dtypes.  Equal products share one. */
struct hd_product *hd_product_get(const struct hd_mm_shape *s);
void hd_product_put(struct hd_product *p);
/* c = a b + bias + (add ? add : 0); add has c's strides and may be c; aux likewise, of products with a gelu (s->then): what it is
 * of, written or read.  0, or HD_ENOTSUP before anything is written. */
int hd_product_run(struct hd_product *p, const struct hd_run *r, void *c, const void *a, const void *b,
		   const void *bias, const void *add, const void *aux);
/* Operands may begin at any element; else all at 16 bytes, or run refuses. */
int hd_product_anywhere(const struct hd_product *p);
double hd_matmul_rate(uint32_t dtype);

/* Implementations of operands that all begin at 16 bytes: how many the library names, the first of them being picked. */
#define HD_PRODUCT_MOST 8
struct hd_product *hd_product_next(const struct hd_product *p); /* of all; of NULL: the first */
const struct hd_mm_shape *hd_product_shape(const struct hd_product *p);
int hd_product_choices(const struct hd_product *p);
void hd_product_pick(struct hd_product *p, int i);
size_t hd_product_version(void); /* of the library */

/* The last of the choices is no implementation of the library's but a kernel of Heddle's own (gelu_wgmma.cu). */
int hd_product_has_own(const struct hd_product *p);
int hd_gelu_wgmma_has(const struct hd_mm_shape *s); /* this GPU runs it, for this shape */
/* c = gelu of a b + bias, which goes to aux where it is kept.  0, or HD_ENOTSUP before anything is written. */
int hd_gelu_wgmma(const struct hd_mm_shape *s, const struct hd_run *r, void *c, const void *a, const void *b,
		  const void *bias, const void *aux);

/* chain.cu: c = (add ? add : 0) + a[0] b[0] + a[1] b[1] + ... as one launch; add lies as c does and may be c. */
#define HD_CHAIN_MOST 4
struct hd_chain;
/* Of plain products of bf16 whose results are one; NULL: these cannot be.  It has products of its own. */
struct hd_chain *hd_chain_get(struct hd_product *const *p, int n);
void hd_chain_put(struct hd_chain *c);
/* 0, or HD_ENOTSUP before anything is written: operands do not begin at 16 bytes, or it was not picked. */
int hd_chain_run(const struct hd_chain *c, const struct hd_run *r, void *out, const void *const *a,
		 const void *const *b, const void *add);
struct hd_chain *hd_chain_next(const struct hd_chain *c);                      /* of all; of NULL: the first */
int hd_chain_products(const struct hd_chain *c, struct hd_product *const **p); /* how many */
int hd_chain_choices(void);                                                    /* 0: its products one after the other */
void hd_chain_pick(struct hd_chain *c, int i);
int64_t hd_chain_picked(void); /* products that run in one launch with others whose result is theirs */

/* product_tune.cu: as `fixed` and `autotune` of a device (engine/device/device.h), for products on this queue and GPU. */
void hd_product_fixed(int yes);
char *hd_product_tune(const char *known, const struct hd_exchange *x, cudaStream_t queue, const char *gpu);
char *hd_einsum_choices(void);  /* einsum.cu: how many products the library makes, as lines "key value" */
char *hd_einsum_refusals(void); /* products that the library refused since the last time, in a sentence; NULL: none */

#endif
