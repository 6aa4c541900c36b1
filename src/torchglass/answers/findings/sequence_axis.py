"""The batch is taken for the sequence, or the sequence for the batch.

Recurrent layers, `nn.MultiheadAttention` and the Transformer layers expect [time, batch, features] unless they are made
with `batch_first=True`. Where the result is then cut along the other axis, samples are mixed, or the last sample is
taken instead of the last step.

    self.rnn = nn.LSTM(8, 16)                            # batch_first is missing
    out, _ = self.rnn(x)                                 # x: [batch, time, 8]
    return self.head(out[:, -1])                         # the last *sample* of the batch
    return self.head(out.reshape(len(x), -1))            # all samples of the batch as features of one
    x = x + self.positions[: x.size(0)]                  # x: [batch, time, 8]; one position for each *sample*

For a bidirectional layer `out[:, -1]` is a hint: the backward direction has seen only one step there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from torchglass.answers.findings.facts import KEEPS_NUMBERS
from torchglass.answers.findings.suspicion import BUG, HINT, Facts, Suspicion, seen_at

RECURRENT = ("LSTM", "GRU", "RNN")
OTHERS = ("MultiheadAttention", "TransformerEncoderLayer", "TransformerEncoder")
PASSES = (KEEPS_NUMBERS - {"__getitem__", "transpose", "permute", "swapaxes", "movedim", "T", "mT", "select"}) | {
    "dropout", "layer_norm", "relu", "tanh",
}  # fmt: skip
SHAPES = frozenset(
    "view reshape flatten unsqueeze squeeze cat stack unbind chunk split gather".split()
)
PADDED = ("linear", "embedding", "add", "__add__", "mul", "__mul__", "__iadd__")
"""Calls that leave the axes of sequences where they were."""
COUNTERS = KEEPS_NUMBERS | {"sin", "cos", "mul", "__mul__", "div"}
POOLS = ("mean", "amax")


def find(facts: Facts) -> Iterator[Suspicion]:
    yield from _positions(facts)
    judged: set[tuple[int, int]] = set()
    for event in facts.module_calls:
        tables = facts.tables
        row = tables.module[event]
        look = (row, tables.args[event])
        if look in judged:
            continue
        judged.add(look)
        module = tables.modules[row]
        if module.name not in RECURRENT + OTHERS or not facts.gives[event]:
            continue
        is_first = _is_batch_first(facts, event, row)
        output = facts.gives[event][0]
        if is_first is None or len(facts.shape(output)) != 3:
            continue
        yield from _judge(facts, event, output, is_first, module.name, module.detail)


def _positions(facts: Facts) -> Iterator[Suspicion]:
    """Positions that are added along the batch: [B, 1, D] to [B, T, D] that goes into attention over T."""
    attended: set[int] | None = None
    for name in ("add", "__add__", "__iadd__", "add_"):
        for event, times in facts.calls(name):
            if len(facts.takes[event]) < 2 or not facts.is_written(event) or not facts.gives[event]:
                continue
            pair = facts.takes[event][:2]
            given = facts.gives[event][0]
            shape = facts.shape(given)
            if len(shape) != 3 or min(shape) < 2:
                continue
            positions = [each for each in pair if facts.shape(each) == (shape[0], 1, shape[2])]
            if len(positions) != 1 or not _counts_up(facts, positions[0]):
                continue
            if attended is None:
                attended = _attended_batch_first(facts)
            if given not in attended:
                continue
            yield Suspicion(
                severity=BUG,
                event=event,
                text=f"{facts.code(event)} gives all steps of a sample the same position: {facts.word(positions[0])} "
                f"counts along the batch of {facts.word(given)}",
                fix="count along axis 1: positions of shape [1, time, features]",
                times=times,
            )


def _counts_up(facts: Facts, value: int) -> bool:
    """Return whether a tensor is made of `arange`, or is the beginning of a longer table."""
    if _is_cut_from_a_table(facts, value):
        return True
    for source, maker in facts.sources(value, COUNTERS):
        if maker is not None and facts.name(maker) == "arange":
            return True
        if maker is not None and facts.name(maker) in ("embedding", "linear"):
            inputs = [each for each in facts.takes[maker] if not facts.is_parameter(each)]
            if any(_counts_up(facts, each) for each in inputs):
                return True
        size = facts.shape(source)[:1]
        is_table = len(facts.shape(source)) == 3 and size > facts.shape(value)[:1]
        if is_table and facts.shape(source)[1:] == facts.shape(value)[1:]:
            return True
    return False


def _is_cut_from_a_table(facts: Facts, value: int) -> bool:
    """Return whether a tensor is the beginning of a longer one: ``table[: x.size(0)]``."""
    maker = facts.maker(value)
    if maker is None or facts.name(maker) != "__getitem__" or len(facts.takes[maker]) != 1:
        return False
    table = facts.shape(facts.takes[maker][0])
    shape = facts.shape(value)
    return len(table) == len(shape) and table[1:] == shape[1:] and table[0] > shape[0]


def _attended_batch_first(facts: Facts) -> set[int]:
    """Return the values that become the input of attention layers with ``batch_first=True``."""
    found: set[int] = set()
    for event in facts.module_calls:
        row = facts.tables.module[event]
        if facts.tables.modules[row].name not in OTHERS or not facts.takes[event]:
            continue
        if _is_batch_first(facts, event, row) is not True:
            continue
        pending = [facts.takes[event][0]]
        for _ in range(8):
            value = pending.pop()
            found.add(value)
            maker = facts.maker(value)
            if maker is None or facts.name(maker) not in (
                "dropout",
                "layer_norm",
                "mul",
                "__mul__",
            ):
                break
            pending.append(facts.takes[maker][0])
    return found


def _is_batch_first(facts: Facts, event: int, row: int) -> bool | None:
    module = facts.tables.modules[row]
    if module.name in RECURRENT:
        return "batch_first=True" in module.detail
    # Attention with batch_first swaps the axes of what it is given before it calls the function.
    inner = next((each for each in _attentions(facts) if event in facts.around(each)), None)
    if inner is None:
        return None
    around = facts.module_around(inner)
    if around is None or not facts.takes[around] or not facts.takes[inner]:
        return None
    return facts.takes[around][0] != facts.takes[inner][0]


def _attentions(facts: Facts) -> Iterator[int]:
    for events in facts.by_name.get("multi_head_attention_forward", {}).values():
        yield from events


def _judge(
    facts: Facts, event: int, output: int, is_first: bool, name: str, detail: str
) -> Iterator[Suspicion]:
    shape = facts.shape(output)
    if not is_first:
        yield from _padded(facts, event, name)
    for _, user in facts.uses(output, PASSES - SHAPES):
        if not is_first and _joins_the_batch(facts, user, shape):
            yield Suspicion(
                severity=BUG,
                event=user,
                text=f"{facts.code(user)} makes the batch part of the features: "
                f"{name}(batch_first=False) gives [time, batch, …], here {facts.word(output)}",
                evidence=(seen_at(facts, f"{facts.code(event)}", event),),
                fix="make the layer with batch_first=True",
            )
            return
        if not facts.is_written(user) or facts.shape(facts.takes[user][0]) != shape:
            continue
        axis = _cut_axis(facts, user)
        if axis is None:
            continue
        if facts.name(user) in POOLS and not _feeds_a_layer(facts, user):
            continue  # a statistic of the batch
        wrong = 1
        if is_first:
            wrong = 0
        if axis == wrong and shape[axis] > 1:
            order = "[time, batch, …]"
            if is_first:
                order = "[batch, time, …]"
            yield Suspicion(
                severity=BUG,
                event=user,
                text=f"{facts.code(user)} goes along the batch instead of the sequence: "
                f"{name}(batch_first={is_first}) gives {order}, here {facts.word(output)}",
                evidence=(seen_at(facts, f"{facts.code(event)}", event),),
                fix="make the layer with batch_first=True"
                if not is_first
                else "cut along axis 1: out[:, -1]",
            )
            return
        if axis == 1 - wrong and "bidirectional=True" in detail and _takes_last(facts, user):
            yield Suspicion(
                severity=HINT,
                event=user,
                text=f"{facts.code(user)}: the backward direction of {name} has seen only one step there",
                evidence=(seen_at(facts, f"{facts.code(event)}", event),),
                fix="join the last hidden states instead: torch.cat([h[-2], h[-1]], dim=1)",
            )
            return


def _joins_the_batch(facts: Facts, event: int, shape: tuple[int, ...]) -> bool:
    """Return whether [time, batch, features] is flattened to [time, batch * features] for a layer."""
    time, batch, features = shape
    if facts.name(event) not in ("reshape", "view", "flatten") or not facts.gives[event]:
        return False
    if not facts.is_written(event) or min(time, batch) < 2:
        return False
    return facts.shape(facts.gives[event][0]) == (time, batch * features) and _feeds_a_layer(facts, event)  # fmt: skip


def _padded(facts: Facts, event: int, name: str) -> Iterator[Suspicion]:
    """Sequences that were padded to [batch, time] and go into a layer that takes [time, batch]."""
    if not facts.takes[event]:
        return
    passes = PASSES - SHAPES | frozenset(PADDED)
    for _, maker in facts.sources(facts.takes[event][0], passes):
        if maker is None or facts.name(maker) != "pad_sequence":
            continue
        if facts.argument(maker, "batch_first", 1, False) is not True:
            continue
        yield Suspicion(
            severity=BUG,
            event=event,
            text=f"{name}(batch_first=False) takes the batch for the sequence: "
            f"{facts.word(facts.takes[event][0])} was padded with batch_first=True",
            evidence=(seen_at(facts, facts.code(maker), maker),),
            fix="make the layer with batch_first=True",
        )
        return


def _feeds_a_layer(facts: Facts, event: int) -> bool:
    return any(
        facts.name(user) == "linear"
        for given in facts.gives[event]
        for _, user in facts.uses(given)
    )


def _cut_axis(facts: Facts, event: int) -> int | None:
    """Return the axis along which one entry, or the mean, is taken."""
    if facts.name(event) in POOLS:
        dim = facts.argument(event, "dim", 1)
        if dim in (0, 1):
            return dim
        return None
    if facts.name(event) not in ("__getitem__", "select"):
        return None
    if facts.name(event) == "select":
        return facts.argument(event, "dim", 1)
    key = _key(facts, event)
    if len(key) == 1 and type(key[0]) is int:
        return 0
    if len(key) >= 2 and _is_whole(key[0]) and type(key[1]) is int:
        return 1
    return None


def _key(facts: Facts, event: int) -> tuple[Any, ...]:
    """Return what stands between the brackets, part by part."""
    given = facts.arguments(event).positional
    if len(given) < 2:
        return ()
    if isinstance(given[1], tuple):
        return cast("tuple[Any, ...]", given[1])
    return (given[1],)


def _is_whole(key: object) -> bool:
    return isinstance(key, str) and key.strip() in (":", "::", "slice(None, None, None)")


def _takes_last(facts: Facts, event: int) -> bool:
    key = _key(facts, event)
    return key == (-1,) or (len(key) >= 2 and key[1] == -1)
