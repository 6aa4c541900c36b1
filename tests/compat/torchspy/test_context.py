"""A DebugContext counts where it was entered, and nowhere else."""

from __future__ import annotations

import asyncio
import threading

import pytest
import torch
from torch import nn

from torchglass.compat.torchspy import DebugContext, TensorSaver, get_debug_context, spy_save


@pytest.fixture
def saver(tmp_path):
    return TensorSaver(tmp_path)


def names(saver):
    return sorted(path.name for path in saver.output_dir.iterdir())


def test_names_of_files(saver):
    model = nn.Sequential(nn.Linear(2, 2))
    saver.register_modules(model)
    one = torch.ones(1)
    with DebugContext(saver):
        spy_save("a", one)
        spy_save("a", one, model)
        spy_save("a", one, model[0])
    with DebugContext(saver, "step0"):
        spy_save("a", one, model[0])
    with DebugContext(saver, prefix="step0", module_path_override="helper.x"):
        spy_save("a", one, model[0])
        spy_save("a", one, nn.Linear(1, 1))
    spy_save("a", one, model)
    assert names(saver) == [
        "0.a.call0.pt",
        "manual.a.call0.pt",
        "root.a.call0.pt",
        "step0.0.a.call0.pt",
        "step0.helper.x.a.call0.pt",
        "step0.helper.x.a.call1.pt",
    ]


def test_a_module_that_is_not_registered_is_a_warning_once(saver, caplog):
    with DebugContext(saver):
        for _ in range(3):
            spy_save("q", torch.ones(1), nn.Linear(1, 1))
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.message.startswith("Module path unknown: "), "what torchspy's own tests look for"
    assert "spy_save('q') saved nothing" in record.message
    assert "Linear" in record.message
    assert "register_modules" in record.message
    assert names(saver) == []


def test_contexts_nest_and_are_restored_also_by_an_exception(saver):
    assert get_debug_context() is None
    with DebugContext(saver, "outer") as outer:
        assert outer.debugger is outer.saver is saver
        inner = DebugContext(saver, "inner")
        with pytest.raises(KeyError), inner:
            raise KeyError(get_debug_context() is inner)
        assert get_debug_context() is outer
        with outer:
            assert get_debug_context() is outer
        assert get_debug_context() is outer
    assert get_debug_context() is None


def test_contexts_left_in_another_order_do_not_come_back(saver):
    first, second = DebugContext(saver), DebugContext(saver)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert get_debug_context() is second
    second.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert get_debug_context() is None


def test_threads_have_their_own_and_may_share_one_context(saver):
    seen, both, shared = [], threading.Barrier(2), DebugContext(saver)

    def work():
        seen.append(get_debug_context())
        with shared:
            both.wait()
            seen.append(get_debug_context())
            both.wait()
        seen.append(get_debug_context())

    with DebugContext(saver):
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen.count(shared) == 2
    assert seen.count(None) == 4


def test_tasks_have_their_own(saver):
    async def task(prefix):
        with DebugContext(saver, prefix):
            for _ in range(3):
                await asyncio.sleep(0)
                spy_save("t", torch.ones(1))

    async def main():
        await asyncio.gather(task("a"), task("b"))
        return get_debug_context()

    assert asyncio.run(main()) is None
    assert names(saver) == [f"{prefix}.manual.t.call{number}.pt" for prefix in "ab" for number in range(3)]
