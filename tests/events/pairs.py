"""Pairs of programs of which it is known what differs: how many sketches tell right, and how many they miss.

A pair is a small transformer block, drawn at random, and the same written otherwise, or with one mistake, or both. Both
mark their values by the same names, in the order of the computation; so it is known which values must be alike and with
which one the mistake begins. ``python -m tests.events.pairs 240 1000`` draws 240, from number 1,000 on, and prints what
was found.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

import torchglass as tg

NAMES = ("x", "normed", "q", "k", "v", "scores", "probs", "attended", "joined", "residual", "normed2", "hidden", "out")
MISTAKES = {
    "bias": "q", "epsilon": "normed", "mask": "scores", "scale": "scores", "residual": "residual", "axis": "probs",
    "swapped": "joined", "gelu": "hidden", "forgotten bias": "out", "order of norms": "normed2", "one weight": "v",
    "off by one": "k",
}  # fmt: skip
"""Each with the value at which it begins."""
WAYS = ("again", "float64", "heads", "sequence first", "permuted", "bfloat16")
WORDS = {
    "again": {"bits"}, "float64": {"close", "bits"}, "heads": {"bits", "close", "transposed"},
    "sequence first": {"bits", "close", "transposed"}, "permuted": {"order", "bits", "close"},
    "bfloat16": {"close", "bits"},
}  # fmt: skip
"""By which words a value may be known again that is computed so."""


@dataclass(frozen=True)
class Drawn:
    """One block, and how it is written."""

    seed: int
    batch: int
    length: int
    heads: int
    size: int
    causal: bool
    way: str = "again"
    mistake: str = ""


def draw(seed: int, way: str = "again", mistake: str = "") -> Drawn:
    """A block of this number."""
    rng = random.Random(seed)
    heads = rng.choice([2, 3, 4])
    return Drawn(
        seed, rng.randint(3, 6), rng.randint(5, 24), heads, heads * rng.choice([8, 12, 16]), rng.random() < 0.7, way,
        mistake,
    )  # fmt: skip


def weights(drawn: Drawn) -> dict[str, Tensor]:
    """Those of the block, and what goes in."""
    made = torch.Generator().manual_seed(drawn.seed)
    size = drawn.size

    def normal(*shape: int, by: float = 1.0) -> Tensor:
        return torch.randn(shape, generator=made) * by

    found = {name: normal(size, size, by=size**-0.5) for name in ("q", "k", "v", "o")}
    found |= {f"{name} bias": normal(size, by=0.1) for name in ("q", "k", "v", "o")}
    found |= {"up": normal(4 * size, size, by=size**-0.5), "down": normal(size, 4 * size, by=0.5 * size**-0.5)}
    found |= {"up bias": normal(4 * size, by=0.1), "down bias": normal(size, by=0.1)}
    found |= {"gain": 1 + normal(size, by=0.1), "gain2": 1 + normal(size, by=0.1)}
    return found | {"x": normal(drawn.batch, drawn.length, size)}


def run(drawn: Drawn) -> dict[str, tg.Value]:
    """The values of a block, by name."""
    w = {name: each.clone() for name, each in weights(drawn).items()}
    if drawn.mistake == "bias":
        w["q bias"][drawn.seed % drawn.size] += 0.05
    if drawn.mistake == "one weight":
        w["v"][drawn.seed % drawn.size, 0] *= 1.2
    dtype = {"bfloat16": torch.bfloat16, "float64": torch.float64}.get(drawn.way, torch.float32)
    w = {name: each.to(dtype) for name, each in w.items()}
    if drawn.way == "permuted":
        w["x"] = w["x"][torch.randperm(drawn.batch, generator=torch.Generator().manual_seed(drawn.seed))]
    with torch.no_grad(), tg.record(values="stats+sketch") as trace:
        block(drawn, w)
    return {event.name: event.inputs[0] for event in trace.events(kind="mark")}


def block(drawn: Drawn, w: dict[str, Tensor]) -> None:
    """One layer, as written by someone who may have made a mistake."""
    x, size, mistake = w["x"], drawn.size, drawn.mistake
    if drawn.way == "sequence first":
        x = x.transpose(0, 1).contiguous()
    tg.mark("x", x)
    epsilon = 1e-3 if mistake == "epsilon" else 1e-5
    normed = tg.mark("normed", F.layer_norm(x, (size,), w["gain"], None, epsilon))
    q, k, v = (F.linear(normed, w[each], w[f"{each} bias"]) for each in "qkv")
    if mistake == "off by one":
        k = k.roll(1, dims=0 if drawn.way == "sequence first" else 1)
    joined = attention(drawn, q, k, v)
    if mistake == "swapped":
        joined = joined.flip(-1)
    tg.mark("joined", joined)
    attended = F.linear(joined, w["o"], w["o bias"])
    residual = tg.mark("residual", attended if mistake == "residual" else x + attended)
    first = F.layer_norm(residual, (size,), w["gain"] if mistake == "order of norms" else w["gain2"], None, 1e-5)
    tg.mark("normed2", first)
    hidden = F.gelu(F.linear(first, w["up"], w["up bias"]), approximate="tanh" if mistake == "gelu" else "none")
    tg.mark("hidden", hidden)
    down = F.linear(hidden, w["down"], None if mistake == "forgotten bias" else w["down bias"])
    tg.mark("out", residual + down)


def attention(drawn: Drawn, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Heads and scores in one of two layouts: heads before places, or behind."""
    heads, part, mistake = drawn.heads, drawn.size // drawn.heads, drawn.mistake
    if drawn.way == "sequence first":
        q, k, v = (each.transpose(0, 1) for each in (q, k, v))
    q, k, v = (each.reshape(drawn.batch, drawn.length, heads, part) for each in (q, k, v))
    is_behind = drawn.way == "heads"
    if not is_behind:
        q, k, v = (each.transpose(1, 2).contiguous() for each in (q, k, v))
    for name, each in zip("qkv", (q, k, v), strict=True):
        tg.mark(name, each)
    by = part if mistake == "scale" else part**0.5
    scores = (torch.einsum("bihd,bjhd->bijh", q, k) if is_behind else q @ k.transpose(-1, -2)) / by
    keep = torch.ones(drawn.length, drawn.length, dtype=torch.bool).tril()
    if drawn.causal != (mistake == "mask"):
        scores = scores.masked_fill(~(keep[:, :, None] if is_behind else keep), -1e4)
    tg.mark("scores", scores)
    axis = (2 if is_behind else -1) if mistake != "axis" else (1 if is_behind else -2)
    probs = tg.mark("probs", scores.softmax(axis))
    attended = torch.einsum("bijh,bjhd->bihd", probs, v) if is_behind else probs @ v
    tg.mark("attended", attended)
    joined = (attended if is_behind else attended.transpose(1, 2)).reshape(drawn.batch, drawn.length, drawn.size)
    return joined.transpose(0, 1) if drawn.way == "sequence first" else joined


@dataclass
class Judged:
    """What the sketches said of one pair."""

    drawn: Drawn
    false_alarms: tuple[str, ...]
    """Values that are called different and are not."""
    wrong_words: tuple[str, ...]
    """Values that are alike, in a way that is not how they are."""
    located: bool
    """Whether the mistake is seen where it begins; without one, that none is seen."""
    error: float
    """How far apart the numbers are there."""


def judge(drawn: Drawn) -> Judged:
    """Compare a block with the one as it is meant to be."""
    base, other = run(replace(drawn, way="again", mistake="")), run(drawn)
    begins = NAMES.index(MISTAKES[drawn.mistake]) if drawn.mistake else len(NAMES)
    alarms, words = list[str](), list[str]()
    for name in NAMES[: begins if drawn.mistake else None]:
        if drawn.mistake == "off by one" and name == "k":
            break
        likeness = tg.same(base[name], other[name])
        if not likeness:
            alarms.append(f"{name}: {likeness}")
        elif likeness.how not in WORDS[drawn.way]:
            words.append(f"{name}: {likeness}")
    if not drawn.mistake:
        return Judged(drawn, tuple(alarms), tuple(words), not alarms, 0.0)
    there = tg.same(base[NAMES[begins]], other[NAMES[begins]])
    is_seen = not there or there.how not in WORDS[drawn.way]
    return Judged(drawn, tuple(alarms), tuple(words), is_seen, there.error)


def pairs(count: int, first: int = 0) -> list[Drawn]:
    """So many, equal ones and others by turns, each way as often as any other."""
    rng = random.Random(first)
    found = []
    for seed in range(first, first + count):
        way = WAYS[seed % len(WAYS)]
        mistake = rng.choice(list(MISTAKES)) if seed // len(WAYS) % 3 else ""
        found.append(draw(seed, way, mistake))
    return found


def main() -> None:
    """Print by way of writing: pairs, mistakes located, equal pairs called equal, false alarms."""
    given = [int(each) for each in sys.argv[1:]]
    count, first = [*given, *(240, 1000)[len(given) :]]
    judged = [judge(each) for each in pairs(count, first)]
    for way in WAYS:
        own = [each for each in judged if each.drawn.way == way]
        wrong = [each for each in own if each.drawn.mistake]
        right = [each for each in own if not each.drawn.mistake]
        print(
            f"{way:15} {sum(each.located for each in wrong):3} of {len(wrong):3} mistakes located, "
            f"{sum(each.located for each in right):3} of {len(right):3} equal pairs equal, "
            f"{sum(len(each.false_alarms) for each in own):3} false alarms, "
            f"{sum(len(each.wrong_words) for each in own):3} wrong words"
        )
    missed = Counter(f"{each.drawn.way}: {each.drawn.mistake}" for each in judged if not each.located)
    for what, times in missed.most_common():
        print(f"  missed {times} ×  {what}")
    for each in judged:
        for text in (*each.false_alarms, *each.wrong_words):
            print(f"  {each.drawn.way}, {each.drawn.mistake or 'equal'} (seed {each.drawn.seed}): {text}")


if __name__ == "__main__":
    main()
