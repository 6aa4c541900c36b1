"""Mistakes that public bug reports tell of, rebuilt small: language models, encoders, adapters and state spaces."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def seeded(seed: int, module: nn.Module) -> nn.Module:
    """Give every parameter numbers of a trained model: norms are not ones, biases not zeros."""
    torch.manual_seed(seed)
    for name, value in module.named_parameters():
        if value.dim() > 1:
            nn.init.normal_(value, 0.0, 1.0 / math.sqrt(value.shape[-1]))
        elif name.endswith("weight"):
            nn.init.normal_(value, 1.0, 0.2)
        else:
            nn.init.normal_(value, 0.0, 0.1)
    return module.eval()


def integers(seed: int, high: int, *shape: int) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randint(1, high, shape)


# ---------------------------------------------------------------- GPT-NeoX: parallel residual, part of a head turned


class NeoXAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query_key_value = nn.Linear(32, 96)
        self.dense = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        qkv = self.query_key_value(x).view(b, n, 4, 24).transpose(1, 2)
        q, k, v = qkv.chunk(3, dim=-1)
        q, k = turn_part(q, cos, sin), turn_part(k, cos, sin)
        scores = q @ k.transpose(2, 3) * 8**-0.5 + mask
        out = torch.softmax(scores, dim=-1) @ v
        return self.dense(out.transpose(1, 2).reshape(b, n, 32))


def turn_part(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    turned, left = x[..., :4], x[..., 4:]
    first, second = turned.chunk(2, dim=-1)
    return torch.cat((turned * cos + torch.cat((-second, first), dim=-1) * sin, left), dim=-1)


class NeoXLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm = nn.LayerNorm(32)
        self.post_attention_layernorm = nn.LayerNorm(32)
        self.attention = NeoXAttention()
        self.h_to_4h = nn.Linear(32, 128)
        self.h4_to_h = nn.Linear(128, 32)

    def forward(self, x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        attended = self.attention(self.input_layernorm(x), *rest)
        fed = self.h4_to_h(F.gelu(self.h_to_4h(self.post_attention_layernorm(x))))
        return fed + attended + x  # wrong: residual one after the other


class NeoX(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed_in = nn.Embedding(50, 32)
        self.layers = nn.ModuleList([NeoXLayer() for _ in range(3)])
        self.final_layer_norm = nn.LayerNorm(32)
        self.embed_out = nn.Linear(32, 50, bias=False)
        seeded(31, self)

    def forward(self, ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        positions = (attention_mask.cumsum(-1) - 1).clamp(min=0)
        frequencies = 1.0 / (10000.0 ** (torch.arange(0, 4, 2) / 4))
        angles = positions[:, :, None] * frequencies
        angles = torch.cat((angles, angles), dim=-1)[:, None]
        x = self.embed_in(ids)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        n = ids.shape[1]
        allowed = torch.ones(n, n, dtype=torch.bool).tril() & (attention_mask[:, None, None, :] > 0)
        mask = torch.zeros(allowed.shape, dtype=x.dtype).masked_fill(~allowed, torch.finfo(x.dtype).min)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.embed_out(self.final_layer_norm(x))


class NeoXPort:
    def __init__(self, wrong: str, dtype: torch.dtype) -> None:
        self.wrong = wrong
        self.w = {name: value.detach().to(dtype) for name, value in NeoX().state_dict().items()}

    def __call__(self, tokens: torch.Tensor, pad: torch.Tensor) -> torch.Tensor:
        w, wrong = self.w, self.wrong
        b, n = tokens.shape
        if wrong == "+positions ignore the padding":
            pos = torch.arange(n).expand(b, n)
        else:
            pos = (pad.cumsum(-1) - 1).clamp(min=0)
        size = 8 if wrong == "rotary on the whole head" else 4
        inv = 1.0 / (10000.0 ** (torch.arange(0, size, 2) / size))  # wrong: rotary on the whole head
        theta = torch.outer(pos.flatten(), inv).view(b, 1, n, size // 2)
        x = w["embed_in.weight"][tokens]
        keep = torch.ones(n, n, dtype=torch.bool).tril()
        if wrong != "padding attended":
            keep = keep & pad[:, None, None, :].bool()  # wrong: padding attended
        keep = torch.full(keep.shape, torch.finfo(x.dtype).min, dtype=x.dtype).masked_fill(
            keep, 0.0
        )  # wrong: padding attended
        for i in range(3):
            p = f"layers.{i}."
            y = F.layer_norm(x, (32,), w[p + "input_layernorm.weight"], w[p + "input_layernorm.bias"])
            qkv = F.linear(y, w[p + "attention.query_key_value.weight"], w[p + "attention.query_key_value.bias"])
            if wrong == "fused projection in three blocks":
                q, k, v = (
                    t.view(b, n, 4, 8).transpose(1, 2) for t in qkv.chunk(3, -1)
                )  # wrong: fused projection in three blocks
            else:
                q, k, v = qkv.view(b, n, 4, 3, 8).permute(3, 0, 2, 1, 4)
            q, k = self.turn(q, theta), self.turn(k, theta)
            o = F.scaled_dot_product_attention(q, k, v, attn_mask=keep.expand(b, 1, n, n))  # wrong: padding attended
            a = F.linear(o.transpose(1, 2).flatten(2), w[p + "attention.dense.weight"], w[p + "attention.dense.bias"])
            g, c = w[p + "post_attention_layernorm.weight"], w[p + "post_attention_layernorm.bias"]
            if wrong == "residual one after the other":
                x = x + a  # wrong: residual one after the other
                z = F.layer_norm(x, (32,), g, c)  # wrong: residual one after the other
            elif wrong == "one norm for both":
                z = y  # wrong: one norm for both
            else:
                z = F.layer_norm(x, (32,), g, c)  # wrong: one norm for both
                x = x + a
            z = F.linear(z, w[p + "h_to_4h.weight"], w[p + "h_to_4h.bias"])  # wrong: one norm for both
            z = F.gelu(z)
            x = x + F.linear(z, w[p + "h4_to_h.weight"], w[p + "h4_to_h.bias"])
        x = F.layer_norm(x, (32,), w["final_layer_norm.weight"], w["final_layer_norm.bias"])
        return x @ w["embed_out.weight"].t()

    def turn(self, x: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        cos, sin = theta.cos().to(x.dtype), theta.sin().to(x.dtype)
        if self.wrong == "rotary on the whole head":
            one, two = x.chunk(2, -1)  # wrong: rotary on the whole head
            return torch.cat((one * cos - two * sin, two * cos + one * sin), -1)  # wrong: rotary on the whole head
        if self.wrong == "rotary of neighbours":
            one, two = x[..., :4:2], x[..., 1:4:2]  # wrong: rotary of neighbours
            turned = torch.stack((one * cos - two * sin, two * cos + one * sin), -1).flatten(
                -2
            )  # wrong: rotary of neighbours
            return torch.cat((turned, x[..., 4:]), -1)
        one, two, rest = x[..., :2], x[..., 2:4], x[..., 4:]  # wrong: rotary on the whole head, rotary of neighbours
        return torch.cat((one * cos - two * sin, two * cos + one * sin, rest), -1)  # wrong: rotary on the whole head


def padded() -> tuple[torch.Tensor, torch.Tensor]:
    ids = integers(32, 50, 2, 9)
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, :3] = 0
    return ids, mask


def neox_a(dtype: torch.dtype) -> object:
    model, (ids, mask) = NeoX().to(dtype), padded()
    return lambda: model(ids, mask)


def neox_b(wrong: str, dtype: torch.dtype) -> object:
    model, (ids, mask) = NeoXPort(wrong, dtype), padded()
    return lambda: model(ids, mask)


NEOX = ["", "+positions ignore the padding", "padding attended", "fused projection in three blocks",
        "residual one after the other", "one norm for both", "rotary on the whole head", "rotary of neighbours"]  # fmt: skip


# ---------------------------------------------------------------- BERT


class BertEmbeddings(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(60, 32, padding_idx=0)
        self.position_embeddings = nn.Embedding(20, 32)
        self.token_type_embeddings = nn.Embedding(2, 32)
        self.LayerNorm = nn.LayerNorm(32, eps=1e-12)
        self.dropout = nn.Dropout(0.1)

    def forward(self, ids: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1]).expand(ids.shape)
        x = self.word_embeddings(ids) + self.token_type_embeddings(kinds)  # wrong: token types missing
        x = x + self.position_embeddings(places)  # wrong: positions from the padding index
        return self.dropout(self.LayerNorm(x))


class BertLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)
        self.output, self.norm1 = nn.Linear(32, 32), nn.LayerNorm(32, eps=1e-12)
        self.intermediate, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        self.norm2, self.dropout = nn.LayerNorm(32, eps=1e-12), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        q, k, v = (each(x).view(b, n, 4, 8).transpose(1, 2) for each in (self.query, self.key, self.value))
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(8) + mask, dim=-1)
        mixed = (self.dropout(weights) @ v).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.dropout(self.output(mixed)))
        return self.norm2(x + self.dropout(self.down(F.gelu(self.intermediate(x)))))


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embeddings = BertEmbeddings()
        self.layer = nn.ModuleList([BertLayer() for _ in range(2)])
        self.pooler, self.transform = nn.Linear(32, 32), nn.Linear(32, 32)
        self.norm, self.bias = nn.LayerNorm(32, eps=1e-12), nn.Parameter(torch.zeros(60))
        seeded(41, self)

    def forward(self, ids: torch.Tensor, kinds: torch.Tensor, attention_mask: torch.Tensor) -> tuple:
        x = self.embeddings(ids, kinds)
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layer:
            x = layer(x, mask)
        pooled = torch.tanh(self.pooler(x[:, 0]))  # wrong: pooler without tanh
        scores = F.linear(self.norm(F.gelu(self.transform(x))), self.embeddings.word_embeddings.weight, self.bias)
        return scores, pooled


class BertPort:
    def __init__(self, wrong: str, dtype: torch.dtype) -> None:
        self.wrong = wrong
        self.w = {name: value.detach().to(dtype) for name, value in Bert().state_dict().items()}
        if wrong == "decoder bias not loaded":
            self.w["bias"] = torch.zeros_like(self.w["bias"])
        self.eps = 1e-5 if wrong == "eps of the default" else 1e-12
        self.encoders = [self.encoder(i, dtype) for i in range(2)] if wrong == "+encoder layers of torch" else []

    def encoder(self, i: int, dtype: torch.dtype) -> nn.Module:
        w, p = self.w, f"layer.{i}."
        made = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True, layer_norm_eps=1e-12)
        names = {
            "linear1": "intermediate",
            "linear2": "down",
            "self_attn.out_proj": "output",
            "norm1": "norm1",
            "norm2": "norm2",
        }
        state = {f"{a}.{k}": w[f"{p}{b}.{k}"] for a, b in names.items() for k in ("weight", "bias")}
        for k in ("weight", "bias"):
            state[f"self_attn.in_proj_{k}"] = torch.cat([w[f"{p}{each}.{k}"] for each in ("query", "key", "value")])
        made.load_state_dict(state)
        return made.to(dtype).eval()

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(
            x, (32,), self.w[f"{name}.weight"], self.w[f"{name}.bias"], self.eps
        )  # wrong: eps of the default

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self.w[f"{name}.weight"], self.w[f"{name}.bias"])

    def __call__(self, ids: torch.Tensor, kinds: torch.Tensor, keep: torch.Tensor) -> tuple:
        w, wrong = self.w, self.wrong
        b, n = ids.shape
        pos = torch.arange(n)
        if wrong == "positions from the padding index":
            pos = pos + 2  # wrong: positions from the padding index
        x = w["embeddings.word_embeddings.weight"][ids]  # wrong: token types missing
        x = (
            x + w["embeddings.position_embeddings.weight"][pos]
        )  # wrong: positions from the padding index, token types missing
        if wrong != "token types missing":
            x = x + w["embeddings.token_type_embeddings.weight"][kinds]
        x = self.norm(x, "embeddings.LayerNorm")  # wrong: token types missing
        if wrong == "dropout in eval":
            x = F.dropout(x, 0.1)  # wrong: dropout in eval
        if wrong == "mask added as it is":
            bias = keep[:, None, None, :].to(x.dtype)  # wrong: mask added as it is
        else:
            bias = (1.0 - keep[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min  # wrong: mask added as it is
        for i in range(2):
            p = f"layer.{i}."
            if self.encoders:
                x = self.encoders[i](x, src_key_padding_mask=keep == 0)
                continue
            q, k, v = (self.linear(x, p + each).view(b, n, 4, 8).transpose(1, 2) for each in ("query", "key", "value"))
            if wrong == "+fused projections":
                m = torch.cat([w[p + f"{each}.weight"] for each in ("query", "key", "value")])
                c = torch.cat([w[p + f"{each}.bias"] for each in ("query", "key", "value")])
                q, k, v = F.linear(x, m, c).view(b, n, 3, 4, 8).permute(2, 0, 3, 1, 4)
            if wrong == "scale by the width":
                s = (q @ k.mT) / math.sqrt(32)  # wrong: scale by the width
            else:
                s = (q / math.sqrt(8)) @ k.mT  # wrong: scale by the width
            o = (s + bias).softmax(-1) @ v  # wrong: mask added as it is
            o = self.linear(o.transpose(1, 2).reshape(b, n, 32), p + "output")
            if wrong == "norm before the sum":
                x = x + self.norm(o, p + "norm1")  # wrong: norm before the sum
            else:
                x = self.norm(x + o, p + "norm1")  # wrong: norm before the sum
            f = self.linear(x, p + "intermediate")
            f = F.gelu(f, approximate="tanh" if wrong == "gelu of the port" else "none")  # wrong: gelu of the port
            x = self.norm(x + self.linear(f, p + "down"), p + "norm2")
        if wrong == "pooled by the mean":
            pooled = torch.tanh(self.linear(x.mean(1), "pooler"))  # wrong: pooled by the mean
        elif wrong == "pooler without tanh":
            pooled = self.linear(x[:, 0], "pooler")  # wrong: pooler without tanh
        else:
            pooled = torch.tanh(self.linear(x[:, 0], "pooler"))  # wrong: pooled by the mean, pooler without tanh
        h = self.norm(F.gelu(self.linear(x, "transform")), "norm")
        return h @ w["embeddings.word_embeddings.weight"].t() + w["bias"], pooled


def sentences() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    ids = integers(42, 60, 3, 10)
    kinds = (torch.arange(10) > 4).long().expand(3, 10).contiguous()
    mask = torch.ones(3, 10, dtype=torch.long)
    mask[0, 7:] = 0
    return ids, kinds, mask


def bert_a(dtype: torch.dtype) -> object:
    model, given = Bert().to(dtype), sentences()
    return lambda: model(*given)


def bert_b(wrong: str, dtype: torch.dtype) -> object:
    model, given = BertPort(wrong, dtype), sentences()
    if wrong == "+batch in another order":
        given = tuple(each[[2, 0, 1]] for each in given)
    return lambda: model(*given)


BERT = ["", "+encoder layers of torch", "+fused projections", "+batch in another order", "eps of the default", "token types missing",
        "positions from the padding index", "dropout in eval", "mask added as it is", "scale by the width",
        "norm before the sum", "gelu of the port", "pooled by the mean", "pooler without tanh", "decoder bias not loaded"]  # fmt: skip


# ---------------------------------------------------------------- Mamba


class Mamba(nn.Module):
    """One state space block as the reference writes it: a scan step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.in_proj = nn.Linear(16, 64, bias=False)
        self.conv1d = nn.Conv1d(32, 32, 4, groups=32, padding=3)
        self.x_proj = nn.Linear(32, 2 + 16, bias=False)
        self.dt_proj = nn.Linear(2, 32)
        self.A_log = nn.Parameter(torch.zeros(32, 8))
        self.D = nn.Parameter(torch.zeros(32))
        self.out_proj = nn.Linear(32, 16, bias=False)
        seeded(51, self)
        with torch.no_grad():
            self.A_log.copy_(torch.log(torch.arange(1.0, 9.0)).expand(32, 8))
            self.D.add_(1.0)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        n = u.shape[1]
        x, z = self.in_proj(u).transpose(1, 2).chunk(2, dim=1)
        x = F.silu(self.conv1d(x)[..., :n])
        dt, B, C = torch.split(self.x_proj(x.transpose(1, 2)), [2, 8, 8], dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        A = -torch.exp(self.A_log)
        state = torch.zeros(u.shape[0], 32, 8, dtype=u.dtype)
        ys = []
        for t in range(n):
            dA = torch.exp(dt[:, t, :, None] * A)
            dB = dt[:, t, :, None] * B[:, t, None, :]
            state = dA * state + dB * x[:, :, t, None]
            ys.append((state * C[:, t, None, :]).sum(-1))
        y = torch.stack(ys, dim=2) + self.D[:, None] * x
        return self.out_proj((y * F.silu(z)).transpose(1, 2))


def mamba_port(w: dict[str, torch.Tensor], u: torch.Tensor, wrong: str) -> torch.Tensor:
    n = u.shape[1]
    x, z = (u @ w["in_proj.weight"].t()).chunk(2, -1)
    if wrong == "gate and input exchanged":
        z, x = x, z  # wrong: gate and input exchanged
    left = (2, 1) if wrong == "convolution sees the next" else (3, 0)
    padded = F.pad(x.mT, left)  # wrong: convolution sees the next
    x = F.conv1d(
        padded, w["conv1d.weight"], w["conv1d.bias"], groups=32
    ).mT  # wrong: convolution sees the next, gate and input exchanged
    x = F.silu(x)
    low, B, C = (x @ w["x_proj.weight"].t()).split([2, 8, 8], -1)
    if wrong == "B and C exchanged":
        B, C = C, B  # wrong: B and C exchanged
    if wrong == "bias of dt twice":
        dt = F.softplus(
            F.linear(low, w["dt_proj.weight"], w["dt_proj.bias"]) + w["dt_proj.bias"]
        )  # wrong: bias of dt twice
    elif wrong == "dt without softplus":
        dt = F.linear(low, w["dt_proj.weight"], w["dt_proj.bias"]).abs()  # wrong: dt without softplus
    else:
        dt = F.softplus(
            F.linear(low, w["dt_proj.weight"], w["dt_proj.bias"])
        )  # wrong: bias of dt twice, dt without softplus
    A = -torch.exp(w["A_log"])
    if wrong == "A without exp":
        A = -w["A_log"]  # wrong: A without exp
    dA = torch.exp(torch.einsum("bld,dn->bldn", dt, A))  # wrong: A without exp
    dBx = torch.einsum("bld,bln,bld->bldn", dt, B, x)  # wrong: B and C exchanged, input not discretised
    if wrong == "input not discretised":
        dBx = torch.einsum("bln,bld->bldn", B, x)  # wrong: input not discretised
    h = torch.zeros_like(dBx[:, 0])
    hs = []
    for t in range(n):
        h = torch.addcmul(dBx[:, t], dA[:, t], h)
        hs.append(h)
    y = torch.einsum("bldn,bln->bld", torch.stack(hs, 1), C)
    if wrong == "skip missing":
        y = y * F.silu(z)  # wrong: skip missing
    else:
        y = (y + x * w["D"]) * F.silu(z)  # wrong: skip missing
    return y @ w["out_proj.weight"].t()


def mamba_a(dtype: torch.dtype) -> object:
    model = Mamba().to(dtype)
    torch.manual_seed(52)
    u = torch.randn(2, 12, 16).to(dtype)
    return lambda: model(u)


def mamba_b(wrong: str, dtype: torch.dtype) -> object:
    w = {name: value.detach().to(dtype) for name, value in Mamba().state_dict().items()}
    torch.manual_seed(52)
    u = torch.randn(2, 12, 16).to(dtype)
    return lambda: mamba_port(w, u, wrong)


MAMBA = ["", "gate and input exchanged", "convolution sees the next", "B and C exchanged", "bias of dt twice",
         "dt without softplus", "A without exp", "input not discretised", "skip missing"]  # fmt: skip


# ---------------------------------------------------------------- adapters, and a router with a bias


class LoRALinear(nn.Module):
    def __init__(self, given: int, made: int) -> None:
        super().__init__()
        self.base = nn.Linear(given, made)
        self.lora_A = nn.Linear(given, 4, bias=False)
        self.lora_B = nn.Linear(4, made, bias=True)
        self.scaling = 16 / math.sqrt(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (
            self.base(x) + self.lora_B(self.lora_A(x)) * self.scaling
        )  # wrong: scaled by the rank, adapter not scaled, adapter forgotten


class Experts(nn.Module):
    """The router of DeepSeek: its bias only chooses; the weights come from the scores without it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(24, 8, bias=False)
        self.e_score_correction_bias = nn.Parameter(torch.zeros(8))
        self.up = nn.ModuleList([nn.Linear(24, 16, bias=False) for _ in range(8)])
        self.down = nn.ModuleList([nn.Linear(16, 24, bias=False) for _ in range(8)])
        self.shared_up, self.shared_down = nn.Linear(24, 16, bias=False), nn.Linear(16, 24, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, 24)
        scores = self.gate(flat).sigmoid()
        chosen = (scores + self.e_score_correction_bias * 3).topk(2, dim=-1)[1]
        weights = scores.gather(1, chosen)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * 2.5  # wrong: routed scale missing
        out = torch.zeros_like(flat)
        for number in range(8):
            token, slot = torch.where(chosen == number)
            if len(token):
                made = self.down[number](F.silu(self.up[number](flat[token])))
                out.index_add_(0, token, made * weights[token, slot, None])
        out = out + self.shared_down(F.silu(self.shared_up(flat)))  # wrong: shared expert missing
        return out.view_as(x)


class Adapted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 24)
        self.q, self.kv = LoRALinear(24, 24), nn.Linear(24, 24)
        self.norm1, self.norm2 = nn.RMSNorm(24, eps=1e-6), nn.RMSNorm(24, eps=1e-6)
        self.o = LoRALinear(24, 24)
        self.experts = Experts()
        self.head = nn.Linear(24, 40, bias=False)
        seeded(61, self)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        b, n, _ = x.shape
        y = self.norm1(x)
        q = self.q(y).view(b, n, 4, 6).transpose(1, 2)
        k, v = (t.view(b, n, 2, 6).transpose(1, 2).repeat_interleave(2, dim=1) for t in self.kv(y).chunk(2, dim=-1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(6)
        scores = torch.tanh(scores / 5.0) * 5.0
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
        x = x + self.o((torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(b, n, 24))
        x = x + self.experts(self.norm2(x))
        return self.head(x)


class AdaptedPort:
    def __init__(self, wrong: str, dtype: torch.dtype) -> None:
        self.wrong = wrong
        self.w = {name: value.detach().to(dtype) for name, value in Adapted().state_dict().items()}
        if wrong in ("+adapters merged", "bias of the merged adapter not scaled"):
            for name in ("q", "o"):
                w = self.w
                w[f"{name}.base.weight"] = (
                    w[f"{name}.base.weight"] + 8.0 * w[f"{name}.lora_B.weight"] @ w[f"{name}.lora_A.weight"]
                )
                scale = 1.0 if wrong.startswith("bias") else 8.0
                w[f"{name}.base.bias"] = w[f"{name}.base.bias"] + scale * w[f"{name}.lora_B.bias"]

    def lora(self, x: torch.Tensor, name: str) -> torch.Tensor:
        w, wrong = self.w, self.wrong
        out = F.linear(
            x, w[f"{name}.base.weight"], w[f"{name}.base.bias"]
        )  # wrong: bias of the merged adapter not scaled
        if wrong in ("+adapters merged", "bias of the merged adapter not scaled"):
            return out
        if wrong == "adapter forgotten" and name == "o":
            return out
        low = F.linear(F.linear(x, w[f"{name}.lora_A.weight"]), w[f"{name}.lora_B.weight"], w[f"{name}.lora_B.bias"])
        scale = {"scaled by the rank": 16 / 4, "adapter not scaled": 1.0}.get(wrong, 16 / 4**0.5)
        return out + scale * low  # wrong: scaled by the rank, adapter not scaled

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        w, wrong = self.w, self.wrong
        x = w["embed.weight"][ids]
        b, n, _ = x.shape
        y = F.rms_norm(x, (24,), w["norm1.weight"], 1e-6)
        q = self.lora(y, "q").view(b, n, 4, 6).transpose(1, 2)
        kv = F.linear(y, w["kv.weight"], w["kv.bias"]).view(b, n, 2, 2, 6)
        k, v = kv[:, :, 0].transpose(1, 2), kv[:, :, 1].transpose(1, 2)
        if wrong == "groups in turn":
            k, v = k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)  # wrong: groups in turn
        else:
            k, v = (t[:, :, None].expand(b, 2, 2, n, 6).reshape(b, 4, n, 6) for t in (k, v))  # wrong: groups in turn
        s = (q @ k.mT) * 6**-0.5  # wrong: groups in turn
        hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
        if wrong == "cap after the mask":
            s = s.masked_fill(hidden, -1e4)  # wrong: cap after the mask
            s = 5.0 * (s / 5.0).tanh()  # wrong: cap after the mask
        else:
            s = 5.0 * (s / 5.0).tanh()  # wrong: cap after the mask
            s = s.masked_fill(hidden, -torch.inf)  # wrong: cap after the mask
        p = s.softmax(-1)  # wrong: cap after the mask
        o = (p @ v).transpose(1, 2).flatten(2)
        x = x + self.lora(o, "o")  # wrong: adapter forgotten
        x = x + self.experts(F.rms_norm(x, (24,), w["norm2.weight"], 1e-6))
        return x @ w["head.weight"].t()

    def experts(self, x: torch.Tensor) -> torch.Tensor:
        w, wrong = self.w, self.wrong
        flat = x.flatten(0, 1)
        scores = (flat @ w["experts.gate.weight"].t()).sigmoid()
        biased = scores + 3 * w["experts.e_score_correction_bias"]
        if wrong == "router bias in the weights":
            top, chosen = biased.topk(2, -1)  # wrong: router bias in the weights
        elif wrong == "router bias forgotten":
            top, chosen = scores.topk(2, -1)  # wrong: router bias forgotten
        else:
            chosen = biased.topk(2, -1).indices  # wrong: router bias forgotten
            top = scores.gather(1, chosen)  # wrong: router bias in the weights, router bias forgotten
        top = top / top.sum(-1, keepdim=True)  # wrong: router bias in the weights
        if wrong != "routed scale missing":
            top = top * 2.5
        dense = torch.zeros_like(scores).scatter(1, chosen, top)  # wrong: routed scale missing, router bias forgotten
        up = torch.stack([w[f"experts.up.{each}.weight"] for each in range(8)])
        down = torch.stack([w[f"experts.down.{each}.weight"] for each in range(8)])
        h = F.silu(torch.einsum("td,efd->tef", flat, up))
        out = torch.einsum("tef,edf,te->td", h, down, dense)
        if wrong != "shared expert missing":
            out = out + F.linear(F.silu(F.linear(flat, w["experts.shared_up.weight"])), w["experts.shared_down.weight"])
        return out.view_as(x)


def adapted_a(dtype: torch.dtype) -> object:
    model, ids = Adapted().to(dtype), integers(62, 40, 2, 7)
    return lambda: model(ids)


def adapted_b(wrong: str, dtype: torch.dtype) -> object:
    model, ids = AdaptedPort(wrong, dtype), integers(62, 40, 2, 7)
    return lambda: model(ids)


ADAPTED = ["", "+adapters merged", "scaled by the rank", "adapter not scaled", "adapter forgotten",
           "bias of the merged adapter not scaled", "groups in turn", "cap after the mask", "router bias in the weights",
           "router bias forgotten", "routed scale missing", "shared expert missing"]  # fmt: skip
