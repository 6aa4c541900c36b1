"""Fails in the way that its argument says."""

import sys
import threading
import traceback

import torch
from torch.nn import functional


class Net(torch.nn.Module):
    """Right for three features, up to its last line."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.layers(x)  # noqa: F841 (the wrong name is the point)
        return resul  # noqa: F821


def failed(features: int) -> Exception:
    try:
        Net()(torch.ones(2, features))
    except Exception as error:
        return error
    raise AssertionError


def in_forward() -> None:
    Net()(torch.ones(2, 3))


def in_torch() -> None:
    functional.cross_entropy(torch.ones(2, 3), torch.zeros(5, dtype=torch.long))


def in_a_group() -> None:
    try:
        Net()(torch.ones(2, 5))
    except RuntimeError as error:
        raise ExceptionGroup("several", [failed(6), failed(3)]) from error


def without_end(n: int = 0) -> int:
    return without_end(n + 1) + 1


def hooked() -> None:
    def hook(kind: type, error: BaseException, trace: object) -> None:
        print("hooked", [each.name for each in traceback.extract_tb(trace)])  # type: ignore[arg-type]

    sys.excepthook = hook
    in_forward()


def badly_hooked() -> None:
    def hook(*_: object) -> None:
        raise KeyError("of the hook")

    sys.excepthook = hook
    in_forward()


def in_a_thread() -> None:
    thread = threading.Thread(target=in_forward)
    thread.start()
    thread.join()


globals()[sys.argv[1]]()
