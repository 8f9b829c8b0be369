# Generators and coroutines.
import asyncio
import contextlib

from telling import P, case, told


@case
def generators(malloc):
    def generator():
        malloc(P, told())
        yield 1
        malloc(P, told())
        received = yield 2
        malloc(P, told())
        yield received

    def delegates(depth):
        if depth:
            yield from delegates(depth - 1)
        else:
            yield from generator()

    list(generator())
    list(delegates(1))
    list(delegates(40))
    running = generator()
    next(running)
    running.send(None)
    running.send(3)

    def cleans_up():
        try:
            yield
        finally:
            malloc(P, told())

    closed = cleans_up()
    next(closed)
    closed.close()
    dropped = cleans_up()
    next(dropped)
    del dropped
    thrown = cleans_up()
    next(thrown)
    with contextlib.suppress(ValueError):
        thrown.throw(ValueError())

    @contextlib.contextmanager
    def manager():
        malloc(P, told())
        yield
        malloc(P, told())

    with manager():
        malloc(P, told())


@case
def coroutines(malloc):
    class Awaited:
        def __await__(self):
            malloc(P, told())
            yield from asyncio.sleep(0).__await__()
            malloc(P, told())

    async def inner(depth):
        if depth:
            await inner(depth - 1)
            return
        malloc(P, told())
        await asyncio.sleep(0)
        malloc(P, told())
        await Awaited()

    async def counted():
        for number in range(2):
            malloc(P, told())
            yield number
            await asyncio.sleep(0)

    class Manager:
        async def __aenter__(self):
            malloc(P, told())

        async def __aexit__(self, *_):
            await asyncio.sleep(0)
            malloc(P, told())

    async def main():
        malloc(P, told())
        await asyncio.gather(inner(0), inner(3), inner(30))
        async for _ in counted():
            malloc(P, told())
        [malloc(P, told()) async for _ in counted()]
        async with Manager():
            malloc(P, told())
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, lambda: malloc(P, told()))
        done = loop.create_future()

        def callback():
            malloc(P, told())
            done.set_result(1)

        loop.call_soon(callback)
        await done

    asyncio.run(main())
    # By hand, with no loop.
    coroutine = counted().__anext__()
    with contextlib.suppress(StopIteration):
        coroutine.send(None)
