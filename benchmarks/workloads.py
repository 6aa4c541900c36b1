"""The programs whose slowdown is measured: two transformers, many tiny operations, a training step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Workload:
    """One program. `repeat` runs make one measurement, so that short ones are not lost in the clock."""

    name: str
    model: nn.Module
    inputs: dict[str, Any] = field(repr=False)
    once: Callable[[], Any] = field(repr=False)
    repeat: int = 1
    training: bool = False

    def run(self) -> None:
        for _ in range(self.repeat):
            self.once()


def build() -> list[Workload]:
    """All workloads, with the same weights every time."""
    torch.manual_seed(0)
    return [gpt2_forward(), tiny_ops(), _forward("Llama 8×256", *llama()), training_step()]


def gpt2_forward() -> Workload:
    """The usual case: a transformer of twelve layers."""
    return _forward("GPT-2 12×256", *gpt2())


def gpt2() -> tuple[nn.Module, dict[str, Any]]:
    """Twelve layers of 256, and an input."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 12, "n_embd": 256, "n_head": 4, "vocab_size": 1000}
    config = GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    return GPT2LMHeadModel(config).eval(), {"input_ids": torch.randint(0, 1000, (1, 64))}


def llama() -> tuple[nn.Module, dict[str, Any]]:
    """Eight layers of 256, and an input."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 8, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=1000)).eval()
    return model, {"input_ids": torch.randint(0, 1000, (1, 64))}


class Tiny(nn.Module):
    """Sixty small layers, called one after the other by a forward of the program's own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer for _ in range(60) for layer in (nn.Linear(64, 64), nn.ReLU()))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            hidden_states = layer(hidden_states)
        return hidden_states


def tiny_ops() -> Workload:
    """The cost of an event without work to hide behind."""
    return _forward("60×[Linear, ReLU]", Tiny().eval(), {"hidden_states": torch.randn(4, 64)}, repeat=5)


def _forward(name: str, model: nn.Module, inputs: dict[str, Any], repeat: int = 1) -> Workload:
    def once() -> None:
        with torch.no_grad():
            model(**inputs)

    return Workload(name, model, inputs, once, repeat)


def training_step() -> Workload:
    """Forward, loss, backward and an AdamW step of the first model."""
    model, inputs = gpt2()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def once() -> None:
        optimizer.zero_grad()
        model(**inputs, labels=inputs["input_ids"]).loss.backward()
        optimizer.step()

    return Workload("training step", model, inputs, once, training=True)
