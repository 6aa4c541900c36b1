"""Closures: nonlocal, global, a function that outlives its maker, a list changed from inside."""

calls = 0


def counter():
    count = 0
    log = []

    def bump(by):
        nonlocal count
        global calls
        count += by
        calls = calls + 1
        log.append(count)
        return count

    bump(1)
    count = count + 10
    return bump, log


def main():
    global calls
    calls = 0
    bump, log = counter()
    first = bump(2)
    second = bump(3)
    return first, second, calls, log
