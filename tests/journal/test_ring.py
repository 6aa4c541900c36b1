"""A recording that is left on: the first tenth, the newest and samples are kept, and what it takes stays bounded."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchglass as tg
from tests.journal.test_writer import open_record, records
from torchglass.journal import backing
from torchglass.journal.layout import ROWS, WHAT
from torchglass.journal.ring import Limits
from torchglass.journal.writer import Journal, ThreadWriter


def rounds(count: int, first: int = 0) -> None:
    """Two events a round, each round with arguments of its own."""
    x = torch.ones(3)
    for number in range(first, first + count):
        x = x.add(number + 0.5)
        x = x.relu()


def journal_of(trace: tg.Trace) -> Journal:
    return trace._source._recorder.session.journal  # type: ignore[attr-defined]


def gaps(trace: tg.Trace) -> list[tg.Event]:
    return [event for event in trace.events() if event.name == "gap"]


def dropped(trace: tg.Trace) -> int:
    """How many events the gaps stand for."""
    return sum(int(gap.note.split()[0].replace(",", "")) for gap in gaps(trace))


def number_of(event: tg.Event) -> float:
    return float(event.args.rpartition(", ")[2])


class TestWhatIsKept:
    def test_the_first_tenth_the_newest_and_samples_between(self) -> None:
        with tg.record(max_events=400) as trace:
            rounds(3000)
        events = list(trace.events())
        found = gaps(trace)
        added = [number_of(event) for event in events if event.name == "Tensor.add"]
        assert added[:20] == [number + 0.5 for number in range(20)]
        assert added[-100:] == [number + 0.5 for number in range(2900, 3000)]
        assert added == sorted(set(added))
        between = [number for number in added if 100 < number < 2800]
        assert len(between) >= 20
        assert 0.85 * 400 <= len(events) - len(found) <= 400
        assert len(events) - len(found) + dropped(trace) == 6001  # with torch.ones
        assert any("events in the middle were not kept" in note for note in trace.notes)
        for gap in found:
            assert gap.kind == "unseen"
            assert "the limit of 400 was reached; record(max_events=…) or --max-events raises it" in (gap.note or "")
            assert events[gap.id - 1].end_ns <= events[gap.id + 1].start_ns
            assert gap.start_ns <= events[gap.id - 1].end_ns
            assert gap.end_ns == events[gap.id + 1].start_ns

    @pytest.mark.parametrize("count", [5_000, 20_000, 60_000])
    def test_samples_are_spread_over_the_whole_run_however_long_it_is(self, count: int) -> None:
        with tg.record(max_events=2_000) as trace:
            rounds(count)
        added = [number_of(event) for event in trace.events(function="Tensor.add")]
        assert any(0.2 * count < number < 0.8 * count for number in added)
        assert len(trace) <= 2_000 + len(gaps(trace))
        assert len(trace) - len(gaps(trace)) + dropped(trace) == 2 * count + 1

    def test_a_place_that_runs_once_in_the_middle_is_kept(self) -> None:
        x = torch.ones(3)
        with tg.record(max_events=400) as trace:
            for number in range(3000):
                x.add(1)
                if number == 1_234:
                    x.exp()
        (once,) = trace.events(function="Tensor.exp")
        assert once.code == "x.exp()"

    def test_the_beginning_alone(self) -> None:
        with tg.record(max_events=400, keep="begin") as trace:
            rounds(3000)
        assert [number_of(event) for event in trace.events(function="Tensor.add")] == [n + 0.5 for n in range(200)]
        assert gaps(trace) == []
        assert any("5,601 events were not recorded: the limit of 400" in note for note in trace.notes)

    def test_everything(self) -> None:
        with tg.record(max_events=None) as trace:
            rounds(3000)
        assert len(trace) == 6001
        assert trace.notes == ()

    def test_the_call_that_fails_is_always_there(self) -> None:
        def run() -> None:
            for number in range(500):
                rounds(2)
                torch.ones(2, 3) @ torch.ones(3 if number < 499 else 4, 2)

        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), tg.record(max_events=100) as trace:
            run()
        failure = trace.failure()
        assert failure is not None
        assert failure.name == "Tensor.matmul"
        assert [value.shape for value in failure.inputs] == [(2, 3), (4, 2)]
        assert "shapes cannot be multiplied" in tg.render(trace)
        assert gaps(trace)

    def test_looking_while_it_turns(self) -> None:
        with tg.record(max_events=300) as trace:
            for first in range(0, 3000, 500):
                rounds(500, first)
                last = list(trace.events(function="Tensor.add"))[-1]
                assert number_of(last) == first + 499.5
                if first:
                    assert len(trace) - len(gaps(trace)) + dropped(trace) == 2 * (first + 500) + first // 500 + 1


class Long(nn.Module):
    """A call that is open while many others come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Tensor, count: int) -> Tensor:
        for _ in range(count):
            x = self.inner(x)
        return x.sum()


class TestOpenEvents:
    def test_an_open_call_stays_with_its_inputs_and_is_closed_late(self) -> None:
        model = nn.Sequential()
        model.append(Long())
        with tg.record(max_events=200) as trace:
            rounds(30)  # the first tenth is full before the call begins
            model[0](torch.ones(5, 3), 2000)
            torch.zeros(1)
        events = list(trace.events())
        (call,) = [event for event in events if event.name == "Long"]
        assert [value.shape for value in call.inputs] == [(5, 3)]
        assert call.args.endswith(", count=2,000") or "2000" in call.args.replace(",", "")
        assert [value.shape for value in call.outputs] == [()]
        assert call.end_ns > events[-2].start_ns
        assert events[-1].name == "zeros"
        assert events[-1].parent is None
        newest = [event for event in events if event.name == "Linear"][-1]
        assert newest.parent == call.id
        assert (newest.module, newest.root) == ("inner", "Long")
        assert gaps(trace)[0].parent is None

    def test_one_that_is_still_open_when_somebody_looks(self) -> None:
        seen: list[tg.Event] = []

        class Looks(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                for _ in range(1000):
                    x = x.relu()
                seen.extend(trace.events())
                return x

        with tg.record(max_events=100) as trace:
            rounds(20)
            Looks()(torch.ones(4))
        (call,) = [event for event in seen if event.name == "Looks"]
        assert (call.inputs[0].shape, call.end_ns, call.outputs) == ((4,), None, ())
        assert seen[-1].parent == call.id

    def test_open_calls_many_deep(self) -> None:
        class Deep(nn.Module):
            def __init__(self, depth: int) -> None:
                super().__init__()
                self.below = Deep(depth - 1) if depth else None

            def forward(self, x: Tensor) -> Tensor:
                if self.below is not None:
                    return self.below(x) + 1
                for _ in range(3000):
                    x = x.relu()
                return x

        with tg.record(max_events=200) as trace:
            rounds(20)
            Deep(12)(torch.ones(2))
        calls = [event for event in trace.events() if event.name == "Deep"]
        assert [event.module for event in calls] == [".".join(["below"] * depth) for depth in range(13)]
        assert [event.parent for event in calls[1:]] == [event.id for event in calls[:-1]]
        assert {event.outputs[0].shape for event in calls} == {(2,)}

    def test_the_autograd_engine_at_work_on_both_sides_of_a_gap(self) -> None:
        class Slow(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Tensor) -> Tensor:
                return x.clone()

            @staticmethod
            def backward(ctx: Any, given: Tensor) -> Tensor:
                for _ in range(2000):
                    given = given * 1.0
                return given

        with tg.record(max_events=200) as trace:
            Slow.apply(torch.ones(2, requires_grad=True)).sum().backward()
            rounds(20)
        phases = [(event.name, event.phase) for event in trace.events() if event.name in ("Tensor.mul", "Tensor.relu")]
        assert {phase for name, phase in phases if name == "Tensor.mul"} == {"backward"}
        assert {phase for name, phase in phases if name == "Tensor.relu"} == {"forward"}
        assert gaps(trace)

    def test_the_autograd_engine_after_a_gap(self) -> None:
        seen: list[tg.Event] = []

        class Looks(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Tensor) -> Tensor:
                return x.clone()

            @staticmethod
            def backward(ctx: Any, given: Tensor) -> Tensor:
                rounds(1000)
                seen.extend(trace.events())
                return given

        with tg.record(max_events=200) as trace:
            Looks.apply(torch.ones(2, requires_grad=True)).sum().backward()
        gap = next(event for event in seen if event.name == "gap")
        behind = [event for event in seen if event.start_ns >= gap.end_ns and event.name != "gap"]
        assert {event.phase for event in behind} == {"backward"}


class TestThreads:
    def test_each_thread_has_its_gap_and_its_newest(self) -> None:
        """Threads at work at the same time."""

        def work(name: str) -> None:
            for number in range(1500):
                torch.full((2,), number + 0.5).relu()

        with tg.record(max_events=600) as trace:
            threads = [threading.Thread(target=work, args=(name,), name=name) for name in ("one", "two", "three")]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
        events = list(trace.events())
        assert len(events) <= 1.3 * 600
        kept = sum(event.name != "gap" for event in events)
        lost = sum(int(note.split()[0].replace(",", "")) for note in trace.notes if "in the middle" in note)
        assert kept + lost == 3 * 1500 * 2
        latest = max(events, key=lambda event: event.start_ns)
        assert (latest.name, latest.args) in [("Tensor.relu", latest.args), ("full", "(2,), 1499.5")]
        for event in events:
            assert event.parent is None or events[event.parent].thread == event.thread

    @pytest.mark.parametrize(("threads", "kept"), [(1000, 1000), (3000, 1950)])
    def test_thousands_that_live_for_a_moment(self, threads: int, kept: int) -> None:
        """What counts is what they did, and not the room that they were given."""
        with tg.record(max_events=2000) as trace:
            for number in range(threads):
                thread = threading.Thread(target=torch.full, args=((2,), number))
                thread.start()
                thread.join()
        assert kept <= len(trace) <= 2000
        assert list(trace.events())[-1].args == f"(2,), {threads - 1}"
        lost = sum(int(note.split()[0].replace(",", "")) for note in trace.notes if "in the middle" in note)
        assert lost == threads - len([event for event in trace.events() if event.name != "gap"])
        chunks = [chunk for each in journal_of(trace).streams.chunks.values() for chunk in each]
        of_threads = [len(chunk.buffer) for chunk in chunks if chunk.owner]
        assert sum(of_threads) < 400 * threads

    def test_a_thread_that_waits_keeps_what_it_did_last(self) -> None:
        """Its records name rows that are older than all that the others have kept."""

        def work() -> None:
            rounds(5000)

        with tg.record(max_events=300) as trace:
            rounds(300)
            torch.arange(7).tile((2, 3))
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            torch.zeros(1)
        (tile,) = trace.events(function="Tensor.tile")
        assert [value.shape for value in tile.inputs] == [(7,)]
        assert "(2, 3)" in tile.args
        assert tile.outputs[0].shape == (2, 21)
        main = [event for event in trace.events(function="Tensor.add") if event.thread == "MainThread"]
        assert number_of(main[-1]) == 299.5

    def test_a_thread_that_goes_on_late_in_a_chunk_of_the_beginning(self) -> None:
        """What it does then is not of the beginning any more, and names rows that come and go."""

        def work() -> None:
            thread = threading.Thread(target=rounds, args=(5000,))
            thread.start()
            thread.join()

        with tg.record(max_events=3000) as trace:
            rounds(5)
            work()
            torch.arange(7).tile((2, 3))
            work()
        (tile,) = trace.events(function="Tensor.tile")
        assert "(2, 3)" in tile.args
        assert [value.shape for value in tile.inputs] == [(7,)]

    def test_many_threads_that_come_and_go(self) -> None:
        with tg.record(max_events=200) as trace:
            for number in range(300):
                thread = threading.Thread(target=rounds, args=(3, number * 10))
                thread.start()
                thread.join()
        events = list(trace.events())
        assert len([event for event in events if event.name != "gap"]) <= 1.5 * 200 + 100
        assert number_of([event for event in events if event.name == "Tensor.add"][-1]) == 2992.5
        kept = sum(event.name != "gap" for event in events)
        lost = sum(int(note.split()[0].replace(",", "")) for note in trace.notes if "in the middle" in note)
        assert kept + lost == 300 * 7


def taken(count: int, to: Path | None) -> tuple[int, int]:
    """Bytes of the journal but for the rows that stay, and of its file, after so many rounds."""
    with tg.record(max_events=2000, to=to) as trace:
        rounds(count)
        chunks = journal_of(trace).streams.chunks
        memory = sum(len(chunk.buffer) for (stream, _), found in chunks.items() for chunk in found if stream != ROWS)
        file = 0 if to is None else next(to.rglob("journal-*")).stat().st_size
    return memory, file


@pytest.mark.parametrize("kind", ["memory", "ext4", "nfs"])
def test_bytes_stay_while_events_grow_tenfold(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments, values and ids are new in each round: all of them come and go."""
    monkeypatch.setattr(backing, "file_system", lambda _: kind)
    few = taken(3000, None if kind == "memory" else tmp_path / "few")
    many = taken(30_000, None if kind == "memory" else tmp_path / "many")
    assert many[0] <= 1.5 * few[0]
    assert many[1] <= 1.5 * few[1]
    if kind != "memory":
        loaded = tg.load(tmp_path / "many")
        assert len(loaded) - len(gaps(loaded)) + dropped(loaded) == 60_001


def test_what_is_interned_stays_bounded_in_the_process() -> None:
    """The tables by which the recorder knows what it has written."""
    with tg.record(max_events=1000) as trace:
        rounds(10_000)
        session = trace._source._recorder.session  # type: ignore[attr-defined]
        assert len(session.forms.ids) <= 1000
        assert len(session.values) <= 1000


def test_records_alone(tmp_path: Path) -> None:
    """The ring by itself: numbers go on, and chunks are whole."""
    journal = Journal(limits=Limits(1000))
    thread = ThreadWriter(journal)
    for number in range(50_000):
        assert open_record(thread, number) == number
    kept = [words[WHAT] for words in records(journal.streams, 0)]
    assert kept[:100] == list(range(100))
    assert kept[-400:] == list(range(49_600, 50_000))
    assert len([each for each in kept if 1_000 < each < 48_000]) >= 100
    assert 850 <= len(kept) <= 1000


@pytest.mark.parametrize("limit", [1, 2, 7, 10, 11, 99])
def test_tiny_limits(limit: int) -> None:
    with tg.record(max_events=limit) as trace:
        rounds(200)
    events = list(trace.events())
    assert events[-1].name == "Tensor.relu"
    assert len(events) - len(gaps(trace)) + dropped(trace) == 401
    assert limit <= len(events) <= 2 * limit + 100
