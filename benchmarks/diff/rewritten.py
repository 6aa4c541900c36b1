"""Programs that are equal though nothing in them is: attention in blocks, folded norms, ranks, scans, flat parameters."""

import torch
import torch.nn.functional as F
from generators import noise
from serving import Qwen, ids, seeded
from torch import nn


def attention_inputs(dtype):
    return [noise(i, 2, 4, 24, 16).to(dtype) for i in (301, 302, 303)]


def eager(dtype):
    q, k, v = attention_inputs(dtype)
    out = seeded(300, nn.Linear(64, 64)).to(dtype)

    def run():
        s = q @ k.mT / 4.0
        s = s.masked_fill(torch.ones(24, 24, dtype=torch.bool).triu(1), float("-inf"))
        return out((s.softmax(-1) @ v).transpose(1, 2).flatten(2))

    return run


def other_attention(how, dtype):
    q, k, v = attention_inputs(dtype)
    out = seeded(300, nn.Linear(64, 64)).to(dtype)

    def online():
        """Blocks of keys with a running maximum, as flash attention does."""
        o = torch.zeros_like(q)
        m = torch.full(q.shape[:-1], -1e30, dtype=q.dtype)
        z = torch.zeros_like(m)
        for start in range(0, 24, 8):
            s = torch.einsum("bhqd,bhkd->bhqk", q, k[:, :, start : start + 8]) * 0.25
            s = s + torch.where(torch.arange(24)[:, None] >= torch.arange(start, start + 8), 0.0, -1e30)
            new = torch.maximum(m, s.amax(-1))
            p = torch.exp(s - new[..., None]) * (s > -1e29)
            by = torch.exp(m - new)
            o, z, m = o * by[..., None] + p.to(v.dtype) @ v[:, :, start : start + 8], z * by + p.sum(-1), new
        return (o / z[..., None]).to(q.dtype).permute(0, 2, 1, 3).reshape(2, 24, 64)

    def rows():
        """One query at a time, as a decoder with a cache does."""
        done = []
        for i in range(24):
            s = (q[:, :, i : i + 1] * 0.25) @ k[:, :, : i + 1].mT
            done.append(torch.softmax(s, -1) @ v[:, :, : i + 1])
        return torch.cat(done, 2).transpose(1, 2).reshape(2, 24, 64)

    def heads():
        """One head at a time, and the output projection summed over heads."""
        mask = torch.ones(24, 24).tril().log()
        parts = []
        for h in range(4):
            s = torch.baddbmm(mask.to(q.dtype), q[:, h], k[:, h].mT, alpha=0.25)
            parts.append(s.softmax(-1).bmm(v[:, h]))
        return torch.stack(parts, 2).flatten(2)

    def run():
        if how == "+sum over heads":
            w = out.weight.view(64, 4, 16)
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return torch.einsum("bhnd,ohd->bno", o, w) + out.bias
        return F.linear(
            {"+blocks of keys": online, "+one query at a time": rows, "+one head at a time": heads}[how](),
            out.weight,
            out.bias,
        )

    return run


# ---------------------------------------------------------------- whole models in another form


def qwen(dtype):
    model, x = Qwen().to(dtype), ids(1, 60, 2, 11)
    return lambda: model(x)


def other_qwen(how, dtype):
    model, x = Qwen().to(dtype), ids(1, 60, 2, 11)
    if how == "+batch in two":
        return lambda: torch.cat([model(x[:1]), model(x[1:])])
    if how == "+batch turned":
        return lambda: model(x.flip(0)).flip(0)
    if how == "+in double":
        model = model.double()
        return lambda: model(x)
    if how == "+norms folded":
        with torch.no_grad():
            for layer in model.layers:
                for name in ("q_proj", "k_proj", "v_proj"):
                    getattr(layer.self_attn, name).weight.mul_(layer.input_layernorm.weight)
                layer.input_layernorm.weight.fill_(1.0)
                for each in (layer.gate_proj, layer.up_proj):
                    each.weight.mul_(layer.post_attention_layernorm.weight)
                layer.post_attention_layernorm.weight.fill_(1.0)
        return lambda: model(x)
    if how == "+interleaved rope":
        order = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])
        with torch.no_grad():
            for layer in model.layers:
                a = layer.self_attn
                a.q_proj.weight.copy_(a.q_proj.weight.view(6, 8, 48)[:, order].reshape(48, 48))
                a.k_proj.weight.copy_(a.k_proj.weight.view(2, 8, 48)[:, order].reshape(16, 48))
                a.q_norm.weight.copy_(a.q_norm.weight[order])
                a.k_norm.weight.copy_(a.k_norm.weight[order])
        return lambda: interleaved(model, x)
    if how == "+heads permuted":
        order = torch.tensor([3, 4, 5, 0, 1, 2])
        with torch.no_grad():
            for layer in model.layers:
                a = layer.self_attn
                a.q_proj.weight.copy_(a.q_proj.weight.view(6, 8, 48)[order].reshape(48, 48))
                for each in (a.k_proj, a.v_proj):
                    each.weight.copy_(each.weight.view(2, 8, 48).flip(0).reshape(16, 48))
                a.o_proj.weight.copy_(a.o_proj.weight.view(48, 6, 8)[:, order].reshape(48, 48))
        return lambda: model(x)
    if how == "+checkpointed":
        from torch.utils.checkpoint import checkpoint

        def run():
            h = model.embed_tokens(x)
            angle = torch.outer(torch.arange(11).float(), 10000 ** -(torch.arange(0, 8, 2).float() / 8)).repeat(1, 2)
            mask = torch.zeros(11, 11).masked_fill(torch.arange(11)[:, None] < torch.arange(11), -1e30).to(h.dtype)
            for layer in model.layers:
                h = checkpoint(layer, h, angle.cos().to(h.dtype), angle.sin().to(h.dtype), mask, use_reentrant=False)
            return model.lm_head(model.norm(h))

        return run
    if how == "+padded on the right":
        longer = torch.cat([x, ids(4, 60, 2, 5)], 1)
        return lambda: model(longer)[:, :11]
    raise AssertionError(how)


def interleaved(model, tokens):
    x = model.embed_tokens(tokens)
    angle = torch.outer(torch.arange(11.0), 10000.0 ** (-torch.arange(4) / 4))
    spin = torch.polar(torch.ones_like(angle), angle)[:, None]

    def rope(t):
        return torch.view_as_real(torch.view_as_complex(t.float().unflatten(-1, (4, 2))) * spin).flatten(-2).to(t.dtype)

    for layer in model.layers:
        a = layer.self_attn
        y = layer.input_layernorm(x)
        q, k = rope(a.q_norm(a.q_proj(y).unflatten(-1, (6, 8)))), rope(a.k_norm(a.k_proj(y).unflatten(-1, (2, 8))))
        v = a.v_proj(y).unflatten(-1, (2, 8))
        o = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True
        )
        x = x + a.o_proj(o.transpose(1, 2).flatten(2))
        y = layer.post_attention_layernorm(x)
        x = x + layer.down_proj(F.silu(layer.gate_proj(y)) * layer.up_proj(y))
    return model.lm_head(model.norm(x))


# ---------------------------------------------------------------- sequence models: scan, recurrence, convolution


def linear_attention(dtype):
    q, k, v = ([F.elu(each) + 1 for each in attention_inputs(dtype)[:2]]) + [attention_inputs(dtype)[2]]
    out = seeded(310, nn.Linear(64, 10)).to(dtype)

    def run():
        state = torch.zeros(2, 4, 16, 16, dtype=dtype)
        norm = torch.zeros(2, 4, 16, dtype=dtype)
        ys = []
        for t in range(24):
            state = state + k[:, :, t, :, None] * v[:, :, t, None]
            norm = norm + k[:, :, t]
            top = torch.einsum("bhd,bhde->bhe", q[:, :, t], state)
            ys.append(top / (q[:, :, t] * norm).sum(-1, keepdim=True))
        return out(torch.stack(ys, 1).flatten(2))

    return run


def linear_attention_b(how, dtype):
    q, k, v = ([F.elu(each) + 1 for each in attention_inputs(dtype)[:2]]) + [attention_inputs(dtype)[2]]
    out = seeded(310, nn.Linear(64, 10)).to(dtype)

    def run():
        if how == "+all at once":
            s = (q @ k.mT).tril()
            y = s @ v / s.sum(-1, keepdim=True)
        else:
            states = torch.einsum("bhnd,bhne->bhnde", k, v).cumsum(2)
            y = torch.einsum("bhnd,bhnde->bhne", q, states) / torch.einsum("bhnd,bhnd->bhn", q, k.cumsum(2))[..., None]
        return F.linear(y.transpose(1, 2).reshape(2, 24, 64), out.weight, out.bias)

    return run


def conv(dtype):
    net = seeded(
        320,
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, 2, 1, groups=4),
            nn.GELU(),
            nn.ConvTranspose2d(8, 4, 2, 2),
            nn.Flatten(),
            nn.Linear(256, 5),
        ),
    )
    net[1].running_mean.normal_(0, 0.3)
    net[1].running_var.uniform_(0.5, 2)
    net = net.to(dtype)
    x = noise(321, 2, 3, 8, 8).to(dtype)
    return lambda: net(x)


def conv_b(how, dtype):
    net = seeded(
        320,
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, 2, 1, groups=4),
            nn.GELU(),
            nn.ConvTranspose2d(8, 4, 2, 2),
            nn.Flatten(),
            nn.Linear(256, 5),
        ),
    )
    net[1].running_mean.normal_(0, 0.3)
    net[1].running_var.uniform_(0.5, 2)
    net = net.to(dtype)
    x = noise(321, 2, 3, 8, 8).to(dtype)
    if how == "+channels last":
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
        return lambda: net(x)
    if how == "+one picture at a time":
        return lambda: torch.cat([net(each[None]) for each in x])

    def run():
        c, n, _, g, _, t, _, l = net
        by = n.weight / (n.running_var + n.eps).sqrt()
        h = F.unfold(x, 3, padding=1).transpose(1, 2) @ (c.weight * by[:, None, None, None]).flatten(1).T
        h = (h + (c.bias - n.running_mean) * by + n.bias).clamp(min=0).transpose(1, 2).reshape(2, 8, 8, 8)
        h = torch.cat(
            [
                F.conv2d(p, w, b, 2, 1)
                for p, w, b in zip(h.chunk(4, 1), g.weight.chunk(4), g.bias.chunk(4), strict=False)
            ],
            1,
        )
        h = F.gelu(h)
        h = torch.einsum("bihw,iopq->bohpwq", h, t.weight).reshape(2, 4, 8, 8) + t.bias[:, None, None]
        return h.reshape(2, -1) @ l.weight.T + l.bias

    return run


# ---------------------------------------------------------------- experts, adapters, tensor parallel, varlen


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 6, bias=False)
        self.up = nn.Parameter(torch.zeros(6, 16, 24))
        self.down = nn.Parameter(torch.zeros(6, 24, 16))
        self.out = nn.Linear(16, 7)
        seeded(330, self)

    def forward(self, x):
        p = self.gate(x).softmax(-1)
        w, i = p.topk(2)
        w = w / w.sum(-1, keepdim=True)
        y = torch.zeros_like(x)
        for e in range(6):
            for slot in range(2):
                rows = (i[:, slot] == e).nonzero().squeeze(-1)
                y[rows] += w[rows, slot, None] * (F.relu(x[rows] @ self.up[e]) @ self.down[e])
        return self.out(y)


def experts(dtype):
    m, x = Experts().to(dtype), noise(331, 20, 16).to(dtype)
    return lambda: m(x)


def experts_b(how, dtype):
    m, x = Experts().to(dtype), noise(331, 20, 16).to(dtype)

    def run():
        logits = x @ m.gate.weight.T
        top, i = logits.topk(2, -1)
        w = top.softmax(-1)
        if how == "+sorted by expert":
            flat = i.flatten()
            order = flat.argsort(stable=True)
            source = order // 2
            counts = flat.bincount(minlength=6).tolist()
            chunks = [F.relu(part @ u) @ d for part, u, d in zip(x[source].split(counts), m.up, m.down, strict=False)]
            y = torch.zeros_like(x).index_add(0, source, torch.cat(chunks) * w.flatten()[order, None])
        else:
            y = torch.einsum("tkh,tkho->tko", F.relu(torch.einsum("td,tkdh->tkh", x, m.up[i])), m.down[i])
            y = (y * w[..., None]).sum(1)
        return F.linear(y, m.out.weight, m.out.bias)

    return run


def mlp(dtype):
    m = seeded(340, nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.Linear(16, 30)))
    m, x = m.to(dtype), noise(341, 12, 16).to(dtype)
    y = ids(342, 30, 12)
    return lambda: (m(x), F.cross_entropy(m(x), y))[1]


def mlp_b(how, dtype):
    m = seeded(340, nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.Linear(16, 30)))
    m, x = m.to(dtype), noise(341, 12, 16).to(dtype)
    y = ids(342, 30, 12)

    def run():
        n, u, _, d, o = m
        if how == "+cut into ranks":
            h = (x - x.mean(-1, keepdim=True)) / (
                x.var(-1, keepdim=True, correction=0) + 1e-5
            ).sqrt() * n.weight + n.bias
            ranks = [
                F.gelu(F.linear(h, uw, ub)) @ dw.T
                for uw, ub, dw in zip(u.weight.chunk(2), u.bias.chunk(2), d.weight.chunk(2, 1), strict=False)
            ]
            h = ranks[0] + ranks[1] + d.bias
            parts = [F.linear(h, w, b) for w, b in zip(o.weight.split(15), o.bias.split(15), strict=False)]
            top = torch.stack([p.amax(-1) for p in parts]).amax(0)
            total = sum(torch.exp(p - top[:, None]).sum(-1) for p in parts)
            inside = [((y >= s) & (y < s + 15)) for s in (0, 15)]
            mine = sum(
                (p.gather(1, (y - s).clamp(0, 14)[:, None])[:, 0] - top) * ok
                for p, s, ok in zip(parts, (0, 15), inside, strict=False)
            )
            return (total.log() - mine).mean()
        if how == "+low rank added":
            a, b = noise(343, 4, 16).to(dtype), noise(344, 30, 4).to(dtype)
            w = o.weight - (b @ a)
            h = d(F.gelu(u(F.layer_norm(x, (16,), n.weight, n.bias))))
            return F.cross_entropy(F.linear(h, w, o.bias) + (h @ a.T) @ b.T, y)
        if how == "+jacobian form":
            from torch.func import functional_call, vmap

            z = vmap(lambda one: functional_call(m, dict(m.named_parameters()), (one,)))(x)
            return -(F.one_hot(y, 30) * (z - z.logsumexp(-1, keepdim=True))).sum() / 12
        raise AssertionError(how)

    return run


# ---------------------------------------------------------------- training that is the same


def train(dtype):
    def run():
        m = seeded(350, nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)))
        opt = torch.optim.Adam(m.parameters(), 0.01)
        for s in range(3):
            opt.zero_grad()
            F.mse_loss(m(noise(360 + s, 12, 8)), noise(370 + s, 12, 3)).backward()
            opt.step()
        return [p.detach() for p in m.parameters()]

    return run


def train_b(how, dtype):
    def run():
        m = seeded(350, nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)))
        if how == "+flat parameters":
            ps = list(m.parameters())
            flat = nn.Parameter(torch.cat([p.detach().flatten() for p in ps]))
            shapes = [p.shape for p in ps]
            opt = torch.optim.Adam([flat], 0.01)
            for s in range(3):
                w1, b1, w2, b2 = (
                    part.view(shape) for part, shape in zip(flat.split([p.numel() for p in ps]), shapes, strict=False)
                )
                z = F.linear(torch.tanh(F.linear(noise(360 + s, 12, 8), w1, b1)), w2, b2)
                opt.zero_grad()
                F.mse_loss(z, noise(370 + s, 12, 3)).backward()
                opt.step()
            return [part.detach() for part in flat.split([p.numel() for p in ps])]
        if how == "+two ranks averaged":
            import copy

            other = copy.deepcopy(m)
            opts = [torch.optim.Adam(each.parameters(), 0.01) for each in (m, other)]
            for s in range(3):
                x, y = noise(360 + s, 12, 8), noise(370 + s, 12, 3)
                for each, half in ((m, slice(0, 6)), (other, slice(6, 12))):
                    each.zero_grad()
                    F.mse_loss(each(x[half]), y[half]).backward()
                for p, q in zip(m.parameters(), other.parameters(), strict=False):
                    mean = (p.grad + q.grad) / 2
                    p.grad.copy_(mean)
                    q.grad.copy_(mean)
                for opt in opts:
                    opt.step()
            return [p.detach() for p in m.parameters()]
        if how == "+gradients by functions":
            from torch.func import functional_call, grad

            ps = {k: v.detach().clone() for k, v in m.named_parameters()}
            opt = torch.optim.Adam(ps.values(), 0.01, foreach=False)
            for s in range(3):
                g = grad(
                    lambda w, s=s: (
                        (functional_call(m, w, (noise(360 + s, 12, 8),)) - noise(370 + s, 12, 3)).pow(2).mean()
                    )
                )(ps)
                for k, v in ps.items():
                    v.grad = g[k]
                opt.step()
            return list(ps.values())
        raise AssertionError(how)

    return run


B = (torch.float32, torch.bfloat16)
ONE = (torch.float32,)
FAMILIES = {
    "attention": (
        eager,
        other_attention,
        ["+blocks of keys", "+one query at a time", "+one head at a time", "+sum over heads"],
        B,
    ),
    "whole": (
        qwen,
        other_qwen,
        [
            "+batch in two",
            "+batch turned",
            "+in double",
            "+norms folded",
            "+interleaved rope",
            "+heads permuted",
            "+checkpointed",
            "+padded on the right",
        ],
        ONE,
    ),
    "linear attention": (linear_attention, linear_attention_b, ["+all at once", "+scan"], ONE),
    "conv": (conv, conv_b, ["+channels last", "+one picture at a time", "+unfolded"], B),
    "experts": (experts, experts_b, ["+sorted by expert", "+gathered weights"], ONE),
    "mlp": (mlp, mlp_b, ["+cut into ranks", "+low rank added", "+jacobian form"], ONE),
    "train": (train, train_b, ["+flat parameters", "+two ranks averaged", "+gradients by functions"], ONE),
}
PARAMETERS = {}
