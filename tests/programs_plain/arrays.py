"""numpy arrays written into: by index, in place, through views, by functions and by their own methods."""

import numpy as np


def double(array):
    array *= 2
    return array


def main():
    a = np.arange(6.0)
    a[0] = 10
    a += 1
    b = a[2:]
    b[:] = 0
    c = a.reshape(2, 3)
    c[1, 2] = -0.0
    double(a)
    np.add(a, 1, out=a)
    a.fill(3)
    d = np.array([1, 2, 3])
    d.sort()
    d[::-1].sort()
    e = a + 1
    f = np.zeros((2, 2), dtype=np.int64).T
    f[0, 1] = 7
    return a, c, d, e, f
