"""Pictures, sound and sampling: strides, paddings, norms, filters, schedules, and how they are written elsewhere."""

import math

import torch
import torch.nn.functional as F
import transformers
from library_models import made, weights
from torch import nn


def noise(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------- wav2vec 2: weight norm, one place cut off, a norm of groups


def wave_model():
    model = transformers.Wav2Vec2Model(
        transformers.Wav2Vec2Config(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, conv_dim=(16, 16, 16),
            conv_kernel=(10, 3, 2), conv_stride=(5, 2, 2), num_feat_extract_layers=3, num_conv_pos_embeddings=8,
            num_conv_pos_embedding_groups=4, vocab_size=20, mask_time_prob=0.0, layerdrop=0.0,
        )
    )  # fmt: skip
    return made(model)


def wave_a(dtype):
    model, x = wave_model().to(dtype), noise(1, 2, 400).to(dtype)

    @torch.no_grad()
    def run():
        return model(x).last_hidden_state

    return run


def wave_b(wrong, dtype):
    w, x = weights(wave_model(), dtype), noise(1, 2, 400).to(dtype)
    return lambda: wave_port(w, x, wrong)


def wave_port(w, wave, wrong):
    p = "feature_extractor.conv_layers."
    h = wave.unsqueeze(1)
    h = F.conv1d(h, w[p + "0.conv.weight"], stride=5)
    if wrong == "norm over all channels":
        h = F.group_norm(
            h, 1, w[p + "0.layer_norm.weight"], w[p + "0.layer_norm.bias"]
        )  # wrong: norm over all channels
    else:
        h = F.instance_norm(h, weight=w[p + "0.layer_norm.weight"], bias=w[p + "0.layer_norm.bias"])
    h = F.gelu(h)
    h = F.gelu(F.conv1d(h, w[p + "1.conv.weight"], stride=2))
    h = F.gelu(F.conv1d(h, w[p + "2.conv.weight"], stride=2))
    h = h.permute(0, 2, 1)
    if wrong != "norm of the features forgotten":
        h = F.layer_norm(h, (16,), w["feature_projection.layer_norm.weight"], w["feature_projection.layer_norm.bias"])
    h = F.linear(
        h, w["feature_projection.projection.weight"], w["feature_projection.projection.bias"]
    )  # wrong: norm of the features forgotten
    q = "encoder.pos_conv_embed.conv."
    g, v = w[q + "parametrizations.weight.original0"], w[q + "parametrizations.weight.original1"]
    if wrong == "weight norm over the outputs":
        weight = v * (g.mean() / v.flatten(1).norm(dim=1))[:, None, None]  # wrong: weight norm over the outputs
    else:
        weight = v * (g / v.pow(2).sum((0, 1), keepdim=True).sqrt())
    pos = F.conv1d(h.mT, weight, w[q + "bias"], padding=4, groups=4)  # wrong: weight norm over the outputs
    if wrong == "first place cut off":
        pos = pos[..., 1:]  # wrong: first place cut off
    else:
        pos = pos[..., :-1]
    h = h + F.gelu(pos).mT
    h = F.layer_norm(h, (32,), w["encoder.layer_norm.weight"], w["encoder.layer_norm.bias"])
    for i in range(2):
        n = f"encoder.layers.{i}."
        b, t, _ = h.shape
        a = n + "attention."
        q, k, v = (
            F.linear(h, w[a + f"{c}_proj.weight"], w[a + f"{c}_proj.bias"]).view(b, t, 4, 8).transpose(1, 2)
            for c in "qkv"
        )
        o = F.scaled_dot_product_attention(q * 8**-0.5, k, v, scale=1.0)
        o = F.linear(o.transpose(1, 2).reshape(b, t, 32), w[a + "out_proj.weight"], w[a + "out_proj.bias"])
        if wrong == "norm before the attention":
            h = h + o  # wrong: norm before the attention
            m = F.layer_norm(
                h, (32,), w[n + "layer_norm.weight"], w[n + "layer_norm.bias"]
            )  # wrong: norm before the attention
        else:
            h = F.layer_norm(h + o, (32,), w[n + "layer_norm.weight"], w[n + "layer_norm.bias"])
            m = h
        f = n + "feed_forward."
        m = F.gelu(
            F.linear(m, w[f + "intermediate_dense.weight"], w[f + "intermediate_dense.bias"])
        )  # wrong: norm before the attention
        m = F.linear(m, w[f + "output_dense.weight"], w[f + "output_dense.bias"])
        h = F.layer_norm(h + m, (32,), w[n + "final_layer_norm.weight"], w[n + "final_layer_norm.bias"])
    return h


# ---------------------------------------------------------------- SigLIP: patches, and a query that pools


def siglip_model():
    return made(
        transformers.SiglipVisionModel(
            transformers.SiglipVisionConfig(
                hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=24,
                patch_size=6,
            )
        )
    )  # fmt: skip


def siglip_a(dtype):
    model, x = siglip_model().to(dtype), noise(2, 2, 3, 24, 24).to(dtype)

    @torch.no_grad()
    def run():
        return model(x).pooler_output

    return run


def siglip_b(wrong, dtype):
    w, x = weights(siglip_model(), dtype), noise(2, 2, 3, 24, 24).to(dtype)
    w = {name.removeprefix("vision_model."): value for name, value in w.items()}
    return lambda: siglip_port(w, x, wrong)


def siglip_port(w, x, wrong):
    def norm(h, name):
        return F.layer_norm(h, h.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-6)

    def dense(h, name):
        return F.linear(h, w[name + ".weight"], w[name + ".bias"])

    # einops style patches: (gh gw) (p1 p2 c)
    patches = x.unflatten(2, (4, 6)).unflatten(4, (4, 6))
    if wrong == "columns first":
        patches = patches.permute(0, 4, 2, 3, 5, 1).reshape(2, 16, 108)  # wrong: columns first
    else:
        patches = patches.permute(0, 2, 4, 3, 5, 1).reshape(2, 16, 108)
    h = patches @ w["embeddings.patch_embedding.weight"].permute(2, 3, 1, 0).reshape(108, 32)
    h = h + w["embeddings.patch_embedding.bias"] + w["embeddings.position_embedding.weight"]
    for i in range(2):
        p = f"encoder.layers.{i}."
        n = norm(h, p + "layer_norm1")
        qkv = [dense(n, p + f"self_attn.{c}_proj") for c in ("q", "k", "v")]
        if wrong == "keys and values exchanged":
            qkv = qkv[0], qkv[2], qkv[1]
        q, k, v = (each.unflatten(-1, (4, 8)).movedim(2, 1) for each in qkv)
        att = torch.softmax(torch.einsum("bhie,bhje->bhij", q, k) * 8**-0.5, -1)  # wrong: keys and values exchanged
        o = torch.einsum("bhij,bhje->bihe", att, v).flatten(2)  # wrong: keys and values exchanged
        h = h + dense(o, p + "self_attn.out_proj")
        n = dense(norm(h, p + "layer_norm2"), p + "mlp.fc1")
        if wrong == "sigmoid for tanh in the activation":
            n = n * torch.sigmoid(1.702 * n)  # wrong: sigmoid for tanh in the activation
        else:
            n = 0.5 * n * (1 + torch.tanh(math.sqrt(2 / math.pi) * (n + 0.044715 * n**3)))
        h = h + dense(n, p + "mlp.fc2")
    h = norm(h, "post_layernorm")
    probe = w["head.probe"].expand(2, 1, 32)
    wq, wk, wv = w["head.attention.in_proj_weight"].chunk(3)
    bq, bk, bv = w["head.attention.in_proj_bias"].chunk(3)
    q = (F.linear(probe, wq, bq)).view(2, 1, 4, 8).transpose(1, 2)
    k = F.linear(h, wk, bk).view(2, 16, 4, 8).transpose(1, 2)
    v = F.linear(h, wv, bv).view(2, 16, 4, 8).transpose(1, 2)
    o = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 1, 32)
    o = dense(o, "head.attention.out_proj")
    n = norm(o, "head.layernorm")
    m = dense(F.gelu(dense(n, "head.mlp.fc1"), approximate="tanh"), "head.mlp.fc2")
    if wrong == "sum with what is normed":
        return (n + m)[:, 0]  # wrong: sum with what is normed
    return (o + m)[:, 0]


# ---------------------------------------------------------------- ResNet: strides, pooling, batch norm, channels last


class Bottleneck(nn.Module):
    def __init__(self, cin, mid, cout, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(cin, mid, 1, bias=False), nn.BatchNorm2d(mid)
        self.conv2, self.bn2 = nn.Conv2d(mid, mid, 3, stride, 1, bias=False), nn.BatchNorm2d(mid)
        self.conv3, self.bn3 = nn.Conv2d(mid, cout, 1, bias=False), nn.BatchNorm2d(cout)
        self.down = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.down(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 7, 2, 3, bias=False)
        self.bn = nn.BatchNorm2d(16)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.Sequential(Bottleneck(16, 8, 32, 1), Bottleneck(32, 16, 48, 2))
        self.fc = nn.Linear(48, 10)
        made(self)
        g = torch.Generator().manual_seed(7)
        for name, value in self.named_buffers():
            if name.endswith("running_mean"):
                value.copy_(torch.randn(value.shape, generator=g) * 0.3)
            elif name.endswith("running_var"):
                value.copy_(torch.rand(value.shape, generator=g) * 0.6 + 0.05)

    def forward(self, x):
        x = self.pool(F.relu(self.bn(self.stem(x))))
        return self.fc(self.blocks(x).mean((2, 3)))


def resnet_a(dtype):
    model, x = ResNet().to(dtype), noise(3, 2, 3, 33, 33).to(dtype)

    @torch.no_grad()
    def run():
        return model(x)

    return run


def resnet_b(wrong, dtype):
    model, x = ResNet().to(dtype), noise(3, 2, 3, 33, 33).to(dtype)
    if wrong == "+channels last":
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
        return lambda: model(x).detach()
    if wrong == "+scripted":
        scripted = torch.jit.freeze(torch.jit.trace(model, x, check_trace=False))
        return lambda: scripted(x).detach()
    if wrong == "+one picture at a time":
        return lambda: torch.stack([torch.func.functional_call(model, {}, (each[None],))[0].detach() for each in x])
    if wrong == "+mapped over the batch":
        return lambda: torch.vmap(lambda each: model(each[None])[0])(x).detach()
    w = weights(model, dtype)
    return lambda: resnet_port(w, x, wrong)


def unfolded(x, weight, stride, pad):
    """A convolution as a product of matrices."""
    n, _, height, width = x.shape
    size = weight.shape[-1]
    columns = F.unfold(x, size, padding=pad, stride=stride)
    y = weight.flatten(1) @ columns
    return y.view(n, -1, (height + 2 * pad - size) // stride + 1, (width + 2 * pad - size) // stride + 1)


def resnet_port(w, x, wrong):
    eps = 1e-3 if wrong == "eps of another library" else 1e-5

    def folded(x, conv, bn, stride=1, pad=0):
        scale = w[bn + ".weight"] / torch.sqrt(w[bn + ".running_var"] + eps)  # wrong: eps of another library
        shift = w[bn + ".bias"] - w[bn + ".running_mean"] * scale
        return F.conv2d(
            x, w[conv + ".weight"] * scale[:, None, None, None], shift, stride, pad
        )  # wrong: eps of another library

    if wrong == "padded below and right":
        h = F.relu(folded(F.pad(x, (2, 4, 2, 4)), "stem", "bn", 2, 0))  # wrong: padded below and right
    else:
        h = F.relu(folded(x, "stem", "bn", 2, 3))
    if wrong == "pooling without padding":
        h = F.max_pool2d(h, 3, 2, ceil_mode=True)  # wrong: pooling without padding
    else:
        h = F.max_pool2d(h, 3, 2, 1)
    for i, stride in enumerate((1, 2)):
        p = f"blocks.{i}."
        first, second = (stride, 1) if wrong == "stride in the first convolution" else (1, stride)
        y = folded(h, p + "conv1", p + "bn1", first).relu()  # wrong: stride in the first convolution
        y = folded(y, p + "conv2", p + "bn2", second, 1).relu()  # wrong: stride in the first convolution
        y = folded(y, p + "conv3", p + "bn3")
        if wrong == "activation before the sum":
            h = F.relu(y) + folded(h, p + "down.0", p + "down.1", stride)  # wrong: activation before the sum
        else:
            h = F.relu(y + folded(h, p + "down.0", p + "down.1", stride))
    return F.linear(h.flatten(2).mean(-1), w["fc.weight"], w["fc.bias"])


# ---------------------------------------------------------------- the encoder and decoder of latent diffusion


class Res(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, cin, eps=1e-6), nn.Conv2d(cin, cout, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, cout, eps=1e-6), nn.Conv2d(cout, cout, 3, padding=1)
        self.shortcut = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x):
        h = self.conv1(F.silu(self.norm1(x)))
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(h)))


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv_in = nn.Conv2d(3, 16, 3, padding=1)
        self.res1, self.down, self.res2 = Res(16, 16), nn.Conv2d(16, 16, 3, 2), Res(16, 32)
        self.norm, self.qkv, self.proj = nn.GroupNorm(8, 32, eps=1e-6), nn.Conv2d(32, 96, 1), nn.Conv2d(32, 32, 1)
        self.conv_out, self.quant = nn.Conv2d(32, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.post_quant, self.dec_in = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 32, 3, padding=1)
        self.res3, self.up, self.out = Res(32, 32), nn.Conv2d(32, 16, 3, padding=1), nn.Conv2d(16, 3, 3, padding=1)
        made(self)

    def encode(self, x):
        h = self.res1(self.conv_in(x))
        h = self.res2(self.down(F.pad(h, (0, 1, 0, 1))))  # wrong: padded on all sides
        b, c, height, width = h.shape
        q, k, v = self.qkv(self.norm(h)).flatten(2).chunk(3, 1)
        a = torch.bmm(q.transpose(1, 2), k) * c**-0.5
        a = torch.bmm(v, a.softmax(-1).transpose(1, 2)).view(b, c, height, width)
        h = self.conv_out(F.silu(h + self.proj(a)))
        return self.quant(h).chunk(2, 1)

    def decode(self, z):
        h = self.res3(self.dec_in(self.post_quant(z)))
        h = self.up(F.interpolate(h, scale_factor=2.0, mode="nearest"))
        return self.out(F.silu(h))

    def forward(self, x, noise):
        mean, log = self.encode(x)
        z = (mean + torch.exp(0.5 * log.clamp(-30.0, 20.0)) * noise) * 0.18215
        return self.decode(z / 0.18215), z


def latent_a(dtype):
    model, x, n = AutoEncoder().to(dtype), noise(4, 2, 3, 16, 16).to(dtype), noise(5, 2, 4, 8, 8).to(dtype)

    @torch.no_grad()
    def run():
        return model(x, n)

    return run


def latent_b(wrong, dtype):
    w = weights(AutoEncoder(), dtype)
    x, n = noise(4, 2, 3, 16, 16).to(dtype), noise(5, 2, 4, 8, 8).to(dtype)
    return lambda: latent_port(w, x, n, wrong)


def latent_port(w, x, n, wrong):
    def conv(h, name, **options):
        return F.conv2d(h, w[name + ".weight"], w[name + ".bias"], **options)

    eps = 1e-3 if wrong == "eps of the groups" else 1e-6
    groups = 4 if wrong == "number of groups" else 8

    def norm(h, name):
        """By hand, channels last."""
        b, height, width, c = h.shape
        y = h.reshape(b, height * width, groups, c // groups).float()  # wrong: number of groups
        y = (y - y.mean((1, 3), keepdim=True)) / (
            y.var((1, 3), keepdim=True, unbiased=False) + eps
        ).sqrt()  # wrong: eps of the groups, number of groups
        return y.view(b, height, width, c).to(h.dtype) * w[name + ".weight"] + w[name + ".bias"]

    def last(h, name, **options):
        return conv(h.permute(0, 3, 1, 2), name, **options).permute(0, 2, 3, 1)

    def res(h, name):
        y = last(F.silu(norm(h, name + ".norm1")), name + ".conv1", padding=1)
        y = last(F.silu(norm(y, name + ".norm2")), name + ".conv2", padding=1)
        if name + ".shortcut.weight" in w:
            h = last(h, name + ".shortcut")
        return h + y

    h = res(last(x.permute(0, 2, 3, 1), "conv_in", padding=1), "res1")
    if wrong == "padded on all sides":
        h = last(h, "down", stride=2, padding=1)  # wrong: padded on all sides
    else:
        h = last(F.pad(h, (0, 0, 0, 1, 0, 1)), "down", stride=2)
    h = res(h, "res2")
    q, k, v = last(norm(h, "norm"), "qkv").reshape(2, 64, 96).split(32, -1)
    a = F.scaled_dot_product_attention(q, k, v).view(2, 8, 8, 32)
    h = last(F.silu(h + last(a, "proj")), "conv_out", padding=1)
    if wrong == "last convolution of the encoder forgotten":
        mean, log = h.split(4, -1)
    else:
        mean, log = last(h, "quant").split(4, -1)
    if wrong == "deviation without the half":
        std = log.clamp(-30, 20).exp()  # wrong: deviation without the half
    else:
        std = (log.clamp(-30, 20) / 2).exp()  # wrong: last convolution of the encoder forgotten
    z = mean + std * n.permute(
        0, 2, 3, 1
    )  # wrong: deviation without the half, last convolution of the encoder forgotten
    latents = z.permute(0, 3, 1, 2) * 0.18215
    z = latents if wrong == "latents not unscaled" else latents / 0.18215
    h = conv(conv(z, "post_quant"), "dec_in", padding=1).permute(0, 2, 3, 1)  # wrong: latents not unscaled
    h = res(h, "res3").permute(0, 3, 1, 2)
    if wrong == "enlarged smoothly":
        h = F.interpolate(h, scale_factor=2.0, mode="bicubic")  # wrong: enlarged smoothly
    else:
        h = h.repeat_interleave(2, 2).repeat_interleave(2, 3)
    h = conv(h, "up", padding=1)
    return conv(F.silu(h), "out", padding=1), latents


# ---------------------------------------------------------------- features of speech as Kaldi makes them


def mel_filters(size, how="htk"):
    def to(f):
        return 1127.0 * math.log(1 + f / 700.0)

    edges = torch.linspace(to(20.0), to(8000.0), 12 + 2)
    bins = 1127.0 * torch.log(1 + torch.arange(size // 2) * (16000 / size) / 700.0)
    up = (bins[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - bins[None]) / (edges[2:] - edges[1:-1])[:, None]
    return F.pad(torch.clamp(torch.minimum(up, down), min=0), (0, 1))


def fbank_a(dtype):
    wave, filters = noise(6, 2400), mel_filters(512)

    def run():
        frames = wave.unfold(0, 400, 160)
        frames = frames - frames.mean(1, keepdim=True)
        before = F.pad(frames.unsqueeze(0), (1, 0), mode="replicate").squeeze(0)
        frames = frames - 0.97 * before[:, :-1]
        frames = frames * torch.hann_window(400, periodic=False).pow(0.85)
        power = torch.fft.rfft(F.pad(frames, (0, 112))).abs().pow(2.0)
        mel = torch.mm(power, filters.T)
        out = mel.clamp(min=1.1920928955078125e-07).log()
        return (out - out.mean(0)) / (2 * out.std(0))

    return run


def fbank_b(wrong, dtype):
    wave, filters = noise(6, 2400), mel_filters(512)
    return lambda: fbank_port(wave, filters, wrong)


def fbank_port(wave, filters, wrong):
    at = torch.arange(0, 2400 - 399, 160)[:, None] + torch.arange(400)
    frames = wave[at]
    if wrong != "mean of the frame kept":
        frames = frames - frames.sum(1, keepdim=True) / 400
    if wrong == "emphasis before the cut":
        whole = torch.cat([wave[:1], wave[1:] - 0.97 * wave[:-1]])  # wrong: emphasis before the cut
        frames = whole[at] - whole[at].mean(1, keepdim=True)  # wrong: emphasis before the cut
    else:
        first = frames[:, :1] * (1 - 0.97)  # wrong: mean of the frame kept
        frames = torch.cat([first, frames[:, 1:] - 0.97 * frames[:, :-1]], 1)  # wrong: mean of the frame kept
    n = 2 * math.pi * torch.arange(400, dtype=torch.float64)
    if wrong == "window is periodic":
        window = (0.5 - 0.5 * torch.cos(n / 400)).float() ** 0.85  # wrong: window is periodic
    elif wrong == "window not raised":
        window = (0.5 - 0.5 * torch.cos(n / 399)).float()  # wrong: window not raised
    else:
        window = (0.5 - 0.5 * torch.cos(n / 399)).float() ** 0.85
    spectrum = torch.view_as_real(
        torch.fft.rfft(frames * window, n=512)
    )  # wrong: window is periodic, window not raised, emphasis before the cut
    power = spectrum[..., 0] ** 2 + spectrum[..., 1] ** 2
    if wrong == "magnitudes":
        power = power.sqrt()  # wrong: magnitudes
    mel = power @ filters.mT  # wrong: magnitudes
    if wrong == "logarithm to ten":
        out = torch.log10(mel + 1.1920929e-07)  # wrong: logarithm to ten
        out = out - out.mean(0)
        return out * math.log(10) / (2 * out.std(0))  # wrong: logarithm to ten
    if wrong == "floor is added":
        out = torch.log(mel + 1.0)  # wrong: floor is added
    else:
        out = torch.log(torch.clamp(mel, min=1.1920929e-07))
    if wrong == "divided by one deviation":
        return (out - out.mean(0)) / out.std(0)  # wrong: divided by one deviation
    return (out - out.mean(0)) / out.std(0) * 0.5


# ---------------------------------------------------------------- a vocoder: transposed convolutions and leaky steps


class Vocoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Conv1d(8, 32, 7, padding=3)
        self.ups = nn.ModuleList([nn.ConvTranspose1d(32, 16, 8, 4, 2), nn.ConvTranspose1d(16, 8, 4, 2, 1)])
        self.res = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(c, c, k, dilation=d, padding=d * (k - 1) // 2) for k, d in ((3, 1), (5, 3)))
            for c in (16, 8)
        )
        self.post = nn.Conv1d(8, 1, 7, padding=3)
        made(self)

    def forward(self, x):
        x = self.pre(x)
        for up, blocks in zip(self.ups, self.res, strict=True):
            x = up(F.leaky_relu(x, 0.1))
            total = None
            for block in blocks:
                y = x + block(F.leaky_relu(x, 0.1))
                total = y if total is None else total + y
            x = total / 2  # wrong: sum not divided
        return torch.tanh(self.post(F.leaky_relu(x)))


def vocoder_a(dtype):
    model, x = Vocoder().to(dtype), noise(8, 2, 8, 12).to(dtype)
    return lambda: model(x).detach()


def vocoder_b(wrong, dtype):
    w, x = weights(Vocoder(), dtype), noise(8, 2, 8, 12).to(dtype)
    return lambda: vocoder_port(w, x, wrong)


def vocoder_port(w, x, wrong):
    x = F.conv1d(x, w["pre.weight"], w["pre.bias"], padding="same")
    slope = 0.01 if wrong == "slope before the upsampling" else 0.1
    for i, stride in enumerate((4, 2)):
        x = torch.where(x > 0, x, slope * x)  # wrong: slope before the upsampling
        weight = w[f"ups.{i}.weight"]
        wide = torch.zeros(*x.shape[:2], (x.shape[2] - 1) * stride + 1, dtype=x.dtype)
        wide[..., ::stride] = x
        if wrong == "kernel not turned round":
            weight = weight.transpose(0, 1)  # wrong: kernel not turned round
        else:
            weight = weight.flip(-1).transpose(0, 1)  # wrong: kernel not turned round
        side = weight.shape[-1] - 1 - (weight.shape[-1] - stride) // 2
        x = F.conv1d(wide, weight, w[f"ups.{i}.bias"], padding=side)  # wrong: kernel not turned round
        parts = []
        for j, (k, d) in enumerate(((3, 1), (5, 3))):
            d = 1 if wrong == "dilation forgotten" else d
            y = F.conv1d(
                F.leaky_relu(x, 0.1),
                w[f"res.{i}.{j}.weight"],
                w[f"res.{i}.{j}.bias"],
                dilation=d,
                padding=d * (k - 1) // 2,
            )  # wrong: dilation forgotten
            parts.append(y if wrong == "no way round the block" else x + y)
        if wrong == "sum not divided":
            x = torch.stack(parts).sum(0)  # wrong: sum not divided
        else:
            x = torch.stack(parts).mean(0)  # wrong: no way round the block
    last = 0.1 if wrong == "slope at the end" else 0.01
    return F.conv1d(
        F.leaky_relu(x, last), w["post.weight"], w["post.bias"], padding=3
    ).tanh()  # wrong: slope at the end


# ---------------------------------------------------------------- a solver of the second order for diffusion


class Predictor(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.t = nn.Linear(6, 24), nn.Linear(24, 6), nn.Linear(8, 24)
        made(self)

    def forward(self, x, t):
        f = t * 10000.0 ** (-torch.arange(4) / 4)
        emb = torch.cat([f.cos(), f.sin()]).to(x.dtype)
        return self.b(F.silu(self.a(x) + self.t(emb)))


def schedule():
    betas = torch.linspace(0.00085**0.5, 0.012**0.5, 1000, dtype=torch.float64) ** 2
    return torch.cumprod(1 - betas, 0)


def solver_a(dtype):
    model, x0 = Predictor().to(dtype), noise(9, 4, 6).to(dtype)
    total = schedule()
    times = torch.linspace(999, 0, 7).round().long()

    @torch.no_grad()
    def run():
        x, before = x0, None
        alpha, sigma = total.sqrt(), (1 - total).sqrt()
        lam = torch.log(alpha / sigma)
        for i in range(6):
            s, t = times[i], times[i + 1]
            eps = model(x, s.float())
            data = (x - sigma[s].to(x) * eps) / alpha[s].to(x)
            h = (lam[t] - lam[s]).to(x)
            d = data
            if before is not None:
                r = (lam[s] - lam[times[i - 1]]).to(x) / h
                d = data + (data - before) / (2 * r)
            x = (sigma[t] / sigma[s]).to(x) * x - alpha[t].to(x) * torch.expm1(-h) * d
            before = data
        return x

    return run


def solver_b(wrong, dtype):
    model, x0 = Predictor().to(dtype), noise(9, 4, 6).to(dtype)
    return lambda: solver_port(model, x0, wrong)


@torch.no_grad()
def solver_port(model, x, wrong):
    """In sigmas, as k-diffusion has it; x is scaled."""
    total = schedule()
    if wrong == "schedule is linear":
        total = torch.cumprod(
            1 - torch.linspace(0.00085, 0.012, 1000, dtype=torch.float64), 0
        )  # wrong: schedule is linear
    times = torch.linspace(999, 0, 7).round().long()
    sigmas = ((1 - total) / total).sqrt()[times]  # wrong: schedule is linear
    x = x * (1 + sigmas[0] ** 2).sqrt().to(x)  # wrong: schedule is linear
    old = None
    for i in range(6):
        s, t = sigmas[i], sigmas[i + 1]
        scaled = x / (1 + s**2).sqrt().to(x)
        if wrong == "input not scaled down":
            scaled = x
        eps = model(scaled, times[i].float())  # wrong: input not scaled down
        den = x - s.to(x) * eps
        h = torch.log(s / t).to(x)
        if old is None:
            d = den
        elif wrong == "ratio upside down":
            r = h / torch.log(sigmas[i - 1] / s).to(x)  # wrong: ratio upside down
            d = den + (den - old) / (2 * r)  # wrong: ratio upside down
        else:
            r = torch.log(sigmas[i - 1] / s).to(x) / h
            d = (1 + 1 / (2 * r)) * den - (1 / (2 * r)) * old
        x = (t / s).to(x) * x - torch.expm1(-h) * d  # wrong: old estimate is the first
        if wrong == "old estimate is the first" and old is not None:
            continue
        old = den
    return x / (1 + sigmas[-1] ** 2).sqrt().to(x)


# ---------------------------------------------------------------- rays through a scene


def rays_a(dtype):
    net = made(nn.Sequential(nn.Linear(27, 32), nn.ReLU(), nn.Linear(32, 4))).to(dtype)
    o, d = noise(10, 5, 3), F.normalize(noise(11, 5, 3), dim=-1)

    @torch.no_grad()
    def run():
        z = torch.linspace(2.0, 6.0, 9).expand(5, 9)
        points = o[:, None] + d[:, None] * z[..., None]
        bands = 2.0 ** torch.arange(4)
        enc = torch.cat([points] + [fn(points * b) for b in bands for fn in (torch.sin, torch.cos)], -1)
        raw = net(enc.to(dtype)).float()
        delta = torch.cat([z[:, 1:] - z[:, :-1], torch.full((5, 1), 1e10)], -1)
        alpha = 1 - torch.exp(-F.relu(raw[..., 3]) * delta)
        through = torch.cumprod(torch.cat([torch.ones(5, 1), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        weight = alpha * through
        return (weight[..., None] * raw[..., :3].sigmoid()).sum(1), (weight * z).sum(1)

    return run


def rays_b(wrong, dtype):
    net = made(nn.Sequential(nn.Linear(27, 32), nn.ReLU(), nn.Linear(32, 4))).to(dtype)
    o, d = noise(10, 5, 3), F.normalize(noise(11, 5, 3), dim=-1)
    return lambda: rays_port(net, o, d, wrong)


@torch.no_grad()
def rays_port(net, o, d, wrong):
    z = torch.linspace(2.0, 6.0, 9)
    p = torch.addcmul(o[:, None], d[:, None], z[None, :, None])
    by = math.pi if wrong == "frequencies times pi" else 1.0
    angle = torch.einsum("rpc,f->rpfc", p, by * torch.exp2(torch.arange(4.0)))  # wrong: frequencies times pi
    enc = torch.stack([angle.sin(), angle.cos()], 3)
    if wrong == "sines first":
        enc = enc.transpose(2, 3)  # wrong: sines first
    enc = torch.cat([p, enc.reshape(5, 9, 24)], -1)  # wrong: sines first
    raw = net(enc.reshape(-1, 27)).view(5, 9, 4)
    delta = F.pad(z.diff(), (0, 1), value=1e10)
    density = raw[..., 3].clamp(min=0)
    if wrong == "density made soft":
        density = F.softplus(raw[..., 3])  # wrong: density made soft
    tau = density * delta  # wrong: density made soft
    if wrong == "light counts the point itself":
        left = torch.exp(-tau.cumsum(-1))  # wrong: light counts the point itself
    else:
        left = torch.exp(-F.pad(tau.cumsum(-1)[:, :-1], (1, 0)))
    weight = left * (1 - torch.exp(-tau))  # wrong: light counts the point itself
    rgb = torch.sigmoid(raw[..., :3])
    return torch.einsum("rp,rpc->rc", weight, rgb), weight @ z


BOTH = (torch.float32, torch.bfloat16)
ONE = (torch.float32,)
FAMILIES = {
    "wave": (
        wave_a,
        wave_b,
        [
            "",
            "norm over all channels",
            "norm of the features forgotten",
            "weight norm over the outputs",
            "first place cut off",
            "norm before the attention",
            "+half",
        ],
        BOTH,
    ),
    "siglip": (
        siglip_a,
        siglip_b,
        [
            "",
            "columns first",
            "keys and values exchanged",
            "sigmoid for tanh in the activation",
            "sum with what is normed",
            "+half",
        ],
        BOTH,
    ),
    "resnet": (
        resnet_a,
        resnet_b,
        [
            "",
            "eps of another library",
            "padded below and right",
            "pooling without padding",
            "stride in the first convolution",
            "activation before the sum",
            "+channels last",
            "+scripted",
            "+one picture at a time",
            "+mapped over the batch",
            "+half",
        ],
        BOTH,
    ),
    "latent": (
        latent_a,
        latent_b,
        [
            "",
            "number of groups",
            "eps of the groups",
            "padded on all sides",
            "deviation without the half",
            "last convolution of the encoder forgotten",
            "latents not unscaled",
            "enlarged smoothly",
            "+half",
        ],
        BOTH,
    ),
    "fbank": (
        fbank_a,
        fbank_b,
        [
            "",
            "emphasis before the cut",
            "mean of the frame kept",
            "window is periodic",
            "window not raised",
            "magnitudes",
            "logarithm to ten",
            "floor is added",
            "divided by one deviation",
        ],
        ONE,
    ),
    "vocoder": (
        vocoder_a,
        vocoder_b,
        [
            "",
            "slope before the upsampling",
            "kernel not turned round",
            "dilation forgotten",
            "sum not divided",
            "no way round the block",
            "slope at the end",
            "+half",
        ],
        BOTH,
    ),
    "solver": (
        solver_a,
        solver_b,
        ["", "schedule is linear", "input not scaled down", "ratio upside down", "old estimate is the first"],
        ONE,
    ),
    "rays": (
        rays_a,
        rays_b,
        ["", "frequencies times pi", "sines first", "density made soft", "light counts the point itself"],
        ONE,
    ),
}
PARAMETERS = {}
