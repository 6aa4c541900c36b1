"""Exceptions: caught, caught by name twice, passed through finally, swallowed by with, changed before they leave."""

# ruff: noqa: B007, RET504 - written the way users write
import contextlib


def fail(items):
    items.append("before")
    last = len(items)
    raise ValueError(last)


def cleanup(log):
    try:
        fail(log)
    finally:
        done = True
        log.append(done)


def overridden():
    value = 1
    try:
        value = 2
        return value
    finally:
        value = 3


def main():
    log = []
    for attempt in range(2):
        try:
            cleanup(log)
        except ValueError as error:
            text = str(error)
        else:
            text = "none"
    with contextlib.suppress(KeyError):
        found = 1
        found = {}["no"]
    after = overridden()
    return log, text, found, after
