"""No name from a program leads out of its folder, fails, or takes another one's file."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from torchglass.compat.torchspy._base import LONGEST, file_name
from torchglass.store.layout import whole_file

NAMES = st.text(st.characters(), max_size=400)  # with control characters and lone surrogates


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("step0.encoder.0.q", "step0.encoder.0.q.call0.pt"),
        ("attn->out [2]", "attn->out [2].call0.pt"),
        ("Aufmerksamkeit für 注意", "Aufmerksamkeit für 注意.call0.pt"),
        ("a/b", "a%2Fb.call0.pt"),
        ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd.call0.pt"),
        ("nul\0line\n50%", "nul%00line%0A50%25.call0.pt"),
        ("", "%2Ecall0.pt"),
    ],
)
def test_how_names_are_spelt(name, expected):
    assert file_name(name, ".call0.pt") == expected
    assert unquote(expected) == name + ".call0.pt"


@given(NAMES, st.sampled_from(["", ".call0.pt", "." + "x" * 300]))
@example("", "")
@example("..", "")
@example("注" * 300, ".call0.pt")
def test_every_name_is_one_short_part_of_a_path(name, ending):
    made = file_name(name, ending)
    assert Path("folder", made).parent == Path("folder")
    assert 0 < len(made.encode()) <= LONGEST
    assert made.isprintable()
    assert not made.startswith(".")
    assert not name or len(ending) > 20 or made.endswith(ending)


@given(NAMES, NAMES)
@example("a/b", "a%2Fb")
@example("x" * 300, file_name("x" * 300, ".pt").removesuffix(".pt"))
@example("x" * 300, "x" * 301)
def test_two_names_never_share_a_file(one, other):
    assert (file_name(one, ".pt") == file_name(other, ".pt")) == (one == other)


def test_a_file_that_fails_half_way_leaves_the_old_one_and_nothing_else(tmp_path):
    path = tmp_path / "kept"
    path.write_bytes(b"old")

    def fail():
        with whole_file(path) as draft:
            draft.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
