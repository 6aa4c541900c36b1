"""Recursion: the same variables once for each call."""


# ruff: noqa: RET504 - written the way users write
def depth(tree, level=0):
    deepest = level
    for child in tree:
        below = depth(child, level + 1)
        deepest = max(deepest, below)
    return deepest


def main():
    result = depth([[], [[], []]])
    return result
