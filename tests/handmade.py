"""Traces written by hand: events as a recorder would have made them, for tests of what is shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torchglass.events.types import Event, Location, ModuleInfo, Value

INSIDE_TORCH = Location("/site-packages/torch/nn/modules/linear.py", 1, 1, 0, 1, "Linear.forward", "", "torch")


@dataclass
class HandmadeTrace:
    """What views read of a trace."""

    made: list[Event]
    infos: tuple[ModuleInfo, ...] = ()
    notes: tuple[str, ...] = ()
    failed: int | None = None
    name: str = "handmade"
    duration_ns: int = 1_000_000
    complete: bool = True
    sources: dict[str, str] = field(default_factory=dict)
    ended_by: tuple[str, ...] = ()
    measured: bool = True

    def __len__(self) -> int:
        return len(self.made)

    def events(self) -> Iterator[Event]:
        return iter(self.made)

    def event(self, number: int) -> Event:
        return self.made[number]

    def modules(self) -> tuple[ModuleInfo, ...]:
        return self.infos

    @property
    def left_by(self) -> tuple[str, ...]:
        failed = self.failure()
        return self.ended_by if failed is None else (failed.error or "",)

    @property
    def _left_process(self) -> int:
        return 0

    @property
    def raised_at(self) -> tuple[Location, ...]:
        return ()

    def failure(self) -> Event | None:
        return None if self.failed is None else self.made[self.failed]


def tensor(shape: tuple[int, ...] | None, dtype: str = "float32", **fields: Any) -> Value:
    known: dict[str, Any] = {
        "id": 0, "kind": "tensor", "role": "x", "device": "cpu", "stride": None, "layout": "strided",
        "requires_grad": False, "type": "Tensor", "storage": None, "version": 0, "producer": None,
    }  # fmt: skip
    return Value(**{**known, "shape": shape, "dtype": dtype, **fields})


@dataclass
class Maker:
    """Makes events in order; shapes may stand for tensors."""

    file: str = "/project/model.py"
    root: str | None = "Net"
    made: list[Event] = field(default_factory=list)
    clock: int = 0

    def add(self, kind: str, name: str, parent: int | None = None, code: str = "", **fields: Any) -> int:
        at = Location(fields.pop("file", self.file), fields.pop("line", 1), 1, 0, 9, "forward", code, "user")
        direct = fields.setdefault("direct", True)
        duration = fields.pop("duration", 1000)
        for side in ("inputs", "outputs"):
            given = fields.get(side, ())
            fields[side] = tuple(each if isinstance(each, Value) else tensor(each) for each in given)
        known: dict[str, Any] = {
            "id": len(self.made), "kind": kind, "name": name, "parent": parent, "thread": "MainThread", "process": 1,
            "phase": "forward", "forward_event": None, "start_ns": self.clock, "end_ns": self.clock + duration,
            "module": None, "root": self.root, "call": 0 if kind == "module" else None, "detail": "",
            "operator": None, "args": "", "result": "", "stack": (at,) if direct else (at, INSIDE_TORCH),
            "location": at, "owner": None, "code": code, "target": (), "operands": (), "key": "", "error": None,
            "note": None,
        }  # fmt: skip
        self.made.append(Event(**{**known, **fields}))
        self.clock += 10
        return len(self.made) - 1

    def layer(self, name: str, parent: int | None, path: str, code: str, shape: Any, **fields: Any) -> int:
        fields = {"inputs": [shape], "outputs": [shape], **fields}
        return self.add("module", name, parent, code, module=path, **fields)


LINEAR = "in_features=6, out_features=6, bias=True"


def attention() -> HandmadeTrace:
    """The forward pass of a small attention module."""
    make = Maker("/project/attention.py", "MHA")
    wide, heads, scores = (10, 20, 6), (10, 3, 20, 2), (10, 3, 20, 20)
    root = make.layer("MHA", None, "", "mha(x)", wide, target=("out",), line=8, file="/project/demo.py")
    for line, (target, name) in enumerate((("queries", "query"), ("keys", "key"), ("values", "value")), 33):
        path, code = f"{name}_weights", f"self.{name}_weights(x)"
        layer = make.layer("Linear", root, path, code, wide, target=(target,), line=line, detail=LINEAR)
        make.add("function", "F.linear", layer, code, inputs=[wide, (6, 6), (6,)], outputs=[wide], direct=False)
    make.add(
        "function", "Tensor.transpose", root, "k.transpose(2, 3)", inputs=[heads], outputs=[(10, 3, 2, 20)], line=61
    )
    make.add(
        "function", "Tensor.matmul", root, "q @ k.transpose(2, 3)", target=("scores",), operator="@", line=61,
        inputs=[heads, (10, 3, 2, 20)], outputs=[scores],
    )  # fmt: skip
    make.add("function", "F.softmax", root, "F.softmax(scores, dim=-1)", target=("weights",), line=64,
             inputs=[scores], outputs=[scores])  # fmt: skip
    make.layer("Dropout", root, "dropout", "self.dropout(weights)", scores, line=65, detail="p=0.1, inplace=False")
    return HandmadeTrace(make.made)


def blocks(number: int, odd: int | None = None) -> HandmadeTrace:
    """A model of equal blocks, called in a loop; the odd one gives another shape."""
    make = Maker()
    root = make.layer("Net", None, "", "model(x)", (4, 8), line=1, file="/project/train.py", duration=1_000_000)
    for index in range(number):
        shape = (4, 9) if index == odd else (4, 8)
        block = make.layer("Block", root, f"blocks.{index}", "block(x)", (4, 8), outputs=[shape], target=("x",),
                           line=12, duration=1000)  # fmt: skip
        make.layer("Linear", block, f"blocks.{index}.fc", "self.fc(x)", (4, 8), line=5, detail=LINEAR, duration=800)
        make.add("function", "F.relu", block, "F.relu(x)", inputs=[(4, 8)], outputs=[(4, 8)], line=6)
    return HandmadeTrace(make.made, tuple(infos_of(make.made)))


def infos_of(events: list[Event]) -> Iterator[ModuleInfo]:
    for number, event in enumerate(each for each in events if each.kind == "module"):
        sizes = [("weight", (6, 6)), ("bias", (6,))] if event.name == "Linear" else []
        parameters = tuple(
            tensor(shape, id=1000 + 10 * number + at, role=role, requires_grad=True)
            for at, (role, shape) in enumerate(sizes)
        )
        yield ModuleInfo(number, event.root or "", event.module or "", event.name, event.detail, parameters)
