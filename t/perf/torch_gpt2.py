# SPDX-License-Identifier: Apache-2.0
"""The same training step in PyTorch, one process: GPT-2 shapes, AdamW, clipped gradients, random tokens.

    python3 t/perf/torch_gpt2.py LAYERS EMBED HEADS VOCAB BATCH SEQ STEPS THREADS [compile] [bf16]

Prints tokens per second (the median of STEPS steps, after two for warm-up) and the process' peak memory in bytes.
"""
import resource
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

layers, embed, heads, vocab, batch, seq, steps, threads = map(int, sys.argv[1:9])
torch.set_num_threads(threads)
torch.manual_seed(1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(embed), nn.LayerNorm(embed)
        self.qkv, self.proj = nn.Linear(embed, 3 * embed), nn.Linear(embed, embed)
        self.fc, self.out = nn.Linear(embed, 4 * embed), nn.Linear(4 * embed, embed)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, heads, c // heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))


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


model = Model()
step_of = torch.compile(model) if "compile" in sys.argv[9:] else model
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
times = []
for step in range(steps + 2):
    begin = time.perf_counter()
    ids = torch.randint(0, vocab, (batch, seq))
    with torch.autocast("cpu", torch.bfloat16, enabled="bf16" in sys.argv[9:]):
        loss = step_of(ids, ids.roll(-1, 1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    times.append(time.perf_counter() - begin)
print(f"{batch * seq / statistics.median(times[2:]):.1f}", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
