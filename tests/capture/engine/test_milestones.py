"""A deep stack costs no more than a shallow one, and is right."""

import inspect
import sys
from threading import get_ident

import torch

import torchglass as tg
from torchglass.capture.engine.log import LOGS
from torchglass.capture.engine.milestones import APART, NEAR, Milestone

ONE = torch.ones(3)


def descend(depth, work):
    return work() if depth == 0 else descend(depth - 1, work)


def there_and_back(depth):
    """One event on the way down and one on the way up, at every depth."""
    torch.abs(ONE)
    if depth:
        there_and_back(depth - 1)
        torch.neg(ONE)


def many():
    for _ in range(200):
        torch.relu(ONE)


def walked(depth):
    """How many frames long walks visited for 200 events."""
    with tg.record() as trace:
        descend(depth, many)
        stacks = LOGS[get_ident()].session.stacks
    assert len(trace) == 200
    return stacks.frames_walked


def depth_of(event, function):
    return sum(each.function == function for each in event.stack)


def test_the_work_does_not_grow_with_depth():
    """Frames visited: for each event at most the ordinary ones and as many as lie between two milestones."""
    assert walked(4) == 0
    bound = 200 * (len(NEAR) + APART)
    assert walked(100) <= bound + 100
    assert walked(800) <= bound + 800


def test_every_stack_is_whole():
    with tg.record() as trace:
        there_and_back(600)
    depths = [depth_of(event, "there_and_back") for event in trace.events()]
    assert depths == [*range(1, 602), *range(600, 0, -1)]


def test_the_same_depth_by_another_way_is_another_stack():
    """Frames are freed and their memory reused: a milestone must not answer for a frame that took its place."""

    def left():
        return descend(40, many)

    def right():
        return descend(40, many)

    with tg.record() as trace:
        for _ in range(5):
            left()
            right()
    for number, event in enumerate(trace.events()):
        way = ["left", "right"][number // 200 % 2]
        names = [each.function.rpartition(".")[2] for each in event.stack]
        assert way in names, number
        assert depth_of(event, "descend") == 41


def test_generators_resumed_by_others_have_their_callers():
    def pipeline():
        while True:
            descend(30, lambda: torch.relu(ONE))
            yield

    def first(steps):
        next(steps)

    def second(steps):
        next(steps)

    with tg.record() as trace:
        steps = pipeline()
        for _ in range(4):
            first(steps)
            second(steps)
    for number, event in enumerate(trace.events()):
        names = [each.function.rpartition(".")[2] for each in event.stack]
        assert ["first", "second"][number % 2] in names


def frames_under_way():
    frame = inspect.currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def test_nothing_stays_in_the_frames():
    def inside():
        many()
        assert any(type(frame.f_trace) is Milestone for frame in frames_under_way())

    def block():
        with tg.record():
            descend(60, inside)
        assert not any(type(frame.f_trace) is Milestone for frame in frames_under_way())

    descend(60, block)


def test_a_trace_function_is_left_alone():
    """With a tracer set no milestones are left: it would be called through them."""
    lines = []

    def tracer(frame, event, arg):
        if frame.f_code is many.__code__:
            lines.append(event)
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with tg.record() as trace:
            descend(60, many)
            assert not any(type(frame.f_trace) is Milestone for frame in frames_under_way())
    finally:
        sys.settrace(before)
    assert len(trace) == 200
    assert lines.count("line") > 400
