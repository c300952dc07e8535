# SPDX-License-Identifier: Apache-2.0
# families.py FOLDER [NAME...] - makes small random models of the families that transformers has and this program knows, with
# settings that are nobody's default, as save_pretrained writes them: FOLDER/NAME.  Beside the weights
#
#	numbers.txt		logits Z0 Z1 ... after the ids PROMPT below; of longrope also short Z0 ..., after the first 12 of them
#	one.jsonl		loss and norm of the step that one.ini says
#	one.safetensors		its gradients
#
# Without names: all that this program knows itself.  With transformers 5 only config-5.json is written, to a folder that is there: what that version says of the same model.
import json
import os
import shutil
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import (Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM,
                          MistralConfig, MistralForCausalLM, MixtralConfig, MixtralForCausalLM, Olmo2Config, Olmo2ForCausalLM,
                          OlmoeConfig, OlmoeForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM, Glm4MoeConfig,
                          Glm4MoeForCausalLM, VaultGemmaConfig, VaultGemmaForCausalLM)

from layers import double_throughout
from reference import read_ids

FIVE = int(transformers.__version__.split(".")[0]) >= 5
VOCAB, SEQ, BATCH = 61, 20, 3
PROMPT = [7 * i % VOCAB for i in range(18)]
SIZES = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=26, rms_norm_eps=2e-3, bos_token_id=1, eos_token_id=2,
             pad_token_id=0)


def rope(theta, **scaling):
    """In the form that this version has."""
    if FIVE:
        return dict(rope_parameters=dict(dict(rope_type="default"), rope_theta=theta, **scaling))
    return dict(rope_theta=theta, rope_scaling=scaling or None)


def rope_by_layer(full, windowed, **scaling):
    if FIVE:
        return dict(rope_parameters=dict(full_attention=dict(rope_theta=full, **scaling),
                                         sliding_attention=dict(rope_type="default", rope_theta=windowed)))
    return dict(rope_theta=full, rope_local_base_freq=windowed, rope_scaling=scaling)


def partial(theta, part):
    if FIVE:
        return dict(rope_parameters=dict(rope_type="default", rope_theta=theta, partial_rotary_factor=part))
    return dict(rope_theta=theta, partial_rotary_factor=part)


LONGROPE = dict(type="longrope", short_factor=[1.25, 1.5], long_factor=[2.5, 6.0])
LAYERS = dict(num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2)
MODELS = {
    "llama3": (LlamaForCausalLM, LlamaConfig, dict(head_dim=6, **rope(
        500.0, rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=16))),
    "llama-biased": (LlamaForCausalLM, LlamaConfig, dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                                         **rope(100.0, rope_type="linear", factor=2.0))),
    "mistral": (MistralForCausalLM, MistralConfig, dict(head_dim=8, sliding_window=5, **rope(700.0))),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, dict(use_sliding_window=True, sliding_window=4, max_window_layers=1, **rope(
        300.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=8))),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, dict(head_dim=6, tie_word_embeddings=True, **rope(300.0))),
    "gemma2": (Gemma2ForCausalLM, Gemma2Config, dict(head_dim=6, sliding_window=4, query_pre_attn_scalar=10,
                                                     attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
                                                     **rope(300.0))),
    "gemma3": (Gemma3ForCausalLM, Gemma3TextConfig, dict(head_dim=6, sliding_window=4, query_pre_attn_scalar=10, **LAYERS,
                                                         **rope_by_layer(1000.0, 50.0, rope_type="linear", factor=2.0))),
    "phi3": (Phi3ForCausalLM, Phi3Config, dict(sliding_window=6, original_max_position_embeddings=26,
                                               **partial(200.0, 0.5))),
    "phi3-long": (Phi3ForCausalLM, Phi3Config, dict(head_dim=4, original_max_position_embeddings=16, **(
        dict(rope_parameters=dict(LONGROPE, rope_theta=200.0)) if FIVE else dict(rope_theta=200.0, rope_scaling=LONGROPE)))),
    "olmo2": (Olmo2ForCausalLM, Olmo2Config, rope(300.0)),
    "olmoe": (OlmoeForCausalLM, OlmoeConfig, dict(num_experts=4, num_experts_per_tok=2, intermediate_size=10,
                                                  **rope(300.0))),
    "mixtral": (MixtralForCausalLM, MixtralConfig, dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=5,
                                                        intermediate_size=10, **rope(300.0))),
    "qwen3-moe": (Qwen3MoeForCausalLM, Qwen3MoeConfig, dict(head_dim=6, moe_intermediate_size=8, num_experts=4,
                                                            num_experts_per_tok=2, norm_topk_prob=True,
                                                            decoder_sparse_step=2, **rope(300.0))),
    "glm4-moe": (Glm4MoeForCausalLM, Glm4MoeConfig, dict(
        head_dim=8, attention_bias=True, use_qk_norm=True, n_routed_experts=6, n_group=3, topk_group=2, num_experts_per_tok=2,
        moe_intermediate_size=8, n_shared_experts=2, first_k_dense_replace=1, routed_scaling_factor=1.7, **partial(300.0, 0.5))),
    "glm4-moe-plain": (Glm4MoeForCausalLM, Glm4MoeConfig, dict(
        head_dim=8, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, first_k_dense_replace=0,
        norm_topk_prob=False, **partial(300.0, 0.5))),
}
# Not of this program: of examples/vaultgemma, in t/data/brought.
BROUGHT = {
    "vaultgemma": (VaultGemmaForCausalLM, VaultGemmaConfig, dict(
        head_dim=6, sliding_window=4, query_pre_attn_scalar=10, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
        **rope(300.0))),
}


def model_of(name):
    made, config, keys = {**MODELS, **BROUGHT}[name]
    torch.manual_seed(sorted(MODELS).index(name) if name in MODELS else 100)
    model = made(config(**{**SIZES, **keys}, attn_implementation="eager"))
    for p in model.parameters():
        p.data += (0.3 if p.ndim > 1 else 0.2) * torch.randn_like(p)
    for n, b in model.named_buffers():
        if n.endswith("e_score_correction_bias"):
            b += 0.1 * torch.randn_like(b)
    return model.eval()


def one_step(model, ids):
    """The first batch of one.ini: loss, and gradients."""
    x = torch.tensor([ids[i * SEQ:i * SEQ + SEQ + 1] for i in range(BATCH)])
    with double_throughout():
        logits = model(x[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(BATCH * SEQ, -1), x[:, 1:].reshape(-1))
    loss.backward()
    return loss.item(), {n: p.grad for n, p in model.named_parameters()}


def make(folder, model, ids):
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    os.remove(folder + "/generation_config.json")
    os.chmod(folder + "/model.safetensors", 0o644)
    loss, gradients = one_step(model.double(), ids)
    norm = sum((g * g).sum().item() for g in gradients.values()) ** 0.5
    with open(folder + "/one.jsonl", "w") as f:
        print(json.dumps({"step": 1, "loss": loss, "grad_norm": norm, "lr": 1024.0}), file=f)
    for n, b in model.named_buffers():
        if n.endswith("e_score_correction_bias"):  # is saved, and no step changes it
            gradients[n] = torch.zeros_like(b)
    save_file({n: g.float().contiguous() for n, g in gradients.items()}, folder + "/one.safetensors")
    os.chmod(folder + "/one.safetensors", 0o644)
    with torch.no_grad(), double_throughout():
        logits = model(torch.tensor([PROMPT])).logits[0, -1]
    with open(folder + "/numbers.txt", "w") as f:
        print("logits", *("%.8g" % z for z in logits.tolist()), file=f)
        if folder.endswith("phi3-long"):  # which are within the positions of the first training
            with torch.no_grad(), double_throughout():
                short = model(torch.tensor([PROMPT[:12]])).logits[0, -1]
            print("short", *("%.8g" % z for z in short.tolist()), file=f)


def shorten(path, to):
    """transformers writes its own version, which no test reads."""
    with open(path) as f:
        config = json.load(f)
    config.pop("transformers_version", None)
    with open(to, "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")


def main(out, names):
    ids = read_ids(out + "/ids-llmc.bin")
    for name in names or MODELS:
        folder, model = out + "/" + name, model_of(name)
        if FIVE:
            model.config.save_pretrained(folder + "/five")
            shorten(folder + "/five/config.json", folder + "/config-5.json")
            shutil.rmtree(folder + "/five")
        else:
            make(folder, model, ids)
            shorten(folder + "/config.json", folder + "/config.json")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], sys.argv[2:])
