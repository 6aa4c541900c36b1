"""Shortens expressions so that what matters stays: names, the last call, and its keyword arguments.

This is done step by step until an expression fits::

    p = torch.nn.functional.softmax(self.project(hidden) + mask, dim=1)
    p = F.softmax(self.project(hidden) + mask, dim=1)       the long name of a module
    p = F.softmax(self.project(…) + mask, dim=1)            what is in brackets of an operand
    p = F.softmax(self.…mask, dim=1)                        the middle of an operand before keywords
    p = F.softmax(self.proj…                                the end
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from torchglass.views.text.words import cut, width_of

ELLIPSIS = "…"
MIN_OPERAND_WIDTH = 9
"""How many columns of an operand stay."""
_FUNCTIONAL = re.compile(r"(?<![\w.])(?:torch\.)?nn\.functional\.")
_KEYWORD = re.compile(r"\w+=(?!=)")
_OPERATOR = re.compile(r" (?:[-+*/%@&|^<>]|\*\*|//|<<|>>|[=!<>]=) ")
_IN_BRACKETS = re.compile(r"\((?:[^()]|\(…\)){2,}\)|\[(?:[^\[\]]|\[…\]){2,}\]")
_OPENING = "([{"
_CLOSING = ")]}"


def shortened(label: str, room: int) -> str:
    """Shorten an expression, with the names that it is assigned to, to ``room`` columns."""
    if width_of(label) <= room:
        return label
    label = _FUNCTIONAL.sub("F.", label)
    if width_of(label) <= room:
        return label
    target, code = _split_target(label)
    dot = _last_call(code)
    if dot > 0 and "(" in code[:dot]:
        last = f"{target}{ELLIPSIS}{code[dot:]}"
        if width_of(last) <= room:
            return last
    operands = _operands(code)
    if not operands:
        return cut(label, room)
    return _with_short_operands(target, code, operands, room)


def _split_target(label: str) -> tuple[str, str]:
    """Split ``a = b = f(x)`` into ``a = b = `` and ``f(x)``."""
    end = label.partition("(")[0].rfind(" = ")
    if end < 0:
        return "", label
    return label[: end + 3], label[end + 3 :]


def _with_short_operands(
    target: str, code: str, operands: Sequence[tuple[int, int]], room: int
) -> str:
    """Shorten operands until the expression fits. If it never does, cut off its end instead."""
    texts = [code[begin:end] for begin, end in operands]
    ends = [begin for begin, _ in operands[1:]]
    between = [
        code[end:begin] for (_, end), begin in zip(operands, [*ends, len(code)], strict=True)
    ]
    before = target + code[: operands[0][0]]

    def joined() -> str:
        return before + "".join(map("".join, zip(texts, between, strict=True)))

    _leave_out_brackets(texts, width_of(joined()) - room)
    if _KEYWORD.match(between[-1].lstrip(", ")):
        for number in sorted(range(len(texts)), key=lambda number: -len(texts[number])):
            texts[number] = _without_middle(texts[number], width_of(joined()) - room)
    shorter = joined()
    if width_of(shorter) <= room:
        return shorter
    return cut(target + code, room)


def _leave_out_brackets(texts: list[str], too_much: int) -> None:
    """Leave out what is in brackets, inner ones first, until enough is left out: ``f(g(…))``, then ``f(…)``."""
    while too_much > 0:
        inner = [
            (len(found.group()) - len("(…)"), number, found)
            for number, text in enumerate(texts)
            for found in _IN_BRACKETS.finditer(text)
        ]
        if not inner:
            break
        enough = [each for each in inner if each[0] >= too_much]
        if enough:
            length, number, found = min(enough, key=lambda each: each[0])
        else:
            length, number, found = max(inner, key=lambda each: each[0])
        begin, end = found.span()
        texts[number] = texts[number][: begin + 1] + ELLIPSIS + texts[number][end - 1 :]
        too_much -= length


def _without_middle(operand: str, too_much: int) -> str:
    if too_much <= 0:
        return operand
    keep = max(len(operand) - too_much, MIN_OPERAND_WIDTH)
    if keep >= len(operand):
        return operand
    tail = (keep - 1) // 2
    return operand[: keep - 1 - tail] + ELLIPSIS + operand[len(operand) - tail :]


def _operands(code: str) -> list[tuple[int, int]]:
    """Return where the operands of an expression are: those of its operators, or else the positional arguments."""
    signs = [(found.start(), found.end()) for found in _OPERATOR.finditer(code)]
    outside = _outside_brackets(code)
    signs = [(begin, end) for begin, end in signs if outside[begin]]
    if signs:
        begins = [0, *(end for _, end in signs)]
        ends = [*(begin for begin, _ in signs), len(code)]
        return list(zip(begins, ends, strict=True))
    opening = _last_opening(outside)
    if not code.endswith(")") or opening <= 0:
        return []
    return _arguments(code, opening + 1, len(code) - 1)


def _arguments(code: str, begin: int, end: int) -> list[tuple[int, int]]:
    """Return where the positional arguments between two brackets are."""
    outside = _outside_brackets(code[begin:end])
    commas = [
        begin + at
        for at, is_outside in enumerate(outside)
        if is_outside and code[begin + at] == ","
    ]
    found: list[tuple[int, int]] = []
    for first, last in zip([begin, *(comma + 1 for comma in commas)], [*commas, end], strict=True):
        argument = code[first:last]
        first += len(argument) - len(argument.lstrip())
        if argument.strip() and not _KEYWORD.match(argument.lstrip()):
            found.append((first, last))
    return found


def _outside_brackets(code: str) -> list[bool]:
    """Return of each character whether it is outside of all brackets."""
    depth = 0
    outside: list[bool] = []
    for char in code:
        depth += char in _OPENING
        outside.append(depth == 0)
        depth -= char in _CLOSING
    return outside


def _last_opening(outside: Sequence[bool]) -> int:
    """Return the index of the bracket that opens the last part in brackets; -1 if there is none."""
    last = len(outside) - 1
    while last >= 0 and not outside[last]:
        last -= 1
    return last + 1 if last + 1 < len(outside) else -1


def _last_call(code: str) -> int:
    """Return the index of the last dot outside brackets.

    It is -1 if there is none, or if the code is more than a chain of calls.
    """
    outside = _outside_brackets(code)
    if any(is_outside and char == " " for char, is_outside in zip(code, outside, strict=True)):
        return -1
    dots = [at for at, is_outside in enumerate(outside) if is_outside and code[at] == "."]
    return max(dots, default=-1)
