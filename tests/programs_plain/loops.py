"""Loops: for over many things, while, else, break, continue, nested, targets that are tuples."""


# ruff: noqa: B007 - written the way users write
def main():
    total = 0
    for i in range(3):
        for j in "ab":
            total += i
        else:
            total -= 1
    pairs = []
    for key, (left, right) in {"a": (1, 2), "b": (3, 4)}.items():
        if left > 2:
            continue
        pairs.append((key, left * right))
    n = 5
    while n:
        n -= 1
        if n == 2:
            break
    else:
        n = 100
    return total, pairs, n
