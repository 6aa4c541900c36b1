"""The pairs: two programs that should compute the same, and where they differ if they do not.

A pair's right answer is the line of side B (or A) marked ``# wrong: <name of the mistake>``, or for a mistake in a
checkpoint the parameter. The numbers themselves say whether a pair is equal: that is checked, not claimed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import generators
import gpt2
import library_models
import llama
import recipes
import refactored
import refactored_training
import reported
import reported_signals
import reported_training
import rewritten
import rewritten_training
import sequences
import serving
import signals
import torch
import training
import vision

HERE = Path(__file__).parent
Program = Callable[[], Any]
Make = Callable[[torch.dtype], Program]
"""Builds a program, not recorded; what it returns is recorded."""


@dataclass(frozen=True)
class Pair:
    family: str
    mistake: str
    a: Make
    b: Make
    parameter: str = ""
    """Of a mistake in a checkpoint: a part of the name of the parameter."""
    words: tuple[str, ...] = ()
    """What names a mistake as well as its line: a setting."""
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16)
    other_dtype: torch.dtype | None = None
    """Of side B, where it is another one."""
    lines: frozenset[tuple[str, int]] = field(default_factory=frozenset)

    @property
    def is_equal(self) -> bool:
        return not self.mistake or self.mistake.startswith("+")

    @property
    def name(self) -> str:
        return f"{self.family}: {self.mistake.lstrip('+') or 'port'}"


def marked() -> dict[str, frozenset[tuple[str, int]]]:
    """By file and mistake: the lines that are the right answer; of a statement on several lines all of them."""
    found: dict[str, set[tuple[str, int]]] = {}
    for path in HERE.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        around = _statements(text)
        for number, line in enumerate(text.splitlines(), 1):
            mark = re.search(r"# wrong: (.*)$", line)
            for mistake in mark[1].split(", ") if mark else ():
                lines = {(path.name, each) for each in around.get(number, (number,))}
                found.setdefault(f"{path.stem}/{mistake}", set()).update(lines)
    return {name: frozenset(lines) for name, lines in found.items()}


def _statements(text: str) -> dict[int, range]:
    """By line: the lines of the statement that it belongs to."""
    found: dict[int, range] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            found.update(dict.fromkeys(lines, lines))
    return found


def mistakes_in(file: str) -> list[str]:
    return [name.partition("/")[2] for name in MARKED if name.startswith(f"{file}/")]


MARKED = marked()


def all_pairs() -> list[Pair]:
    found = [*_gpt2(), *_decoders(), *_vision(), *_sequences(), *_training(), *_reported(), *_later_sets()]
    return [_with_lines(each) for each in found]


def _with_lines(pair: Pair) -> Pair:
    file = {**_FILES, "gpt2": "gpt2", "vit": "vision", "unet": "vision", "t5": "sequences", "lstm": "sequences",
            "cells": "sequences", "training": "training"}.get(pair.family.split()[0], "llama")  # fmt: skip
    lines = MARKED.get(f"{file}/{pair.mistake}", frozenset())
    if not pair.is_equal and not lines and not pair.parameter:
        raise AssertionError(f"no line is marked for {pair.name}")
    return Pair(**{**{name: getattr(pair, name) for name in Pair.__dataclass_fields__}, "lines": lines})


def _gpt2() -> list[Pair]:
    found: list[Pair] = []
    wrong = [*mistakes_in("gpt2"), "transposed weight", "missing bias", "weights of another layer", "one number"]
    for mistake in [*gpt2.EQUAL, *dict.fromkeys(wrong)]:
        found.append(
            Pair("gpt2", mistake, gpt2.run_a, lambda dtype, m=mistake: gpt2.run_b(m, dtype),
                 gpt2.PARAMETERS.get(mistake, ""))
        )  # fmt: skip
    found.append(
        Pair("gpt2 float32 against bfloat16", "", gpt2.run_a, lambda dtype: gpt2.run_b("", dtype),
             dtypes=(torch.float32,), other_dtype=torch.bfloat16)
    )  # fmt: skip
    found.append(Pair("gpt2 itself", "", gpt2.run_a, gpt2.run_a))
    return found


def _decoders() -> list[Pair]:
    of_all = ["", "+gate and up fused", "+fused projections"]
    of_llama = [
        *of_all, "+rms_norm", "+eager", "rope theta", "rope dimension", "+rope from one", "rope scaled", "rope pairing",
        "rope direction", "rope not on keys", "rope on values", "norm eps", "layer norm for rms norm",
        "eps outside the root", "norm with +1", "norm without weight", "no norm before attention",
        "gate and up exchanged", "gelu for silu", "activation on up", "kv repeat order", "scale of width",
        "one weight not loaded",
    ]  # fmt: skip
    of_gemma = [
        *of_all, "+norm spread", "norm without +1", "embedding not scaled", "embedding scaled by width",
        "soft cap of logits missing", "soft cap doubled", "soft cap of scores missing", "post norm missing", "gelu erf",
        "rope theta", "norm eps",
    ]  # fmt: skip
    of_moe = [
        "", "+softmax after top-k", "sigmoid router", "top one", "top smallest", "router not renormalised",
        "router order", "expert transposed", "+rope from one",
    ]  # fmt: skip
    kinds = {
        "llama": (llama.LLAMA, of_llama),
        "llama with a window": (llama.WINDOWED, ["", "+eager", "window off by one", "window forgotten"]),
        "gemma": (llama.GEMMA, of_gemma),
        "moe": (llama.MOE, of_moe),
    }
    found: list[Pair] = []
    for kind, (config, mistakes) in kinds.items():
        for mistake in mistakes:

            def make_a(dtype: torch.dtype, config: llama.Config = config) -> Program:
                model, ids = llama.Decoder(config, dtype).eval(), llama.tokens()
                return lambda: model(ids)

            def make_b(dtype: torch.dtype, config: llama.Config = config, mistake: str = mistake) -> Program:
                model, ids = llama.Port(config, mistake, dtype), llama.tokens()
                return lambda: model(ids)

            parameter = llama.PARAMETERS.get(mistake, "")
            dtypes = (torch.float32,) if kind == "moe" else (torch.float32, torch.bfloat16)
            found.append(Pair(kind, mistake, make_a, make_b, parameter, dtypes=dtypes))
            if kind in ("llama", "gemma") and not mistake:
                found.append(
                    Pair(f"{kind} float32 against bfloat16", "", make_a, make_b, dtypes=(torch.float32,),
                         other_dtype=torch.bfloat16)
                )  # fmt: skip
    for mistake in ["", "cache position", "cache in reverse"]:

        def make_cached(dtype: torch.dtype) -> Program:
            model, ids = llama.Decoder(llama.LLAMA, dtype).eval(), llama.tokens()
            return lambda: model.generate(ids)

        def make_port(dtype: torch.dtype, mistake: str = mistake) -> Program:
            model, ids = llama.Cached(llama.LLAMA, mistake, dtype), llama.tokens()
            return lambda: model(ids)

        found.append(Pair("decoding", mistake, make_cached, make_port))
    return found


def _vision() -> list[Pair]:
    def vit_a(dtype: torch.dtype) -> Program:
        model, x = vision.ViT().to(dtype).eval(), vision.images().to(dtype)
        return lambda: model(x)

    def unet_a(dtype: torch.dtype) -> Program:
        model, x, t = vision.UNet().to(dtype).eval(), vision.images().to(dtype), vision.timesteps()
        return lambda: model(x, t)

    in_vit = [
        "", "image not normalised", "mean and std exchanged", "colours reversed", "patches in columns",
        "pixels transposed", "bilinear positions", "align corners", "class token last",
        "no position for the class token", "mean pooling", "heads interleaved", "layer scale missing",
        "layer scale not loaded", "quick gelu", "patch weight transposed",
    ]  # fmt: skip
    in_unet = [
        "", "+norm by hand", "kernel transposed", "kernel flipped", "groups of the norm", "norm eps",
        "time without silu", "time scales", "shortcut missing", "frequencies off", "sine and cosine exchanged",
        "padding of the stride", "batch norm trains", "upsampled bilinearly", "skip in front", "wrong skip",
    ]  # fmt: skip
    found: list[Pair] = []
    for mistake in in_vit:

        def vit_b(dtype: torch.dtype, mistake: str = mistake) -> Program:
            model, x = vision.ViTPort(mistake, dtype), vision.images().to(dtype)
            return lambda: model(x)

        found.append(Pair("vit", mistake, vit_a, vit_b, vision.VIT_PARAMETERS.get(mistake, "")))
    for mistake in in_unet:

        def unet_b(dtype: torch.dtype, mistake: str = mistake) -> Program:
            model, x, t = vision.UNetPort(mistake, dtype), vision.images().to(dtype), vision.timesteps()
            return lambda: model(x, t)

        found.append(Pair("unet", mistake, unet_a, unet_b, vision.UNET_PARAMETERS.get(mistake, "")))
    return found


def _sequences() -> list[Pair]:
    def t5_a(dtype: torch.dtype) -> Program:
        model, (source, target) = sequences.T5().to(dtype).eval(), sequences.pairs_of_tokens()
        return lambda: model(source, target)

    def lstm_a(dtype: torch.dtype) -> Program:
        model, ids = sequences.Tagger().to(dtype).eval(), sequences.sentence()
        return lambda: model(ids)

    def cells_a(dtype: torch.dtype) -> Program:
        model, ids = sequences.CellTagger().to(dtype).eval(), sequences.sentence()
        return lambda: model(ids)

    in_t5 = [
        "", "+eager", "relative position turned", "decoder counts both ways", "longest distance", "scores scaled",
        "bias in the first layer only", "relu", "gate missing", "encoder norm missing", "cross attends to itself",
        "output not scaled",
    ]  # fmt: skip
    in_lstm = [
        "", "second bias not loaded", "read backwards", "gate order", "forget bias", "sigmoid for tanh",
        "tanh of the cell missing",
    ]  # fmt: skip
    found: list[Pair] = []
    for mistake in in_t5:

        def t5_b(dtype: torch.dtype, mistake: str = mistake) -> Program:
            model, (source, target) = sequences.T5Port(mistake, dtype), sequences.pairs_of_tokens()
            return lambda: model(source, target)

        found.append(Pair("t5", mistake, t5_a, t5_b))
    for mistake in in_lstm:

        def lstm_b(dtype: torch.dtype, mistake: str = mistake) -> Program:
            model, ids = sequences.TaggerPort(mistake, dtype), sequences.sentence()
            return lambda: model(ids)

        parameter = sequences.TAGGER_PARAMETERS.get(mistake, "")
        found.append(Pair("cells", mistake, cells_a, lstm_b, parameter))
        if mistake in ("", "second bias not loaded"):
            found.append(Pair("lstm", mistake, lstm_a, lstm_b, parameter, dtypes=(torch.float32,)))
    return found


def _training() -> list[Pair]:
    def make_a(which: str, clip: bool, schedule: bool) -> Make:
        return lambda dtype: lambda: training.train_a(which, clip, schedule)

    def make_b(which: str, wrong: str, clip: bool, schedule: bool) -> Make:
        return lambda dtype: lambda: training.train_b(which, wrong, clip, schedule)

    of_all = ["", "+foreach", "+one by one"]
    of_loop = [
        "+loss by hand", "+zeroed in place", "label smoothing missing", "loss summed", "padding counted",
        "loss divided by all", "gradients not zeroed", "clipping missing", "clipped by value", "clipped one by one",
        "norm of the clip", "learning rate", "activation detached",
    ]  # fmt: skip
    of_each = {
        "sgd": [*of_all, *of_loop],
        "momentum": [*of_all, "nesterov", "dampening", "weight decay missing", "weight decay"],
        "adam": [*of_all, "adamw for adam", "betas", "amsgrad"],
        "adamw": [*of_all, "+fused", "adam for adamw", "epsilon", "betas", "weight decay missing"],
        "rmsprop": ["", "centered", "alpha"],
        "adagrad": [""],
    }
    found: list[Pair] = []
    for which, mistakes in of_each.items():
        for mistake in mistakes:
            clip = "clip" in mistake or which == "sgd"
            name = f"training {which}"
            found.append(
                Pair(name, mistake, make_a(which, clip, False), make_b(which, mistake, clip, False),
                     dtypes=(torch.float32,), words=_settings(mistake))
            )  # fmt: skip
    for mistake in ["", "schedule off by one"]:
        found.append(
            Pair("training with a schedule", mistake, make_a("sgd", False, True), make_b("sgd", mistake, False, True),
                 dtypes=(torch.float32,), words=("lr", "alpha"))
        )  # fmt: skip
    for which, mistakes in {
        "sgd": [""], "momentum": ["", "decay forgotten"], "adamw": ["", "no bias correction", "eps in the root"],
    }.items():  # fmt: skip
        for mistake in mistakes:
            found.append(
                Pair(f"training {which} by hand", mistake, make_a(which, True, False),
                     lambda dtype, w=which, m=mistake: lambda: training.by_hand(w, m), dtypes=(torch.float32,))
            )  # fmt: skip
    for mistake in ["", "accumulated without dividing"]:
        found.append(
            Pair("training accumulated", mistake, make_a("sgd", False, False),
                 lambda dtype, m=mistake: lambda: training.accumulated(m), dtypes=(torch.float32,))
        )  # fmt: skip
    return found


_FILES = {
    **dict.fromkeys(("neox", "bert", "mamba", "adapted"), "reported"),
    **dict.fromkeys(("swin", "convnet", "listener", "sampler", "graph"), "reported_signals"),
    **dict.fromkeys(("tiny", "policy"), "reported_training"),
    **dict.fromkeys(("qwen", "deepseek", "bloom", "decode"), "serving"),
    **dict.fromkeys(("efficient", "dit", "euler", "clip", "detector", "speech"), "generators"),
    **dict.fromkeys(("trainer", "optim", "student", "prefer"), "recipes"),
    **dict.fromkeys(library_models.FAMILIES, "library_models"),
    **dict.fromkeys(signals.FAMILIES, "signals"),
    **dict.fromkeys(rewritten_training.FAMILIES, "rewritten_training"),
    **dict.fromkeys(refactored.FAMILIES, "refactored"),
    **dict.fromkeys((name.split()[0] for name in refactored_training.FAMILIES), "refactored_training"),
}
_PARAMETERS = {"decoder bias not loaded": "bias", "bias of the merged adapter not scaled": "base.bias"}


def _reported() -> list[Pair]:
    """Pairs after public bug reports; they were judged once before anything was learnt from them (docs/diff.md)."""
    both = (torch.float32, torch.bfloat16)
    one = (torch.float32,)
    families = {
        "neox": (reported.neox_a, reported.neox_b, reported.NEOX, both),
        "bert": (reported.bert_a, reported.bert_b, reported.BERT, both),
        "mamba": (reported.mamba_a, reported.mamba_b, reported.MAMBA, both),
        "adapted": (reported.adapted_a, reported.adapted_b, reported.ADAPTED, both),
        "swin": (reported_signals.swin_a, reported_signals.swin_b, reported_signals.SWIN, both),
        "convnet": (reported_signals.convnet_a, reported_signals.convnet_b, reported_signals.CONVNET, both),
        "listener": (reported_signals.listener_a, reported_signals.listener_b, reported_signals.LISTENER, one),
        "sampler": (reported_signals.sampler_a, reported_signals.sampler_b, reported_signals.SAMPLER, one),
        "graph": (reported_signals.graph_a, reported_signals.graph_b, reported_signals.GRAPH, one),
        "tiny": (lambda dtype: reported_training.train_a, _without_dtype(reported_training.train_b),
                 reported_training.TINY, one),
        "policy": (lambda dtype: reported_training.policy_a, _without_dtype(reported_training.policy_b),
                   reported_training.POLICY, one),
    }  # fmt: skip
    return [
        Pair(family, mistake, a, lambda dtype, b=b, m=mistake: b(m, dtype), _PARAMETERS.get(mistake, ""), dtypes=dtypes)
        for family, (a, b, mistakes, dtypes) in families.items()
        for mistake in mistakes
    ]


def _later_sets() -> list[Pair]:
    """Further pairs after public bug reports, and programs written anew; each set was judged once before anything was
    learnt from it (docs/diff.md).
    """
    found: list[Pair] = []
    sets = (
        serving, generators, recipes, rewritten, library_models, signals, rewritten_training, refactored,
        refactored_training,
    )  # fmt: skip
    for module in sets:
        for family, (a, b, mistakes, dtypes) in module.FAMILIES.items():
            for mistake in mistakes:
                in_half = mistake == "+half"
                found.append(
                    Pair(family, mistake, a, lambda dtype, b=b, m=mistake: b(m, dtype),
                         module.PARAMETERS.get((family, mistake), ""),
                         dtypes=(torch.float32,) if in_half else dtypes,
                         other_dtype=torch.bfloat16 if in_half else None)
                )  # fmt: skip
    return found


def _without_dtype(run: Callable[[str], Any]) -> Callable[[str, torch.dtype], Program]:
    return lambda mistake, dtype: lambda: run(mistake)


def _settings(mistake: str) -> tuple[str, ...]:
    return {"label smoothing missing": ("label_smoothing",)}.get(mistake, ())
