"""Every number of users has a range: each setting of each role, and each field of a request."""

import asyncio
import dataclasses
import math
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from ortoo.common.errors import Invalid
from ortoo.common.process.settings import NumberRange, ranges
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.settings import EnodeSettings
from ortoo.namesrv.settings import NamesrvSettings
from ortoo.snode.settings import SnodeSettings
from ortoo.v1 import enode_pb2, namesrv_pb2
from ortoo.verification.servers.cluster import SMALL_STORE, InProcessCluster, open_cluster
from tests.contract.test_g16_rights import FILES, filled, request_of

ROLES: dict[str, Any] = {"namesrv": NamesrvSettings, "enode": EnodeSettings, "snode": SnodeSettings}
UNITS = ("_ms", "_s", "_bytes", "_percent", "_max", "_count")
NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}
DEFECTS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
WAIT_S = 3.0
"""A call that still runs after this time was accepted."""
STARTED_ELSEWHERE = {"store.segment_bytes", "watchers_max", "replica", "replicas"}
"""Not tested here: a file of two gigabytes, a replica's number, and watchers, of which an enode and a snode are two."""
NEEDED = {"replica": {"replica_listen_address": "127.0.0.1:0"}}
NEEDED["workers"] = {"redis_url": "redis://localhost:6379"}
NEEDED["replicas"] = NEEDED["replica"] | {"replica": "2"}
"""The other settings that are required for all values of a setting."""


def numbers_of(cls: Any, prefix: str = "") -> set[str]:
    """Dotted names of all settings that are numbers."""
    found: set[str] = set()
    for field in dataclasses.fields(cls):
        default = field.default_factory() if callable(field.default_factory) else field.default
        if dataclasses.is_dataclass(default):
            found |= numbers_of(type(default), f"{prefix}{field.name}.")
        elif isinstance(default, int | float) and not isinstance(default, bool):
            found.add(prefix + field.name)
    return found


def beyond(allowed: NumberRange, default: object) -> tuple[float, float]:
    """The nearest numbers below and above a range."""
    if isinstance(default, int):
        return allowed.minimum - 1, allowed.maximum + 1
    return math.nextafter(allowed.minimum, -math.inf), math.nextafter(allowed.maximum, math.inf)


@pytest.mark.parametrize("role", ROLES)
def test_every_number_among_the_settings_has_a_range(role: str) -> None:
    """A setting without a range would only be noticed by its damage."""
    assert numbers_of(ROLES[role]) == set(ranges(ROLES[role]))


@pytest.mark.parametrize("role", ROLES)
def test_the_ends_of_a_range_are_taken_and_what_is_beyond_is_refused_by_name(role: str) -> None:
    """The error names the setting and its range."""
    loading = ROLES[role].load
    for name, allowed in ranges(ROLES[role]).items():
        needed = NEEDED.get(name, {})
        taken = loading({}, overrides={name: allowed.minimum, **needed}).settings
        loading({}, overrides={name: allowed.maximum, **needed})
        value: Any = taken
        for part in name.split("."):
            value = getattr(value, part)
        for number in (*beyond(allowed, value), *(() if isinstance(value, int) else (math.nan,))):
            with pytest.raises(Invalid) as refused:
                loading({}, overrides={name: number})
            assert refused.value.field == name
            assert f"{allowed.minimum:,} to {allowed.maximum:,}" in refused.value.message


@pytest.mark.parametrize("end", ["minimum", "maximum"])
async def test_every_role_starts_with_the_ends_of_its_ranges(end: str, tmp_path: Path) -> None:
    """With all numbers at their minimum, or at their maximum, the processes start and find each other."""
    chosen: dict[str, dict[str, Any]] = {}
    for role, cls in ROLES.items():
        for name, allowed in ranges(cls).items():
            if name not in STARTED_ELSEWHERE and name != "stop_grace_s":
                chosen.setdefault(role, {})[name] = getattr(allowed, end)
    enode = chosen["enode"]
    own = {name.removeprefix("store."): enode.pop(name) for name in list(enode) if name.startswith("store.")}
    store = dataclasses.replace(StoreSettings(segment_bytes=SMALL_STORE.segment_bytes), **own)
    for role in chosen:
        chosen[role]["drain_delay_s"] = 0.0  # only a stop waits for it
    async with asyncio.timeout(60), open_cluster(tmp_path, store=store, settings=chosen) as cluster:
        assert set(cluster.running) == {"namesrv-0", "enode-0", "snode-0"}


METHODS: list[tuple[str, MethodDescriptor]] = [
    (role, method)
    for role, files in {"snode-0": FILES, "namesrv-0": (namesrv_pb2,), "enode-0": (enode_pb2,)}.items()
    for file in files
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


def with_extremes(made: Message, topic_id: int, path: tuple[str, ...] = ()) -> Iterator[tuple[str, int]]:
    """(dotted name, number) of each field with a unit in a request and its messages, with the limits of its type."""
    for field in made.DESCRIPTOR.fields:
        name = ".".join((*path, field.name))
        if field.message_type is not None and not field.message_type.GetOptions().map_entry and len(path) < 4:
            made_of: Any = field.message_type
            if made_of.full_name == "google.protobuf.Duration":
                yield from ((f"{name}.seconds", number) for number in NUMBERS[FieldDescriptor.CPPTYPE_INT64])
            elif made_of.full_name != made.DESCRIPTOR.full_name:
                yield from with_extremes(GetMessageClass(made_of)(), topic_id, (*path, field.name))
        elif field.cpp_type in NUMBERS and field.name.endswith(UNITS):
            yield from ((name, number) for number in NUMBERS[field.cpp_type])


def put(request: Any, name: str, number: int, topic_id: int) -> None:
    """Set the field of a dotted name; a list gets an entry for it."""
    *path, last = name.split(".")
    for part in path:
        here = getattr(request, part)
        if request.DESCRIPTOR.fields_by_name[part].is_repeated:
            here = here[0] if len(here) else filled(here.add(), topic_id)
        request = here
    if request.DESCRIPTOR.fields_by_name[last].is_repeated:
        getattr(request, last)[:] = [number]
    else:
        setattr(request, last, number)


async def answered(cluster: InProcessCluster, role: str, method: MethodDescriptor, request: Message) -> grpc.StatusCode:
    """The status of one call."""
    ended = asyncio.Event()

    async def given() -> AsyncIterator[Message]:
        yield request
        await ended.wait()

    kind = "_".join("stream" if one else "unary" for one in (method.client_streaming, method.server_streaming))
    call = getattr(cluster.channels.channel_to(cluster.address_of(role)), kind)(
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )(given() if method.client_streaming else request, timeout=WAIT_S, metadata=(("x-mq-client-id", "c"),))
    try:
        _ = [one async for one in call] if method.server_streaming else [await call]
    except grpc.aio.AioRpcError as error:
        return error.code()
    finally:
        ended.set()
    return grpc.StatusCode.OK


async def test_no_number_in_a_request_is_a_defect(tmp_path: Path) -> None:
    """The minimum and maximum of each field with a unit are accepted or refused, and never cause Internal."""
    wrong: list[str] = []
    async with open_cluster(tmp_path) as cluster, asyncio.timeout(300):
        topic_id = (await cluster.create_topic("t", queues=1)).topic_id

        async def check(role: str, method: MethodDescriptor, name: str, number: int) -> None:
            request = (
                request_of(f"{method.containing_service.name}/{method.name}", "", topic_id)[-1]
                if role == "snode-0"
                else filled(GetMessageClass(method.input_type)(), topic_id)
            )
            put(request, name, number, topic_id)
            code = await answered(cluster, role, method, request)
            if code in DEFECTS:
                wrong.append(f"{method.full_name}: {name} = {number}: {code.name}")

        await asyncio.gather(
            *(
                check(role, method, name, number)
                for role, method in METHODS
                for name, number in with_extremes(GetMessageClass(method.input_type)(), topic_id)
            )
        )
    assert wrong == []
