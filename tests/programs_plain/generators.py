"""Generators: sent values, a thrown exception, closing, delegation, one that is left half done."""


# ruff: noqa: UP028 - written the way users write
def echo():
    got = None
    while True:
        try:
            got = yield got
        except ValueError as error:
            got = str(error)


def inner(n):
    for i in range(n):
        yield i
    return n


def outer(n):
    result = yield from inner(n)
    yield result


def main():
    talk = echo()
    first = next(talk)
    second = talk.send("hello")
    third = talk.throw(ValueError("thrown"))
    talk.close()
    items = list(outer(2))
    half = inner(5)
    fourth = next(half)
    return first, second, third, items, fourth
