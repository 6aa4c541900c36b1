"""``auto_diff`` tells of every kind of call, and the decorated function does what the plain one does."""

import _thread
import asyncio
import concurrent.futures
import contextlib
import functools
import gc
import inspect
import pickle
import subprocess
import sys
import textwrap
import threading
import time
import types
import weakref

import numpy as np
import pytest
import torch

from torchglass.compat import ttracker
from torchglass.compat.ttracker import auto_diff, log2file
from torchglass.errors import WrongType


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("TORCHGLASS", "TORCHGLASS_CONSOLE", "TORCHGLASS_LANG", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def printed(capsys):
    """The lines printed since the last look, without the times."""

    def look():
        out = capsys.readouterr().out
        return [line.rpartition(" 0.")[0] if "─ time " in line else line for line in out.splitlines()]

    return look


class Data:
    """At module level, so that it can be pickled."""

    def __init__(self, size):
        self.size = size

    @auto_diff
    def load(self, index, scale=2):
        return self.whiten(np.ones((self.size, index)) * scale)

    @staticmethod
    @auto_diff
    def whiten(x):
        return torch.from_numpy(x - x.mean())

    @auto_diff
    @classmethod
    def empty(cls):
        return cls(0)

    @auto_diff
    @staticmethod
    def double(x):
        return x * 2


@auto_diff
def fails(x):
    raise ValueError(f"no {x}")


@auto_diff
def count_down(n):
    return n if n == 0 else count_down(n - 1)


@auto_diff
def items(n):
    got = None
    for i in range(n):
        got = yield (got or i)
    return "done"


# ---------------------------------------------------------------- the tree


def test_calls_inputs_outputs_and_times_as_a_tree(printed):
    line = inspect.currentframe().f_lineno + 1
    Data(3).load(4, scale=5)
    load = inspect.unwrap(Data.load).__code__.co_firstlineno + 1
    head, *rest = printed()
    assert head.startswith(
        f"┌── [test_ttracker.py:{load}] function [Data.load] called at "
        f"test_calls_inputs_outputs_and_times_as_a_tree:{line} (test_ttracker.py:{line} <- python.py:"
    )
    assert head.count(" <- ") == 2
    inner = (
        f"[Data.whiten] called at load:{load + 1} (test_ttracker.py:{load + 1} <- test_ttracker.py:{line} <- python.py:"
    )
    assert rest[0] == "├─ input [Var] index@0 value: 4"
    assert rest[1] == "├─ input [Var] scale@0 value: 5"
    assert rest[2].startswith("│   ┌── [test_ttracker.py:")
    assert inner in rest[2]
    assert rest[3:] == [
        "│   ├─ input [Tensor] x@0 → shape=(3, 4) | dtype=float64",
        "│   └─ output shape=torch.Size([3, 4])",
        "│   └─ time Data.whiten",
        "└─ output shape=torch.Size([3, 4])",
        "└─ time Data.load",
    ]


def test_the_documents_words_in_chinese(printed, monkeypatch):
    monkeypatch.setenv("TORCHGLASS_LANG", "zh")
    Data.double(113)
    lines = printed()
    assert "函数 [Data.double] 被调用于 test_the_documents_words_in_chinese:" in lines[0]
    assert lines[1:3] == ["├─ 输入 [Var] x@0 value: 113", "└─ 输出 value: 226"]
    assert lines[3].startswith("└─ 耗时 Data.double 0.")


def test_every_head_has_one_end_at_its_depth(printed):
    count_down(3)
    lines = printed()
    heads = [line.index("┌── ") for line in lines if "┌── " in line]
    ends = [line.index("└─ time") for line in lines if "└─ time" in line]
    assert heads == [0, 4, 8, 12]
    assert ends == heads[::-1]


def test_the_way_of_decorating_makes_no_difference(printed):
    plain = Data.double.__wrapped__
    for way in (auto_diff(plain), auto_diff()(plain), auto_diff(auto_diff(plain))):
        assert way(2) == 4
        assert len(printed()) == 4
    data = Data(2)
    bound = auto_diff(types.MethodType(Data.load.__wrapped__, data))
    assert bound(1).shape == (2, 1)
    assert len(printed()) == 8
    assert isinstance(Data.__dict__["double"], staticmethod)
    assert isinstance(Data.__dict__["empty"], classmethod)
    assert type(Data.empty()) is Data
    assert "└─ output type: Data" in printed()


def test_all_ways_to_pass_arguments(printed):
    @auto_diff
    def takes(a, /, b, *others, c=1, **named):
        return a, b

    takes(1, 2, 3, "four", c=None, d=[1, 2])
    assert printed()[1:7] == [
        "├─ input [Var] a@0 value: 1",
        "├─ input [Var] b@0 value: 2",
        "├─ input [Var] others[0]@0 value: 3",
        "├─ input [Var] others[1]@0 value: 'four'",
        "├─ input [Var] c@0 value: None",
        "├─ input [Var] d@0 len(value): 2",
    ]
    takes(*range(1000))
    lines = printed()
    assert "├─ … 966 more" in lines
    assert len(lines) < 45


def test_a_call_that_cannot_be_bound_fails_as_the_plain_one(printed):
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        Data(1).load()
    assert "└─ error TypeError: " in printed()[-2]


def test_a_tuple_is_shown_item_by_item(printed):
    @auto_diff
    def pair():
        return torch.ones(2), np.ones(3), "x"

    pair()
    assert printed()[1:4] == [
        "├─ output[0] shape=torch.Size([2])",
        "├─ output[1] shape=(3,)",
        "└─ output[2] value: 'x'",
    ]


# ---------------------------------------------------------------- values


class Hostile:
    """Every method that a careless tool might call."""

    def __getattribute__(self, name):
        raise AssertionError(f"asked for {name}")

    def _no(self, *args):
        raise AssertionError("called")

    __repr__ = __str__ = __len__ = __eq__ = __hash__ = __bool__ = __iter__ = __array__ = __format__ = _no


class HostileMeta(type):
    __name__ = property(lambda cls: 1 / 0)

    def __eq__(cls, other):
        raise AssertionError

    def __hash__(cls):
        return 1 / 0


class HostileDict(dict):
    __len__ = __iter__ = __repr__ = __eq__ = __bool__ = Hostile._no


class HostileTuple(tuple):
    __slots__ = ()
    __len__ = __iter__ = __repr__ = __getitem__ = Hostile._no


class HostileTensor(torch.Tensor):
    shape = property(lambda self: 1 / 0)

    @classmethod
    def __torch_function__(cls, *args, **kwargs):
        raise AssertionError


class HostileArray(np.ndarray):
    shape = property(lambda self: 1 / 0)
    __repr__ = __len__ = __array__ = Hostile._no


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "[Var] x@0 value: 3"),
        (True, "[Var] x@0 value: True"),
        (1.5, "[Var] x@0 value: 1.5"),
        (2j, "[Var] x@0 value: 2j"),
        (None, "[Var] x@0 value: None"),
        ("a\x1b", "[Var] x@0 value: 'a\\x1b'"),
        (10**5000, "[Var] x@0 value: an int of 16610 bits"),
        (np.float32(1.5), "[Var] x@0 value: 1.5"),
        (np.int64(3), "[Var] x@0 value: 3"),
        ([1, 2], "[Var] x@0 len(value): 2"),
        ({1}, "[Var] x@0 len(value): 1"),
        (range(10**6), "[Var] x@0 len(value): 1000000"),
        (b"abc", "[Var] x@0 len(value): 3"),
        (HostileDict(a=1), "[Var] x@0 len(value): 1"),
        (HostileTuple((1, 2)), "[Var] x@0 len(value): 2"),
        (torch.Size([1, 2]), "[Var] x@0 len(value): 2"),
        (torch.zeros(2, dtype=torch.bool), "[Tensor] x@0 → shape=torch.Size([2]) | dtype=torch.bool"),
        (torch.nn.Parameter(torch.zeros(())), "[Tensor] x@0 → shape=torch.Size([]) | dtype=torch.float32"),
        (torch.zeros(2, device="meta"), "[Tensor] x@0 → shape=torch.Size([2]) | dtype=torch.float32 | device=meta"),
        (torch.nn.UninitializedParameter(), "[Tensor] x@0 → shape=? | dtype=torch.float32"),
        (torch.zeros(2).to_sparse(), "[Tensor] x@0 → shape=torch.Size([2]) | dtype=torch.float32"),
        (np.zeros((2, 0), "U5"), "[Tensor] x@0 → shape=(2, 0) | dtype=<U5"),
        (torch.zeros(2).as_subclass(HostileTensor), "[Tensor] x@0 → shape=torch.Size([2]) | dtype=torch.float32"),
        (np.ndarray.__new__(HostileArray, (2,)), "[Tensor] x@0 → shape=(2,) | dtype=float64"),
        (Hostile(), "[Var] x@0 type: Hostile"),
        (HostileMeta("Odd", (), {})(), "[Var] x@0 type: Odd"),
        (int, "[Var] x@0 type: type"),
    ],
    ids=lambda value: value.replace(" ", "-") if type(value) is str else "",
)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_value_by_its_exact_type(value, text, printed):
    kept = []
    auto_diff(lambda x: kept.append(x))(value)
    assert printed()[1] == f"├─ input {text}"
    assert kept[0] is value


def test_a_function_mode_does_not_see_what_we_read(printed):
    class Sees(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    seen = []
    x = torch.ones(2)
    with Sees():
        auto_diff(lambda x: x)(x)
    assert seen == []
    assert len(printed()) == 4


def test_a_huge_container_and_one_that_holds_itself(printed):
    loop = []
    loop.append(loop)
    auto_diff(lambda a, b: None)([0] * 10**6, loop)
    assert printed()[1:3] == ["├─ input [Var] a@0 len(value): 1000000", "├─ input [Var] b@0 len(value): 1"]


# ---------------------------------------------------------------- exceptions


def test_an_exception_closes_the_calls_and_goes_on_the_same(printed):
    error = KeyError("k\x1b")

    @auto_diff
    def inner():
        raise error

    @auto_diff
    def outer():
        inner()

    with pytest.raises(KeyError) as caught:
        outer()
    assert caught.value is error
    assert error.__context__ is None
    lines = printed()
    assert lines[2:] == [
        "│   └─ error KeyError: 'k\\x1b'",
        "│   └─ time " + lines[1].split("[")[2].split("]")[0],
        "└─ error KeyError: 'k\\x1b'",
        "└─ time " + lines[0].split("[")[2].split("]")[0],
    ]
    Data.double(1)
    assert printed()[0].startswith("┌── "), "the depth is back"


def test_exits_and_errors_without_a_text(printed):
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError

    for error, text in ((KeyboardInterrupt(), "KeyboardInterrupt"), (Odd(), "Odd: (its text could not be read)")):
        with pytest.raises(type(error)):
            auto_diff(lambda error=error: (_ for _ in ()).throw(error))()
        assert f"└─ error {text}" in printed()


def test_a_fault_of_ours_costs_lines_and_is_reported_once(monkeypatch, printed):
    monkeypatch.setattr(ttracker.calls, "shown", lambda value: 1 / 0)
    monkeypatch.setattr(ttracker.output, "_told", set())
    with pytest.warns(RuntimeWarning, match="fault of its own: ZeroDivisionError") as told:
        assert [Data.double(2), Data.double(3)] == [4, 6]
    assert len(told) == 1


# ---------------------------------------------------------------- generators and coroutines


def test_a_generator_is_shown_from_its_first_step_to_its_end(printed):
    made = items(2)
    assert printed() == []
    assert list(made) == [0, 1]
    assert printed()[1:] == [
        "├─ input [Var] n@0 value: 2",
        "├─ yielded value: 0",
        "├─ yielded value: 1",
        "└─ output value: 'done'",
        "└─ time items",
    ]


def test_a_generator_can_be_sent_to_thrown_at_and_closed(printed):
    made = items(5)
    assert [next(made), made.send("sent")] == [0, "sent"]
    made.close()
    assert printed()[-2:] == ["└─ closed early", "└─ time items"]
    made = items(5)
    next(made)
    error = OSError("gone")
    with pytest.raises(OSError) as caught:
        made.throw(error)
    assert caught.value is error
    assert printed()[-2:] == ["└─ error OSError: gone", "└─ time items"]


def test_a_generator_that_catches_what_is_thrown(printed):
    @contextlib.contextmanager
    @auto_diff
    def swallowing():
        try:
            yield 1
        except ValueError:
            yield_from.append("caught")

    yield_from = []
    with swallowing():
        raise ValueError
    assert yield_from == ["caught"]
    assert "error" not in "\n".join(printed())


def test_calls_inside_a_generator_stand_below_it_and_calls_between_its_steps_do_not(printed):
    @auto_diff
    def doubled(n):
        for i in range(n):
            yield Data.double(i)

    for _ in doubled(1):
        Data.double(7)
    heads = [line for line in printed() if "┌──" in line]
    assert [line.index("┌") for line in heads] == [0, 4, 0]


def test_a_generator_holds_neither_arguments_nor_items(printed):
    @auto_diff
    def batches(x):
        size = len(x)
        del x
        yield torch.ones(size)

    x = torch.ones(3)
    made, gone = batches(x), weakref.ref(x)
    item = next(made)
    del x
    assert gone() is None
    gone = weakref.ref(item)
    del item
    assert gone() is None
    made.close()


def test_an_async_generator_holds_no_item(printed):
    @auto_diff
    async def batches():
        yield torch.ones(2)

    async def main():
        made = batches()
        item = await anext(made)
        gone = weakref.ref(item)
        del item
        assert gone() is None
        await made.aclose()

    asyncio.run(main())


def test_an_error_thrown_into_a_generator_is_not_kept(printed):
    class Big(Exception):
        pass

    def run():
        made = items(3)
        next(made)
        error = Big()
        gone = weakref.ref(error)
        with contextlib.suppress(Big):
            made.throw(error)
        del error
        return gone

    gc.disable()
    try:
        assert run()() is None
    finally:
        gc.enable()


def test_coroutines_nest_by_task(printed):
    @auto_diff
    async def inner(n):
        await asyncio.sleep(0)
        return n

    @auto_diff
    async def outer(n):
        return await inner(n)

    async def main():
        return await asyncio.gather(outer(1), outer(2))

    assert asyncio.iscoroutinefunction(outer)
    assert asyncio.run(main()) == [1, 2]
    heads = [line for line in printed() if "┌──" in line]
    assert [line.index("┌") for line in heads] == [0, 4, 0, 4]
    assert "called at outer:" in heads[1]


def test_a_cancelled_task_and_a_coroutine_that_is_thrown_away(printed):
    @auto_diff
    async def waits():
        await asyncio.sleep(60)

    async def main():
        task = asyncio.ensure_future(waits())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        coroutine = waits()
        coroutine.send(None)
        coroutine.close()

    asyncio.run(main())
    lines = printed()
    assert "└─ error CancelledError" in lines
    assert lines[-2] == "└─ closed early"


def test_async_generators(printed):
    @auto_diff
    async def stream(n):
        for i in range(n):
            await asyncio.sleep(0)
            try:
                yield i
            except ValueError:
                yield "caught"

    async def main():
        assert [i async for i in stream(2)] == [0, 1]
        made = stream(3)
        assert await anext(made) == 0
        assert await made.athrow(ValueError()) == "caught"
        await made.aclose()

    assert inspect.isasyncgenfunction(stream)
    asyncio.run(main())
    lines = printed()
    assert sum("└─ time" in line for line in lines) == 2
    assert "├─ yielded value: 'caught'" in lines
    assert lines[-2] == "└─ closed early"


def test_generator_based_coroutines_can_still_be_awaited(printed):
    @auto_diff
    @types.coroutine
    def old_style():
        yield
        return 5

    async def main():
        return await old_style()

    assert asyncio.run(main()) == 5
    assert "└─ output value: 5" in printed()


# ---------------------------------------------------------------- threads


def test_each_thread_has_a_depth_of_its_own(printed):
    @auto_diff
    def outer():
        thread = threading.Thread(target=Data.double, args=(2,))
        thread.start()
        thread.join()

    outer()
    heads = [line for line in printed() if "┌──" in line]
    assert [line.index("┌") for line in heads] == [0, 0]
    assert "called at run:" in heads[1]
    assert "(threading.py:" in heads[1]


def test_a_context_carried_into_another_thread_does_not_bring_its_depth(printed):
    @auto_diff
    async def outer():
        return await asyncio.to_thread(Data.double, 2)

    assert asyncio.run(outer()) == 4
    heads = [line for line in printed() if "┌──" in line]
    assert [line.index("┌") for line in heads] == [0, 0]


def test_lines_of_threads_are_whole(capsys):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(Data.double, range(200))) == [2 * i for i in range(200)]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 800
    assert all(
        line.startswith(("┌── [", "├─ input [Var] x@0 value: ", "└─ output value: ", "└─ time ")) for line in lines
    )


# ---------------------------------------------------------------- the decorated function itself


def test_the_decorated_function_is_still_itself():
    assert Data.load.__name__ == "load"
    assert Data.load.__qualname__ == "Data.load"
    assert str(inspect.signature(Data.load)) == "(self, index, scale=2)"
    assert inspect.isgeneratorfunction(items)
    assert pickle.loads(pickle.dumps(fails)) is fails
    assert pickle.loads(pickle.dumps(Data(3))).size == 3
    bound = pickle.loads(pickle.dumps(Data(3).load))
    assert bound.__func__ is Data.load


def test_gradients_and_versions_are_those_of_the_plain_function(printed):
    def square(x):
        return (x * x).sum()

    grads = []
    for function in (square, auto_diff(square)):
        x = torch.arange(3.0, requires_grad=True)
        function(x).backward()
        grads.append((x.grad, x._version))
    assert torch.equal(grads[0][0], grads[1][0])
    assert grads[0][1] == grads[1][1]


@pytest.mark.filterwarnings("ignore:Dynamo does not know:UserWarning")
def test_a_compiled_function_still_computes(printed):
    @auto_diff
    def add(x):
        return x + 1

    compiled = torch.compile(lambda x: add(x) * 2, backend="eager")
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))


@pytest.mark.parametrize(
    ("given", "cure"),
    [
        (len, "written in C"),
        (torch.relu, "written in C"),
        (str.upper, "written in C"),
        (Data, "decorate its methods"),
        (functools.partial(print), "directly above the def"),
        (functools.lru_cache(lambda: 1), "directly above the def"),
        (property(lambda self: 1), "directly above the def"),
        ("video", "above a def"),
        (staticmethod(len), "written in C"),
    ],
)
def test_what_cannot_be_decorated_is_refused_with_a_cure(given, cure):
    with pytest.raises(WrongType, match=cure):
        auto_diff(given)


def test_torchglass_0_gives_the_function_back_as_it_is(monkeypatch, printed):
    monkeypatch.setenv("TORCHGLASS", "0")

    def plain(x):
        return x

    assert auto_diff(plain) is plain
    assert auto_diff()(plain) is plain
    method = auto_diff(staticmethod(plain))
    assert method.__func__ is plain
    log2file("nothing")
    ttracker._log_change("a", "b", torch.ones(2), "", 0)
    assert printed() == []


def test_the_console_can_be_switched_off_while_running(monkeypatch, printed):
    monkeypatch.setenv("TORCHGLASS_CONSOLE", "0")
    Data.double(2)
    log2file("nothing")
    assert printed() == []
    monkeypatch.setenv("TORCHGLASS_CONSOLE", "1")
    log2file("something")
    assert printed() == ["something"]


def test_a_console_that_is_closed_or_missing_costs_nothing(monkeypatch):
    closed = open(sys.executable, "rb")  # noqa: SIM115, PTH123
    closed.close()
    for stream in (closed, None):
        monkeypatch.setattr(sys, "stdout", stream)
        assert Data.double(2) == 4


def test_works_without_torch_and_numpy_and_imports_neither():
    source = """
        import sys
        sys.modules["torch"] = None
        from torchglass.compat.ttracker import auto_diff, log2file, _log_change
        assert "numpy" not in sys.modules
        @auto_diff
        def f(x): return x
        f([1]); _log_change("p", "x", (1, None), "", 0); log2file("end")
        assert "numpy" not in sys.modules
        import numpy
        f(numpy.ones(2)); _log_change("p", "x", numpy.ones(2), "", 0)
    """
    command = [sys.executable, "-c", textwrap.dedent(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "├─ p [Tensor] x@0 → shape=(2,) | dtype=float64 | sum=2 | mean=1 | min=1 | max=1" in done.stdout


def test_a_function_called_straight_from_c_has_no_caller(capsys):
    @auto_diff
    def first():
        return 1

    _thread.start_new_thread(first, ())
    out, deadline = "", time.monotonic() + 30
    while "└─ time" not in out:
        assert time.monotonic() < deadline
        time.sleep(0.01)
        out += capsys.readouterr().out
    assert out.splitlines()[0].endswith("first]")
