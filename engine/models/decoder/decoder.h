/* SPDX-License-Identifier: Apache-2.0
 * engine/models/decoder/decoder.h - the decoder that most families are: Llama's, and what its successors have changed in it, each
 * change a key of [model].  A family is a table of defaults (engine/models/family/).
 */
#ifndef HD_ENGINE_MODELS_DECODER_H
#define HD_ENGINE_MODELS_DECODER_H
#include "engine/models/decoder/family.h"

struct tensor *hd_decoder_hidden(struct hd_plan *p, struct tensor *ids);
struct tensor *hd_decoder_logits(struct hd_plan *p, struct tensor *hidden);
int hd_decoder_hf(const struct hd_model *m, const char *param, struct hd_hf_region *r);
int64_t hd_decoder_mlp(int64_t embed); /* 8/3 embed, rounded up to 64 */
/* Whether layer l has a window that is shorter than the sequence can be. */
int hd_decoder_window(const struct hd_model *m, int64_t l);

/* Keys of config.json that all of them have. */
#define HD_DECODER_KEYS(eps, tie) \
	{ "num_hidden_layers", "layers", NULL, "!", 0 }, { "hidden_size", "embed", NULL, "!", 0 }, \
		{ "num_attention_heads", "heads", NULL, "!", 0 }, \
		{ "num_key_value_heads", "kv_heads", NULL, NULL, 0 }, { "head_dim", "head_dim", NULL, NULL, 0 }, \
		{ "intermediate_size", "mlp", NULL, "!", 0 }, { "vocab_size", "vocab", NULL, "!", 0 }, \
		{ "max_position_embeddings", "max_seq", NULL, "!", 0 }, { "rms_norm_eps", "norm_eps", NULL, eps, 0 }, \
		{ "initializer_range", "init_std", NULL, NULL, 0 }, \
		{ "tie_word_embeddings", "tie_embeddings", NULL, tie, 0 }, \
	{ \
		"attention_dropout", NULL, "0|null", NULL, 0 \
	}
#define HD_HF_ACTIVATIONS \
	"silu=silu|swish=silu|gelu_pytorch_tanh=gelu_tanh|gelu_new=gelu_tanh|gelu_fast=gelu_tanh|gelu=gelu_erf|gelu_python=gelu_erf"

#endif
