"""Two tensors of shapes like [N, 1] and [N] are combined: broadcasting gives [N, N], which is then averaged.

Every prediction is compared with every target. The loss goes down a little and stops, since the best answer is now the
mean of all targets. Usually a model gives [N, 1] and the data has [N].

    loss = ((model(x) - y) ** 2).mean()                # model(x): [64, 1], y: [64]
    loss = F.mse_loss(model(x), y)                     # the same

Comparing all with all is right in pairwise distances and contrastive losses; there one side is given its axis on
purpose (`unsqueeze`, `[:, None]`, `keepdim=True`), and nothing is reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.facts import KEEPS_NUMBERS, broadcast_shape
from torchglass.answers.findings.suspicion import BUG, LIKELY, Facts, Suspicion, seen_at

LOSSES = (
    "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits "
    "gaussian_nll_loss poisson_nll_loss hinge_embedding_loss soft_margin_loss margin_ranking_loss"
).split()
ARITHMETIC = (
    "sub add mul div true_divide __sub__ __rsub__ rsub __add__ __radd__ __mul__ __rmul__ __truediv__ __rtruediv__ "
    "subtract multiply divide maximum minimum max min eq __eq__ ne __ne__ gt lt ge le where pow"
).split()
ELEMENTWISE = frozenset(
    "pow square abs sqrt exp log neg mul div add sub clamp __mul__ __truediv__ __add__ __sub__ __neg__ __pow__ __abs__ "
    "rsub __rsub__ __radd__ __rmul__ float to where relu minimum maximum min max log1p sigmoid tanh softplus "
    "logsigmoid logaddexp cosh true_divide huber_loss".split()
)
SUMS = frozenset("sub add __sub__ __rsub__ rsub __add__ __radd__ subtract".split())
SIGNS = frozenset({"neg", "__neg__"})
COMPARISONS = ("eq", "__eq__", "ne", "__ne__")
REDUCTIONS = frozenset("mean sum all count_nonzero nanmean norm vector_norm logsumexp".split())
SHOWN = ("__repr__", "__format__")
MOST_STEPS, MOST_USERS = 8, 4
"""How far, and how broadly, the uses of a result are followed."""
ON_PURPOSE = frozenset(
    "unsqueeze __getitem__ view reshape expand expand_as unflatten t T mT transpose".split()
)


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in LOSSES:
        for event, times in facts.calls(name):
            if (
                facts.argument(event, "reduction", default="mean") == "none"
                and name != "margin_ranking_loss"
            ):
                continue
            yield from _compare(facts, event, times, f"{name} compares")
    for name in ARITHMETIC:
        for event, times in facts.calls(name):
            if not facts.is_written(event):
                continue
            reduced = reduced_by(facts, event)
            if reduced is None and _lacks_axis(facts, event):
                yield _lost_axis(facts, event, times)
            if reduced is not None:
                yield from _compare(facts, event, times, f"{facts.code(event)} combines", reduced)


def _compare(
    facts: Facts, event: int, times: int, what: str, reduced: int | None = None
) -> Iterator[Suspicion]:
    if len(facts.takes[event]) < 2:
        return
    first, second = facts.takes[event][:2]
    given = broadcast_shape(facts.shape(first), facts.shape(second))
    if given is None or not grows(facts, first, given) or not grows(facts, second, given):
        return
    is_asked = facts.name(event) in COMPARISONS
    kept = [keeps_axis(facts, each) for each in (first, second)]
    if any(kept) and not is_asked:
        # [N, 1] of a reduction with keepdim=True is made to fit [N, M]; with [N] it gives each with each.
        if reduced is None or not _is_only_averaged(facts, event):
            return
    elif on_purpose(facts, first, is_asked) or on_purpose(facts, second, is_asked):
        return
    word = f"[{', '.join(map(str, given))}]"
    if len(facts.shape(first)) > len(facts.shape(second)):
        column, row = (first, second)
    else:
        column, row = (second, first)
    size = facts.shape(column)[:1]
    starts_alike = size == facts.shape(row)[:1] and size == given[1:2]
    is_classic = starts_alike and len(facts.shape(row)) == 1
    if reduced is not None and not (
        is_classic or (starts_alike and _is_column(facts, column, row))
    ):
        return
    is_harmless = reduced is not None and _is_averaged_sum(facts, event)
    if is_harmless:
        what = f"the average comes out right, but {what}"
    evidence = ()
    if reduced is not None:
        evidence = (seen_at(facts, f"reduced by {facts.code(reduced)}", reduced),)
    yield Suspicion(
        severity=BUG if is_classic and not is_harmless else LIKELY,
        event=event,
        text=f"{what} {facts.word(first)} with {facts.word(second)}: broadcasting gives {word}, each with each",
        evidence=evidence,
        fix="give both the same shape: .squeeze(1) of the one with more axes, or .unsqueeze(1) of the other",
        times=times,
    )


def _lacks_axis(facts: Facts, event: int) -> bool:
    """Return whether one side has an axis of size one where the other one lost its axis in a reduction.

    As [B, 1, H, W] and x.sum(1) of [B, C, H, W]: the batches are combined, each with each.
    """
    if len(facts.takes[event]) < 2:
        return False
    column, row = sorted(facts.takes[event][:2], key=lambda each: -len(facts.shape(each)))
    shape = facts.shape(column)
    if (
        len(shape) < 3
        or shape[0] < 2
        or shape[1] != 1
        or facts.shape(row) != (shape[0], *shape[2:])
    ):
        return False
    if on_purpose(facts, column, False) or keeps_axis(facts, column):
        return False
    maker = facts.maker(row)
    while maker is not None and facts.name(maker) in ELEMENTWISE and facts.takes[maker]:
        row = facts.takes[maker][0]
        maker = facts.maker(row)
    if maker is None or facts.name(maker) not in REDUCTIONS or not facts.takes[maker]:
        return False
    whole = facts.shape(facts.takes[maker][0])
    return len(whole) == len(shape) and whole[:1] + whole[2:] == facts.shape(row)


def _lost_axis(facts: Facts, event: int, times: int) -> Suspicion:
    first, second = facts.takes[event][:2]
    given = facts.word(facts.gives[event][0])
    return Suspicion(
        severity=BUG,
        event=event,
        text=f"{facts.code(event)} combines {facts.word(first)} with {facts.word(second)}: broadcasting gives {given}, "
        "each sample with each",
        fix="reduce with keepdim=True",
        times=times,
    )


def _is_column(facts: Facts, column: int, row: int) -> bool:
    """Return whether one tensor has a number for each sample, [N, 1, 1, 1], and the other lacks an axis: [N, H, W]."""
    shape = facts.shape(column)
    return set(shape[1:]) == {1} and len(facts.shape(row)) == len(shape) - 1


def _is_only_averaged(facts: Facts, event: int) -> bool:
    """Return whether an average or a sum of all follows at once."""
    found = _reductions(facts, event, SIGNS)
    return bool(found) and found <= {"mean", "sum"}


def _is_averaged_sum(facts: Facts, event: int) -> bool:
    """Return whether the average of a sum is taken: it is the same whichever was added to which."""
    return facts.name(event) in SUMS and _reductions(facts, event, SUMS | SIGNS) == {"mean"}


def _reductions(facts: Facts, event: int, passes: frozenset[str]) -> set[str]:
    """Return the names of the calls that use what a call gives, after those that only pass it on."""
    users = [user for given in facts.gives[event] for user in facts.users.get(given, ())]
    while len(users) == 1 and facts.name(users[0]) in passes and facts.gives[users[0]]:
        users = facts.users.get(facts.gives[users[0]][0], [])
    return {facts.name(user) for user in users}


def grows(facts: Facts, value: int, given: tuple[int, ...]) -> bool:
    """Return whether a tensor was repeated to get this shape."""
    shape = facts.shape(value)
    padded = (1,) * (len(given) - len(shape)) + shape
    return facts.numel(value) > 1 and padded != given


def on_purpose(facts: Facts, value: int, is_asked: bool) -> bool:
    """Return whether an axis of size one was put there deliberately, in order to compare each with each.

    Predictions that are compared with labels often have ``argmax(1, keepdim=True)``, which says nothing.
    """
    shape = facts.shape(value)
    if 1 not in shape:
        return False
    for _ in range(6):
        maker = facts.maker(value)
        if maker is None:
            return False
        name = facts.name(maker)
        taken = facts.takes[maker]
        if facts.argument(maker, "keepdim") is True:
            return not is_asked
        is_slice = name == "__getitem__" and len(facts.shape(taken[0])) == len(facts.shape(value))
        if is_slice:
            return False  # `output[:, :1]` is one column of several
        if name in ON_PURPOSE and taken and facts.shape(taken[0]) != facts.shape(value):
            return 1 not in facts.shape(taken[0]) or len(facts.shape(taken[0])) < len(
                facts.shape(value)
            )
        if not taken or name not in ELEMENTWISE | KEEPS_NUMBERS:
            return False
        same = [each for each in taken if facts.shape(each) == facts.shape(value)]
        if not same:
            return False
        value = same[0]
    return False


def keeps_axis(facts: Facts, value: int) -> bool:
    """Return whether an axis of size one was left by a reduction with ``keepdim=True``."""
    for _ in range(6):
        maker = facts.maker(value)
        if maker is None or not facts.takes[maker]:
            return False
        if facts.argument(maker, "keepdim") is True:
            return True
        if facts.name(maker) not in ELEMENTWISE | {"detach", "clone"}:
            return False
        value = facts.takes[maker][0]
    return False


def reduced_by(facts: Facts, event: int) -> int | None:
    """Return the call that makes one number of everything that an event gives, if nothing else uses it."""
    if not facts.gives[event]:
        return None
    return _reduction_of(facts, facts.gives[event][0], MOST_STEPS)


def _reduction_of(facts: Facts, value: int, steps: int) -> int | None:
    """Follow all uses of a value; None if one of them is no reduction."""
    users = [user for user in facts.users.get(value, []) if facts.name(user) not in SHOWN][
        : MOST_USERS + 1
    ]
    if not users or len(users) > MOST_USERS or steps == 0:
        return None
    found: int | None = None
    for user in users:
        name = facts.name(user)
        given = facts.gives[user]
        if not given:
            return None
        reduction: int | None = None
        if name in REDUCTIONS and facts.numel(given[0]) == 1:
            reduction = user
        elif (name in ELEMENTWISE or name == "detach") and facts.shape(given[0]) == facts.shape(
            value
        ):
            reduction = _reduction_of(facts, given[0], steps - 1)
        if reduction is None:
            return None
        found = found or reduction
    return found
