"""A tiny decoder that scores one batch and then generates, so that a length grows from call to call."""

import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self, vocabulary=20, width=8, heads=2):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(vocabulary, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, vocabulary)

    def split(self, x):
        batch, time, width = x.shape
        return x.view(batch, time, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, ids, masked=True):
        q, k, v = self.qkv(self.embed(ids)).chunk(3, dim=-1)
        q, k, v = self.split(q), self.split(k), self.split(v)
        scores = q @ k.transpose(-2, -1)
        if masked:
            time = ids.shape[1]
            scores += torch.full((time, time), -1e9).triu(1)
        else:
            scores = scores.abs()
        mixed = scores.softmax(-1) @ v
        mixed = mixed.transpose(1, 2).flatten(2)
        logits = self.out(mixed)
        return logits

    def unused(self, x):
        return x.exp()


def generate(model, ids, steps):
    for _ in range(steps):
        best = model(ids)[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, best], dim=1)
    return ids


def main():
    torch.manual_seed(0)
    model = Decoder()
    with torch.no_grad():
        return generate(model, torch.zeros(2, 1, dtype=torch.long), 12)
