"""One test's broker: the world, the machines, and the process of the test."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar, cast

import structlog

from ortoo.client import connect
from ortoo.client.blocking.loop_thread import using_loop_threads
from ortoo.common.cluster.process_name import using_process_name
from ortoo.common.grpc.transport import using_transport
from ortoo.common.logs.logger import restored_configuration
from ortoo.common.process.clock import using_clock
from ortoo.common.process.randomness import using_randomness
from ortoo.testing.memory_grpc import NODE
from ortoo.testing.pytest_broker.clock import ClientsClock, TimeAdvance
from ortoo.testing.pytest_broker.durations import format_duration
from ortoo.testing.pytest_broker.faults import Faults
from ortoo.testing.pytest_broker.loop import BrokerLoop, is_of_test
from ortoo.testing.pytest_broker.message_trace import TEST, MessageTrace
from ortoo.testing.pytest_broker.options import BrokerOptions
from ortoo.testing.pytest_broker.threads import TurnTakingLoop
from ortoo.testing.simulation.cluster.cluster import ClusterShape, SimulatedCluster
from ortoo.testing.simulation.kernel.garbage import explicit_garbage_collection
from ortoo.testing.simulation.kernel.process import dispose_all
from ortoo.testing.simulation.world import World

T = TypeVar("T")
ADDRESS = "localhost:8081"
"""The snode's address, the default of clients."""
NEVER_S = 20 * 86_400.0
"""No lease or session expires because the test advances a day at once: longer than `LEAP_MAX_S` of the clock."""
LOOK_S = 0.02
TIDY_S = 30.0
"""The time that cancelled tasks of the test may take to end."""
SETTINGS: dict[str, dict[str, Any]] = {
    "namesrv": {"lease_s": NEVER_S},
    "enode": {"transaction_check_interval_ms": 30_000},
    "snode": {"session_expiry_s": NEVER_S},
}


class HostedBroker:
    """One broker, from before the test to after it."""

    def __init__(self, choices: BrokerOptions) -> None:
        """A broker that is not started. Its loop can be given to the runner of the test."""
        self.options = choices
        self.message_trace = MessageTrace()
        self.world = World(
            choices.seed,
            trace_file=cast("Any", self.message_trace),
            make_loop=lambda chances: BrokerLoop(chances, patience_s=choices.timeout_s),
        )
        self.loop = cast("BrokerLoop", self.world.loop)
        self.is_adopted = False
        """Whether pytest-asyncio runs the loop, and closes it."""
        self.cluster = SimulatedCluster(self.world, ClusterShape(name_servers=1, enodes=1, snodes=1))
        for role, machine in zip(("namesrv", "enode", "snode"), self.cluster.machines, strict=True):
            machine.chosen = SETTINGS[role] | dict(choices.settings.get(role, {}))
        snode = self.cluster.snodes[0]
        snode.address = ADDRESS
        self.world.network.set_address(snode.name, ADDRESS)
        self.world.network.set_address(snode.name, ADDRESS.replace("localhost", "127.0.0.1"))
        self.faults = Faults(self.cluster, self.loop)
        self.passing = TimeAdvance(self.loop, self.world.clock, self.cluster.enodes[0])
        self._process = self.world.process(TEST)
        self._clients = 0
        self._test = contextlib.ExitStack()
        self._garbage = contextlib.ExitStack()
        self._is_over = False

    def open(self) -> None:
        """Start the broker; from now on the caller's context is the test's. Errors: those of settings."""
        self._garbage.enter_context(explicit_garbage_collection())
        try:
            self.drive(self._start())
            enter = self._test.enter_context
            enter(using_transport(self.world.network.transport))
            enter(using_clock(ClientsClock(self.loop)))
            enter(using_randomness(self._next_chance))
            enter(using_loop_threads(lambda: TurnTakingLoop(self.loop)))
            enter(using_process_name(TEST))
            token = NODE.set(self._process)
            self._test.callback(NODE.reset, token)
            self.drive(self._prepare())
            self.message_trace.lines_of_test = 0
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End everything and restore the context."""
        try:
            if self._is_over:
                return
            self._is_over = True
            with contextlib.suppress(Exception):
                self.drive(self._tidy())
            for thread in tuple(self.loop.threads.values()):
                thread.end()
            self._test.close()
            with _silence():
                dispose_all(self.loop, self.world.processes)
            for task in asyncio.all_tasks(self.loop):
                asyncio.tasks._unregister_task(task)  # documented, for code that ends tasks
            self.world.database.close()
            if not self.is_adopted:
                self.loop.close()
        finally:
            self._garbage.close()

    def drive(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end; only while no other code runs the loop."""
        answer: T = self.loop.run_until_complete(work)
        return answer

    def failure_report(self, test: str) -> str:
        """The report of a failed test."""
        lines = [
            f"seed {self.options.seed}, {format_duration(self.world.loop.time())} of virtual time. The same run again:",
            f"  pytest {test!r} --ortoo-seed={self.options.seed}",
            "",
            "last packets, in virtual seconds:",
            self.message_trace.format(),
        ]
        if self.world.violations:
            lines += ["", "the broker noticed:", *map(str, self.world.violations.all)]
        return "\n".join(lines)

    async def _start(self) -> None:
        starting = asyncio.ensure_future(self.cluster.start())  # noqa: TID251  # ends with this method
        failing = asyncio.ensure_future(self.world.violations.some.wait())  # noqa: TID251
        await asyncio.wait({starting, failing}, return_when=asyncio.FIRST_COMPLETED, timeout=TIDY_S)
        failing.cancel()
        if not starting.done():
            starting.cancel()
            raise ValueError(f"the broker does not start: {'; '.join(map(str, self.world.violations.all))}")
        starting.result()

    async def _prepare(self) -> None:
        """Wait until the enode is registered, and create the topics."""
        async with connect(ADDRESS) as client:
            while not any(enode.alive for enode in (await client.admin.describe_cluster()).enodes):
                await self.world.clock.sleep(LOOK_S)
            for topic in self.options.topics:
                await client.admin.create_topic(topic)

    async def _tidy(self) -> None:
        """Cancel the test's remaining tasks, as `asyncio.run` does, while the broker can still answer."""
        left = [
            task
            for task in asyncio.all_tasks(self.loop)
            if task is not asyncio.current_task() and is_of_test(getattr(task, "process", None))
        ]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=TIDY_S)
        for task in left:
            if task.done() and not task.cancelled() and task.exception() is not None:
                logging.getLogger(__name__).warning("a task that the test left failed", exc_info=task.exception())

    def _next_chance(self) -> Any:
        self._clients += 1
        return self.world.random_streams.stream(f"client {self._clients}")


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Drop the log lines of processes while they are closed."""

    def drop(*_: Any) -> Any:
        raise structlog.DropEvent

    with restored_configuration():
        structlog.configure(processors=[drop])
        yield
