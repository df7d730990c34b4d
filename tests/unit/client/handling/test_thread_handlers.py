"""Handlers that are plain functions run in threads. Other objects are refused before a message is taken."""

import asyncio
import gc
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ortoo.client import App, ConsumerSettings, Invalid, PoppedMessage, PullSettings, connect
from ortoo.client.handling.calls import HANDLER_THREADS_MAX, HandlerCalls, is_async
from ortoo.client.handling.threads import HandlerThreads
from ortoo.common.process.background import Background
from ortoo.testing.pytest_broker import Broker
from tests.integration.pull_group import until


def _raises(error: BaseException) -> Callable[[object], None]:
    def handle(_: object) -> None:
        raise error

    return handle


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        asyncio.CancelledError(),
        StopIteration(),
        GeneratorExit(),
        BaseExceptionGroup("x", [KeyError()]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_every_end_of_a_thread_is_an_end_of_the_handler(error: BaseException) -> None:
    """A future cannot even carry a StopIteration, so its caller would wait for ever."""
    calls: HandlerCalls[str, None] = HandlerCalls(_raises(error), threads=1)
    async with asyncio.timeout(60), calls.ended("message") as end:
        assert end.failure is error


async def test_a_function_that_returns_a_coroutine_is_awaited() -> None:
    """Such as a decorated one. Its failure is that of the handler."""

    async def fail(message: str) -> None:
        raise ValueError(message)

    calls: HandlerCalls[str, None] = HandlerCalls(lambda message: fail(message), threads=1)
    async with calls.ended("message") as end:
        assert repr(end.failure) == "ValueError('message')"


async def test_a_thread_has_a_time_limit_from_its_begin() -> None:
    """The wait for a free thread does not count. A thread that continues has no effect."""
    goes_on, ends = threading.Event(), list[str]()

    def handle(message: str) -> None:
        if message == "stuck":
            goes_on.wait()

    calls: HandlerCalls[str, None] = HandlerCalls(handle, threads=1, timeout_s=0.05)

    async def one(message: str) -> None:
        async with calls.ended(message) as end:
            ends.append(f"{message}: {end.failure}")

    async with asyncio.timeout(60), Background("test") as background:
        stuck, other = background.spawn("stuck", one("stuck")), background.spawn("other", one("other"))
        await stuck
        assert ends == ["stuck: the handler did not return within 0.05 s"]
        goes_on.set()
        await other
    assert ends[1:] == ["other: None"]


async def test_a_thread_that_runs_while_its_consumer_is_stopped_is_waited_for() -> None:
    """Its work is done, so its message is settled by it, also as a failure."""
    begun, goes_on = threading.Event(), threading.Event()
    settled: list[object] = []

    def handle(message: str) -> None:
        begun.set()
        goes_on.wait()
        raise ValueError(message)

    async def consume() -> None:
        calls: HandlerCalls[str, None] = HandlerCalls(handle, threads=1)
        async with calls.ended("message") as end:
            settled.append(end.failure)

    async with asyncio.timeout(60), Background("test") as background:
        running = background.spawn("consume", consume())
        await asyncio.to_thread(begun.wait)
        for _ in range(2):
            running.cancel()
            await asyncio.wait([running], timeout=0)
        goes_on.set()
        await asyncio.wait([running])
    assert (list(map(repr, settled)), running.cancelled()) == (["ValueError('message')"], True)


def test_threads_are_limited_and_end_with_their_handler() -> None:
    """They are started one by one, reused, and do not hold up the end of the process."""
    threads = HandlerThreads(3)
    barrier, names = threading.Barrier(4), set()

    def work() -> None:
        names.add(threading.current_thread())
        barrier.wait(10)

    assert threads.submit(lambda: 7).result(10) == 7
    for _ in range(2):
        jobs = [threads.submit(work) for _ in range(3)]
        barrier.wait(10)
        assert [job.result(10) for job in jobs] == [None] * 3
    started = set(names)
    assert len(started) <= 3
    assert all(thread.daemon for thread in started)
    del threads
    gc.collect()
    for thread in started:
        thread.join(10)
        assert not thread.is_alive()


class _Callable:
    async def __call__(self, message: object) -> None: ...


async def _coroutine(message: object) -> None: ...


def _plain(message: object) -> None: ...


def _generator(message: object) -> Any:
    yield message


async def _async_generator(message: object) -> Any:
    yield message


def _two(message: object, other: object) -> None: ...


def test_coroutine_functions_are_told_from_plain_ones() -> None:
    """Also behind `partial`, and as an object."""
    assert [is_async(one) for one in (_coroutine, partial(_coroutine), _Callable(), _Callable().__call__)] == [True] * 4
    assert [is_async(one) for one in (_plain, partial(_plain), lambda message: message, print)] == [False] * 4


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (_generator, "_generator contains `yield`"),
        (_async_generator, "_async_generator contains `yield`"),
        (_two, r"_two\(.*\) -> None does not take one message: missing a required argument"),
        ("text", "cannot be called"),
    ],
)
@pytest.mark.ortoo(topics=["orders"])
async def test_what_cannot_be_a_handler_is_refused_by_every_consumer(broker: Broker, handler: Any, words: str) -> None:
    """Before it takes a message; with a retry of each it would be parked after all its attempts."""
    async with connect() as mq:
        async with mq.consumer("push", "orders") as push:
            with pytest.raises(Invalid, match=words):
                await push.run(handler)
        async with mq.pull_consumer("pull", "orders") as pull:
            for run in (pull.run, pull.run_in_order):
                with pytest.raises(Invalid, match=words):
                    await run(handler)
        async with mq.pop_consumer("pop", "orders") as pop:
            with pytest.raises(Invalid, match=words):
                await pop.run(handler)


def test_a_program_refuses_them_when_they_are_declared() -> None:
    """Not when the program runs."""
    app = App("billing")

    def lazy(message: PoppedMessage) -> Any:
        yield message

    def many(message: PoppedMessage) -> None: ...

    with pytest.raises(Invalid, match="lazy contains `yield`"):
        app.consumer("orders")(lazy)
    with pytest.raises(Invalid, match=r"1000 threads for the plain function .*many; expected at most 256"):
        app.consumer("orders", concurrency=1_000)(many)
    app.consumer("orders", concurrency=HANDLER_THREADS_MAX)(many)


@pytest.mark.ortoo(topics=["orders"])
async def test_plain_functions_handle_messages_of_every_consumer_in_threads(broker: Broker) -> None:
    """Each message once; before, a program called it on the loop and then failed for the result None."""
    seen: list[tuple[str, bool]] = []
    loops_thread = threading.current_thread()

    def handle(kind: str, message: Any) -> None:
        seen.append((kind, threading.current_thread() is loops_thread))

    app = App("program")

    @app.consumer("orders")
    def handle_body(body: bytes) -> None:
        handle("program", body)

    await broker.send("orders", b"one")
    async with connect() as mq, app.running(mq):
        push = mq.consumer("push", "orders", ConsumerSettings(from_beginning=True))
        pull = mq.pull_consumer("pull", "orders", PullSettings(from_beginning=True))
        ordered = mq.pull_consumer("ordered", "orders", PullSettings(from_beginning=True))
        async with push, pull, ordered, mq.pop_consumer("pop", "orders") as pop, Background("test") as background:
            background.spawn("push", push.run(partial(handle, "push")))
            background.spawn("pull", pull.run(partial(handle, "pull")))
            background.spawn("ordered", ordered.run_in_order(partial(handle, "ordered")))
            background.spawn("pop", pop.run(partial(handle, "pop")))
            await until(lambda: len(seen) >= 5)
            await broker.clock.advance("1m")
    assert sorted(seen) == [(kind, False) for kind in ("ordered", "pop", "program", "pull", "push")]
    assert not await broker.dead_letters("program")
