"""T5 with its relative positions, and a recurrent network: modules against functions."""

import math

import torch
import torch.nn.functional as F
from torch import nn

D, HEADS, KEY, FF, LAYERS, VOCAB, BUCKETS, FAR = 32, 4, 8, 40, 2, 59, 8, 12


def pairs_of_tokens() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(11)
    return torch.randint(0, VOCAB, (2, 14)), torch.randint(0, VOCAB, (2, 9))


class T5Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.2 * torch.randn(D))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)  # wrong: encoder norm missing
        x = x * torch.rsqrt(variance + 1e-6)
        return self.weight * x.to(self.weight.dtype)


class T5Attention(nn.Module):
    def __init__(self, has_bias: bool, bidirectional: bool) -> None:
        super().__init__()
        inner = HEADS * KEY
        self.bidirectional = bidirectional
        self.q, self.k = nn.Linear(D, inner, bias=False), nn.Linear(D, inner, bias=False)
        self.v, self.o = nn.Linear(D, inner, bias=False), nn.Linear(inner, D, bias=False)
        if has_bias:
            self.relative_attention_bias = nn.Embedding(BUCKETS, HEADS)

    def bucket(self, relative: torch.Tensor) -> torch.Tensor:
        buckets, number = 0, BUCKETS
        if self.bidirectional:
            number //= 2
            buckets = (relative > 0).to(torch.long) * number
            relative = torch.abs(relative)
        else:
            relative = -torch.min(relative, torch.zeros_like(relative))
        exact = number // 2
        large = torch.log(relative.float() / exact) / math.log(FAR / exact) * (number - exact)
        large = exact + large.to(torch.long)
        large = torch.min(large, torch.full_like(large, number - 1))
        return buckets + torch.where(relative < exact, relative, large)

    def compute_bias(self, queries: int, keys: int) -> torch.Tensor:
        context = torch.arange(queries, dtype=torch.long)[:, None]
        memory = torch.arange(keys, dtype=torch.long)[None, :]
        values = self.relative_attention_bias(self.bucket(memory - context))
        return values.permute([2, 0, 1]).unsqueeze(0)

    def forward(self, x: torch.Tensor, states: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
        b, n = x.shape[:2]
        source = x if states is None else states
        q = self.q(x).view(b, n, HEADS, KEY).transpose(1, 2)
        k = self.k(source).view(b, -1, HEADS, KEY).transpose(1, 2)
        v = self.v(source).view(b, -1, HEADS, KEY).transpose(1, 2)
        scores = torch.matmul(q, k.transpose(3, 2))
        if bias is not None:
            scores += bias
        weights = F.softmax(scores.float(), dim=-1).type_as(scores)
        return self.o(torch.matmul(weights, v).transpose(1, 2).contiguous().view(b, n, -1))


class T5Block(nn.Module):
    def __init__(self, first: bool, decoder: bool) -> None:
        super().__init__()
        self.norm1, self.attn = T5Norm(), T5Attention(first, not decoder)
        self.is_decoder = decoder
        if decoder:
            self.norm_cross, self.cross = T5Norm(), T5Attention(False, True)
        self.norm2 = T5Norm()
        self.wi_0, self.wi_1 = nn.Linear(D, FF, bias=False), nn.Linear(D, FF, bias=False)
        self.wo = nn.Linear(FF, D, bias=False)

    def forward(self, x: torch.Tensor, bias: torch.Tensor, states: torch.Tensor | None = None) -> torch.Tensor:
        x = x + self.attn(self.norm1(x), None, bias)
        if self.is_decoder:
            x = x + self.cross(self.norm_cross(x), states, None)
        h = self.norm2(x)
        return x + self.wo(F.gelu(self.wi_0(h), approximate="tanh") * self.wi_1(h))


class T5(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(12)
        self.shared = nn.Embedding(VOCAB, D)
        self.encoder = nn.ModuleList([T5Block(i == 0, False) for i in range(LAYERS)])
        self.decoder = nn.ModuleList([T5Block(i == 0, True) for i in range(LAYERS)])
        self.encoder_norm, self.decoder_norm = T5Norm(), T5Norm()

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x = self.shared(source)
        bias = self.encoder[0].attn.compute_bias(source.shape[1], source.shape[1])
        for block in self.encoder:
            x = block(x, bias)
        states = self.encoder_norm(x)
        y = self.shared(target)
        n = target.shape[1]
        bias = self.decoder[0].attn.compute_bias(n, n)
        causal = torch.tril(torch.ones(n, n))[None, None]
        bias = bias + (1.0 - causal) * torch.finfo(bias.dtype).min
        for block in self.decoder:
            y = block(y, bias, states)
        y = self.decoder_norm(y) * (D**-0.5)
        return F.linear(y, self.shared.weight)


class T5Port:
    def __init__(self, wrong: str, dtype: torch.dtype = torch.float32) -> None:
        self.wrong = wrong
        self.w = {name: value.detach().clone().to(dtype) for name, value in T5().state_dict().items()}

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x / (x.float().square().mean(-1, keepdim=True) + 1e-6).sqrt().to(x.dtype) * self.w[f"{name}.weight"]

    def bias(self, n: int, name: str, both: bool) -> torch.Tensor:
        if self.wrong == "relative position turned":
            r = torch.arange(n)[:, None] - torch.arange(n)  # wrong: relative position turned
        else:
            r = torch.arange(n) - torch.arange(n)[:, None]
        if self.wrong == "decoder counts both ways":
            both = True
        count = BUCKETS // 2 if both else BUCKETS
        side = (r > 0).long() * count if both else torch.zeros_like(r)
        r = r.abs() if both else (-r).clamp(min=0)  # wrong: relative position turned, decoder counts both ways
        e = count // 2
        far = 20 if self.wrong == "longest distance" else FAR
        big = e + (torch.log(r.float() / e) / math.log(far / e) * (count - e)).long().clamp(
            max=count - 1 - e
        )  # wrong: longest distance
        index = side + torch.where(
            r < e, r, big
        )  # wrong: longest distance, relative position turned, decoder counts both ways
        return self.w[f"{name}.attn.relative_attention_bias.weight"][index].permute(
            2, 0, 1
        )  # wrong: relative position turned, decoder counts both ways, longest distance

    def attend(self, x: torch.Tensor, y: torch.Tensor, at: str, bias: torch.Tensor | None) -> torch.Tensor:
        w, wrong = self.w, self.wrong
        q, k, v = (
            F.linear(t, w[f"{at}.{name}.weight"])
            .unflatten(-1, (HEADS, KEY))
            .transpose(1, 2)  # wrong: cross attends to itself
            for t, name in ((x, "q"), (y, "k"), (y, "v"))
        )
        if wrong == "+eager":
            s = q @ k.mT if bias is None else q @ k.mT + bias
            o = s.softmax(-1) @ v
        else:
            scale = KEY**-0.5 if wrong == "scores scaled" else 1.0
            o = F.scaled_dot_product_attention(
                q, k, v, attn_mask=bias, scale=scale
            )  # wrong: scores scaled, bias in the first layer only, bias in cross attention
        return F.linear(o.transpose(1, 2).flatten(2), w[f"{at}.o.weight"])

    def feed(self, x: torch.Tensor, at: str) -> torch.Tensor:
        w, wrong = self.w, self.wrong
        h = self.norm(x, f"{at}.norm2")
        a = F.linear(h, w[f"{at}.wi_0.weight"])
        if wrong == "relu":
            a = F.relu(a)  # wrong: relu
        else:
            a = F.gelu(a, approximate="tanh")
        if wrong == "gate missing" and at == "decoder.1":
            return F.linear(a, w[f"{at}.wo.weight"])  # wrong: gate missing
        return F.linear(a * F.linear(h, w[f"{at}.wi_1.weight"]), w[f"{at}.wo.weight"])  # wrong: gate missing, relu

    def __call__(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        w, wrong = self.w, self.wrong
        x = F.embedding(source, w["shared.weight"])
        b = self.bias(source.shape[1], "encoder.0", True)
        for i in range(LAYERS):
            one = None if wrong == "bias in the first layer only" and i else b
            h = self.norm(x, f"encoder.{i}.norm1")
            x = x + self.attend(h, h, f"encoder.{i}.attn", one)
            x = x + self.feed(x, f"encoder.{i}")
        s = x if wrong == "encoder norm missing" else self.norm(x, "encoder_norm")
        y = F.embedding(target, w["shared.weight"])
        n = target.shape[1]
        b = self.bias(n, "decoder.0", False).masked_fill(torch.ones(n, n).triu(1).bool(), float("-inf"))
        for i in range(LAYERS):
            h = self.norm(y, f"decoder.{i}.norm1")
            y = y + self.attend(h, h, f"decoder.{i}.attn", b)
            h = self.norm(y, f"decoder.{i}.norm_cross")
            keys = h if wrong == "cross attends to itself" else s
            y = y + self.attend(h, keys, f"decoder.{i}.cross", None)  # wrong: encoder norm missing
            y = y + self.feed(y, f"decoder.{i}")
        y = self.norm(y, "decoder_norm")
        if wrong != "output not scaled":
            y = y / math.sqrt(D)
        return y @ w["shared.weight"].T  # wrong: output not scaled


# ---------------------------------------------------------------- recurrent

INNER, STEPS, CLASSES = 20, 6, 7


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(13)
        self.embed = nn.Embedding(VOCAB, D)
        self.lstm = nn.LSTM(D, INNER, num_layers=2, batch_first=True)
        self.out = nn.Linear(INNER, CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        h, _ = self.lstm(self.embed(ids))
        return self.out(h)


class CellTagger(nn.Module):
    """The same with cells, so that each step can be compared."""

    def __init__(self) -> None:
        super().__init__()
        made = Tagger()
        self.embed, self.out = made.embed, made.out
        self.cells = nn.ModuleList([nn.LSTMCell(D, INNER), nn.LSTMCell(INNER, INNER)])
        for number, cell in enumerate(self.cells):
            for name, value in cell.named_parameters():
                value.data = getattr(made.lstm, f"{name}_l{number}").data

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        state = [(torch.zeros(len(ids), INNER, dtype=x.dtype),) * 2 for _ in self.cells]
        outputs = []
        for step in range(ids.shape[1]):
            h = x[:, step]
            for number, cell in enumerate(self.cells):
                state[number] = cell(h, state[number])
                h = state[number][0]
            outputs.append(h)
        return self.out(torch.stack(outputs, dim=1))


class TaggerPort:
    def __init__(self, wrong: str, dtype: torch.dtype = torch.float32) -> None:
        self.wrong = wrong
        self.w = {name: value.detach().clone().to(dtype) for name, value in Tagger().state_dict().items()}
        if wrong == "second bias not loaded":
            self.w["lstm.bias_hh_l1"].zero_()

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        w, wrong = self.w, self.wrong
        seq = w["embed.weight"][ids].transpose(0, 1)
        for layer in range(2):
            h = c = torch.zeros(ids.shape[0], INNER, dtype=seq.dtype)
            out = []
            for x in seq.flip(0) if wrong == "read backwards" and layer else seq:
                g = x @ w[f"lstm.weight_ih_l{layer}"].T + h @ w[f"lstm.weight_hh_l{layer}"].T
                g = g + w[f"lstm.bias_ih_l{layer}"] + w[f"lstm.bias_hh_l{layer}"]  # wrong: second bias not loaded
                i, f, z, o = g.chunk(4, 1)
                if wrong == "gate order":
                    i, f, o, z = g.chunk(4, 1)
                if wrong == "forget bias":
                    f = f + 1.0  # wrong: forget bias
                z = (
                    torch.sigmoid(z) if wrong == "sigmoid for tanh" else torch.tanh(z)
                )  # wrong: sigmoid for tanh, gate order
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * z  # wrong: forget bias, sigmoid for tanh, gate order
                if wrong == "tanh of the cell missing":
                    h = torch.sigmoid(o) * c  # wrong: tanh of the cell missing
                else:
                    h = torch.sigmoid(o) * torch.tanh(c)  # wrong: gate order
                out.append(h)
            seq = torch.stack(out)  # wrong: read backwards
        return F.linear(seq.transpose(0, 1), w["out.weight"], w["out.bias"])


def sentence() -> torch.Tensor:
    torch.manual_seed(14)
    return torch.randint(0, VOCAB, (3, STEPS))


TAGGER_PARAMETERS = {"second bias not loaded": "bias_hh"}
