"""An index that the table does not have."""

import torch
from torch import nn


class LM(nn.Module):
    def __init__(self, vocab=100, d=16):
        super().__init__()
        self.tok = nn.Embedding(vocab, d)
        self.pos = nn.Embedding(32, d)
        self.head = nn.Linear(d, vocab)

    def forward(self, ids):
        pos = torch.arange(ids.shape[1])
        h = self.tok(ids) + self.pos(pos)
        return self.head(h)


def batch(n):
    return torch.randint(0, 101, (4, n))  # MISTAKE


torch.manual_seed(0)
lm = LM()
ids = batch(20)
ids[0, 0] = 100
print(lm(ids).shape)
