# SPDX-License-Identifier: Apache-2.0
# choices.py MODEL QUESTIONS - what transformers makes of questions (lines {"prompt", "choices", "answer"}), bytes being
# tokens: for each a line with the log-likelihood of every choice given the prompt, in double precision.  Blanks at the end of
# the prompt are the choice's, and of what is longer than the model reads the end counts.
import json
import sys

import torch
from transformers import AutoModelForCausalLM

from layers import double_throughout, exact

folder, questions = sys.argv[1:]
how = {"experts_implementation": "eager"} if "mixtral" in folder else {}
model = exact(AutoModelForCausalLM.from_pretrained(folder, **how).eval())
seq = model.config.max_position_embeddings


def likelihood(prompt, choice):
    given = list(prompt.rstrip().encode())
    ids = list((prompt + choice).encode())
    own = len(ids) - len(given)
    ids = torch.tensor([ids[-(seq + 1):]])
    with torch.no_grad(), double_throughout():
        all = torch.log_softmax(model(ids[:, :-1]).logits.double(), -1)[0]
    return all.gather(1, ids[0, 1:, None])[-own:].sum().item()


with open(questions) as f:
    for line in f:
        if line.strip():
            q = json.loads(line)
            print(*("%.12g" % likelihood(q["prompt"], c) for c in q["choices"]))
