"""One shape for all answers: as text on a page, as text for an exception, and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from torchglass.answers.finding import BUG, ERROR, HINT, LIKELY, Evidence, Finding, finding_lines, in_order
from torchglass.errors import UsageError
from torchglass.events.types import Location
from torchglass.views.text.style import Page

AT = Location("/project/train.py", 31, 31, 4, 19, "main", "loss.backward()", "user")
BEFORE = Location("/project/train.py", 12, 12, 0, 5, "main", "opt = SGD(p)", "user")
FOUND = Finding(
    kind="no_zero_grad",
    severity=LIKELY,
    text="the gradients of all steps add up: zero_grad() was never called",
    event=7,
    location=AT,
    evidence=(Evidence("optimizer.step() ran 400 times"), Evidence("opt = SGD(p)", 3, BEFORE, "made")),
    fix="call optimizer.zero_grad() before backward()",
    times=400,
)


def test_as_text_it_says_what_where_why_and_how_to_fix_it():
    assert str(FOUND).split("\n") == [
        "likely: the gradients of all steps add up: zero_grad() was never called (× 400)",
        "  loss.backward()  at /project/train.py:31",
        "  optimizer.step() ran 400 times",
        "  opt = SGD(p)  at /project/train.py:12",
        "  fix: call optimizer.zero_grad() before backward()",
    ]


def test_on_a_page_no_line_is_longer_than_it_and_no_word_is_lost():
    lines = list(finding_lines(FOUND, Page(width=40)))
    assert max(map(len, lines)) <= 40
    assert " ".join(lines).split() == str(FOUND).split()


def test_as_json_nothing_is_lost():
    told = json.loads(json.dumps(FOUND.to_dict()))
    at = told.pop("location")
    assert (at["file"], at["line"], at["column"], at["source"]) == ("/project/train.py", 31, 4, "loss.backward()")
    assert [each["event"] for each in told.pop("evidence")] == [None, 3]
    assert told == {
        "kind": "no_zero_grad",
        "severity": "likely",
        "text": FOUND.text,
        "event": 7,
        "code": "",
        "fix": FOUND.fix,
        "times": 400,
    }


def test_an_error_needs_no_word_for_how_sure_it_is():
    assert str(replace(FOUND, severity=ERROR, times=1)).startswith("the gradients of all steps")


def test_nothing_that_a_terminal_obeys_gets_through():
    text = str(replace(FOUND, text="\x1b[31mred", code="a\x07", fix="\u202eevil"))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text


def test_the_most_certain_comes_first():
    hint, bug = replace(FOUND, severity=HINT, event=1), replace(FOUND, severity=BUG, event=9)
    early = replace(FOUND, event=2)
    assert in_order([hint, FOUND, early, bug]) == [bug, early, FOUND, hint]


def test_an_unknown_severity_is_refused():
    with pytest.raises(UsageError, match="bug"):
        replace(FOUND, severity="awful")
