"""Images, sound and boxes: mobile networks, a diffusion transformer, samplers, two towers, a detector, recurrence."""

import math

import torch
import torch.nn.functional as F
from serving import ids, seeded
from torch import nn


def noise(seed, *shape):
    torch.manual_seed(seed)
    return torch.randn(*shape)


# ---------------------------------------------------------------- EfficientNet-like (timm / TF ports)


class ConvBN(nn.Module):
    def __init__(self, i, o, k, stride=1, groups=1, act=True):
        super().__init__()
        self.conv = nn.Conv2d(i, o, k, stride, 0, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(o, eps=1e-3)
        self.k, self.stride, self.act = k, stride, act

    def forward(self, x):
        if self.k > 1:
            h, w = x.shape[-2:]
            ph = max((math.ceil(h / self.stride) - 1) * self.stride + self.k - h, 0)
            pw = max((math.ceil(w / self.stride) - 1) * self.stride + self.k - w, 0)
            x = F.pad(
                x, [pw // 2, pw - pw // 2, ph // 2, ph - ph // 2]
            )  # wrong: padding on both sides alike, padded after the norm
        x = self.bn(self.conv(x))
        return F.silu(x) if self.act else x


class MBConv(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.expand = ConvBN(i, 4 * i, 1)
        self.depth = ConvBN(4 * i, 4 * i, 3, stride, 4 * i)
        self.reduce = nn.Conv2d(4 * i, 4, 1)
        self.back = nn.Conv2d(4, 4 * i, 1)
        self.project = ConvBN(4 * i, o, 1, act=False)
        self.skip = stride == 1 and i == o

    def forward(self, x):
        y = self.depth(self.expand(x))
        s = y.mean((2, 3), keepdim=True)
        s = torch.sigmoid(self.back(F.silu(self.reduce(s))))  # wrong: squeeze with relu, hard gate
        y = self.project(y * s)
        return x + y if self.skip else y


class Efficient(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvBN(3, 8, 3, 2)
        self.b0 = MBConv(8, 8, 1)
        self.b1 = MBConv(8, 16, 2)
        self.b2 = MBConv(16, 16, 1)
        self.fc = nn.Linear(16, 10)
        seeded(51, self)
        for name, buffer in self.named_buffers():
            if name.endswith("mean"):
                buffer.normal_(0, 0.2)
            elif name.endswith("var"):
                buffer.uniform_(0.3, 1.5)

    def forward(self, x):
        x = self.b2(self.b1(self.b0(self.stem(x))))
        return self.fc(x.mean((2, 3)))  # wrong: largest of the picture


def efficient_port(w, x, wrong):
    def block(x, p, k=1, stride=1, groups=1, act=True):
        pad = 0
        if k > 1 and stride == 2 and wrong == "padding on both sides alike":
            pad = 1
        elif k > 1 and stride == 2:
            x = F.pad(x, (0, 1, 0, 1))
        elif k > 1:
            pad = k // 2
        weight, scale, shift = w[p + "conv.weight"], w[p + "bn.weight"], w[p + "bn.bias"]
        mean, var = w[p + "bn.running_mean"], w[p + "bn.running_var"]
        eps = 1e-5 if wrong == "eps of the default" else 1e-3
        if wrong == "+folded":
            by = scale * torch.rsqrt(var + eps)
            x = F.conv2d(x, weight * by[:, None, None, None], shift - mean * by, stride, pad, groups=groups)
        else:
            x = F.conv2d(x, weight, None, stride, pad, groups=groups)  # wrong: padding on both sides alike
            if wrong == "variance for deviation":
                x = (x - mean[:, None, None]) / (var + eps)[:, None, None] * scale[:, None, None] + shift[
                    :, None, None
                ]  # wrong: variance for deviation
            else:
                x = (x - mean[:, None, None]) / torch.sqrt(var + eps)[:, None, None] * scale[:, None, None] + shift[
                    :, None, None
                ]  # wrong: eps of the default, variance for deviation
        return x * torch.sigmoid(x) if act else x

    def mb(x, p, stride, skip):
        y = block(block(x, p + "expand."), p + "depth.", 3, stride, w[p + "expand.conv.weight"].shape[0])
        s = F.adaptive_avg_pool2d(y, 1)
        s = F.conv2d(s, w[p + "reduce.weight"], w[p + "reduce.bias"])
        s = F.relu(s) if wrong == "squeeze with relu" else s * s.sigmoid()  # wrong: squeeze with relu
        s = F.conv2d(s, w[p + "back.weight"], w[p + "back.bias"])
        s = F.hardsigmoid(s) if wrong == "hard gate" else s.sigmoid()  # wrong: hard gate
        y = block(y * s, p + "project.", act=False)
        if wrong == "skip on the way down" and not skip:
            return y + F.avg_pool2d(x, 2).repeat(1, 2, 1, 1)  # wrong: skip on the way down
        return x + y if skip else y

    x = block(x, "stem.", 3, 2)
    x = mb(x, "b0.", 1, wrong != "skip missing")
    x = mb(x, "b1.", 2, False)
    x = mb(x, "b2.", 1, True)
    if wrong == "largest of the picture":
        x = x.amax((2, 3))  # wrong: largest of the picture
    else:
        x = x.flatten(2).mean(-1)
    return F.linear(x, w["fc.weight"], w["fc.bias"])


EFFICIENT = [
    "",
    "+folded",
    "padding on both sides alike",
    "eps of the default",
    "variance for deviation",
    "squeeze with relu",
    "hard gate",
    "skip on the way down",
    "largest of the picture",
]


def efficient_a(dtype):
    model, x = Efficient().to(dtype), noise(5, 2, 3, 16, 16).to(dtype)
    return lambda: model(x)


def efficient_b(wrong, dtype):
    w = {k: v.detach().to(dtype) if v.is_floating_point() else v for k, v in Efficient().state_dict().items()}
    x = noise(5, 2, 3, 16, 16).to(dtype)
    return lambda: efficient_port(w, x, wrong)


# ---------------------------------------------------------------- a diffusion transformer (DiT/Flux-like)


class DiT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(4, 32, 2, 2)
        self.t1, self.t2 = nn.Linear(16, 32), nn.Linear(32, 32)
        self.label = nn.Embedding(5, 32)
        self.blocks = nn.ModuleList(DiTBlock() for _ in range(2))
        self.mod = nn.Linear(32, 64)
        self.out = nn.Linear(32, 16)
        seeded(61, self)
        at = position_2d(4, 32)
        self.register_buffer("pos", at)

    def forward(self, x, t, y):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.pos
        half = torch.exp(-math.log(10000) * torch.arange(8).float() / 8)  # wrong: frequencies shifted by one
        angle = t[:, None].float() * half
        e = torch.cat([angle.cos(), angle.sin()], -1).to(x.dtype)  # wrong: sine first
        c = self.t2(F.silu(self.t1(e))) + self.label(y)
        for block in self.blocks:
            x = block(x, c)
        shift, scale = self.mod(F.silu(c)).chunk(2, 1)
        x = F.layer_norm(x, (32,), eps=1e-6) * (1 + scale[:, None]) + shift[:, None]
        x = self.out(x)
        x = x.view(-1, 4, 4, 2, 2, 4)
        return torch.einsum("nhwpqc->nchpwq", x).reshape(-1, 4, 8, 8)  # wrong: unpatched channels first


def position_2d(n, d):
    grid = torch.meshgrid(torch.arange(n).double(), torch.arange(n).double(), indexing="xy")
    omega = 10000 ** (-torch.arange(d // 4).double() / (d / 4))
    parts = [torch.outer(g.flatten(), omega) for g in grid]
    return torch.cat([f(p) for p in parts for f in (torch.sin, torch.cos)], 1).float()[None]


class DiTBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(32, 96), nn.Linear(32, 32)
        self.fc1, self.fc2 = nn.Linear(32, 64), nn.Linear(64, 32)
        self.ada = nn.Linear(32, 192)

    def forward(self, x, c):
        s1, k1, g1, s2, k2, g2 = self.ada(F.silu(c)).chunk(
            6, 1
        )  # wrong: shift and scale exchanged, condition without silu
        y = (
            F.layer_norm(x, (32,), eps=1e-6) * (1 + k1[:, None]) + s1[:, None]
        )  # wrong: shift and scale exchanged, scale without one
        b, n, _ = x.shape
        q, k, v = self.qkv(y).reshape(b, n, 3, 4, 8).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, 32)
        x = x + g1[:, None] * self.proj(a)  # wrong: gate missing
        y = (
            F.layer_norm(x, (32,), eps=1e-6) * (1 + k2[:, None]) + s2[:, None]
        )  # wrong: scale without one, shift and scale exchanged
        return x + g2[:, None] * self.fc2(F.gelu(self.fc1(y), approximate="tanh"))


def dit_port(w, x, t, y, wrong):
    p = F.unfold(x, 2, stride=2).transpose(1, 2)
    h = p @ w["patch.weight"].flatten(1).T + w["patch.bias"]
    pos = w["pos"]
    if wrong == "rows and columns exchanged":
        pos = pos.view(1, 4, 4, 32).transpose(1, 2).reshape(1, 16, 32)  # wrong: rows and columns exchanged
    h = h + pos  # wrong: rows and columns exchanged
    steps = 7 if wrong == "frequencies shifted by one" else 8
    freq = 10000.0 ** (-torch.arange(8, dtype=torch.float32) / steps)  # wrong: frequencies shifted by one
    a = torch.outer(t.float(), freq)
    if wrong == "sine first":
        e = torch.cat((a.sin(), a.cos()), 1)  # wrong: sine first
    else:
        e = torch.cat((a.cos(), a.sin()), 1)
    c = F.linear(e.to(x.dtype), w["t1.weight"], w["t1.bias"])
    c = F.linear(c * torch.sigmoid(c), w["t2.weight"], w["t2.bias"]) + w["label.weight"][y]
    act = c if wrong == "condition without silu" else F.silu(c)

    def modulate(x, shift, scale):
        x = (x - x.mean(-1, keepdim=True)) * torch.rsqrt(
            x.var(-1, keepdim=True, unbiased=wrong == "deviation of a sample") + 1e-6
        )  # wrong: deviation of a sample
        if wrong == "scale without one":
            return x * scale[:, None] + shift[:, None]  # wrong: scale without one
        return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)

    for i in range(2):
        b = f"blocks.{i}."
        m = (
            F.linear(act, w[b + "ada.weight"], w[b + "ada.bias"]).view(-1, 6, 32).unbind(1)
        )  # wrong: condition without silu
        sa, ka, ga, sm, km, gm = m
        if wrong == "shift and scale exchanged":
            ka, sa, ga, km, sm, gm = m  # wrong: shift and scale exchanged
        z = modulate(h, sa, ka)  # wrong: shift and scale exchanged
        z = F.linear(z, w[b + "qkv.weight"], w[b + "qkv.bias"])
        q, k, v = (u.view(-1, 16, 4, 8).transpose(1, 2) for u in z.chunk(3, -1))
        s = torch.softmax((q * 8**-0.25) @ (k * 8**-0.25).mT, -1) @ v
        z = F.linear(s.transpose(1, 2).flatten(2), w[b + "proj.weight"], w[b + "proj.bias"])
        h = h + (z if wrong == "gate missing" else ga[:, None] * z)  # wrong: gate missing
        z = modulate(h, sm, km)
        z = F.linear(
            F.gelu(F.linear(z, w[b + "fc1.weight"], w[b + "fc1.bias"]), approximate="tanh"),
            w[b + "fc2.weight"],
            w[b + "fc2.bias"],
        )
        h = h + gm[:, None] * z
    s, k = F.linear(act, w["mod.weight"], w["mod.bias"]).tensor_split(2, 1)
    h = modulate(h, s, k) @ w["out.weight"].T + w["out.bias"]
    if wrong == "unpatched channels first":
        return (
            h.view(-1, 4, 4, 4, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(-1, 4, 8, 8)
        )  # wrong: unpatched channels first
    return h.view(-1, 4, 4, 2, 2, 4).permute(0, 5, 1, 3, 2, 4).reshape(-1, 4, 8, 8)


DIT = [
    "",
    "+half",
    "rows and columns exchanged",
    "frequencies shifted by one",
    "sine first",
    "condition without silu",
    "scale without one",
    "shift and scale exchanged",
    "gate missing",
    "deviation of a sample",
    "unpatched channels first",
]


def _dit_inputs(dtype):
    return noise(6, 2, 4, 8, 8).to(dtype), torch.tensor([17, 640]), torch.tensor([1, 3])


def dit_a(dtype):
    model, inputs = DiT().to(dtype), _dit_inputs(dtype)
    return lambda: model(*inputs)


def dit_b(wrong, dtype):
    w = {k: v.detach().to(dtype) for k, v in DiT().state_dict().items()}
    inputs = _dit_inputs(dtype)
    return lambda: dit_port(w, *inputs, wrong)


# ---------------------------------------------------------------- samplers: Euler/Karras, DDIM, flow matching, guidance, VAE scaling


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 32)
        self.time = nn.Linear(1, 32)
        self.b = nn.Linear(32, 12)
        seeded(71, self)

    def forward(self, x, t, cond):
        return self.b(torch.tanh(self.a(x) + self.time(t.view(-1, 1).to(x.dtype)) + cond))


def euler_a(dtype):
    model, x = Denoiser().to(dtype), noise(7, 3, 12).to(dtype)
    cond = noise(8, 3, 32).to(dtype)

    def run():
        betas = torch.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2
        alphas = torch.cumprod(1 - betas, 0)
        all_sigmas = ((1 - alphas) / alphas) ** 0.5
        top, low = all_sigmas[-1], all_sigmas[0]
        ramp = torch.linspace(0, 1, 5)
        sigmas = (top ** (1 / 7) + ramp * (low ** (1 / 7) - top ** (1 / 7))) ** 7  # wrong: spaced evenly
        sigmas = torch.cat([sigmas, torch.zeros(1)]).to(x.dtype)
        log = all_sigmas.log()
        z = x * (sigmas[0] ** 2 + 1) ** 0.5  # wrong: first noise not scaled
        for i in range(5):
            inner = z / (sigmas[i] ** 2 + 1) ** 0.5  # wrong: input not scaled
            t = (sigmas[i].log() - log).abs().argmin().float() / 1000
            both = model(torch.cat([inner, inner]), t.repeat(6), torch.cat([torch.zeros_like(cond), cond]))
            plain, guided = both.chunk(2)  # wrong: conditions exchanged
            eps = plain + 5.0 * (guided - plain)  # wrong: guidance from the guided
            clean = z - sigmas[i] * eps
            z = z + (z - clean) / sigmas[i] * (sigmas[i + 1] - sigmas[i])
        return z / 0.3611 + 0.1159  # wrong: shift before the scale, shift of the latents missing

    return run


def euler_b(wrong, dtype):
    model = Denoiser().to(dtype)
    w = {k: v.detach() for k, v in model.state_dict().items()}
    x, cond = noise(7, 3, 12).to(dtype), noise(8, 3, 32).to(dtype)

    def net(x, t, c):
        h = F.linear(x, w["a.weight"], w["a.bias"]) + (t * w["time.weight"][:, 0] + w["time.bias"]) + c
        return F.linear(h.tanh(), w["b.weight"], w["b.bias"])

    def run():
        beta = torch.linspace(0.00085**0.5, 0.012**0.5, 1000).square()
        bar = (1 - beta).cumprod(0)
        every = torch.sqrt((1 - bar) / bar)
        if wrong == "spaced evenly":
            s = torch.linspace(float(every[-1]), float(every[0]), 5)  # wrong: spaced evenly
        else:
            high, low = every[-1] ** (1 / 7), every[0] ** (1 / 7)
            s = (high + torch.linspace(0, 1, 5) * (low - high)) ** 7
        s = F.pad(s, (0, 1)).to(x.dtype)
        if wrong == "first noise not scaled":
            y = x * s[0]  # wrong: first noise not scaled
        else:
            y = x * torch.sqrt(s[0] * s[0] + 1)
        for i in range(5):
            sigma, nxt = s[i], s[i + 1]
            scaled = y if wrong == "input not scaled" else y * torch.rsqrt(sigma * sigma + 1)  # wrong: input not scaled
            t = (torch.log(every) - sigma.log()).abs().argmin() / 1000.0
            without, with_ = net(scaled, t, torch.zeros_like(cond)), net(scaled, t, cond)  # wrong: input not scaled
            if wrong == "guidance from the guided":
                e = with_ + 5.0 * (with_ - without)  # wrong: guidance from the guided
            elif wrong == "conditions exchanged":
                e = with_ + 5.0 * (without - with_)  # wrong: conditions exchanged
            else:
                e = without + 5.0 * (with_ - without)
            if wrong == "step of the wrong sign":
                y = y + e * (sigma - nxt)  # wrong: step of the wrong sign
            else:
                y = y + e * (nxt - sigma)
        if wrong == "shift before the scale":
            return (y + 0.1159) / 0.3611  # wrong: shift before the scale
        if wrong == "shift of the latents missing":
            return y / 0.3611  # wrong: shift of the latents missing
        return y / 0.3611 + 0.1159

    return run


EULER = [
    "",
    "spaced evenly",
    "first noise not scaled",
    "input not scaled",
    "guidance from the guided",
    "conditions exchanged",
    "step of the wrong sign",
    "shift before the scale",
    "shift of the latents missing",
]


# ---------------------------------------------------------------- CLIP-like two towers


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(30, 24)
        self.places = nn.Embedding(8, 24)
        self.text = nn.TransformerEncoderLayer(24, 3, 48, 0.0, activation="gelu", batch_first=True, norm_first=True)
        self.text_norm = nn.LayerNorm(24)
        self.text_proj = nn.Linear(24, 16, bias=False)
        self.patch = nn.Conv2d(3, 24, 4, 4, bias=False)
        self.cls = nn.Parameter(torch.zeros(24))
        self.where = nn.Parameter(torch.zeros(5, 24))
        self.pre = nn.LayerNorm(24)
        self.vision = nn.TransformerEncoderLayer(24, 3, 48, 0.0, activation="gelu", batch_first=True, norm_first=True)
        self.post = nn.LayerNorm(24)
        self.vision_proj = nn.Linear(24, 16, bias=False)
        self.scale = nn.Parameter(torch.tensor(0.0))
        seeded(81, self)
        self.scale.data.fill_(2.6592)
        torch.manual_seed(5)
        self.cls.data.normal_(0, 0.5)
        self.where.data.normal_(0, 0.5)

    def forward(self, tokens, image):
        n = tokens.shape[1]
        x = self.words(tokens) + self.places.weight[:n]
        mask = torch.full((n, n), float("-inf")).triu(1).to(x.dtype)  # wrong: text sees ahead
        x = self.text_norm(self.text(x, src_mask=mask))
        t = self.text_proj(
            x[torch.arange(len(x)), (tokens == 29).int().argmax(-1)]
        )  # wrong: last token pooled, first token pooled
        v = self.patch(image).flatten(2).mT
        v = torch.cat([self.cls.expand(len(v), 1, 24), v], 1) + self.where
        v = self.vision(self.pre(v))  # wrong: norm before the layers missing
        v = self.vision_proj(self.post(v[:, 0]))  # wrong: mean of the patches
        t, v = t / t.norm(dim=-1, keepdim=True), v / v.norm(dim=-1, keepdim=True)  # wrong: not normalised
        return self.scale.exp() * t @ v.T  # wrong: scale without exp


def layer_by_hand(w, p, x, mask, wrong):
    def norm(x, n):
        return F.layer_norm(x, (24,), w[p + n + ".weight"], w[p + n + ".bias"])

    b, n, _ = x.shape
    y = norm(x, "norm1") if wrong != "norm after" else x
    q, k, v = (
        F.linear(y, w[p + "self_attn.in_proj_weight"], w[p + "self_attn.in_proj_bias"]).view(b, n, 3, 3, 8).unbind(2)
    )
    s = torch.einsum("bqhd,bkhd->bhqk", q, k).div(8**0.5)
    if mask is not None:
        s = s + mask
    o = torch.einsum("bhqk,bkhd->bqhd", s.softmax(-1), v).flatten(2)
    x = x + F.linear(o, w[p + "self_attn.out_proj.weight"], w[p + "self_attn.out_proj.bias"])
    y = F.linear(norm(x, "norm2"), w[p + "linear1.weight"], w[p + "linear1.bias"])
    y = y * torch.sigmoid(1.702 * y) if wrong == "quick gelu" else F.gelu(y)  # wrong: quick gelu
    return x + F.linear(y, w[p + "linear2.weight"], w[p + "linear2.bias"])


def clip_port(w, tokens, image, wrong):
    x = w["words.weight"][tokens] + w["places.weight"][: tokens.shape[1]]
    n = tokens.shape[1]
    causal = None
    if wrong != "text sees ahead":
        causal = torch.zeros(n, n, dtype=x.dtype).masked_fill_(~torch.ones(n, n, dtype=torch.bool).tril_(), -torch.inf)
    x = layer_by_hand(w, "text.", x, causal, wrong)
    x = F.layer_norm(x, (24,), w["text_norm.weight"], w["text_norm.bias"])
    if wrong == "last token pooled":
        x = x[:, -1]  # wrong: last token pooled
    elif wrong == "largest id pooled":
        x = x[torch.arange(len(x)), tokens.argmin(-1)]  # wrong: largest id pooled
    else:
        x = x[torch.arange(len(x)), tokens.argmax(-1)]
    x = x @ w["text_proj.weight"].T  # wrong: last token pooled, largest id pooled
    b = len(image)
    patches = image.view(b, 3, 2, 4, 2, 4).permute(0, 2, 4, 1, 3, 5).reshape(b, 4, 48)
    v = patches @ w["patch.weight"].flatten(1).T
    v = torch.cat((w["cls"].repeat(b, 1, 1), v), dim=1)
    v = v + w["where"]
    if wrong != "norm before the layers missing":
        v = F.layer_norm(v, (24,), w["pre.weight"], w["pre.bias"])
    v = layer_by_hand(w, "vision.", v, None, wrong)  # wrong: norm before the layers missing
    if wrong == "mean of the patches":
        v = v.mean(1)  # wrong: mean of the patches
    else:
        v = v[:, 0]
    v = (
        F.layer_norm(v, (24,), w["post.weight"], w["post.bias"]) @ w["vision_proj.weight"].T
    )  # wrong: mean of the patches
    if wrong != "not normalised":
        x, v = F.normalize(x, dim=-1), F.normalize(v, dim=-1)
    scale = w["scale"] if wrong == "scale without exp" else w["scale"].exp()  # wrong: scale without exp
    return (x @ v.T) * scale  # wrong: scale without exp, not normalised


CLIP = [
    "",
    "text sees ahead",
    "last token pooled",
    "largest id pooled",
    "norm before the layers missing",
    "mean of the patches",
    "not normalised",
    "scale without exp",
    "quick gelu",
]


def _clip_inputs(dtype):
    tokens = ids(9, 28, 2, 7)
    tokens[0, 4], tokens[1, 5] = 29, 29
    return tokens, noise(10, 2, 3, 8, 8).to(dtype)


def clip_a(dtype):
    model, inputs = Clip().to(dtype), _clip_inputs(dtype)
    return lambda: model(*inputs)


def clip_b(wrong, dtype):
    w = {k: v.detach().to(dtype) for k, v in Clip().state_dict().items()}
    inputs = _clip_inputs(dtype)
    return lambda: clip_port(w, *inputs, wrong)


# ---------------------------------------------------------------- a detector head: boxes, deformable sampling, position embedding


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Conv2d(6, 16, 1)
        self.norm = nn.GroupNorm(4, 16)
        self.query = nn.Embedding(5, 16)
        self.offset = nn.Linear(16, 4 * 2)
        self.weight = nn.Linear(16, 4)
        self.value = nn.Linear(16, 16)
        self.ref = nn.Linear(16, 2)
        self.box = nn.Linear(16, 4)
        self.cls = nn.Linear(16, 3)
        seeded(91, self)

    def forward(self, x):
        x = self.norm(self.proj(x))
        b, c, h, w = x.shape
        ys = torch.arange(1, h + 1).float() / (h + 1e-6) * 2 * math.pi  # wrong: places not scaled, places from zero
        xs = torch.arange(1, w + 1).float() / (w + 1e-6) * 2 * math.pi
        dim = 10000 ** (2 * (torch.arange(8) // 2) / 8)
        py, px = ys[:, None] / dim, xs[:, None] / dim
        py = torch.stack([py[:, 0::2].sin(), py[:, 1::2].cos()], 2).flatten(1)  # wrong: halves for turns
        px = torch.stack([px[:, 0::2].sin(), px[:, 1::2].cos()], 2).flatten(1)
        pos = torch.cat([py[:, None].expand(h, w, 8), px[None].expand(h, w, 8)], -1).permute(
            2, 0, 1
        )  # wrong: x before y
        q = self.query.weight
        value = self.value((x + pos).flatten(2).mT).mT.reshape(b, c, h, w)
        ref = self.ref(q).sigmoid()
        where = ref[:, None] + self.offset(q).view(5, 4, 2) / torch.tensor([w, h])  # wrong: offsets not scaled
        grid = 2 * where - 1
        got = F.grid_sample(
            value, grid.expand(b, -1, -1, -1), align_corners=False, padding_mode="zeros"
        )  # wrong: corners aligned, border repeated
        out = (got * self.weight(q).softmax(-1)).sum(-1).mT
        cx, cy, bw, bh = self.box(out).sigmoid().unbind(-1)
        boxes = torch.stack([cx - bw / 2, cy - bh / 2, cx + bw / 2, cy + bh / 2], -1)  # wrong: corner for centre
        return torch.cat([boxes.flatten(1), self.cls(out).sigmoid().flatten(1)], 1)  # wrong: softmax over classes


def detector_port(w, x, wrong):
    x = torch.einsum("bchw,oc->bhwo", x, w["proj.weight"][:, :, 0, 0]) + w["proj.bias"]
    b, h, wd, c = x.shape
    g = x.view(b, h * wd, 4, 4)
    g = (g - g.mean((1, 3), keepdim=True)) / (g.var((1, 3), keepdim=True, unbiased=False) + 1e-5).sqrt()
    x = g.reshape(b, h, wd, c) * w["norm.weight"] + w["norm.bias"]
    first = 0 if wrong == "places from zero" else 1
    rows = torch.arange(h, dtype=torch.float32) + first
    cols = torch.arange(wd, dtype=torch.float32) + first
    if wrong != "places not scaled":
        rows, cols = rows / (h + 1e-6) * math.tau, cols / (wd + 1e-6) * math.tau  # wrong: places from zero
    rate = 10000.0 ** (-torch.arange(0, 8, 2) / 8)
    a, e = rows[:, None] * rate, cols[:, None] * rate  # wrong: places not scaled
    if wrong == "halves for turns":
        a, e = torch.cat([a.sin(), a.cos()], 1), torch.cat([e.sin(), e.cos()], 1)  # wrong: halves for turns
    else:
        a, e = (torch.stack((u.sin(), u.cos()), -1).reshape(len(u), 8) for u in (a, e))
    a, e = a[:, None].repeat(1, wd, 1), e[None].repeat(h, 1, 1)
    pos = torch.cat((e, a), -1) if wrong == "x before y" else torch.cat((a, e), -1)  # wrong: x before y
    value = F.linear(x + pos, w["value.weight"], w["value.bias"]).permute(0, 3, 1, 2)
    q = w["query.weight"]
    ref = torch.sigmoid(F.linear(q, w["ref.weight"], w["ref.bias"]))
    off = F.linear(q, w["offset.weight"], w["offset.bias"]).view(5, 4, 2)
    if wrong != "offsets not scaled":
        off = off / torch.tensor([wd, h])
    at = (ref.unsqueeze(1) + off) * 2 - 1  # wrong: offsets not scaled
    if wrong == "corners aligned":
        s = F.grid_sample(value, at.expand(b, 5, 4, 2), align_corners=True)  # wrong: corners aligned
    elif wrong == "border repeated":
        s = F.grid_sample(
            value, at.expand(b, 5, 4, 2), align_corners=False, padding_mode="border"
        )  # wrong: border repeated
    else:
        s = F.grid_sample(value, at.expand(b, 5, 4, 2), align_corners=False)
    m = torch.softmax(F.linear(q, w["weight.weight"], w["weight.bias"]), -1)
    s = torch.einsum("bcqp,qp->bqc", s, m)
    box = F.linear(s, w["box.weight"], w["box.bias"]).sigmoid()
    centre, size = box[..., :2], box[..., 2:]
    if wrong == "corner for centre":
        box = torch.cat((centre, centre + size), -1)  # wrong: corner for centre
    else:
        box = torch.cat((centre - size / 2, centre + size / 2), -1)
    logits = F.linear(s, w["cls.weight"], w["cls.bias"])
    score = logits.softmax(-1) if wrong == "softmax over classes" else logits.sigmoid()  # wrong: softmax over classes
    return torch.cat((box.reshape(b, -1), score.reshape(b, -1)), -1)


DETECTOR = [
    "",
    "places from zero",
    "places not scaled",
    "halves for turns",
    "x before y",
    "offsets not scaled",
    "corners aligned",
    "corner for centre",
    "softmax over classes",
]


def detector_a(dtype):
    model, x = Detector().to(dtype), noise(11, 2, 6, 6, 8).to(dtype)
    return lambda: model(x)


def detector_b(wrong, dtype):
    w = {k: v.detach().to(dtype) for k, v in Detector().state_dict().items()}
    x = noise(11, 2, 6, 6, 8).to(dtype)
    return lambda: detector_port(w, x, wrong)


# ---------------------------------------------------------------- GRU tagger / wav2vec-like front end


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv1d(1, 16, 10, 5, bias=False)
        self.gn = nn.GroupNorm(16, 16)
        self.c2 = nn.Conv1d(16, 16, 3, 2, bias=False)
        self.ln = nn.LayerNorm(16)
        self.pos = nn.Conv1d(16, 16, 8, padding=4, groups=4)
        self.rnn = nn.GRU(16, 12, 2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(24, 9)
        seeded(101, self)

    def forward(self, wave):
        wave = (wave - wave.mean(-1, keepdim=True)) / (wave.var(-1, keepdim=True, unbiased=False) + 1e-7).sqrt()
        x = F.gelu(self.gn(self.c1(wave[:, None])))  # wrong: one group
        x = F.gelu(self.c2(x)).mT
        x = self.ln(x)
        p = F.gelu(self.pos(x.mT)[:, :, :-1])  # wrong: first place dropped
        x = x + p.mT
        y, _ = self.rnn(x)
        return self.out(y).log_softmax(-1)


def speech_port(w, wave, wrong):
    if wrong == "wave not normalised":
        x = wave.unsqueeze(1)  # wrong: wave not normalised
    else:
        x = F.layer_norm(wave, wave.shape[-1:], eps=1e-7).unsqueeze(1)
    x = F.conv1d(x, w["c1.weight"], stride=5)  # wrong: wave not normalised
    groups = 1 if wrong == "one group" else 16
    x = F.gelu(F.group_norm(x, groups, w["gn.weight"], w["gn.bias"]))  # wrong: one group
    x = F.gelu(F.conv1d(x, w["c2.weight"], stride=2)).transpose(1, 2)
    x = F.layer_norm(x, (16,), w["ln.weight"], w["ln.bias"])
    z = F.conv1d(x.transpose(1, 2), w["pos.weight"], w["pos.bias"], padding=4, groups=4)
    z = z[..., 1:] if wrong == "first place dropped" else z[..., :-1]  # wrong: first place dropped
    x = x + F.gelu(z).transpose(1, 2)
    for layer in range(2):
        both = []
        for tail in ("", "_reverse"):
            wi, wh = w[f"rnn.weight_ih_l{layer}{tail}"], w[f"rnn.weight_hh_l{layer}{tail}"]
            bi, bh = w[f"rnn.bias_ih_l{layer}{tail}"], w[f"rnn.bias_hh_l{layer}{tail}"]
            seq = x.flip(1) if tail else x
            h = torch.zeros(len(x), 12, dtype=x.dtype)
            outs = []
            for step in seq.unbind(1):
                gi = step @ wi.T + bi
                if wrong == "reset before the product":
                    gh = h @ wh.T + bh
                    r, u = torch.sigmoid(gi[:, :24] + gh[:, :24]).chunk(2, -1)
                    n = torch.tanh(gi[:, 24:] + (r * h) @ wh[24:].T + bh[24:])  # wrong: reset before the product
                elif wrong == "gates exchanged":
                    gh = h @ wh.T + bh
                    u, r = torch.sigmoid(gi[:, :24] + gh[:, :24]).chunk(2, -1)  # wrong: gates exchanged
                    n = torch.tanh(gi[:, 24:] + r * gh[:, 24:])  # wrong: gates exchanged
                else:
                    gh = h @ wh.T + bh
                    r, u = torch.sigmoid(gi[:, :24] + gh[:, :24]).chunk(2, -1)
                    n = torch.tanh(gi[:, 24:] + r * gh[:, 24:])
                if wrong == "update the other way round":
                    h = u * n + (1 - u) * h  # wrong: update the other way round
                else:
                    h = (1 - u) * n + u * h
                outs.append(h)
            out = torch.stack(outs, 1)
            if tail and wrong != "backward not turned":
                out = out.flip(1)
            both.append(out)
        x = torch.cat(both, -1)  # wrong: backward not turned
    return F.log_softmax(F.linear(x, w["out.weight"], w["out.bias"]), -1)


SPEECH = [
    "",
    "wave not normalised",
    "one group",
    "first place dropped",
    "reset before the product",
    "gates exchanged",
    "update the other way round",
    "backward not turned",
]


def speech_a(dtype):
    model, x = Speech().to(dtype), noise(12, 2, 120).mul(0.1).to(dtype)
    return lambda: model(x)


def speech_b(wrong, dtype):
    w = {k: v.detach().to(dtype) for k, v in Speech().state_dict().items()}
    x = noise(12, 2, 120).mul(0.1).to(dtype)
    return lambda: speech_port(w, x, wrong)


B = (torch.float32, torch.bfloat16)
ONE = (torch.float32,)
FAMILIES = {
    "efficient": (efficient_a, efficient_b, EFFICIENT, B),
    "dit": (dit_a, dit_b, DIT, B),
    "euler": (euler_a, euler_b, EULER, ONE),
    "clip": (clip_a, clip_b, CLIP, B),
    "detector": (detector_a, detector_b, DETECTOR, ONE),
    "speech": (speech_a, speech_b, SPEECH, ONE),
}
PARAMETERS = {}
