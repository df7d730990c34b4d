"""The cost of the largest requests by an unauthenticated client: every method of every role, one at a time.

python -m tests.hostile.large_requests

No request of up to 8 MiB may keep the event loop for more than 250 ms, or add more than 100 MiB. The time is the
processor time of the main thread, which a busy machine changes little.
"""

import argparse
import asyncio
import gzip
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ortoo.common.grpc.channels import MESSAGE_BYTES_MAX
from ortoo.common.grpc.limits.element_limits import ELEMENTS_MAX
from ortoo.common.records.wire import varint
from ortoo.verification.forks.spawning import forking
from ortoo.verification.servers.processes import RoleProcess, process_cluster
from tests.hostile.siege import SPARED
from tests.hostile.strangers import forget_peak, resident_mib
from tests.hostile.surface import Method, methods_of

TIME_MS_MAX, MEMORY_MIB_MAX = 250.0, 100.0
REQUEST_BYTES = MESSAGE_BYTES_MAX - 1024
CALL_TIMEOUT_S = 20.0
TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
KINDS = ("elements", "compressed elements", "full list", "text", "unknown fields")
QUIET = frozenset({"/apache.rocketmq.v2.Admin/ChangeLogLevel"}) | SPARED
"""Methods that change the cost of others, or act in the name of a process of the cluster."""


@dataclass(frozen=True, slots=True)
class Large:
    """A request and its content."""

    kind: str
    where: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one request."""

    role: str
    method: str
    kind: str
    where: str
    time_ms: float
    memory_mib: float
    answer: str

    def __str__(self) -> str:
        return (
            f"{self.role} {self.method}, {self.kind} in {self.where or 'the request'}: {self.time_ms:.0f} ms, "
            f"{self.memory_mib:.0f} MiB, {self.answer}"
        )


def _field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def _within(way: Sequence[FieldDescriptor], data: bytes) -> bytes:
    """A request with `data` as the bytes of the message at the end of `way`."""
    for field in reversed(way):
        data = _field(field.number, data)
    return data


def _element(field: FieldDescriptor) -> bytes:
    """The shortest element of a list."""
    is_long = field.message_type is not None or field.type in TEXTS
    return _field(field.number, b"") if is_long else varint(field.number << 3) + b"\0"


def large_requests(method: Method, kinds: Sequence[str] = KINDS) -> Iterator[Large]:
    """The requests of these kinds that the method accepts."""
    found = list(_of_message(method.request, ()))
    found.append(Large("unknown fields", "", b"\xf8\x7f\0" * (REQUEST_BYTES // 3)))
    elements = [one for one in found if one.kind == "elements"]
    found += [Large("compressed elements", one.where, gzip.compress(one.data, 1)) for one in elements[:1]]
    yield from (one for one in found if one.kind in kinds)


def _of_message(descriptor: Descriptor, way: tuple[FieldDescriptor, ...]) -> Iterator[Large]:
    for field in descriptor.fields:
        where = ".".join(one.name for one in (*way, field))
        if field.is_repeated:
            element = _element(field)
            yield Large("elements", where, _within(way, element * (REQUEST_BYTES // len(element))))
            if field.full_name in ELEMENTS_MAX:  # foreign fields have none
                yield Large("full list", where, _within(way, element * ELEMENTS_MAX[field.full_name]))
        if field.type in TEXTS:
            yield Large("text", where, _within(way, _field(field.number, b"a" * REQUEST_BYTES)))
        if field.message_type is not None and field.message_type not in [one.message_type for one in way]:
            yield from _of_message(field.message_type, (*way, field))


def _on_processor_ms(role: RoleProcess) -> float:
    """Processor time of the main thread."""
    return int(Path(f"/proc/{role.pid}/task/{role.pid}/schedstat").read_text().split()[0]) / 1e6


class Asking:
    """Sends large requests to one process."""

    def __init__(self, role: RoleProcess, channel: grpc.aio.Channel) -> None:
        self._role = role
        self._channel = channel
        self._health = health_pb2_grpc.HealthStub(channel)

    async def methods(self) -> Sequence[Method]:
        """The methods to call."""
        return [one for one in await methods_of(self._channel) if one.path not in QUIET and "/grpc." not in one.path]

    async def ask(self, method: Method, large: Large) -> Cost:
        """Send one request and measure its cost."""
        forget_peak(self._role)
        before_ms, before_mib = _on_processor_ms(self._role), resident_mib(self._role)
        answer = await self._answer(method, large.data)
        await self._health.Check(health_pb2.HealthCheckRequest(), timeout=CALL_TIMEOUT_S)
        return Cost(
            self._role.role,
            method.path.rpartition(".")[2],
            large.kind,
            large.where,
            _on_processor_ms(self._role) - before_ms,
            resident_mib(self._role, "VmHWM") - before_mib,
            answer,
        )

    async def _answer(self, method: Method, data: bytes) -> str:
        async def one() -> AsyncIterator[bytes]:
            yield data

        asking: Any = method.callable(self._channel)
        call = asking(one() if method.client_streams else data, timeout=CALL_TIMEOUT_S)
        try:
            if not method.server_streams:
                await call
            elif await call.read() is not grpc.aio.EOF:
                call.cancel()
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {(error.details() or '')[:100]}"
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
        return "answered"


async def costs_of_requests(folder: Path, kinds: Sequence[str] = KINDS, transport: str = "") -> list[Cost]:
    """Send every kind of large request to every method of every role, without access control."""
    costs = []
    environ = {role: {"LOG_LEVEL": "error"} for role in ("namesrv", "snode")}
    with forking(wanted=False):
        async with process_cluster(folder, environ=environ, transport=transport) as it:
            for role in it.roles:
                options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
                async with grpc.aio.insecure_channel(role.address, options=options) as channel:
                    asking = Asking(role, channel)
                    for method in await asking.methods():
                        for large in large_requests(method, kinds):
                            costs.append(await asking.ask(method, large))
                            assert role.alive, costs[-1]
    return costs


def beyond(costs: Sequence[Cost], time_ms_max: float, memory_mib_max: float) -> list[str]:
    """Requests that cost too much, or have an answer larger than a client accepts."""
    return [
        str(one)
        for one in costs
        if one.time_ms > time_ms_max or one.memory_mib > memory_mib_max or "metadata size" in one.answer
    ]


def main() -> int:
    """Run from the command line; 1 when a promise is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", nargs="*", default=KINDS, help=f"of {', '.join(KINDS)}")
    parser.add_argument("--transport", default="", help="grpc or h2; empty is the default of every process")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ortoo-large-") as folder:
        costs = asyncio.run(costs_of_requests(Path(folder), chosen.kinds, chosen.transport))
    for cost in sorted(costs, key=lambda one: -one.time_ms)[:10] + sorted(costs, key=lambda one: -one.memory_mib)[:10]:
        sys.stdout.write(f"{cost}\n")
    broken = beyond(costs, TIME_MS_MAX, MEMORY_MIB_MAX)
    sys.stdout.write(f"{len(costs)} requests, {len(broken)} beyond {TIME_MS_MAX:.0f} ms or {MEMORY_MIB_MAX:.0f} MiB\n")
    for line in broken:
        sys.stdout.write(line + "\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
