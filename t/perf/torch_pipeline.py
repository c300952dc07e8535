# SPDX-License-Identifier: Apache-2.0
"""A pipeline's training step in PyTorch (torch.distributed.pipelining over gloo): GPT-2 shapes, AdamW, random tokens.

    torchrun --nproc_per_node P t/perf/torch_pipeline.py LAYERS EMBED HEADS VOCAB MICRO_BATCH MICRO_BATCHES SEQ STEPS SCHEDULE [TP]

SCHEDULE: gpipe, 1f1b, or interleaved (two chunks per rank).  LAYERS must be divisible by stages x chunks; the embedding
is in the first stage, the untied head in the last.  With TP each stage has TP ranks, which shard its layers like
Megatron-LM (DTensor's parallelize_module).  Rank 0 prints one number: tokens per second (the median of STEPS steps,
after two for warm-up).
"""
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F

layers, embed, heads, vocab, micro_batch, micros, seq, steps = map(int, sys.argv[1:9])
order = sys.argv[9]
tp = int(sys.argv[10]) if len(sys.argv) > 10 else 1
torch.set_num_threads(1)
torch.manual_seed(1)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size() // tp, tp), mesh_dim_names=("pp", "tp"))
rank, world = mesh.get_local_rank("pp"), mesh.size(0)
CUT = {"q": ColwiseParallel, "k": ColwiseParallel, "v": ColwiseParallel, "proj": RowwiseParallel, "fc": ColwiseParallel, "out": RowwiseParallel}


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(embed), nn.LayerNorm(embed)
        if tp == 1:
            self.qkv = nn.Linear(embed, 3 * embed)
        else:
            self.q, self.k, self.v = (nn.Linear(embed, embed) for _ in range(3))
        self.proj = nn.Linear(embed, embed)
        self.fc, self.out = nn.Linear(embed, 4 * embed), nn.Linear(4 * embed, embed)

    def forward(self, x):
        b, t, c = x.shape
        y = self.norm1(x)
        qkv = self.qkv(y).split(c, dim=2) if tp == 1 else (self.q(y), self.k(y), self.v(y))
        q, k, v = (y.view(b, t, -1, c // heads).transpose(1, 2) for y in qkv)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, -1))
        return x + self.out(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))


class Stage(nn.Module):
    def __init__(self, first, last, n):
        super().__init__()
        self.first, self.last = first, last
        if first:
            self.wte, self.wpe = nn.Embedding(vocab, embed), nn.Embedding(seq, embed)
        self.layers = nn.ModuleList(Layer() for _ in range(n))
        if last:
            self.norm, self.head = nn.LayerNorm(embed), nn.Linear(embed, vocab, bias=False)

    def forward(self, x):
        if self.first:
            x = self.wte(x) + self.wpe.weight[: x.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)) if self.last else x


def loss(logits, targets):
    return F.cross_entropy(logits.view(-1, vocab), targets.reshape(-1))


chunks = 2 if order == "interleaved" else 1
parts = world * chunks
mine = [rank + c * world for c in range(chunks)]
modules = [Stage(i == 0, i == parts - 1, layers // parts) for i in mine]
for layer in (layer for m in modules for layer in m.layers if tp > 1):
    parallelize_module(layer, mesh["tp"], {name: how() for name, how in CUT.items()})
stages = [pipelining.PipelineStage(m, i, parts, torch.device("cpu"), group=mesh.get_group("pp")) for m, i in zip(modules, mine)]
if order == "interleaved":
    schedule = pipelining.ScheduleInterleaved1F1B(stages, n_microbatches=micros, loss_fn=loss)
else:
    kind = pipelining.ScheduleGPipe if order == "gpipe" else pipelining.Schedule1F1B
    schedule = kind(stages[0], n_microbatches=micros, loss_fn=loss)
update = torch.optim.AdamW([p for m in modules for p in m.parameters()], lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=tp == 1)
seconds = []
for step in range(steps + 2):
    ids = torch.randint(0, vocab, (micro_batch * micros, seq))
    dist.barrier()
    begin = time.perf_counter()
    schedule.step(*([ids] if rank == 0 else []), **({"target": ids.roll(-1, 1)} if rank == world - 1 else {}))
    update.step()
    update.zero_grad(set_to_none=True)
    dist.barrier()
    if step >= 2:
        seconds.append(time.perf_counter() - begin)
if dist.get_rank() == 0:
    print(micro_batch * micros * seq / statistics.median(seconds), flush=True)
dist.destroy_process_group()
