"""Starts processes that need functions and classes of this file."""

import multiprocessing
import sys


class Doubled:
    """Sent to another process and back."""

    def __init__(self, value: int) -> None:
        self.value = value * 2


def work(value: int) -> Doubled:
    return Doubled(value)


def say(text: str) -> None:
    print(f"{__name__}: {text}", flush=True)


def main() -> None:
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(1) as pool:
        print([each.value for each in pool.map(work, range(3))], flush=True)
    process = context.Process(target=say, args=("hello",))
    process.start()
    process.join()
    print(process.exitcode)


if __name__ == "__main__":
    main()
