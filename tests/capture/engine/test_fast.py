"""The compiled engine is safe: nothing grows, nothing is lost quietly, no memory is touched that is not its own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import textwrap
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchglass as tg
from torchglass import compiled
from torchglass.capture.torch.ops import COPIED

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(compiled.engine() != compiled.COMPILED, reason=f"the engine is {compiled.described()}")
BLOCKS = 10_000


def python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints; fails with its error output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, cwd=ROOT, check=False,
        env={**os.environ, "PYTHONFAULTHANDLER": "1", **environment},  # where it crashed, if it does
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_blocks_leave_nothing_behind() -> None:
    code = f"""
        import gc, os, sys, resource, torch, torchglass as tg
        model, x = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()), torch.ones(1, 2)
        def kilobytes_now():  # not the most there ever was, which on a busy machine is what was about to be freed
            if os.path.exists("/proc/self/statm"):
                return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() // 1024
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        def blocks(count):
            for number in range(count):
                with tg.record(ops=number % 2 == 1):
                    model(x)
            gc.collect()
            return sys.getallocatedblocks(), kilobytes_now()
        # Some thousand blocks fill what the collector leaves lying until it goes through everything.
        before, kilobytes = blocks({BLOCKS} // 2)
        after, more = blocks({BLOCKS} // 2)
        print(after - before, more - kilobytes)
    """
    objects, kilobytes = map(int, python(code).split())
    assert objects < 500
    assert kilobytes < BLOCKS, "more than two kilobytes for each block of the second half"


def test_it_says_why_it_is_not_used() -> None:
    code = "import torchglass.compiled as c; print(c.engine(), '/', c.why_not)"
    assert python(code, TORCHGLASS_ENGINE="python").strip() == "python / TORCHGLASS_ENGINE=python"
    assert "neither python nor fast" in python(code, TORCHGLASS_ENGINE="quick")
    assert python(code, TORCHGLASS_ENGINE="fast").strip() == "compiled /"


def test_a_torch_with_other_attributes_gets_the_engine_in_python() -> None:
    code = """
        import torch
        torch.Tensor.shape = property(lambda self: self.size())
        import torchglass as tg
        with tg.record() as trace:
            torch.ones(2) + 1
        print([event.name for event in trace.events()], trace.engine)
    """
    assert python(code).strip().startswith("['ones', 'Tensor.add'] python: this torch is not what was expected")


def test_recursion_ends_where_it_would() -> None:
    class Deep(nn.Module):
        def forward(self, left: list[int]) -> None:
            left.append(1)
            self(left)

    def depth() -> int:
        reached: list[int] = []
        with pytest.raises(RecursionError):
            Deep()(reached)
        return len(reached)

    plain = depth()
    with tg.record():
        recorded = depth()
    assert abs(recorded - plain) <= 2


def test_tracebacks_hold_no_frame_of_ours_and_name_torchs_line() -> None:
    def frames() -> list[tuple[str, int]]:
        try:
            nn.Linear(2, 2)(torch.ones(3))
        except RuntimeError as error:
            trace, found = error.__traceback__, []
            while trace is not None:
                found.append((trace.tb_frame.f_code.co_qualname, trace.tb_lineno))
                trace = trace.tb_next
            return found[1:]
        raise AssertionError

    plain = frames()
    with tg.record():
        recorded = frames()
    # The function that refuses stands twice: as it was called, and as it is looked into; in C it has no frame.
    assert recorded == plain


def test_a_warning_counts_no_frame_twice() -> None:
    def warned() -> list[tuple[str, int]]:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            F.softmax(torch.ones(2))  # without a dimension it warns, two frames up
        return [(each.filename, each.lineno) for each in found]

    plain = warned()
    with tg.record():
        recorded = warned()
    assert recorded == plain
    assert plain[0][0] == __file__


@cache
def json_survives_without_memory() -> bool:
    """Whether json alone, in a process without torch and without us, copes with memory that runs out.

    It kills the process, or harms it so that it dies later, in Python 3.12.1 and 3.13.0.
    """
    code = """
        import _testcapi, gc, json
        encode = json.JSONEncoder(separators=(",", ":")).encode
        for number in list(range(150)) * 3:
            form = [["tensor", [number + 2], "f32"], [1, 2.5, ["x" * number]], {"text" * number: number}]
            _testcapi.set_nomemory(number, number + 1)
            try:
                encode(form)
            except MemoryError:
                pass
            finally:
                _testcapi.remove_mem_hooks()
        gc.collect()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.parametrize("ops", [False, True])
def test_memory_that_runs_out_costs_an_event_and_never_the_program(ops: bool) -> None:
    """Each allocation that C and what it asks makes in the course of one event fails once."""
    pytest.importorskip("_testcapi")
    if not json_survives_without_memory():
        pytest.skip("this Python's json, which writes each form, crashes by itself where memory runs out")
    code = f"""
        import _testcapi, torch, torchglass as tg
        from torchglass.capture.engine.log import LOGS
        from threading import get_ident
        import sys
        failed = 0
        with tg.record(ops={ops}) as trace:
            log, frame = LOGS[get_ident()], sys._getframe()
            session = log.session
            what = session.what("mark", "x")
            x = torch.ones(3)
            with torch._C.DisableTorchFunction():
                for number in range(150):
                    fresh = torch.ones(number + 2)
                    args, named = (fresh, [1, 2.5, fresh], "text" * number), dict(dim=number)
                    parent = log.parent
                    _testcapi.set_nomemory(number, number + 1)
                    try:
                        at = session.open_event(log, what, frame, args, named)
                        session.close_event(log, at, fresh)
                    except MemoryError:
                        failed += 1
                    finally:
                        _testcapi.remove_mem_hooks()
                    log.parent = parent
                    assert log.on
            y = x + 1
        assert y.tolist() == [2.0] * 3
        found = list(trace.events())
        assert found[-1].name in ("Tensor.add", "aten::add.Tensor"), found[-1]
        marks = [each for each in found if each.kind == "mark"]
        whole = [each for each in marks if each.inputs and each.outputs]
        print(failed, len(marks), len(whole))
    """
    failed, marks, whole = map(int, python(code).split())
    assert failed > 10
    assert whole >= 150 - failed
    assert marks <= 150


def test_a_program_that_lets_go_of_the_journal_meanwhile() -> None:
    """A forked child, or the end of the recording in another thread: nothing is written where nothing is."""
    with tg.record() as trace:
        session: Any = trace._source._recorder.session  # type: ignore[attr-defined]
        before = torch.ones(2) + 1
        session.journal.end()
        after = torch.ones(2) + 1
        nn.Linear(2, 2)(after)
    assert torch.equal(before, after)
    # What was written before is there; what came after is not, and is no half event either.
    assert [each.name for each in trace.events() if each.kind == "function"] == ["ones", "Tensor.add"]


def test_objects_that_die_while_they_are_read() -> None:
    """A list that is shortened by what reading its items runs."""

    class Shortens(Tensor):
        @property
        def shape(self) -> Any:
            held.clear()
            return super().shape

    held: list[Any] = []
    with tg.record() as trace:
        for _ in range(20):
            held[:] = [torch.ones(1).as_subclass(Shortens), torch.ones(1), torch.ones(1)]
            try:
                torch.stack(held)
            except (TypeError, RuntimeError):
                pass
    assert not any("failed to record" in note for note in trace.notes)


def test_a_finalizer_that_uses_tensors_while_the_table_of_tensors_grows() -> None:
    """The garbage collector may run while the table of known tensors grows; the finalizer here makes it grow, too."""
    code = """
        import gc, torchglass as tg
        from torchglass.capture.engine.log import LOGS
        from torchglass.system import get_ident

        class Known:  # stands for a tensor, so that nothing but the table is used here
            pass

        class Garbage:
            def __init__(self):
                self.myself = self
            def __del__(self):
                for number, each in enumerate(late):
                    engine.remember(each, number, 0)

        first, late = [Known() for _ in range(128)], [Known() for _ in range(400)]
        references = [[] for _ in range(200)]  # so that Python keeps no list aside: a new one may start the collector
        gc.disable()
        with tg.record():
            engine = LOGS[get_ident()].session.engine
            for threshold in range(1, 20):  # one of these starts the collector while the table grows
                engine.clear_living()
                for number, each in enumerate(first):  # the next one makes the table grow
                    engine.remember(each, 1000 + number, 0)
                one_more = Known()
                gc.collect()
                Garbage()
                gc.set_threshold(threshold)
                gc.enable()
                engine.remember(one_more, 2000, 0)
                gc.disable()
                for number, each in enumerate(first):
                    assert engine.known(each) == (1000 + number, 0), threshold
                assert engine.known(one_more) == (2000, 0), threshold
        print("survived")
    """
    assert python(code) == "survived\n"


def test_an_event_opens_only_with_a_dict_of_arguments_or_none() -> None:
    code = """
        import torchglass as tg
        from torchglass.capture.engine.log import LOGS
        from torchglass.system import get_ident
        with tg.record():
            log = LOGS[get_ident()]
            try:
                log.engine.open_event(log, 0, None, (), ["no dict"])
            except TypeError as error:
                print(error)
    """
    assert python(code) == "a log, what, a frame, a tuple, and a dict or None are wanted\n"


def test_the_extension_is_of_this_python() -> None:
    assert str(compiled.extension.__file__).endswith(str(sysconfig.get_config_var("EXT_SUFFIX")))


def _python_calls(act: Callable[[], Any]) -> Counter[str]:
    """How often each Python function of ours is called."""
    found: Counter[str] = Counter()

    def count(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and str(frame.f_globals.get("__name__")).startswith("torchglass.capture"):
            found[frame.f_code.co_name] += 1

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return found


def test_names_that_torch_gives_to_arguments_are_no_affair_of_pythons() -> None:
    """`aten::zeros` gets its dtype from C++, under a name that is made anew for each call."""
    with tg.record(ops=True) as trace:
        torch.zeros(2, dtype=torch.float64)
        calls = _python_calls(lambda: [torch.zeros(2, dtype=torch.float64) for _ in range(20)])
    assert calls["intern_call"] == 0
    event = list(trace.events(kind="op"))[-1]
    assert event.name == "aten::zeros"
    assert "dtype=torch.float64" in event.args


def test_what_runs_inside_an_optimizers_step_does_not_ask_python_whether_the_step_is_running() -> None:
    parameters = [nn.Parameter(torch.ones(2)) for _ in range(10)]
    optimizer = torch.optim.AdamW(parameters, foreach=False)
    with tg.record() as trace:
        for _ in range(2):
            sum(each.sum() for each in parameters).backward()
            calls = _python_calls(optimizer.step)
            optimizer.zero_grad()
    inside = [event for event in trace.events(kind="function") if event.parent is not None]
    assert len(inside) > 100
    assert calls["heal_steps"] + calls["runs_above"] + calls["changed"] == 0
    assert {trace.event(event.parent).kind for event in inside} >= {"step"}


def test_ops_of_backward_and_copied_handles_are_no_affair_of_pythons() -> None:
    """There our function mode is on the stack, and what tanh keeps for it is torch's own copy of a handle."""
    weights = [nn.Parameter(torch.ones(4, 4)) for _ in range(3)]
    x = torch.ones(2, 4)

    def act() -> None:
        y = x
        for weight in weights:
            y = torch.tanh(y @ weight).view(4, 2).view(2, 4)
        y.sum().backward()

    with tg.record(ops=True) as trace:
        act()  # each op is new
        act()  # … and that a gradient is added to another
        calls = _python_calls(act)
    in_backward = [event for event in trace.events(kind="op") if event.phase == "backward"]
    assert len(in_backward) > 30
    assert any(event.note == COPIED for event in trace.events(kind="op"))
    assert calls["call_unasked"] + calls["__torch_dispatch__"] + calls["_boxed"] == 0


def test_a_number_in_place_of_a_tensor_in_backward() -> None:
    """`x / 2`: autograd hands the number on where the op's schema wants a tensor."""
    x = torch.arange(3.0, requires_grad=True)
    with tg.record(ops=True) as trace:
        (x / 2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.5] * 3
    divided = [event for event in trace.events(kind="op") if event.name == "aten::div.Tensor"]
    assert [event.phase for event in divided] == ["forward", "backward"]
    assert divided[1].args.endswith(", 2")


def test_a_step_that_an_exception_left_is_closed_by_the_next_event() -> None:
    class Failing(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            torch.ones(2).add_(1)
            raise KeyError("step")

    optimizer = Failing([nn.Parameter(torch.ones(2))], lr=0.1)
    with tg.record() as trace:
        with pytest.raises(KeyError):
            optimizer.step()
        torch.relu(torch.ones(3))
    step = next(iter(trace.events(kind="step")))
    assert step.error is not None
    assert next(iter(trace.events(function="relu"))).parent is None


def test_metadata_is_the_same_in_each_block() -> None:
    """What is kept for the process is written into each journal anew."""
    tensor = torch.ones(3, 5, dtype=torch.float16)
    found = []
    for _ in range(3):
        with tg.record() as trace:
            (tensor.t() + 1).sum()
        found.append([(each.shape, each.stride, each.dtype, each.device) for each in trace.values()])
    assert found[0] == found[1] == found[2]
    assert ((5, 3), (1, 5), "float16", "cpu") in found[0]


def test_two_threads_that_meet_one_model_write_each_module_once() -> None:
    model, x = nn.Sequential(*[nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(50)]), torch.ones(1, 2)
    with tg.record() as trace:
        threads = [threading.Thread(target=model, args=(x,)) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    calls = Counter(event.module for event in trace.events(kind="module"))
    assert len(calls) == 151
    assert set(calls.values()) == {4}
