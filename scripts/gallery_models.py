"""Small models of the kinds that people draw, for the gallery: each gives what is to be recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Run = Callable[[], Any]


class Residual(nn.Module):
    """The basic block of a ResNet."""

    def __init__(self, channels: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.skip = nn.Conv2d(channels, out, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + self.skip(x))


class ResNet(nn.Module):
    """A small ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 7, stride=2, padding=3)
        self.layer1 = nn.Sequential(Residual(16, 16), Residual(16, 16))
        self.layer2 = nn.Sequential(Residual(16, 32, 2), Residual(32, 32))
        self.head = nn.Linear(32, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.stem(image).relu(), 2)
        x = self.layer2(self.layer1(x))
        return self.head(x.mean((2, 3)))


class Double(nn.Module):
    """Two convolutions."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, out, 3, padding=1)
        self.second = nn.Conv2d(out, out, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu()).relu()


class Up(nn.Module):
    """Half of a U-Net's way up."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, out, 2, stride=2)
        self.convs = Double(2 * out, out)

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        return self.convs(torch.cat([skip, self.up(x)], dim=1))


class UNet(nn.Module):
    """Three levels down, three up, with skips."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(2)
        self.enter = Double(3, width)
        self.down1, self.down2 = Double(width, 2 * width), Double(2 * width, 4 * width)
        self.bottom = Double(4 * width, 8 * width)
        self.up2, self.up1, self.up0 = Up(8 * width, 4 * width), Up(4 * width, 2 * width), Up(2 * width, width)
        self.leave = nn.Conv2d(width, 2, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        s0 = self.enter(image)
        s1 = self.down1(self.pool(s0))
        s2 = self.down2(self.pool(s1))
        x = self.bottom(self.pool(s2))
        x = self.up2(x, s2)
        x = self.up1(x, s1)
        x = self.up0(x, s0)
        return self.leave(x)


class Expert(nn.Module):
    """One expert."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.up(x)))


class Mixture(nn.Module):
    """A mixture of experts: each token goes to the two that its router likes best."""

    def __init__(self, width: int = 32, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Expert(width) for _ in range(experts))
        self.shared = Expert(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, 1)
        scores = self.router(tokens).softmax(-1)
        weights, chosen = scores.topk(2, dim=-1)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, slots = torch.where(chosen == number)
            out = out.index_add(0, rows, expert(tokens[rows]) * weights[rows, slots, None])
        return (out + self.shared(tokens)).view_as(x)


def mlp() -> Run:
    """A multilayer perceptron."""
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    x = torch.randn(16, 8)
    return lambda: model(x)


def resnet() -> Run:
    """A residual network for images."""
    model, image = ResNet(), torch.randn(2, 3, 64, 64)
    return lambda: model(image)


def gpt2() -> Run:
    """GPT-2, twelve layers, as transformers has it."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes: dict[str, Any] = {"n_layer": 12, "n_embd": 128, "n_head": 4, "vocab_size": 1000, "n_positions": 64}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()
    tokens = torch.randint(0, 1000, (2, 32))
    return lambda: model(tokens)


def encoder_decoder() -> Run:
    """T5: an encoder, a decoder, and attention across."""
    from transformers import T5Config, T5ForConditionalGeneration

    sizes: dict[str, Any] = {"num_layers": 3, "d_model": 64, "d_ff": 128, "d_kv": 16, "num_heads": 4, "vocab_size": 500}
    sizes["decoder_start_token_id"] = 0
    model = T5ForConditionalGeneration(T5Config(**sizes)).eval()
    source, target = torch.randint(1, 500, (2, 20)), torch.randint(1, 500, (2, 9))
    return lambda: model(input_ids=source, decoder_input_ids=target)


def unet() -> Run:
    """A U-Net: skips from the way down to the way up."""
    model, image = UNet(), torch.randn(1, 3, 64, 64)
    return lambda: model(image)


def experts() -> Run:
    """A mixture of experts."""
    model, x = Mixture(), torch.randn(2, 24, 32)
    return lambda: model(x)


MODELS: dict[str, Callable[[], Run]] = {
    "mlp": mlp, "resnet": resnet, "gpt2": gpt2, "encoder-decoder": encoder_decoder, "unet": unet, "experts": experts,
}  # fmt: skip
