"""`view` or `reshape` is used where the axes have to be swapped.

`x.view(B, C, T)` of a tensor of shape [B, T, C] does not move any number: it cuts the same row of numbers elsewhere, so
that channels, positions, or heads are mixed. Shapes are right, and training even works a little.

    x = x.view(B, C, T)                 # of [B, T, C]: wrong, x.transpose(1, 2)
    q = q.view(B, H, T, D)              # of [B, T, H * D]: wrong, q.view(B, T, H, D).transpose(1, 2)
    y = y.reshape(B, T, H * D)          # of [B, H, T, D]: wrong, y.transpose(1, 2).reshape(B, T, H * D)
    p = scores.view(-1, C)              # of [B, C, H, W]: wrong, scores.permute(0, 2, 3, 1).reshape(-1, C)

Splitting or merging neighbouring axes (patches, heads, flattening) is fine. Where sizes happen to be equal it cannot be
told. That is right where the order of the numbers does not matter, as in random or constant tensors, and in relative
attention, which shifts each row by one: the tensor is padded, cut elsewhere, and loses a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod

from torchglass.answers.findings.facts import normal
from torchglass.answers.findings.suspicion import BUG, HINT, LIKELY, Facts, Suspicion

CONSTANT = ("zeros", "ones", "empty", "full", "arange", "linspace", "zeros_like", "ones_like")
MAKES_ANYTHING = (*CONSTANT, "randn", "rand", "randint", "tensor", "randperm", "from_numpy")
FEATURES_SECOND = frozenset(
    "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d batch_norm max_pool1d max_pool2d".split()
)
"""Calls that give their features, or channels, in axis 1."""
KEEPS_PLACES = frozenset(
    "relu relu_ leaky_relu gelu silu elu tanh sigmoid dropout dropout2d add __add__ mul __mul__ div __truediv__ "
    "contiguous detach float to clone".split()
)
PADS = ("pad", "constant_pad_nd")
JOINS = ("cat", "concat", "concatenate")
ZEROS = ("zeros", "new_zeros", "zeros_like")
CUTS = ("__getitem__", "narrow", "index_select")
VIEWS = ("view", "reshape", "view_as", "reshape_as")
Shape = tuple[int, ...]


def find(facts: Facts) -> Iterator[Suspicion]:
    for event, times in facts.calls("view", "reshape"):
        if not facts.is_written(event) or not facts.takes[event] or not facts.gives[event]:
            continue
        value = facts.takes[event][0]
        maker = facts.maker(value)
        if facts.is_parameter(value) or (maker is not None and _has_no_order(facts, maker, event)):
            continue
        given = facts.gives[event][0]
        if _shifts_rows(facts, value, given):
            continue
        before = facts.shape(value)
        after = facts.shape(given)
        cure = swap_in(before, after) or _swap_beside_ones(before, after)
        cure = cure or _scattered(facts, value, before, after)
        if cure is None:
            continue
        yield Suspicion(
            severity=_severity(facts, given, before, after),
            event=event,
            text=f"{facts.code(event)} makes {facts.word(given)} of {facts.word(value)} without moving a number: "
            "axes are mixed, not swapped",
            fix=cure,
            times=times,
        )


def _severity(facts: Facts, given: int, before: Shape, after: Shape) -> str:
    rank = len([size for size in before if size > 1])
    if rank == 2 and not _is_multiplied(facts, given):
        return HINT
    if rank == 2 or (swap_in(before, after) is None and not _crosses(before, after)):
        return LIKELY
    return BUG


def _has_no_order(facts: Facts, maker: int, event: int) -> bool:
    """Return whether a tensor is constant, or made in the expression that gives it its shape."""
    if facts.name(maker) in CONSTANT:
        return True
    return facts.name(maker) in MAKES_ANYTHING and _line(facts, maker) == _line(facts, event)


def _shifts_rows(facts: Facts, value: int, given: int) -> bool:
    """Return whether a tensor is cut elsewhere in order to shift each row by one, as relative attention does.

    It is padded before, or loses one entry of an axis between two views.
    """
    maker = facts.maker(value)
    if maker is not None:
        if facts.name(maker) in PADS:
            return True
        joined = [facts.maker(each) for each in facts.takes[maker]]
        if facts.name(maker) in JOINS and any(
            each is not None and facts.name(each) in ZEROS for each in joined
        ):
            return True
        if _loses_one(facts, maker) and joined[0] is not None and facts.name(joined[0]) in VIEWS:
            return True
    for user in facts.users.get(given, ()):
        later = [each for cut in facts.gives[user] for each in facts.users.get(cut, ())]
        if _loses_one(facts, user) and any(facts.name(each) in VIEWS for each in later):
            return True
    return False


def _loses_one(facts: Facts, event: int) -> bool:
    """Return whether a call cuts one entry off one axis: ``x[:, 1:]``."""
    if facts.name(event) not in CUTS or not facts.takes[event] or not facts.gives[event]:
        return False
    before = facts.shape(facts.takes[event][0])
    after = facts.shape(facts.gives[event][0])
    lost = [old - new for old, new in zip(before, after, strict=False) if old != new]
    return len(before) == len(after) and lost == [1]


def _line(facts: Facts, event: int) -> tuple[str, int]:
    at = facts.location(event)
    if at is None:
        return ("", 0)
    return (at.file, at.line)


def _is_multiplied(facts: Facts, value: int) -> bool:
    """Return whether a matrix goes into a product, where rows and columns are not to be confused."""
    products = ("matmul", "__matmul__", "mm", "linear", "bmm")
    return any(facts.name(user) in products for _, user in facts.uses(value))


def swap_in(before: Shape, after: Shape) -> str | None:
    """Return how to say what was meant, where a reshape looks like a swap of axes; else None."""
    begin = 0
    while begin < min(len(before), len(after)) and before[begin] == after[begin]:
        begin += 1
    end = 0
    while end < min(len(before), len(after)) - begin and before[-1 - end] == after[-1 - end]:
        end += 1
    old = before[begin : len(before) - end]
    new = after[begin : len(after) - end]
    if 1 in old or 1 in new:
        return None
    if len(old) == len(new) == 2 and old == new[::-1]:
        return f"use .transpose({begin}, {begin + 1})"
    if len(old) == len(new) > 2 and sorted(old) == sorted(new):
        return f"use .permute(…): the axes {list(old)} were to become {list(new)}"
    # [T, H * D] → [H, T, D] and [H, T, D] → [T, H * D]; the last size may have been cut off as equal.
    old_all = before[begin:]
    new_all = after[begin:]
    if (
        len(old_all) == 2
        and len(new_all) == 3
        and new_all[1] == old_all[0] != new_all[0]
        and 1 not in new_all
    ):
        split = f"{new_all[1]}, {new_all[0]}, {new_all[2]}"
        return f"split first, then swap: .view(…, {split}).transpose({begin}, {begin + 1})"
    if (
        len(old_all) == 3
        and len(new_all) == 2
        and old_all[1] == new_all[0] != old_all[0]
        and 1 not in old_all
    ):
        return f"swap first, then merge: .transpose({begin}, {begin + 1}).reshape(…)"
    return None


def _swap_beside_ones(before: Shape, after: Shape) -> str | None:
    """Return the same where axes of size one stand among the others, as in [2, B, H] to [B, 2 * H, 1]."""
    old = tuple(size for size in before if size != 1)
    new = tuple(size for size in after if size != 1)
    if (old, new) == (before, after) or len(old) < 3 or swap_in(old, new) is None:
        return None
    return "swap the axes first: .transpose(…).reshape(…)"


def _scattered(facts: Facts, value: int, before: Shape, after: Shape) -> str | None:
    """Return how to say what was meant, where axes are merged that are no neighbours, as [B, C, T] to [B * T, C]."""
    groups = merged_axes(before, after)
    if groups is None:
        return None
    if not _crosses(before, after):
        # The last axis may have been cut into pieces that are as long as another axis by accident.
        feature = _feature_axis(facts, value)
        if feature is None or groups[-1] != [feature]:
            return None
    order = [axis for group in groups for axis in group]
    order += [axis for axis in range(len(before)) if axis not in order]
    if len(after) == len(before):
        return f"use .permute({', '.join(map(str, order))})"
    return f"move the axes first: .permute({', '.join(map(str, order))}).reshape(…)"


def merged_axes(before: Shape, after: Shape) -> list[list[int]] | None:
    """Return which axes of a tensor each axis of its new shape seems to be made of.

    None where that is plain: where only neighbours are merged, or where no axes multiply to the new sizes.
    """
    axes = [axis for axis, size in enumerate(before) if size > 1]
    wanted = [size for size in after if size > 1]
    if len(axes) < 2 or not 2 <= len(wanted) < len(axes) or len(axes) > 6:
        return None
    if _neighbours(before, after):
        return None
    return _divided(before, axes, wanted)


def _divided(before: Shape, axes: Sequence[int], wanted: Sequence[int]) -> list[list[int]] | None:
    if not wanted:
        if axes:
            return None
        return []
    for chosen in range(1, 1 << len(axes)):
        group = [axis for place, axis in enumerate(axes) if chosen >> place & 1]
        if prod(before[axis] for axis in group) != wanted[0]:
            continue
        rest = _divided(before, [axis for axis in axes if axis not in group], wanted[1:])
        if rest is not None:
            return [group, *rest]
    return None


def _neighbours(before: Shape, after: Shape) -> bool:
    """Return whether each new axis is a product of old ones that stand next to each other."""
    return _ends(after) <= _ends(before)


def _ends(shape: Shape) -> set[int]:
    """Return how many numbers lie before the end of each axis."""
    return {prod(shape[: place + 1]) for place in range(len(shape))}


def _crosses(before: Shape, after: Shape) -> bool:
    """Return whether no splitting and merging of neighbours gives the new shape."""
    ends = sorted(_ends(before) | _ends(after))
    return any(large % small for small, large in pairwise(ends))


def _feature_axis(facts: Facts, value: int) -> int | None:
    """Return the axis that holds the features, or the classes, by what made a value."""
    _, maker = next(facts.sources(value, KEEPS_PLACES))
    if maker is None:
        return None
    name = facts.name(maker)
    if name in FEATURES_SECOND:
        return 1
    if name in ("softmax", "log_softmax"):
        return normal(facts.argument(maker, "dim", 1), len(facts.shape(value)))
    return None
