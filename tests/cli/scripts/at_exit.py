"""Goes on after its last line: a thread, then exit handlers that pickle its own class and use torch."""

import atexit
import pickle
import sys
import threading
import time
from dataclasses import dataclass

import torch


@dataclass
class Point:
    """Found by pickle under the name of the main module."""

    x: int


def keep() -> None:
    content = pickle.dumps(Point(3))
    print(Point.__module__, pickle.loads(content), (torch.ones(2) * 3).sum())


def late() -> None:
    time.sleep(0.3)
    print("the thread:", torch.arange(3).float().mean())


atexit.register(keep)
threading.Thread(target=late, name="late").start()
print("the last line")
sys.exit("stopped by itself")
