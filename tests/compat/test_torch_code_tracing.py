"""TracingMode against the original package: the same lines for the same program, and what it must not do to it."""

from __future__ import annotations

import gc
import re
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import Any

import pytest
import torch
import torch_code_tracing

import torchglass as tg
from tests import programs, zoo
from torchglass.compat.torch_code_tracing import TracingMode
from torchglass.views.text.words import path_word

FAMILIES = ("gpt2", "llama", "mixtral", "gemma2", "bloom", "mamba", "bert", "t5", "vit", "clip")

# Where the lines must differ, and why.
DIFFERENT = {
    "copies": "the original prints the bytes of storages",
    "custom_ops": "the original keeps frames, so that a gradient is copied instead of taken over",
    "executed_source": "the original does not find the source of what was given to exec",
    "factories": "the original prints the addresses of generators",
    "hooks": "the original keeps frames, so that a gradient is copied instead of taken over",
    "lazy": "the original does not survive parameters without a shape",
    "linear_algebra": "functions that a dispatch mode would change run without ours",
    "nested": "the original does not survive tensors without sizes",
    "padded_sequences": "functions that a dispatch mode would change run without ours",
    "recurrent_layers": "functions that a dispatch mode would change run without ours",
    "quantised": "the original does not survive dtypes without an abbreviation",
    "threads": "the original sees its own thread only",
    **dict.fromkeys(programs.SLOW, "compiling anew for each mode takes long"),
}


def ran(mode: Any, function: Callable[[], object]) -> Any:
    """The mode after it has seen the function."""
    with suppress(RuntimeError, KeyboardInterrupt), mode:
        function()
    return mode


def in_a_thread(mode: Any, function: Callable[[], object]) -> None:
    """Away from the many frames of a test runner, whose sources the original reads for each op."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(ran, mode, function).result()


def both(function: Callable[[], object]) -> tuple[Any, TracingMode]:
    """The original and ours after the same program."""
    modes = torch_code_tracing.TracingMode(quiet=True), TracingMode(quiet=True)
    for mode in modes:
        in_a_thread(mode, function)
    return modes


def lines(mode: Any, **options: bool) -> list[str]:
    """What a mode formats: paths as ours, and without the semicolon that the original forgets at times."""
    text = mode.format(**options)
    for file in sorted({frame.filename for trace in mode.traces for frame in trace.stack}, key=len, reverse=True):
        text = text.replace(f"# {file}:", f"# {path_word(file)}:")
    return text.replace(";\x1b[0m", "\x1b[0m").replace(";\n", "\n").removesuffix(";").split("\n")


def model(family: str) -> Callable[[], object]:
    network, inputs = zoo.FAMILIES[family]()
    return lambda: network(**inputs)


def assert_same(theirs: Any, ours: TracingMode) -> None:
    for succinct in (True, False):
        for color in (False, True):
            options = {"succinct": succinct, "color": color}
            assert lines(ours, **options) == lines(theirs, **options)
    assert len(theirs.traces) == len(ours.traces) > 0
    for original, trace in zip(theirs.traces, ours.traces, strict=True):
        assert trace.op_str == original.op_str
        for ours_at, theirs_at in zip(trace.stack, original.stack, strict=True):
            for name in ("filename", "lineno", "function", "positions"):
                assert getattr(ours_at, name) == getattr(theirs_at, name), name
            assert stripped(ours_at.code_context) == stripped(theirs_at.code_context)


def stripped(context: list[str] | None) -> list[str]:
    return [line.strip() for line in context or ()]


# ---------------------------------------------------------------- what the original does not find


def test_what_is_given_to_exec_again_has_its_own_lines(capsys: pytest.CaptureFixture[str]) -> None:
    names = {"x": torch.ones(2, 3)}
    with TracingMode(color=False) as mode:
        exec("y = x * 3", names)
        exec("y = x * 4; z = y.sum()", names)
    printed = capsys.readouterr().out
    assert printed == mode.format() + "\n"
    texts = re.findall(r"(y = x .*)  # <string>:1 in <module>:", printed)
    assert texts == ["y = x * 3", "y = x * 4; z = y.sum()"]
    assert [trace.stack[-1].code_context for trace in mode.traces] == [[texts[0]], [texts[1]], [texts[1]]]


# ---------------------------------------------------------------- against the original


@pytest.mark.parametrize("family", FAMILIES)
def test_a_transformer_prints_the_original_lines(family: str) -> None:
    theirs, ours = both(model(family))
    assert_same(theirs, ours)
    assert "site-packages/transformers/" in ours.format()


def test_a_training_step_of_a_transformer_prints_the_original_lines() -> None:
    network, inputs = zoo.FAMILIES["gpt2"]()
    optimizer = torch.optim.SGD(network.parameters(), foreach=True)

    def step() -> None:
        optimizer.zero_grad()
        network(**inputs, labels=inputs["input_ids"]).loss.backward()
        optimizer.step()

    step()  # what is done once only is done before
    theirs, ours = both(step)
    assert_same(theirs, ours)
    assert any(trace.op_str.startswith("_foreach_add_.List(['f32[") for trace in ours.traces)
    assert any(trace.op_str.endswith(" -> None") for trace in ours.traces)


@pytest.mark.parametrize("name", [name for name in programs.names() if name not in DIFFERENT])
def test_a_program_prints_the_original_lines(name: str) -> None:
    main = programs.load(name).main
    if name == "ctrl_c":  # signals are for the main thread, where the test runner's own lines are in every stack
        theirs, ours = (ran(cls(quiet=True), main) for cls in (torch_code_tracing.TracingMode, TracingMode))
        assert [trace.op_str for trace in ours.traces] == [trace.op_str for trace in theirs.traces]
    else:
        assert_same(*both(main))


@pytest.mark.parametrize("name", [name for name in DIFFERENT if name not in programs.SLOW])
def test_a_program_that_the_original_does_otherwise_is_still_printed(name: str) -> None:
    ours = ran(TracingMode(quiet=True), programs.load(name).main)
    try:
        theirs = torch_code_tracing.TracingMode(quiet=True)
        in_a_thread(theirs, programs.load(name).main)
    except Exception:
        assert "survive" in DIFFERENT[name]
    else:
        assert lines(theirs) != lines(ours), "no longer different: take it off the list"
    assert ours.traces
    assert ours.format().endswith(";")


def test_custom_ops_keep_their_namespace() -> None:
    def fill(x: torch.Tensor, value: float) -> None:
        x.fill_(value)

    with torch.library._scoped_library("glasstest", "DEF") as library:
        library.define("twice(Tensor x, *, str how='plain') -> Tensor")
        library.define("fill(Tensor(a!) x, float value) -> ()")
        library.impl("twice", lambda x, how="plain": x * 2, "CompositeExplicitAutograd")
        library.impl("fill", fill, "CompositeExplicitAutograd")

        def use() -> None:
            x = torch.ops.glasstest.twice(torch.ones(2), how="well")
            torch.ops.glasstest.fill(x, 3.0)

        theirs, ours = both(use)
        assert_same(theirs, ours)
        assert ours.traces[1].op_str == "glasstest::twice(f32[2], how=well) -> f32[2]"
        assert ours.traces[2].op_str == "glasstest::fill(f32[2], 3.0) -> None"


# ---------------------------------------------------------------- what it is like to use


def compute() -> torch.Tensor:
    x = torch.ones(2, 3)
    return x.exp() + 1


def test_it_prints_as_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    with TracingMode(color=False) as mode:
        x = torch.ones(2)
        first = capsys.readouterr().out
        x.exp()
        second = capsys.readouterr().out
    assert first.endswith("# ones([2], device=cpu, pin_memory=False) -> f32[2];\n")
    assert second.splitlines()[-1].endswith("# exp(f32[2]) -> f32[2];")
    assert first + second == mode.format() + "\n"


@pytest.mark.parametrize("succinct", [True, False])
@pytest.mark.parametrize("color", [True, False])
def test_live_and_stored_lines_are_the_same(succinct: bool, color: bool, capsys: pytest.CaptureFixture[str]) -> None:
    mode = ran(TracingMode(succinct=succinct, color=color), model("gpt2"))
    printed = capsys.readouterr().out
    assert printed == mode.format(color=color, succinct=succinct) + "\n"
    mode.print(succinct=succinct)
    assert capsys.readouterr().out == printed
    assert ("\x1b[36m" in printed) == color


def test_quiet_prints_nothing_and_keeps_everything(capsys: pytest.CaptureFixture[str]) -> None:
    mode = ran(TracingMode(quiet=True), compute)
    assert capsys.readouterr().out == ""
    assert [trace.op_str.partition("(")[0] for trace in mode.traces] == ["ones", "exp", "add.Tensor"]
    assert [frame.function for frame in mode.traces[0].stack[-2:]] == ["ran", "compute"]
    assert mode.recorded is not None
    assert [event.name for event in mode.recorded.events(kind="op")] == ["aten::ones", "aten::exp", "aten::add.Tensor"]
    assert mode.recorded.events(kind="function")


def test_lines_that_are_shared_are_not_repeated() -> None:
    mode = ran(TracingMode(quiet=True), compute)
    tail = [line.replace("│ ", "") for line in mode.format().splitlines()[-5:]]
    here = path_word(__file__)
    first = compute.__code__.co_firstlineno
    assert tail == [
        f"x = torch.ones(2, 3)  # {here}:{first + 1} in compute:",
        "# ones([2, 3], device=cpu, pin_memory=False) -> f32[2, 3];",
        f"return x.exp() + 1  # {here}:{first + 2} in compute:",
        "# exp(f32[2, 3]) -> f32[2, 3];",
        "# add.Tensor(f32[2, 3], 1) -> f32[2, 3];",
    ]


def test_entered_again_it_goes_on() -> None:
    mode = TracingMode(quiet=True)
    assert mode.format() == ""
    assert mode.traces == []
    for _ in range(2):
        ran(mode, compute)
    assert len(mode.traces) == 6
    # The second run shares its outer lines with the end of the first.
    assert mode.format().count(" in ran:") == 1
    assert mode.recorded is not None
    assert len(list(mode.recorded.events(kind="op"))) == 3


def test_entered_inside_itself_it_records_once() -> None:
    mode = TracingMode(quiet=True)
    with mode, mode:
        torch.ones(2)
    assert len(mode.traces) == 1


def test_one_mode_in_several_threads() -> None:
    mode = TracingMode(quiet=True)
    with ThreadPoolExecutor(2) as pool:
        together = threading.Barrier(2)

        def work() -> None:
            with mode:
                together.wait()
                compute()
                together.wait()

        for job in [pool.submit(work) for _ in range(2)]:
            job.result()
    assert len(mode.traces) == 6


def test_two_modes_and_a_recording_do_not_disturb_each_other() -> None:
    with TracingMode(quiet=True) as outer:
        torch.ones(1)
        with tg.record() as trace, TracingMode(quiet=True) as inner:
            torch.ones(2)
        torch.ones(3)
    assert [each.op_str[:9] for each in outer.traces] == ["ones([1],", "ones([2],", "ones([3],"]
    assert [each.op_str[:9] for each in inner.traces] == ["ones([2],"]
    assert {event.kind for event in trace.events()} == {"function"}


def test_traces_can_be_looked_at_inside_the_block() -> None:
    with TracingMode(quiet=True) as mode:
        torch.ones(2)
        early = mode.traces
        torch.ones(3)
    assert (len(early), len(mode.traces)) == (1, 2)
    assert mode.traces[0] == early[0]


def test_an_exception_goes_on_and_what_was_recorded_stays() -> None:
    mode, error = TracingMode(quiet=True), ValueError("mine")

    def fail() -> None:
        with mode:
            torch.ones(2)
            raise error

    with pytest.raises(ValueError) as caught:
        fail()
    assert caught.value is error
    assert len(mode.traces) == 1
    with pytest.raises(RuntimeError), mode:
        torch.ones(2, 3) @ torch.ones(2, 3)
    # The original has no trace of an op that failed; the recording has.
    assert mode.traces[-1].op_str.startswith("ones(")
    assert mode.recorded is not None
    failure = mode.recorded.failure()
    assert failure is not None
    assert failure.name == "aten::mm"


def test_switched_off_it_does_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TORCHGLASS", "0")
    mode = ran(TracingMode(), compute)
    assert capsys.readouterr().out == ""
    assert (mode.traces, mode.format(), mode.recorded) == ([], "", None)


def test_tensors_die_when_the_program_lets_them() -> None:
    with TracingMode(quiet=True) as mode:
        x = torch.ones(2)
        seen = weakref.ref(x)
        x = x + 1
        assert seen() is None
    gc.collect()
    assert len(mode.traces) == 2


def test_gradients_are_taken_over_as_without_it() -> None:
    def gradient(mode: Any) -> torch.Tensor:
        x = torch.ones(3, requires_grad=True)
        with mode:
            (x * 2).sum().backward()
        assert x.grad is not None
        return x.grad

    assert gradient(nullcontext())._version == gradient(TracingMode(quiet=True))._version


def test_threads_print_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        for _ in range(20):
            compute()

    with TracingMode(color=False) as mode:
        workers = [threading.Thread(target=work) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    printed = capsys.readouterr().out
    assert len(mode.traces) == 3 * 20 * 3
    assert sum(line.lstrip("│ ").startswith("# ") for line in printed.splitlines()) == len(mode.traces)
    assert all(line.endswith((";", ":", "⬇️")) for line in printed.splitlines())


def test_columns_of_other_scripts_are_bytes_as_python_counts_them() -> None:
    def accents(x: torch.Tensor) -> torch.Tensor:
        return ("é", x.exp())[1]

    theirs, ours = both(lambda: accents(torch.ones(2)))
    assert tuple(ours.traces[-1].stack[-1].positions) == tuple(theirs.traces[-1].stack[-1].positions)
    line = next(line for line in ours.format(color=True).splitlines() if 'return ("é"' in line)
    assert "\x1b[36mx.exp()\x1b[0m" in line


def test_what_a_terminal_obeys_is_spelt_out() -> None:
    code = compile("def evil(x):\n    return x.exp()\n", "/tmp/\x1b[31mred.py", "exec")
    space: dict[str, Any] = {}
    exec(code, space)
    mode = ran(TracingMode(quiet=True), lambda: space["evil"](torch.ones(2)))
    assert "\x1b" not in mode.format()
    assert "\\x1b[31mred.py" in mode.format()


def test_it_is_reachable_at_the_top() -> None:
    assert tg.TracingMode is TracingMode  # type: ignore[attr-defined]


def test_options_are_given_by_name() -> None:
    with pytest.raises(TypeError):
        TracingMode(True)  # type: ignore[misc]
    assert "torch_code_tracing" in sys.modules
