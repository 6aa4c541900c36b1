"""Containers that change without an assignment, under one name and under two, and nested ones."""

from collections import deque


def grow(items, value):
    items.append(value)
    return len(items)


def main():
    numbers = [3, 1, 2]
    same = numbers
    same.sort()
    grow(numbers, 4)
    numbers[0] = 10
    del numbers[1]
    numbers += [5]
    table = {"list": numbers}
    table["more"] = {1, 2}
    table["more"].add(3)
    table.pop("list")
    queue = deque([1, 2], maxlen=2)
    queue.append(3)
    nested = [[1], [2]]
    nested[1].append(3)
    fixed = ([], 1)
    fixed[0].append(2)
    me = []
    me.append(me)
    return numbers, sorted(table["more"]), list(queue), nested, fixed, len(me)
