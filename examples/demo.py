"""What does a real transformer do? A tiny GPT-2 as a tree of shapes and as a table."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import torchglass as tg

torch.manual_seed(0)
config = GPT2Config(n_layer=3, n_embd=48, n_head=4, vocab_size=1000, n_positions=64, bos_token_id=1, eos_token_id=2)
model = GPT2LMHeadModel(config).eval()
ids = torch.randint(0, 1000, (1, 16))

with tg.record() as trace, torch.no_grad():
    logits = model(ids).logits

tg.show(trace)
tg.show(trace, "table", times=False)
