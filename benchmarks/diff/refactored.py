"""Models as people refactor them: other layouts, other kernels, folded weights, caches, chunks; and with one slip each."""

import math

import torch
import torch.nn.functional as F
from generators import noise
from serving import ids, seeded
from torch import nn

BOTH = (torch.float32, torch.bfloat16)
ONE = (torch.float32,)


# ---------------------------------------------------------------- a decoder: the plain form first


class SelfAttention(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (f(x).view(b, t, self.heads, c // self.heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(c // self.heads)  # wrong: scale forgotten
        scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), float("-inf"))
        y = torch.softmax(scores, dim=-1) @ v
        return self.o(y.transpose(1, 2).contiguous().view(b, t, c))


class DecoderBlock(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        x = x + self.drop(self.attention(self.norm1(x)))  # wrong: norm after the sum
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")))


class Writer(nn.Module):
    def __init__(self, layers=3, width=32, vocabulary=50):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(16, width)
        self.blocks = nn.ModuleList(DecoderBlock(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x):
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def writer(dtype):
    model = seeded(40, Writer()).to(dtype).eval()
    model.head.weight = model.tokens.weight
    return model


def writer_a(dtype):
    model, x = writer(dtype), ids(41, 50, 2, 12)
    return lambda: model(x)


def writer_b(how, dtype):
    model, x = writer(dtype), ids(41, 50, 2, 12)
    if how == "+layer by layer with hooks":
        model.blocks[1].register_forward_hook(lambda module, args, out: out.clone())
        return lambda: model(x)
    return lambda: Rewritten(model, how).forward(x)


class Rewritten:
    """The same decoder as functions, in the form that ``how`` says."""

    def __init__(self, model, how):
        self.w = {name: value.detach() for name, value in model.named_parameters()}
        self.how = how
        self.layers = len(model.blocks)
        self.head = self.w["tokens.weight"].clone() if how == "+head copied" else self.w["tokens.weight"]

    def forward(self, x):
        if self.how == "+cached":
            return self.cached(x)
        h = self.w["tokens.weight"][x] + self.w["places.weight"][: x.shape[1]]
        if self.how == "+sequence first":
            h = h.transpose(0, 1).contiguous()
        for i in range(self.layers):
            h = self.block(h, f"blocks.{i}.")
        if self.how == "+sequence first":
            h = h.transpose(0, 1)
        if self.how != "last norm left out":
            h = self.norm(h, "norm.")
        return F.linear(h, self.head)  # wrong: last norm left out

    def norm(self, h, at):
        weight, bias = self.w[at + "weight"], self.w[at + "bias"]
        if self.how == "+norm by hand":
            mean = h.mean(-1, keepdim=True)
            spread = ((h - mean) ** 2).mean(-1, keepdim=True)
            return (h - mean) / torch.sqrt(spread + 1e-5) * weight + bias
        if self.how == "unbiased deviation":
            return (h - h.mean(-1, keepdim=True)) / (
                h.std(-1, keepdim=True) + 1e-5
            ) * weight + bias  # wrong: unbiased deviation
        if self.how == "norm eps":
            return F.layer_norm(h, h.shape[-1:], weight, bias, eps=1e-3)  # wrong: norm eps
        return F.layer_norm(h, h.shape[-1:], weight, bias)

    def block(self, h, at):
        if self.how == "norm after the sum":
            h = self.norm(h + self.attention(h, at + "attention."), at + "norm1.")  # wrong: norm after the sum
        else:
            h = h + self.attention(self.norm(h, at + "norm1."), at + "attention.")
        z = self.norm(h, at + "norm2.")
        if self.how == "residual of the normed":
            return z + self.mlp(z, at)  # wrong: residual of the normed
        z = self.mlp(z, at)
        if self.how == "dropout left on":
            z = F.dropout(z, 0.1, training=True)  # wrong: dropout left on
        return h + z

    def mlp(self, z, at):
        if self.how == "+split over ranks":
            parts = []
            for rank in range(4):
                rows = slice(32 * rank, 32 * rank + 32)
                u = F.gelu(z @ self.w[at + "up.weight"][rows].T + self.w[at + "up.bias"][rows], approximate="tanh")
                parts.append(u @ self.w[at + "down.weight"][:, rows].T)
            return torch.stack(parts).sum(0) + self.w[at + "down.bias"]
        if self.how == "+gelu written out":
            u = F.linear(z, self.w[at + "up.weight"], self.w[at + "up.bias"])
            u = u * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (u + 0.044715 * u * u * u))
            return F.linear(u, self.w[at + "down.weight"], self.w[at + "down.bias"])
        u = F.linear(z, self.w[at + "up.weight"], self.w[at + "up.bias"])
        if self.how == "relu":
            u = u.relu()  # wrong: relu
        elif self.how == "gelu of the erf":
            u = F.gelu(u)  # wrong: gelu of the erf
        else:
            u = F.gelu(u, approximate="tanh")
        if self.how == "bias of down forgotten":
            return F.linear(u, self.w[at + "down.weight"])  # wrong: bias of down forgotten
        return F.linear(u, self.w[at + "down.weight"], self.w[at + "down.bias"])

    def attention(self, h, at):
        if self.how == "+library attention":
            names = ("q", "k", "v")
            y, _ = F.multi_head_attention_forward(
                h.transpose(0, 1), h.transpose(0, 1), h.transpose(0, 1), 32, 4,
                torch.cat([self.w[f"{at}{name}.weight"] for name in names]),
                torch.cat([self.w[f"{at}{name}.bias"] for name in names]),
                None, None, False, 0.0, self.w[at + "o.weight"], self.w[at + "o.bias"], training=False,
                need_weights=False, attn_mask=torch.full((12, 12), float("-inf"), dtype=h.dtype).triu(1),
            )  # fmt: skip
            return y.transpose(0, 1)
        if self.how == "+sequence first":
            q, k, v = (self.project(h, at + name).unflatten(-1, (4, 8)) for name in "qkv")
            scores = torch.einsum("tbhd,sbhd->bhts", q, k) * 8**-0.5
            scores = scores + torch.full((12, 12), float("-inf")).triu(1).to(h.dtype)
            y = torch.einsum("bhts,sbhd->tbhd", scores.softmax(-1), v).flatten(2)
            return self.project(y, at + "o")
        q, k, v = self.qkv(h, at)
        y = self.mix(q, k, v)
        if self.how == "heads joined wrongly":
            y = y.reshape(h.shape)  # wrong: heads joined wrongly
        else:
            y = y.transpose(1, 2).reshape(h.shape)
        return self.project(y, at + "o")  # wrong: heads joined wrongly

    def project(self, h, at):
        return F.linear(h, self.w[at + ".weight"], self.w[at + ".bias"])

    def qkv(self, h, at):
        if self.how in ("+fused qkv", "parts of qkv exchanged"):
            weight = torch.cat([self.w[f"{at}{name}.weight"] for name in "qkv"])
            bias = torch.cat([self.w[f"{at}{name}.bias"] for name in "qkv"])
            q, k, v = F.linear(h, weight, bias).chunk(3, dim=-1)  # wrong: parts of qkv exchanged
            if self.how == "parts of qkv exchanged":
                q, k = k, q  # wrong: parts of qkv exchanged
        else:
            q, k, v = (self.project(h, at + name) for name in "qkv")
        return [each.unflatten(-1, (4, 8)).transpose(1, 2) for each in (q, k, v)]  # wrong: parts of qkv exchanged

    def mix(self, q, k, v):
        t = q.shape[2]
        if self.how in ("+sdpa", "+fused qkv", "+norm by hand"):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        if self.how == "causal flag forgotten":
            return F.scaled_dot_product_attention(q, k, v)  # wrong: causal flag forgotten
        if self.how == "+queries in chunks":
            done = []
            for start in range(0, t, 4):
                seen = torch.arange(start, start + 4)[:, None] >= torch.arange(t)
                done.append(F.scaled_dot_product_attention(q[:, :, start : start + 4], k, v, attn_mask=seen))
            return torch.cat(done, dim=2)
        if self.how == "+heads one by one":
            done = []
            for head in range(4):
                s = q[:, head] @ k[:, head].mT / 8**0.5
                s = s.masked_fill(~torch.ones(t, t, dtype=torch.bool).tril(), -1e30)
                done.append(s.softmax(-1) @ v[:, head])
            return torch.stack(done, 1)
        if self.how == "scale forgotten":
            scores = q @ k.mT  # wrong: scale forgotten
        elif self.how == "scale of the width":
            scores = q @ k.mT / math.sqrt(32)  # wrong: scale of the width
        elif self.how == "+queries scaled first":
            scores = (q * 8**-0.25) @ (k * 8**-0.25).mT
        else:
            scores = torch.einsum("bhtd,bhsd->bhts", q, k) / 8**0.5
        if self.how == "mask off by one":
            scores = scores + torch.ones(t, t).triu(2).mul(-1e9).to(q.dtype)  # wrong: mask off by one
        else:
            scores = scores + torch.ones(t, t).triu(1).mul(-1e9).to(q.dtype)
        if self.how == "+softmax by hand":
            e = (scores - scores.amax(-1, keepdim=True)).exp()
            p = e / e.sum(-1, keepdim=True)
        elif self.how == "softmax over the queries":
            p = scores.softmax(-2)  # wrong: softmax over the queries
        elif self.how == "softmax in half":
            p = scores.half().softmax(-1).to(q.dtype)  # wrong: softmax in half
        else:
            p = scores.softmax(-1)
        return torch.einsum("bhts,bhsd->bhtd", p, v)

    def cached(self, x):
        """One token at a time, with a cache of keys and values."""
        past = [([], []) for _ in range(self.layers)]
        logits = []
        for t in range(x.shape[1]):
            h = self.w["tokens.weight"][x[:, t]] + self.w["places.weight"][t]
            for i in range(self.layers):
                at = f"blocks.{i}."
                z = self.norm(h, at + "norm1.")
                q, k, v = (self.project(z, f"{at}attention.{name}").unflatten(-1, (4, 8)) for name in "qkv")
                past[i][0].append(k)
                past[i][1].append(v)
                keys, values = torch.stack(past[i][0], 2), torch.stack(past[i][1], 2)
                p = (torch.einsum("bhd,bhsd->bhs", q, keys) / 8**0.5).softmax(-1)
                h = h + self.project(torch.einsum("bhs,bhsd->bhd", p, values).flatten(1), at + "attention.o")
                h = h + self.mlp(self.norm(h, at + "norm2."), at)
            logits.append(self.norm(h, "norm.") @ self.head.T)
        return torch.stack(logits, 1)


# ---------------------------------------------------------------- rotary, grouped heads, gated: the other half of the zoo


class Root(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.to(x.dtype)


def turn(x, cos, sin):
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


class Rotary(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.norm1, self.norm2 = Root(width), Root(width)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = nn.Linear(width, 16, bias=False), nn.Linear(width, 16, bias=False)
        self.gate, self.up = nn.Linear(width, 48, bias=False), nn.Linear(width, 48, bias=False)
        self.down = nn.Linear(48, width, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        h = self.norm1(x)
        q = turn(self.q(h).view(b, t, 4, 8).transpose(1, 2), cos, sin)
        k = turn(self.k(h).view(b, t, 2, 8).transpose(1, 2), cos, sin).repeat_interleave(2, 1)
        v = self.v(h).view(b, t, 2, 8).transpose(1, 2).repeat_interleave(2, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, -1))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(50, 32)
        self.layers = nn.ModuleList(Rotary() for _ in range(3))
        self.norm, self.head = Root(32), nn.Linear(32, 50, bias=False)

    def forward(self, x):
        h = self.tokens(x)
        angle = torch.outer(torch.arange(x.shape[1]).float(), 10000.0 ** (-torch.arange(0, 8, 2).float() / 8))
        angle = torch.cat((angle, angle), -1)
        cos, sin = angle.cos().to(h.dtype), angle.sin().to(h.dtype)
        for layer in self.layers:
            h = layer(h, cos, sin)
        return self.head(self.norm(h))


def turned_a(dtype):
    model, x = seeded(42, Turned()).to(dtype), ids(43, 50, 2, 12)
    return lambda: model(x)


def turned_b(how, dtype):
    model, x = seeded(42, Turned()).to(dtype), ids(43, 50, 2, 12)
    w = {name: value.detach().clone() for name, value in model.named_parameters()}
    if how in ("+pairs with permuted weights", "pairs without permuting the keys"):
        order = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])
        for i in range(3):
            w[f"layers.{i}.q.weight"] = w[f"layers.{i}.q.weight"].view(4, 8, 32)[:, order].reshape(32, 32)
            if how.startswith("+"):
                w[f"layers.{i}.k.weight"] = w[f"layers.{i}.k.weight"].view(2, 8, 32)[:, order].reshape(16, 32)
    if how == "+gate and up in one":
        for i in range(3):
            w[f"layers.{i}.both"] = torch.cat([w[f"layers.{i}.gate.weight"], w[f"layers.{i}.up.weight"]])
    return lambda: served(w, x, how)


def served(w, x, how):
    b, t = x.shape
    h = F.embedding(x, w["tokens.weight"])
    base = 50000.0 if how == "base of the angles" else 10000.0
    angle = torch.arange(t)[:, None] / base ** (torch.arange(4) / 4)  # wrong: base of the angles
    if how == "+places from five":
        angle = (torch.arange(t)[:, None] + 5) / base ** (torch.arange(4) / 4)
    if how == "angles over all of the width":
        angle = torch.arange(t)[:, None] / base ** (torch.arange(4) * 2 / 32)  # wrong: angles over all of the width
    cos, sin = (
        angle.cos().to(h.dtype),
        angle.sin().to(h.dtype),
    )  # wrong: angles over all of the width, base of the angles

    def rope(y):
        """y: batch, place, head, width."""
        if how in ("+pairs with permuted weights", "pairs for halves", "pairs without permuting the keys"):
            even, odd = y[..., ::2], y[..., 1::2]  # wrong: pairs for halves, pairs without permuting the keys
            c, s = cos[:, None], sin[:, None]
            return torch.stack((even * c - odd * s, odd * c + even * s), -1).flatten(-2)  # wrong: pairs for halves
        c, s = cos[:, None], sin[:, None]
        first, second = y[..., :4], y[..., 4:]
        if how == "turned the other way":
            return torch.cat((first * c + second * s, second * c - first * s), -1)  # wrong: turned the other way
        return torch.cat((first * c - second * s, second * c + first * s), -1)  # wrong: turned the other way

    def rms(y, weight):
        if how == "+norm by the length":
            length = torch.linalg.vector_norm(y.float(), dim=-1, keepdim=True)
            return (y * (length**2 / y.shape[-1] + 1e-6) ** -0.5).to(y.dtype) * weight
        if how == "+norm of the library":
            return F.rms_norm(y, y.shape[-1:], weight, 1e-6)
        if how == "mean for the root":
            return y / (y.abs().mean(-1, keepdim=True) + 1e-6) * weight  # wrong: mean for the root
        if how == "sum for the mean":
            return y * torch.rsqrt(y.square().sum(-1, keepdim=True) + 1e-6) * weight  # wrong: sum for the mean
        z = y.float()
        return (z / z.square().mean(-1, keepdim=True).add(1e-6).sqrt()).to(y.dtype) * weight

    seen = torch.ones(t, t, dtype=torch.bool).tril()
    for i in range(3):
        at = f"layers.{i}."
        z = rms(h, w[at + "norm1.weight"])
        q = rope((z @ w[at + "q.weight"].T).view(b, t, 4, 8))  # wrong: pairs without permuting the keys
        k = rope((z @ w[at + "k.weight"].T).view(b, t, 2, 8))  # wrong: pairs without permuting the keys
        v = (z @ w[at + "v.weight"].T).view(b, t, 2, 8)
        if how == "keys not turned":
            k = (z @ w[at + "k.weight"].T).view(b, t, 2, 8)  # wrong: keys not turned
        if how == "+groups as an axis":
            s = torch.einsum("btgrd,bsgd->bgrts", q.view(b, t, 2, 2, 8), k) * 8**-0.5
            s = s.masked_fill(~seen, float("-inf"))
            y = torch.einsum("bgrts,bsgd->btgrd", s.softmax(-1), v).reshape(b, t, 32)
        else:
            if how == "groups tiled":
                k, v = k.repeat(1, 1, 2, 1), v.repeat(1, 1, 2, 1)  # wrong: groups tiled
            else:
                k, v = (each[:, :, :, None].expand(b, t, 2, 2, 8).reshape(b, t, 4, 8) for each in (k, v))
            s = torch.einsum("bthd,bshd->bhts", q, k) * 8**-0.5  # wrong: groups tiled, keys not turned
            y = torch.einsum("bhts,bshd->bthd", s.masked_fill(~seen, float("-inf")).softmax(-1), v).flatten(2)
        h = h + y @ w[at + "o.weight"].T
        z = rms(h, w[at + "norm2.weight"])
        if how == "+gate and up in one":
            u = F.linear(z, w[at + "both"])
            h = h + (F.silu(u[..., :48]) * u[..., 48:]) @ w[at + "down.weight"].T
        elif how == "up through the gate":
            u = F.silu(z @ w[at + "up.weight"].T) * (z @ w[at + "gate.weight"].T)  # wrong: up through the gate
            h = h + u @ w[at + "down.weight"].T
        else:
            g = z @ w[at + "gate.weight"].T
            h = h + (g / (1 + torch.exp(-g)) * (z @ w[at + "up.weight"].T)) @ w[at + "down.weight"].T
    return rms(h, w["norm.weight"]) @ w["head.weight"].T


# ---------------------------------------------------------------- a picture network, folded and turned


class Stage(nn.Module):
    def __init__(self, into, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(into, out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, groups=4, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.short = nn.Conv2d(into, out, 1, stride)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.short(x))


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 8, 5, padding=2))
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.stages = nn.ModuleList([Stage(8, 16, 2), Stage(16, 16, 1)])
        self.head = nn.Linear(16, 6)

    def forward(self, x):
        x = self.pool(F.relu(self.stem(x)))
        for stage in self.stages:
            x = stage(x)
        return self.head(x.mean((2, 3)))


def pictures(dtype):
    model = seeded(44, Pictures())
    for number, module in enumerate(model.modules()):
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.copy_(noise(60 + number, module.num_features) / 4)
            module.running_var.copy_(noise(70 + number, module.num_features).exp())
    return model.to(dtype).eval(), noise(45, 2, 3, 16, 16).to(dtype)


def pictures_a(dtype):
    model, x = pictures(dtype)
    return lambda: model(x)


def pictures_b(how, dtype):
    model, x = pictures(dtype)
    if how == "+channels last":
        model = model.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
        return lambda: model(x)
    state = model.state_dict()
    g, v = (state[f"stem.parametrizations.weight.original{i}"] for i in (0, 1))
    stem = g * v / v.pow(2).sum((1, 2, 3), keepdim=True).sqrt()
    if how == "direction not normalised":
        stem = g * v

    def conv(x, weight, bias=None, stride=1, padding=0, groups=1):
        if how == "+unfolded":
            b, _, rows, _ = x.shape
            size = (rows + 2 * padding - weight.shape[-1]) // stride + 1
            columns = F.unfold(x, weight.shape[-1], padding=padding, stride=stride)
            columns = columns.view(b, groups, -1, columns.shape[-1])
            y = torch.einsum("bgkl,gok->bgol", columns, weight.view(groups, weight.shape[0] // groups, -1))
            y = y.reshape(b, weight.shape[0], size, size)
            return y if bias is None else y + bias.view(-1, 1, 1)
        return F.conv2d(x, weight, bias, stride, padding, groups=groups)

    def normed(x, at, weight, **options):
        mean, var = state[at + ".running_mean"], state[at + ".running_var"]
        scale, shift = state[at + ".weight"], state[at + ".bias"]
        if how == "+batch norm folded":
            by = scale / torch.sqrt(var + 1e-5)
            return conv(x, weight * by.view(-1, 1, 1, 1), shift - mean * by, **options)
        y = conv(x, weight, **options)
        if how == "eps of tensorflow":
            return F.batch_norm(y, mean, var, scale, shift, eps=1e-3)  # wrong: eps of tensorflow
        if how == "statistics of the batch":
            return F.batch_norm(y, None, None, scale, shift, training=True)  # wrong: statistics of the batch
        if how == "+affine":
            by = scale * torch.rsqrt(var + 1e-5)
            return torch.addcmul((shift - mean * by).view(-1, 1, 1), y, by.view(-1, 1, 1))
        return F.batch_norm(y, mean, var, scale, shift)

    def run():
        y = conv(x, stem, state["stem.bias"], padding=2).relu()  # wrong: direction not normalised
        if how == "average for the largest":
            y = F.avg_pool2d(y, 3, 2, 1)  # wrong: average for the largest
        elif how == "padded on one side":
            y = F.max_pool2d(F.pad(y, (0, 1, 0, 1)), 3, 2)  # wrong: padded on one side
        elif how == "+largest by hand":
            y = F.unfold(F.pad(y, (1, 1, 1, 1)), 3, stride=2).view(2, 8, 9, -1).amax(2).view(2, 8, 8, 8)
        else:
            y = F.max_pool2d(y, 3, 2, 1)  # wrong: padded on one side
        for i, stride in enumerate((2, 1)):
            at = f"stages.{i}."
            first, second = (1, stride) if how == "stride in the second" else (stride, 1)
            z = normed(
                y, at + "norm1", state[at + "conv1.weight"], stride=first, padding=1
            ).relu()  # wrong: stride in the second
            z = normed(z, at + "norm2", state[at + "conv2.weight"], stride=second, padding=1, groups=4)
            if how == "shortcut after the ends":
                y = z.relu() + conv(
                    y, state[at + "short.weight"], state[at + "short.bias"], stride
                )  # wrong: shortcut after the ends
            elif how == "+shortcut by slices":
                weight = state[at + "short.weight"][:, :, 0, 0]
                y = y[:, :, ::stride, ::stride].permute(0, 2, 3, 1) @ weight.T + state[at + "short.bias"]
                y = (y.permute(0, 3, 1, 2) + z).relu()
            else:
                y = (z + conv(y, state[at + "short.weight"], state[at + "short.bias"], stride)).relu()
        if how == "largest at the end":
            y = y.amax((2, 3))  # wrong: largest at the end
        else:
            y = F.adaptive_avg_pool2d(y, 1).flatten(1)
        return torch.addmm(state["head.bias"], y, state["head.weight"].T)

    return run


# ---------------------------------------------------------------- retention: a recurrence, all at once, in chunks


class Retention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.g, self.o = (nn.Linear(24, 24, bias=False) for _ in range(5))
        self.norm = nn.GroupNorm(3, 24)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, 3, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        decay = 1 - 2.0 ** (-3 - torch.arange(3.0))
        apart = torch.arange(t)[:, None] - torch.arange(t)
        weights = torch.where(apart >= 0, decay[:, None, None] ** apart.clamp(min=0), 0.0)
        y = (q @ k.mT * 8**-0.5 * weights) @ v
        y = self.norm(y.transpose(1, 2).reshape(b * t, 24)).view(b, t, 24)
        return self.o(F.silu(self.g(x)) * y)


def retention_a(dtype):
    layers, x = [seeded(46 + i, Retention()) for i in range(2)], noise(48, 2, 12, 24)

    def run():
        h = x
        for layer in layers:
            h = h + layer(h)
        return h

    return run


def retention_b(how, dtype):
    layers, x = [seeded(46 + i, Retention()) for i in range(2)], noise(48, 2, 12, 24)

    def step_by_step(q, k, v, decay):
        state = torch.zeros(2, 3, 8, 8)
        out = []
        for t in range(12):
            new = k[:, :, t, :, None] * v[:, :, t, None, :]
            if how == "decays in another order":
                state = decay.flip(0)[:, None, None] * state + new  # wrong: decays in another order
            else:
                state = decay[:, None, None] * state + new
            out.append(torch.einsum("bhd,bhde->bhe", q[:, :, t], state))
        return torch.stack(out, 2) / 8**0.5

    def in_chunks(q, k, v, decay):
        state = torch.zeros(2, 3, 8, 8)
        out, at = [], torch.arange(4)
        inner = torch.where(at[:, None] >= at, decay[:, None, None] ** (at[:, None] - at).clamp(min=0), 0.0)
        for start in range(0, 12, 4):
            qs, ks, vs = (each[:, :, start : start + 4] * 1 for each in (q, k, v))
            power = at if how == "state one step late" else at + 1
            before = (qs * (decay[:, None] ** power)[:, :, None]) @ state  # wrong: state one step late
            out.append((qs @ ks.mT * inner) @ vs + before)  # wrong: state one step late
            fade = decay[:, None] ** (3 - at)
            state = state * (decay**4)[:, None, None] + (ks * fade[..., None]).mT @ vs
        return torch.cat(out, 2) * 8**-0.5

    def run():
        h = x
        decay = 1 - torch.exp2(-torch.arange(3.0, 6.0))
        for layer in layers:
            q, k, v = (F.linear(h, f.weight).unflatten(-1, (3, 8)).transpose(1, 2) for f in (layer.q, layer.k, layer.v))
            chunked = how in ("+in chunks", "state one step late")
            y = in_chunks(q, k, v, decay) if chunked else step_by_step(q, k, v, decay)
            y = y.transpose(1, 2)
            if how == "norm over all heads":
                y = F.layer_norm(y.flatten(2), (24,), layer.norm.weight, layer.norm.bias)  # wrong: norm over all heads
            else:
                y = F.layer_norm(y, (8,)).flatten(2) * layer.norm.weight + layer.norm.bias
            gate = h @ layer.g.weight.T
            h = h + (gate * gate.sigmoid() * y) @ layer.o.weight.T
        return h

    return run


# ---------------------------------------------------------------- recurrent: the library's kernel, cells, a packed batch


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(40, 12, padding_idx=0)
        self.gru = nn.GRU(12, 10, bidirectional=True, batch_first=True)
        self.head = nn.Linear(20, 5)


LENGTHS = torch.tensor([9, 7, 4])


def reader_tokens():
    x = ids(51, 40, 3, 9)
    return x.masked_fill(torch.arange(9) >= LENGTHS[:, None], 0)


def reader_a(dtype):
    model, x = seeded(50, Reader()), reader_tokens()

    def run():
        packed = nn.utils.rnn.pack_padded_sequence(model.tokens(x), LENGTHS, batch_first=True)
        y, _ = nn.utils.rnn.pad_packed_sequence(model.gru(packed)[0], batch_first=True)
        return model.head(y.sum(1) / LENGTHS[:, None])

    return run


def reader_b(how, dtype):
    model, x = seeded(50, Reader()), reader_tokens()
    w = {name: value.detach() for name, value in model.named_parameters()}
    kept = (torch.arange(9) < LENGTHS[:, None]).float()

    def cell(e, h, end):
        i = e @ w["gru.weight_ih_l0" + end].T + w["gru.bias_ih_l0" + end]
        if how == "reset before the product":
            ir, iz, n = i.chunk(3, -1)
            wr, wz, wn = w["gru.weight_hh_l0" + end].chunk(3)
            br, bz, bn = w["gru.bias_hh_l0" + end].chunk(3)
            r, z = torch.sigmoid(ir + h @ wr.T + br), torch.sigmoid(iz + h @ wz.T + bz)
            n = torch.tanh(n + (r * h) @ wn.T + bn)  # wrong: reset before the product
            return n + z * (h - n)  # wrong: reset before the product
        g = h @ w["gru.weight_hh_l0" + end].T + w["gru.bias_hh_l0" + end]
        r, z = torch.sigmoid(i[:, :20] + g[:, :20]).chunk(2, -1)
        n = torch.tanh(i[:, 20:] + r * g[:, 20:])
        if how == "update gate turned":
            return z * n + (1 - z) * h  # wrong: update gate turned
        return (1 - z) * n + z * h

    def run():
        e = w["tokens.weight"][x]
        h, forward = torch.zeros(3, 10), []
        for t in range(9):
            h = cell(e[:, t], h, "")
            forward.append(h)
        h, back = torch.zeros(3, 10), []
        for t in reversed(range(9)):
            new = cell(e[:, t], h, "_reverse")
            if how == "padding is read":
                h = new  # wrong: padding is read
            else:
                h = torch.where(kept[:, t, None] > 0, new, h)  # wrong: padding is read
            back.append(h)
        if how == "back not turned":
            y = torch.cat([torch.stack(forward, 1), torch.stack(back, 1)], -1)  # wrong: back not turned
        else:
            y = torch.cat([torch.stack(forward, 1), torch.stack(back[::-1], 1)], -1)
        y = (y * kept[:, :, None]).sum(1)
        if how == "padding in the mean":
            return model.head(y / 9)  # wrong: padding in the mean
        return model.head(y / kept.sum(1, keepdim=True))

    return run


FAMILIES = {
    "writer": (
        writer_a,
        writer_b,
        [
            "+layer by layer with hooks",
            "+head copied",
            "+sequence first",
            "+norm by hand",
            "+split over ranks",
            "+gelu written out",
            "+library attention",
            "+fused qkv",
            "+sdpa",
            "+queries in chunks",
            "+heads one by one",
            "+queries scaled first",
            "+softmax by hand",
            "+cached",
            "last norm left out",
            "unbiased deviation",
            "norm eps",
            "norm after the sum",
            "residual of the normed",
            "dropout left on",
            "relu",
            "gelu of the erf",
            "bias of down forgotten",
            "heads joined wrongly",
            "parts of qkv exchanged",
            "causal flag forgotten",
            "scale forgotten",
            "scale of the width",
            "mask off by one",
            "softmax over the queries",
            "softmax in half",
        ],
        BOTH,
    ),
    "turned": (
        turned_a,
        turned_b,
        [
            "",
            "+pairs with permuted weights",
            "+gate and up in one",
            "+places from five",
            "+norm by the length",
            "+norm of the library",
            "+groups as an axis",
            "base of the angles",
            "angles over all of the width",
            "pairs for halves",
            "pairs without permuting the keys",
            "turned the other way",
            "keys not turned",
            "mean for the root",
            "sum for the mean",
            "groups tiled",
            "up through the gate",
        ],
        BOTH,
    ),
    "pictures": (
        pictures_a,
        pictures_b,
        [
            "",
            "+channels last",
            "+unfolded",
            "+batch norm folded",
            "+affine",
            "+largest by hand",
            "+shortcut by slices",
            "direction not normalised",
            "eps of tensorflow",
            "statistics of the batch",
            "average for the largest",
            "padded on one side",
            "stride in the second",
            "shortcut after the ends",
            "largest at the end",
        ],
        BOTH,
    ),
    "retention": (
        retention_a,
        retention_b,
        ["", "+in chunks", "decays in another order", "state one step late", "norm over all heads"],
        ONE,
    ),
    "reader": (
        reader_a,
        reader_b,
        [
            "",
            "reset before the product",
            "update gate turned",
            "padding is read",
            "back not turned",
            "padding in the mean",
        ],
        ONE,
    ),
}
PARAMETERS = {}
