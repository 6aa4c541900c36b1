"""GPT-2 as its authors' port has it (modules, fused projections, eager attention) against functions over a dict."""

import math

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, LAYERS, VOCAB, LENGTH = 32, 4, 3, 61, 10


def weights() -> dict[str, torch.Tensor]:
    """The checkpoint that both sides load."""
    torch.manual_seed(1)
    made = {"wte": torch.randn(VOCAB, WIDTH) * 0.5, "wpe": torch.randn(LENGTH + 4, WIDTH) * 0.2}
    for layer in range(LAYERS):
        for name, rows, columns in (("qkv", WIDTH, 3 * WIDTH), ("proj", WIDTH, WIDTH), ("fc", WIDTH, 4 * WIDTH),
                                    ("down", 4 * WIDTH, WIDTH)):  # fmt: skip
            made[f"{layer}.{name}.w"] = torch.randn(rows, columns) / math.sqrt(rows)
            made[f"{layer}.{name}.b"] = torch.randn(columns) * 0.1
        for name in ("ln1", "ln2"):
            made[f"{layer}.{name}.w"] = 1 + 0.2 * torch.randn(WIDTH)
            made[f"{layer}.{name}.b"] = 0.1 * torch.randn(WIDTH)
    made["ln_f.w"] = 1 + 0.2 * torch.randn(WIDTH)
    made["ln_f.b"] = 0.1 * torch.randn(WIDTH)
    return made


def tokens() -> torch.Tensor:
    torch.manual_seed(2)
    return torch.randint(0, VOCAB, (2, LENGTH))


class Conv1D(nn.Module):
    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size_out = (*x.shape[:-1], self.weight.shape[1])
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(size_out)


class NewGELU(nn.Module):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        inner = math.sqrt(2.0 / math.pi) * (input + 0.044715 * torch.pow(input, 3.0))
        return 0.5 * input * (1.0 + torch.tanh(inner))


class Attention(nn.Module):
    def __init__(self, made: dict[str, torch.Tensor], layer: int) -> None:
        super().__init__()
        self.c_attn = Conv1D(made[f"{layer}.qkv.w"], made[f"{layer}.qkv.b"])
        self.c_proj = Conv1D(made[f"{layer}.proj.w"], made[f"{layer}.proj.b"])
        self.register_buffer("bias", torch.tril(torch.ones(LENGTH, LENGTH, dtype=torch.bool))[None, None])

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        query, key, value = self.c_attn(hidden).split(WIDTH, dim=2)
        shape = (*hidden.shape[:2], HEADS, -1)
        query, key, value = (each.view(shape).transpose(1, 2) for each in (query, key, value))
        weights = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(WIDTH // HEADS)
        length = hidden.shape[1]
        lowest = torch.finfo(weights.dtype).min
        weights = torch.where(self.bias[:, :, :length, :length], weights, torch.full([], lowest, dtype=weights.dtype))
        weights = F.softmax(weights, dim=-1)
        return self.c_proj(torch.matmul(weights, value).transpose(1, 2).reshape(hidden.shape))


class MLP(nn.Module):
    def __init__(self, made: dict[str, torch.Tensor], layer: int) -> None:
        super().__init__()
        self.c_fc = Conv1D(made[f"{layer}.fc.w"], made[f"{layer}.fc.b"])
        self.act = NewGELU()
        self.c_proj = Conv1D(made[f"{layer}.down.w"], made[f"{layer}.down.b"])

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.c_proj(self.act(self.c_fc(hidden)))


def layer_norm(made: dict[str, torch.Tensor], name: str) -> nn.LayerNorm:
    norm = nn.LayerNorm(WIDTH, eps=1e-5)
    norm.load_state_dict({"weight": made[f"{name}.w"], "bias": made[f"{name}.b"]})
    return norm


class Block(nn.Module):
    def __init__(self, made: dict[str, torch.Tensor], layer: int) -> None:
        super().__init__()
        self.ln_1 = layer_norm(made, f"{layer}.ln1")
        self.attn = Attention(made, layer)
        self.ln_2 = layer_norm(made, f"{layer}.ln2")
        self.mlp = MLP(made, layer)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        residual = hidden
        hidden = self.attn(self.ln_1(hidden)) + residual  # wrong: residual missing
        residual = hidden
        return residual + self.mlp(self.ln_2(hidden))


class GPT2(nn.Module):
    """Side A."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        made = weights()
        self.wte = nn.Embedding.from_pretrained(made["wte"], freeze=False)
        self.wpe = nn.Embedding.from_pretrained(made["wpe"], freeze=False)
        self.h = nn.ModuleList([Block(made, layer) for layer in range(LAYERS)])
        self.ln_f = layer_norm(made, "ln_f")
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.lm_head.weight = self.wte.weight
        self.to(dtype)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        position = torch.arange(0, ids.shape[-1], dtype=torch.long).unsqueeze(0)
        hidden = self.wte(ids) + self.wpe(position)
        for block in self.h:
            hidden = block(hidden)
        return self.lm_head(self.ln_f(hidden))


class Port:
    """Side B: no modules; each switch in ``wrong`` is one mistake, or (``+name``) one harmless way to write it."""

    def __init__(self, wrong: str = "", dtype: torch.dtype = torch.float32) -> None:
        self.wrong = wrong
        made = weights()
        w = {}
        for name, value in made.items():
            is_matrix = name.endswith((".qkv.w", ".proj.w", ".fc.w", ".down.w"))
            w[name] = value.t().contiguous() if is_matrix else value.clone()
        if wrong == "transposed weight":
            w["1.proj.w"] = w["1.proj.w"].t().contiguous()
        if wrong == "missing bias":
            w["2.fc.b"] = torch.zeros_like(w["2.fc.b"])
        if wrong == "weights of another layer":
            w["2.ln2.w"] = w["1.ln2.w"].clone()
        if wrong == "one number":
            w["1.down.w"][3, 5] += 0.3
        self.head = w["wte"].clone()
        if wrong == "untied head":
            torch.manual_seed(9)
            self.head = torch.randn(VOCAB, WIDTH) * 0.5
        self.w = {name: value.to(dtype) for name, value in w.items()}
        self.head = self.head.to(dtype)
        self.training = wrong == "dropout left on"

    def __call__(self, tok: torch.Tensor) -> torch.Tensor:
        w, wrong = self.w, self.wrong
        n = tok.size(1)
        pos = torch.arange(n)
        if wrong == "position off by one":
            pos = torch.arange(1, n + 1)  # wrong: position off by one
        x = F.embedding(tok, w["wte"])
        if wrong == "embedding scaled":
            x = x * math.sqrt(WIDTH)  # wrong: embedding scaled
        x = x + w["wpe"][pos]  # wrong: position off by one, embedding scaled
        if self.training:
            x = F.dropout(x, 0.1, training=True)  # wrong: dropout left on
        for i in range(LAYERS):
            x = self.layer(x, i)
        if wrong == "final norm missing":
            return x @ self.head.t()  # wrong: final norm missing
        y = F.layer_norm(x, (WIDTH,), w["ln_f.w"], w["ln_f.b"])  # wrong: final norm missing
        return y @ self.head.t()  # wrong: untied head

    def layer(self, x: torch.Tensor, i: int) -> torch.Tensor:
        w, wrong = self.w, self.wrong
        eps = 1e-3 if wrong == "eps" else 1e-5
        y = F.layer_norm(x, (WIDTH,), w[f"{i}.ln1.w"], w[f"{i}.ln1.b"], eps)  # wrong: eps, residual after norm
        a = self.attend(y, i)
        if wrong == "residual after norm" and i == 1:
            x = y + a  # wrong: residual after norm
        elif wrong == "residual missing" and i == 1:
            x = a  # wrong: residual missing
        else:
            x = x + a  # wrong: residual missing
        if wrong == "post norm" and i == 0:
            z = self.feed(x, i)  # wrong: post norm
            return F.layer_norm(x + z, (WIDTH,), w[f"{i}.ln2.w"], w[f"{i}.ln2.b"], eps)  # wrong: post norm
        y = F.layer_norm(x, (WIDTH,), w[f"{i}.ln2.w"], w[f"{i}.ln2.b"], eps)  # wrong: weights of another layer, eps
        return x + self.feed(y, i)

    def feed(self, y: torch.Tensor, i: int) -> torch.Tensor:
        w, wrong = self.w, self.wrong
        u = F.linear(y, w[f"{i}.fc.w"], w[f"{i}.fc.b"])  # wrong: missing bias, post norm
        if wrong == "gelu erf":
            u = F.gelu(u)  # wrong: gelu erf
        elif wrong == "gelu sigmoid":
            u = u * torch.sigmoid(1.702 * u)  # wrong: gelu sigmoid
        elif wrong == "gelu constant":
            u = 0.5 * u * (1 + torch.tanh(0.7978845608 * (u + 0.0447 * u**3)))  # wrong: gelu constant
        elif wrong == "relu" and i == 2:
            u = F.relu(u)  # wrong: relu
        else:
            u = F.gelu(u, approximate="tanh")
        return F.linear(u, w[f"{i}.down.w"], w[f"{i}.down.b"])  # wrong: one number

    def attend(self, y: torch.Tensor, i: int) -> torch.Tensor:
        w, wrong = self.w, self.wrong
        b, n, _ = y.shape
        if wrong == "+separate projections":
            parts = zip(w[f"{i}.qkv.w"].chunk(3), w[f"{i}.qkv.b"].chunk(3), strict=True)
            q, k, v = (F.linear(y, m, c) for m, c in parts)
        elif wrong == "split order" and i == 1:
            k, q, v = F.linear(y, w[f"{i}.qkv.w"], w[f"{i}.qkv.b"]).chunk(3, -1)  # wrong: split order
        else:
            q, k, v = F.linear(y, w[f"{i}.qkv.w"], w[f"{i}.qkv.b"]).chunk(3, -1)
        if wrong == "heads not transposed":
            q, k, v = (t.reshape(b, HEADS, n, -1) for t in (q, k, v))  # wrong: heads not transposed
        else:
            q, k, v = (t.reshape(b, n, HEADS, -1).permute(0, 2, 1, 3) for t in (q, k, v))
        if wrong in ("+sdpa", "scale doubled", "scale missing", "not causal"):
            if wrong == "scale doubled":
                q = q * (WIDTH // HEADS) ** -0.5  # wrong: scale doubled
            causal = wrong != "not causal"
            scale = 1.0 if wrong == "scale missing" else None
            o = F.scaled_dot_product_attention(
                q, k, v, is_causal=causal, scale=scale
            )  # wrong: scale doubled, scale missing, not causal
        else:
            s = torch.einsum("bhqd,bhkd->bhqk", q, k) * (WIDTH // HEADS) ** -0.5  # wrong: split order
            shift = 2 if wrong == "mask off by one" else 1
            mask = torch.ones(n, n, dtype=torch.bool).triu(shift)  # wrong: mask off by one
            if wrong == "mask inverted" and i == 0:
                mask = ~torch.ones(n, n, dtype=torch.bool).triu(1)  # wrong: mask inverted
                mask[:, 0] = False
            s = s.masked_fill(
                mask, -1e4 if wrong == "+mask of -1e4" else float("-inf")
            )  # wrong: mask off by one, mask inverted
            if wrong == "softmax over queries":
                p = s.softmax(2).nan_to_num()  # wrong: softmax over queries
            else:
                p = s.softmax(-1)  # wrong: mask off by one, mask inverted
            o = torch.einsum("bhqk,bhkd->bhqd", p, v)
        if wrong == "heads merged without transpose" and i == 0:
            o = o.reshape(b, n, WIDTH)  # wrong: heads merged without transpose
        else:
            o = o.permute(0, 2, 1, 3).flatten(2)  # wrong: heads not transposed
        return F.linear(o, w[f"{i}.proj.w"], w[f"{i}.proj.b"])  # wrong: transposed weight


def run_a(dtype: torch.dtype) -> object:
    model = GPT2(dtype).eval()
    ids = tokens()
    return lambda: model(ids)


def run_b(wrong: str, dtype: torch.dtype) -> object:
    model = Port(wrong, dtype)
    ids = tokens()
    if wrong == "+permuted batch":
        ids = ids.flip(0)
    return lambda: model(ids)


EQUAL = ["", "+permuted batch", "+sdpa", "+separate projections", "+mask of -1e4"]
PARAMETERS = {
    "transposed weight": "proj.w", "missing bias": "fc.b", "weights of another layer": "ln2.w",
    "one number": "down.w", "untied head": "head",
}  # fmt: skip
