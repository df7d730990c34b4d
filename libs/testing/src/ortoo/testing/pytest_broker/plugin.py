"""The pytest plugin: options, the mark, the fixtures. Everything else is imported when a test asks for a broker."""

import inspect
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import asyncio

    from ortoo.testing.pytest_broker.blocking import BlockingBroker
    from ortoo.testing.pytest_broker.broker import Broker
    from ortoo.testing.pytest_broker.hosted_broker import HostedBroker

    LoopFactory = Callable[[], asyncio.AbstractEventLoop]

FIXTURES = ("broker", "blocking_broker")
SEEDS = 1 << 31
HOOK = "pytest_asyncio_loop_factories"
_STAGE = pytest.StashKey["HostedBroker"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register `--ortoo-seed` and the ini options."""
    group = parser.getgroup("ortoo", "a broker in the test")
    group.addoption("--ortoo-seed", type=int, help="the seed of every broker, as a failed test printed it")
    parser.addini("ortoo_seed", "the seed of every broker; without one each test draws its own")
    parser.addini("ortoo_patience", "virtual time that may pass automatically before a test fails", default="30m")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line(
        "markers",
        "ortoo(seed, patience, topics, namesrv, enode, snode): the options of the test's broker. "
        "The last three are settings of its roles",
    )


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Let pytest-asyncio run a test with a broker on the broker's loop; no other test is affected."""
    manager = metafunc.config.pluginmanager
    if not set(FIXTURES).isdisjoint(metafunc.fixturenames) and hasattr(manager.hook, HOOK):
        factories = _Factories()
        manager.register(factories)
        try:
            return (yield)
        finally:
            manager.unregister(factories)
    return (yield)


class _Factories:
    """The loop factories that pytest-asyncio asks for."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_asyncio_loop_factories(
        self, item: pytest.Item
    ) -> "Mapping[str, Callable[[], asyncio.AbstractEventLoop]]":
        """The broker's loop of the test that is running."""
        return {"ortoo": _Running.adopted_loop}


class _Running:
    """The running test."""

    item: pytest.Item | None = None

    @classmethod
    def adopted_loop(cls) -> "asyncio.AbstractEventLoop":
        """Its broker's loop; the caller runs and closes it."""
        assert cls.item is not None
        stage = _stage_of(cls.item)
        stage.is_adopted = True
        return stage.loop


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Record the running test."""
    _Running.item = item


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test with a broker if no other plugin does, so that none is required."""
    stage = pyfuncitem.stash.get(_STAGE, None)
    if stage is None or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    stage.drive(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the seed and the last packets to the report of a failed test."""
    report = yield
    stage = item.stash.get(_STAGE, None)
    if stage is not None and report.failed:
        report.sections.append(("ortoo broker", stage.failure_report(item.nodeid)))
    return report


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> "Iterator[Broker]":
    """A small broker in this process, on virtual time, for asynchronous tests."""
    from ortoo.testing.pytest_broker.broker import Broker

    if not _is_coroutine_test(request):
        pytest.fail(f"{request.node.name} is not an `async def`; use the fixture blocking_broker", pytrace=False)
    with _Opened(request) as stage:
        yield Broker(stage)


@pytest.fixture
def blocking_broker(request: pytest.FixtureRequest) -> "Iterator[BlockingBroker]":
    """Like `broker`, for tests that are plain functions and use `ortoo.client.blocking`."""
    from ortoo.testing.pytest_broker.blocking import BlockingBroker

    if _is_coroutine_test(request):
        pytest.fail(f"{request.node.name} is an `async def`; use the fixture broker", pytrace=False)
    with _Opened(request) as stage:
        made = BlockingBroker(stage)
        try:
            yield made
        finally:
            made.close()


class _Opened:
    """The test's broker, running within the block."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        item = request.node
        runners = [name for name in request.fixturenames if name.endswith("_scoped_runner")]
        if runners not in ([], ["_function_scoped_runner"]):
            pytest.fail(
                f"a broker lives as long as its test, and so must the loop: {item.name} and its asynchronous fixtures "
                'have loop_scope="function"',
                pytrace=False,
            )
        self._stage = _stage_of(item)
        for name in runners:
            request.getfixturevalue(name)  # set up before the broker, so closed after it
        if runners and not self._stage.is_adopted:
            pytest.fail("a broker needs pytest-asyncio 1.4 or newer, or none at all", pytrace=False)

    def __enter__(self) -> "HostedBroker":
        try:
            self._stage.open()
        except (TypeError, ValueError) as error:
            pytest.fail(str(error), pytrace=False)
        return self._stage

    def __exit__(self, *_: object) -> None:
        self._stage.close()


def _is_coroutine_test(request: pytest.FixtureRequest) -> bool:
    test = getattr(request, "function", None)
    return inspect.iscoroutinefunction(inspect.unwrap(test)) if test is not None else False


def _stage_of(item: pytest.Item) -> "HostedBroker":
    """The broker of a test, not started. Fails the test when its options are wrong."""
    from ortoo.common.process.randomness import Randomness
    from ortoo.testing.pytest_broker.hosted_broker import HostedBroker
    from ortoo.testing.pytest_broker.options import options_of_mark

    found = item.stash.get(_STAGE, None)
    if found is None:
        marks = list(item.iter_markers("ortoo"))[::-1]  # the closest mark has precedence
        named = {name: value for mark in marks for name, value in mark.kwargs.items()}
        positional = tuple(value for mark in marks for value in mark.args)
        given, ini = item.config.getoption("--ortoo-seed"), item.config.getini("ortoo_seed")
        try:
            seed = given if given is not None else int(ini) if ini else Randomness().below(SEEDS)
            choices = options_of_mark(
                named,
                positional,
                seed=seed,
                patience=item.config.getini("ortoo_patience"),
                seed_is_given=given is not None,
            )
        except ValueError as error:
            pytest.fail(str(error), pytrace=False)
        found = item.stash[_STAGE] = HostedBroker(choices)
    return found
