"""Masks that hide the wrong half, heads in the place of the sequence, and attention without an axis."""

import torch
import torch.nn.functional as F
from torch import nn

B, T, H, D = 2, 6, 4, 8


class Attention(nn.Module):
    def __init__(self, mask, swaps=True, is_fused=False):
        super().__init__()
        self.embed, self.qkv, self.out = nn.Embedding(9, H * D), nn.Linear(H * D, 3 * H * D), nn.Linear(H * D, 9)
        self.mask, self.swaps, self.is_fused = mask, swaps, is_fused

    def forward(self, tokens):
        parts = self.qkv(self.embed(tokens)).chunk(3, dim=-1)
        q, k, v = (part.view(B, T, H, D) for part in parts)
        if self.swaps:
            q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        h = self.attend(q, k, v, tokens)
        if self.swaps:
            h = h.transpose(1, 2)
        return self.out(h.reshape(B, T, H * D))

    def attend(self, q, k, v, tokens):
        if self.is_fused:
            mask = None if self.mask is None else self.mask(tokens)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # finds: mask-inverted  [fused]
        scores = q @ k.transpose(-2, -1) / D**0.5
        if self.mask is not None:
            scores = scores.masked_fill(self.mask(tokens), -1e9)  # finds: mask-inverted  [filled]
        return scores.softmax(-1) @ v


def train(model):
    tokens = torch.randint(0, 9, (B, T))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()


def causal_mask_inverted():  # [filled]
    train(Attention(lambda tokens: torch.tril(torch.ones(T, T)) == 1))


def causal_mask_fixed():
    train(Attention(lambda tokens: torch.tril(torch.ones(T, T)) == 0))


def causal_mask_of_annotated_transformer_lookalike():
    train(Attention(lambda tokens: (torch.triu(torch.ones(T, T)) == 1).transpose(0, 1) == 0))


def padding_mask_inverted():  # [filled]
    train(Attention(lambda tokens: (tokens != 0)[:, None, None, :]))


def padding_mask_fixed():
    train(Attention(lambda tokens: (tokens == 0)[:, None, None, :]))


def padding_mask_with_two_inversions_lookalike():
    train(Attention(lambda tokens: ~(tokens != 0)[:, None, None, :]))


def length_mask_inverted():  # [filled]
    lengths = torch.tensor([6, 3])
    train(Attention(lambda tokens: (torch.arange(T)[None] < lengths[:, None])[:, None, None, :]))


def length_mask_fixed():
    lengths = torch.tensor([6, 3])
    train(Attention(lambda tokens: (torch.arange(T)[None] >= lengths[:, None])[:, None, None, :]))


def fused_mask_inverted():  # [fused]
    train(Attention(lambda tokens: torch.ones(T, T).triu(diagonal=1).bool(), is_fused=True))


def fused_mask_fixed():
    train(Attention(lambda tokens: torch.ones(T, T).tril().bool(), is_fused=True))


class Encoder(nn.Module):
    def __init__(self, is_inverted):
        super().__init__()
        self.embed, self.head = nn.Embedding(9, 16), nn.Linear(16, 9)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.is_inverted = is_inverted

    def forward(self, tokens):
        mask = tokens != 0 if self.is_inverted else tokens == 0
        h = self.layer(self.embed(tokens), src_key_padding_mask=mask)  # finds: mask-inverted  [layer]
        return self.head(h)


def padding_of_a_layer_inverted():  # [layer]
    train(Encoder(is_inverted=True))


def padding_of_a_layer_fixed():
    train(Encoder(is_inverted=False))


class Mixed(Attention):
    def attend(self, q, k, v, tokens):
        scores = q @ k.transpose(-2, -1) / D**0.5  # finds: heads-mixed  [written]
        return scores.softmax(-1) @ v


def heads_not_swapped():  # [written]
    train(Mixed(None, swaps=False))


def heads_swapped_fixed():
    train(Mixed(None))


class MixedFused(Attention):
    def attend(self, q, k, v, tokens):
        return F.scaled_dot_product_attention(q, k, v)  # finds: heads-mixed  [sdpa]


def heads_not_swapped_in_fused_attention():  # [sdpa]
    train(MixedFused(None, swaps=False))


def heads_swapped_in_fused_attention_fixed():
    train(MixedFused(None))


def windows_lookalike():
    x = torch.randn(2, 12, 8, requires_grad=True)
    windows = x.view(2, 3, 4, 8)
    (F.scaled_dot_product_attention(windows, windows, windows) ** 2).mean().backward()


def softmax_without_dim():
    model, optimizer = sequence_model()
    x, y = torch.randn(4, 5, 8), torch.rand(4, 5, 3)
    for _ in range(2):
        optimizer.zero_grad()
        F.mse_loss(F.softmax(model(x)), y).backward()  # finds: softmax-axis
        optimizer.step()


def softmax_without_dim_fixed():
    model, optimizer = sequence_model()
    x, y = torch.randn(4, 5, 8), torch.rand(4, 5, 3)
    for _ in range(2):
        optimizer.zero_grad()
        F.mse_loss(F.softmax(model(x), dim=-1), y).backward()
        optimizer.step()


def softmax_over_the_batch():
    model, optimizer = sequence_model()
    x, y = torch.randn(4, 8), torch.rand(4, 3)
    for _ in range(2):
        optimizer.zero_grad()
        F.mse_loss(F.softmax(model(x), dim=0), y).backward()  # finds: softmax-axis
        optimizer.step()


def softmax_over_the_batch_fixed():
    model, optimizer = sequence_model()
    x, y = torch.randn(4, 8), torch.rand(4, 3)
    for _ in range(2):
        optimizer.zero_grad()
        F.mse_loss(F.softmax(model(x), dim=1), y).backward()
        optimizer.step()


def sequence_model():
    model = nn.Linear(8, 3)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def talking_heads_lookalike():
    mix = nn.Parameter(torch.randn(H, H))
    q, k, v = (torch.randn(B, H, T, D, requires_grad=True) for _ in range(3))
    weights = torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1)
    mixed = torch.einsum("bhij,hg->bgij", weights, mix)
    (torch.einsum("bhij,bhjd->bhid", mixed, v) ** 2).mean().backward()


class Filled(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.embed, self.q, self.k, self.v = nn.Embedding(9, 16), nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 9)
        self.attend = attend

    def forward(self, tokens):
        x = self.embed(tokens)
        scores = self.q(x) @ self.k(x).transpose(1, 2) / 4
        return self.attend(scores, torch.tril(torch.ones(T, T))) @ self.v(x)


def hidden_scores_become_zero():
    train(Filled(lambda scores, causal: scores.masked_fill(causal == 0, 0).softmax(-1)))  # finds: mask-added


def hidden_scores_become_almost_zero():
    train(Filled(lambda scores, causal: scores.masked_fill(causal == 0, 1e-9).softmax(-1)))  # finds: mask-added


def hidden_scores_fixed():
    train(Filled(lambda scores, causal: scores.masked_fill(causal == 0, -1e9).softmax(-1)))


def scores_that_are_no_number_lookalike():
    train(Filled(lambda scores, causal: scores.masked_fill(scores.isnan(), 0).softmax(-1)))


def weights_masked_after_softmax():
    train(Filled(lambda scores, causal: scores.softmax(-1) * causal))  # finds: mask-added


def weights_normalised_again_lookalike():
    def attend(scores, causal):
        weights = scores.softmax(-1) * causal
        return weights / weights.sum(-1, keepdim=True)

    train(Filled(attend))
