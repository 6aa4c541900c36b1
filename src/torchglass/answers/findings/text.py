"""Writes how many findings there are, and the few lines about them that are printed after a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchglass.answers.finding import BUG, HINT, LIKELY, Finding
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, cut, path_word, plural

MOST_SHOWN = 5
"""How many findings are printed after a run. ``torchglass check`` prints all of them."""
SIGNS = {BUG: "✗", LIKELY: "!", HINT: "·"}


def counted(
    findings: Sequence[Finding], silenced: Sequence[Finding] = (), are_hints_shown: bool = True
) -> str:
    """Return the numbers of findings as text, such as ``1 bug, 2 likely problems; 1 silenced``."""
    parts = [
        plural(number, word)
        for severity, word in ((BUG, "bug"), (LIKELY, "likely problem"), (HINT, "hint"))
        if (number := sum(each.severity == severity for each in findings))
    ]
    text = ", ".join(parts) or "nothing looks wrong"
    if not are_hints_shown:
        text += " (--all shows hints)"
    if silenced:
        return f"{text}; {len(silenced)} silenced"
    return text


def summary_lines(findings: Sequence[Finding], bundle: str, page: Page) -> Iterator[str]:
    """Yield the lines printed after a run: at most five findings, each with its fix. Hints are left
    out.
    """
    loud = [each for each in findings if each.severity != HINT]
    if not loud:
        return
    yield f"torchglass: {counted(loud)} (torchglass check {bundle})"
    for each in loud[:MOST_SHOWN]:
        at = each.location
        place = ""
        if at is not None:
            place = f"{path_word(at.file)}:{at.line}"
        room = page.width - len(place) - 6
        text = clean(each.text)
        heading = f"{cut(text, room):<{room}}"
        yield f"  {page.paint('error', SIGNS[each.severity])} {heading}  {place}".rstrip()
        yield cut(f"      {each.kind}: {clean(each.fix)}", page.width)
    if len(loud) > MOST_SHOWN:
        yield f"  and {len(loud) - MOST_SHOWN} more"
