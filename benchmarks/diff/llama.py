"""Llama, Gemma and a mixture of experts: one reference of modules with a config, and a port in another style."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

D, H, KV, LAYERS, VOCAB, N, FF, EXPERTS = 32, 4, 2, 3, 67, 12, 48, 4
HEAD = D // H


@dataclass(frozen=True)
class Config:
    kind: str = "llama"
    window: int = 0
    rope_theta: float = 10000.0
    eps: float = 1e-5

    @property
    def is_gemma(self) -> bool:
        return self.kind == "gemma"


LLAMA, WINDOWED = Config(), Config(window=4)
GEMMA, MOE = Config("gemma", eps=1e-6), Config("moe")


def weights(config: Config) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    norm = (lambda: 0.2 * torch.randn(D)) if config.is_gemma else (lambda: 1 + 0.2 * torch.randn(D))
    made = {"embed": torch.randn(VOCAB, D) * 0.6, "norm": norm(), "head": torch.randn(VOCAB, D) / math.sqrt(D)}
    for i in range(LAYERS):
        for name, rows in (("q", D), ("k", KV * HEAD), ("v", KV * HEAD), ("o", D)):
            made[f"{i}.{name}"] = torch.randn(rows, D) / math.sqrt(D)
        made[f"{i}.n1"], made[f"{i}.n2"] = norm(), norm()
        if config.is_gemma:
            made[f"{i}.n3"], made[f"{i}.n4"] = norm(), norm()
        experts = range(EXPERTS) if config.kind == "moe" else ("",)
        for e in experts:
            made[f"{i}.gate{e}"] = torch.randn(FF, D) / math.sqrt(D)
            made[f"{i}.up{e}"] = torch.randn(FF, D) / math.sqrt(D)
            made[f"{i}.down{e}"] = torch.randn(D, FF) / math.sqrt(FF)
        if config.kind == "moe":
            made[f"{i}.router"] = torch.randn(EXPERTS, D) * 0.5
    return made


def tokens() -> torch.Tensor:
    torch.manual_seed(4)
    return torch.randint(0, VOCAB, (2, N))


# ---------------------------------------------------------------- A: modules, as in a library


def linear(weight: torch.Tensor) -> nn.Linear:
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    made.weight = nn.Parameter(weight)
    return made


class RMSNorm(nn.Module):
    def __init__(self, weight: torch.Tensor, config: Config) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.config = config

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.config.eps)
        if self.config.is_gemma:
            return (hidden_states * (1.0 + self.weight.float())).to(input_dtype)
        return self.weight * hidden_states.to(input_dtype)  # wrong: norm without weight


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple:
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def repeat_kv(x: torch.Tensor, times: int) -> torch.Tensor:
    batch, heads, length, size = x.shape
    x = x[:, :, None, :, :].expand(batch, heads, times, length, size)
    return x.reshape(batch, heads * times, length, size)


class LlamaAttention(nn.Module):
    def __init__(self, made: dict[str, torch.Tensor], i: int, config: Config) -> None:
        super().__init__()
        self.config, self.layer = config, i
        self.past: tuple | None = None
        self.uses_cache = False
        self.q_proj, self.k_proj = linear(made[f"{i}.q"]), linear(made[f"{i}.k"])
        self.v_proj, self.o_proj = linear(made[f"{i}.v"]), linear(made[f"{i}.o"])

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        q = self.q_proj(x).view(b, n, H, HEAD).transpose(1, 2)
        k = self.k_proj(x).view(b, n, KV, HEAD).transpose(1, 2)
        v = self.v_proj(x).view(b, n, KV, HEAD).transpose(1, 2)
        q, k = apply_rotary(q, k, cos, sin)
        if self.uses_cache:
            if self.past is not None:
                k = torch.cat((self.past[0], k), dim=-2)
                v = torch.cat((self.past[1], v), dim=-2)
            self.past = (k, v)
        k, v = repeat_kv(k, H // KV), repeat_kv(v, H // KV)
        scores = torch.matmul(q, k.transpose(2, 3)) * HEAD**-0.5
        if self.config.is_gemma:
            scores = scores / 2.0
            scores = torch.tanh(scores)
            scores = scores * 2.0
        scores = scores + mask
        probs = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        return self.o_proj(torch.matmul(probs, v).transpose(1, 2).contiguous().reshape(b, n, D))


class LlamaMLP(nn.Module):
    def __init__(self, made: dict[str, torch.Tensor], i: int, e: object, config: Config) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = linear(made[f"{i}.gate{e}"]), linear(made[f"{i}.up{e}"])
        self.down_proj = linear(made[f"{i}.down{e}"])
        self.act_fn = nn.GELU(approximate="tanh") if config.is_gemma else nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class SparseMoe(nn.Module):
    def __init__(self, made: dict[str, torch.Tensor], i: int, config: Config) -> None:
        super().__init__()
        self.gate = linear(made[f"{i}.router"])
        self.experts = nn.ModuleList([LlamaMLP(made, i, e, config) for e in range(EXPERTS)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, D)
        routing = F.softmax(self.gate(flat), dim=1, dtype=torch.float32)
        routing, selected = torch.topk(routing, 2, dim=-1)
        routing = routing / routing.sum(dim=-1, keepdim=True)
        routing = routing.to(x.dtype)
        final = torch.zeros_like(flat)
        chosen = F.one_hot(selected, num_classes=EXPERTS).permute(2, 1, 0)
        for e in range(EXPERTS):
            idx, top = torch.where(chosen[e])
            current = self.experts[e](flat[top]) * routing[top, idx, None]
            final.index_add_(0, top, current)
        return final.reshape(x.shape)


class DecoderLayer(nn.Module):
    def __init__(self, made: dict[str, torch.Tensor], i: int, config: Config) -> None:
        super().__init__()
        self.config = config
        self.self_attn = LlamaAttention(made, i, config)
        self.mlp = SparseMoe(made, i, config) if config.kind == "moe" else LlamaMLP(made, i, "", config)
        self.input_layernorm = RMSNorm(made[f"{i}.n1"], config)
        self.post_attention_layernorm = RMSNorm(made[f"{i}.n2"], config)
        if config.is_gemma:
            self.pre_feedforward_layernorm = RMSNorm(made[f"{i}.n3"], config)
            self.post_feedforward_layernorm = RMSNorm(made[f"{i}.n4"], config)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        residual = x
        x = self.self_attn(self.input_layernorm(x), cos, sin, mask)
        if self.config.is_gemma:
            x = residual + self.post_attention_layernorm(x)
            return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))
        x = residual + x
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, config: Config, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        made = weights(config)
        self.config = config
        self.embed_tokens = nn.Embedding.from_pretrained(made["embed"], freeze=False)
        self.layers = nn.ModuleList([DecoderLayer(made, i, config) for i in range(LAYERS)])
        self.norm = RMSNorm(made["norm"], config)
        self.lm_head = linear(made["embed"].clone() if config.is_gemma else made["head"])
        self.to(dtype)

    def forward(self, ids: torch.Tensor, start: int = 0) -> torch.Tensor:
        x = self.embed_tokens(ids)
        if self.config.is_gemma:
            x = x * torch.tensor(D**0.5, dtype=x.dtype)
        inv_freq = 1.0 / (self.config.rope_theta ** (torch.arange(0, HEAD, 2, dtype=torch.float32) / HEAD))
        position = torch.arange(start, start + ids.shape[1], dtype=torch.float32)
        freqs = torch.outer(position, inv_freq)
        emb = torch.cat((freqs, freqs), dim=-1)
        cos, sin = emb.cos().to(x.dtype), emb.sin().to(x.dtype)
        full = torch.full((ids.shape[1], start + ids.shape[1]), torch.finfo(x.dtype).min, dtype=x.dtype)
        mask = torch.triu(full, diagonal=1 + start)
        if self.config.window:
            mask = mask + torch.tril(full, diagonal=-self.config.window)
            mask = mask.clamp(min=torch.finfo(x.dtype).min)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        logits = self.lm_head(self.norm(x))
        if self.config.is_gemma:
            logits = torch.tanh(logits / 5.0) * 5.0  # wrong: soft cap of logits missing
        return logits

    def generate(self, ids: torch.Tensor) -> torch.Tensor:
        """A prefill, then token by token."""
        for layer in self.layers:
            layer.self_attn.uses_cache = True
            layer.self_attn.past = None
        logits = [self(ids[:, : N - 3])]
        for at in range(N - 3, N):
            logits.append(self(ids[:, at : at + 1], at))
        return torch.cat(logits, dim=1)


# ---------------------------------------------------------------- B: functions, rope with complex numbers, sdpa


def angles(n: int, wrong: str, start: int = 0) -> torch.Tensor:
    base = 500000.0 if wrong == "rope theta" else 10000.0
    if wrong == "rope dimension":
        f = torch.pow(base, -torch.arange(0, HEAD, 2).float() / (2 * HEAD))  # wrong: rope dimension
    else:
        f = torch.pow(base, -torch.arange(0, HEAD, 2).float() / HEAD)  # wrong: rope theta
    t = torch.arange(start, start + n).float()  # wrong: cache position
    if wrong == "+rope from one":
        t = t + 1
    if wrong == "rope scaled":
        t = t / 4  # wrong: rope scaled
    return t[:, None] * f[None]  # wrong: cache position, rope scaled, rope theta, rope dimension


def rotate(x: torch.Tensor, a: torch.Tensor, wrong: str) -> torch.Tensor:
    """[batch, position, head, number]: pairs are (i, i + half) as halves, or neighbours where that is the mistake."""
    if wrong == "rope pairing":
        c = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))  # wrong: rope pairing
        c = c * torch.polar(torch.ones_like(a), a)[:, None]  # wrong: rope pairing
        return torch.view_as_real(c).flatten(-2).type_as(x)  # wrong: rope pairing
    l, r = x.chunk(2, -1)
    cos, sin = a.cos()[:, None].to(x.dtype), a.sin()[:, None].to(x.dtype)
    if wrong == "rope direction":
        return torch.cat([l * cos + r * sin, r * cos - l * sin], -1)  # wrong: rope direction
    return torch.cat([l * cos - r * sin, r * cos + l * sin], -1)  # wrong: rope on values, rope scaled, rope theta


class Port:
    def __init__(self, config: Config, wrong: str = "", dtype: torch.dtype = torch.float32) -> None:
        self.config, self.wrong, self.dtype = config, wrong, dtype
        w = {name: value.clone() for name, value in weights(config).items()}
        if wrong == "gate and up exchanged":
            w["1.gate"], w["1.up"] = w["1.up"], w["1.gate"]
        if wrong == "expert transposed":
            w["1.down2"] = torch.roll(w["1.down2"], 1, 0)
        if wrong == "one weight not loaded":
            torch.manual_seed(8)
            w["2.v"] = torch.randn_like(w["2.v"]) * 0.17
        self.w = {name: value.to(dtype) for name, value in w.items()}

    def norm(self, x: torch.Tensor, g: torch.Tensor, where: str = "") -> torch.Tensor:
        wrong = self.wrong
        eps = 1e-2 if wrong == "norm eps" else self.config.eps
        if wrong == "+rms_norm" and not self.config.is_gemma:
            return F.rms_norm(x, (D,), g, eps)
        if wrong == "layer norm for rms norm":
            return F.layer_norm(x, (D,), g, None, eps)  # wrong: layer norm for rms norm
        u = x.float()
        if wrong == "eps outside the root":
            u = u / (u.square().mean(-1, True).sqrt() + 1e-2)  # wrong: eps outside the root
        else:
            u = u / torch.sqrt(u.square().mean(-1, True) + eps)  # wrong: norm eps
        if self.config.is_gemma and wrong != "norm without +1":
            return (u + u * g.float()).to(x.dtype) if wrong == "+norm spread" else (u * (g.float() + 1)).to(x.dtype)
        if wrong == "norm with +1":
            return (u * (1 + g.float())).to(x.dtype)  # wrong: norm with +1
        return (
            (u * g.float()).to(x.dtype) if wrong != "norm without weight" else u.to(x.dtype)
        )  # wrong: norm without +1, norm without weight

    def __call__(self, tok: torch.Tensor) -> torch.Tensor:
        w, wrong = self.w, self.wrong
        x = w["embed"][tok]
        if self.config.is_gemma:
            if wrong == "embedding not scaled":
                pass
            elif wrong == "embedding scaled by width":
                x = x * D  # wrong: embedding scaled by width
            else:
                x = x * math.sqrt(D)
        a = angles(tok.shape[1], wrong)
        for i in range(LAYERS):
            x = self.block(x, i, a)
        x = self.norm(x, w["norm"], "last")  # wrong: embedding not scaled
        if not self.config.is_gemma:
            return x @ w["head"].T
        logits = x @ w["embed"].T
        if wrong == "soft cap of logits missing":
            return logits  # wrong: soft cap of logits missing
        cap = 10.0 if wrong == "soft cap doubled" else 5.0
        return cap * torch.tanh(logits / cap)  # wrong: soft cap doubled

    def block(self, x: torch.Tensor, i: int, a: torch.Tensor) -> torch.Tensor:
        w, wrong = self.w, self.wrong
        if wrong == "no norm before attention" and i == 1:
            y = self.attend(x, i, a)  # wrong: no norm before attention
        else:
            y = self.attend(self.norm(x, w[f"{i}.n1"]), i, a)  # wrong: norm without +1, embedding not scaled
        if self.config.is_gemma:
            if wrong == "post norm missing" and i == 0:
                x = x + y  # wrong: post norm missing
            else:
                x = x + self.norm(y, w[f"{i}.n2"])  # wrong: embedding not scaled
            return x + self.norm(self.feed(self.norm(x, w[f"{i}.n3"]), i), w[f"{i}.n4"])
        x = x + y
        z = self.norm(x, w[f"{i}.n2"])
        return x + (self.experts(z, i) if self.config.kind == "moe" else self.feed(z, i))

    def feed(self, y: torch.Tensor, i: int, e: object = "") -> torch.Tensor:
        w, wrong = self.w, self.wrong
        if wrong == "+gate and up fused":
            g, u = F.linear(y, torch.cat([w[f"{i}.gate{e}"], w[f"{i}.up{e}"]])).chunk(2, -1)
        else:
            g, u = y @ w[f"{i}.gate{e}"].T, y @ w[f"{i}.up{e}"].T  # wrong: gate and up exchanged
        if self.config.is_gemma:
            h = F.gelu(g, approximate="none" if wrong == "gelu erf" else "tanh") * u  # wrong: gelu erf
        elif wrong == "gelu for silu":
            h = F.gelu(g) * u  # wrong: gelu for silu
        elif wrong == "activation on up" and i == 1:
            h = g * F.silu(u)  # wrong: activation on up
        else:
            h = g * torch.sigmoid(g) * u  # wrong: gate and up exchanged
        return h @ w[f"{i}.down{e}"].T  # wrong: expert transposed

    def experts(self, y: torch.Tensor, i: int) -> torch.Tensor:
        w, wrong = self.w, self.wrong
        s = y @ w[f"{i}.router"].T
        if wrong == "sigmoid router":
            p = torch.sigmoid(s.float())  # wrong: sigmoid router
        else:
            p = torch.softmax(s.float(), -1)
        if wrong == "softmax after top-k" or wrong == "+softmax after top-k":
            g, k = s.float().topk(2, -1)
            g = g.softmax(-1)
        elif wrong == "top one":
            g, k = p.topk(1, -1)  # wrong: top one
        elif wrong == "top smallest":
            g, k = p.topk(2, -1, largest=False)  # wrong: top smallest
        else:
            g, k = p.topk(2, -1)
        if wrong == "router not renormalised":
            g = g
        elif "softmax after top-k" not in wrong:
            g = g / (g[..., :1] + g[..., 1:]) if wrong not in ("top one",) else g / g.sum(-1, keepdim=True)
        if wrong == "router order" and i == 0:
            g = g.flip(-1)  # wrong: router order
        share = torch.zeros_like(p).scatter(
            -1, k, g
        )  # wrong: router not renormalised, router order, top one, top smallest
        all_of_them = torch.stack([self.feed(y, i, e) for e in range(EXPERTS)], -2)
        return (share.to(y.dtype)[..., None] * all_of_them).sum(-2)  # wrong: router not renormalised, expert transposed

    def attend(self, y: torch.Tensor, i: int, a: torch.Tensor) -> torch.Tensor:
        w, wrong, c = self.w, self.wrong, self.config
        b, n, _ = y.shape
        if wrong == "+fused projections":
            qkv = y @ torch.cat([w[f"{i}.q"], w[f"{i}.k"], w[f"{i}.v"]]).T
            q, k, v = qkv.split([H * HEAD, KV * HEAD, KV * HEAD], -1)
        else:
            q, k, v = (
                y @ w[f"{i}.q"].T,
                y @ w[f"{i}.k"].T,
                y @ w[f"{i}.v"].T,
            )  # wrong: one weight not loaded, no norm before attention
        q, k, v = q.view(b, n, H, HEAD), k.view(b, n, KV, HEAD), v.view(b, n, KV, HEAD)
        q = rotate(q, a, wrong)
        if wrong != "rope not on keys":
            k = rotate(k, a, wrong)
        if wrong == "rope on values":
            v = rotate(v, a, wrong)  # wrong: rope on values
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        if wrong == "kv repeat order":
            k, v = k.repeat(1, H // KV, 1, 1), v.repeat(1, H // KV, 1, 1)  # wrong: kv repeat order
        else:
            k, v = (t.repeat_interleave(H // KV, 1) for t in (k, v))
        d = torch.arange(n)[:, None] - torch.arange(n)[None]
        see = d >= 0
        if c.window:
            see = see & (d <= c.window if wrong == "window off by one" else d < c.window)  # wrong: window off by one
        if wrong == "window forgotten" and i == 1:
            see = d >= 0  # wrong: window forgotten
        scale = HEAD**-0.5
        if wrong == "scale of width":
            scale = D**-0.5
        if c.is_gemma or wrong == "+eager":
            s = (q @ k.mT) * scale  # wrong: scale of width
            if c.is_gemma and wrong != "soft cap of scores missing":
                s = 2.0 * torch.tanh(s / 2.0)
            s = s.masked_fill(~see, float("-inf"))  # wrong: soft cap of scores missing
            o = s.softmax(-1) @ v  # wrong: soft cap of scores missing
        else:
            o = F.scaled_dot_product_attention(
                q, k, v, attn_mask=see, scale=scale
            )  # wrong: scale of width, rope not on keys, window off by one, window forgotten, kv repeat order
        return o.transpose(1, 2).reshape(b, n, -1) @ w[f"{i}.o"].T


# ---------------------------------------------------------------- B again: token by token, with a cache


class Cached(Port):
    """The same numbers, computed in a prefill and single steps."""

    def __call__(self, tok: torch.Tensor) -> torch.Tensor:
        self.keys: list = [None] * LAYERS
        out = []
        first = N - 3
        for start, end in [(0, first), *((t, t + 1) for t in range(first, N))]:
            at = start - 1 if self.wrong == "cache position" and start else start
            x = self.w["embed"][tok[:, start:end]]
            a = angles(end - start, "", at)  # wrong: cache position
            for i in range(LAYERS):
                x = self.block(x, i, a)
            out.append(self.norm(x, self.w["norm"]) @ self.w["head"].T)
        return torch.cat(out, 1)

    def attend(self, y: torch.Tensor, i: int, a: torch.Tensor) -> torch.Tensor:
        w, (b, n, _) = self.w, y.shape
        q = rotate((y @ w[f"{i}.q"].T).view(b, n, H, HEAD), a, "").transpose(1, 2)  # wrong: cache position
        k = rotate((y @ w[f"{i}.k"].T).view(b, n, KV, HEAD), a, "").transpose(1, 2)  # wrong: cache position
        v = (y @ w[f"{i}.v"].T).view(b, n, KV, HEAD).transpose(1, 2)
        if self.keys[i] is not None:
            if self.wrong == "cache in reverse" and i == 0:
                k, v = torch.cat([self.keys[i][0], k], 2), torch.cat([v, self.keys[i][1]], 2)  # wrong: cache in reverse
            else:
                k, v = torch.cat([self.keys[i][0], k], 2), torch.cat([self.keys[i][1], v], 2)
        self.keys[i] = (k, v)
        see = torch.ones(k.shape[2], k.shape[2], dtype=torch.bool).tril()[-n:]
        k, v = (t.repeat_interleave(H // KV, 1) for t in (k, v))
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=see)  # wrong: cache in reverse
        return o.transpose(1, 2).reshape(b, n, -1) @ w[f"{i}.o"].T


PARAMETERS = {"one weight not loaded": "v", "gate and up exchanged": "gate", "expert transposed": "down2"}
