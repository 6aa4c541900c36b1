"""Decoders as servers write them anew: fused and grouped weights, latent attention, routing, caches, padding."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def seeded(seed, module):
    torch.manual_seed(seed)
    for name, value in module.named_parameters():
        if value.dim() > 1:
            nn.init.normal_(value, 0.0, 1.0 / math.sqrt(value[0].numel()))
        elif name.endswith("weight"):
            nn.init.normal_(value, 1.0, 0.2)
        else:
            nn.init.normal_(value, 0.0, 0.1)
    return module.eval()


def ids(seed, high, *shape):
    torch.manual_seed(seed)
    return torch.randint(1, high, shape)


# ---------------------------------------------------------------- Qwen3-like: q/k norm, grouped heads, fused Megatron QKV


class RMS(nn.Module):
    def __init__(self, n, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.eps = eps

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * h.to(x.dtype)


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


class QwenAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(48, 48, bias=False)
        self.k_proj = nn.Linear(48, 16, bias=False)
        self.v_proj = nn.Linear(48, 16, bias=False)
        self.o_proj = nn.Linear(48, 48, bias=False)
        self.q_norm = RMS(8)
        self.k_norm = RMS(8)

    def forward(self, x, cos, sin, mask):
        b, n, _ = x.shape
        q = self.q_norm(self.q_proj(x).view(b, n, 6, 8)).transpose(
            1, 2
        )  # wrong: qk norm skipped, qk norm after rope, qk norm over all heads
        k = self.k_norm(self.k_proj(x).view(b, n, 2, 8)).transpose(
            1, 2
        )  # wrong: qk norm skipped, qk norm after rope, qk norm over all heads
        v = self.v_proj(x).view(b, n, 2, 8).transpose(1, 2)
        q = q * cos + rotate_half(q) * sin  # wrong: qk norm after rope
        k = k * cos + rotate_half(k) * sin  # wrong: qk norm after rope
        k = k.repeat_interleave(3, 1)
        v = v.repeat_interleave(3, 1)
        w = q @ k.transpose(2, 3) / math.sqrt(8) + mask
        w = F.softmax(w, -1, dtype=torch.float32).to(q.dtype)
        return self.o_proj((w @ v).transpose(1, 2).reshape(b, n, 48))


class QwenLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = RMS(48)
        self.self_attn = QwenAttention()
        self.post_attention_layernorm = RMS(48)
        self.gate_proj = nn.Linear(48, 96, bias=False)
        self.up_proj = nn.Linear(48, 96, bias=False)
        self.down_proj = nn.Linear(96, 48, bias=False)

    def forward(self, x, cos, sin, mask):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))


class Qwen(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(60, 48)
        self.layers = nn.ModuleList(QwenLayer() for _ in range(3))
        self.norm = RMS(48)
        self.lm_head = nn.Linear(48, 60, bias=False)
        seeded(11, self)

    def forward(self, tokens):
        n = tokens.shape[1]
        x = self.embed_tokens(tokens)
        inv = 1.0 / (10000 ** (torch.arange(0, 8, 2).float() / 8))
        freqs = torch.outer(torch.arange(n).float(), inv)
        emb = torch.cat((freqs, freqs), -1)
        cos, sin = emb.cos().to(x.dtype), emb.sin().to(x.dtype)
        mask = torch.full((n, n), torch.finfo(x.dtype).min, dtype=x.dtype).triu(1)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.lm_head(self.norm(x))


class MegatronQwen:
    """One fused projection, group by group; weights are columns."""

    def __init__(self, wrong, dtype):
        self.wrong = wrong
        sd = {k: v.detach().to(dtype) for k, v in Qwen().state_dict().items()}
        self.p = {"emb": sd["embed_tokens.weight"], "final": sd["norm.weight"], "out": sd["lm_head.weight"]}
        for i in range(3):
            a = f"layers.{i}.self_attn."
            q, k, v = (sd[a + f"{c}_proj.weight"] for c in "qkv")
            if wrong == "fused without groups":
                self.p[f"{i}.qkv"] = torch.cat([q, k, v])
            else:
                self.p[f"{i}.qkv"] = torch.cat([q.view(2, 24, 48), k.view(2, 8, 48), v.view(2, 8, 48)], 1).reshape(
                    80, 48
                )
            self.p[f"{i}.proj"] = sd[a + "o_proj.weight"]
            self.p[f"{i}.qn"], self.p[f"{i}.kn"] = sd[a + "q_norm.weight"], sd[a + "k_norm.weight"]
            m = f"layers.{i}."
            self.p[f"{i}.ln1"] = sd[m + "input_layernorm.weight"]
            self.p[f"{i}.ln2"] = sd[m + "post_attention_layernorm.weight"]
            if wrong == "weights of the norms exchanged" and i == 1:
                self.p[f"{i}.ln1"], self.p[f"{i}.ln2"] = self.p[f"{i}.ln2"], self.p[f"{i}.ln1"]
            self.p[f"{i}.fc1"] = torch.cat([sd[m + "gate_proj.weight"], sd[m + "up_proj.weight"]])
            self.p[f"{i}.fc2"] = sd[m + "down_proj.weight"]

    def norm(self, x, w, eps=1e-6):
        if self.wrong == "norm eps":
            eps = 1e-3
        var = (x.float() ** 2).mean(-1, keepdim=True)
        return (x.float() / torch.sqrt(var + eps)).to(x.dtype) * w  # wrong: norm eps

    def __call__(self, tokens):
        p, wrong = self.p, self.wrong
        b, s = tokens.shape
        h = p["emb"][tokens].transpose(0, 1)
        t = torch.arange(s)[:, None] * 10000.0 ** (-torch.arange(4) / 4)
        for i in range(3):
            y = self.norm(h, p[f"{i}.ln1"])
            mixed = (y @ p[f"{i}.qkv"].t()).view(s, b, 2, 40)  # wrong: fused without groups
            q, k, v = mixed.split([24, 8, 8], -1)  # wrong: fused without groups
            q = q.reshape(s, b, 6, 8)
            if wrong == "qk norm after rope":
                q, k = self.rope(q, t), self.rope(k, t)  # wrong: qk norm after rope
                q, k = self.norm(q, p[f"{i}.qn"]), self.norm(k, p[f"{i}.kn"])  # wrong: qk norm after rope
            elif wrong == "qk norm over all heads":
                q = self.norm(q.reshape(s, b, 48), p[f"{i}.qn"].repeat(6)).view(
                    s, b, 6, 8
                )  # wrong: qk norm over all heads
                k = self.norm(k.reshape(s, b, 16), p[f"{i}.kn"].repeat(2)).view(
                    s, b, 2, 8
                )  # wrong: qk norm over all heads
                q, k = self.rope(q, t), self.rope(k, t)
            elif wrong == "qk norm skipped":
                q, k = self.rope(q, t), self.rope(k, t)  # wrong: qk norm skipped
            else:
                q, k = self.norm(q, p[f"{i}.qn"]), self.norm(k, p[f"{i}.kn"])
                q, k = self.rope(q, t), self.rope(k, t)
            q = q.view(s, b, 2, 3, 8)
            if wrong == "+einsum":
                scores = torch.einsum("sbgrd,tbgd->bgrst", q * 8**-0.5, k)
                scores = scores.masked_fill(~torch.ones(s, s, dtype=torch.bool).tril(), float("-inf"))
                o = torch.einsum("bgrst,tbgd->sbgrd", scores.softmax(-1), v).reshape(s, b, 48)
            else:
                qq = q.reshape(s, b, 6, 8).permute(1, 2, 0, 3)
                kk, vv = (z.permute(1, 2, 0, 3).repeat_interleave(3, 1) for z in (k, v))
                if wrong == "scale of the width":
                    o = F.scaled_dot_product_attention(
                        qq, kk, vv, is_causal=True, scale=48**-0.5
                    )  # wrong: scale of the width
                else:
                    o = F.scaled_dot_product_attention(qq, kk, vv, is_causal=True)
                o = o.permute(2, 0, 1, 3).reshape(s, b, 48)
            h = h + o @ p[f"{i}.proj"].t()
            y = self.norm(h, p[f"{i}.ln2"])
            gate, up = (y @ p[f"{i}.fc1"].t()).chunk(2, -1)
            if wrong == "up first":
                gate, up = up, gate  # wrong: up first
            h = h + (F.silu(gate) * up) @ p[f"{i}.fc2"].t()  # wrong: up first
        return (self.norm(h, p["final"]) @ p["out"].t()).transpose(0, 1)

    def rope(self, x, t):
        c, s = t.cos().to(x.dtype)[:, None, None], t.sin().to(x.dtype)[:, None, None]
        if self.wrong == "rope over the batch":
            c, s = (
                t.cos().to(x.dtype)[None, : x.shape[1], None],
                t.sin().to(x.dtype)[None, : x.shape[1], None],
            )  # wrong: rope over the batch
        a, b = x[..., :4], x[..., 4:]
        return torch.cat((a * c - b * s, b * c + a * s), -1)  # wrong: rope over the batch


QWEN = [
    "",
    "+einsum",
    "fused without groups",
    "qk norm skipped",
    "qk norm after rope",
    "qk norm over all heads",
    "scale of the width",
    "up first",
    "norm eps",
    "rope over the batch",
    "weights of the norms exchanged",
]


def qwen_a(dtype):
    model, x = Qwen().to(dtype), ids(1, 60, 2, 11)
    return lambda: model(x)


def qwen_b(wrong, dtype):
    model, x = MegatronQwen(wrong, dtype), ids(1, 60, 2, 11)
    return lambda: model(x)


# ---------------------------------------------------------------- DeepSeek-like routing and latent attention


class DeepSeek(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.layers = nn.ModuleList(DeepSeekLayer() for _ in range(2))
        self.norm = RMS(32)
        self.head = nn.Linear(32, 50, bias=False)
        seeded(21, self)
        for layer in self.layers:
            layer.correction.data.mul_(3).sub_(0.6)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class DeepSeekLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1 = RMS(32)
        self.ln2 = RMS(32)
        self.q_proj = nn.Linear(32, 4 * 12, bias=False)
        self.kv_a = nn.Linear(32, 16 + 4, bias=False)
        self.kv_norm = RMS(16)
        self.kv_b = nn.Linear(16, 4 * 16, bias=False)
        self.o_proj = nn.Linear(32, 32, bias=False)
        self.gate = nn.Linear(32, 8, bias=False)
        self.correction = nn.Parameter(torch.zeros(8))
        self.w1 = nn.Parameter(torch.zeros(8, 24, 32))
        self.w2 = nn.Parameter(torch.zeros(8, 32, 24))
        self.shared1 = nn.Linear(32, 24, bias=False)
        self.shared2 = nn.Linear(24, 32, bias=False)

    def forward(self, x):
        x = x + self.attend(self.ln1(x))
        return x + self.moe(self.ln2(x))

    def attend(self, x):
        b, n, _ = x.shape
        q = self.q_proj(x).view(b, n, 4, 12).transpose(1, 2)
        q_nope, q_pe = q.split([8, 4], -1)  # wrong: rotary part first
        c, k_pe = self.kv_a(x).split([16, 4], -1)
        kv = self.kv_b(self.kv_norm(c)).view(b, n, 4, 16).transpose(1, 2)  # wrong: latent norm missing
        k_nope, v = kv.split([8, 8], -1)
        q_pe, k_pe = turn(q_pe), turn(k_pe[:, None])
        q = torch.cat([q_nope, q_pe], -1)
        k = torch.cat([k_nope, k_pe.expand(-1, 4, -1, -1)], -1)
        w = (q @ k.mT) * (12**-0.5)
        w = w.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf")).softmax(-1)
        return self.o_proj((w @ v).transpose(1, 2).flatten(2))

    def moe(self, x):
        flat = x.reshape(-1, 32)
        scores = self.gate(flat).float().sigmoid()
        biased = scores + self.correction
        groups = biased.view(-1, 4, 2).topk(2, -1)[0].sum(-1)  # wrong: best of the group, groups by the scores
        chosen = groups.topk(2, -1)[1]
        keep = torch.zeros_like(groups).scatter_(1, chosen, 1.0)
        keep = keep[..., None].expand(-1, 4, 2).reshape(-1, 8)
        masked = biased.masked_fill(keep == 0, float("-inf"))
        index = masked.topk(3, -1)[1]
        weight = scores.gather(1, index)
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
        weight = (weight * 2.5).to(x.dtype)
        out = torch.zeros_like(flat)
        for e in range(8):
            row, slot = torch.where(index == e)
            y = F.silu(flat[row] @ self.w1[e].t()) @ self.w2[e].t()
            out.index_add_(0, row, y * weight[row, slot, None])
        out = out + self.shared2(F.silu(self.shared1(flat)))  # wrong: shared expert scaled
        return out.view_as(x)


def turn(x):
    n = x.shape[2]
    angle = torch.outer(torch.arange(n).float(), 10000.0 ** (-torch.arange(0, 4, 2) / 4))
    z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], 2, 2))
    z = z * torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(z).flatten(-2).to(x.dtype)


class Served:
    """All experts at once, weights stacked; attention through sdpa."""

    def __init__(self, wrong, dtype):
        self.wrong = wrong
        self.sd = {k: v.detach().to(dtype) for k, v in DeepSeek().state_dict().items()}

    def rms(self, x, w):
        return F.rms_norm(x.float(), x.shape[-1:], eps=1e-6).to(x.dtype) * w

    def __call__(self, tokens):
        x = F.embedding(tokens, self.sd["embed.weight"])
        for i in range(2):
            w = {k.removeprefix(f"layers.{i}."): v for k, v in self.sd.items()}
            x = x + self.attention(self.rms(x, w["ln1.weight"]), w)
            x = x + self.experts(self.rms(x, w["ln2.weight"]), w)
        return self.rms(x, self.sd["norm.weight"]) @ self.sd["head.weight"].T

    def attention(self, x, w):
        b, n, _ = x.shape
        q = (x @ w["q_proj.weight"].T).view(b, n, 4, 12).transpose(1, 2)
        if self.wrong == "rotary part first":
            qr, qn = q[..., :4], q[..., 4:]  # wrong: rotary part first
        else:
            qn, qr = q[..., :8], q[..., 8:]
        lat = x @ w["kv_a.weight"].T
        lat, kr = lat[..., :16], lat[..., None, :, 16:]
        if self.wrong != "latent norm missing":
            lat = self.rms(lat, w["kv_norm.weight"])
        up = (lat @ w["kv_b.weight"].T).view(b, n, 4, 16).transpose(1, 2)  # wrong: latent norm missing
        kn, v = up.chunk(2, -1)
        q = torch.cat((qn, self.rotary(qr)), -1)  # wrong: rotary part first
        k = torch.cat((kn, self.rotary(kr).repeat(1, 4, 1, 1)), -1)
        if self.wrong == "scale of the plain part":
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=8**-0.5)  # wrong: scale of the plain part
        else:
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return o.transpose(1, 2).reshape(b, n, 32) @ w["o_proj.weight"].T

    def rotary(self, x):
        angle = torch.arange(x.shape[2])[:, None] / 10000.0 ** (torch.arange(0, 4, 2) / 4)
        c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        if self.wrong == "rotary in halves":
            a, b = x.chunk(2, -1)  # wrong: rotary in halves
            return torch.cat((a * c - b * s, a * s + b * c), -1)  # wrong: rotary in halves
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)

    def experts(self, x, w):
        wrong = self.wrong
        flat = x.flatten(0, 1)
        s = torch.sigmoid((flat @ w["gate.weight"].T).float())
        by = s + w["correction"]
        g = by.unflatten(1, (4, 2))
        if wrong == "best of the group":
            g = g.amax(-1)  # wrong: best of the group
        elif wrong == "groups by the scores":
            g = s.unflatten(1, (4, 2)).sum(-1)  # wrong: groups by the scores
        else:
            g = g.sum(-1)
        top = torch.topk(g, 2, dim=1).indices
        allowed = F.one_hot(top, 4).sum(1).bool().repeat_interleave(2, 1)
        if wrong == "masked with zero":
            pick = torch.where(allowed, by, 0.0).topk(3).indices  # wrong: masked with zero
        else:
            pick = torch.where(allowed, by, -torch.inf).topk(3).indices
        p = s.gather(1, pick)  # wrong: masked with zero
        if wrong != "not renormalised":
            p = p / (p.sum(1, keepdim=True) + 1e-20)
        if wrong == "scaled only when renormalised":
            p = p.to(x.dtype)  # wrong: scaled only when renormalised
        else:
            p = (p * 2.5).to(x.dtype)  # wrong: not renormalised
        dense = torch.zeros(len(flat), 8, dtype=x.dtype).scatter(1, pick, p)  # wrong: scaled only when renormalised
        h = F.silu(torch.einsum("ti,ehi->teh", flat, w["w1"]))
        y = torch.einsum("teh,eoh,te->to", h, w["w2"], dense)
        extra = F.silu(flat @ w["shared1.weight"].T) @ w["shared2.weight"].T
        if wrong == "shared expert scaled":
            extra = extra * 2.5  # wrong: shared expert scaled
        return (y + extra).unflatten(0, x.shape[:2])


DEEPSEEK = [
    "",
    "best of the group",
    "groups by the scores",
    "masked with zero",
    "not renormalised",
    "scaled only when renormalised",
    "shared expert scaled",
    "rotary in halves",
    "rotary part first",
    "latent norm missing",
    "scale of the plain part",
]


def deepseek_a(dtype):
    model, x = DeepSeek().to(dtype), ids(2, 50, 2, 9)
    return lambda: model(x)


def deepseek_b(wrong, dtype):
    model, x = Served(wrong, dtype), ids(2, 50, 2, 9)
    return lambda: model(x)


# ---------------------------------------------------------------- BLOOM/ALiBi with six heads and padding on the left


class Bloom(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(40, 48)
        self.word_norm = nn.LayerNorm(48)
        self.h = nn.ModuleList(BloomBlock() for _ in range(2))
        self.ln_f = nn.LayerNorm(48)
        seeded(31, self)

    def forward(self, tokens, attention_mask):
        x = self.word_norm(self.word(tokens))  # wrong: norm of the embeddings missing
        slopes = torch.tensor(slopes_of(6))  # wrong: slopes of the next power
        alibi = slopes[:, None, None] * ((attention_mask.cumsum(-1) - 1) * attention_mask)[:, None, None, :]
        n = tokens.shape[1]
        ok = torch.ones(n, n).tril().bool()[None, None] & attention_mask[:, None, None, :].bool()
        for block in self.h:
            x = block(x, alibi.to(x.dtype), ok)
        return self.ln_f(x) @ self.word.weight.T


class BloomBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(48)
        self.qkv = nn.Linear(48, 144)
        self.dense = nn.Linear(48, 48)
        self.ln_2 = nn.LayerNorm(48)
        self.fc = nn.Linear(48, 192)
        self.proj = nn.Linear(192, 48)

    def forward(self, x, alibi, ok):
        b, n, _ = x.shape
        y = self.ln_1(x)
        q, k, v = self.qkv(y).view(b, n, 6, 3, 8).unbind(3)  # wrong: split in blocks
        scores = torch.einsum("bnhd,bmhd->bhnm", q, k) / 8**0.5 + alibi
        scores = scores.masked_fill(~ok, torch.finfo(x.dtype).min)
        w = scores.softmax(-1)
        x = x + self.dense(torch.einsum("bhnm,bmhd->bnhd", w, v).reshape(b, n, 48))  # wrong: residual after norm
        return x + self.proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


def slopes_of(heads):
    near = 2 ** int(math.log2(heads))
    found = [2 ** (-8 / near * (i + 1)) for i in range(near)]
    more = [2 ** (-8 / (2 * near) * (i + 1)) for i in range(0, 2 * (heads - near), 2)]
    return found + more


def bloom_port(w, tokens, pad, wrong):
    b, n = tokens.shape
    x = w["word.weight"][tokens]
    if wrong != "norm of the embeddings missing":
        x = F.layer_norm(x, (48,), w["word_norm.weight"], w["word_norm.bias"])
    if wrong == "slopes of the next power":
        m = torch.pow(2.0, -torch.arange(1, 9) * 1.0)[:6]  # wrong: slopes of the next power
    else:
        m = torch.cat([2.0 ** (-2.0 * torch.arange(1, 5)), 2.0 ** (-1.0 * torch.arange(1, 5, 2))])
    if wrong == "+padding counted":
        at = torch.arange(n)[None].expand(b, n)
    elif wrong == "+distances":
        at = torch.arange(n)[None].expand(b, n)
    else:
        at = pad.cumsum(1).sub(1) * pad
    if wrong == "+distances":
        bias = -m[:, None, None] * (at[:, None, :, None] - at[:, None, None, :])
    else:
        bias = m.view(6, 1, 1) * at.view(b, 1, 1, n)
    keep = (torch.arange(n)[:, None] >= torch.arange(n)) & (pad == 1)[:, None, None]
    if wrong == "bias scaled too":
        full = bias.to(x.dtype).expand(b, 6, n, n) * 8**-0.5  # wrong: bias scaled too
        full = full.masked_fill(~keep, torch.finfo(x.dtype).min)  # wrong: bias scaled too
    else:
        full = bias.to(x.dtype).expand(b, 6, n, n).masked_fill(~keep, torch.finfo(x.dtype).min)
    for i in range(2):
        p = {k.removeprefix(f"h.{i}."): v for k, v in w.items() if k.startswith(f"h.{i}.")}
        y = F.layer_norm(x, (48,), p["ln_1.weight"], p["ln_1.bias"])  # wrong: norm of the embeddings missing
        z = F.linear(y, p["qkv.weight"], p["qkv.bias"])
        if wrong == "split in blocks":
            q, k, v = (t.view(b, n, 6, 8).transpose(1, 2) for t in z.chunk(3, -1))  # wrong: split in blocks
        else:
            q, k, v = z.view(b, n, 6, 24).transpose(1, 2).chunk(3, -1)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=full)
        o = F.linear(o.transpose(1, 2).flatten(2), p["dense.weight"], p["dense.bias"])
        x = (y if wrong == "residual after norm" else x) + o  # wrong: residual after norm
        y = F.layer_norm(x, (48,), p["ln_2.weight"], p["ln_2.bias"])
        y = F.linear(y, p["fc.weight"], p["fc.bias"])
        y = 0.5 * y * (1 + torch.tanh(0.79788456 * (y + 0.044715 * y**3)))
        x = x + F.linear(y, p["proj.weight"], p["proj.bias"])
    x = F.layer_norm(x, (48,), w["ln_f.weight"], w["ln_f.bias"])
    return F.linear(x, w["word.weight"])


BLOOM = [
    "",
    "slopes of the next power",
    "+padding counted",
    "bias scaled too",
    "split in blocks",
    "residual after norm",
    "norm of the embeddings missing",
]


def _padded():
    tokens = ids(3, 40, 2, 10)
    mask = torch.ones(2, 10, dtype=torch.long)
    mask[1, :3] = 0
    return tokens, mask


def bloom_a(dtype):
    model, (tokens, mask) = Bloom().to(dtype), _padded()
    return lambda: model(tokens, mask)


def bloom_b(wrong, dtype):
    w = {k: v.detach().to(dtype) for k, v in Bloom().state_dict().items()}
    tokens, mask = _padded()
    return lambda: bloom_port(w, tokens, mask, wrong)


# ---------------------------------------------------------------- decoding with a cache, padding left, penalties


class Cached(nn.Module):
    """A small decoder with learnt positions, that generates greedily."""

    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(40, 32)
        self.wpe = nn.Embedding(32, 32)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "n1": nn.LayerNorm(32),
                    "qkv": nn.Linear(32, 96),
                    "out": nn.Linear(32, 32),
                    "n2": nn.LayerNorm(32),
                    "up": nn.Linear(32, 64),
                    "down": nn.Linear(64, 32),
                }
            )
            for _ in range(2)
        )
        self.n = nn.LayerNorm(32)
        seeded(41, self)

    def forward(self, tokens, mask, positions, cache):
        x = self.wte(tokens) + self.wpe(positions)
        b, n, _ = x.shape
        for i, block in enumerate(self.blocks):
            q, k, v = block["qkv"](block["n1"](x)).view(b, n, 3, 4, 8).permute(2, 0, 3, 1, 4)
            if cache[i] is not None:
                k, v = torch.cat([cache[i][0], k], 2), torch.cat([cache[i][1], v], 2)
            cache[i] = (k, v)
            total = k.shape[2]
            ok = torch.ones(n, total, dtype=torch.bool).tril(total - n) & mask[:, None, None, :].bool()
            s = (q @ k.mT / 8**0.5).masked_fill(~ok, -1e9)
            x = x + block["out"]((s.softmax(-1) @ v).transpose(1, 2).reshape(b, n, 32))
            x = x + block["down"](F.gelu(block["up"](block["n2"](x))))
        return self.n(x[:, -1]) @ self.wte.weight.T

    def generate(self, tokens, mask, steps=4):
        cache = [None, None]
        inputs, seen, out = tokens, tokens, []
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        for _ in range(steps):
            logits = self(inputs, mask, positions, cache)
            got = logits.gather(1, seen)
            got = torch.where(got < 0, got * 1.3, got / 1.3)  # wrong: penalty of negative logits
            logits = logits.scatter(1, seen, got)
            out.append(logits)
            inputs = logits.argmax(-1, keepdim=True)
            seen = torch.cat([seen, inputs], 1)
            mask = torch.cat([mask, torch.ones_like(inputs)], 1)
            positions = positions[:, -1:] + 1
        return torch.stack(out, 1)


def decode_port(w, tokens, mask, wrong, dtype):
    b, n = tokens.shape
    limit = n + 4
    ks = torch.zeros(2, b, 4, limit, 8, dtype=dtype)
    vs = torch.zeros(2, b, 4, limit, 8, dtype=dtype)
    valid = torch.zeros(b, limit, dtype=torch.bool)
    valid[:, :n] = mask.bool()
    if wrong == "positions from the padded length":
        pos = torch.arange(n).repeat(b, 1)  # wrong: positions from the padded length
    else:
        pos = mask.cumsum(1).sub(1).clamp_min(0)
    now, start, history, results = tokens, 0, tokens, []
    for _step in range(4):
        end = start + now.shape[1]
        x = (
            w["wte.weight"][now] + w["wpe.weight"][pos]
        )  # wrong: positions not counted on, positions from the padded length
        for i in range(2):
            p = f"blocks.{i}."
            y = F.layer_norm(x, (32,), w[p + "n1.weight"], w[p + "n1.bias"])
            z = F.linear(y, w[p + "qkv.weight"], w[p + "qkv.bias"])
            q, k, v = (each.unflatten(-1, (4, 8)).transpose(1, 2) for each in z.chunk(3, -1))
            if wrong == "cache one too early" and start:
                ks[i, :, :, start - 1 : end - 1], vs[i, :, :, start - 1 : end - 1] = k, v  # wrong: cache one too early
            else:
                ks[i, :, :, start:end], vs[i, :, :, start:end] = k, v
            rows = torch.arange(start, end)[:, None]
            causal = torch.arange(limit) <= rows
            if wrong == "unwritten cache attended":
                causal = (
                    torch.ones(end - start, limit, dtype=torch.bool) if start else causal
                )  # wrong: unwritten cache attended
                ok = causal[None, None] & (
                    valid[:, None, None] | (torch.arange(limit) >= n)
                )  # wrong: unwritten cache attended
            elif wrong == "padding attended when decoding":
                ok = causal[None, None] & (
                    valid[:, None, None] if not start else True
                )  # wrong: padding attended when decoding
            else:
                ok = causal[None, None] & (valid[:, None, None])
            o = F.scaled_dot_product_attention(
                q, ks[i], vs[i], attn_mask=ok
            )  # wrong: cache one too early, unwritten cache attended, padding attended when decoding
            x = x + F.linear(o.transpose(1, 2).reshape(b, -1, 32), w[p + "out.weight"], w[p + "out.bias"])
            y = F.layer_norm(x, (32,), w[p + "n2.weight"], w[p + "n2.bias"])
            x = x + F.linear(
                F.gelu(F.linear(y, w[p + "up.weight"], w[p + "up.bias"])), w[p + "down.weight"], w[p + "down.bias"]
            )
        x = F.layer_norm(x, (32,), w["n.weight"], w["n.bias"])[:, -1]
        score = x @ w["wte.weight"].T
        for r in range(b):
            u = history[r].unique()
            old = score[r, u]
            if wrong == "penalty of negative logits":
                score[r, u] = old / 1.3  # wrong: penalty of negative logits
            else:
                score[r, u] = torch.where(old < 0, old * 1.3, old / 1.3)
        results.append(score)
        now = score.argmax(-1)[:, None]
        history = torch.cat((history, now), 1)
        if start + 1 < limit and end < limit:
            valid[:, end] = True
        start = end
        if wrong == "positions not counted on":
            pos = pos[:, -1:]  # wrong: positions not counted on
        else:
            pos = pos[:, -1:] + 1
    return torch.stack(results, 1)


DECODE = [
    "",
    "positions from the padded length",
    "positions not counted on",
    "cache one too early",
    "unwritten cache attended",
    "padding attended when decoding",
    "penalty of negative logits",
]


def decode_a(dtype):
    model = Cached().to(dtype)
    tokens, mask = _padded()
    return lambda: model.generate(tokens, mask)


def decode_b(wrong, dtype):
    w = {k: v.detach().to(dtype) for k, v in Cached().state_dict().items()}
    tokens, mask = _padded()
    return lambda: decode_port(w, tokens, mask, wrong, dtype)


B = (torch.float32, torch.bfloat16)
ONE = (torch.float32,)
FAMILIES = {
    "qwen": (qwen_a, qwen_b, QWEN, B),
    "deepseek": (deepseek_a, deepseek_b, DEEPSEEK, ONE),
    "bloom": (bloom_a, bloom_b, BLOOM, B),
    "decode": (decode_a, decode_b, DECODE, ONE),
}
PARAMETERS = {("qwen", "weights of the norms exchanged"): "layers.1."}
