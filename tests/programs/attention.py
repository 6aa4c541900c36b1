"""Causal multi-head attention by hand, in the steps that the Tracy NN document shows."""

import torch
from torch import nn


class MHA(nn.Module):
    def __init__(self, d_in, d_out, seq_len, num_heads, context_window, dropout):
        super().__init__()
        self.d_out = d_out
        self.seq_len = seq_len
        self.num_heads = num_heads
        self.head_dim = d_out // num_heads
        self.query_weights = nn.Linear(d_in, d_out)
        self.key_weights = nn.Linear(d_in, d_out)
        self.value_weights = nn.Linear(d_in, d_out)
        self.dropout = nn.Dropout(dropout)
        self.out_projection = nn.Linear(d_out, d_out)
        future = torch.triu(torch.ones(context_window, context_window), diagonal=1)
        self.register_buffer("mask", future.bool(), persistent=False)

    def forward(self, x):
        queries = self.query_weights(x)
        keys = self.key_weights(x)
        values = self.value_weights(x)
        queries = self.split_heads(queries)
        keys = self.split_heads(keys)
        values = self.split_heads(values)
        context = self.calculate_attention(queries, keys, values)
        return self.out_projection(self.combine_heads(context))

    def split_heads(self, x):
        batch, tokens, _ = x.shape
        return x.view(batch, tokens, self.num_heads, self.head_dim).transpose(1, 2)

    def calculate_attention(self, queries, keys, values):
        tokens = queries.shape[2]
        scores = queries @ keys.transpose(2, 3) / self.head_dim**0.5
        scores = scores.masked_fill(self.mask[:tokens, :tokens], float("-inf"))
        weights = self.dropout(torch.softmax(scores, dim=-1))
        return weights @ values

    def combine_heads(self, x):
        batch, _, tokens, _ = x.shape
        x = x.transpose(1, 2)
        # The copy is needed: no view joins two dimensions that do not lie together.
        return x.contiguous().view(batch, tokens, self.d_out)


def main():
    torch.manual_seed(0)
    x = torch.rand(10, 20, 6)
    mha = MHA(d_in=6, d_out=6, seq_len=20, num_heads=3, context_window=20, dropout=0.1)
    return mha(x)
