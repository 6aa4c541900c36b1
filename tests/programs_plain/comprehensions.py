"""Comprehensions of all kinds: their targets are their own, a walrus inside is the function's."""


# ruff: noqa: B905, C416 - written the way users write
def main():
    x = 100
    squares = [x * x for x in range(3)]
    pairs = {(x, y) for x in range(2) for y in range(2) if x != y}
    table = {k: v for k, v in zip("ab", squares)}
    nested = [[x + y for y in range(2)] for x in range(2)]
    total = sum(z for z in squares)
    kept = [last := item for item in (5, 6)]
    again = [x for x in range(3)]
    return x, squares, sorted(pairs), table, nested, total, kept, last, again
