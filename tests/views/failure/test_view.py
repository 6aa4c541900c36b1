"""The story of a failure tells what the failing thread did last, not what others did meanwhile."""

from __future__ import annotations

from tests.handmade import HandmadeTrace, Maker
from torchglass.views.failure import LAST, sheet


def test_the_last_events_are_those_of_the_failing_process_and_thread() -> None:
    make = Maker()
    for line in range(3):
        make.add("function", "F.relu", code="F.relu(x)", line=line)
    failed = make.add("function", "Tensor.matmul", code="a @ b", error="RuntimeError: no", line=9)
    for _ in range(LAST):
        make.add("function", "stack", code="torch.stack(items)")
    for number in range(failed + 1, len(make.made)):
        elsewhere = {"process": 7} if number % 2 else {"thread": "DataLoader worker 0"}
        make.made[number] = make.made[number]._replace(**elsewhere)
    rows = sheet(HandmadeTrace(make.made, failed=failed)).rows
    heading = max(at for at, row in enumerate(rows) if row.kind == "heading")
    assert [make.made[row.event].name for row in rows[heading + 1 :]] == ["F.relu"] * 3 + ["Tensor.matmul"]
