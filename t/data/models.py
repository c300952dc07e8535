# SPDX-License-Identifier: Apache-2.0
# models.py FOLDER - makes the models that tests begin from, as save_pretrained writes them, with random weights and
# settings that are nobody's default: FOLDER/gpt2, llama, llama-tied, mixtral, gshard, and headless, the GPT-2 once more
# without its head, under shorter names and in several files.  Beside the weights numbers.txt says what transformers makes
# of them:
#
#	loss X				mean over all windows of ids-llmc.bin, of the longest sequence
#	logits TEXT Z0 Z1 ...		after the last byte of TEXT
import json
import os
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from layers import double_throughout, exact
from reference import read_ids

VOCAB = 257		# prime, so that whoever cuts it pads it
TEXTS = ["0123456789ab", "z"]

GPT2 = dict(vocab_size=VOCAB, n_positions=13, n_embd=12, n_layer=3, n_head=6, n_inner=30, layer_norm_epsilon=3e-3,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
LLAMA = dict(vocab_size=VOCAB, hidden_size=12, intermediate_size=21, num_hidden_layers=2, num_attention_heads=3,
             num_key_value_heads=1, max_position_embeddings=13, rms_norm_eps=2e-3, rope_theta=5000.0,
             tie_word_embeddings=False, bos_token_id=0, eos_token_id=0)
TIED = dict(LLAMA, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=2, rms_norm_eps=1e-6, rope_theta=50.0, tie_word_embeddings=True)
MIXTRAL = dict(LLAMA, intermediate_size=9, rms_norm_eps=1e-4, rope_theta=300.0, num_local_experts=6, num_experts_per_tok=2,
               router_aux_loss_coef=0.02, sliding_window=None)


def shaken(model):
    """Weights large enough that each matters; of norms around one, biases around zero."""
    for p in model.parameters():
        p.data += (0.3 if p.ndim > 1 else 0.2) * torch.randn_like(p)
    return model.eval()


def say(model, folder, ids, seq):
    n = (len(ids) - 1) // seq
    x = torch.tensor([ids[i * seq:i * seq + seq + 1] for i in range(n)])
    model = exact(model)
    with torch.no_grad(), double_throughout():
        logits = model(x[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(n * seq, -1), x[:, 1:].reshape(-1)).item()
        with open(folder + "/numbers.txt", "w") as f:
            print("loss %.12g" % loss, file=f)
            for text in TEXTS:
                z = model(torch.tensor([list(text.encode())])).logits[0, -1]
                print("logits", text, *("%.8g" % v for v in z.tolist()), file=f)


def save(model, folder, **how):
    model.save_pretrained(folder, **how)
    for extra in "generation_config.json", "README.md":
        if os.path.exists(folder + "/" + extra):
            os.remove(folder + "/" + extra)
    for name in os.listdir(folder):
        os.chmod(folder + "/" + name, 0o644)
    return model


def shorten(folder):
    """Half of its size in the repository: transformers writes its own version into config.json, which no test reads."""
    path = folder + "/config.json"
    with open(path) as f:
        config = json.load(f)
    config.pop("transformers_version", None)
    with open(path, "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")


def add_experts(folder, experts):
    """Experts in place of the feed-forward layers of odd layers, under the names that a checkpoint has for them."""
    path = folder + "/model.safetensors"
    tensors = load_file(path)
    for name in [n for n in tensors if ".h.1.mlp." in n]:
        del tensors[name]
    embed, mlp = GPT2["n_embd"], GPT2["n_inner"]
    stem = "transformer.h.1.moe."
    tensors[stem + "router.weight"] = 0.5 * torch.randn(embed, experts)
    for e in range(experts):
        tensors["%sexperts.%d.fc.weight" % (stem, e)] = 0.3 * torch.randn(embed, mlp)
        tensors["%sexperts.%d.proj.weight" % (stem, e)] = 0.3 * torch.randn(mlp, embed)
    save_file(tensors, path, metadata={"format": "pt"})


def main(out):
    ids = read_ids(out + "/ids-llmc.bin")
    made = [("gpt2", GPT2LMHeadModel, GPT2Config, GPT2), ("llama", LlamaForCausalLM, LlamaConfig, LLAMA),
            ("llama-tied", LlamaForCausalLM, LlamaConfig, TIED), ("mixtral", MixtralForCausalLM, MixtralConfig, MIXTRAL),
            ("gshard", GPT2LMHeadModel, GPT2Config, dict(GPT2, n_layer=2))]
    for name, cls, config, sizes in made:
        folder = out + "/" + name
        shutil.rmtree(folder, ignore_errors=True)
        model = save(shaken(cls(config(**sizes))), folder)
        shorten(folder)
        if name == "gpt2":
            shutil.rmtree(out + "/headless", ignore_errors=True)
            save(model.transformer, out + "/headless", max_shard_size="16KB")
            shorten(out + "/headless")
        if name == "gshard":
            add_experts(folder, 4)
        else:
            say(model, folder, ids, 13)


if __name__ == "__main__":
    torch.manual_seed(1)
    torch.set_num_threads(1)
    main(sys.argv[1])
