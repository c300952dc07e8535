/* SPDX-License-Identifier: Apache-2.0
 * The products of a simulated device, in double and in plain loops.
 */
#include "kernels/cuda/product.h"

struct hd_product { struct hd_mm_shape s; };

int hd_product_open(cudaStream_t, struct hd_err *) { return HD_OK; }
void hd_product_close(void) {}

struct hd_product *hd_product_get(const struct hd_mm_shape *s)
{
	struct hd_product *p = (struct hd_product *)hd_alloc(sizeof(*p));

	p->s = *s;
	return p;
}

void hd_product_put(struct hd_product *p) { free(p); }

static double at(const void *p, uint32_t dtype, int64_t i)
{
	return dtype == HD_F32 ? ((const float *)p)[i] : to_float(((const bf16 *)p)[i]);
}

static void element(const struct hd_mm_shape *s, void *c, const void *a, const void *b, const void *bias, const void *add,
		    const int64_t *off)
{
	int64_t k = s->n[s->ndim - 1], ka = s->stride[HD_MM_A][s->ndim - 1], kb = s->stride[HD_MM_B][s->ndim - 1];
	double sum = 0;

	for (int64_t i = 0; i < k; i++)
		sum += at(a, s->dtype[HD_MM_A], off[HD_MM_A] + i * ka) * at(b, s->dtype[HD_MM_B], off[HD_MM_B] + i * kb);
	if (bias)
		sum += at(bias, s->dtype[HD_MM_BIAS], off[HD_MM_BIAS]);
	if (add)
		sum += at(add, s->dtype[HD_MM_C], off[HD_MM_C]);
	if (s->dtype[HD_MM_C] == HD_F32)
		((float *)c)[off[HD_MM_C]] = (float)sum;
	else
		from_float((bf16 *)c + off[HD_MM_C], (float)sum);
}

int hd_product_run(struct hd_product *p, const struct hd_run *, void *c, const void *a, const void *b, const void *bias,
		   const void *add)
{
	const struct hd_mm_shape *s = &p->s;
	int64_t all = 1;

	for (int d = 0; d + 1 < s->ndim; d++)
		all *= s->n[d];
	hd_sim_open_memory();
	for (int64_t i = 0; i < all; i++) {
		int64_t off[HD_MM_OPERANDS] = { 0 }, rest = i;

		for (int d = s->ndim - 2; d >= 0; d--) {
			for (int o = 0; o < HD_MM_OPERANDS; o++)
				off[o] += rest % s->n[d] * s->stride[o][d];
			rest /= s->n[d];
		}
		element(s, c, a, b, bias, add, off);
	}
	hd_sim_close_memory();
	return HD_OK;
}

double hd_product_rate(uint32_t) { return 1e9; }
