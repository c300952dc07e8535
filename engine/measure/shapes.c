/* SPDX-License-Identifier: Apache-2.0
 * The small models with which a machine is measured. Their launches must be as large as those that they stand for. A
 * launch that ends before it has filled a processor tells nothing about one that fills it.
 */
#include <config.h>
#include "engine/measure/measure.h"

/* The first on any machine, and the only ones with --quick: one of each family. */
static const struct hd_small_shape quick[] = {
	{ "gpt2", 1, 64, 2, 64, 1, 256, "" },
	{ "llama", 1, 64, 2, 64, 1, 256, "" },
	{ "mixtral", 1, 64, 2, 64, 1, 256, "experts = 4\n", 1 },
};

/* Widths and lengths around those of models that fit on a host.  One has long sequences, two have kernels that the
 * others lack, and one has micro-batches of one sequence.  Others have shards of products: narrow heads, short sums. */
static const struct hd_small_shape of_host[] = {
	{ "gpt2", 2, 128, 4, 128, 8, 256, "" },
	{ "gpt2", 8, 256, 8, 128, 1, 512, "" },
	{ "gpt2", 2, 192, 3, 256, 4, 512, "mlp = 384\n", 1 },
	{ "llama", 1, 256, 4, 256, 4, 2048, "kv_heads = 2\n" },
	{ "mixtral", 1, 256, 4, 256, 2, 256, "experts = 4\n" },
	{ "gpt2", 2, 384, 6, 256, 8, 256, "" },
	{ "gpt2", 1, 384, 6, 256, 2, 256, "mlp = 768\n" },
	{ "llama", 1, 512, 8, 512, 1, 512, "" },
	{ "gpt2", 1, 384, 6, 2048, 1, 256, "" },
	{ "gpt2", 1, 768, 12, 256, 4, 8192, "" },
	{ "gpt2", 1, 768, 12, 256, 2, 4096, "mlp = 1536\n", 1 },
};

/* A GPU takes a hundredth of the time for the same work. So these have the widths of models of 0.1 to 70 billion
 * parameters, micro-batches of 4 to 64 thousand tokens, and shards of their products. */
static const struct hd_small_shape of_gpu[] = {
	{ "gpt2", 1, 768, 12, 1024, 16, 50304, "" },
	{ "gpt2", 1, 2048, 16, 2048, 4, 50304, "" },
	{ "llama", 1, 4096, 32, 4096, 1, 32768, "kv_heads = 8\n" },
	{ "gpt2", 2, 384, 6, 256, 8, 256, "" },
	{ "gpt2", 1, 768, 12, 1024, 64, 50304, "" },
	{ "mixtral", 1, 1024, 16, 1024, 8, 32768, "experts = 8\n", 1 },
	{ "llama", 1, 2048, 32, 4096, 4, 32768, "kv_heads = 8\n" },
	{ "llama", 1, 2048, 8, 2048, 4, 8192, "head_dim = 128\nmlp = 4096\n" },
	{ "llama", 1, 1024, 16, 8192, 1, 8192, "" },
	{ "gpt2", 1, 1024, 16, 1024, 4, 16384, "", 1 },
	{ "llama", 1, 8192, 64, 2048, 1, 16384, "kv_heads = 8\nmlp = 14336\n" },
};

int hd_small_count(const struct hd_measuring *m)
{
	int more = (int)(hd_device_in_host(m->j->device) ? HD_LEN(of_host) : HD_LEN(of_gpu));

	return (int)HD_LEN(quick) + (m->quick ? 0 : more);
}

const struct hd_small_shape *hd_small_model(const struct hd_measuring *m, int i)
{
	int behind = i - (int)HD_LEN(quick);

	return behind < 0 ? &quick[i] : hd_device_in_host(m->j->device) ? &of_host[behind] : &of_gpu[behind];
}

int hd_small_is_hot(const struct hd_measuring *m, const struct hd_small_shape *s)
{
	return s == (m->quick ? &quick[0] : &of_gpu[4]);
}

/* Large products in fp32 take a GPU fifteen times as long as in bf16, and few models train in it. */
int hd_small_in_fp32(const struct hd_measuring *m, const struct hd_small_shape *s)
{
	return hd_device_in_host(m->j->device) || s->embed * s->batch * s->seq <= 1024 * 8192;
}
