# SPDX-License-Identifier: Apache-2.0
# reference.py INI OUT [MODEL] - trains MODEL (default: what the INI loads), a folder as transformers saves them, as the INI
# says, with PyTorch and transformers alone: nothing of Heddle runs here.  What a key means is taken from doc/ini.md.  Data
# are read in order (`order = sequential'), by one rank, in double precision.  Writes
#
#	OUT.jsonl		of each step: loss, grad_norm, lr; aux_loss and dropped with experts
#	OUT.safetensors		the weights after the last step, under transformers' names; or the last step's gradients
#				(before clipping) where the INI says `gradients = yes'
import configparser
import json
import math
import os
import struct
import sys

import torch
from safetensors.torch import save_file

import layers


class Settings:
    """One section of the INI, with numbers as numbers."""
    def __init__(self, ini, section):
        self.pairs = dict(ini.items(section)) if ini.has_section(section) else {}

    def text(self, key, default=None):
        return self.pairs.get(key, default)

    def number(self, key, default=None):
        return float(self.pairs.get(key, default))

    def whole(self, key, default=None):
        return int(self.pairs.get(key, default))


def read_ids(path):
    with open(path, "rb") as f:
        head = struct.unpack("<256i", f.read(1024))
        assert head[0] == 20240520 and head[1] == 1, path
        return list(struct.unpack("<%dH" % head[2], f.read()))


def batch(ids, train, step):
    """Ids of the step, from 1: windows of seq + 1 that share their ends, one after the other."""
    seq, n = train.whole("seq"), train.whole("global_batch")
    windows = (len(ids) - 1) // seq
    first = [((step - 1) * n + i) % windows * seq for i in range(n)]
    return torch.tensor([ids[at:at + seq + 1] for at in first])


def learning_rate(t, step):
    scale = t.whole("global_batch") * t.whole("seq") if t.text("schedule_unit", "steps") == "tokens" else 1
    top, warmup, now = t.number("lr"), t.number("warmup", 0), step * scale
    low = t.number("min_lr", -1)
    low = top / 10 if low < 0 else low
    end = t.number("decay", 0) or t.whole("steps") * scale
    if now < warmup:
        return top * now / warmup
    done = min(1.0, (now - warmup) / (end - warmup)) if end > warmup else 1.0
    if t.text("schedule", "cosine") == "constant":
        return top
    if t.text("schedule", "cosine") == "linear":
        return top * (1 - done) + low * done
    return low + (top - low) * (1 + math.cos(math.pi * done)) / 2


def optimizer(model, t):
    decay, plain = [], []
    for p in model.parameters():
        (decay if p.ndim >= 2 else plain).append(p)
    groups = [{"params": decay, "weight_decay": t.number("weight_decay", 0.1)}, {"params": plain, "weight_decay": 0.0}]
    if t.text("optimizer", "adamw") == "sgd":
        return torch.optim.SGD(groups, lr=1.0)
    return torch.optim.AdamW(groups, lr=1.0, betas=(t.number("beta1", 0.9), t.number("beta2", 0.95)),
                             eps=t.number("eps", 1e-8))


def norm_and_clip(model, limit):
    grads = [p.grad for p in model.parameters()]
    norm = math.sqrt(sum((g * g).sum().item() for g in grads))
    for g in grads:
        if 0 < limit < norm:
            g.mul_(limit / norm)
    return norm


def one_step(model, opt, t, m, step, tokens):
    """Forward, backward and update; the step's line of metrics, and its gradients before clipping."""
    layers.begin_step(model, step)
    with layers.double_throughout():
        logits = model(tokens[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
    line = {"step": step, "loss": loss.item()}
    routed = layers.expert_terms(model, tokens.shape[0])
    aux = m.number("aux_loss", getattr(model.config, "router_aux_loss_coef", 0.01))
    extra = sum(aux * r.aux + m.number("z_loss", 0) * r.z for r in routed)
    opt.zero_grad()
    (loss + extra).backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters()}
    line["grad_norm"] = norm_and_clip(model, t.number("clip", 1.0))
    line["lr"] = learning_rate(t, step)
    for group in opt.param_groups:
        group["lr"] = line["lr"]
    opt.step()
    if routed:
        line["aux_loss"] = sum(r.aux.item() for r in routed)
        line["dropped"] = [r.dropped for r in routed]
    return line, gradients


def stored(tensors):
    """As transformers saves them: a tied head is not a tensor of its own."""
    return {n: v.detach().to(torch.float32).contiguous() for n, v in tensors.items()}


def main(path, out, folder=None):
    ini = configparser.ConfigParser()
    ini.read(path)
    t, m = Settings(ini, "train"), Settings(ini, "model")
    here = os.path.dirname(path) or "."
    ids = read_ids(here + "/" + ini.get("data", "train"))
    model = layers.load(folder or here + "/" + m.text("load"), m, t.whole("seed", 1)).train()
    opt = optimizer(model, t)
    with open(out + ".jsonl", "w") as f:
        for step in range(1, t.whole("steps") + 1):
            line, gradients = one_step(model, opt, t, m, step, batch(ids, t, step))
            print(json.dumps(line), file=f)
    wants = Settings(ini, "checkpoint").text("gradients") == "yes"
    save_file(stored(gradients if wants else dict(model.named_parameters())), out + ".safetensors")
    os.chmod(out + ".safetensors", 0o644)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*sys.argv[1:])
