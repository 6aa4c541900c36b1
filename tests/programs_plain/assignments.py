"""Every way to give a name a value: plain, several targets, star, nested, walrus, augmented, with, import, def."""

# ruff: noqa: E731, F842 - written the way users write
import contextlib


@contextlib.contextmanager
def opened(value):
    yield value


def main():
    a = b = [1]
    c, *d = 1, 2, 3
    (e, [f, g]), h = (1, [2, 3]), 4
    i: int = 300
    j: int
    i += 1
    if (k := i + 1) > 2:
        m = max(
            k,
            1,
        )
    with opened("x") as n, opened("y") as (o):
        p = n + o
    import math
    from math import pi as q

    def r(s):
        return s

    class T:
        u = 1
        v = u + 1

    w = lambda x: x + 1
    y = w(r(2))
    a, c = c, a
    del b, d
    match [1, {"key": 2}]:
        case [first, {"key": second}]:
            z = first + second
    return a, c, e, f, g, h, i, k, m, p, math.floor(q), T.v, y, z
