# SPDX-License-Identifier: Apache-2.0
# layers.py - models of transformers, in double precision, with what transformers does not have: dropout whose mask is a
# function of position, GShard's experts in a GPT-2, and the two losses of routers.
import contextlib
import json
from types import SimpleNamespace

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

MASK = (1 << 64) - 1


@contextlib.contextmanager
def double_throughout():
    """A model in double precision computes in nothing else: transformers has norms, angles and routers in float32."""
    single, cast = torch.float32, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    yield
    torch.float32 = torch.float = single
    torch.Tensor.float = cast


def exact(model):
    """In double, with the angles' frequencies made anew."""
    model = model.double()
    theta = getattr(model.config, "rope_theta", None) or (getattr(model.config, "rope_parameters", None) or {}).get("rope_theta")
    for x in model.modules():
        if hasattr(x, "inv_freq"):
            n = 2 * x.inv_freq.numel()
            x.inv_freq = theta ** -(torch.arange(0, n, 2).double() / n)
    return model


# -- random numbers: of (seed, name, number) a key, of (key, index) a number in [0, 1) --------------------------------
def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


GOLDEN = 0x9E3779B97F4A7C15


def key_of(seed, name, number):
    h = 0xCBF29CE484222325
    for c in name.encode():
        h = (h ^ c) * 0x100000001B3 & MASK
    return mix((mix(mix(seed + GOLDEN & MASK) ^ mix(h)) + (number + 1) * GOLDEN) & MASK)


def uniform(key, index):
    turned = (key << 32 | key >> 32) & MASK
    return (mix(mix(key + (index + 1) * GOLDEN & MASK) ^ turned) >> 11) * 2.0 ** -53


class Dropout(torch.nn.Module):
    """What is kept belongs to the seed, the step, the site and the place in the global batch."""
    def __init__(self, p, seed, site):
        super().__init__()
        self.p, self.seed, self.site, self.step = p, seed, site, 0

    def forward(self, x):
        key = key_of(self.seed, "dropout", mix(self.step) ^ self.site)
        keep = torch.tensor([uniform(key, i) >= self.p for i in range(x.numel())]).reshape(x.shape)
        return x * keep / (1 - self.p)


# -- experts ------------------------------------------------------------------------------------------------------------
class Matrix(torch.nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(rows, columns))

    def forward(self, x):
        return x @ self.weight


class Expert(torch.nn.Module):
    def __init__(self, embed, mlp):
        super().__init__()
        self.fc, self.proj = Matrix(embed, mlp), Matrix(mlp, embed)

    def forward(self, x):
        return self.proj(torch.nn.functional.gelu(self.fc(x), approximate="tanh"))


class GShard(torch.nn.Module):
    """GShard 2006.16668, algorithm 1: the best expert, and the second with probability 2 g2, as far as they have room.
    Groups are samples."""
    def __init__(self, embed, mlp, m, seed, site):
        super().__init__()
        n = m.whole("experts")
        self.factor, self.random = m.number("capacity_factor", 2), m.text("second_expert", "random") == "random"
        self.seed, self.site, self.step = seed, site, 0
        self.router = Matrix(embed, n)
        self.experts = torch.nn.ModuleList([Expert(embed, mlp) for _ in range(n)])

    def route(self, z):
        """Of each token the choices that found room, as (gate, expert); how many did not."""
        b, s, n = z.shape
        room, key = int(self.factor * s / n), key_of(self.seed, "second expert", mix(self.step) ^ self.site)
        best = z.topk(2, dim=-1).indices
        p = torch.softmax(z, dim=-1)
        g = p.gather(-1, best)
        g = g / g.sum(-1, keepdim=True)
        sent, dropped = [[[] for _ in range(s)] for _ in range(b)], 0
        self.margin = min((z.gather(-1, best)[..., 0] - z.gather(-1, best)[..., 1]).min().item(),
                          (z.topk(3).values[..., 1] - z.topk(3).values[..., 2]).min().item())
        for i in range(b):
            taken = [0] * n
            for j in range(2):
                for k in range(s):
                    e, draw = best[i, k, j].item(), uniform(key, i * s + k)
                    if j and self.random:
                        self.margin = min(self.margin, abs(2 * g[i, k, 1].item() - draw))
                        if 2 * g[i, k, 1].item() <= draw:
                            continue
                    if taken[e] >= room:
                        dropped += 1
                        continue
                    taken[e] += 1
                    sent[i][k].append((g[i, k, j], e))
        return sent, dropped / (2 * b * s), best[..., :1]

    def forward(self, x):
        z = self.router(x)
        sent, dropped, first = self.route(z)
        self.said = SimpleNamespace(logits=z, chosen=first, dropped=dropped)
        every = [expert(x) for expert in self.experts]
        rows = [sum((g * every[e][i, k] for g, e in places), torch.zeros_like(x[i, k]))
                for i, row in enumerate(sent) for k, places in enumerate(row)]
        return torch.stack(rows).reshape(x.shape)


def expert_terms(model, samples):
    """Of each layer of experts what doc/ini.md calls A (groups are samples) and Z, and what was dropped."""
    out = []
    for layer in model.modules():
        said = getattr(layer, "said", None)
        if said is None:
            continue
        n = said.logits.shape[-1]
        z = said.logits.reshape(samples, -1, n)
        chosen = torch.nn.functional.one_hot(said.chosen.reshape(samples, -1, said.chosen.shape[-1]), n).double()
        part, gate = chosen.mean(dim=(1, 2)), torch.softmax(z, dim=-1).mean(dim=1)
        out.append(SimpleNamespace(aux=n * (part * gate).sum(-1).mean(), z=(torch.logsumexp(z, -1) ** 2).mean(),
                                   dropped=said.dropped))
    return out


def listen(block, top):
    """Has a Mixtral block tell what its router said."""
    def hook(gate, inputs, logits):
        values, best = logits.topk(top + 1, dim=-1)
        block.margin = (values[:, :-1] - values[:, 1:]).min().item()
        block.said = SimpleNamespace(logits=logits, chosen=best[:, :top], dropped=0.0)
    block.gate.register_forward_hook(hook)


def begin_step(model, step):
    for x in model.modules():
        if hasattr(x, "step"):
            x.step = step
        assert getattr(x, "margin", 1) > 2e-5, "a choice that rounding could turn: take another seed"


# -- models -------------------------------------------------------------------------------------------------------------
def gshard(folder, m, seed):
    """A GPT-2 whose odd layers have experts: transformers' model with its feed-forward layers changed."""
    with open(folder + "/config.json") as f:
        config = GPT2Config(**json.load(f))
    model = GPT2LMHeadModel(config)
    for i, block in enumerate(model.transformer.h):
        if i % 2:
            del block.mlp
            block.moe = block.mlp = GShard(config.n_embd, config.n_inner, m, seed, i)
    return model


def load(folder, m, seed):
    dropout = m.number("dropout", 0)
    if m.text("router") == "gshard":
        model = gshard(folder, m, seed)
        names = model.load_state_dict(load_file(folder + "/model.safetensors"), strict=False)
        assert not names.unexpected_keys, names
    else:
        model = AutoModelForCausalLM.from_pretrained(folder)
    model = exact(model)
    if dropout:
        model.transformer.drop = Dropout(dropout, seed, 0)
        for i, block in enumerate(model.transformer.h):
            block.attn.resid_dropout = Dropout(dropout, seed, 2 * i + 1)
            block.mlp.dropout = Dropout(dropout, seed, 2 * i + 2)
    for block in model.modules():
        if type(block).__name__ == "MixtralSparseMoeBlock":
            listen(block, model.config.num_experts_per_tok)
    return model
