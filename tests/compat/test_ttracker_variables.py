"""``var_tracker``: each change of a named variable at its line, below the calls, and nothing left behind."""
# ruff: noqa: RET504 (a variable that is assigned and returned is what is watched)

import asyncio
import contextlib
import linecache
import re
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import torch

from torchglass.compat.ttracker import auto_diff, var_tracker
from torchglass.errors import UsageError, WrongType


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("TORCHGLASS", "TORCHGLASS_CONSOLE", "TORCHGLASS_LANG", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def changes(capsys):
    """(name, line in the function, text) of each change printed since the last look."""

    def look(function):
        first = function.__wrapped__.__code__.co_firstlineno
        found = re.findall(r"├─ \[(?:Var|Tensor)\] (\S+)@(\d+) (.*)", capsys.readouterr().out)
        return [(name, int(line) - first, text.removeprefix("→ ")) for name, line, text in found]

    return look


# ---------------------------------------------------------------- the document's samples

DATASET = """
class T2VDataset:
    @var_tracker("sample", "frame_indice", "video")@175
    def get_merge_data(self, examples, index):@176
        sample = dict.fromkeys(range(10))@335
        self.read(examples, big=True)
        frame_indice = list(range(73))@341
        return self.read(examples, big=False)

    @auto_diff
    def read(self, examples, big):
        return self.decode(222, 0) if big else self.resize(1770, 0)

    @auto_diff
    def decode(self, clip_total_frames, start_frame_idx):
        video = np.broadcast_to(np.uint8(0), (73, 640, 960, 3))@572
        video = torch.zeros((), dtype=torch.uint8).expand(video.shape)@574
        video = video.new_zeros(()).expand(73, 3, 720, 720)@575
        return video

    @auto_diff
    def resize(self, clip_total_frames, start_frame_idx):
        video = torch.zeros(()).expand(3, 73, 384, 544)@588
        return video
"""
LOADER = """
def getitem(dataset, index):
    return dataset.get_merge_data([0, 1, 2, 3], index)@283
"""
THREAD = """
def run(function, *args):
    return function(*args)@57
def boot(function, *args):
    return run(function, *args)@80
"""
SAMPLE = """\
┌── [ttracker.py:176] 函数 [T2VDataset.get_merge_data] 被调用于 getitem:283 (t2v_dataset.py:283 <- thread.py:57 <- thread.py:80)
├─ 输入 [Var] examples@0 len(value): 4
├─ 输入 [Var] index@0 value: 113
│   ├─ [Var] sample@335 len(value): 10
│   │   ├─ 输入 [Var] clip_total_frames@0 value: 222
│   │   ├─ 输入 [Var] start_frame_idx@0 value: 0
│   │   │   ├─ [Tensor] video@572 → shape=(73, 640, 960, 3) | dtype=uint8
│   │   │   ├─ [Tensor] video@574 → shape=torch.Size([73, 640, 960, 3]) | dtype=torch.uint8
│   │   │   ├─ [Tensor] video@575 → shape=torch.Size([73, 3, 720, 720]) | dtype=torch.uint8
│   ├─ [Var] frame_indice@341 len(value): 73
│   │   ├─ 输入 [Var] clip_total_frames@0 value: 1770
│   │   │   ├─ [Tensor] video@588 → shape=torch.Size([3, 73, 384, 544]) | dtype=torch.float32
│   │   └─ 输出 shape=torch.Size([3, 73, 384, 544])
│   └─ 输出 shape=torch.Size([3, 73, 384, 544])
""".splitlines()  # noqa: E501 (as in the document)


def executed(path, text, **names):
    """The names of a program whose lines stand where their ``@number`` says."""
    lines = []
    for line in text.splitlines():
        code, at, number = line.rpartition("@")
        if at and number.isdigit():
            lines += [""] * (int(number) - 1 - len(lines))
            line = code
        lines.append(line)
    path.write_text("\n".join(lines), encoding="utf-8")
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), names)
    return names


def test_the_samples_of_the_document_come_out_exactly(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TORCHGLASS_LANG", "zh")
    linecache.clearcache()
    tools = {"auto_diff": auto_diff, "var_tracker": var_tracker, "np": np, "torch": torch}
    dataset = executed(tmp_path / "ttracker.py", DATASET, **tools)["T2VDataset"]
    getitem = executed(tmp_path / "t2v_dataset.py", LOADER)["getitem"]
    boot = executed(tmp_path / "thread.py", THREAD)["boot"]
    boot(getitem, dataset(), 113)
    printed = capsys.readouterr().out.splitlines()
    rest = iter(printed)
    missing = [line for line in SAMPLE if line not in rest]  # in this order
    assert missing == []
    others = [line.strip("│ ") for line in printed if line not in SAMPLE]
    assert all(line.startswith(("┌── [ttracker.py:", "├─ 输入 [Var] ", "└─ 输出 ", "└─ 耗时 ")) for line in others)
    assert sum("┌──" in line for line in printed) == sum("└─ 耗时" in line for line in printed) == 5


# ---------------------------------------------------------------- changes


def test_all_kinds_of_values_and_changes(changes):
    @var_tracker("x")
    def f():
        x = 1
        x = "one"
        x = [1, 2]
        x.append(3)
        x = {"a": 1}
        x["b"] = 2
        x = {1}
        x = None
        x = np.zeros(2)
        x[0] = 1
        x = torch.zeros(2)
        x += 1
        x = x.double()
        x = torch.zeros(2, device="meta")
        x = torch.zeros(2)
        del x

    f()
    in_place = " | changed in place"
    f32 = "shape=torch.Size([2]) | dtype=torch.float32"
    assert changes(f) == [
        ("x", 2, "value: 1"),
        ("x", 3, "value: 'one'"),
        ("x", 4, "len(value): 2"),
        ("x", 5, "len(value): 3" + in_place),
        ("x", 6, "len(value): 1"),
        ("x", 7, "len(value): 2" + in_place),
        ("x", 8, "len(value): 1"),
        ("x", 9, "value: None"),
        ("x", 10, "shape=(2,) | dtype=float64"),
        ("x", 11, "shape=(2,) | dtype=float64" + in_place),
        ("x", 12, f32),
        ("x", 13, f32 + in_place),
        ("x", 14, "shape=torch.Size([2]) | dtype=torch.float64"),
        ("x", 15, f32 + " | device=meta"),
        ("x", 16, f32 + " | device=cpu"),
        ("x", 17, "deleted"),
    ]


def helper(video, scale):
    other = video * scale
    video = other + 1
    return video


def test_functions_that_are_called_count_and_other_names_do_not(changes):
    @var_tracker("video")
    def f(video):
        other = helper(video[0], scale=2)
        video = torch.nn.functional.pad(other, (1, 1))
        return video

    f(torch.ones(2, 3))
    first = f.__wrapped__.__code__.co_firstlineno
    inner = helper.__code__.co_firstlineno - first
    assert changes(f) == [
        ("video", inner, "shape=torch.Size([3]) | dtype=torch.float32"),
        ("video", inner + 2, "shape=torch.Size([3]) | dtype=torch.float32"),
        ("video", 3, "shape=torch.Size([5]) | dtype=torch.float32"),
    ]


def test_a_value_passed_on_under_the_same_name_is_no_change(changes):
    def passes_on(video):
        return len(video)

    @var_tracker("video")
    def f(video):
        passes_on(video)
        video = video[:1]
        passes_on(video)
        return passes_on(video * 2)

    f(torch.ones(2))
    inner = passes_on.__code__.co_firstlineno - f.__wrapped__.__code__.co_firstlineno
    assert [change[:2] for change in changes(f)] == [("video", 3), ("video", inner)]


def test_attributes_items_and_globs(changes):
    class Data:
        cache = None

    @var_tracker("data.cache", "h_*", 'batch["x"]')
    def f(data, batch):
        data.cache = torch.ones(2)
        h_1 = 1
        h_2 = h_1 + 1
        batch["x"] = h_2

    f(Data(), {"x": 0})
    assert [change[:2] for change in changes(f)] == [("data.cache", 2), ("h_1", 3), ("h_2", 4), ('batch["x"]', 5)]


def test_an_argument_of_the_decorated_function_is_shown_once_as_an_input(capsys):
    var_tracker("x")(lambda x: x)(3)
    assert capsys.readouterr().out.count("x@") == 1


def test_recursion_has_one_line_a_change_each_at_its_depth(capsys):
    @var_tracker("left")
    def down(n):
        left = n
        return down(left - 1) if left else 0

    down(2)
    lines = [line for line in capsys.readouterr().out.splitlines() if "] left@" in line]
    assert [line.index("├") for line in lines] == [4, 8, 12]


def test_one_decorator_may_be_used_for_many_and_stack_with_others(capsys):
    track = var_tracker("a")

    @track
    def one():
        a = 1
        b = 2
        return a + b

    two = var_tracker("b")(one)
    assert auto_diff(two) is two
    assert two() == 3
    out = capsys.readouterr().out
    assert (out.count("┌──"), out.count("] a@"), out.count("] b@")) == (1, 1, 1)
    assert track(auto_diff(one.__wrapped__))() == 3
    out = capsys.readouterr().out
    assert (out.count("┌──"), out.count("] a@"), out.count("] b@")) == (1, 1, 0)


@pytest.mark.parametrize("names", [("x",), ("x", "y")])
def test_a_change_that_several_watch_is_shown_once(names, capsys):
    @var_tracker(*names)
    def inner():
        x = 1
        return x

    def plain():
        x = 2
        return x

    @var_tracker("x")
    def outer():
        x = inner()
        x = plain()
        threads = [threading.Thread(target=each) for each in (inner, plain)]
        for thread in threads:
            thread.start()
            thread.join()
        return x

    outer()
    out = capsys.readouterr().out
    lines = {name: each.__code__.co_firstlineno for name, each in (("inner", inner.__wrapped__), ("plain", plain))}
    assert out.count(f"x@{lines['inner'] + 2} value: 1") == 2
    assert out.count(f"x@{lines['plain'] + 1} value: 2") == 2
    assert out.count("] x@") == 6


# ---------------------------------------------------------------- nothing is left behind


def leaves_by(way):
    @var_tracker("x")
    def f():
        x = 1
        if way == "raise":
            raise ValueError(x)
        return x

    @var_tracker("x")
    def g():
        x = 1
        yield x
        x = 2
        yield x

    if way == "generator":
        made = g()
        next(made)
        assert sys.gettrace() is BEFORE, "not while it waits either"
        return
    with contextlib.suppress(ValueError):
        f()


BEFORE = None


@pytest.mark.parametrize("way", ["return", "raise", "generator"])
def test_the_tracer_is_gone_however_the_call_is_left(way, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "BEFORE", sys.gettrace())
    leaves_by(way)
    assert sys.gettrace() is BEFORE
    assert threading.gettrace() is None


def test_a_tracer_that_was_there_goes_on_and_stays(changes):
    seen = []

    def tracer(frame, event, argument):
        if frame.f_code.co_name == "f":
            seen.append(event)
        return tracer

    @var_tracker("x")
    def f():
        x = 1
        x = 2
        return x

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        f()
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
    assert seen == ["call", "line", "line", "line", "return"]
    assert [change[1] for change in changes(f)] == [2, 3]


def test_other_tasks_are_not_watched_while_a_coroutine_waits(changes):
    @var_tracker("x")
    async def watched():
        x = 1
        await asyncio.sleep(0)
        x = 2
        await asyncio.sleep(0)
        return x

    async def other():
        for x in range(5):  # noqa: B007 (a variable of the watched name)
            await asyncio.sleep(0)

    async def main():
        await asyncio.gather(watched(), other())

    asyncio.run(main())
    assert [change[1:] for change in changes(watched)] == [(2, "value: 1"), (4, "value: 2")]


def test_each_thread_is_watched_by_itself(changes):
    @var_tracker("x")
    def f(n):
        for i in range(n):
            x = i
        return x

    barrier = threading.Barrier(4)

    def work():
        barrier.wait()
        f(20)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(changes(f)) == 80


def test_results_errors_and_gradients_are_the_plain_functions():
    def f(x):
        y = x * 2
        y = y + 1
        return y.sum()

    grads = []
    for function in (f, var_tracker("x", "y")(f)):
        x = torch.ones(3, requires_grad=True)
        function(x).backward()
        grads.append(x.grad)
    assert torch.equal(*grads)
    error = KeyError()
    with pytest.raises(KeyError) as caught:
        var_tracker("x")(lambda: (_ for _ in ()).throw(error))()
    assert caught.value is error


# ---------------------------------------------------------------- bad input, settings


def test_a_name_that_never_appears_is_shown_once_with_a_near_one(capsys):
    @var_tracker("vdeo")
    def f():
        video = 1
        return video

    f()
    f()
    out = capsys.readouterr().out
    assert out.count("no variable of this name has appeared: 'vdeo' (did you mean 'video'?)") == 1


def test_a_name_in_a_branch_that_was_not_taken_is_not_missed(capsys):
    @var_tracker("x")
    def f(way):
        if way:
            x = 1
            return x
        return None

    f(False)
    assert "no variable" not in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [(), (1,), (lambda: 1,)])
def test_without_names_it_says_how_to_write_it(wrong):
    with pytest.raises(WrongType, match=r'write @var_tracker\("video"\)'):
        var_tracker(*wrong)


def test_a_name_that_cannot_be_read_and_a_class():
    with pytest.raises(UsageError, match="cannot watch"):
        var_tracker("a.b(c)")
    with pytest.raises(WrongType, match="@var_tracker takes a function, not the class"):
        var_tracker("x")(dict)


def test_torchglass_0(monkeypatch):
    monkeypatch.setenv("TORCHGLASS", "0")
    assert var_tracker("x")(helper) is helper


def test_a_change_is_highlighted_on_a_terminal_only(capsys, monkeypatch):
    @var_tracker("x")
    def f():
        x = 1
        return x

    f()
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setenv("FORCE_COLOR", "1")
    f()
    colored = [line for line in capsys.readouterr().out.splitlines() if "\x1b" in line]
    assert len(colored) == 1
    assert re.fullmatch(r"│   \x1b\[33m├─ \[Var\] x@\d+ value: 1\x1b\[0m", colored[0])


WORKERS = """
    import numpy as np, torch
    from torch.utils.data import DataLoader, Dataset
    from torchglass.compat.ttracker import h4logger, logger, var_tracker

    logger.addHandler(h4logger())

    class Clips(Dataset):
        def __len__(self):
            return 4

        @var_tracker("video")
        def __getitem__(self, index):
            video = np.zeros((index + 1, 4), np.uint8)
            video = torch.from_numpy(video)
            return video.sum()

    @var_tracker("batches", "video")
    def epoch(loader):
        batches = [batch for batch in loader]
        return len(batches)

    assert epoch(DataLoader(Clips(), num_workers=2, multiprocessing_context="fork")) == 4
"""


def test_workers_forked_inside_a_watched_call(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(WORKERS), encoding="utf-8")
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    texts = [path.read_text() for path in (tmp_path / "logs" / "NOTAG").iterdir()]
    assert sorted(text.count("] video@14 → shape=(") for text in texts) == [0, 2, 2]
    assert sorted(text.count("] video@15 → shape=torch.Size([") for text in texts) == [0, 2, 2]
    assert sorted(text.count("] batches@20 len(value): 4") for text in texts) == [0, 0, 1]
    assert all("fault" not in text for text in texts)
