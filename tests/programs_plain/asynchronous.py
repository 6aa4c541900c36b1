"""Coroutines that take turns, an asynchronous generator, a loop and a context."""

# ruff: noqa: RET504 - written the way users write
import asyncio


class Context:
    async def __aenter__(self):
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *error):
        return None


async def work(name, turns):
    log = []
    for turn in range(turns):
        await asyncio.sleep(0)
        log.append((name, turn))
    return log


async def numbers():
    for n in range(2):
        yield n


async def run():
    both = await asyncio.gather(work("a", 2), work("b", 1))
    seen = []
    async for number in numbers():
        seen.append(number)
    async with Context() as context:
        entered = type(context).__name__
    return both, seen, entered


def main():
    result = asyncio.run(run())
    return result
