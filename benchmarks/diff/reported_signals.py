"""Mistakes that public bug reports tell of, rebuilt small: pictures, sound, samplers and graphs."""

import math

import torch
import torch.nn.functional as F
from reported import integers, seeded
from torch import nn

# ---------------------------------------------------------------- Swin: windows that are shifted


def window_index(size: int) -> torch.Tensor:
    places = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")).flatten(1)
    apart = (places[:, :, None] - places[:, None, :]).permute(1, 2, 0) + size - 1
    return apart[:, :, 0] * (2 * size - 1) + apart[:, :, 1]


class WindowAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)
        self.relative_position_bias_table = nn.Parameter(torch.zeros(49, 2))
        self.register_buffer("relative_position_index", window_index(4))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        w, n, _ = x.shape
        q, k, v = self.qkv(x).reshape(w, n, 3, 2, 8).permute(2, 0, 3, 1, 4)
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)].view(n, n, 2).permute(2, 0, 1)
        attn = (q * 8**-0.5) @ k.transpose(-2, -1) + bias
        if mask is not None:
            attn = attn.view(-1, 4, 2, n, n) + mask[None, :, None]  # wrong: mask of the shift missing
            attn = attn.view(-1, 2, n, n)
        return self.proj((attn.softmax(-1) @ v).transpose(1, 2).reshape(w, n, 16))


class SwinBlock(nn.Module):
    def __init__(self, shift: int) -> None:
        super().__init__()
        self.shift = shift
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(16), WindowAttention(), nn.LayerNorm(16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        parts = torch.zeros(1, 8, 8, 1)
        cuts = (slice(0, -4), slice(-4, -2), slice(-2, None))
        for number, (h, w) in enumerate((h, w) for h in cuts for w in cuts):
            parts[:, h, w] = number
        flat = self.windows(parts).squeeze(-1)
        mask = (flat[:, None] - flat[:, :, None]).ne(0).float() * -100.0
        self.register_buffer("mask", mask if shift else None)

    @staticmethod
    def windows(x: torch.Tensor) -> torch.Tensor:
        b, h, w, c = x.shape
        return x.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut, x = x, self.norm1(x)
        if self.shift:
            x = torch.roll(x, shifts=(-self.shift, -self.shift), dims=(1, 2))  # wrong: shifted the other way
        x = self.attn(self.windows(x), self.mask)
        x = x.view(-1, 2, 2, 4, 4, 16).permute(0, 1, 3, 2, 4, 5).reshape(-1, 8, 8, 16)
        if self.shift:
            x = torch.roll(x, shifts=(self.shift, self.shift), dims=(1, 2))  # wrong: not shifted back
        x = shortcut + x
        return x + self.mlp(self.norm2(x))


class Swin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 16, 2, 2)
        self.blocks = nn.ModuleList([SwinBlock(0), SwinBlock(2)])
        self.norm, self.reduction = nn.LayerNorm(64), nn.Linear(64, 24, bias=False)
        self.head = nn.Linear(24, 7)
        seeded(71, self)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.embed(image).permute(0, 2, 3, 1)
        for block in self.blocks:
            x = block(x)
        x = torch.cat(
            [x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], dim=-1
        )  # wrong: merging in another order
        return self.head(self.reduction(self.norm(x)).mean(dim=(1, 2)))


class SwinPort:
    def __init__(self, wrong: str, dtype: torch.dtype) -> None:
        self.wrong = wrong
        state = {name: value.detach() for name, value in Swin().state_dict().items()}
        self.w = {name: value.to(dtype) if value.is_floating_point() else value for name, value in state.items()}

    def lin(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self.w[f"{name}.weight"], self.w.get(f"{name}.bias"))

    def ln(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-1:], self.w[f"{name}.weight"], self.w[f"{name}.bias"])

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        w, wrong = self.w, self.wrong
        x = F.conv2d(image, w["embed.weight"], w["embed.bias"], 2).movedim(1, -1)
        for i, shift in enumerate((0, 2)):
            p = f"blocks.{i}."
            y = self.ln(x, p + "norm1")
            if shift:
                y = y.roll(
                    (shift, shift) if wrong == "shifted the other way" else (-shift, -shift), (1, 2)
                )  # wrong: shifted the other way
            y = y.unflatten(1, (2, 4)).unflatten(3, (2, 4)).transpose(2, 3).flatten(3, 4).flatten(1, 2)
            y = self.attend(y, p + "attn.", w.get(p + "mask"))
            y = y.unflatten(1, (2, 2)).unflatten(3, (4, 4)).transpose(2, 3).flatten(3, 4).flatten(1, 2)
            if shift and wrong != "not shifted back":
                y = y.roll(
                    (-shift, -shift) if wrong == "shifted the other way" else (shift, shift), (1, 2)
                )  # wrong: shifted the other way
            x = x + y  # wrong: not shifted back
            x = x + self.lin(F.gelu(self.lin(self.ln(x, p + "norm2"), p + "mlp.0")), p + "mlp.2")
        if wrong == "merging in another order":
            x = (
                F.pixel_unshuffle(x.movedim(-1, 1), 2)
                .unflatten(1, (16, 4))
                .transpose(1, 2)
                .flatten(1, 2)
                .movedim(1, -1)
            )  # wrong: merging in another order
        else:
            x = torch.cat([x[:, a::2, c::2] for c in (0, 1) for a in (0, 1)], -1)  # wrong: merging in another order
        x = self.lin(self.ln(x, "norm"), "reduction")  # wrong: merging in another order
        return self.lin(x.flatten(1, 2).mean(1), "head")

    def attend(self, x: torch.Tensor, p: str, mask: torch.Tensor | None) -> torch.Tensor:
        w, wrong = self.w, self.wrong
        n = x.shape[2]
        q, k, v = self.lin(x, p + "qkv").unflatten(-1, (3, 2, 8)).permute(3, 0, 1, 4, 2, 5)
        index = w[p + "relative_position_index"]
        if wrong == "relative position turned":
            index = index.t()  # wrong: relative position turned
        bias = w[p + "relative_position_bias_table"][index.reshape(-1)]  # wrong: relative position turned
        bias = bias.view(n, n, 2).permute(2, 0, 1)
        if mask is not None and wrong != "mask of the shift missing":
            bias = bias + mask[None, :, None]
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias.expand((*q.shape[:-1], n))
        )  # wrong: mask of the shift missing, relative position turned
        return self.lin(out.transpose(2, 3).flatten(3), p + "proj")


def photo(size: int = 16) -> torch.Tensor:
    torch.manual_seed(72)
    return torch.rand(2, 3, size, size)


def swin_a(dtype: torch.dtype) -> object:
    model, x = Swin().to(dtype), photo().to(dtype)
    return lambda: model(x)


def swin_b(wrong: str, dtype: torch.dtype) -> object:
    model, x = SwinPort(wrong, dtype), photo().to(dtype)
    return lambda: model(x)


SWIN = ["", "shifted the other way", "not shifted back", "merging in another order", "relative position turned",
        "mask of the shift missing"]  # fmt: skip


# ---------------------------------------------------------------- a convolutional network as TensorFlow pads it


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn1 = nn.Conv2d(3, 12, 3, 2, bias=False), nn.BatchNorm2d(12, eps=1e-3)
        self.depth = nn.Conv2d(12, 12, 3, padding=1, groups=12, padding_mode="reflect", bias=False)
        self.bn2 = nn.BatchNorm2d(12, eps=1e-3)
        self.squeeze, self.excite = nn.Conv2d(12, 4, 1), nn.Conv2d(4, 12, 1)
        self.project = nn.Conv2d(12, 8, 1, bias=False)
        self.up = nn.ConvTranspose2d(8, 8, 3, stride=2, padding=1, output_padding=1)
        self.out = nn.Conv2d(8, 3, 1)
        seeded(73, self)
        for each in (self.bn1, self.bn2):
            each.running_mean.normal_(0, 0.2)
            each.running_var.uniform_(0.05, 0.5)

    def forward(self, x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        x = F.silu(self.bn1(self.stem(F.pad(x, (0, 1, 0, 1)))))
        x = F.silu(self.bn2(self.depth(x)))
        gate = torch.sigmoid(self.excite(F.silu(self.squeeze(x.mean((2, 3), keepdim=True)))))
        x = self.up(self.project(x * gate))  # wrong: gate missing
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        x = F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        return self.out(F.leaky_relu(x, 0.1))


def convnet_port(w: dict[str, torch.Tensor], x: torch.Tensor, grid: torch.Tensor, wrong: str) -> torch.Tensor:
    def norm(x: torch.Tensor, p: str) -> torch.Tensor:
        eps = 1e-5 if wrong == "eps of the default" else 1e-3
        if wrong == "+norm folded":
            scale = w[p + ".weight"] / (w[p + ".running_var"] + eps).sqrt()
            return x * scale.view(1, -1, 1, 1) + (w[p + ".bias"] - w[p + ".running_mean"] * scale).view(1, -1, 1, 1)
        args = (w[p + ".running_mean"], w[p + ".running_var"], w[p + ".weight"], w[p + ".bias"])
        return F.batch_norm(
            x, *args, training=wrong == "norm in training", eps=eps
        )  # wrong: eps of the default, norm in training

    if wrong == "padding on both sides":
        x = F.conv2d(x, w["stem.weight"], stride=2, padding=1)  # wrong: padding on both sides
    else:
        x = F.conv2d(F.pad(x, (0, 1, 0, 1)), w["stem.weight"], stride=2)  # wrong: padding on both sides
    x = F.silu(norm(x, "bn1"))
    mode = "replicate" if wrong == "padding mode" else "reflect"
    x = F.pad(x, (1, 1, 1, 1), mode=mode)  # wrong: padding mode
    x = F.conv2d(x, w["depth.weight"], groups=12)  # wrong: padding mode
    x = F.silu(norm(x, "bn2"))
    s = F.adaptive_avg_pool2d(x, 1)
    s = F.silu(F.conv2d(s, w["squeeze.weight"], w["squeeze.bias"]))
    s = F.conv2d(s, w["excite.weight"], w["excite.bias"])
    if wrong == "hard sigmoid":
        s = F.hardsigmoid(s)  # wrong: hard sigmoid
    else:
        s = s.sigmoid()  # wrong: hard sigmoid
    if wrong != "gate missing":
        x = x * s  # wrong: hard sigmoid
    x = F.conv2d(x, w["project.weight"])  # wrong: gate missing
    if wrong == "output padding on the other side":
        x = F.conv_transpose2d(x, w["up.weight"], w["up.bias"], stride=2)[
            :, :, :-1, :-1
        ]  # wrong: output padding on the other side
    else:
        x = F.conv_transpose2d(
            x, w["up.weight"], w["up.bias"], stride=2, padding=1, output_padding=1
        )  # wrong: output padding on the other side
    x = F.interpolate(
        x, scale_factor=2, mode="bilinear", align_corners=wrong == "corners of the upsampling"
    )  # wrong: corners of the upsampling
    corners = wrong == "corners of the grid"
    x = F.grid_sample(x, grid, align_corners=corners)  # wrong: corners of the grid
    x = F.leaky_relu(x, 0.01 if wrong == "slope of the default" else 0.1)  # wrong: slope of the default
    return F.conv2d(x, w["out.weight"], w["out.bias"])


def sampling_grid() -> torch.Tensor:
    torch.manual_seed(74)
    return torch.rand(2, 10, 10, 2) * 2 - 1


def convnet_a(dtype: torch.dtype) -> object:
    model, x, grid = ConvNet().to(dtype), photo().to(dtype), sampling_grid().to(dtype)
    return lambda: model(x, grid)


def convnet_b(wrong: str, dtype: torch.dtype) -> object:
    w = {name: value.detach().to(dtype) for name, value in ConvNet().state_dict().items() if value.is_floating_point()}
    x, grid = photo().to(dtype), sampling_grid().to(dtype)
    if wrong == "+channels last":
        x = x.contiguous(memory_format=torch.channels_last)
    return lambda: convnet_port(w, x, grid, wrong)


CONVNET = ["", "+norm folded", "+channels last", "eps of the default", "norm in training", "padding on both sides", "padding mode",
           "hard sigmoid", "gate missing", "output padding on the other side", "corners of the upsampling",
           "corners of the grid", "slope of the default"]  # fmt: skip


# ---------------------------------------------------------------- sound: a spectrogram and what hears it


class Listener(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("filters", torch.zeros(8, 17))
        self.conv1, self.conv2 = nn.Conv1d(8, 16, 3, padding=1), nn.Conv1d(16, 16, 3, stride=2, padding=1)
        self.attn_norm = nn.LayerNorm(16)
        self.query, self.key, self.value = nn.Linear(16, 16), nn.Linear(16, 16, bias=False), nn.Linear(16, 16)
        self.out, self.head = nn.Linear(16, 16), nn.Linear(16, 9)
        seeded(81, self)
        torch.manual_seed(82)
        self.filters.copy_(torch.rand(8, 17))

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        window = torch.hann_window(32)
        spectrum = torch.stft(sound, 32, 16, window=window, return_complex=True)[..., :-1]
        power = spectrum.abs() ** 2  # wrong: magnitude for power
        log = torch.clamp(self.filters @ power, min=1e-10).log10()
        log = torch.maximum(log, log.amax(dim=(1, 2), keepdim=True) - 0.8)
        mel = (log + 4.0) / 4.0
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).permute(0, 2, 1)
        n = x.shape[1]
        scales = torch.exp(-math.log(10000) / 7 * torch.arange(8))
        angles = torch.arange(n)[:, None] * scales[None, :]
        x = x + torch.cat([angles.sin(), angles.cos()], dim=1)
        y = self.attn_norm(x)
        q, k, v = (each(y).view(-1, n, 2, 8).transpose(1, 2) for each in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q * 8**-0.25, k * 8**-0.25, v, scale=1.0)
        return self.head(x + self.out(y.transpose(1, 2).reshape(x.shape)))


def listener_port(w: dict[str, torch.Tensor], sound: torch.Tensor, wrong: str) -> torch.Tensor:
    window = torch.hann_window(32, periodic=wrong != "window not periodic")  # wrong: window not periodic
    if wrong == "not centred":
        frames = F.pad(sound, (0, 32)).unfold(-1, 32, 16)[:, :-1]  # wrong: not centred
    else:
        frames = F.pad(sound[:, None], (16, 16), mode="reflect")[:, 0].unfold(-1, 32, 16)[:, :-1]  # wrong: not centred
    spectrum = torch.fft.rfft(frames * window, dim=-1).mT  # wrong: window not periodic
    if wrong == "magnitude for power":
        power = spectrum.abs()  # wrong: magnitude for power
    else:
        power = spectrum.real**2 + spectrum.imag**2  # wrong: magnitude for power
    mel = w["filters"] @ power
    if wrong == "natural logarithm":
        log = mel.clamp(1e-10).log()  # wrong: natural logarithm
    elif wrong == "floor added":
        log = (mel + 1e-1).log10()  # wrong: floor added
    else:
        log = mel.clamp(1e-10).log10()  # wrong: natural logarithm, floor added
    top = (
        log.max() if wrong == "loudest of the batch" else log.flatten(1).max(1).values[:, None, None]
    )  # wrong: loudest of the batch
    log = (
        log.clamp(min=top - 0.8) if wrong == "loudest of the batch" else torch.maximum(log, top - 0.8)
    )  # wrong: loudest of the batch
    x = log / 4 + 1
    x = F.gelu(F.conv1d(x, w["conv1.weight"], w["conv1.bias"], padding=1))
    x = F.gelu(F.conv1d(x, w["conv2.weight"], w["conv2.bias"], 2, 1)).mT
    n = x.shape[1]
    step = math.log(10000) / (8 if wrong == "time scales" else 7)
    t = torch.outer(torch.arange(n), torch.exp(torch.arange(8) * -step))  # wrong: time scales
    if wrong == "sine and cosine in turn":
        place = torch.stack((t.sin(), t.cos()), -1).flatten(1)  # wrong: sine and cosine in turn
    else:
        place = torch.cat((t.sin(), t.cos()), 1)  # wrong: sine and cosine in turn, time scales
    x = x + place  # wrong: sine and cosine in turn
    y = F.layer_norm(x, (16,), w["attn_norm.weight"], w["attn_norm.bias"])
    q = F.linear(y, w["query.weight"], w["query.bias"]).unflatten(-1, (2, 8)).transpose(1, 2)
    bias = w["value.bias"] if wrong == "bias on the keys" else None
    k = F.linear(y, w["key.weight"], bias).unflatten(-1, (2, 8)).transpose(1, 2)  # wrong: bias on the keys
    v = F.linear(y, w["value.weight"], w["value.bias"]).unflatten(-1, (2, 8)).transpose(1, 2)
    p = (q @ k.mT / math.sqrt(8)).softmax(-1)
    y = F.linear((p @ v).transpose(1, 2).flatten(2), w["out.weight"], w["out.bias"])
    return F.linear(x + y, w["head.weight"], w["head.bias"])


def listener_a(dtype: torch.dtype) -> object:
    model = Listener().to(dtype)
    torch.manual_seed(83)
    sound = torch.randn(2, 320) * torch.tensor([[0.1], [1.0]])
    return lambda: model(sound)


def listener_b(wrong: str, dtype: torch.dtype) -> object:
    w = {name: value.detach().to(dtype) for name, value in Listener().state_dict().items()}
    torch.manual_seed(83)
    sound = torch.randn(2, 320) * torch.tensor([[0.1], [1.0]])
    return lambda: listener_port(w, sound, wrong)


LISTENER = ["", "window not periodic", "not centred", "magnitude for power", "natural logarithm", "floor added",
            "loudest of the batch", "time scales", "sine and cosine in turn"]  # fmt: skip


# ---------------------------------------------------------------- a sampler of diffusion, with guidance


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16))
        self.label = nn.Embedding(5, 16)
        self.conv_in, self.conv_out = nn.Conv2d(4, 16, 3, padding=1), nn.Conv2d(16, 4, 3, padding=1)
        self.norm, self.mid = nn.GroupNorm(4, 16, eps=1e-6), nn.Conv2d(16, 16, 3, padding=1)
        seeded(91, self)

    def forward(self, x: torch.Tensor, t: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        half = torch.exp(-math.log(10000) * torch.arange(8) / 8)
        angles = t[:, None].float() * half
        embedded = self.time(torch.cat([angles.cos(), angles.sin()], dim=-1)) + self.label(label)
        h = self.conv_in(x) + embedded[:, :, None, None]
        return self.conv_out(h + self.mid(F.silu(self.norm(h))))


def alphas() -> torch.Tensor:
    return torch.cumprod(1 - torch.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2, dim=0)


def sample(model: nn.Module, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """The reference: DDIM with guidance, both conditions in one batch."""
    bars = alphas()
    for t in (801, 601, 401, 201, 1):
        both = model(torch.cat([x, x]), torch.full((2 * len(x),), t), torch.cat([torch.zeros_like(label), label]))
        without, conditional = both.chunk(2)
        noise = without + 3.0 * (conditional - without)
        now = bars[t]
        then = bars[t - 200] if t >= 200 else bars[0]
        clean = (x - (1 - now).sqrt() * noise) / now.sqrt()
        x = then.sqrt() * clean + (1 - then).sqrt() * noise
    return x / 0.18215


def sample_port(model: nn.Module, x: torch.Tensor, label: torch.Tensor, wrong: str) -> torch.Tensor:
    a = alphas()
    if wrong == "betas not squared":
        a = torch.cumprod(1 - torch.linspace(0.00085, 0.012, 1000), 0)  # wrong: betas not squared
    shift = 0 if wrong == "steps from zero" else 1
    for i in range(5):
        step = 800 - 200 * i + shift
        t = torch.full((len(x),), step)  # wrong: steps from zero
        cond = model(x, t, label)  # wrong: steps from zero
        free = model(x, t, torch.zeros_like(label))  # wrong: steps from zero
        if wrong == "conditions exchanged":
            eps = cond + 3.0 * (free - cond)  # wrong: conditions exchanged
        elif wrong == "guidance counted from one":
            eps = cond + 3.0 * (cond - free)  # wrong: guidance counted from one
        else:
            eps = torch.lerp(free, cond, 3.0)  # wrong: conditions exchanged, guidance counted from one
        at = a[step]  # wrong: betas not squared, steps from zero
        before = step - 200
        if wrong == "end at one":
            prev = a[before] if before >= 0 else torch.tensor(1.0)  # wrong: end at one
        else:
            prev = a[max(before, 0)]  # wrong: end at one
        if wrong == "velocity for noise":
            x0 = at.sqrt() * x - (1 - at).sqrt() * eps  # wrong: velocity for noise
        else:
            x0 = (x - (1 - at).sqrt() * eps) / at.sqrt()  # wrong: velocity for noise, betas not squared
        if wrong == "clipped":
            x0 = x0.clamp(-1, 1)  # wrong: clipped
        x = prev.sqrt() * x0 + (1 - prev).sqrt() * eps  # wrong: clipped, end at one, velocity for noise
    if wrong == "scale of the latents multiplied":
        return x * 0.18215  # wrong: scale of the latents multiplied
    return x / 0.18215  # wrong: scale of the latents multiplied


def sampler_a(dtype: torch.dtype) -> object:
    model, label = Denoiser(), integers(92, 5, 2)
    x = torch.randn(2, 4, 8, 8)
    return lambda: sample(model, x, label)


def sampler_b(wrong: str, dtype: torch.dtype) -> object:
    model, label = Denoiser(), integers(92, 5, 2)
    x = torch.randn(2, 4, 8, 8)
    return lambda: sample_port(model, x, label, wrong)


SAMPLER = ["", "betas not squared", "steps from zero", "conditions exchanged", "guidance counted from one", "end at one",
           "velocity for noise", "clipped", "scale of the latents multiplied"]  # fmt: skip


# ---------------------------------------------------------------- graphs


class GraphNet(nn.Module):
    """A convolution over a graph, then attention over it, with scatters as libraries for graphs write it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.bias = nn.Linear(12, 16, bias=False), nn.Parameter(torch.zeros(16))
        self.lin = nn.Linear(16, 16, bias=False)
        self.att_src, self.att_dst = nn.Parameter(torch.zeros(1, 16)), nn.Parameter(torch.zeros(1, 16))
        self.head = nn.Linear(16, 4)
        seeded(95, self)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        n = len(x)
        loops = torch.arange(n).expand(2, n)
        source, target = torch.cat([edges, loops], dim=1)
        degree = torch.zeros(n).scatter_add_(0, target, torch.ones(len(target)))
        inverse = degree.pow(-0.5)
        weight = inverse[source] * inverse[target]
        h = self.first(x)
        h = torch.zeros(n, 16).index_add_(0, target, h[source] * weight[:, None]) + self.bias
        h = self.lin(F.elu(h))
        scores = (h * self.att_src).sum(-1)[source] + (h * self.att_dst).sum(-1)[target]
        scores = F.leaky_relu(scores, 0.2)
        top = torch.zeros(n).scatter_reduce_(0, target, scores, "amax", include_self=False)
        scores = (scores - top[target]).exp()
        total = torch.zeros(n).scatter_add_(0, target, scores)
        h = torch.zeros(n, 16).index_add_(0, target, h[source] * (scores / total[target])[:, None])
        return self.head(h)


def graph_port(w: dict[str, torch.Tensor], x: torch.Tensor, edges: torch.Tensor, wrong: str) -> torch.Tensor:
    """The same with dense matrices."""
    n = len(x)
    adjacency = torch.zeros(n, n)
    adjacency[edges[1], edges[0]] = 1.0
    if wrong == "edges turned":
        adjacency = adjacency.t()  # wrong: edges turned
    with_loops = adjacency + torch.eye(n)  # wrong: edges turned
    if wrong == "loops missing":
        with_loops = adjacency + 1e-9  # wrong: loops missing
    degree = with_loops.sum(1)  # wrong: loops missing
    if wrong == "normalised by rows":
        norm = with_loops / degree[:, None]  # wrong: normalised by rows
    else:
        norm = with_loops * degree.rsqrt()[:, None] * degree.rsqrt()[None, :]  # wrong: normalised by rows
    h = norm @ (x @ w["first.weight"].t()) + w["bias"]  # wrong: normalised by rows, edges turned, loops missing
    if wrong == "relu for elu":
        h = F.relu(h)  # wrong: relu for elu
    else:
        h = F.elu(h)  # wrong: relu for elu
    h = h @ w["lin.weight"].t()
    e = (h @ w["att_dst"][0])[:, None] + (h @ w["att_src"][0])[None, :]
    if wrong == "source and target exchanged":
        e = (h @ w["att_src"][0])[:, None] + (h @ w["att_dst"][0])[None, :]  # wrong: source and target exchanged
    e = F.leaky_relu(
        e, 0.01 if wrong == "slope of the default" else 0.2
    )  # wrong: slope of the default, source and target exchanged
    e = e.masked_fill((adjacency + torch.eye(n)) == 0, -torch.inf)
    p = e.softmax(
        0 if wrong == "softmax over sources" else 1
    )  # wrong: softmax over sources, slope of the default, source and target exchanged
    return F.linear(p @ h, w["head.weight"], w["head.bias"])  # wrong: softmax over sources


def graph() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(96)
    pairs = torch.randperm(13 * 13)[:50]
    edges = torch.stack((pairs // 13, pairs % 13))
    return torch.randn(13, 12), edges[:, edges[0] != edges[1]]


def graph_a(dtype: torch.dtype) -> object:
    model, given = GraphNet(), graph()
    return lambda: model(*given)


def graph_b(wrong: str, dtype: torch.dtype) -> object:
    w = {name: value.detach() for name, value in GraphNet().state_dict().items()}
    given = graph()
    return lambda: graph_port(w, *given, wrong)


GRAPH = ["", "edges turned", "loops missing", "normalised by rows", "relu for elu", "source and target exchanged",
         "slope of the default", "softmax over sources"]  # fmt: skip
