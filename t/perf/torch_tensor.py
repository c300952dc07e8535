# SPDX-License-Identifier: Apache-2.0
"""A training step with tensor parallelism in PyTorch over gloo: GPT-2 shapes, AdamW, clipped gradients, random tokens.

    python3 -m torch.distributed.run --standalone --nproc_per_node N t/perf/torch_tensor.py \\
        LAYERS EMBED HEADS VOCAB BATCH SEQ MICROS STEPS THREADS [api]

Heads and the feed-forward layer are sharded; the embedding, which is small here, is replicated.  Without `api` the two
all-reduces of a layer in forward and backward are explicit; with `api` torch.distributed.tensor.parallel shards the
modules.  One process runs the same without all-reduces.  Prints one number: tokens per second (the median of STEPS
steps, after two for warm-up).
"""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

layers, embed, heads, vocab, batch, seq, micros, steps, threads = map(int, sys.argv[1:10])
api = "api" in sys.argv[10:]
torch.set_num_threads(threads)
ranks = int(os.environ.get("WORLD_SIZE", "1"))
if ranks > 1:
    dist.init_process_group("gloo")
rank = dist.get_rank() if ranks > 1 else 0
parts = 1 if api else ranks
cut = set()  # parameters that are sharded


class Enter(torch.autograd.Function):
    """Identity; its gradient is summed over the ranks."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, dx):
        dx = dx.contiguous()
        dist.all_reduce(dx)
        return dx


class Leave(torch.autograd.Function):
    """The sum over the ranks; its gradient is passed on."""

    @staticmethod
    def forward(ctx, x):
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, dy):
        return dy


def enter(x):
    return Enter.apply(x) if parts > 1 else x


def leave(x):
    return Leave.apply(x) if parts > 1 else x


def linear(n, m, bias=True):
    y = nn.Linear(n, m, bias)
    cut.update(y.parameters())
    return y


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(embed), nn.LayerNorm(embed)
        self.q, self.k, self.v = (linear(embed, embed // parts) for _ in range(3))
        self.proj = linear(embed // parts, embed, bias=parts == 1)
        self.fc, self.out = linear(embed, 4 * embed // parts), linear(4 * embed // parts, embed, bias=parts == 1)
        if parts > 1:  # added once, after the sum
            self.proj_bias, self.out_bias = nn.Parameter(torch.zeros(embed)), nn.Parameter(torch.zeros(embed))

    def attention(self, x):
        b, t, _ = x.shape
        x = enter(x)
        q, k, v = (f(x).view(b, t, -1, embed // heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = leave(self.proj(y.transpose(1, 2).reshape(b, t, -1)))
        return y + self.proj_bias if parts > 1 else y

    def mlp(self, x):
        y = leave(self.out(F.gelu(self.fc(enter(x)), approximate="tanh")))
        return y + self.out_bias if parts > 1 else y

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, embed), nn.Embedding(seq, embed)
        self.layers, self.norm = nn.ModuleList(Layer() for _ in range(layers)), nn.LayerNorm(embed)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe.weight
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, vocab), targets.view(-1))


def clip(params):
    """Clips by the norm of all gradients; sharded ones are summed over the ranks, replicated ones count once."""
    if ranks == 1:
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        return
    grads = {True: [], False: []}
    for p in params:
        if api:
            is_cut = hasattr(p, "placements") and any(w.is_shard() for w in p.placements)
            grads[is_cut].append(p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad)
        else:
            grads[p in cut].append(p.grad)
    square = sum(g.square().sum() for g in grads[True])
    dist.all_reduce(square)
    norm = (square + sum(g.square().sum() for g in grads[False])).sqrt()
    factor = torch.clamp(1.0 / (norm + 1e-6), max=1.0)
    for g in grads[True] + grads[False]:
        g.mul_(factor)


torch.manual_seed(1)
model = Model()
if parts > 1:
    for p in model.parameters():
        if p not in cut:
            dist.broadcast(p.data, 0)
if api and ranks > 1:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (ranks,))
    plan = {name: ColwiseParallel() for name in ("q", "k", "v", "fc")} | {n: RowwiseParallel() for n in ("proj", "out")}
    for layer in model.layers:
        parallelize_module(layer, mesh, plan)
params = list(model.parameters())
plain = not api or ranks == 1
optimizer = torch.optim.AdamW(params, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=plain,
                              foreach=None if plain else False)
tokens = torch.Generator().manual_seed(2)
times = []
for step in range(steps + 2):
    if ranks > 1:
        dist.barrier()
    begin = time.perf_counter()
    for _ in range(micros):
        ids = torch.randint(0, vocab, (batch, seq), generator=tokens)
        (model(ids, ids.roll(-1, 1)) / micros).backward()
    clip(params)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    times.append(time.perf_counter() - begin)
if rank == 0:
    print(f"{micros * batch * seq / statistics.median(times[2:]):.1f}", flush=True)
if ranks > 1:
    dist.destroy_process_group()
