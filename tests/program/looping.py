"""Programs made at random, of loops in loops, that count their own rounds: what is read from stacks is held to it."""

from __future__ import annotations

from random import Random

HEAD = """\
import torch

TRUE = {}

def turn(name):
    TRUE[name] = TRUE.get(name, 0) + 1
    return TRUE[name]

class Loader:
    def __init__(self, name, size, computes):
        self.name, self.size, self.computes = name, size, computes

    def __iter__(self):
        self.at = 0
        return self

    def __next__(self):
        self.at += 1
        if self.computes > 1:
            torch.ones(1)
        if self.at > self.size:
            raise StopIteration
        return torch.ones(2) if self.computes else self.at

class Manager:
    def __init__(self, x):
        self.x = x

    def __enter__(self):
        return self.x * 1

    def __exit__(self, *error):
        self.x * 2

def batches(size):
    for each in range(size):
        yield torch.ones(each + 1)

def certain(x):
    y = x + 1
    return y * 2

def sometimes(x, when):
    if when:
        return x.exp()
    return x

def either(x, when):
    if when:
        return x.exp()
    return x.sin()

def forwards(x, when):
    if when:
        x = x.cos()
    if not when:
        x = x.tan()
    return x

def loops(x, times):
    for _ in range(times):
        turn("loops")
        x = x * 3
    return x

@torch.no_grad()
def decorated(x):
    return x + 5

def deeper(x, levels):
    x = x + 1
    return deeper(x, levels - 1) if levels else x

"""


class Writer:
    """Writes one program; every loop has a name under which it counts its rounds."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.loops = 0

    def program(self) -> str:
        body = self.suite(3, False)
        lines = ["x = torch.ones(2)", "i = j = 0", *body, "return x"]
        return HEAD + "def main():\n" + "".join(f"    {line}\n" for line in lines)

    def suite(self, depth: int, in_loop: bool) -> list[str]:
        return [line for _ in range(self.random.randint(1, 3)) for line in self.statement(depth, in_loop)]

    def statement(self, depth: int, in_loop: bool) -> list[str]:
        pick = self.random.random()
        if depth and pick < 0.45:
            return self.loop(depth)
        if depth and pick < 0.7:
            return self.branch(depth, in_loop)
        return [self.step()]

    def step(self) -> str:
        flag = self.flag()
        return self.random.choice(
            [
                "x = x * 1", "x = x * 1", "x += 1", "n = 1", "n = 2", "x[0] += 1", "x[0] = 2", "a, b = x[:2]",
                "x = certain(x)", f"x = sometimes(x, {flag})", f"x = either(x, {flag})", f"x = forwards(x, {flag})",
                "x = loops(x, 2)", "x = decorated(x)", "x = deeper(x, 2)", f"x = x.exp() if {flag} else x.sin()",
                f"x = x * 1 if {flag} else x", f"n = [y * 2 for y in x if y > 1 and {flag}]", "n = x.any() and x * 2",
                "x = sum([x * 1, x * 2])", "list(map(torch.relu, [x, x, x]))",
                'g = (x * 1 for _ in range(3) if turn("made elsewhere")); x = sum(g)',
                'g = (certain(x) for _ in range(2) if turn("kept")); n = list(g)',
            ]
        )  # fmt: skip

    def flag(self) -> str:
        return self.random.choice(
            [
                "i % 2", "i % 3 == 0", "j % 2", "i == 1", "(i + j) % 2", "(x > i).any()", "x.sum() > 2 * i",
                "not x.isnan().any()", "i % 2 and x.all()", "x.sum() < i or x.any() and x.max() > 2",
                "i < x.sum() < j + 2 * i", "(x < i).any() < x.any()",
            ]
        )  # fmt: skip

    def branch(self, depth: int, in_loop: bool) -> list[str]:
        kind = self.random.choice(["if", "else", "leave", "with", "try", "one line"])
        inner = ["    " + line for line in self.suite(depth - 1, in_loop)]
        if kind == "leave" and in_loop:
            return [f"if {self.flag()}:", "    " + self.step(), "    " + self.random.choice(["break", "continue"])]
        if kind == "else":
            other = ["    " + line for line in self.suite(depth - 1, in_loop)]
            return [f"if {self.flag()}:", *inner, "else:", *other]
        if kind == "with":
            return [self.random.choice(["with torch.no_grad():", "with Manager(x):"]), *inner]
        if kind == "try":
            return ["try:", *inner, f"    assert {self.flag()}", "except AssertionError:", "    " + self.step()]
        if kind == "one line":
            return [f"if {self.flag()}: {self.step()}"]
        return [f"if {self.flag()}:", *inner]

    def loop(self, depth: int) -> list[str]:
        self.loops += 1
        name, times = f"loop {self.loops}", self.random.randint(0, 4)
        count, own = f'turn("{name}")', f"k{self.loops}"
        kind = self.random.choice(["for", "for", "while", "loader", "generator", "list", "line", "test", "zip"])
        if kind == "list":
            values = self.random.choice(["x * i", "certain(x)", f"sometimes(x, {self.flag()})"])
            return [f"[{values} for i in range({times}) if {count}]"]
        if kind == "line":
            return [f"for i in range({times}): {count}; {self.step()}"]
        inner = ["    " + line for line in (count, *self.suite(depth - 1, True))]
        variable = self.random.choice(["i", "j"])
        if kind == "while":
            return [f"{own} = 0", f"while {own} < {times}:", f"    {own} += 1", *inner]
        if kind == "test":
            test = self.random.choice(
                [
                    f"{own} < {times}",
                    f"({own} < {times}).any()",
                    f"not {own} >= {times} and x.any()",
                    f"-1 < {own} < {times}",
                ]
            )
            return [f"{own} = torch.zeros(())", f"while {test}:", f"    {own} = {own} + 1", *inner]
        if kind == "loader":
            computes = self.random.randint(0, 2)
            return [f'for x in Loader("{name}", {times}, {computes}):', "    x = x * torch.ones(2)", *inner]
        if kind == "generator":
            return [f"for y in batches({times}):", *inner]
        if kind == "zip":
            return [f"for {variable}, x in zip(range({times}), [torch.ones(2)] * 9):", *inner]
        return [f"for {variable} in range({times}):", *inner]
